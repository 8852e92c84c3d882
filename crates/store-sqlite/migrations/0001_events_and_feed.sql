-- The state of the relay, and its feed. An event's number, `seq`, is that of its first feed row;
-- indexes refer to events by it. Times of events are in seconds, all others in milliseconds.

CREATE TABLE feed_meta (
    epoch     INTEGER NOT NULL,
    floor_seq INTEGER NOT NULL
) STRICT;

-- Index rows of new events are written in sorted runs: events up to `up_to_seq` are in the tables
-- event_ids, event_topics, topic_links, event_tags and event_authors; those after it, the tail, are
-- indexed in the memory of each process until the next run.
CREATE TABLE indexed (
    up_to_seq INTEGER NOT NULL
) STRICT;

-- Topic ids are long; inside this file they are numbers. A number is never used twice.
CREATE TABLE topic_numbers (
    topic_no INTEGER PRIMARY KEY,
    topic_id TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE node_subscriptions (
    topic_id      TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    enabled       INTEGER NOT NULL,
    pinned        INTEGER NOT NULL,
    wanted        INTEGER NOT NULL,
    ingest_policy TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE topic_usage (
    topic_no INTEGER PRIMARY KEY,
    events   INTEGER NOT NULL,
    bytes    INTEGER NOT NULL
) STRICT;

-- Every stored event. `links` is "topic_no:seq …": its topics and the rows that linked it.
CREATE TABLE events (
    seq         INTEGER PRIMARY KEY,
    event_id    BLOB NOT NULL,
    pubkey      BLOB NOT NULL,
    kind        INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    ingested_at INTEGER NOT NULL,
    expires_at  INTEGER,
    keep        INTEGER NOT NULL,
    state       INTEGER NOT NULL,
    links       TEXT NOT NULL,
    event_json  TEXT NOT NULL
) STRICT;

-- Ids are spread evenly, so that a run touches every page of an index of them: it has to be narrow.
-- `id` is the first eight bytes of the event's id.
CREATE TABLE event_ids (
    id  INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (id, seq)
) STRICT, WITHOUT ROWID;

-- Ids that were seen and answered OK true, and of which no record tells all: they came again, or
-- their event is not stored, or not any more. A stored event that came once needs no row.
CREATE TABLE event_dedupe (
    event_id      BLOB PRIMARY KEY,
    first_seen_at INTEGER NOT NULL,
    last_seen_at  INTEGER NOT NULL,
    seen_count    INTEGER NOT NULL,
    seq           INTEGER
) STRICT, WITHOUT ROWID;

-- What REQ scans: links of effective events. `author` is the first eight bytes of the pubkey.
CREATE TABLE event_topics (
    topic_no   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    event_id   BLOB NOT NULL,
    seq        INTEGER NOT NULL,
    kind       INTEGER NOT NULL,
    author     INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (topic_no, created_at DESC, event_id)
) STRICT, WITHOUT ROWID;

-- What resume and unlinking scan: links of all stored events, in the order they were made.
CREATE TABLE topic_links (
    topic_no INTEGER NOT NULL,
    link_seq INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (topic_no, link_seq)
) STRICT, WITHOUT ROWID;

-- Single-letter tags, other than `t`, of effective events. `key` is a hash of letter and value; the
-- event itself tells tags apart that share it.
CREATE TABLE event_tags (
    key        INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (key, created_at DESC, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE event_authors (
    author     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    kind       INTEGER NOT NULL,
    PRIMARY KEY (author, created_at DESC, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE expirations (
    expires_at INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (expires_at, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE current_versions (
    kind          INTEGER NOT NULL,
    pubkey        BLOB NOT NULL,
    d             BLOB NOT NULL,
    created_at    INTEGER,
    event_id      BLOB,
    state         INTEGER,
    deleted_until INTEGER,
    event_json    TEXT,
    PRIMARY KEY (kind, pubkey, d)
) STRICT;

CREATE VIEW replaceable_current AS
    SELECT pubkey, kind, created_at, event_id, event_json FROM current_versions
    WHERE state = 1 AND kind < 30000;

CREATE VIEW addressable_current AS
    SELECT kind, pubkey, d, created_at, event_id, event_json FROM current_versions
    WHERE state = 1 AND kind >= 30000;

CREATE TABLE deletion_tombstones (
    target_event_id   BLOB NOT NULL,
    pubkey            BLOB NOT NULL,
    deletion_event_id BLOB NOT NULL,
    requested_at      INTEGER NOT NULL,
    applied_at        INTEGER,
    PRIMARY KEY (target_event_id, pubkey)
) STRICT, WITHOUT ROWID;

CREATE TABLE events_outbox (
    seq           INTEGER PRIMARY KEY,
    op            INTEGER NOT NULL,
    event_id      BLOB NOT NULL,
    topic_no      INTEGER NOT NULL,
    prior         TEXT NOT NULL,
    kind          INTEGER NOT NULL,
    pubkey        BLOB NOT NULL,
    created_at    INTEGER NOT NULL,
    ingested_at   INTEGER NOT NULL,
    effective_d   BLOB,
    reason        INTEGER,
    source        INTEGER NOT NULL,
    via_topic_no  INTEGER
) STRICT;
