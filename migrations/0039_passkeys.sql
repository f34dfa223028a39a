-- Passkeys (Web Authentication). See 0001 for what this folder keeps to.

CREATE TABLE passkeys (
    id           TEXT   PRIMARY KEY NOT NULL,
    credential   TEXT   UNIQUE NOT NULL,        -- the authenticator's name for it, in base64url
    account      TEXT   NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    rp_id        TEXT   NOT NULL,               -- the domain that it is for
    algorithm    BIGINT NOT NULL,               -- COSE: -7 ES256, -8 EdDSA, -257 RS256
    public_key   TEXT   NOT NULL,               -- in base64url: a point (ES256, EdDSA), or the modulus (RS256)
    sign_count   BIGINT NOT NULL,               -- of the authenticator, when last used; 0: it counts nothing
    backed_up    BIGINT NOT NULL,               -- 1: kept by a password manager or a cloud, too
    label        TEXT   NOT NULL,
    aaguid       TEXT   NOT NULL,               -- the authenticator's model, in hexadecimal; zeros: not told
    transports   TEXT   NOT NULL,               -- how browsers reach it, with commas
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT
);
CREATE INDEX passkeys_by_account ON passkeys (account);

-- Challenges that were answered: each answer is right once.
CREATE TABLE spent_challenges (
    hash         TEXT   PRIMARY KEY NOT NULL,
    expires_at   BIGINT NOT NULL
);
CREATE INDEX spent_challenges_by_expiry ON spent_challenges (expires_at);
