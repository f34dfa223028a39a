-- What each session has proved by second factors, and by which: what one has proved ends with it. See 0001 for what this
-- folder keeps to.
CREATE TABLE factor_proofs (
    session    TEXT   NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    method     TEXT   NOT NULL,                 -- passkey, totp, recovery
    credential TEXT   NOT NULL,                 -- which: a passkey's id, since when the app is set up, a code's hash
    at         BIGINT NOT NULL,                 -- when last
    PRIMARY KEY (session, method, credential)
);

-- As an instance of before reads it, this table goes on: what was proved last. What one writes is believed until any
-- factor of the account ends, because nobody knows by which it was proved.
ALTER TABLE session_proofs ADD COLUMN noted_at BIGINT;     -- factor_at as factor_proofs has it; otherwise one of before wrote it
ALTER TABLE session_proofs ADD COLUMN by_passkey BIGINT;   -- 1: a passkey alone began the session; 0: so it was, and it does not end with that

-- The factor that was proved for it. None: an instance of before wrote it.
ALTER TABLE trusted_devices ADD COLUMN method TEXT;
ALTER TABLE trusted_devices ADD COLUMN credential TEXT;
ALTER TABLE factor_devices ADD COLUMN method TEXT;
ALTER TABLE factor_devices ADD COLUMN credential TEXT;
