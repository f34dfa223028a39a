//! Tokens of other programs, which they send instead of a session when they use custom limits.
//!
//! There are at most a hundred, so each instance keeps all of them in memory, and an invalid token costs a
//! look-up there. Because it may have been created elsewhere a moment ago, it also waits for the next read of
//! all tokens, which is shared by all who wait.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use sqlx::{Row, query, query_as, query_scalar};
use strum::{EnumString, IntoStaticStr, VariantArray};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::realm::Realm;
use super::sessions::hash_text;
use super::{AccountId, SessionToken};
use crate::clock::{Clock, Micros, as_time, as_time_if};
use crate::config::{is_custom_name, nearest};
use crate::db::{Db, DbError, DbLock, execute, from_row, on_db, on_tx, random_id, text_column};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::{SubKey, hidden_debug};

/// The start of every token, so that one in a log or a repository is recognised.
const MARK: &str = "ght_";
/// The most that are valid at one time.
pub const MOST_TOKENS: i64 = 100;
/// How long a token is accepted without asking the database. This instance learns that much later that
/// another one revoked it.
const BELIEVED: Duration = Duration::from_millis(900);
/// When the known tokens are older than this, one caller reads them again while the others continue.
const FRESH: Duration = Duration::from_millis(500);
/// How often the use of a token is recorded.
const TOUCH_EVERY: Duration = Duration::from_secs(60);
/// Between two reads of all tokens: at most 50 a second, however many unknown tokens are sent. A read takes a
/// fifth of a millisecond, and the first use of a token waits at most this long for it.
const PACE: Duration = Duration::from_millis(20);
const UNREAD: &str = "the tokens could not be read";

random_id! {
    /// A token's id, for listing and revoking it. It opens nothing: the token does.
    TokenId
}

/// A program's token: as random as a session's, and as secret.
#[derive(Clone)]
pub struct ApiToken(SessionToken);

// A token as administrators see it, and as it is in the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Token)]
pub struct TokenEntry {
    #[schema(value_type = String)]
    pub id: TokenId,
    pub name: String,
    /// The scopes with which the token was created.
    #[serde(serialize_with = "as_names")]
    #[schema(value_type = Vec<String>)]
    pub scopes: TokenScopes,
    /// The login of its administrator; left out if that account is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Micros,
    /// To within a minute.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_time_if")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<Micros>,
    /// For which call, then: its method, and its path as in this document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_for: Option<String>,
    /// From which network: a /24 of IPv4, or a /48 of IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_time_if")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Micros>,
}

fn as_names<S: Serializer>(scopes: &TokenScopes, serializer: S) -> Result<S::Ok, S::Error> {
    scopes.names().serialize(serializer)
}

#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub scopes: TokenScopes,
    pub expires_in: Option<Duration>,
}

/// One use of a token, as [`TokenEntry`] shows the last.
pub struct TokenUse {
    pub call: String,
    pub network: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct TokenBearer {
    pub id: TokenId,
    pub name: String,
    pub scopes: TokenScopes,
    pub made_by: AccountId,
    expires_at: Option<Micros>,
}

#[derive(Clone)]
pub struct ApiTokens {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    key: SubKey,
    known: Arc<Mutex<KnownTokens>>,
    reads: Arc<TokenReads>,
}

/// All valid tokens, as of the last read of the database.
#[derive(Default)]
struct KnownTokens {
    /// Tokens, by the text of the hash that is stored.
    tokens: HashMap<String, KnownToken>,
    asked_at: Option<Micros>,
    asking: bool,
    /// How often a token was revoked here; a read from before the last revocation is not used.
    revoked: u64,
}

struct KnownToken {
    hash: String,
    bearer: Arc<TokenBearer>,
    touched_at: Option<Micros>,
}

/// One read at a time, shared by all who wait for one.
#[derive(Default)]
struct TokenReads {
    begun: AtomicU64,
    last: tokio::sync::Mutex<LastRead>,
}

#[derive(Default)]
struct LastRead {
    number: u64,
    at: Option<Instant>,
    failed: bool,
}

impl ApiTokens {
    /// Tokens are hashed under a key: without it, a copy of the table opens nothing.
    pub fn new(foundation: &Foundation) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        let key = secrets.derive("api.token");
        Self { db, clock, entropy, key, known: Arc::default(), reads: Arc::default() }
    }

