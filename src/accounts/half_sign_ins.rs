//! Sign-ins whose first step was right, at accounts that ask for a second: each opens nothing but that.

use std::time::Duration;

use sqlx::{Row, query, query_as, query_scalar};

use super::sessions::hash_text;
use super::{Account, DeviceId, FirstFactor, Phc, SessionToken};
use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, execute, from_row, on_db};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::SubKey;

/// How long somebody may take for the second step.
const LASTS: Duration = Duration::from_secs(300);

/// The browser's token: of another kind than a session's, and hashed under another key.
#[derive(Debug, Clone)]
pub struct HalfToken(SessionToken);

impl HalfToken {
    /// From a cookie; None if it cannot be one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        SessionToken::parse(text).map(Self)
    }

    /// Only for the Set-Cookie header.
    pub fn expose(&self) -> String {
        self.0.expose()
    }
}

/// What was proved, of whom, and what comes after the second step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HalfSignIn {
    /// The account as it is now; its version is that of the first step.
    pub account: Account,
    pub first: FirstFactor,
    /// Where the browser wanted to go.
    pub target: String,
    /// After a code for a forgotten password: the new one, which the second step sets. It signs nobody in.
    pub new_password: Option<Phc>,
}

#[derive(Clone)]
pub struct HalfSignIns {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    key: SubKey,
}

impl HalfSignIns {
    pub fn new(foundation: &Foundation) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        Self { db, clock, entropy, key: secrets.derive("session.half") }
    }

    /// For an account as it was when it was verified. There may be any number: none takes the place of another, so that
    /// who knows the password ends nothing of the owner's. None if its password or number was changed since, or it was
    /// disabled.
    pub async fn begin(
        &self,
        account: &Account,
        first: FirstFactor,
        target: &str,
        new_password: Option<&Phc>,
    ) -> Result<Option<(HalfToken, Duration)>, DbError> {
        const SQL: &str =
            "INSERT INTO half_sign_ins (token_hash, account, password_version, proved, device, target,
            new_password, expires_at) SELECT $1, id, password_version, $4, $5, $6, $7, $8 FROM accounts
            WHERE id = $2 AND password_version = $3 AND disabled_at IS NULL";
        let token = HalfToken(SessionToken::random(&self.entropy));
        let (proved, device) = match first {
            FirstFactor::Password => ("password", None),
            FirstFactor::PasswordFrom(device) => ("password", Some(device.to_string())),
            FirstFactor::Code => ("code", None),
            FirstFactor::MailCode => ("mail-code", None),
            FirstFactor::Passkey => ("passkey", None),
        };
        let expires_at = self.db.now(&self.clock).await?.plus(LASTS).0;
        let (id, version) = (account.id.to_string(), account.password_version);
        let rows = execute!(&self.db => query(SQL).bind(self.hash(&token)).bind(&id).bind(version).bind(proved)
            .bind(&device).bind(target).bind(new_password.map(Phc::as_str)).bind(expires_at))?;
        Ok((rows > 0).then_some((token, LASTS)))
    }

    /// Finds a half sign-in; None if it is unknown, too old or used, or the password was changed since.
    pub async fn find(&self, token: &HalfToken) -> Result<Option<HalfSignIn>, DbError> {
        const SQL: &str = "SELECT h.proved, h.device, h.target, h.new_password, a.*
            FROM half_sign_ins h JOIN accounts a ON a.id = h.account AND a.password_version = h.password_version
            WHERE h.token_hash = $1 AND h.expires_at > $2 AND a.disabled_at IS NULL";
        let now = self.db.now(&self.clock).await?.0;
        Ok(
            on_db!(&self.db, pool => query_as(SQL).bind(self.hash(token)).bind(now).fetch_optional(pool).await)?,
        )
    }

    /// Uses it up. False if somebody else has.
    pub async fn end(&self, token: &HalfToken) -> Result<bool, DbError> {
        const SQL: &str = "DELETE FROM half_sign_ins WHERE token_hash = $1";
        Ok(execute!(&self.db => query(SQL).bind(self.hash(token)))? > 0)
    }

    /// Another token for the one of this hash, in whose place it is, and how long it is still good. None if that has ended.
    pub(super) async fn renew(&self, hash: &str) -> Result<Option<(HalfToken, Duration)>, DbError> {
        const SQL: &str = "UPDATE half_sign_ins SET token_hash = $1 WHERE token_hash = $2 AND expires_at > $3
            RETURNING expires_at";
        let (token, now) = (HalfToken(SessionToken::random(&self.entropy)), self.db.now(&self.clock).await?);
        let expires_at: Option<i64> = on_db!(&self.db, pool => query_scalar(SQL).bind(self.hash(&token)).bind(hash)
            .bind(now.0).fetch_optional(pool).await)?;
        Ok(expires_at.map(|at| (token, Micros(at).since(now))))
    }

    /// Deletes at most `batch` that nobody finished; returns how many.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str =
            "DELETE FROM half_sign_ins WHERE token_hash IN (SELECT token_hash FROM half_sign_ins
            WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
        let now = self.db.now(&self.clock).await?.0;
        Ok(execute!(&self.db => query(SQL).bind(now).bind(i64::from(batch)))?)
    }

    pub(super) fn hash(&self, token: &HalfToken) -> String {
        hash_text(self.key.hash(&[token.0.bytes()]))
    }
}

from_row!(HalfSignIn, row => HalfSignIn {
    account: Account::from_row(row)?,
    first: match (row.try_get::<&str, _>("proved")?, row.try_get::<Option<DeviceId>, _>("device")?) {
        ("code", _) => FirstFactor::Code,
        ("mail-code", _) => FirstFactor::MailCode,
        ("passkey", _) => FirstFactor::Passkey,
        (_, Some(device)) => FirstFactor::PasswordFrom(device),
        (_, None) => FirstFactor::Password,
    },
    target: row.try_get("target")?,
    new_password: row.try_get("new_password")?,
});
