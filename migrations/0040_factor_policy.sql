-- Second factors that the configuration requires, and browsers that are not asked for one. See 0001 for what this folder
-- keeps to.

-- Since when the account has known that it must have a factor; none while it need not.
ALTER TABLE factor_policies ADD COLUMN since BIGINT;

-- Known devices from which sign-ins to the account are not asked for the second step.
CREATE TABLE trusted_devices (
    account    TEXT   NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    device     TEXT   NOT NULL,
    until      BIGINT NOT NULL,
    user_agent TEXT   NOT NULL,                 -- of the browser, for its owner to tell it from others
    PRIMARY KEY (account, device)
);
