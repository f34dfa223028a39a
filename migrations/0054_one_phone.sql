-- Numbers that reach one phone count as one. See 0001 for what this folder keeps to.
ALTER TABLE sms_messages ADD COLUMN number_key TEXT; -- of the number itself, if phone_key is that of another to the same phone
