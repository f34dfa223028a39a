-- Wrong guesses that may come again: a few bits of the last three of a source at a subject. See 0001 for what this folder
-- keeps to.
CREATE TABLE guesses (
    own     TEXT   NOT NULL,           -- as in failed_attempts: the key of the account's log, or of the device's
    slot    BIGINT NOT NULL,           -- 0 to 7 for clients, 8 to 15 for devices: a hash of the source
    source  BIGINT NOT NULL,           -- a keyed hash: the device, the browser at its address, or the address
    tags    TEXT   NOT NULL,           -- newest first, each of 5 digits and a space
    repeats BIGINT NOT NULL,           -- how often the last one came again
    hit     TEXT   NOT NULL,           -- of the last one, which may be told twice at once
    at      BIGINT NOT NULL,
    PRIMARY KEY (own, slot)
);
CREATE INDEX guesses_by_time ON guesses (at);

-- Whether its source made the same guess before: it is in no log of an account or a device that blocks.
ALTER TABLE failed_attempts ADD COLUMN repeat BIGINT NOT NULL DEFAULT 0;
