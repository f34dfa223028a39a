-- The events of a request are found by its id, which answers and log lines carry.
CREATE INDEX events_by_request ON events (request, at) WHERE request IS NOT NULL;
