-- Second factors: what else somebody proves after a password or a code. See 0001 for what this folder keeps to.

-- An authenticator app (RFC 6238).
CREATE TABLE totp (
    account      TEXT   PRIMARY KEY NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    secret       TEXT,                          -- sealed under the key file; none until its first code was right
    pending      TEXT,                          -- the same of an app that is being set up
    confirmed_at BIGINT,
    last_step    BIGINT NOT NULL DEFAULT 0,     -- the newest step whose code was used
    failures     BIGINT NOT NULL DEFAULT 0,     -- wrong codes of strangers in a row
    disabled_at  BIGINT                         -- since when no stranger's code is compared
);

-- One row a code that was handed out, until others are.
CREATE TABLE recovery_codes (
    account      TEXT   NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    code_hash    TEXT   NOT NULL,               -- keyed hash over account and code
    used_at      BIGINT,
    PRIMARY KEY (account, code_hash)
);

-- Accounts that are asked for a second step.
CREATE TABLE factor_policies (
    account      TEXT   PRIMARY KEY NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    required     BIGINT NOT NULL                -- since when; 0: not
);

-- A sign-in whose first step was right: it opens nothing but the second.
CREATE TABLE half_sign_ins (
    token_hash       TEXT   PRIMARY KEY NOT NULL,
    account          TEXT   NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    password_version BIGINT NOT NULL,
    proved           TEXT   NOT NULL,           -- password, code, reset
    device           TEXT,                      -- the known device that the password came from
    target           TEXT   NOT NULL,           -- where the browser wanted to go
    new_password     TEXT,                      -- of a reset: set by the second step
    expires_at       BIGINT NOT NULL
);
CREATE INDEX half_sign_ins_by_account ON half_sign_ins (account);
CREATE INDEX half_sign_ins_by_expiry ON half_sign_ins (expires_at);

-- Sessions with a second factor. One without a row has proved the first only.
CREATE TABLE session_proofs (
    session      TEXT   PRIMARY KEY NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    methods      TEXT   NOT NULL,               -- totp, recovery
    factor_at    BIGINT NOT NULL
);
