//! Accounts in the database: their data, what opens them, and their recent sign-ins.

mod administration;
mod devices;
mod entry;
mod failures;
mod groups;
mod import;
mod listed;
mod passwords;
mod phones;
#[cfg(test)]
mod tests;

use sqlx::{query, query_as, query_scalar};

use super::{AccountId, Phc, Username, id};
use crate::audit::EventSubject;
use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, DbLock, on_db, on_tx, traced};
use crate::entropy::Entropy;
use crate::sms::Phone;

pub use administration::{AccountAct, AccountChange, AccountCursor, AccountFilter, AccountPage};
pub use devices::{DEVICE_LIFE, DeviceFailures};
pub use entry::{EntryChange, EntryCount, EntryRule, MOST_IN_A_STATEMENT, MOST_NAMED, NamedAccount};
pub use failures::FailureResult;
pub use groups::{Groups, GroupsError};
pub use import::{ImportConflict, ImportOutcome};
pub use listed::ListedAccounts;
pub use passwords::ShownBy;
pub use phones::PhoneSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub id: AccountId,
    pub login: Username,
    /// None: no password opens the account.
    pub password_hash: Option<Phc>,
    /// Incremented whenever a password is set: a session starts only for the version that was verified.
    pub password_version: i64,
    /// Wrong passwords in a row from strangers; those from known devices are counted separately.
    pub password_failures: i64,
    /// Since when the password is disabled for strangers, after too many wrong ones.
    pub password_disabled_at: Option<Micros>,
    /// None: no code opens the account.
    pub phone: Option<Phone>,
    pub roles: Roles,
    /// The password is a one-time password, and must be changed before anything else.
    pub must_change_password: bool,
    pub created_at: Micros,
    /// Since when nothing opens it, because an administrator disabled it or it was deleted.
    pub disabled_at: Option<Micros>,
    pub deleted_at: Option<Micros>,
}

/// The roles of an account. Everyone is a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles {
    pub admin: bool,
}

/// A successful sign-in, as shown to the account's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastSignIn {
    pub at: Micros,
    /// The client's address, masked.
    pub network: String,
    pub user_agent: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("this username is taken")]
    LoginTaken,
    #[error("another account has this number")]
    PhoneTaken,
    #[error(transparent)]
    Db(DbError),
}

#[derive(Debug, Clone)]
pub struct Accounts {
    db: Db,
    clock: Clock,
    entropy: Entropy,
}

impl Accounts {
    pub const fn new(db: Db, clock: Clock, entropy: Entropy) -> Self {
        Self { db, clock, entropy }
    }

    /// Creates an account with a password. If several ask for one login at once, one gets it: the table
    /// decides.
    pub async fn create(&self, login: &Username, phc: &Phc, roles: Roles) -> Result<Account, CreateError> {
        self.insert(self.fresh(login, Some(phc), None, roles)).await
    }

    /// The same with a number that was proved to be theirs. No two accounts have the same number.
    pub async fn create_with_phone(
        &self,
        login: &Username,
        phc: Option<&Phc>,
        phone: &Phone,
    ) -> Result<Account, CreateError> {
        self.insert(self.fresh(login, phc, Some(phone), Roles::default())).await
    }

    async fn insert(&self, account: Account) -> Result<Account, CreateError> {
        // By the clock that messages are counted by, because the two are compared.
        let since = match &account.phone {
            Some(_) => Some(self.db.now(&self.clock).await.map_err(CreateError::Db)?),
            None => None,
        };
        let rows = on_db!(&self.db, pool => insert!(account, since).execute(pool).await
            .map(|done| done.rows_affected()))?;
        match &account.phone {
            _ if rows > 0 => Ok(account),
            Some(phone) if self.find_by_phone(phone).await.map_err(CreateError::Db)?.is_some() => {
                Err(CreateError::PhoneTaken)
            }
            _ => Err(CreateError::LoginTaken),
        }
    }

