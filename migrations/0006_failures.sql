-- Wrong passwords in a row, and when a password had too many of them. See 0001 for what this folder keeps to.

ALTER TABLE accounts ADD COLUMN password_failures BIGINT NOT NULL DEFAULT 0;  -- since the last right one
ALTER TABLE accounts ADD COLUMN password_disabled_at BIGINT;                  -- none: it opens the account

-- Where a wrong password counts against nobody (no such account, no password, one that is disabled), one of
-- these is written instead, chosen by the name: an answer without a write would come sooner.
CREATE TABLE unheld_failures (
    slot  BIGINT PRIMARY KEY NOT NULL,
    count BIGINT NOT NULL DEFAULT 0
);
