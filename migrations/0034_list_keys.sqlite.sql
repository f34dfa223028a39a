-- What lists are ordered and found by. The database keeps it itself, so that it is right whoever writes: instances of the
-- version before write only `account_groups` (0023) and `sign_ins`, as this one does. See 0001 for what this folder keeps
-- to, and the file of the same number for PostgreSQL.

-- Who is in each group. A name and an age never change.
CREATE TABLE group_members (
    account    TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    login      TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (account, name)
) WITHOUT ROWID;
CREATE INDEX group_members_by_login ON group_members (name, login);
CREATE INDEX group_members_by_age ON group_members (name, created_at, account);

CREATE TRIGGER account_groups_given AFTER INSERT ON account_groups BEGIN
    INSERT INTO group_members (account, name, login, created_at)
        SELECT a.id, g.value, a.login, a.created_at FROM json_each('["' || replace(NEW.names, ',', '","') || '"]') g
        JOIN accounts a ON a.id = NEW.account WHERE g.value <> '';
END;
CREATE TRIGGER account_groups_changed AFTER UPDATE ON account_groups BEGIN
    DELETE FROM group_members WHERE account = OLD.account;
    INSERT INTO group_members (account, name, login, created_at)
        SELECT a.id, g.value, a.login, a.created_at FROM json_each('["' || replace(NEW.names, ',', '","') || '"]') g
        JOIN accounts a ON a.id = NEW.account WHERE g.value <> '';
END;
CREATE TRIGGER account_groups_ended AFTER DELETE ON account_groups BEGIN
    DELETE FROM group_members WHERE account = OLD.account;
END;

-- Those of before: each is given once more.
UPDATE account_groups SET names = names;

-- When each account has signed in last; of its sign-ins only the newest are kept.
CREATE TABLE last_sign_ins (
    account TEXT   PRIMARY KEY NOT NULL,
    at      BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX last_sign_ins_by_time ON last_sign_ins (at, account);

CREATE TRIGGER sign_ins_recorded AFTER INSERT ON sign_ins BEGIN
    INSERT INTO last_sign_ins (account, at) VALUES (NEW.account, NEW.signed_in_at)
        ON CONFLICT (account) DO UPDATE SET at = MAX(at, excluded.at);
END;
CREATE TRIGGER sign_ins_ended AFTER DELETE ON sign_ins
    WHEN NOT EXISTS (SELECT 1 FROM sign_ins WHERE account = OLD.account) BEGIN
    DELETE FROM last_sign_ins WHERE account = OLD.account;
END;
INSERT INTO last_sign_ins (account, at) SELECT account, MAX(signed_in_at) FROM sign_ins GROUP BY account;