    /// Creates an administrator with a one-time password, unless there is an administrator (then None). If
    /// several instances start at once, one creates it.
    pub async fn create_first_admin(
        &self,
        login: &Username,
        phc: &Phc,
    ) -> Result<Option<Account>, CreateError> {
        let mut tx =
            self.db.begin_exclusive(DbLock::on("accounts.first-admin")).await.map_err(CreateError::Db)?;
        if on_tx!(&mut tx, connection => query_scalar::<_, i64>(HAS_ADMIN).fetch_one(connection).await)? > 0 {
            return Ok(None);
        }
        let fresh = self.fresh(login, Some(phc), None, Roles { admin: true });
        let account = Account { must_change_password: true, ..fresh };
        let rows = on_tx!(&mut tx, connection => insert!(account, None).execute(connection).await
            .map(|done| done.rows_affected()))?;
        if rows == 0 {
            return Err(CreateError::LoginTaken);
        }
        tx.commit().await.map_err(CreateError::Db)?;
        Ok(Some(account))
    }

    fn fresh(&self, login: &Username, phc: Option<&Phc>, phone: Option<&Phone>, roles: Roles) -> Account {
        Account {
            id: AccountId::random(&self.entropy),
            login: login.clone(),
            password_hash: phc.cloned(),
            password_version: 0,
            password_failures: 0,
            password_disabled_at: None,
            phone: phone.cloned(),
            roles,
            must_change_password: false,
            created_at: self.clock.now(),
            disabled_at: None,
            deleted_at: None,
        }
    }

    pub async fn find(&self, login: &Username) -> Result<Option<Account>, DbError> {
        self.one(BY_LOGIN, login.as_str()).await
    }

    pub async fn find_by_phone(&self, phone: &Phone) -> Result<Option<Account>, DbError> {
        self.one(BY_PHONE, phone.as_str()).await
    }

    pub async fn by_id(&self, id: AccountId) -> Result<Option<Account>, DbError> {
        self.one(BY_ID, &id.to_string()).await
    }

    /// The accounts whose masked names show these letters: one of a name of up to four, two of a longer one.
    /// For administrators, who know no more of a name.
    pub async fn masked_as(&self, letters: &str) -> Result<Vec<(AccountId, Username)>, DbError> {
        const SQL: &str = "SELECT id, login FROM accounts
            WHERE substr(login, 1, CAST($1 AS INTEGER)) = $2
            AND CASE WHEN length(login) < 5 THEN 1 ELSE 2 END = $1";
        // PostgreSQL accepts no NUL in a text, and no name contains one.
        if letters.contains('\0') {
            return Ok(Vec::new());
        }
        let length = letters.chars().count() as i64;
        let rows: Vec<(String, String)> = on_db!(&self.db, pool => query_as(SQL).bind(length).bind(letters)
            .fetch_all(pool).await)?;
        let account =
            |(id, login): (String, String)| Ok((id::stored(AccountId::parse(&id))?, Username::stored(login)));
        Ok(rows.into_iter().map(account).collect::<Result<_, sqlx::Error>>()?)
    }

    async fn one(&self, sql: &'static str, key: &str) -> Result<Option<Account>, DbError> {
        let row: Option<AccountRow> = match &self.db {
            Db::Sqlite(pools) => traced!("sqlite", pools.read(query_as(sql).bind(key)).await)?,
            Db::Postgres(pools) => {
                let pool = pools.reachable()?;
                traced!("postgresql", query_as(sql).bind(key).fetch_optional(pool).await)?
            }
        };
        Ok(row.map(AccountRow::parse).transpose()?)
    }

    pub async fn has_admin(&self) -> Result<bool, DbError> {
        let count: i64 = on_db!(&self.db, pool => query_scalar(HAS_ADMIN).fetch_one(pool).await)?;
        Ok(count > 0)
    }

