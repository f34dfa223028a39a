-- Hours that were not usual. See 0001 for what this folder keeps to. One row for each attack; of each kind
-- at most one goes on at a time, whichever instance notices it.

CREATE TABLE attacks (
    id         TEXT   PRIMARY KEY NOT NULL,
    kind       TEXT   NOT NULL,                    -- sign-ins, messages, registrations
    began_at   BIGINT NOT NULL,                    -- the first of its minutes
    seen_at    BIGINT NOT NULL,                    -- the last time that the rate was unusual
    ended_at   BIGINT,                             -- none while it goes on
    figured_at BIGINT NOT NULL,                    -- when an instance last worked out the figures
    figures    TEXT   NOT NULL                     -- JSON: how many, from where, at whom
);
CREATE UNIQUE INDEX attacks_under_way ON attacks (kind) WHERE ended_at IS NULL;
CREATE INDEX attacks_by_time ON attacks (seen_at);
