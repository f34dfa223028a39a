-- A brake is of our pages or of one program, and so is what it counts: a program's messages brake that program only.
-- See 0001 for what this folder keeps to.

-- Empty: of our pages. verify:NAME, relay:NAME: of that program.
ALTER TABLE sms_messages ADD COLUMN scope TEXT NOT NULL DEFAULT '';
-- verify:NAME:PURPOSE loses its purpose.
UPDATE sms_messages SET scope = CASE WHEN purpose LIKE 'relay:%' THEN purpose
    ELSE rtrim(rtrim(purpose, 'abcdefghijklmnopqrstuvwxyz0123456789-'), ':') END
    WHERE purpose LIKE 'relay:%' OR purpose LIKE 'verify:%';
ALTER TABLE sms_brakes ADD COLUMN scope TEXT NOT NULL DEFAULT '';

-- The brake counts by these; with all that it asks for in them it reads no row.
DROP INDEX sms_messages_by_block;
CREATE INDEX sms_messages_by_block
    ON sms_messages (block, created_at, id, state, entered_at, network_key, solved, share, judged, scope)
    WHERE state <> 'refused';
DROP INDEX sms_messages_by_range;
CREATE INDEX sms_messages_by_range
    ON sms_messages (number_range, created_at, id, state, entered_at, network_key, solved, share, judged, scope)
    WHERE state <> 'refused';
