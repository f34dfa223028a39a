-- The standing of each message's range, and the country of its number. See 0001 for what this folder keeps to.

-- 0: the range was proven when it was sent. 1: it was not. 2: it was not, and the message is not one of the first of a day
-- there.
ALTER TABLE sms_messages RENAME COLUMN spread TO standing;
-- Two letters, 001, or ZZ if it is not known; empty if it was sent before this was kept.
ALTER TABLE sms_messages ADD COLUMN country TEXT NOT NULL DEFAULT '';
DROP INDEX sms_messages_spread;
-- The brake counts by this; with all that it asks for in it, it reads no row.
CREATE INDEX sms_messages_unproven
    ON sms_messages (scope, created_at, id, state, entered_at, network_key, solved, share, judged, standing)
    WHERE standing = 1 AND state <> 'refused';
-- Whether a range is proven, and how many codes come back from such.
CREATE INDEX sms_entered_by_range ON sms_messages (scope, number_range, entered_at) WHERE entered_at IS NOT NULL;
CREATE INDEX sms_entered_by_time ON sms_messages (scope, created_at, share, standing, entered_at) WHERE entered_at IS NOT NULL;
