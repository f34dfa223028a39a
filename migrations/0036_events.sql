-- The events of a request are found by its id, which answers and log lines carry.
CREATE INDEX events_by_request ON events (request, at) WHERE request IS NOT NULL;

-- The sums of minutes once more, by the quarter of an hour: a chart of a month would read a million of those.
CREATE TABLE event_quarters (
    minute     BIGINT NOT NULL,                    -- the first microsecond of the quarter
    action     TEXT   NOT NULL,
    outcome    TEXT   NOT NULL,
    limit_name TEXT   NOT NULL,
    noted      BIGINT NOT NULL,
    count      BIGINT NOT NULL,
    PRIMARY KEY (minute, action, outcome, limit_name, noted)
);
CREATE TABLE realm_quarters (
    minute     BIGINT NOT NULL,
    realm      TEXT   NOT NULL,
    outcome    TEXT   NOT NULL,
    limit_name TEXT   NOT NULL,
    noted      BIGINT NOT NULL,
    count      BIGINT NOT NULL,
    PRIMARY KEY (minute, realm, outcome, limit_name, noted)
);
INSERT INTO event_quarters (minute, action, outcome, limit_name, noted, count)
    SELECT minute / 900000000 * 900000000 AS quarter, action, outcome, limit_name, noted, CAST(SUM(count) AS BIGINT)
    FROM event_counts GROUP BY quarter, action, outcome, limit_name, noted;
INSERT INTO realm_quarters (minute, realm, outcome, limit_name, noted, count)
    SELECT minute / 900000000 * 900000000 AS quarter, realm, outcome, limit_name, noted, CAST(SUM(count) AS BIGINT)
    FROM realm_counts GROUP BY quarter, realm, outcome, limit_name, noted;
