-- What the live sections but [limits], [access] and [[apps]] said in each document that was in force, as TOML; NULL where
-- that was not recorded.
ALTER TABLE limit_changes ADD COLUMN others TEXT;
