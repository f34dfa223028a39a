//! Invitations: links with which people come into accounts that administrators make. A link sets the first password of one
//! account, or makes as many accounts as it is for.

use std::time::Duration;

use serde::Serialize;
use sqlx::{Row, query, query_as, query_scalar};
use utoipa::ToSchema;

use super::import::{ImportConflict, conflicts, insert_profiles};
use super::sessions::hash_text;
use super::{
    Account, AccountId, Accounts, Groups, INSERT, ImportRow, Phc, Roles, SessionToken, Username, insert,
};
use crate::clock::{Clock, Micros, as_time};
use crate::db::{Db, DbError, DbLock, Tx, execute, from_row, on_db, on_tx, random_id, text_column};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::SubKey;

/// How long the link of one account is good, and that for many unless it is said otherwise.
pub const INVITATION_LASTS: Duration = Duration::from_secs(72 * 60 * 60);
/// The longest that a link for many may be good: nobody remembers for whom an older one was.
pub const LONGEST_INVITATION: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// The most accounts that one link makes, and that are created at once.
pub const MOST_INVITED: u32 = 1_000;
/// The most that a list shows.
const MOST_LISTED: i64 = 200;
/// How often accounts are created anew when names are registered meanwhile.
const TRIES: usize = 3;
/// How long what has ended is kept, for a look at what became of it.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Gives a new account its groups.
const GROUPS: &str = "INSERT INTO account_groups (account, names) VALUES ($1, $2)";

random_id! {
    /// An invitation's id, for listing and revoking it. It opens nothing: the link does.
    InvitationId
}

/// What a link has in it: of another kind than a session's token, and hashed under another key.
#[derive(Clone)]
pub struct InvitationToken(SessionToken);

/// An invitation that is good now.
#[derive(Debug, Clone)]
pub struct Invitation {
    pub id: InvitationId,
    /// The account whose first password it sets; None if it makes one, with a name of the holder's choice.
    pub account: Option<Box<Account>>,
}

/// A link, which only who makes it sees.
pub struct NewInvitation {
    pub id: InvitationId,
    pub token: InvitationToken,
    pub expires_at: Micros,
}

/// An invitation that is good now, as administrators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = OpenInvitation)]
pub struct InvitationEntry {
    #[schema(value_type = String)]
    pub id: InvitationId,
    /// The name of the account that it is for; left out if it makes accounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub account: Option<AccountId>,
    /// How many accounts it still makes, or 1.
    pub left: u32,
    /// How many it was made for.
    pub count: u32,
    /// The groups of the accounts that it makes.
    #[serde(serialize_with = "as_names")]
    #[schema(value_type = Vec<String>)]
    pub groups: Groups,
    /// The login of the administrator; left out if that account is gone, or if the command line made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Micros,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Micros,
}

fn as_names<S: serde::Serializer>(groups: &Groups, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(groups.names())
}

/// Whether the accounts were made: all of them or none.
pub enum AccountsMade {
    /// Each with its link, in their order.
    Made(Vec<(AccountId, NewInvitation)>),
    /// The rows that cannot be, by position, and why.
    Refused(Vec<(usize, ImportConflict)>),
    /// Names or numbers were taken again and again while they were being written, so no account was made.
    Raced,
}

#[derive(Debug)]
pub enum Acceptance {
    Accepted(Box<Account>),
    LoginTaken,
    /// It was used, revoked or expired in the meantime.
    Ended,
}

#[derive(Clone)]
pub struct Invitations {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    key: SubKey,
    accounts: Accounts,
}

/// Whether nothing but a link opens the account: nobody has come in yet, or what opened it is gone. A link is no way past a
/// number, an address or a second factor.
macro_rules! needs_link {
    ($account:literal) => {
        concat!(
            "password_hash IS NULL AND disabled_at IS NULL AND frozen_at IS NULL AND NOT ",
            $crate::accounts::factor_sql::has_factor!($account),
            " AND (NOT EXISTS (SELECT 1 FROM last_sign_ins WHERE account = ",
            $account,
            ") OR phone IS NULL AND NOT EXISTS (SELECT 1 FROM account_emails WHERE account = ",
            $account,
            "))"
        )
    };
}
pub(super) use needs_link;

/// Whether `i` is good at `$1`. That of an account ends with the password that it sets, and with any other way in.
macro_rules! is_open {
    () => {
        concat!(
            "i.revoked_at IS NULL AND i.expires_at > $1 AND i.uses_left > 0 AND (i.account IS NULL OR EXISTS (SELECT 1
            FROM accounts a WHERE a.id = i.account AND a.password_version = i.password_version AND ",
            needs_link!("i.account"),
            "))"
        )
    };
}

impl InvitationToken {
    /// From a link; None if it cannot be one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        SessionToken::parse(text).map(Self)
    }

    /// Only for who makes it.
    pub fn expose(&self) -> String {
        self.0.expose()
    }

    /// The link, at the public URL.
    pub fn link(&self, public_url: &str) -> String {
        format!("{}/welcome/{}", public_url.trim_end_matches('/'), self.expose())
    }
}

