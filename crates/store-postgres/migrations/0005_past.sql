-- `past` is JSON: what has to be known of what was forgotten.
ALTER TABLE node_state ADD COLUMN past TEXT;
UPDATE node_state SET past = '{}';
ALTER TABLE node_state ALTER COLUMN past SET NOT NULL;
