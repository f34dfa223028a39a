-- Who is in each group, in the orders in which members are listed. Instances of the version before write the names of an
-- account's groups into `account_groups` (0023), and so does this one: what the database makes of it here is right whoever
-- writes. A name and an age never change. See the file of the same number for PostgreSQL.
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
