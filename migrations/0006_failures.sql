-- Wrong passwords in a row, and when a password had too many of them. See 0001 for what this folder keeps to.

ALTER TABLE accounts ADD COLUMN password_failures BIGINT NOT NULL DEFAULT 0;  -- since the last right one
ALTER TABLE accounts ADD COLUMN password_disabled_at BIGINT;                  -- none: it opens the account

-- Where a wrong password counts against nobody (no such account, no password, one that is disabled), one of
-- these is written instead: an answer without a write would come sooner. So many that two seldom wait for one.
CREATE TABLE unheld_failures (
    slot  BIGINT PRIMARY KEY NOT NULL,
    count BIGINT NOT NULL DEFAULT 0
);
INSERT INTO unheld_failures (slot) VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12),
    (13), (14), (15), (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31);
