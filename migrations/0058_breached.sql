-- The version of the password (password_version) that a sign-in found in the list of lost passwords. Another version has
-- not been looked for. See 0001 for what this folder keeps to.
ALTER TABLE accounts ADD COLUMN breached_version BIGINT;
