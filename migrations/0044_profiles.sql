-- What applications are told about the owners of accounts. A table of its own, as 0023 says why. See 0001 for what this
-- folder keeps to.
CREATE TABLE profiles (
    account        TEXT   PRIMARY KEY NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    email          TEXT,                        -- not unique: nothing is found by it
    email_verified BIGINT NOT NULL,             -- 1: somebody made sure that it is theirs
    name           TEXT
);
