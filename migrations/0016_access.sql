-- What [access] said in each document that was in force, as TOML; empty where it said nothing.
ALTER TABLE limit_changes ADD COLUMN access TEXT NOT NULL DEFAULT '';
