//! Accounts in the database: their data, what opens them, and their recent sign-ins.

mod administration;
mod app_sessions;
mod devices;
mod emails;
mod entry;
mod factor_policy;
mod factor_sql;
mod factors;
mod freeze;
mod grants;
mod half_sign_ins;
mod id;
mod import;
mod invitations;
mod list;
mod passkeys;
mod phones;
mod profiles;
mod proofs;
mod realm;
mod session_changes;
mod sessions;
pub(crate) mod stored_hash;
mod submitted_forms;
mod tokens;
mod username;

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row, query, query_as, query_scalar};

use crate::audit::EventSubject;
use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, DbLock, Tx, execute, from_row, on_db, on_tx, traced};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::mail::{self, LetterKind};
use crate::sms::Phone;

pub use crate::config::SessionSettings;
pub use administration::{AccountAct, AccountChange, Groups, GroupsError};
pub use app_sessions::{AppSessions, AppTokenHash, AppVisitor, RedeemedCode, is_state_hash, second_try};
pub use devices::{DeviceCookies, KnownDevice, KnownDevices, SignInClient, device_subject};
pub use emails::{Emails, ResealedEmails};
pub use entry::{
    EntryChange, EntryCount, EntryRule, ListedAccounts, MOST_IN_A_STATEMENT, MOST_NAMED, NamedAccount,
};
pub use factor_policy::{FactorPolicy, FactorSetup, FactorsTrial, TrustedDevice};
pub use factors::{AccountFactors, Factors, RecoveryCode, TotpCode, TotpResult, TotpSecret};
use freeze::FreezeEndedBy;
pub use freeze::{FreezeCode, HadBefore};
pub use grants::{GrantHolder, GrantRefusal, GrantedClient, Grants, IssuedTokens, NewGrant};
pub use half_sign_ins::{HalfSignIn, HalfSignIns, HalfToken};
pub use id::{AccountId, DeviceId, GrantId, PasskeyId, SessionId};
pub use import::{
    ExportSource, ExportSystem, FirebaseHashConfig, ImportConflict, ImportFile, ImportMistake,
    ImportMistakes, ImportOutcome, ImportRow, ImportUnit, MOST_ROWS as MOST_IMPORTED,
};
pub use invitations::{
    Acceptance, AccountsMade, INVITATION_LASTS, Invitation, InvitationEntry, InvitationId, InvitationToken,
    Invitations, LONGEST_INVITATION, MOST_INVITED, NewInvitation,
};
pub use list::{
    AccountCursor, AccountKey, AccountPage, AccountRole, AccountSearch, AccountState, AccountTotals,
    ListedAccount,
};
pub use passkeys::{
    AddRefusal, CHALLENGE_LASTS, ChallengePurpose, MOST_PASSKEYS, Passkey, PasskeyLabel, PasskeyRefusal,
    Passkeys,
};
pub use phones::RecipientSet;
pub use profiles::{DisplayName, Email, Profile, ProfileError, Profiles};
pub use proofs::{Factor, FactorProof, ProvedFactors};
pub use realm::{Realm, RealmLogin, RealmLoginError};
pub use session_changes::{CHANGES_LAST, MOST_CHANGES, SessionChanges};
pub use sessions::{
    AuthenticatedSession, FirstFactor, FormAnswer, FormKey, Proof, Session, SessionStart, SessionToken,
    Sessions,
};
pub use stored_hash::Phc;
pub use submitted_forms::{FormStart, FormToken, FormTurn, RepeatedForm, SubmittedForms};
pub use tokens::{
    AdminScope, ApiToken, ApiTokens, MOST_SCOPES, MOST_TOKENS, NewToken, ProgramScope, ScopesError,
    TokenBearer, TokenEntry, TokenId, TokenScopes, TokenUse,
};
pub use username::{MAX_CHARS as LONGEST_LOGIN, Username, UsernameError, folded};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub id: AccountId,
    pub login: Username,
    /// The hash of the password; None if no password opens the account.
    pub password_hash: Option<Phc>,
    /// Incremented whenever a password is set: a session starts only for the version that was verified.
    pub password_version: i64,
    /// Wrong passwords in a row from strangers; those from known devices are counted separately.
    pub password_failures: i64,
    /// Since when the password is disabled for strangers, after too many wrong ones.
    pub password_disabled_at: Option<Micros>,
    /// The number for codes; None if no code opens the account.
    pub phone: Option<Phone>,
    pub roles: Roles,
    /// The password is a one-time password, or a lost one, and must be changed before anything else.
    pub must_change_password: bool,
    /// Others know the password: a sign-in found it in the list of lost ones, or it was being tried at many names.
    pub password_breached: bool,
    /// It is in the list.
    pub password_lost: bool,
    pub created_at: Micros,
    /// Since when nothing opens it, because an administrator disabled it or it was deleted.
    pub disabled_at: Option<Micros>,
    pub deleted_at: Option<Micros>,
    /// Since when only what it had before opens it, because whoever had its address before froze it.
    pub frozen_at: Option<Micros>,
}

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
    #[error("another account has this address")]
    EmailTaken,
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

    pub fn of(foundation: &Foundation) -> Self {
        let Foundation { db, clock, entropy, .. } = foundation.clone();
        Self { db, clock, entropy }
    }

    /// Creates an account with a password. If several ask for one login at once, one gets it: the table
    /// decides.
    pub async fn create(&self, login: &Username, phc: &Phc, roles: Roles) -> Result<Account, CreateError> {
        self.insert(self.fresh(login, Some(phc), None, roles)).await
    }

    /// Creates an account with a number that was proved to be theirs. No two accounts have the same number.
    pub async fn create_with_phone(
        &self,
        login: &Username,
        phc: Option<&Phc>,
        phone: &Phone,
    ) -> Result<Account, CreateError> {
        self.insert(self.fresh(login, phc, Some(phone), Roles::default())).await
    }

    async fn insert(&self, account: Account) -> Result<Account, CreateError> {
        if self.has_older_spelling(&account.login).await? {
            return Err(CreateError::LoginTaken);
        }
        // The time is that of the database, by which messages are counted, because the two are compared.
        let since = match &account.phone {
            Some(_) => Some(self.db.now(&self.clock).await?),
            None => None,
        };
        let rows = execute!(&self.db => insert!(account, since))?;
        match &account.phone {
            _ if rows > 0 => Ok(account),
            Some(phone) if self.find_by_phone(phone).await?.is_some() => Err(CreateError::PhoneTaken),
            _ => Err(CreateError::LoginTaken),
        }
    }

    /// Whether an account has another spelling of the name. The table knows of none: of a name with a final sigma an older
    /// version may have stored one.
    async fn has_older_spelling(&self, login: &Username) -> Result<bool, DbError> {
        let [.., older] = login.spellings();
        Ok(older != *login && self.find(&older).await?.is_some())
    }

    /// Creates an administrator with a one-time password, unless there is an administrator (then None). If
    /// several instances start at once, one creates it.
    pub async fn create_first_admin(
        &self,
        login: &Username,
        phc: &Phc,
    ) -> Result<Option<Account>, CreateError> {
        let mut tx = self.db.begin_exclusive(DbLock::on("accounts.first-admin")).await?;
        if on_tx!(&mut tx, connection => query_scalar::<_, i64>(HAS_ADMIN).fetch_one(connection).await)? > 0 {
            return Ok(None);
        }
        let fresh = self.fresh(login, Some(phc), None, Roles { admin: true });
        let account = Account { must_change_password: true, ..fresh };
        let rows = execute!(in &mut tx => insert!(account, None))?;
        if rows == 0 {
            return Err(CreateError::LoginTaken);
        }
        tx.commit().await?;
        Ok(Some(account))
    }

    fn fresh(&self, login: &Username, phc: Option<&Phc>, phone: Option<&Phone>, roles: Roles) -> Account {
        Account {
            id: AccountId::random(&self.entropy),
            login: login.clone().standard(),
            password_hash: phc.cloned(),
            password_version: 0,
            password_failures: 0,
            password_disabled_at: None,
            phone: phone.cloned(),
            roles,
            must_change_password: false,
            password_breached: false,
            password_lost: false,
            created_at: self.clock.now(),
            disabled_at: None,
            deleted_at: None,
            frozen_at: None,
        }
    }

    pub async fn find(&self, login: &Username) -> Result<Option<Account>, DbError> {
        let spellings = login.spellings();
        self.one(BY_LOGIN, &spellings.each_ref().map(Username::as_str)).await
    }

    pub async fn find_by_phone(&self, phone: &Phone) -> Result<Option<Account>, DbError> {
        self.one(BY_PHONE, &[phone.as_str()]).await
    }

    pub async fn by_id(&self, id: AccountId) -> Result<Option<Account>, DbError> {
        self.one(BY_ID, &[&id.to_string()]).await
    }

    async fn one<T>(&self, sql: &'static str, keys: &[&str]) -> Result<Option<T>, DbError>
    where
        T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        macro_rules! question {
            () => {
                keys.iter().fold(query_as(sql), |question, key| question.bind(*key))
            };
        }
        Ok(match &self.db {
            Db::Sqlite(pools) => traced!("sqlite", pools.read(question!()).await)?,
            Db::Postgres(pools) => {
                let pool = pools.reachable()?;
                traced!("postgresql", question!().fetch_optional(pool).await)?
            }
        })
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
    pub fn recorded(&self) -> EventSubject<'_> {
        EventSubject::Account { id: self.id.as_bytes(), login: self.login.as_str() }
    }

    /// What a stranger's password is compared with; None if the account has no password, or the password or
    /// the account is disabled.
    pub fn open_hash(&self) -> Option<&Phc> {
        self.device_hash().filter(|_| self.password_disabled_at.is_none())
    }

    /// What the password of a known device is compared with, for which a disabled password is still open.
    pub fn device_hash(&self) -> Option<&Phc> {
        self.password_hash.as_ref().filter(|_| self.disabled_at.is_none())
    }

    /// The account as it is when this password was set as that version.
    pub(crate) fn with_password(self, hash: Phc, version: i64) -> Self {
        Self {
            password_hash: Some(hash),
            password_version: version,
            password_failures: 0,
            password_disabled_at: None,
            must_change_password: false,
            password_breached: false,
            password_lost: false,
            ..self
        }
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

impl From<DbError> for CreateError {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

/// Whether `a` has one of three spellings: the one that has the first of them.
macro_rules! is_spelt {
    () => {
        "a.login IN ($1, $2, $3) ORDER BY CASE a.login WHEN $1 THEN 0 WHEN $2 THEN 1 ELSE 2 END LIMIT 1"
    };
}

const BY_LOGIN: &str = concat!("SELECT * FROM accounts a WHERE ", is_spelt!());
const BY_ID: &str = "SELECT * FROM accounts WHERE id = $1";
const BY_PHONE: &str = "SELECT * FROM accounts WHERE phone = $1";
const BY_EMAIL: &str =
    "SELECT a.* FROM accounts a JOIN account_emails e ON e.account = a.id WHERE e.mailbox = $1";
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
            .bind($account.phone.as_ref().map(crate::sms::Phone::as_str))
            .bind($since.map(|since: Micros| since.0))
    };
}
use insert;

