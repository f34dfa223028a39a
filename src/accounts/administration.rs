//! What administrators do to accounts: each in one transaction with what it ends, and never to the last
//! administrator.

use std::collections::BTreeSet;
use std::fmt;

use sqlx::{query, query_as, query_scalar};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::factors::note_lost_factor;
use super::{Account, AccountId, Accounts, session_changes};
use crate::config::is_custom_name;
use crate::db::{DbError, DbLock, Tx, execute, on_db, on_tx};
use crate::mail::{self, LetterKind};

/// In URLs by these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum AccountAct {
    /// Nothing opens it any more, and its sessions end.
    Disable,
    Enable,
    /// Its sessions end, and no browser is known any more.
    EndSessions,
    /// Ends all sessions, and the next sign-in has to choose another password.
    RequireNewPassword,
    /// Its second factors go, and its sessions end.
    ClearFactors,
    MakeAdmin,
    UnmakeAdmin,
    /// Everything about it goes, but its name, which is not given again.
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountChange {
    Done,
    /// Its groups are these now, as nobody else changes them at the same time.
    NewGroups {
        from: Groups,
        to: Groups,
    },
    /// Its profile has other values now in these fields.
    NewProfile(Vec<&'static str>),
    Unchanged,
    LastAdmin,
    /// It has no password, and needs one for this.
    NoPassword,
    /// It is an administrator's, and who asks may not touch those.
    OfAdmin,
    /// It would be in more groups than an account may.
    TooManyGroups,
    /// There is no such account, or it is deleted.
    Gone,
}

impl AccountAct {
    /// Whether it is about who administrates.
    pub const fn is_about_admins(self) -> bool {
        matches!(self, Self::MakeAdmin | Self::UnmakeAdmin)
    }

    /// Whether an administrator would shut themselves out. Such a change is noted with its time.
    pub const fn shuts_out(self) -> bool {
        matches!(self, Self::Disable | Self::Delete)
    }

    /// `$1` is the account, `$2` the time if it shuts out. A new version lets no sign-in that is under way
    /// start a session, and makes every browser unknown.
    const fn sql(self) -> &'static str {
        match self {
            Self::Disable => {
                "UPDATE accounts SET disabled_at = $2, password_version = password_version + 1 WHERE id = $1"
            }
            Self::Enable => "UPDATE accounts SET disabled_at = NULL WHERE id = $1",
            Self::EndSessions | Self::ClearFactors => {
                "UPDATE accounts SET password_version = password_version + 1 WHERE id = $1"
            }
            Self::RequireNewPassword => {
                "UPDATE accounts SET must_change_password = 1, password_version = password_version + 1 WHERE id = $1"
            }
            Self::MakeAdmin => {
                "UPDATE accounts SET admin = 1, password_version = password_version + 1 WHERE id = $1"
            }
            Self::UnmakeAdmin => "UPDATE accounts SET admin = 0 WHERE id = $1",
            Self::Delete => {
                "UPDATE accounts SET deleted_at = $2, disabled_at = $2, password_hash = NULL, phone = NULL,
                phone_since = NULL, admin = 0, must_change_password = 0, password_failures = 0,
                password_disabled_at = NULL, password_version = password_version + 1 WHERE id = $1"
            }
        }
    }

    const fn ends(self) -> &'static [&'static str] {
        const SESSIONS: &str = "DELETE FROM sessions WHERE account = $1";
        const SIGN_INS: &str = "DELETE FROM sign_ins WHERE account = $1";
        const DEVICES: &str = "DELETE FROM device_failures WHERE account = $1";
        const TRUSTED: &str = "DELETE FROM trusted_devices WHERE account = $1";
        const GROUPS: &str = "DELETE FROM account_groups WHERE account = $1";
        const PROFILE: &str = "DELETE FROM profiles WHERE account = $1";
        const TOTP: &str = "DELETE FROM totp WHERE account = $1";
        const RECOVERY: &str = "DELETE FROM recovery_codes WHERE account = $1";
        const PROVED: &str = "DELETE FROM factor_devices WHERE account = $1";
        const ASKED: &str = "DELETE FROM factor_policies WHERE account = $1";
        const PASSKEYS: &str = "DELETE FROM passkeys WHERE account = $1";
        const HALVES: &str = "DELETE FROM half_sign_ins WHERE account = $1";
        const INVITATIONS: &str = "DELETE FROM invitations WHERE account = $1";
        const CONSENTS: &str = "DELETE FROM oidc_consents WHERE account = $1";
        const EMAIL: &str = "DELETE FROM account_emails WHERE account = $1";
        const FREEZE_CODES: &str = "DELETE FROM freeze_codes WHERE account = $1";
        // An earlier address is told of the change all the same, which whoever deletes the account may have made.
        const MAILS: &str = "DELETE FROM mail_queue WHERE account = $1
            AND kind NOT IN ('address-changed', 'address-removed')";
        match self {
            Self::Disable | Self::EndSessions | Self::RequireNewPassword => &[SESSIONS, DEVICES, TRUSTED],
            Self::ClearFactors => {
                &[SESSIONS, DEVICES, TRUSTED, PROVED, TOTP, RECOVERY, PASSKEYS, ASKED, HALVES]
            }
            Self::Delete => &[
                SESSIONS,
                DEVICES,
                TRUSTED,
                PROVED,
                SIGN_INS,
                GROUPS,
                PROFILE,
                TOTP,
                RECOVERY,
                PASSKEYS,
                ASKED,
                HALVES,
                CONSENTS,
                INVITATIONS,
                EMAIL,
                FREEZE_CODES,
                MAILS,
            ],
            // A session by code is not enough for an administrator.
            Self::MakeAdmin => &[SESSIONS],
            Self::Enable | Self::UnmakeAdmin => &[],
        }
    }
}

