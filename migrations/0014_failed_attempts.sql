-- Wrong passwords that some window may count still: what the windows of sign-ins are rebuilt from. See 0001
-- for what this folder keeps to. One row for each password that was compared and was wrong, whether or not
-- there is such an account; how many there are is bounded by how many hashes can be computed.

CREATE TABLE failed_attempts (
    at   BIGINT NOT NULL,                          -- by the database's clock
    hit  TEXT   NOT NULL,                          -- its id in the window store
    own  TEXT   NOT NULL,                          -- the key of the account's log, or of the device's in its place
    logs TEXT   NOT NULL,                          -- all logs that it is in: limit:key, separated by spaces
    PRIMARY KEY (at, hit)
);
CREATE INDEX failed_attempts_by_own ON failed_attempts (own, at DESC);

-- What an instance writes to see whether the database takes anything: one row, and a page of its own for it.
CREATE TABLE write_probes (
    id     BIGINT NOT NULL,                        -- a new one each time
    filler TEXT   NOT NULL
);