/// Whether a column has the version that the password has now.
fn is_version<'r, R: Row>(row: &'r R, column: &'static str) -> Result<bool, sqlx::Error>
where
    &'static str: sqlx::ColumnIndex<R>,
    i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Option<i64>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    let found: Option<i64> = row.try_get(column)?;
    Ok(found == Some(row.try_get("password_version")?))
}

// A row of `accounts`, alone or joined.
from_row!(Account, row => Account {
    id: row.try_get("id")?,
    login: row.try_get("login")?,
    password_hash: row.try_get("password_hash")?,
    password_version: row.try_get("password_version")?,
    password_failures: row.try_get("password_failures")?,
    password_disabled_at: row.try_get::<Option<i64>, _>("password_disabled_at")?.map(Micros),
    phone: row.try_get::<Option<String>, _>("phone")?.map(Phone::stored),
    roles: Roles { admin: row.try_get::<i64, _>("admin")? != 0 },
    must_change_password: row.try_get::<i64, _>("must_change_password")? != 0,
    password_breached: is_version(row, "breached_version")? || is_version(row, "sprayed_version")?,
    password_lost: is_version(row, "breached_version")?,
    created_at: Micros(row.try_get("created_at")?),
    disabled_at: row.try_get::<Option<i64>, _>("disabled_at")?.map(Micros),
    deleted_at: row.try_get::<Option<i64>, _>("deleted_at")?.map(Micros),
    frozen_at: row.try_get::<Option<i64>, _>("frozen_at")?.map(Micros),
});

