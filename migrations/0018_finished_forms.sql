-- Forms that succeeded a moment ago, so that one which is sent twice is answered twice and acts once. Rows are
-- deleted after a minute. See 0001 for what this folder keeps to.

CREATE TABLE finished_forms (
    form     TEXT   PRIMARY KEY NOT NULL,          -- keyed hash of the browser's id, the form token and all else that was sent
    at       BIGINT NOT NULL,
    location TEXT   NOT NULL,                      -- where the answer leads
    flash    TEXT,                                 -- what is said there
    session  TEXT                                  -- the id of the session that it started: once that has ended, it is not repeated
);
CREATE INDEX finished_forms_by_time ON finished_forms (at);
