-- `past` is JSON: what has to be known of what was forgotten.
ALTER TABLE node_state RENAME TO node_state_3;
CREATE TABLE node_state (
    events    INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    allowance TEXT NOT NULL,
    leases    TEXT NOT NULL,
    past      TEXT NOT NULL
) STRICT;
INSERT INTO node_state (events, bytes, allowance, leases, past)
    SELECT events, bytes, allowance, leases, '{}' FROM node_state_3;
DROP TABLE node_state_3;
