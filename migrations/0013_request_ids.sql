-- Which request an event is of, as its answer and the log call it; of an episode, the first.
ALTER TABLE events ADD COLUMN request TEXT;
