-- How far each generation of a consumer is, and whose work it is.

-- One row per consumer.
CREATE TABLE consumer_states (
    consumer TEXT NOT NULL PRIMARY KEY,
    -- The generation that is read; none before the first one is built.
    active BIGINT,
    -- 1 running, 2 paused.
    wish BIGINT NOT NULL
);

-- One row per generation. It changes in the transaction of the effects it tells of.
CREATE TABLE consumer_offsets (
    consumer TEXT NOT NULL,
    generation BIGINT NOT NULL,
    -- 1 building, 2 active, 3 retired.
    role BIGINT NOT NULL,
    -- The version of the consumer that makes it.
    version BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    -- The last feed row that is in it, and what that row was, so that another feed is noticed.
    last_seq BIGINT NOT NULL,
    last_row BLOB,
    -- The feed row from which on it follows the feed, once the state is in it.
    start_seq BIGINT NOT NULL,
    -- While the state is read: the number of the last event that is in it.
    scan_seq BIGINT,
    -- Who works on it, since when nobody else may until when. Each change of hands has a fence of its own.
    holder BIGINT,
    fence BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    -- Up to here a row may be what ended the last holder, and how many holders in turn.
    suspect_until BIGINT NOT NULL,
    kills BIGINT NOT NULL,
    -- The row that is tried alone, and how often.
    tried_seq BIGINT NOT NULL,
    tries BIGINT NOT NULL,
    -- Why it stands still until somebody has a look.
    halted TEXT,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (consumer, generation)
);

-- Rows that a generation could not handle.
CREATE TABLE parked (
    consumer TEXT NOT NULL,
    generation BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    event_id BLOB NOT NULL,
    topic_id TEXT NOT NULL,
    -- 1 upsert, 2 delete.
    op BIGINT NOT NULL,
    reason TEXT NOT NULL,
    tries BIGINT NOT NULL,
    parked_at BIGINT NOT NULL,
    PRIMARY KEY (consumer, generation, seq)
);