// An account's password in the database, and what a change of it ends.

/// How somebody has proved that they may set a password.
#[derive(Debug, Clone, Copy)]
pub enum ShownBy<'a> {
    /// The password of that version was shown, by a stranger.
    Password(i64),
    /// The password of that version was shown, from a known device.
    PasswordFrom(i64, DeviceId),
    /// A code sent to the account's number proves it, and a second factor that is still there, if the account has any.
    Phone(&'a Phone, Option<&'a FactorProof>),
    /// A code sent to the account's address, whose mailbox has that key, proves it, as with a number.
    Mailbox(&'a str, Option<&'a FactorProof>),
    /// The link of an invitation to the account, which has no password yet.
    Invitation(InvitationId),
}

const SET_VERIFIED: &str =
    "UPDATE accounts SET password_hash = $1, password_since = $4, must_change_password = 0,
    password_version = password_version + 1, password_failures = 0
    WHERE id = $2 AND password_version = $3 AND password_disabled_at IS NULL AND disabled_at IS NULL
    RETURNING password_version";
const SET_FROM_DEVICE: &str = "UPDATE accounts SET password_hash = $1, password_since = $5, must_change_password = 0,
    password_version = password_version + 1, password_failures = 0, password_disabled_at = NULL
    WHERE id = $2 AND password_version = $3 AND disabled_at IS NULL AND NOT EXISTS (SELECT 1 FROM device_failures
    WHERE account = $2 AND device = $4 AND spent_at IS NOT NULL) RETURNING password_version";
