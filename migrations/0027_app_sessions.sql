-- Where people are signed in at applications behind the gate. See 0001 for what this folder keeps to.

CREATE TABLE app_sessions (
    token_hash TEXT   PRIMARY KEY NOT NULL,     -- keyed hash of the host and its cookie
    session    TEXT   NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    host       TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX app_sessions_by_session ON app_sessions (session);

-- What a browser brings from the sign-in to the host of an application, once.
CREATE TABLE app_codes (
    code_hash  TEXT   PRIMARY KEY NOT NULL,     -- keyed hash of the host and the code
    session    TEXT   NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    state      TEXT   NOT NULL,                 -- of the browser that began there
    target     TEXT   NOT NULL,                 -- where it wanted to go
    expires_at BIGINT NOT NULL
);
CREATE INDEX app_codes_by_session ON app_codes (session);
CREATE INDEX app_codes_by_expiry ON app_codes (expires_at);

-- Accounts of which a session has ended, or whose groups have changed, in the last minutes: what an instance remembers
-- of them is read anew.
CREATE TABLE session_changes (
    id      TEXT   PRIMARY KEY NOT NULL,
    account TEXT   NOT NULL,
    at      BIGINT NOT NULL
);
CREATE INDEX session_changes_by_time ON session_changes (at);
