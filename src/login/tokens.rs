//! Tokens of other programs: what they show instead of a session when they ask for hits on custom limits.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sqlx::{query, query_as, query_scalar};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::id::{self, random_id};
use super::{AccountId, Scopes};
use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, Lock, on_db, on_tx};
use crate::entropy::Entropy;
use crate::secret::SubKey;

/// What every token begins with, so that one in a log or a repository is recognised for what it is.
const MARK: &str = "ght_";
/// The most that are good at one time.
pub const MOST_TOKENS: i64 = 100;
/// How long a token is believed without asking the database: so late this instance learns that another one
/// revoked it.
const BELIEVED: Duration = Duration::from_millis(900);
/// Past that age of what is known one caller asks again, while the others go on.
const FRESH: Duration = Duration::from_millis(500);
/// How often it is written that a token is in use.
const TOUCH_EVERY: Duration = Duration::from_secs(60);
/// What is known of this many tokens; far more than can be good at one time.
const KNOWN: usize = 1024;

random_id! {
    /// A token as it is listed and revoked. Opens nothing: the token does.
    TokenId
}

/// What a program shows: 256 random bits, never stored; wiped when dropped, never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct ApiToken([u8; 32]);

/// A token as administrators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEntry {
    pub id: TokenId,
    pub name: String,
    pub scopes: Scopes,
    /// The login of who made it; none where that account is gone.
    pub made_by: Option<String>,
    pub created_at: Micros,
    /// To within a minute.
    pub last_used_at: Option<Micros>,
    pub expires_at: Option<Micros>,
}

/// What is wanted of a new one.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub scopes: Scopes,
    pub expires_in: Option<Duration>,
}

/// Whom a token that is shown speaks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Bearer {
    pub id: TokenId,
    pub scopes: Scopes,
    expires_at: Option<Micros>,
}

/// Whether a token is good, as far as memory says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    Good(Arc<Bearer>),
    /// It was good a moment ago; the database says whether it is still.
    Stale,
    Unknown,
}

#[derive(Clone)]
pub struct Tokens {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    key: SubKey,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    tokens: HashMap<[u8; 32], Believed>,
    /// How often one was revoked here: what was read before that is not believed after it.
    revoked: u64,
}

struct Believed {
    bearer: Arc<Bearer>,
    asked_at: Micros,
    /// Somebody is asking again.
    asking: bool,
}

impl Tokens {
    /// `key` is what tokens are hashed with: without it, a copy of the table opens nothing.
    pub fn new(db: Db, clock: Clock, entropy: Entropy, key: SubKey) -> Self {
        Self { db, clock, entropy, key, known: Arc::default() }
    }

