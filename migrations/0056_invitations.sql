-- Links with which people come into accounts that administrators make. See 0001 for what this folder keeps to.
CREATE TABLE invitations (
    id               TEXT   PRIMARY KEY NOT NULL,
    token_hash       TEXT   UNIQUE NOT NULL,        -- of what the link has in it, under a key
    account          TEXT   REFERENCES accounts (id) ON DELETE CASCADE, -- NULL: it makes accounts
    password_version BIGINT,                        -- of that account; any other has ended it
    uses             BIGINT NOT NULL,
    uses_left        BIGINT NOT NULL,
    group_names      TEXT   NOT NULL,               -- of the accounts that it makes, with commas
    made_by          TEXT,                          -- NULL: the command line
    created_at       BIGINT NOT NULL,
    expires_at       BIGINT NOT NULL,
    revoked_at       BIGINT
);
CREATE INDEX invitations_by_account ON invitations (account);
CREATE INDEX invitations_by_expiry ON invitations (expires_at);
