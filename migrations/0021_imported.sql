-- Password hashes that were imported and not replaced yet: `imported$` and what each costs, five digits of milliseconds
-- and four of MiB, before the hash itself. These find the dearest; any other hash leaves them. See 0001 for what this
-- folder keeps to.
CREATE INDEX accounts_imported_time ON accounts (substr(password_hash, 10, 5))
    WHERE substr(password_hash, 1, 9) = 'imported$';
CREATE INDEX accounts_imported_memory ON accounts (substr(password_hash, 16, 4))
    WHERE substr(password_hash, 1, 9) = 'imported$';
