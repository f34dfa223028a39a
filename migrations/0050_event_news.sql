-- What receivers of webhooks are told is numbered in the order in which it is committed, so that whoever reads on from a
-- number misses nothing: the one row of event_news is locked until then. See 0001 for what this folder keeps to.
ALTER TABLE events ADD COLUMN news BIGINT;          -- none: it is told to nobody
CREATE INDEX events_news ON events (news, at) WHERE news IS NOT NULL;
CREATE TABLE event_news (
    newest     BIGINT NOT NULL
);
INSERT INTO event_news (newest) VALUES (0);

-- How far each receiver was told.
CREATE TABLE webhook_receivers (
    endpoint   TEXT   PRIMARY KEY NOT NULL,         -- a hash of its URL
    news       BIGINT NOT NULL
);

-- Of several events in one row that a limit counts one by one: microseconds from `at` to each.
ALTER TABLE events ADD COLUMN hits TEXT;
