-- Browsers that proved a second factor of an account: their guesses at one count on each alone. One that is known by the
-- password alone has no such budget. See 0001 for what this folder keeps to.
CREATE TABLE factor_devices (
    account    TEXT   NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    device     TEXT   NOT NULL,
    proved_at  BIGINT NOT NULL,
    PRIMARY KEY (account, device)
);