impl Accounts {
    /// Changes an account's state, with what that ends. Two administrators that unmake each other at once do
    /// not both succeed. `spares_admins`: whoever asks may not touch administrators.
    pub async fn change(
        &self,
        id: AccountId,
        act: AccountAct,
        spares_admins: bool,
    ) -> Result<AccountChange, DbError> {
        let at = self.db.now(&self.clock).await?;
        // The locks in the order in which they are declared.
        let mut tx = self.db.begin_exclusive(DbLock::account(id.as_bytes())).await?;
        tx.lock(DbLock::on("accounts.admins")).await?;
        let Some(account) = in_tx(&mut tx, id).await? else { return Ok(AccountChange::Gone) };
        let refused = match act {
            _ if account.roles.admin && spares_admins => Some(AccountChange::OfAdmin),
            AccountAct::Disable if account.disabled_at.is_some() => Some(AccountChange::Unchanged),
            AccountAct::Enable if account.disabled_at.is_none() => Some(AccountChange::Unchanged),
            AccountAct::MakeAdmin if account.roles.admin => Some(AccountChange::Unchanged),
            AccountAct::UnmakeAdmin if !account.roles.admin => Some(AccountChange::Unchanged),
            AccountAct::MakeAdmin | AccountAct::RequireNewPassword if account.password_hash.is_none() => {
                Some(AccountChange::NoPassword)
            }
            AccountAct::Disable | AccountAct::UnmakeAdmin | AccountAct::Delete
                if account.roles.admin && other_admins(&mut tx, id).await? == 0 =>
            {
                Some(AccountChange::LastAdmin)
            }
            _ => None,
        };
        if let Some(refused) = refused {
            return Ok(refused);
        }
        let (account, now) = (id.to_string(), self.clock.now().0);
        execute!(in &mut tx => {
            let change = query(act.sql()).bind(&account);
            if act.shuts_out() { change.bind(now) } else { change }
        })?;
        for sql in act.ends() {
            execute!(in &mut tx => query(*sql).bind(&account))?;
        }
        if act == AccountAct::ClearFactors {
            note_lost_factor(&mut tx, &account, at).await?;
            let what = (account.as_str(), LetterKind::FactorRemoved);
            mail::tell(&mut tx, &self.entropy, what, at).await?;
        }
        // Last, as wherever sessions end, so that no two wait for each other.
        if !act.ends().is_empty() {
            session_changes::record(&mut tx, &self.entropy, &account, at).await?;
        }
        tx.commit().await?;
        Ok(AccountChange::Done)
    }

    /// Ends all sessions of all accounts, with what hangs on them, half sign-ins, and the trust in browsers: a backup may
    /// have brought back what had ended. Returns how many sessions. Some at a time, so that nobody waits long for a lock.
    pub async fn end_all_sessions(&self) -> Result<u64, DbError> {
        const SESSIONS: &str =
            "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE id > $1 ORDER BY id
            LIMIT $2) RETURNING id, account";
        for sql in ["DELETE FROM half_sign_ins", "DELETE FROM trusted_devices"] {
            execute!(&self.db => query(sql))?;
        }
        let (mut ended, mut last) = (0, String::new());
        loop {
            let at = self.db.now(&self.clock).await?;
            let mut tx = self.db.begin().await?;
            let some: Vec<(String, String)> = on_tx!(&mut tx, connection => query_as(SESSIONS).bind(&last)
                .bind(AT_ONCE).fetch_all(connection).await)?;
            let (ids, accounts): (BTreeSet<_>, BTreeSet<_>) = some.into_iter().unzip();
            let Some(newest) = ids.last() else { return Ok(ended) };
            (ended, last) = (ended + ids.len() as u64, newest.clone());
            for account in accounts {
                session_changes::record(&mut tx, &self.entropy, &account, at).await?;
            }
            tx.commit().await?;
        }
    }
}

/// Rows that one statement deletes: a fraction of a second.
const AT_ONCE: i64 = 500;

/// Reads an account; None if it is deleted.
pub(super) async fn in_tx(tx: &mut Tx, id: AccountId) -> Result<Option<Account>, DbError> {
    let account: Option<Account> = on_tx!(tx, connection => {
        query_as(super::BY_ID).bind(id.to_string()).fetch_optional(connection).await
    })?;
    Ok(account.filter(|account| account.deleted_at.is_none()))
}

