-- What happened, for the console and for trying out new limits; who changed the limits; tokens of other
-- programs. See 0001 for what this folder keeps to.

-- One row an episode: what repeats itself while nothing else changes is counted in one row. A subject
-- stands here as 64 bits of a keyed hash, by which it is found again, and masked, by which it is shown.
CREATE TABLE events (
    at           BIGINT NOT NULL,                  -- when it was decided; of an episode, the first time
    id           BIGINT NOT NULL,                  -- orders what happened in the same microsecond, where one process recorded it
    until_at     BIGINT NOT NULL,                  -- of an episode, the last time; of a failure, when it began to count
    count        BIGINT NOT NULL,
    action       TEXT   NOT NULL,                  -- sign-in, reset, guess, send, register, captcha, custom, reload, admin
    outcome      TEXT   NOT NULL,                  -- ok, wrong, challenged, throttled, ...
    name         TEXT,                             -- which: the purpose of a code, the act of an administrator
    limit_name   TEXT,                             -- what refused it, or would have (noted)
    rule         BIGINT,                           -- which of its rules, from 0
    noted        BIGINT NOT NULL DEFAULT 0,        -- the limit only watches
    solved       BIGINT NOT NULL DEFAULT 0,        -- a challenge was solved with it
    account_key  BIGINT,
    address_key  BIGINT,
    network_key  BIGINT,
    phone_key    BIGINT,
    prefix_key   BIGINT,
    account_mask TEXT,
    address_mask TEXT,
    phone_mask   TEXT,
    actor        TEXT,                             -- the account of who acted, for acts of the console
    detail       TEXT,
    PRIMARY KEY (at, id)
);
CREATE INDEX events_by_account ON events (account_key, at) WHERE account_key IS NOT NULL;
CREATE INDEX events_by_address ON events (address_key, at) WHERE address_key IS NOT NULL;
CREATE INDEX events_by_phone ON events (phone_key, at) WHERE phone_key IS NOT NULL;
CREATE INDEX events_by_action ON events (action, at, id);
CREATE INDEX events_by_outcome ON events (outcome, at, id);
CREATE INDEX events_by_limit ON events (limit_name, at, id) WHERE limit_name IS NOT NULL;
CREATE INDEX events_noted ON events (at, id) WHERE noted = 1;

-- The same added up by the minute in which each row began: what a day looked like is read from here, and not
-- from a million rows.
CREATE TABLE event_counts (
    minute     BIGINT NOT NULL,                    -- its first microsecond
    action     TEXT   NOT NULL,
    outcome    TEXT   NOT NULL,
    limit_name TEXT   NOT NULL,                    -- empty: none had a say
    noted      BIGINT NOT NULL,
    count      BIGINT NOT NULL,
    PRIMARY KEY (minute, action, outcome, limit_name, noted)
);

-- Every set of limits that was in force, newest last.
CREATE TABLE limit_changes (
    id       TEXT   PRIMARY KEY NOT NULL,
    at       BIGINT NOT NULL,
    version  TEXT   NOT NULL,                      -- of the document: what ETag and If-Match say
    previous TEXT,
    actor    TEXT,                                 -- the account; none where the file was edited by hand
    login    TEXT,                                 -- its name at that time
    reason   TEXT,
    document TEXT   NOT NULL                       -- the limits as TOML
);
CREATE INDEX limit_changes_by_time ON limit_changes (at, id);

-- Which instances there are, and what each of them runs.
CREATE TABLE instances (
    id         TEXT   PRIMARY KEY NOT NULL,
    host       TEXT   NOT NULL,
    started_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL,
    version    TEXT   NOT NULL,
    applied_at BIGINT NOT NULL,
    refused    TEXT                                -- why the newest document is not in force there
);

-- For programs that ask for hits on custom limits.
CREATE TABLE api_tokens (
    id           TEXT   PRIMARY KEY NOT NULL,
    name         TEXT   NOT NULL,
    token_hash   TEXT   NOT NULL UNIQUE,           -- keyed hash; the token itself is shown once
    scopes       TEXT   NOT NULL,                  -- names of custom limits, or *, separated by spaces
    created_by   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT,                           -- to within a minute
    expires_at   BIGINT,
    revoked_at   BIGINT,
    revoked_by   TEXT
);

-- A number whose messages up to then an administrator has excused: the ledger counts later ones only.
CREATE TABLE sms_excuses (
    phone_key TEXT   PRIMARY KEY NOT NULL,
    up_to     BIGINT NOT NULL
);

-- When whoever holds the session last showed the password. A change in the console wants it to be recent.
ALTER TABLE sessions ADD COLUMN verified_at BIGINT NOT NULL DEFAULT 0;
