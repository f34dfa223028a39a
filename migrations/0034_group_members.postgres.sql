-- Who is in each group, in the orders in which members are listed. Instances of the version before write the names of an
-- account's groups into `account_groups` (0023), and so does this one: what the database makes of it here is right whoever
-- writes. A name and an age never change. See the file of the same number for SQLite.
CREATE TABLE group_members (
    account    TEXT   NOT NULL,
    name       TEXT   COLLATE "C" NOT NULL,
    login      TEXT   COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (account, name)
);
CREATE INDEX group_members_by_login ON group_members (name, login);
CREATE INDEX group_members_by_age ON group_members (name, created_at, account);

CREATE FUNCTION account_groups_to_members() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM group_members WHERE account = OLD.account;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO group_members (account, name, login, created_at)
            SELECT a.id, g.name, a.login, a.created_at FROM unnest(string_to_array(NEW.names, ',')) AS g (name)
            JOIN accounts a ON a.id = NEW.account WHERE g.name <> '';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER account_groups_to_members AFTER INSERT OR UPDATE OR DELETE ON account_groups
    FOR EACH ROW EXECUTE FUNCTION account_groups_to_members();

-- Those of before: each is given once more.
UPDATE account_groups SET names = names;

-- Names in the order of their bytes, as SQLite has them, whatever the collation of the database: what begins with the
-- same letters stands together.
CREATE INDEX accounts_by_login ON accounts (login COLLATE "C");
