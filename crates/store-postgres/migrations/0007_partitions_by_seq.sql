-- Events that leave by the partition lie in ranges of their numbers, as the rows of the feed do, and no longer
-- in months: so a partition is as large as it is meant to be, whatever a month brings, and the number of an
-- event leads to its partition.
ALTER TABLE events DETACH PARTITION events_standard;
ALTER TABLE events_standard RENAME TO events_by_month;
-- The number is all that a partition is told by: it can be unique without anything beside it.
DROP INDEX events_by_seq;
CREATE UNIQUE INDEX events_longer_by_seq ON events_longer (seq);
CREATE TABLE events_standard PARTITION OF events FOR VALUES IN (0) PARTITION BY RANGE (seq);
ALTER TABLE events_standard ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX events_standard_by_seq ON events_standard (seq);

-- How many events each partition of `keep` 0 holds, from `first_seq` on to before `end_seq`. One that holds
-- none any more and lies behind the head is dropped.
CREATE TABLE event_partitions (
    first_seq BIGINT NOT NULL PRIMARY KEY,
    end_seq   BIGINT NOT NULL,
    events    BIGINT NOT NULL
) WITH (fillfactor = 10);

-- Bounds have to be written out. Months that were given up, and not dropped yet, are dropped here.
DO $$
DECLARE
    head BIGINT;
    part_rows BIGINT;
    part BIGINT;
    month TEXT;
BEGIN
    FOR month IN SELECT relname FROM pg_class WHERE relnamespace = 'cn_relay'::REGNAMESPACE
        AND relkind = 'r' AND NOT relispartition AND relname ~ '^events_(bc)?[0-9]{4,}_[0-9]{2}$'
        AND substr(relname, length('events_') + 1) NOT IN (SELECT m.month FROM event_months m)
    LOOP
        EXECUTE format('DROP TABLE %I', month);
    END LOOP;
    SELECT GREATEST(floor_seq, (SELECT max(seq) FROM events_outbox)) INTO head FROM feed_meta;
    IF head > 0 THEN
        part_rows := GREATEST(131072, head / 8);
        FOR part IN SELECT generate_series(1, head, part_rows) LOOP
            EXECUTE format('CREATE TABLE events_standard_%s PARTITION OF events_standard
                FOR VALUES FROM (%s) TO (%s)', part, part, LEAST(part + part_rows, head + 1));
        END LOOP;
        INSERT INTO events_standard SELECT * FROM events_by_month;
        INSERT INTO event_partitions (first_seq, end_seq, events)
            SELECT first, LEAST(first + part_rows, head + 1), (SELECT count(*)
                FROM events_standard e WHERE e.seq >= first AND e.seq < first + part_rows)
            FROM generate_series(1, head, part_rows) AS first;
    END IF;
END $$;
DROP TABLE events_by_month;
DROP TABLE event_months;
