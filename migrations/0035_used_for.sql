-- What a token was last used for and from where, and where a message was asked for. See 0001 for what this folder keeps to.
ALTER TABLE api_tokens ADD COLUMN last_used_for TEXT;  -- the call: its method and its path as it is documented
ALTER TABLE api_tokens ADD COLUMN last_used_from TEXT; -- a network, as events show it
ALTER TABLE sms_messages ADD COLUMN asked_from TEXT;   -- the same; none if nobody said so
