-- What the node holds and allows, and who looks after it: one row once there is something to say.
-- `allowance` and `leases` are JSON. Written in nearly every batch.
CREATE TABLE node_state (
    one       BOOLEAN NOT NULL PRIMARY KEY,
    events    BIGINT NOT NULL,
    bytes     BIGINT NOT NULL,
    allowance TEXT NOT NULL,
    leases    TEXT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO node_state (one, events, bytes, allowance, leases)
    SELECT TRUE, count(*), sum(octet_length(event_json)), '{}', '{}' FROM events_json
    HAVING count(*) > 0;

-- How many events each partition of `keep` 0 holds, `month` as in its name. One that holds none any
-- more is dropped: looking for a row among a million that have left takes longer than dropping them.
CREATE TABLE event_months (
    month  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    events BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO event_months (month, events)
    SELECT substr(c.relname::TEXT, length('events_') + 1),
        (SELECT count(*) FROM events e WHERE e.keep = 0 AND e.tableoid = c.oid)
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'events_standard'::REGCLASS;

-- Links of hidden events with all that their age depends on.
ALTER TABLE hidden_links RENAME TO hidden_links_2;
ALTER TABLE hidden_links_2 DROP CONSTRAINT hidden_links_pkey;
CREATE TABLE hidden_links (
    created_at  BIGINT NOT NULL,
    ingested_at BIGINT NOT NULL,
    topic_no    INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    event_id    BYTEA NOT NULL
);
INSERT INTO hidden_links (topic_no, created_at, ingested_at, kind, event_id)
    SELECT h.topic_no, e.created_at, e.ingested_at, e.kind, e.event_id
    FROM hidden_links_2 h JOIN events e ON e.event_id = h.event_id;
DROP TABLE hidden_links_2;
CREATE UNIQUE INDEX hidden_links_by_topic ON hidden_links (topic_no, created_at, event_id DESC);

-- When the last request was taken in. What is here was taken in by the last row of the feed.
ALTER TABLE deletion_tombstones ADD COLUMN recorded_at BIGINT;
UPDATE deletion_tombstones SET recorded_at = COALESCE(
    (SELECT ingested_at FROM events_outbox ORDER BY seq DESC LIMIT 1), 1000 * requested_at);
ALTER TABLE deletion_tombstones ALTER COLUMN recorded_at SET NOT NULL;

-- What is forgotten after its time. Events of one batch were first seen at one time.
CREATE INDEX event_dedupe_by_time ON event_dedupe (first_seen_at);
CREATE INDEX deletion_tombstones_by_time ON deletion_tombstones (recorded_at);
