-- Whose guesses at a code count together: those of the browser that asked for it, those of browsers that the
-- number's account was signed in to before, and everyone else's (`tries`). See 0001 for what this folder keeps to.

ALTER TABLE sms_codes ADD COLUMN asker_tries BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sms_codes ADD COLUMN known_tries BIGINT NOT NULL DEFAULT 0;

-- Which browser has the asker's guesses of a number: the first that asked, until its codes are over and its
-- guesses have left the window. Another cannot take its place meanwhile, nor have five more beside it.
CREATE TABLE sms_askers (
    phone_key  TEXT   PRIMARY KEY NOT NULL,
    asker      TEXT   NOT NULL,                    -- keyed hash of the browser, bound to the number
    acts_until BIGINT NOT NULL                     -- the end of the last code that it asked for
);
CREATE INDEX sms_askers_by_end ON sms_askers (acts_until);

-- What a guess is compared with where there is no code: the same statement writes a row, in the same time. Nobody
-- knows their codes, and whatever is entered there is wrong.
INSERT INTO sms_codes (phone_key, purpose, message, code_hash, expires_at) VALUES
    ('decoy-0', 'decoy', '00000000000000000000000000000000', '', 9223372036854775807),
    ('decoy-1', 'decoy', '00000000000000000000000000000001', '', 9223372036854775807),
    ('decoy-2', 'decoy', '00000000000000000000000000000002', '', 9223372036854775807),
    ('decoy-3', 'decoy', '00000000000000000000000000000003', '', 9223372036854775807),
    ('decoy-4', 'decoy', '00000000000000000000000000000004', '', 9223372036854775807),
    ('decoy-5', 'decoy', '00000000000000000000000000000005', '', 9223372036854775807),
    ('decoy-6', 'decoy', '00000000000000000000000000000006', '', 9223372036854775807),
    ('decoy-7', 'decoy', '00000000000000000000000000000007', '', 9223372036854775807);