/// `$proven`: that the account has the number or the mailbox to which the code was sent.
macro_rules! set_proven {
    ($proven:literal) => {
        concat!(
            "UPDATE accounts SET password_hash = $1, password_since = $6, must_change_password = 0,
            password_version = password_version + 1, password_failures = 0, password_disabled_at = NULL
            WHERE id = $2 AND disabled_at IS NULL AND frozen_at IS NULL AND ",
            $proven,
            " AND (NOT ",
            factor_sql::has_factor!("$2"),
            " OR ",
            factor_sql::proof_holds!("$2", "$4", "$5"),
            ") RETURNING password_version"
        )
    };
}

const SET_BY_PHONE: &str = set_proven!("phone = $3");
const SET_BY_MAILBOX: &str =
    set_proven!("EXISTS (SELECT 1 FROM account_emails e WHERE e.account = $2 AND e.mailbox = $3)");

const SET_INVITED: &str = concat!(
    // Its owner has nothing that is older.
    "UPDATE accounts SET password_hash = $1, password_since = NULL, password_version = password_version + 1
    WHERE id = $2 AND ",
    invitations::needs_link!("$2"),
    " AND EXISTS (SELECT 1 FROM invitations i WHERE i.id = $3 AND i.account = $2
    AND i.password_version = accounts.password_version AND i.revoked_at IS NULL AND i.expires_at > $4)
    RETURNING password_version"
);

