-- Links of effective events are found by their place in the order of their topic. An index of their
-- own numbers took a tenth of the cost of a commit, and was used when a topic was removed.
DROP INDEX event_topics_by_link;
ALTER TABLE event_topics DROP COLUMN link_seq;
