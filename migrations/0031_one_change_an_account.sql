-- Of an account's changes only the last is kept, and they are read from an index alone. An instance of before this keeps
-- each of its own until it is deleted by its time.

CREATE INDEX session_changes_by_account ON session_changes (account);
CREATE INDEX session_changes_to_read ON session_changes (at, id, account);
DROP INDEX session_changes_by_time;