impl Accounts {
    /// Sets a password that the owner chose, and ends every session of the account in the same step: an
    /// attempt that verified the old password starts no session. Returns the new version; None if the proof
    /// is no longer valid. A code or a known device also re-enables a disabled password, and a code to a number that a
    /// frozen account had before lifts the freeze. The failures of devices are deleted with the password that the
    /// devices knew.
    pub async fn set_password(
        &self,
        id: AccountId,
        phc: &Phc,
        shown: ShownBy<'_>,
    ) -> Result<Option<i64>, DbError> {
        const END_SESSIONS: &str = "DELETE FROM sessions WHERE account = $1";
        const FORGET_DEVICES: &str = "DELETE FROM device_failures WHERE account = $1";
        const END_TRUST: &str = "DELETE FROM trusted_devices WHERE account = $1";
        let account = id.to_string();
        let at = self.db.now(&self.clock).await?;
        let mut tx = self.db.begin_exclusive(DbLock::account(id.as_bytes())).await?;
        if matches!(shown, ShownBy::Phone(..))
            && let Some(had) = HadBefore::of(&mut tx, &account, None).await?
        {
            if !had.number {
                return Ok(None);
            }
            had.lift(&mut tx, &account, FreezeEndedBy::NewPassword, at).await?;
        }
        // The account first: a session that starts at the same time either holds its row or finds it changed.
        let version: Option<i64> = on_tx!(&mut tx, connection => {
            let set = match shown {
                ShownBy::Password(version) => query_scalar(SET_VERIFIED).bind(phc.as_str()).bind(&account).bind(version)
                    .bind(at.0),
                ShownBy::PasswordFrom(version, device) => query_scalar(SET_FROM_DEVICE).bind(phc.as_str())
                    .bind(&account).bind(version).bind(device.to_string()).bind(at.0),
                ShownBy::Phone(phone, by) => query_scalar(SET_BY_PHONE).bind(phc.as_str()).bind(&account)
                    .bind(phone.as_str()).bind(by.map(FactorProof::method))
                    .bind(by.and_then(|by| by.credential.as_deref())).bind(at.0),
                ShownBy::Mailbox(mailbox, by) => query_scalar(SET_BY_MAILBOX).bind(phc.as_str()).bind(&account)
                    .bind(mailbox).bind(by.map(FactorProof::method))
                    .bind(by.and_then(|by| by.credential.as_deref())).bind(at.0),
                ShownBy::Invitation(id) => query_scalar(SET_INVITED).bind(phc.as_str()).bind(&account)
                    .bind(id.to_string()).bind(self.clock.now().0),
            };
            set.fetch_optional(connection).await
        })?;
        if version.is_some() {
            for sql in [END_SESSIONS, FORGET_DEVICES, END_TRUST] {
                execute!(in &mut tx => query(sql).bind(&account))?;
            }
            session_changes::record(&mut tx, &self.entropy, &account, at).await?;
            if !matches!(shown, ShownBy::Invitation(_)) {
                mail::tell(&mut tx, &self.entropy, (&account, LetterKind::PasswordChanged), at).await?;
            }
            tx.commit().await?;
        }
        Ok(version)
    }

    /// Replaces the hash of the same password. False, and nothing changes, if the password was changed in the
    /// meantime.
    pub async fn rehash(&self, id: AccountId, old: &Phc, new: &Phc) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE accounts SET password_hash = $1 WHERE id = $2 AND password_hash = $3";
        Ok(execute!(&self.db => query(SQL).bind(new.as_str()).bind(id.to_string()).bind(old.as_str()))? > 0)
    }

    /// Remembers that others know the account's password, until it is another: it is in the list, or was tried at many
    /// names. False if that is known already, as another sign-in may have noted at this moment, or if the password was
    /// changed in the meantime.
    pub async fn note_breached(&self, account: &Account, lost: bool, sprayed: bool) -> Result<bool, DbError> {
        const SQL: &str =
            "UPDATE accounts SET breached_version = CASE WHEN $1 = 1 THEN password_version ELSE breached_version END,
            sprayed_version = CASE WHEN $2 = 1 THEN password_version ELSE sprayed_version END
            WHERE id = $3 AND password_version = $4 AND (($1 = 1 AND COALESCE(breached_version, -1) <> $4)
            OR ($2 = 1 AND $4 NOT IN (COALESCE(breached_version, -1), COALESCE(sprayed_version, -1))))";
        let noted = execute!(&self.db => query(SQL).bind(i64::from(lost)).bind(i64::from(sprayed))
            .bind(account.id.to_string()).bind(account.password_version))?;
        Ok(noted > 0)
    }

    /// Has the owner choose another password before everything else. Nothing changes if it was changed in the meantime.
    pub async fn require_new_password(&self, account: &Account) -> Result<(), DbError> {
        const SQL: &str =
            "UPDATE accounts SET must_change_password = 1 WHERE id = $1 AND password_version = $2";
        execute!(&self.db => query(SQL).bind(account.id.to_string()).bind(account.password_version))?;
        Ok(())
    }
}

/// Nothing has opened, closed or changed the account since it was read.
async fn is_as_it_was(tx: &mut Tx, account: &Account) -> Result<bool, DbError> {
    const SQL: &str =
        "SELECT COUNT(*) FROM accounts WHERE id = $1 AND password_version = $2 AND disabled_at IS NULL";
    let count: i64 = on_tx!(tx, connection => query_scalar(SQL).bind(account.id.to_string())
        .bind(account.password_version).fetch_one(connection).await)?;
    Ok(count > 0)
}

// Wrong passwords in a row from strangers, and the disabling of a password that had too many.

/// Rows of `unheld_failures`: so many that two names seldom share one.
const SLOTS: u16 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureResult {
    Counted,
    /// It was the last one allowed to strangers or to that device: the password is disabled for them.
    Disabled,
    /// The password was changed, or disabled for them, in the meantime.
    Void,
}

