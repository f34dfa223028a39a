-- Under which key file what is stored was hashed: a keyed hash of a constant. Another file finds nothing of it. One row.
CREATE TABLE key_check (
    id BIGINT PRIMARY KEY,
    value TEXT NOT NULL,
    -- The newest of what was counted under a key that was given up, and may still count; 0 if nothing was.
    messages_at BIGINT NOT NULL DEFAULT 0,
    passwords_at BIGINT NOT NULL DEFAULT 0,
    factors_at BIGINT NOT NULL DEFAULT 0
);
