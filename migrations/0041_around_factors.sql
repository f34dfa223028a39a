-- What an instance knows, so that nothing begins that another one beside it would ignore. See 0001 for what this folder
-- keeps to.
ALTER TABLE instances ADD COLUMN knows BIGINT;     -- 1: second factors; none: a version before them wrote the row
-- The hash of the half of a sign-in that a form began, so that the same form sent twice goes on with it.
ALTER TABLE finished_forms ADD COLUMN half TEXT;
