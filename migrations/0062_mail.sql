-- E-mail: addresses that their owners have confirmed, and what is to be sent. Codes by e-mail are in sms_messages (of the
-- scope 'mail') and sms_codes. See 0001 for what this folder keeps to.

-- One address an account, confirmed by a code. Whoever only types one reserves nothing.
CREATE TABLE account_emails (
    account TEXT   PRIMARY KEY NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    mailbox TEXT   NOT NULL UNIQUE,             -- a keyed hash: the same for all spellings of a mailbox
    address TEXT   NOT NULL,                    -- sealed
    locale  TEXT   NOT NULL,                    -- of its owner's mails
    since   BIGINT NOT NULL                     -- by the database's clock, to be compared with messages
);

-- Mails that wait for the server that delivers, and for a day those that it has taken. No text and no code in clear.
CREATE TABLE mail_queue (
    id         TEXT   PRIMARY KEY NOT NULL,     -- of a code: the id of its row in sms_messages
    kind       TEXT   NOT NULL,                 -- the kind of letter
    account    TEXT,                            -- whose notice it is
    mailbox    TEXT   NOT NULL,                 -- where to, as in account_emails
    sealed     TEXT,                            -- what the letter needs: the code, and an address that is no account's. None: nothing is sent
    network    TEXT,                            -- of a notice: whence, masked
    times      BIGINT NOT NULL DEFAULT 1,       -- notices in one
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,                 -- it is not sent later
    next_at    BIGINT NOT NULL,                 -- when an instance may take it
    tries      BIGINT NOT NULL DEFAULT 0,
    state      TEXT   NOT NULL DEFAULT 'queued' -- queued, sent, refused, unknown, withheld, expired
);
CREATE INDEX mail_queue_to_send ON mail_queue (next_at) WHERE state = 'queued';
CREATE INDEX mail_queue_by_account ON mail_queue (account, kind, created_at);
CREATE INDEX mail_queue_by_time ON mail_queue (created_at);

-- Mailboxes that a server has refused for good: nothing is sent there for a while.
CREATE TABLE mail_bounces (
    mailbox    TEXT   PRIMARY KEY NOT NULL,
    refused    BIGINT NOT NULL,                 -- in a row
    refused_at BIGINT NOT NULL
);
CREATE INDEX mail_bounces_by_time ON mail_bounces (refused_at);

-- The windows of mail are rebuilt by the index of all messages by time. One of mails alone (WHERE scope = 'mail') made SQLite
-- plan each statement that compares the scope anew, whenever it was bound: a tenth of what a message costs.

-- Wrong codes of each channel are written back with its own limit.
ALTER TABLE sms_guesses ADD COLUMN channel TEXT NOT NULL DEFAULT 'sms';

-- Codes that freeze an account, sent to an address that was its own. Frozen, no code opens it and changes nothing.
ALTER TABLE accounts ADD COLUMN frozen_at BIGINT;
CREATE TABLE freeze_codes (
    code       TEXT   PRIMARY KEY NOT NULL,     -- a keyed hash
    account    TEXT   NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    expires_at BIGINT NOT NULL
);
CREATE INDEX freeze_codes_by_account ON freeze_codes (account);
CREATE INDEX freeze_codes_by_expiry ON freeze_codes (expires_at);
