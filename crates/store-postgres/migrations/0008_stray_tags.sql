-- Tags of events that leave by the partition outlive them for a while: to look for each of them takes as long as
-- all else that an event takes that leaves, and to delete many at once takes a fifth. Nobody finds an event by
-- them, since whoever reads a tag looks for its event.

-- How many each partition's events have left behind, until they are looked for.
ALTER TABLE event_partitions ADD COLUMN stray_tags BIGINT;
UPDATE event_partitions SET stray_tags = 0;
ALTER TABLE event_partitions ALTER COLUMN stray_tags SET NOT NULL;

-- Where they are looked for next: what events of these numbers had left behind when so many batches were committed.
-- The pages of event_tags that there were then are read one after the other, `page` next, as long as they are those of
-- the same file.
CREATE TABLE tag_sweeps (
    first_seq BIGINT NOT NULL,
    end_seq   BIGINT NOT NULL,
    revision  BIGINT NOT NULL,
    page      BIGINT NOT NULL,
    pages     BIGINT NOT NULL,
    file      BIGINT NOT NULL,
    PRIMARY KEY (first_seq, revision)
);
