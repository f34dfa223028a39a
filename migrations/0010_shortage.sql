-- When messages are short: who is sent to first, and what each message was counted by. See 0001 for what this
-- folder keeps to.

-- Since when the account has had the number that it has now. Of those from before nobody knows better.
ALTER TABLE accounts ADD COLUMN phone_since BIGINT;
UPDATE accounts SET phone_since = created_at WHERE phone IS NOT NULL;

-- open: it counts for everybody. reserve: it was short, and went to a number of an account. withheld: it was
-- short, and went to nobody; it counts for its number and for whoever asked.
ALTER TABLE sms_messages ADD COLUMN share TEXT NOT NULL DEFAULT 'open';
ALTER TABLE sms_messages ADD COLUMN solved BIGINT NOT NULL DEFAULT 0;     -- a challenge was solved with it

-- The brake counts by these; with all that it asks for in them it reads no row.
DROP INDEX sms_messages_by_block;
CREATE INDEX sms_messages_by_block
    ON sms_messages (block, created_at, id, state, entered_at, network_key, solved, share) WHERE state <> 'refused';
DROP INDEX sms_messages_by_range;
CREATE INDEX sms_messages_by_range
    ON sms_messages (number_range, created_at, id, state, entered_at, network_key, solved, share)
    WHERE state <> 'refused';
