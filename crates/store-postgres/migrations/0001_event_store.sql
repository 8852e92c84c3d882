-- The event store. Nothing in here decides anything: every value comes from the program. Ids, keys
-- and tag values are bytes, since NUL is legal in them. Times of events are in seconds, all others
-- in milliseconds. An event's number, `seq`, is that of its first feed row; indexes refer to events
-- by it.

-- One row: the life of the feed, the last number that is no longer kept, and how often
-- node_subscriptions has changed, by which who remembers them knows whether that is still true.
CREATE TABLE feed_meta (
    epoch          BIGINT NOT NULL,
    floor_seq      BIGINT NOT NULL,
    topics_version BIGINT NOT NULL
);
CREATE UNIQUE INDEX feed_meta_one_row ON feed_meta ((TRUE));

-- Topic ids are long; rows and indexes carry a number in their place. A number is never taken back
-- or given to another topic, so whoever has read one may remember it.
CREATE TABLE topic_numbers (
    topic_no INTEGER NOT NULL PRIMARY KEY,
    topic_id TEXT COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE node_subscriptions (
    topic_id      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name          BYTEA NOT NULL,
    enabled       BOOLEAN NOT NULL,
    pinned        BOOLEAN NOT NULL,
    wanted        BIGINT NOT NULL,
    ingest_policy TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL
);

-- Written in nearly every batch: room on its pages lets new versions stay on the page of the old.
CREATE TABLE topic_usage (
    topic_no INTEGER NOT NULL PRIMARY KEY,
    events   BIGINT NOT NULL,
    bytes    BIGINT NOT NULL
) WITH (fillfactor = 50);

-- Every id that was answered OK true. `seq` and `first_seen_at` lead to the event's row and its
-- partition. `id` is the first eight bytes of `event_id`: an index of it is a third as large, and
-- `event_id` tells apart what shares them. That an id has one row is seen to by who writes, alone.
CREATE TABLE event_dedupe (
    id            BIGINT NOT NULL,
    first_seen_at BIGINT NOT NULL,
    last_seen_at  BIGINT NOT NULL,
    seen_count    BIGINT NOT NULL,
    seq           BIGINT,
    event_id      BYTEA NOT NULL
) WITH (fillfactor = 90);
CREATE INDEX event_dedupe_by_id ON event_dedupe (id) WITH (deduplicate_items = off);

-- Every stored event. `keep` 0 leaves by the month, 1 row by row. `links` is a list of
-- (topic number: 4 bytes, link seq: 8 bytes), big endian, sorted by topic id. `body` is the part of
-- the canonical JSON that has no column of its own, tags and content; the view events_json shows
-- all of it.
CREATE TABLE events (
    seq         BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    ingested_at BIGINT NOT NULL,
    expires_at  BIGINT,
    kind        INTEGER NOT NULL,
    keep        SMALLINT NOT NULL,
    state       SMALLINT NOT NULL,
    event_id    BYTEA NOT NULL,
    pubkey      BYTEA NOT NULL,
    sig         BYTEA NOT NULL,
    links       BYTEA NOT NULL,
    body        BYTEA NOT NULL
) PARTITION BY LIST (keep);
-- Not unique, because then it would have to hold the keys of partitions too and be twice as large.
-- That a number is used once is seen to by the feed.
CREATE INDEX events_by_seq ON events (seq);
-- Compressing a large body costs more than verifying its signature.
ALTER TABLE events ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE events_standard PARTITION OF events FOR VALUES IN (0) PARTITION BY RANGE (ingested_at);
CREATE TABLE events_longer PARTITION OF events FOR VALUES IN (1);
ALTER TABLE events_standard ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE events_longer ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE VIEW events_json AS
    SELECT seq, ingested_at, keep, state,
        '{"id":"' || encode(event_id, 'hex') || '","pubkey":"' || encode(pubkey, 'hex')
            || '","created_at":' || created_at || ',"kind":' || kind
            || ',"tags":' || convert_from(body, 'UTF8') || ',"sig":"' || encode(sig, 'hex') || '"}'
            AS event_json
    FROM events;

-- One row per effective event and topic: all that a query looks at. `tie` orders events of one
-- second: it is greater for smaller ids. `tie` and `author` are the first eight bytes of what
-- stands beside them in full. `keep` and `ingested_at` name the partition of the event.
CREATE TABLE event_topics (
    created_at  BIGINT NOT NULL,
    tie         BIGINT NOT NULL,
    author      BIGINT NOT NULL,
    seq         BIGINT NOT NULL,
    link_seq    BIGINT NOT NULL,
    expires_at  BIGINT,
    ingested_at BIGINT NOT NULL,
    topic_no    INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    keep        SMALLINT NOT NULL,
    event_id    BYTEA NOT NULL,
    pubkey      BYTEA NOT NULL
);
-- Hardly any two entries are equal: the server need not look for equal ones when a page is full.
CREATE INDEX event_topics_by_link ON event_topics (topic_no, link_seq)
    WITH (deduplicate_items = off);
CREATE INDEX event_topics_by_topic ON event_topics (topic_no, created_at, tie)
    WITH (deduplicate_items = off);
CREATE INDEX event_topics_by_author ON event_topics (author, created_at, tie)
    WITH (deduplicate_items = off);

-- The links of stored events that are not effective. No query reads them.
CREATE TABLE hidden_links (
    topic_no INTEGER NOT NULL,
    link_seq BIGINT NOT NULL,
    event_id BYTEA NOT NULL,
    PRIMARY KEY (topic_no, link_seq)
);

-- The single-letter tags of effective events. `key` is a hash of tag and value, which stand beside
-- it in full: a byte 1 and 32 bytes for 64 hex digits, a byte 0 and the value itself otherwise.
CREATE TABLE event_tags (
    key        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    tie        BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    tag        SMALLINT NOT NULL,
    value      BYTEA NOT NULL
);
CREATE INDEX event_tags_by_key ON event_tags (key, created_at, tie)
    WITH (deduplicate_items = off);

-- The winner of each (kind, pubkey, d), and until when versions are deleted.
CREATE TABLE current_versions (
    kind          INTEGER NOT NULL,
    pubkey        BYTEA NOT NULL,
    d             BYTEA NOT NULL,
    created_at    BIGINT,
    event_id      BYTEA,
    state         SMALLINT,
    deleted_until BIGINT,
    event_json    BYTEA,
    PRIMARY KEY (kind, pubkey, d)
);
ALTER TABLE current_versions ALTER COLUMN event_json SET STORAGE EXTERNAL;
CREATE VIEW replaceable_current AS
    SELECT pubkey, kind, event_id, created_at, convert_from(event_json, 'UTF8') AS event_json
    FROM current_versions
    WHERE state = 1 AND kind < 20000;
CREATE VIEW addressable_current AS
    SELECT kind, pubkey, d, event_id, created_at, convert_from(event_json, 'UTF8') AS event_json
    FROM current_versions
    WHERE state = 1 AND kind >= 30000;

-- Deletions by id: one author's wish about one id, whether that event is here or not.
CREATE TABLE deletion_tombstones (
    target_event_id   BYTEA NOT NULL,
    pubkey            BYTEA NOT NULL,
    deletion_event_id BYTEA NOT NULL,
    requested_at      BIGINT NOT NULL,
    applied_at        BIGINT,
    PRIMARY KEY (target_event_id, pubkey)
);

-- When effective events end.
CREATE TABLE expirations (
    expires_at BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    event_id   BYTEA NOT NULL,
    PRIMARY KEY (expires_at, seq)
);

-- The feed. `prior` is a list of topic numbers (4 bytes each, big endian); (kind, pubkey,
-- effective_d) is the effective key where there is one.
CREATE TABLE events_outbox (
    seq          BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    ingested_at  BIGINT NOT NULL,
    topic_no     INTEGER NOT NULL,
    kind         INTEGER NOT NULL,
    via_topic_no INTEGER,
    op           SMALLINT NOT NULL,
    source       SMALLINT NOT NULL,
    reason       SMALLINT,
    event_id     BYTEA NOT NULL,
    pubkey       BYTEA NOT NULL,
    effective_d  BYTEA,
    prior        BYTEA NOT NULL,
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);
