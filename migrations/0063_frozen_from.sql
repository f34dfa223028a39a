-- What an account had before its address changed lifts a freeze. See 0001 for what this folder keeps to.

-- When the code was written that froze it, the earliest of several.
ALTER TABLE accounts ADD COLUMN frozen_from BIGINT;
-- Since when it has its password; none: since it was created, or since a time that an older version did not write down.
ALTER TABLE accounts ADD COLUMN password_since BIGINT;
-- When another number, or none, took the place of one.
ALTER TABLE accounts ADD COLUMN phone_lost_at BIGINT;
-- When a second factor was removed, or replaced.
ALTER TABLE accounts ADD COLUMN factor_lost_at BIGINT;
-- None: by an older version.
ALTER TABLE recovery_codes ADD COLUMN handed_out_at BIGINT;
