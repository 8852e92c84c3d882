-- Ids of events that have left and had come once. The rows of event_ids that led to the events lead here,
-- so that remembering them changes pages of neighbours: in event_dedupe each would change a page of its
-- own, twice. A row in event_dedupe says more, and holds.
CREATE TABLE remembered (
    seq           INTEGER PRIMARY KEY,
    event_id      BLOB NOT NULL,
    first_seen_at INTEGER NOT NULL
) STRICT;
CREATE INDEX remembered_by_time ON remembered (first_seen_at);

-- `id` is NULL if the id is remembered by its row in event_ids, which stays then.
ALTER TABLE departed RENAME TO departed_3;
CREATE TABLE departed (
    seq        INTEGER PRIMARY KEY,
    id         INTEGER,
    created_at INTEGER NOT NULL,
    author     INTEGER,
    tag_keys   BLOB NOT NULL
) STRICT;
INSERT INTO departed SELECT seq, id, created_at, author, tag_keys FROM departed_3;
DROP TABLE departed_3;