impl Invitations {
    /// Links are hashed under a key: without it, a copy of the table opens nothing.
    pub fn new(foundation: &Foundation, accounts: Accounts) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        Self { db, clock, entropy, key: secrets.derive("invitation.link"), accounts }
    }

    /// Creates accounts without a password, all of them or none, each with the groups and a link.
    pub async fn create_accounts(
        &self,
        rows: &[ImportRow],
        groups: &Groups,
        by: Option<AccountId>,
    ) -> Result<AccountsMade, DbError> {
        for _ in 0..TRIES {
            let mut tx = self.db.begin_exclusive(DbLock::on("accounts.import")).await?;
            let conflicts = conflicts(&mut tx, rows).await?;
            if !conflicts.is_empty() {
                return Ok(AccountsMade::Refused(conflicts));
            }
            let ids: Vec<_> = rows.iter().map(|_| AccountId::random(&self.entropy)).collect();
            if self.accounts.insert_all(&mut tx, rows, &ids).await? != rows.len() as u64 {
                // Somebody has registered one of the names since; the next look says which.
                continue;
            }
            insert_profiles(&mut tx, rows, &ids).await?;
            let mut made = Vec::with_capacity(ids.len());
            for id in ids {
                if *groups != Groups::default() {
                    execute!(in &mut tx => query(GROUPS).bind(id.to_string()).bind(groups.to_string()))?;
                }
                let whose = InvitationOf { account: Some((id, 0)), count: 1, groups: &Groups::default(), by };
                made.push((id, self.insert(&mut tx, whose, INVITATION_LASTS).await?));
            }
            tx.commit().await?;
            return Ok(AccountsMade::Made(made));
        }
        Ok(AccountsMade::Raced)
    }

    /// Makes a link to an account that nothing else opens, in place of any before. None if something does, or if it is
    /// frozen, disabled or deleted. `new_only`: or if somebody has ever signed in to it.
    pub async fn invite(
        &self,
        account: AccountId,
        by: Option<AccountId>,
        new_only: bool,
    ) -> Result<Option<NewInvitation>, DbError> {
        const VERSION: &str = concat!(
            "SELECT password_version FROM accounts WHERE id = $1 AND ",
            needs_link!("$1"),
            " AND ($2 = 0 OR NOT EXISTS (SELECT 1 FROM last_sign_ins WHERE account = $1))"
        );
        const END: &str = "UPDATE invitations SET revoked_at = $1 WHERE account = $2 AND revoked_at IS NULL";
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        let version: Option<i64> = on_tx!(&mut tx, connection => query_scalar(VERSION).bind(account.to_string())
            .bind(i64::from(new_only)).fetch_optional(connection).await)?;
        let Some(version) = version else { return Ok(None) };
        execute!(in &mut tx => query(END).bind(self.clock.now().0).bind(account.to_string()))?;
        let whose =
            InvitationOf { account: Some((account, version)), count: 1, groups: &Groups::default(), by };
        let made = self.insert(&mut tx, whose, INVITATION_LASTS).await?;
        tx.commit().await?;
        Ok(Some(made))
    }

    /// Makes a link that makes so many accounts, each in these groups.
    pub async fn invite_many(
        &self,
        count: u32,
        groups: &Groups,
        lasts: Duration,
        by: Option<AccountId>,
    ) -> Result<NewInvitation, DbError> {
        let mut tx = self.db.begin().await?;
        let made = self.insert(&mut tx, InvitationOf { account: None, count, groups, by }, lasts).await?;
        tx.commit().await?;
        Ok(made)
    }

    async fn insert(
        &self,
        tx: &mut Tx,
        InvitationOf { account, count, groups, by }: InvitationOf<'_>,
        lasts: Duration,
    ) -> Result<NewInvitation, DbError> {
        const INSERT: &str =
            "INSERT INTO invitations (id, token_hash, account, password_version, uses, uses_left,
            group_names, made_by, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $8, $9)";
        let token = InvitationToken(SessionToken::random(&self.entropy));
        let (id, now) = (InvitationId::random(&self.entropy), self.clock.now());
        let expires_at = now.plus(lasts);
        execute!(in tx => query(INSERT).bind(id.to_string()).bind(self.hash(&token))
            .bind(account.map(|(id, _)| id.to_string())).bind(account.map(|(_, version)| version))
            .bind(i64::from(count)).bind(groups.to_string()).bind(by.map(|by| by.to_string())).bind(now.0)
            .bind(expires_at.0))?;
        Ok(NewInvitation { id, token, expires_at })
    }

    /// Finds the invitation of a link; None if it is not good, for whatever reason.
    pub async fn find(&self, token: &InvitationToken) -> Result<Option<Invitation>, DbError> {
        const SQL: &str =
            concat!("SELECT i.id, i.account FROM invitations i WHERE i.token_hash = $2 AND ", is_open!());
        let found: Option<(InvitationId, Option<AccountId>)> = on_db!(&self.db, pool => query_as(SQL)
            .bind(self.clock.now().0).bind(self.hash(token)).fetch_optional(pool).await)?;
        let Some((id, account)) = found else { return Ok(None) };
        let Some(account) = account else { return Ok(Some(Invitation { id, account: None })) };
        let account = self.accounts.by_id(account).await?;
        Ok(account.map(|account| Invitation { id, account: Some(Box::new(account)) }))
    }

    /// The invitations that are good, newest first.
    pub async fn list(&self) -> Result<Vec<InvitationEntry>, DbError> {
        const SQL: &str = concat!(
            "SELECT i.id, i.account, o.login AS login, i.uses, i.uses_left, i.group_names, m.login AS made_by,
            i.created_at, i.expires_at FROM invitations i LEFT JOIN accounts o ON o.id = i.account
            LEFT JOIN accounts m ON m.id = i.made_by WHERE ",
            is_open!(),
            " ORDER BY i.created_at DESC, i.id LIMIT $2"
        );
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(self.clock.now().0).bind(MOST_LISTED)
            .fetch_all(pool).await)?)
    }

    /// Whether a link of the account is good.
    pub async fn is_invited(&self, account: AccountId) -> Result<bool, DbError> {
        const SQL: &str = concat!("SELECT COUNT(*) FROM invitations i WHERE i.account = $2 AND ", is_open!());
        let count: i64 = on_db!(&self.db, pool => query_scalar(SQL).bind(self.clock.now().0)
            .bind(account.to_string()).fetch_one(pool).await)?;
        Ok(count > 0)
    }

    /// Ends an invitation. Returns the account that it is for, if it is for one; None if it is not good.
    pub async fn revoke(&self, id: InvitationId) -> Result<Option<Option<AccountId>>, DbError> {
        const SQL: &str = concat!(
            "UPDATE invitations AS i SET revoked_at = $1 WHERE i.id = $2 AND ",
            is_open!(),
            " RETURNING account"
        );
        Ok(on_db!(&self.db, pool => query_scalar(SQL).bind(self.clock.now().0).bind(id.to_string())
            .fetch_optional(pool).await)?)
    }

    /// Deletes at most so many that have ended long ago; returns how many.
    pub async fn purge(&self, rows: u32) -> Result<u64, DbError> {
        const SQL: &str =
            "DELETE FROM invitations WHERE id IN (SELECT id FROM invitations WHERE expires_at < $1
            ORDER BY expires_at LIMIT $2)";
        Ok(execute!(&self.db => query(SQL).bind(self.clock.now().minus(KEPT).0).bind(i64::from(rows)))?)
    }

    fn hash(&self, token: &InvitationToken) -> String {
        hash_text(self.key.hash(&[token.0.bytes()]))
    }
}

