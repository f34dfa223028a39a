-- The logins of other programs, each with figures and attacks of its own. See 0001 for what this folder keeps to.

-- As event_counts, of attempts alone, by the realm in which they were.
CREATE TABLE realm_counts (
    minute     BIGINT NOT NULL,                    -- its first microsecond
    realm      TEXT   NOT NULL,
    outcome    TEXT   NOT NULL,
    limit_name TEXT   NOT NULL,                    -- empty: none had a say
    noted      BIGINT NOT NULL,
    count      BIGINT NOT NULL,
    PRIMARY KEY (minute, realm, outcome, limit_name, noted)
);

-- Empty: at our own pages and calls.
ALTER TABLE attacks ADD COLUMN realm TEXT NOT NULL DEFAULT '';
DROP INDEX attacks_under_way;
CREATE UNIQUE INDEX attacks_under_way ON attacks (kind, realm) WHERE ended_at IS NULL;