    /// The newest sign-ins first; at most 20.
    pub async fn last_sign_ins(&self, account: AccountId) -> Result<Vec<PastSignIn>, DbError> {
        const SQL: &str = "SELECT signed_in_at, network, user_agent FROM sign_ins WHERE account = $1
            ORDER BY signed_in_at DESC, id LIMIT 20";
        let rows: Vec<(i64, String, String)> = on_db!(&self.db, pool => query_as(SQL).bind(account.to_string())
            .fetch_all(pool).await)?;
        let sign_in = |(at, network, user_agent)| PastSignIn { at: Micros(at), network, user_agent };
        Ok(rows.into_iter().map(sign_in).collect())
    }
}

impl Account {
    /// The account as an event names it.
    pub fn recorded(&self) -> EventSubject<'_> {
        EventSubject::Account { id: self.id.as_bytes(), login: self.login.as_str() }
    }

    /// What a stranger's password is compared with; None if the account has no password, or the password or
    /// the account is disabled.
    pub fn open_hash(&self) -> Option<&Phc> {
        self.device_hash().filter(|_| self.password_disabled_at.is_none())
    }

    /// The same for a known device, for which a disabled password is still open.
    pub fn device_hash(&self) -> Option<&Phc> {
        self.password_hash.as_ref().filter(|_| self.disabled_at.is_none())
    }
}

impl Roles {
    /// The names in the API.
    pub fn names(self) -> Vec<&'static str> {
        if self.admin { vec!["user", "admin"] } else { vec!["user"] }
    }
}

impl From<sqlx::Error> for CreateError {
    fn from(error: sqlx::Error) -> Self {
        Self::Db(error.into())
    }
}

const BY_LOGIN: &str = "SELECT * FROM accounts WHERE login = $1";
const BY_ID: &str = "SELECT * FROM accounts WHERE id = $1";
const BY_PHONE: &str = "SELECT * FROM accounts WHERE phone = $1";
const HAS_ADMIN: &str = "SELECT COUNT(*) FROM accounts WHERE admin = 1";
/// Inserts nothing if the login or the number is taken. It must not fail on the key, because PostgreSQL would
/// log the login.
const INSERT: &str = "INSERT INTO accounts (id, login, password_hash, admin, must_change_password,
    created_at, phone, phone_since) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";

macro_rules! insert {
    ($account:expr, $since:expr) => {
        query(INSERT)
            .bind($account.id.to_string())
            .bind($account.login.as_str())
            .bind($account.password_hash.as_ref().map(Phc::as_str))
            .bind(i64::from($account.roles.admin))
            .bind(i64::from($account.must_change_password))
            .bind($account.created_at.0)
            .bind($account.phone.as_ref().map(Phone::as_str))
            .bind($since.map(|since: Micros| since.0))
    };
}
use insert;

/// A row of `accounts`, alone or joined.
#[derive(sqlx::FromRow)]
pub(super) struct AccountRow {
    id: String,
    login: String,
    password_hash: Option<String>,
    admin: i64,
    must_change_password: i64,
    created_at: i64,
    phone: Option<String>,
    password_version: i64,
    password_failures: i64,
    password_disabled_at: Option<i64>,
    disabled_at: Option<i64>,
    deleted_at: Option<i64>,
}

impl AccountRow {
    pub(super) fn parse(self) -> Result<Account, sqlx::Error> {
        Ok(Account {
            id: id::stored(AccountId::parse(&self.id))?,
            login: Username::stored(self.login),
            password_hash: self.password_hash.map(Phc::stored),
            password_version: self.password_version,
            password_failures: self.password_failures,
            password_disabled_at: self.password_disabled_at.map(Micros),
            phone: self.phone.map(Phone::stored),
            roles: Roles { admin: self.admin != 0 },
            must_change_password: self.must_change_password != 0,
            created_at: Micros(self.created_at),
            disabled_at: self.disabled_at.map(Micros),
            deleted_at: self.deleted_at.map(Micros),
        })
    }
}