impl FailureResult {
    /// From the result of the statement that counted it.
    const fn of(returned: Option<i32>) -> Self {
        match returned {
            None => Self::Void,
            Some(0) => Self::Counted,
            Some(_) => Self::Disabled,
        }
    }
}

impl Accounts {
    /// Counts a wrong password against the one that it was compared with, and disables that at the `max`-th
    /// in a row. Simultaneous ones all count, and one of them disables. `more`: 1, or 0 for one that was counted before.
    pub async fn count_failure(
        &self,
        account: &Account,
        max: u32,
        more: i64,
    ) -> Result<FailureResult, DbError> {
        const SQL: &str =
            "UPDATE accounts SET password_failures = password_failures + $5, password_disabled_at =
            CASE WHEN $5 = 1 AND password_failures + $5 >= $1 THEN CAST($2 AS BIGINT) END
            WHERE id = $3 AND password_version = $4 AND password_disabled_at IS NULL
            RETURNING CASE WHEN password_disabled_at IS NULL THEN 0 ELSE 1 END";
        let (id, now) = (account.id.to_string(), self.clock.now().0);
        let disabled: Option<i32> = on_db!(&self.db, pool => query_scalar(SQL).bind(i64::from(max)).bind(now)
            .bind(id).bind(account.password_version).bind(more).fetch_optional(pool).await)?;
        Ok(FailureResult::of(disabled))
    }

    /// Costs as much as counting, for a name without a password. Each name always uses the same row, so that
    /// simultaneous attempts wait for each other as they would at an account.
    pub async fn count_unheld_failure(&self, login: &Username) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO unheld_failures (slot, count) VALUES ($1, 1)
            ON CONFLICT (slot) DO UPDATE SET count = unheld_failures.count + 1 RETURNING slot";
        let hash = blake3::hash(login.as_str().as_bytes());
        let [low, high, ..] = *hash.as_bytes();
        let slot = i64::from(u16::from_le_bytes([low, high]) % SLOTS);
        let _: Option<i64> =
            on_db!(&self.db, pool => query_scalar(SQL).bind(slot).fetch_optional(pool).await)?;
        Ok(())
    }

    /// The account's password was right: earlier wrong ones no longer count. False if it was changed or
    /// disabled after the account was read; then it was not right after all.
    pub async fn forget_failures(&self, account: &Account) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE accounts SET password_failures = 0
            WHERE id = $1 AND password_version = $2 AND password_disabled_at IS NULL";
        Ok(execute!(&self.db => query(SQL).bind(account.id.to_string()).bind(account.password_version))? > 0)
    }

    /// Re-enables a disabled password. False if it is not disabled.
    pub async fn enable_password(&self, id: AccountId) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE accounts SET password_failures = 0, password_disabled_at = NULL
            WHERE id = $1 AND password_disabled_at IS NOT NULL";
        Ok(execute!(&self.db => query(SQL).bind(id.to_string()))? > 0)
    }
}

// Wrong passwords in a row from a known device, counted apart from those of strangers.

/// How long a device is known after its last sign-in: long enough for somebody who signs in twice a year.
/// Browsers keep a cookie for 400 days at most (RFC 6265bis), but a machine that was given away should become
/// a stranger's sooner.
pub const DEVICE_LIFE: Duration = Duration::from_secs(180 * 24 * 60 * 60);
/// The number of an account's devices whose failures are kept; beyond it, those that failed longest ago are
/// removed. Each device has signed in before, so only somebody who wants to fill the table has this many.
const MOST: i64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceFailures {
    pub device: DeviceId,
    /// Wrong passwords in a row.
    pub failures: i64,
    /// There were too many: it is treated as a stranger until there is a new password.
    pub spent: bool,
}

impl Accounts {
    /// The account together with the failures of one of its devices, in one query.
    pub async fn find_from(
        &self,
        login: &Username,
        device: DeviceId,
    ) -> Result<Option<(Account, DeviceFailures)>, DbError> {
        const SQL: &str = concat!(
            "SELECT a.*, COALESCE(d.failures, 0) AS device_failures,
            CASE WHEN d.spent_at IS NULL THEN CAST(0 AS BIGINT) ELSE CAST(1 AS BIGINT) END AS device_spent
            FROM accounts a LEFT JOIN device_failures d ON d.account = a.id AND d.device = $4 WHERE ",
            is_spelt!()
        );
        let ([typed, standard, folded], device_id) = (login.spellings(), device.to_string());
        let keys = [typed.as_str(), standard.as_str(), folded.as_str(), &device_id];
        let row: Option<DeviceRow> = self.one(SQL, &keys).await?;
        Ok(row.map(|DeviceRow { account, device_failures: failures, device_spent }| {
            (account, DeviceFailures { device, failures, spent: device_spent != 0 })
        }))
    }

