-- Wrong passwords in a row from a device that the account was signed in to before. Those of strangers are
-- counted in accounts. See 0001 for what this folder keeps to.

CREATE TABLE device_failures (
    account   TEXT   NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    device    TEXT   NOT NULL,                     -- what its cookie calls it; another one after a new password
    failures  BIGINT NOT NULL,                     -- since the last right one
    failed_at BIGINT NOT NULL,                     -- the last of them
    spent_at  BIGINT,                              -- none: it is a known device still
    PRIMARY KEY (account, device)
);
CREATE INDEX device_failures_by_time ON device_failures (failed_at);
