-- What clients of OpenID Connect were let have. See 0001 for what this folder keeps to.

-- Each belongs to a session, and ends with it.
CREATE TABLE oidc_grants (
    id         TEXT   PRIMARY KEY NOT NULL,
    client     TEXT   NOT NULL,
    account    TEXT   NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    session    TEXT   NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    scope      TEXT   NOT NULL,
    methods    TEXT   NOT NULL,                 -- what was proved when it was given
    auth_time  BIGINT NOT NULL,                 -- and when
    seed       TEXT   NOT NULL,                 -- of its refresh tokens
    generation BIGINT NOT NULL,                 -- of the refresh token that is due
    rotated_at BIGINT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX oidc_grants_by_session ON oidc_grants (session, client);
CREATE INDEX oidc_grants_by_account ON oidc_grants (account);

CREATE TABLE oidc_codes (
    code_hash    TEXT   PRIMARY KEY NOT NULL,
    grant_id     TEXT   NOT NULL REFERENCES oidc_grants (id) ON DELETE CASCADE,
    redirect_uri TEXT   NOT NULL,
    challenge    TEXT   NOT NULL,               -- of PKCE; empty without
    nonce        TEXT,
    expires_at   BIGINT NOT NULL,
    used_at      BIGINT
);
CREATE INDEX oidc_codes_by_grant ON oidc_codes (grant_id);
CREATE INDEX oidc_codes_by_expiry ON oidc_codes (expires_at);

CREATE TABLE oidc_access (
    token_hash TEXT   PRIMARY KEY NOT NULL,
    grant_id   TEXT   NOT NULL REFERENCES oidc_grants (id) ON DELETE CASCADE,
    expires_at BIGINT NOT NULL
);
CREATE INDEX oidc_access_by_grant ON oidc_access (grant_id);
CREATE INDEX oidc_access_by_expiry ON oidc_access (expires_at);

-- Refresh tokens that were sent again within a day.
CREATE TABLE oidc_repeats (
    grant_id   TEXT   NOT NULL REFERENCES oidc_grants (id) ON DELETE CASCADE,
    generation BIGINT NOT NULL,
    late       BIGINT NOT NULL,                 -- 1: later than right away
    at         BIGINT NOT NULL
);
CREATE INDEX oidc_repeats_by_grant ON oidc_repeats (grant_id, generation);

-- What somebody has agreed to, once and for all.
CREATE TABLE oidc_consents (
    account TEXT   NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    client  TEXT   NOT NULL,
    scope   TEXT   NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (account, client)
);
