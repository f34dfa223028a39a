-- Lists of accounts are read in their order from an index, with each filter. See 0001 for what this folder keeps to.
CREATE INDEX accounts_admins ON accounts (created_at, id) WHERE admin = 1;
-- With all that is asked of them, also in the order of their names and about their groups.
CREATE INDEX accounts_disabled ON accounts (created_at, id, disabled_at, deleted_at, login)
    WHERE disabled_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX accounts_to_change ON accounts (created_at, id, must_change_password, disabled_at, deleted_at, login)
    WHERE must_change_password = 1;
-- What the totals are counted by: the smallest index that has every account. As an expression it is read for nothing else.
CREATE INDEX accounts_counted ON accounts (COALESCE(deleted_at, 0));

-- How many accounts have the same groups.
CREATE INDEX account_groups_by_names ON account_groups (names);