/// Administrators who can still sign in.
async fn other_admins(tx: &mut Tx, id: AccountId) -> Result<i64, DbError> {
    const SQL: &str = "SELECT COUNT(*) FROM accounts WHERE admin = 1 AND disabled_at IS NULL
        AND password_hash IS NOT NULL AND password_disabled_at IS NULL AND id <> $1";
    Ok(on_tx!(tx, connection => query_scalar(SQL).bind(id.to_string()).fetch_one(connection).await)?)
}

// The groups of an account: names that administrators give, by which applications tell who may use them.

/// More than any account needs, and few enough for a header of 4 KiB with all of them.
pub const MOST_GROUPS: usize = 50;
pub const LONGEST_GROUP: usize = 64;

/// Names of groups, each once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups(BTreeSet<String>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupsError {
    /// Carries the name.
    #[error("{0:?} is not the name of a group: use 1 to {LONGEST_GROUP} of a-z, 0-9 and -")]
    Name(String),
    #[error("an account has at most {MOST_GROUPS} groups")]
    TooMany,
}

impl Groups {
    pub fn parse<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, GroupsError> {
        let names: BTreeSet<&str> = names.into_iter().collect();
        if let Some(name) = names.iter().find(|name| !is_custom_name(name)) {
            return Err(GroupsError::Name(name.chars().take(LONGEST_GROUP).collect()));
        }
        if names.len() > MOST_GROUPS {
            return Err(GroupsError::TooMany);
        }
        Ok(Self(names.into_iter().map(str::to_owned).collect()))
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Both.
    pub fn with(&self, others: &Self) -> Self {
        Self(&self.0 | &others.0)
    }

    pub(super) fn stored(text: Option<String>) -> Self {
        let names = text.iter().flat_map(|text| text.split(','));
        Self(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }
}

/// Writes the names as they are stored: with a comma in between.
impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

const GROUPS_OF: &str = "SELECT names FROM account_groups WHERE account = $1";

impl Accounts {
    pub async fn groups(&self, id: AccountId) -> Result<Groups, DbError> {
        let names: Option<String> = on_db!(&self.db, pool => query_scalar(GROUPS_OF).bind(id.to_string())
            .fetch_optional(pool).await)?;
        Ok(Groups::stored(names))
    }

    /// Gives an account the groups that follow from those that it has. `spares_admins`: whoever asks may not touch
    /// administrators.
    pub async fn change_groups(
        &self,
        id: AccountId,
        spares_admins: bool,
        change: impl FnOnce(&Groups) -> Groups + Send,
    ) -> Result<AccountChange, DbError> {
        // `group_members` follows from it (migration 0034).
        const SET: &str = "INSERT INTO account_groups (account, names) VALUES ($1, $2)
            ON CONFLICT (account) DO UPDATE SET names = excluded.names";
        let at = self.db.now(&self.clock).await?;
        let mut tx = self.db.begin_exclusive(DbLock::account(id.as_bytes())).await?;
        let Some(account) = in_tx(&mut tx, id).await? else { return Ok(AccountChange::Gone) };
        if account.roles.admin && spares_admins {
            return Ok(AccountChange::OfAdmin);
        }
        let id = id.to_string();
        let from = Groups::stored(on_tx!(&mut tx, connection => query_scalar(GROUPS_OF).bind(&id)
            .fetch_optional(connection).await)?);
        let to = change(&from);
        if to == from {
            return Ok(AccountChange::Unchanged);
        }
        if to.0.len() > MOST_GROUPS {
            return Ok(AccountChange::TooManyGroups);
        }
        let names = to.to_string();
        session_changes::record(&mut tx, &self.entropy, &id, at).await?;
        execute!(in &mut tx => query(SET).bind(&id).bind(&names))?;
        tx.commit().await?;
        Ok(AccountChange::NewGroups { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_small_letters_digits_and_dashes() {
        let groups = Groups::parse(["staff", "on-call", "staff", "2026"]).unwrap();
        assert_eq!((groups.to_string().as_str(), groups.names().count()), ("2026,on-call,staff", 3));
        assert_eq!(Groups::stored(Some(groups.to_string())), groups);
        assert_eq!(Groups::parse([]).unwrap(), Groups::stored(Some(String::new())));
        for name in ["", "Staff", "a b", "a,b", "stäff", "a\n", "a\0", "group:staff", &"a".repeat(65)] {
            assert!(matches!(Groups::parse([name]), Err(GroupsError::Name(_))), "{name:?}");
        }
        let many: Vec<String> = (0..=MOST_GROUPS).map(|n| format!("g{n}")).collect();
        assert_eq!(Groups::parse(many.iter().map(String::as_str)), Err(GroupsError::TooMany));
        assert!(Groups::parse(many[1..].iter().map(String::as_str)).is_ok());
    }
}
