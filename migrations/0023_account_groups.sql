-- The groups of accounts that have any. A table of its own, because instances of the version before read every column of
-- `accounts`, and PostgreSQL refuses their statements once that has another. See 0001 for what this folder keeps to.
CREATE TABLE account_groups (
    account TEXT PRIMARY KEY NOT NULL,
    names   TEXT NOT NULL               -- in alphabetical order, with a comma in between
);
