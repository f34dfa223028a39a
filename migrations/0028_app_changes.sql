-- What [[apps]] said in each document that was in force, as TOML with its comments; empty where it said nothing.
ALTER TABLE limit_changes ADD COLUMN apps TEXT NOT NULL DEFAULT '';
