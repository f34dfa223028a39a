-- What a sign-in looks up of its account, its sessions in the order of use and its sign-ins in that of
-- time, is answered by an index alone.

DROP INDEX sessions_by_account;
CREATE INDEX sessions_by_use ON sessions (account, last_seen DESC, id, idle_until);

DROP INDEX sign_ins_by_account;
CREATE INDEX sign_ins_by_time ON sign_ins (account, signed_in_at DESC, id);