    /// Creates a token, which is returned only here. None if there are 100 valid ones already.
    pub async fn create(
        &self,
        new: &NewToken,
        by: AccountId,
    ) -> Result<Option<(ApiToken, TokenId)>, DbError> {
        const LIVE: &str = "SELECT COUNT(*) FROM api_tokens
            WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)";
        const INSERT: &str = "INSERT INTO api_tokens (id, name, token_hash, scopes, created_by, created_at,
            expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let (token, id) = (ApiToken(SessionToken::random(&self.entropy)), TokenId::random(&self.entropy));
        let now = self.clock.now();
        let expires_at = new.expires_in.map(|span| now.plus(span).0);
        // Two simultaneous requests must not both find the last place free.
        let mut tx = self.db.begin_exclusive(DbLock::on("tokens")).await?;
        let live: i64 =
            on_tx!(&mut tx, connection => query_scalar(LIVE).bind(now.0).fetch_one(connection).await)?;
        if live >= MOST_TOKENS {
            return Ok(None);
        }
        execute!(in &mut tx => query(INSERT).bind(id.to_string()).bind(&new.name)
            .bind(self.hash(&token)).bind(new.scopes.to_string()).bind(by.to_string()).bind(now.0)
            .bind(expires_at))?;
        tx.commit().await?;
        Ok(Some((token, id)))
    }

    /// The tokens that were not revoked, newest first: all that are valid, and the 100 that expired last.
    pub async fn list(&self) -> Result<Vec<TokenEntry>, DbError> {
        const SQL: &str =
            "SELECT t.id, t.name, t.scopes, a.login, t.created_at, t.last_used_at, t.last_used_for,
            t.last_used_from, t.expires_at FROM api_tokens t LEFT JOIN accounts a ON a.id = t.created_by
            WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $1 OR t.id IN (
                SELECT id FROM api_tokens WHERE revoked_at IS NULL AND expires_at <= $1
                ORDER BY expires_at DESC, id LIMIT 100))
            ORDER BY t.created_at DESC, t.id";
        let now = self.clock.now().0;
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(now).fetch_all(pool).await)?)
    }

    /// Revokes a token: at once here, within a second on other instances. Returns its name; None if there is no such
    /// token or it was revoked before.
    pub async fn revoke(&self, id: TokenId, by: AccountId) -> Result<Option<String>, DbError> {
        const SQL: &str = "UPDATE api_tokens SET revoked_at = $1, revoked_by = $2
            WHERE id = $3 AND revoked_at IS NULL RETURNING name";
        let now = self.clock.now().0;
        let revoked = on_db!(&self.db, pool => query_scalar(SQL).bind(now).bind(by.to_string()).bind(id.to_string())
            .fetch_optional(pool).await)?;
        let mut known = self.known.lock();
        known.revoked += 1;
        known.tokens.retain(|_, believed| believed.bearer.id != id);
        Ok(revoked)
    }

    /// The token's data, if it is valid. What it is used for is recorded.
    pub async fn admit(
        &self,
        token: &ApiToken,
        used: impl FnOnce() -> TokenUse,
    ) -> Result<Option<Arc<TokenBearer>>, DbError> {
        let hash = self.hash(token);
        let bearer = match self.known_bearer(&hash) {
            Some(bearer) => Some(bearer),
            None => {
                self.read_anew().await?;
                self.known.lock().good(&hash, self.clock.now())
            }
        };
        if let Some(bearer) = &bearer {
            self.touch(&hash, bearer.id, used).await;
        }
        Ok(bearer)
    }

    /// What is known about a token without asking the database. None if it is unknown or the data is old.
    fn known_bearer(&self, hash: &str) -> Option<Arc<TokenBearer>> {
        let (now, mut known) = (self.clock.now(), self.known.lock());
        // After a clock was put back, the age is unknown.
        let age = known.asked_at.filter(|asked_at| *asked_at <= now).map(|asked_at| now.since(asked_at))?;
        if age >= BELIEVED || (age >= FRESH && !known.asking) {
            known.asking = true;
            return None;
        }
        known.good(hash, now)
    }

    /// Waits for a read of all tokens that began after this call, and starts one if there is none to wait
    /// for: it sees a token that was just created elsewhere, and however many ask, reads run one at a time.
    async fn read_anew(&self) -> Result<(), DbError> {
        let begun = self.reads.begun.load(Ordering::SeqCst);
        let mut last = self.reads.last.lock().await;
        if last.number > begun {
            return if last.failed { Err(sqlx::Error::Protocol(UNREAD.into()).into()) } else { Ok(()) };
        }
        if let Some(at) = last.at {
            tokio::time::sleep_until(at + PACE).await;
        }
        last.at = Some(Instant::now());
        // Not stored in `last` yet: the reader may be dropped before it is done.
        let number = self.reads.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let read = self.read().await;
        (last.number, last.failed) = (number, read.is_err());
        read
    }

    async fn read(&self) -> Result<(), DbError> {
        const SQL: &str = "SELECT id, name, token_hash, scopes, created_by, last_used_at, expires_at
            FROM api_tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)";
        loop {
            let (now, revoked) = (self.clock.now(), self.known.lock().revoked);
            let tokens: Vec<KnownToken> =
                on_db!(&self.db, pool => query_as(SQL).bind(now.0).fetch_all(pool).await)?;
            let mut known = self.known.lock();
            if known.revoked == revoked {
                known.learn(tokens, now);
                return Ok(());
            }
        }
    }

    /// Records once a minute that it is in use, and what for. A failure to record this refuses nobody.
    async fn touch(&self, hash: &str, id: TokenId, used: impl FnOnce() -> TokenUse) {
        const SQL: &str = "UPDATE api_tokens SET last_used_at = $1, last_used_for = $3, last_used_from = $4
            WHERE id = $2 AND (last_used_at IS NULL OR last_used_at < $1)";
        let now = self.clock.now();
        if !self.known.lock().takes_touch(hash, now) {
            return;
        }
        let TokenUse { call, network } = used();
        let touched: Result<u64, sqlx::Error> = execute!(&self.db => query(SQL).bind(now.0)
            .bind(id.to_string()).bind(call).bind(network));
        if let Err(error) = touched {
            tracing::warn!(%error, "the last use of a token could not be recorded");
        }
    }

    fn hash(&self, token: &ApiToken) -> String {
        hash_text(self.key.hash(&[token.0.bytes()]))
    }
}

