-- Names of realms and the addresses from which they signed in, for clients that can keep nothing (IMAP): what a known
-- device is to a browser. See 0001 for what this folder keeps to.

CREATE TABLE guard_pairs (
    pair    TEXT   NOT NULL PRIMARY KEY,           -- a keyed hash of realm, name and address
    seen_at BIGINT NOT NULL                        -- the last success, to within a day
);
CREATE INDEX guard_pairs_by_time ON guard_pairs (seen_at);
