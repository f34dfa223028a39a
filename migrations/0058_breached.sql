-- The version of the password (password_version) that a sign-in found in the list of lost passwords, and the one that was
-- being tried at many names. Both stay until the password is another. See 0001 for what this folder keeps to.
ALTER TABLE accounts ADD COLUMN breached_version BIGINT;
ALTER TABLE accounts ADD COLUMN sprayed_version BIGINT;
