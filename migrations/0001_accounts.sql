-- Accounts, where they are signed in, and their recent sign-ins.
--
-- This folder runs as it stands on SQLite and on PostgreSQL, so it keeps to what both read alike:
-- TEXT, and BIGINT for everything else. A time is microseconds since the Unix epoch, a yes-or-no is
-- 1 or 0, an id is random hexadecimal text made by the program.

CREATE TABLE accounts (
    id                   TEXT   PRIMARY KEY NOT NULL,
    login                TEXT   NOT NULL UNIQUE,   -- canonical (RFC 8265), so that equal names are equal bytes
    password_hash        TEXT,                     -- PHC string; none: no password opens this account
    admin                BIGINT NOT NULL DEFAULT 0,
    must_change_password BIGINT NOT NULL DEFAULT 0,
    created_at           BIGINT NOT NULL
);

CREATE TABLE sessions (
    token_hash   TEXT   PRIMARY KEY NOT NULL,      -- keyed hash; the token itself is never stored
    id           TEXT   NOT NULL UNIQUE,           -- what a page may show; opens nothing
    account      TEXT   NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    created_at   BIGINT NOT NULL,
    last_seen    BIGINT NOT NULL,
    idle_until   BIGINT NOT NULL,                  -- never later than ends_at
    ends_at      BIGINT NOT NULL,
    network      TEXT   NOT NULL,                  -- the client's address, masked
    user_agent   TEXT   NOT NULL
);
CREATE INDEX sessions_by_account ON sessions (account);
CREATE INDEX sessions_by_expiry ON sessions (idle_until);

CREATE TABLE sign_ins (
    id           TEXT   PRIMARY KEY NOT NULL,
    account      TEXT   NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    signed_in_at BIGINT NOT NULL,
    network      TEXT   NOT NULL,
    user_agent   TEXT   NOT NULL
);
CREATE INDEX sign_ins_by_account ON sign_ins (account, signed_in_at);
