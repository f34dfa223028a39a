-- What an account had before its address changed lifts a freeze. See 0001 for what this folder keeps to.

-- When the code was written that froze it, the earliest of several.
ALTER TABLE accounts ADD COLUMN frozen_from BIGINT;
-- When another number, or none, took the place of one that it had had for a week.
ALTER TABLE accounts ADD COLUMN phone_lost_at BIGINT;
