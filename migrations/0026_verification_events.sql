-- By which events name the number of a verification, so that those of its checks do, too: the ledger does not have the
-- number itself. See 0001 for what this folder keeps to.
ALTER TABLE sms_messages ADD COLUMN event_key BIGINT;   -- none for other messages, and for those from before
