-- Codes that identity providers make and check themselves. Whether one was entered is known only if its relay says so;
-- if it does not, the brake on its prefix cannot judge by it. See 0001 for what this folder keeps to.
ALTER TABLE sms_messages ADD COLUMN judged BIGINT NOT NULL DEFAULT 1;

CREATE TABLE relay_outcomes (
    relay   TEXT   PRIMARY KEY NOT NULL,
    told_at BIGINT NOT NULL                     -- when it told an outcome last
);

-- The brake counts by these; with all that it asks for in them it reads no row.
DROP INDEX sms_messages_by_block;
CREATE INDEX sms_messages_by_block
    ON sms_messages (block, created_at, id, state, entered_at, network_key, solved, share, judged)
    WHERE state <> 'refused';
DROP INDEX sms_messages_by_range;
CREATE INDEX sms_messages_by_range
    ON sms_messages (number_range, created_at, id, state, entered_at, network_key, solved, share, judged)
    WHERE state <> 'refused';
