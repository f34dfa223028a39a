-- Wrong codes that the window of guesses may count still: a store that forgets gets them back from here. One row for
-- each, also where there was no code to compare with. See 0001 for what this folder keeps to.
CREATE TABLE sms_guesses (
    at  BIGINT NOT NULL,                           -- by the database's clock
    hit TEXT   NOT NULL,                           -- its id in the window store
    log TEXT   NOT NULL,                           -- the key of its log there
    PRIMARY KEY (at, hit)
);
CREATE INDEX sms_guesses_by_log ON sms_guesses (log);