impl KnownTokens {
    fn learn(&mut self, mut tokens: Vec<KnownToken>, asked_at: Micros) {
        for believed in &mut tokens {
            // A use that was recorded here may be newer than what was read.
            let touched_at = self.tokens.get(&believed.hash).and_then(|before| before.touched_at);
            believed.touched_at = believed.touched_at.max(touched_at);
        }
        self.tokens = tokens.into_iter().map(|token| (token.hash.clone(), token)).collect();
        (self.asked_at, self.asking) = (Some(asked_at), false);
    }

    fn good(&self, hash: &str, now: Micros) -> Option<Arc<TokenBearer>> {
        let believed = self.tokens.get(hash)?;
        (!believed.bearer.is_over(now)).then(|| Arc::clone(&believed.bearer))
    }

    fn takes_touch(&mut self, hash: &str, now: Micros) -> bool {
        let Some(believed) = self.tokens.get_mut(hash) else { return false };
        let is_due = believed.touched_at.is_none_or(|at| now.since(at) >= TOUCH_EVERY);
        if is_due {
            believed.touched_at = Some(now);
        }
        is_due
    }
}

impl TokenBearer {
    fn is_over(&self, now: Micros) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

impl ApiToken {
    /// From an `Authorization` header; None if it cannot be one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        SessionToken::parse(text.strip_prefix(MARK)?).map(Self)
    }

