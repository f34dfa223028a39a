-- Telephone numbers as a second way in, and a count of how often an account's ways in have changed.

ALTER TABLE accounts ADD COLUMN phone TEXT;                              -- E.164; none: no code opens this account
ALTER TABLE accounts ADD COLUMN password_version BIGINT NOT NULL DEFAULT 0;  -- one more with each password and number; a sign-in holds only for what it verified
CREATE UNIQUE INDEX accounts_by_phone ON accounts (phone);

-- Which session of an account was used last: past 100 the others end.
DROP INDEX sessions_by_account;
CREATE INDEX sessions_by_account ON sessions (account, last_seen);
