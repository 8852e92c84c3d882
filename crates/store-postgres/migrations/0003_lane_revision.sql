-- One row: how many batches were committed. A batch goes by the number it read, and holds only if it is
-- still the same when it is written: that row is the lock and the fence of all who write. It has a table
-- of its own, since it changes with every batch and only who writes reads it. It has a key, so that it is
-- found by an index, however many old versions a long snapshot has kept alive.
CREATE TABLE lane (
    one      BOOLEAN NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL
) WITH (fillfactor = 50);
INSERT INTO lane (one, revision) VALUES (TRUE, 0);
