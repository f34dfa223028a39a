-- The brake judges all ranges together of which no codes came back a day apart. See 0001 for what this folder keeps to.

-- 0: its range was proven when it was sent. 1: it was not. 2: it was not, and the message is not one of the first of a day there.
ALTER TABLE sms_messages ADD COLUMN standing BIGINT NOT NULL DEFAULT 0;
-- The brake counts by this; with all that it asks for in it, it reads no row.
CREATE INDEX sms_messages_unproven
    ON sms_messages (scope, created_at, id, state, entered_at, network_key, solved, share, judged, standing)
    WHERE standing = 1 AND state <> 'refused';
-- Whether a range is proven, and how many codes come back from such.
CREATE INDEX sms_entered_by_range ON sms_messages (scope, number_range, entered_at) WHERE entered_at IS NOT NULL;
CREATE INDEX sms_entered_by_time ON sms_messages (scope, created_at, share, standing) WHERE entered_at IS NOT NULL;
