-- One row: how many batches were committed. A batch goes by the number it read, and holds only if it is
-- still the same when it is written: that row is the lock and the fence of all who write. It has a table
-- of its own, since it changes with every batch and only who writes reads it.
CREATE TABLE lane (
    revision BIGINT NOT NULL
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX lane_one_row ON lane ((TRUE));
INSERT INTO lane (revision) VALUES (0);
