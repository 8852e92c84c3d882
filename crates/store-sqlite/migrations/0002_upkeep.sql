-- What the node holds and allows, and who looks after it: one row once there is something to say.
-- `allowance` and `leases` are JSON.
CREATE TABLE node_state (
    events    INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    allowance TEXT NOT NULL,
    leases    TEXT NOT NULL
) STRICT;
INSERT INTO node_state (events, bytes, allowance, leases)
    SELECT count(*), sum(length(CAST(event_json AS BLOB))), '{}', '{}' FROM events
    HAVING count(*) > 0;

-- Links of effective events are in event_topics already: only those of hidden events need a place of
-- their own.
CREATE TABLE hidden_links (
    topic_no   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    event_id   BLOB NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (topic_no, created_at, event_id)
) STRICT, WITHOUT ROWID;
INSERT INTO hidden_links (topic_no, created_at, event_id, seq)
    SELECT topic_no, created_at, event_id, seq FROM topic_links JOIN events USING (seq)
    WHERE state <> 1;
DROP TABLE topic_links;

-- `recorded_at` is when the last request was taken in. What is here was taken in by the last row of the
-- feed.
ALTER TABLE deletion_tombstones RENAME TO deletion_tombstones_1;
CREATE TABLE deletion_tombstones (
    target_event_id   BLOB NOT NULL,
    pubkey            BLOB NOT NULL,
    deletion_event_id BLOB NOT NULL,
    requested_at      INTEGER NOT NULL,
    recorded_at       INTEGER NOT NULL,
    applied_at        INTEGER,
    PRIMARY KEY (target_event_id, pubkey)
) STRICT, WITHOUT ROWID;
INSERT INTO deletion_tombstones
    SELECT target_event_id, pubkey, deletion_event_id, requested_at,
        COALESCE((SELECT ingested_at FROM events_outbox ORDER BY seq DESC LIMIT 1),
            1000 * requested_at),
        applied_at
    FROM deletion_tombstones_1;
DROP TABLE deletion_tombstones_1;

-- What is forgotten after its time.
CREATE INDEX event_dedupe_by_time ON event_dedupe (first_seen_at);
CREATE INDEX deletion_tombstones_by_time ON deletion_tombstones (recorded_at);
