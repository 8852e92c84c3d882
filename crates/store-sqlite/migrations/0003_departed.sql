-- Events that have left, and whose rows in event_ids, event_tags and event_authors are still there.
-- Whoever finds one of those rows looks for the event and finds none; they are deleted later, many at
-- once. `author` is NULL if the event was hidden, and so had no rows but the one of its id. `tag_keys`
-- is a list of keys of event_tags, 8 bytes each, big endian.
CREATE TABLE departed (
    seq        INTEGER PRIMARY KEY,
    id         INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    author     INTEGER,
    tag_keys   BLOB NOT NULL
) STRICT;
