-- How far consumers of the feed are. Their offsets lie in their own schemas, with what they have made of
-- the feed; each consumer adds its own to this view when it first runs.
CREATE VIEW consumer_offsets AS
    SELECT CAST(NULL AS TEXT) AS consumer, CAST(NULL AS BIGINT) AS last_seq,
        CAST(NULL AS BIGINT) AS updated_at, CAST(NULL AS BIGINT) AS epoch,
        CAST(NULL AS BIGINT) AS generation
    WHERE false;
