-- Messages by SMS: the ledger of every one that was admitted, the codes that are good now, and the
-- brakes on dialling prefixes. See 0001 for what this folder keeps to.

-- A number stands here as a keyed hash, and as its block: all but its last four digits.
CREATE TABLE sms_messages (
    id            TEXT   PRIMARY KEY NOT NULL,
    created_at    BIGINT NOT NULL,                 -- by the database's clock; what windows count by
    phone_key     TEXT   NOT NULL,                 -- the keys and the id of its hits in the window store,
    address_key   TEXT   NOT NULL,                 -- from which they are written back
    network_key   TEXT   NOT NULL,
    once_key      TEXT   UNIQUE,                   -- what the caller calls this request, keyed and hashed
    hit           TEXT   NOT NULL,
    block         TEXT   NOT NULL,
    number_range  TEXT   NOT NULL,                 -- all but the last six digits
    purpose       TEXT   NOT NULL,
    gateway       TEXT   NOT NULL,
    state         TEXT   NOT NULL,                 -- pending, accepted, refused (counts nowhere), unknown
    reference     TEXT,                            -- what the gateway calls it
    reason        TEXT,                            -- why it was refused, or is not known
    settled_at    BIGINT,
    expires_at    BIGINT NOT NULL,                 -- of its code
    entered_at    BIGINT,                          -- its code came back, and was right
    report        TEXT,                            -- pending, delivered, failed
    report_detail TEXT,
    reported_at   BIGINT
);
CREATE INDEX sms_messages_by_time ON sms_messages (created_at, id);
-- What was refused counts nowhere, and must not be walked over by those who count.
CREATE INDEX sms_messages_by_phone ON sms_messages (phone_key, created_at, id) WHERE state <> 'refused';
CREATE INDEX sms_messages_by_state ON sms_messages (state, created_at, id);
-- The brake counts by these; with all that it asks for in them it reads no row.
CREATE INDEX sms_messages_by_block ON sms_messages (block, created_at, id, state, entered_at)
    WHERE state <> 'refused';
CREATE INDEX sms_messages_by_range ON sms_messages (number_range, created_at, id, state, entered_at)
    WHERE state <> 'refused';
-- For who looks the others up.
CREATE INDEX sms_refused_by_phone ON sms_messages (phone_key, created_at, id) WHERE state = 'refused';
CREATE INDEX sms_refused_by_block ON sms_messages (block, created_at, id) WHERE state = 'refused';
CREATE INDEX sms_refused_by_range ON sms_messages (number_range, created_at, id) WHERE state = 'refused';
CREATE INDEX sms_messages_by_reference ON sms_messages (gateway, reference) WHERE reference IS NOT NULL;

CREATE TABLE sms_codes (
    phone_key  TEXT   NOT NULL,
    purpose    TEXT   NOT NULL,
    message    TEXT   NOT NULL UNIQUE,
    code_hash  TEXT   NOT NULL,                    -- keyed, bound to number, purpose and message
    expires_at BIGINT NOT NULL,
    tries      BIGINT NOT NULL DEFAULT 0,          -- guesses that it was compared with
    PRIMARY KEY (phone_key, purpose)
);
CREATE INDEX sms_codes_by_expiry ON sms_codes (expires_at);

CREATE TABLE sms_brakes (
    id         TEXT   PRIMARY KEY NOT NULL,
    prefix     TEXT   NOT NULL,                    -- a block or a range of numbers
    began_at   BIGINT NOT NULL,
    ends_at    BIGINT NOT NULL,                    -- earlier than planned where somebody lifted it
    sent       BIGINT NOT NULL,
    entered    BIGINT NOT NULL,
    lifted_by  TEXT
);
CREATE INDEX sms_brakes_by_prefix ON sms_brakes (prefix, ends_at);
CREATE INDEX sms_brakes_by_end ON sms_brakes (ends_at);
