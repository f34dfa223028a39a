-- Accounts that administrators disabled, or that were deleted: a deleted one keeps its row, so that its name is not
-- given again, and nothing else. See 0001 for what this folder keeps to.
ALTER TABLE accounts ADD COLUMN disabled_at BIGINT;   -- nothing opens it; none: it is not disabled
ALTER TABLE accounts ADD COLUMN deleted_at BIGINT;
CREATE INDEX accounts_by_age ON accounts (created_at, id);