    /// Makes a token; it is told here and nowhere else. None where there are 100 good ones already.
    pub async fn create(
        &self,
        new: &NewToken,
        by: AccountId,
    ) -> Result<Option<(ApiToken, TokenId)>, DbError> {
        const LIVE: &str = "SELECT COUNT(*) FROM api_tokens
            WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)";
        const INSERT: &str = "INSERT INTO api_tokens (id, name, token_hash, scopes, created_by, created_at,
            expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let (token, id) = (ApiToken(self.entropy.bytes()), TokenId::random(&self.entropy));
        let now = self.clock.now();
        let expires_at = new.expires_in.map(|span| now.plus(span).0);
        // Two that make one at the same time must not both find the last place free.
        let mut tx = self.db.begin_exclusive(Lock::on("tokens")).await?;
        let live: i64 =
            on_tx!(&mut tx, connection => query_scalar(LIVE).bind(now.0).fetch_one(connection).await)?;
        if live >= MOST_TOKENS {
            return Ok(None);
        }
        on_tx!(&mut tx, connection => query(INSERT).bind(id.to_string()).bind(&new.name)
            .bind(text(&self.hash(&token))).bind(new.scopes.to_string()).bind(by.to_string()).bind(now.0)
            .bind(expires_at).execute(connection).await.map(drop))?;
        tx.commit().await?;
        Ok(Some((token, id)))
    }

    /// Those that were not revoked, expired ones too, newest first; at most 200.
    pub async fn list(&self) -> Result<Vec<TokenEntry>, DbError> {
        const SQL: &str = "SELECT t.id, t.name, t.scopes, a.login, t.created_at, t.last_used_at, t.expires_at
            FROM api_tokens t LEFT JOIN accounts a ON a.id = t.created_by WHERE t.revoked_at IS NULL
            ORDER BY t.created_at DESC, t.id LIMIT 200";
        let rows: Vec<EntryRow> = on_db!(&self.db, pool => query_as(SQL).fetch_all(pool).await)?;
        Ok(rows.into_iter().map(EntryRow::parse).collect::<Result<_, _>>()?)
    }

    /// From now on it opens nothing: at once here, on other instances within a second. False where there is
    /// no such token, or it was revoked before.
    pub async fn revoke(&self, id: TokenId, by: AccountId) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE api_tokens SET revoked_at = $1, revoked_by = $2
            WHERE id = $3 AND revoked_at IS NULL";
        let now = self.clock.now().0;
        let revoked = on_db!(&self.db, pool => query(SQL).bind(now).bind(by.to_string()).bind(id.to_string())
            .execute(pool).await.map(|done| done.rows_affected()))?;
        let mut known = self.known();
        known.revoked += 1;
        known.tokens.retain(|_, believed| believed.bearer.id != id);
        Ok(revoked > 0)
    }

    /// What is known of a token without asking the database.
    pub fn look(&self, token: &ApiToken) -> Look {
        let (now, hash) = (self.clock.now(), self.hash(token));
        let mut known = self.known();
        let Some(believed) = known.tokens.get_mut(&hash) else { return Look::Unknown };
        let age = now.since(believed.asked_at);
        // A clock that was put back says nothing of how old it is.
        if now < believed.asked_at || age >= BELIEVED || (age >= FRESH && !believed.asking) {
            believed.asking = true;
            return Look::Stale;
        }
        if believed.bearer.is_over(now) { Look::Stale } else { Look::Good(Arc::clone(&believed.bearer)) }
    }

    /// Asks the database: one read by an index, and a write a minute for a token in use.
    pub async fn find(&self, token: &ApiToken) -> Result<Option<Arc<Bearer>>, DbError> {
        const SQL: &str = "SELECT id, scopes, last_used_at, expires_at FROM api_tokens
            WHERE token_hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)";
        let (now, hash) = (self.clock.now(), self.hash(token));
        let revoked = self.known().revoked;
        let row: Option<BearerRow> = on_db!(&self.db, pool => query_as(SQL).bind(text(&hash)).bind(now.0)
            .fetch_optional(pool).await)?;
        let Some(row) = row else {
            self.known().tokens.remove(&hash);
            return Ok(None);
        };
        let last_used_at = row.last_used_at.map(Micros);
        let bearer = Arc::new(row.parse()?);
        if last_used_at.is_none_or(|at| now.since(at) >= TOUCH_EVERY) {
            self.touch(bearer.id, now).await;
        }
        let mut known = self.known();
        if known.revoked == revoked {
            known.learn(hash, &bearer, now);
        }
        Ok(Some(bearer))
    }

    /// Nobody is refused because it cannot be written down.
    async fn touch(&self, id: TokenId, now: Micros) {
        const SQL: &str = "UPDATE api_tokens SET last_used_at = $1
            WHERE id = $2 AND (last_used_at IS NULL OR last_used_at < $1)";
        let touched: Result<(), sqlx::Error> = on_db!(&self.db, pool => query(SQL).bind(now.0)
            .bind(id.to_string()).execute(pool).await.map(drop));
        if let Err(error) = touched {
            tracing::warn!(%error, "it could not be written that a token is in use");
        }
    }

    fn hash(&self, token: &ApiToken) -> [u8; 32] {
        self.key.hash(&[&token.0])
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn learn(&mut self, hash: [u8; 32], bearer: &Arc<Bearer>, asked_at: Micros) {
        if self.tokens.len() >= KNOWN {
            self.tokens.clear();
        }
        let believed = Believed { bearer: Arc::clone(bearer), asked_at, asking: false };
        self.tokens.insert(hash, believed);
    }
}

impl Bearer {
    fn is_over(&self, now: Micros) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

impl ApiToken {
    /// From an `Authorization` field; None where it cannot be one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let text = text.strip_prefix(MARK).filter(|text| text.len() == 43)?;
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        (length == bytes.len()).then_some(Self(bytes))
    }

    /// `ght_` and 43 characters of base64url. For who made it, once, and nothing else.
    pub fn expose(&self) -> String {
        format!("{MARK}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiToken(…)")
    }
}

fn text(hash: &[u8; 32]) -> String {
    URL_SAFE_NO_PAD.encode(hash)
}

#[derive(sqlx::FromRow)]
struct EntryRow {
    id: String,
    name: String,
    scopes: String,
    login: Option<String>,
    created_at: i64,
    last_used_at: Option<i64>,
    expires_at: Option<i64>,
}

#[derive(sqlx::FromRow)]
struct BearerRow {
    id: String,
    scopes: String,
    last_used_at: Option<i64>,
    expires_at: Option<i64>,
}

impl EntryRow {
    fn parse(self) -> Result<TokenEntry, sqlx::Error> {
        Ok(TokenEntry {
            id: id::stored(TokenId::parse(&self.id))?,
            name: self.name,
            scopes: stored_scopes(&self.scopes)?,
            made_by: self.login,
            created_at: Micros(self.created_at),
            last_used_at: self.last_used_at.map(Micros),
            expires_at: self.expires_at.map(Micros),
        })
    }
}

impl BearerRow {
    fn parse(self) -> Result<Bearer, sqlx::Error> {
        Ok(Bearer {
            id: id::stored(TokenId::parse(&self.id))?,
            scopes: stored_scopes(&self.scopes)?,
            expires_at: self.expires_at.map(Micros),
        })
    }
}

fn stored_scopes(text: &str) -> Result<Scopes, sqlx::Error> {
    Scopes::parse(text.split(' ')).map_err(|_| sqlx::Error::Decode("the scopes of a token are none".into()))
}

#[cfg(test)]
mod tests;