    /// Counts a wrong password of a device, and at the `max`-th in a row the device is no longer known.
    /// Simultaneous ones all count, and one of them ends it.
    pub async fn count_device_failure(
        &self,
        account: &Account,
        device: DeviceId,
        max: u32,
        more: i64,
    ) -> Result<FailureResult, DbError> {
        const SQL: &str = "INSERT INTO device_failures (account, device, failures, failed_at, spent_at)
            SELECT id, $1, $6, $2, CASE WHEN $6 = 1 AND $3 <= $6 THEN CAST($2 AS BIGINT) END FROM accounts
            WHERE id = $4 AND password_version = $5
            ON CONFLICT (account, device) DO UPDATE SET failures = device_failures.failures + excluded.failures,
            failed_at = excluded.failed_at,
            spent_at = CASE WHEN excluded.failures = 1 AND device_failures.failures + excluded.failures >= $3
                THEN excluded.failed_at END
            WHERE device_failures.spent_at IS NULL
            RETURNING CASE WHEN spent_at IS NULL THEN 0 ELSE 1 END";
        let spent: Option<i32> = on_db!(&self.db, pool => query_scalar(SQL).bind(device.to_string())
            .bind(self.clock.now().0).bind(i64::from(max)).bind(account.id.to_string())
            .bind(account.password_version).bind(more).fetch_optional(pool).await)?;
        Ok(FailureResult::of(spent))
    }

    /// The device's password was right: earlier wrong ones no longer count. False if there were too many in
    /// the meantime; then it was not right after all.
    pub async fn forget_device_failures(&self, account: &Account, device: DeviceId) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE device_failures SET failures = 0
            WHERE account = $1 AND device = $2 AND spent_at IS NULL";
        Ok(execute!(&self.db => query(SQL).bind(account.id.to_string()).bind(device.to_string()))? > 0)
    }

    pub async fn is_device_spent(&self, account: AccountId, device: DeviceId) -> Result<bool, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM device_failures
            WHERE account = $1 AND device = $2 AND spent_at IS NOT NULL";
        let count: i64 = on_db!(&self.db, pool => query_scalar(SQL).bind(account.to_string())
            .bind(device.to_string()).fetch_one(pool).await)?;
        Ok(count > 0)
    }

    /// Removes at most `batch` failures of devices whose cookies have expired, or if there are fewer, beyond an account's
    /// maximum, which takes a look at all; returns how many.
    pub async fn purge_device_failures(&self, batch: u32) -> Result<u64, DbError> {
        const OLD: &str = "DELETE FROM device_failures WHERE (account, device) IN (
            SELECT account, device FROM device_failures WHERE failed_at <= $1 ORDER BY failed_at LIMIT $2)";
        const TOO_MANY: &str = "DELETE FROM device_failures WHERE (account, device) IN (
            SELECT account, device FROM (SELECT account, device,
            ROW_NUMBER() OVER (PARTITION BY account ORDER BY failed_at DESC, device) AS place
            FROM device_failures) AS ranked WHERE place > $1 LIMIT $2)";
        let (before, most) = (self.clock.now().minus(DEVICE_LIFE).0, i64::from(batch));
        let old = execute!(&self.db => query(OLD).bind(before).bind(most))?;
        if old == u64::from(batch) {
            return Ok(old);
        }
        Ok(old + execute!(&self.db => query(TOO_MANY).bind(MOST).bind(most))?)
    }
}

struct DeviceRow {
    account: Account,
    device_failures: i64,
    device_spent: i64,
}

from_row!(DeviceRow, row => DeviceRow {
    account: Account::from_row(row)?,
    device_failures: row.try_get("device_failures")?,
    device_spent: row.try_get("device_spent")?,
});

#[cfg(test)]
mod tests;

#[cfg(test)]
mod failures_tests;

#[cfg(test)]
mod devices_tests;