    /// `ght_` and 43 characters of base64url. Only for its creator, once.
    pub fn expose(&self) -> String {
        format!("{MARK}{}", self.0.expose())
    }
}

hidden_debug!(ApiToken);

from_row!(TokenEntry, row => TokenEntry {
    id: row.try_get("id")?,
    name: row.try_get("name")?,
    scopes: row.try_get("scopes")?,
    made_by: row.try_get("login")?,
    created_at: Micros(row.try_get("created_at")?),
    last_used_at: row.try_get::<Option<i64>, _>("last_used_at")?.map(Micros),
    last_used_for: row.try_get("last_used_for")?,
    last_used_from: row.try_get("last_used_from")?,
    expires_at: row.try_get::<Option<i64>, _>("expires_at")?.map(Micros),
});

from_row!(KnownToken, row => KnownToken {
    hash: row.try_get("token_hash")?,
    bearer: Arc::new(TokenBearer {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        scopes: row.try_get("scopes")?,
        made_by: row.try_get("created_by")?,
        expires_at: row.try_get::<Option<i64>, _>("expires_at")?.map(Micros),
    }),
    touched_at: row.try_get::<Option<i64>, _>("last_used_at")?.map(Micros),
});

text_column!(TokenScopes, text => Self::parse(text.split(' '))?);

// What a token is valid for: custom limits, the logins of one realm, and parts of the admin API.

const ALL_CUSTOM: &str = "*";

/// The most names in one token; for more limits, use `*`.
pub const MOST_SCOPES: usize = 64;
/// How much is shown of what was typed, in characters.
const LONGEST_SHOWN: usize = 80;

/// What a program does that the name after a colon is of: `guard:shop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum ProgramScope {
    /// It asks for the logins of a realm.
    Guard,
    /// It has codes sent, and checks them.
    Verify,
    /// An identity provider whose codes are sent.
    Relay,
}

/// A part of the admin API that a program may call without anybody's password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
#[strum(const_into_str)]
pub enum AdminScope {
    /// Limits, their history, what a draft would have done; networks that are refused or exempt; applications.
    #[strum(serialize = "limits:read")]
    LimitsRead,
    #[strum(serialize = "limits:write")]
    LimitsWrite,
    #[strum(serialize = "access:write")]
    AccessWrite,
    /// Save applications, and see whom a draft lets in and keeps out, by name.
    #[strum(serialize = "apps:write")]
    AppsWrite,
    /// Events, messages, brakes, and what limits count of somebody.
    #[strum(serialize = "events:read")]
    EventsRead,
    /// Clear what a limit counts of somebody, and lift a brake.
    #[strum(serialize = "subjects:clear")]
    SubjectsClear,
    #[strum(serialize = "accounts:write")]
    AccountsWrite,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenScopes {
    /// Names of custom limits as in `[limits.custom]`, or `*` alone for all. One may have been removed since.
    custom: BTreeSet<String>,
    /// At most one name of each: a token that speaks for two logins could be used at either, and what a program may
    /// check is its own.
    programs: BTreeMap<ProgramScope, Realm>,
    admin: BTreeSet<AdminScope>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopesError {
    #[error("names nothing")]
    Empty,
    #[error("names more than {MOST_SCOPES} limits")]
    TooMany,
    #[error(
        "contains something that is no name of a custom limit, no guard:, verify: or relay: with a name, and no part of the admin API"
    )]
    NoName,
    /// A scope that does not exist, as typed, and what was probably meant.
    #[error("contains {typed}, which is no scope")]
    Unknown { typed: String, nearest: Option<String> },
    #[error("names more than one after guard:, verify: or relay:")]
    TooManyPrograms,
}

impl TokenScopes {
    /// For a new token, which opens what there is: each name is a scope that exists, with these custom limits.
    pub fn requested(names: &[&str], limits: &[&str]) -> Result<Self, ScopesError> {
        if names.len() > MOST_SCOPES {
            return Err(ScopesError::TooMany);
        }
        let exists = |name: &&str| limits.contains(name) || is_built_in(name);
        match names.iter().position(|name| !exists(name)) {
            Some(at) => Err(unknown(names, at, limits)),
            None => Self::parse(names.iter().copied()),
        }
    }

