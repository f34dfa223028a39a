-- What lists are ordered and found by. The database keeps it itself, so that it is right whoever writes: instances of the
-- version before write only `account_groups` (0023) and `sign_ins`, as this one does. See 0001 for what this folder keeps
-- to, and the file of the same number for SQLite.

-- Who is in each group. A name and an age never change.
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

-- When each account has signed in last; of its sign-ins only the newest are kept.
CREATE TABLE last_sign_ins (
    account TEXT   PRIMARY KEY NOT NULL,
    at      BIGINT NOT NULL
);
CREATE INDEX last_sign_ins_by_time ON last_sign_ins (at, account);

CREATE FUNCTION sign_ins_to_last() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO last_sign_ins AS l (account, at) VALUES (NEW.account, NEW.signed_in_at)
            ON CONFLICT (account) DO UPDATE SET at = GREATEST(l.at, excluded.at);
    ELSIF NOT EXISTS (SELECT 1 FROM sign_ins WHERE account = OLD.account) THEN
        DELETE FROM last_sign_ins WHERE account = OLD.account;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER sign_ins_to_last AFTER INSERT OR DELETE ON sign_ins FOR EACH ROW EXECUTE FUNCTION sign_ins_to_last();
INSERT INTO last_sign_ins (account, at) SELECT account, MAX(signed_in_at) FROM sign_ins GROUP BY account;

-- Names in the order of their bytes, as SQLite has them, whatever the collation of the database: what begins with the
-- same letters stands together.
CREATE INDEX accounts_by_login ON accounts (login COLLATE "C");