struct InvitationOf<'a> {
    /// With the version of its password.
    account: Option<(AccountId, i64)>,
    count: u32,
    groups: &'a Groups,
    by: Option<AccountId>,
}

impl Accounts {
    /// Creates an account by an invitation that makes some, and takes one of its uses with it. Of many at once, no more get
    /// one than it is for.
    pub async fn create_invited(
        &self,
        by: InvitationId,
        login: &Username,
        phc: &Phc,
    ) -> Result<Acceptance, DbError> {
        const TAKE: &str = concat!(
            "UPDATE invitations AS i SET uses_left = uses_left - 1 WHERE i.id = $2 AND i.account IS NULL AND ",
            is_open!(),
            " RETURNING group_names"
        );
        let account = self.fresh(login, Some(phc), None, Roles::default());
        if self.has_older_spelling(&account.login).await? {
            return Ok(Acceptance::LoginTaken);
        }
        let mut tx = self.db.begin_exclusive(DbLock::on("accounts.invited")).await?;
        let groups: Option<String> = on_tx!(&mut tx, connection => query_scalar(TAKE).bind(self.clock.now().0)
            .bind(by.to_string()).fetch_optional(connection).await)?;
        let Some(groups) = groups else { return Ok(Acceptance::Ended) };
        // What is not committed takes no use.
        if execute!(in &mut tx => insert!(account, None::<Micros>))? == 0 {
            return Ok(Acceptance::LoginTaken);
        }
        if !groups.is_empty() {
            execute!(in &mut tx => query(GROUPS).bind(account.id.to_string()).bind(&groups))?;
        }
        tx.commit().await?;
        Ok(Acceptance::Accepted(Box::new(account)))
    }
}

text_column!(Groups, text => Self::stored(Some(text.to_owned())));

from_row!(InvitationEntry, row => InvitationEntry {
    id: row.try_get("id")?,
    login: row.try_get("login")?,
    account: row.try_get("account")?,
    left: row.try_get::<i64, _>("uses_left")?.try_into().unwrap_or(u32::MAX),
    count: row.try_get::<i64, _>("uses")?.try_into().unwrap_or(u32::MAX),
    groups: Groups::stored(row.try_get("group_names")?),
    made_by: row.try_get("made_by")?,
    created_at: Micros(row.try_get("created_at")?),
    expires_at: Micros(row.try_get("expires_at")?),
});