    /// `*` means all custom limits, and no part of the admin API.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, ScopesError> {
        let mut scopes = Self::default();
        let mut custom = BTreeSet::new();
        for name in names.into_iter().collect::<BTreeSet<_>>() {
            if let Ok(scope) = name.parse() {
                scopes.admin.insert(scope);
            } else if let Some((program, name)) = of_program(name) {
                let name = Realm::parse(name).ok_or(ScopesError::NoName)?;
                if scopes.programs.insert(program, name).is_some() {
                    return Err(ScopesError::TooManyPrograms);
                }
            } else {
                custom.insert(name);
            }
        }
        if custom.len() > MOST_SCOPES {
            return Err(ScopesError::TooMany);
        }
        let all = custom.len() == 1 && custom.contains(ALL_CUSTOM);
        if !all && !custom.iter().all(|name| is_custom_name(name)) {
            return Err(ScopesError::NoName);
        }
        scopes.custom = custom.into_iter().map(str::to_owned).collect();
        if scopes == Self::default() { Err(ScopesError::Empty) } else { Ok(scopes) }
    }

    /// Whether it may take hits on this custom limit.
    pub fn hold(&self, limit: &str) -> bool {
        self.custom.contains(ALL_CUSTOM) || self.custom.contains(limit)
    }

    /// The name for which it may do that.
    pub fn program(&self, scope: ProgramScope) -> Option<&Realm> {
        self.programs.get(&scope)
    }

    /// Whether it may call this part of the admin API.
    pub fn open(&self, scope: AdminScope) -> bool {
        self.admin.contains(&scope)
    }

    /// Such a token has to expire.
    pub fn open_any(&self) -> bool {
        !self.admin.is_empty()
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.custom.iter().cloned().collect();
        names.extend(
            self.programs.iter().map(|(scope, name)| format!("{}:{}", scope.into_str(), name.as_str())),
        );
        names.extend(self.admin.iter().map(|scope| scope.into_str().to_owned()));
        names
    }
}

/// A scope that needs no configuration.
fn is_built_in(name: &str) -> bool {
    name == ALL_CUSTOM
        || AdminScope::from_str(name).is_ok()
        || of_program(name).is_some_and(|(_, name)| Realm::parse(name).is_some())
}

fn of_program(name: &str) -> Option<(ProgramScope, &str)> {
    let (scope, name) = name.split_once(':')?;
    Some((scope.parse().ok()?, name))
}

/// The scope at this place is none. If it is the first half of one that was torn apart (`guard shop`), both are named.
fn unknown(names: &[&str], at: usize, limits: &[&str]) -> ScopesError {
    let next = names.get(at + 1).filter(|_| ProgramScope::from_str(names[at].trim_end_matches(':')).is_ok());
    let typed = next.map_or_else(|| names[at].to_owned(), |next| format!("{} {next}", names[at]));
    let typed: String = typed.chars().take(LONGEST_SHOWN).collect();
    let lower = typed.to_lowercase();
    let after = lower.find(|letter: char| !letter.is_alphanumeric()).map(|at| &lower[at..]);
    let realm = after.map(|rest| rest.trim_matches(|letter: char| !letter.is_alphanumeric()));
    let realm = realm.filter(|realm| Realm::parse(realm).is_some());
    let of_realm =
        |realm| ProgramScope::VARIANTS.iter().map(move |scope| format!("{}:{realm}", scope.into_str()));
    let programs: Vec<String> = realm.into_iter().flat_map(of_realm).collect();
    let admin = AdminScope::VARIANTS.iter().map(|scope| scope.into_str());
    let all = programs.iter().map(String::as_str).chain(limits.iter().copied()).chain(admin);
    let nearest = nearest(&lower, all).map(str::to_owned);
    ScopesError::Unknown { typed, nearest }
}

/// The stored form: separated by spaces.
impl fmt::Display for TokenScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(" "))
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod scopes_tests;
