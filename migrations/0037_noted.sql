-- With the limit, by which a list of what was only noted is searched: its rows need not be read for that.
DROP INDEX events_noted;
CREATE INDEX events_noted ON events (at, id, limit_name) WHERE noted = 1;
