-- More rows to compare a guess with where there is no code, so that guesses at different numbers seldom wait for
-- the same one. See 0011 for the first of them.
INSERT INTO sms_codes (phone_key, purpose, message, code_hash, expires_at)
WITH RECURSIVE decoys (number) AS (SELECT 8 UNION ALL SELECT number + 1 FROM decoys WHERE number < 255)
SELECT 'decoy-' || number, 'decoy', '0000000000000000000000000000' || (1000 + number), '', 9223372036854775807 FROM decoys;
