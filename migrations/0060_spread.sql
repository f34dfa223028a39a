-- The brake judges all ranges together of which no codes came back a day apart. See 0001 for what this folder keeps to.

-- 1: it went to one of these, and was among the first of the day there.
ALTER TABLE sms_messages ADD COLUMN spread BIGINT NOT NULL DEFAULT 0;
-- The brake counts by this; with all that it asks for in it, it reads no row.
CREATE INDEX sms_messages_spread
    ON sms_messages (scope, created_at, id, state, entered_at, network_key, solved, share, judged)
    WHERE spread = 1 AND state <> 'refused';
