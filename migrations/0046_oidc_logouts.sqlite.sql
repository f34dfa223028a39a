-- Clients that are to be told that a session has ended. See 0001 for what this folder keeps to.
CREATE TABLE oidc_logouts (
    session  TEXT   NOT NULL,
    client   TEXT   NOT NULL,
    account  TEXT   NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    next_at  BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (session, client)
);
CREATE INDEX oidc_logouts_due ON oidc_logouts (next_at, session);

-- Noted where a session ends, so that no way to end one can forget it.
CREATE TRIGGER oidc_logout BEFORE DELETE ON sessions BEGIN
    INSERT INTO oidc_logouts (session, client, account)
        SELECT DISTINCT session, client, account FROM oidc_grants WHERE session = OLD.id
        ON CONFLICT (session, client) DO NOTHING;
END;
