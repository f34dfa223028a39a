//! The groups of an account: names that administrators give, by which applications tell who may use them.

use std::collections::BTreeSet;
use std::fmt;

use sqlx::{query, query_scalar};

use super::Accounts;
use super::administration::{AccountChange, in_tx};
use crate::db::{DbError, DbLock, on_db, on_tx};
use crate::login::{AccountId, session_changes};

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
        if let Some(name) = names.iter().find(|name| !is_group(name)) {
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

    pub(in crate::login) fn stored(text: Option<String>) -> Self {
        let names = text.iter().flat_map(|text| text.split(','));
        Self(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }
}

/// As they are stored: with a comma in between.
impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.names().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}

fn is_group(name: &str) -> bool {
    let fits = |letter| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=LONGEST_GROUP).contains(&name.len()) && name.bytes().all(fits)
}

impl Accounts {
    pub async fn groups(&self, id: AccountId) -> Result<Groups, DbError> {
        const SQL: &str = "SELECT names FROM account_groups WHERE account = $1";
        let names: Option<String> = on_db!(&self.db, pool => query_scalar(SQL).bind(id.to_string())
            .fetch_optional(pool).await)?;
        Ok(Groups::stored(names))
    }

    /// Gives an account these groups and no others. `spares_admins`: whoever asks may not touch administrators.
    pub async fn set_groups(
        &self,
        id: AccountId,
        groups: &Groups,
        spares_admins: bool,
    ) -> Result<AccountChange, DbError> {
        const SET: &str = "INSERT INTO account_groups (account, names) VALUES ($1, $2)
            ON CONFLICT (account) DO UPDATE SET names = excluded.names";
        let at = self.db.now(&self.clock).await?;
        let mut tx = self.db.begin_exclusive(DbLock::account(id.as_bytes())).await?;
        let account = in_tx(&mut tx, id).await?.filter(|account| account.deleted_at.is_none());
        let Some(account) = account else { return Ok(AccountChange::Gone) };
        if account.roles.admin && spares_admins {
            return Ok(AccountChange::OfAdmin);
        }
        let (id, names) = (id.to_string(), groups.to_string());
        session_changes::record(&mut tx, &self.entropy, &id, at).await?;
        on_tx!(&mut tx, connection => query(SET).bind(&id).bind(&names).execute(connection).await.map(drop))?;
        tx.commit().await?;
        Ok(AccountChange::Done)
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
