-- Keys that sign tokens for applications. See 0001 for what this folder keeps to.
CREATE TABLE oidc_keys (
    kid         TEXT   PRIMARY KEY NOT NULL,
    algorithm   TEXT   NOT NULL,                -- RS256 or ES256
    private_key TEXT   NOT NULL,                -- sealed under the key file
    created_at  BIGINT NOT NULL,                -- since when it is published
    begins_at   BIGINT NOT NULL,                -- since when it signs, until another of its algorithm does
    ends_at     BIGINT                          -- until when it is published; none while no other is to follow it
);
