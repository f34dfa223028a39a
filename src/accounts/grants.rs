//! What clients of OpenID Connect were let have. Each grant belongs to a session here and ends with it. A code begins it,
//! refresh tokens carry it on: the next one is a keyed hash of the grant's seed and its generation, so that a client whose
//! answer was lost gets the same one again, and nobody gets a second line of them.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gatehouse_limiter::Refusal;
use gatehouse_limiter::window::{self, GatheredVerdict, TimesLog};
use serde::Serialize;
use sha2::{Digest, Sha256};
use sqlx::{Row, query, query_as, query_scalar};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::app_sessions::visitor_sql;
use super::factor_policy::{FactorState, begin_grace};
use super::sessions::{RANDOM, TOUCH_EVERY, hash_text, token_tag};
use super::{AccountId, AppVisitor, GrantId, SessionId, SessionSettings, SessionToken};
use crate::clock::{Clock, Micros, as_time_if};
use crate::config::{FactorSettings, LiveHandle, OidcSettings};
use crate::db::{Db, DbError, DbLock, Tx, execute, from_row, on_db, on_tx};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::SubKey;

/// From the authorization to the client is one redirect, and one request of its server.
const CODE_LASTS: Duration = Duration::from_secs(60);
/// A used code is known for so long after it, so that its second use ends what it began.
const CODE_KNOWN: Duration = Duration::from_secs(24 * 60 * 60);
/// The most grants of one client in one session; of more, the newest are kept.
const MOST_GRANTS: i64 = 20;
/// After a rotation, a client that did not get the answer may ask again.
const REPEATS_FREELY: Duration = Duration::from_secs(60);
/// Generations of a day whose token came more than once. A thief who refreshes in step has it so in each.
const REPEATED_GENERATIONS: i64 = 24;
/// The most access tokens of one grant; of more, those that expire last are kept.
const MOST_ACCESS_TOKENS: i64 = 100;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What a client is to have, of somebody who is signed in.
#[derive(Debug, Clone, Copy)]
pub struct NewGrant<'a> {
    pub client: &'a str,
    pub session: SessionId,
    pub scope: &'a str,
    /// What was proved, as the client is told, and when.
    pub methods: &'a str,
    pub auth_time: Micros,
    pub redirect_uri: &'a str,
    /// The challenge of PKCE; empty without PKCE.
    pub challenge: &'a str,
    pub nonce: Option<&'a str>,
}

/// A grant that holds, and whose it is now.
#[derive(Debug, Clone)]
pub struct GrantHolder {
    pub grant: GrantId,
    pub client: String,
    pub scope: String,
    pub methods: String,
    pub auth_time: Micros,
    /// The account, as the gate sees it.
    pub visitor: AppVisitor,
}

/// What a client gets for a code or a refresh token.
pub struct IssuedTokens {
    pub holder: GrantHolder,
    pub access: SessionToken,
    pub refresh: Zeroizing<String>,
    /// The nonce of the request that the code answers.
    pub nonce: Option<String>,
    /// For a refresh token that has come before, and not just now.
    pub is_late_repeat: bool,
    /// What `oidc-repeat` would have refused, but for monitor mode.
    pub noted: Option<Refusal>,
}

/// Why it gets nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantRefusal {
    /// It was never given out.
    Unknown,
    /// It belongs to another client, is used up, expired, revoked, or its session has ended.
    Invalid,
    /// A token or code came twice, in a way in which only a copy does: its grant has ended. By `oidc-repeat`, if
    /// that says so.
    Copied(AccountId, Option<Refusal>),
    /// Its account may not use the client any more, or has to prove more.
    NotAdmitted,
}

/// A client that has something of an account: grants that hold, or what its owner has agreed to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AccountApp)]
pub struct GrantedClient {
    #[serde(rename = "client_id")]
    pub client: String,
    /// What it may be told.
    #[schema(example = "openid profile")]
    pub scope: String,
    /// When it last got tokens. Left out if no grant holds.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_time_if")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub used_at: Option<Micros>,
    /// Left out if its owner was not asked.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_time_if")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub agreed_at: Option<Micros>,
}

pub type Issued = Result<IssuedTokens, GrantRefusal>;

#[derive(Clone)]
pub struct Grants {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    key: SubKey,
    settings: OidcSettings,
    session: SessionSettings,
    live: LiveHandle,
}

/// A refresh token: the grant, its generation, and the hash that shows that we gave it out.
struct RefreshToken {
    grant: GrantId,
    generation: i64,
    hash: [u8; 32],
}

const GENERATION_AT: usize = 16;
const HASH_AT: usize = GENERATION_AT + 8;

impl RefreshToken {
    fn parse(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).ok()?);
        let bytes: &[u8; HASH_AT + 32] = bytes.as_slice().try_into().ok()?;
        Some(Self {
            grant: GrantId::from(*bytes.first_chunk()?),
            generation: i64::from_be_bytes(bytes[GENERATION_AT..HASH_AT].try_into().ok()?),
            hash: *bytes.last_chunk()?,
        })
    }
}

impl Grants {
    pub fn new(
        foundation: &Foundation,
        (settings, session): (OidcSettings, SessionSettings),
        live: LiveHandle,
    ) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        Self { db, clock, entropy, key: secrets.derive("oidc.token"), settings, session, live }
    }

    pub const fn access_lasts(&self) -> Duration {
        self.settings.access_token_ttl
    }

    /// A code for the client. None if the session has ended.
    pub async fn begin(&self, new: NewGrant<'_>) -> Result<Option<SessionToken>, DbError> {
        const GRANT: &str =
            "INSERT INTO oidc_grants (id, client, account, session, scope, methods, auth_time, seed,
            generation, rotated_at) SELECT $1, $2, account, id, $4, $5, $6, $7, 0, $8 FROM sessions
            WHERE id = $3 AND idle_until > $8";
        const CODE: &str =
            "INSERT INTO oidc_codes (code_hash, grant_id, redirect_uri, challenge, nonce, expires_at)
            VALUES ($1, $2, $3, $4, $5, $6)";
        // Grants that no client fetched go first: a page that asks for codes in a row ends nothing that is in use.
        const END: &str = "DELETE FROM oidc_grants WHERE session = $1 AND client = $2 AND id <> $4 AND id NOT IN (
            SELECT id FROM oidc_grants WHERE session = $1 AND client = $2 AND id <> $4 ORDER BY CASE WHEN EXISTS (SELECT 1
            FROM oidc_codes WHERE grant_id = id AND used_at IS NULL) THEN 1 ELSE 0 END, rotated_at DESC, id LIMIT $3)";
        let (code, grant) = (
            SessionToken::tagged(&self.entropy, &self.key, b"code"),
            GrantId::random(&self.entropy).to_string(),
        );
        let (session, seed) = (new.session.to_string(), URL_SAFE_NO_PAD.encode(self.entropy.bytes::<32>()));
        let mut tx = self.db.begin().await?;
        let now = tx.now(&self.clock).await?;
        let begun = execute!(in &mut tx => query(GRANT).bind(&grant).bind(new.client).bind(&session)
            .bind(new.scope).bind(new.methods).bind(new.auth_time.0).bind(&seed).bind(now.0));
        match begun {
            Ok(0) => return Ok(None),
            // It ended at this moment.
            Err(sqlx::Error::Database(error)) if error.is_foreign_key_violation() => return Ok(None),
            other => other?,
        };
        execute!(in &mut tx => query(CODE).bind(self.hash(b"code", &code)).bind(&grant).bind(new.redirect_uri)
            .bind(new.challenge).bind(new.nonce).bind(now.plus(CODE_LASTS).0))?;
        execute!(in &mut tx => query(END).bind(&session).bind(new.client).bind(MOST_GRANTS - 1).bind(&grant))?;
        tx.commit().await?;
        Ok(Some(code))
    }

    /// Tokens for a code, once. A second use, by who could have been the first, ends what the first began.
    pub async fn exchange(
        &self,
        code: &str,
        (client, redirect_uri): (&str, &str),
        verifier: Option<&str>,
        admits: impl Fn(&GrantHolder) -> bool,
    ) -> Result<Issued, DbError> {
        // First the grant, as wherever one ends: otherwise two could wait for each other.
        const LOCK: &str = "UPDATE oidc_grants SET generation = generation WHERE client = $1
            AND id = (SELECT grant_id FROM oidc_codes WHERE code_hash = $2)";
        const TAKE: &str = "UPDATE oidc_codes SET used_at = $1 WHERE code_hash = $2 AND used_at IS NULL
            AND expires_at > $1 AND redirect_uri = $3 AND challenge = $4
            AND EXISTS (SELECT 1 FROM oidc_grants WHERE id = grant_id AND client = $5 AND revoked_at IS NULL)
            RETURNING grant_id, nonce";
        const REUSED: &str = "UPDATE oidc_grants SET revoked_at = $1 WHERE client = $5 AND revoked_at IS NULL
            AND id = (SELECT grant_id FROM oidc_codes WHERE code_hash = $2 AND used_at IS NOT NULL
            AND redirect_uri = $3 AND challenge = $4) RETURNING account";
        let challenge =
            verifier.map_or_else(String::new, |text| URL_SAFE_NO_PAD.encode(Sha256::digest(text)));
        let Some(code) = self.given(b"code", code) else { return Ok(Err(GrantRefusal::Unknown)) };
        let hash = self.hash(b"code", &code);
        let mut tx = self.db.begin_exclusive(DbLock::grant(hash.as_bytes())).await?;
        let now = tx.now(&self.clock).await?;
        execute!(in &mut tx => query(LOCK).bind(client).bind(&hash))?;
        let taken: Option<(GrantId, Option<String>)> = on_tx!(&mut tx, connection => query_as(TAKE).bind(now.0)
            .bind(&hash).bind(redirect_uri).bind(&challenge).bind(client).fetch_optional(connection).await)?;
        let Some((grant, nonce)) = taken else {
            drop(tx);
            let copied: Option<AccountId> = on_db!(&self.db, pool => query_scalar(REUSED).bind(now.0).bind(&hash)
                .bind(redirect_uri).bind(&challenge).bind(client).fetch_optional(pool).await)?;
            return Ok(Err(
                copied.map_or(GrantRefusal::Invalid, |account| GrantRefusal::Copied(account, None))
            ));
        };
        let issued = self.issue(&mut tx, (grant, 0), now, admits).await?;
        // The code is used up, whatever follows.
        tx.commit().await?;
        self.touch(&issued, now).await;
        Ok(issued.map(|issued| IssuedTokens { nonce, ..issued }))
    }

    /// The next tokens for a refresh token.
    pub async fn refresh(
        &self,
        token: &str,
        client: &str,
        admits: impl Fn(&GrantHolder) -> bool,
    ) -> Result<Issued, DbError> {
        const READ: &str =
            "SELECT seed, generation, rotated_at FROM oidc_grants WHERE id = $1 AND client = $2
            AND revoked_at IS NULL AND rotated_at > $3";
        // Also where nothing moves: it may have ended meanwhile. The only one of its row: PostgreSQL checks the session of a
        // second one, whose end may wait for this.
        const MOVE: &str =
            "UPDATE oidc_grants SET generation = $1, rotated_at = $2 WHERE id = $3 AND generation = $4
            AND revoked_at IS NULL";
        let Some(RefreshToken { grant, generation, hash }) = self.parse_refresh(token) else {
            return Ok(Err(GrantRefusal::Unknown));
        };
        let mut tx = self.db.begin_exclusive(DbLock::grant(grant.as_bytes())).await?;
        let now = tx.now(&self.clock).await?;
        let alive = now.minus(self.settings.refresh_idle).0;
        let locked: Option<(String, i64, i64)> = on_tx!(&mut tx, connection => query_as(READ).bind(grant.to_string())
            .bind(client).bind(alive).fetch_optional(connection).await)?;
        let Some((seed, due, rotated_at)) = locked else { return Ok(Err(GrantRefusal::Invalid)) };
        if !crate::secret::same(&hash, &self.refresh_hash(grant, generation, &seed)) {
            return Ok(Err(GrantRefusal::Unknown));
        }
        let late = now.since(Micros(rotated_at)) > REPEATS_FREELY;
        let is_repeat = due - generation == 1;
        let rotated_at = match due - generation {
            0 => now.0,
            1 => rotated_at,
            // One from after a backup that was restored: what it was used for is not known here.
            ..0 => return Ok(Err(GrantRefusal::Invalid)),
            _ => return self.end_copied(tx, grant, now, None).await,
        };
        let moved = execute!(in &mut tx => query(MOVE).bind(generation + 1).bind(rotated_at).bind(grant.to_string())
            .bind(due))?;
        if moved == 0 {
            return Ok(Err(GrantRefusal::Invalid));
        }
        let (may, noted) = match is_repeat {
            true => self.repeat(&mut tx, (grant, generation), late, now).await?,
            false => (true, None),
        };
        if !may {
            drop(tx);
            let tx = self.db.begin().await?;
            return self.end_copied(tx, grant, now, noted).await;
        }
        let issued = self.issue(&mut tx, (grant, generation + 1), now, admits).await?;
        if issued.is_ok() {
            tx.commit().await?;
            self.touch(&issued, now).await;
        }
        let is_late_repeat = late && is_repeat;
        Ok(issued.map(|issued| IssuedTokens { is_late_repeat, noted, ..issued }))
    }

    /// Counts the token before the one that is due: whether it may come again, and which rule of `oidc-repeat` says no, or
    /// would.
    async fn repeat(
        &self,
        tx: &mut Tx,
        (grant, generation): (GrantId, i64),
        late: bool,
        now: Micros,
    ) -> Result<(bool, Option<Refusal>), DbError> {
        const TIMES: &str =
            "SELECT at FROM oidc_repeats WHERE grant_id = $1 AND late = 1 ORDER BY at DESC LIMIT $2";
        const FORGET: &str = "DELETE FROM oidc_repeats WHERE grant_id = $1 AND at <= $2";
        // One row a generation, and one each time that was late.
        const COUNT: &str = "INSERT INTO oidc_repeats (grant_id, generation, late, at) SELECT $1, $2, $3, $4
            WHERE $3 = 1 OR NOT EXISTS (SELECT 1 FROM oidc_repeats WHERE grant_id = $1 AND generation = $2)";
        const OF_DAY: &str =
            "SELECT COUNT(DISTINCT generation) FROM oidc_repeats WHERE grant_id = $1 AND at > $2";
        let live = self.live.snapshot();
        let (limit, grant, day) = (&live.limits.oidc_repeat, grant.to_string(), now.minus(DAY));
        let counts = late && !limit.rules().is_empty();
        let mut judged = GatheredVerdict::default();
        execute!(in &mut *tx => query(FORGET).bind(&grant).bind(day.min(window::horizon(limit.rules(), now)).0))?;
        if counts {
            let times: Vec<i64> = on_tx!(&mut *tx, connection => query_scalar(TIMES).bind(&grant)
                .bind(i64::from(limit.capacity())).fetch_all(connection).await)?;
            let times: Vec<_> = times.into_iter().map(Micros).collect();
            judged.add(0, limit, &TimesLog { times: &times, holds: 0 }, now, false);
        }
        if let Some(refusal) = judged.refused() {
            return Ok((false, Some(refusal)));
        }
        // In monitor mode, too, there are no more rows than the rules count.
        let late = i64::from(counts && judged.noted().is_none());
        execute!(in &mut *tx => query(COUNT).bind(&grant).bind(generation).bind(late).bind(now.0))?;
        let generations: i64 = on_tx!(tx, connection => query_scalar(OF_DAY).bind(&grant).bind(day.0).fetch_one(connection).await)?;
        let may = generations <= REPEATED_GENERATIONS;
        Ok((may, judged.noted().filter(|_| may)))
    }

    /// An access token, and the refresh token of this generation, for whose the grant is now.
    async fn issue(
        &self,
        tx: &mut Tx,
        (grant, generation): (GrantId, i64),
        now: Micros,
        admits: impl Fn(&GrantHolder) -> bool,
    ) -> Result<Issued, DbError> {
        const SQL: &str = visitor_sql!(
            "g.id AS grant_id, g.client, g.scope, g.methods AS proved, g.auth_time, g.seed, g.rotated_at AS expires_at, ",
            "oidc_grants g JOIN sessions s ON s.id = g.session",
            "g.id = $1 AND g.revoked_at IS NULL"
        );
        const END: &str =
            "DELETE FROM oidc_access WHERE grant_id = $1 AND token_hash NOT IN (SELECT token_hash
            FROM oidc_access WHERE grant_id = $1 ORDER BY expires_at DESC, token_hash LIMIT $2)";
        const ACCESS: &str = "INSERT INTO oidc_access (token_hash, grant_id, expires_at) VALUES ($1, $2, $3)";
        let policy = self.live.snapshot();
        let found: Option<StoredHolder> = on_tx!(&mut *tx, connection => query_as(SQL).bind(grant.to_string())
            .bind(now.0).bind(policy.factors.required_of()).fetch_optional(connection).await)?;
        let Some(StoredHolder { holder, seed, .. }) =
            found.and_then(|found| found.judged(now, &policy.factors))
        else {
            return Ok(Err(GrantRefusal::Invalid));
        };
        if !admits(&holder) {
            return Ok(Err(GrantRefusal::NotAdmitted));
        }
        let access = SessionToken::tagged(&self.entropy, &self.key, b"access");
        execute!(in &mut *tx => query(ACCESS).bind(self.hash(b"access", &access)).bind(grant.to_string())
            .bind(now.plus(self.settings.access_token_ttl).0))?;
        execute!(in &mut *tx => query(END).bind(grant.to_string()).bind(MOST_ACCESS_TOKENS))?;
        Ok(Ok(IssuedTokens {
            refresh: self.refresh_token(grant, generation, &seed),
            holder,
            access,
            nonce: None,
            is_late_repeat: false,
            noted: None,
        }))
    }

    /// A client that carries a grant on uses the session, as a visit does. Outside the transaction, which has locked the
    /// grant; if it fails, the next use does it.
    async fn touch(&self, issued: &Issued, now: Micros) {
        const SQL: &str = "UPDATE sessions SET last_seen = $1,
            idle_until = CASE WHEN ends_at < $2 THEN ends_at ELSE $2 END WHERE id = $3 AND last_seen <= $4";
        let Ok(IssuedTokens { holder, .. }) = issued else { return };
        if holder.visitor.setup.is_some() {
            let _ = begin_grace(&self.db, holder.visitor.account, now).await;
        }
        let (session, idle_until) = (holder.visitor.session.to_string(), now.plus(self.session.idle));
        // Most of them come soon after another, and a write that changes nothing waits for others, too.
        if holder.visitor.idle_until > idle_until.minus(TOUCH_EVERY) {
            return;
        }
        let before = now.minus(TOUCH_EVERY).0;
        let _ = execute!(&self.db => query(SQL).bind(now.0).bind(idle_until.0).bind(session).bind(before));
    }

    /// Whose access token it is, while it holds, and until when.
    pub async fn holder(&self, access: &str) -> Result<Option<(GrantHolder, Micros)>, DbError> {
        const SQL: &str = visitor_sql!(
            "g.id AS grant_id, g.client, g.scope, g.methods AS proved, g.auth_time, g.seed, t.expires_at, ",
            "oidc_access t JOIN oidc_grants g ON g.id = t.grant_id JOIN sessions s ON s.id = g.session",
            "t.token_hash = $1 AND t.expires_at > $2 AND g.revoked_at IS NULL"
        );
        let Some(access) = self.given(b"access", access) else { return Ok(None) };
        let (now, policy) = (self.clock.now(), self.live.snapshot());
        let found: Option<StoredHolder> = on_db!(&self.db, pool => query_as(SQL).bind(self.hash(b"access", &access))
            .bind(now.0).bind(policy.factors.required_of()).fetch_optional(pool).await)?;
        let found = found.and_then(|found| found.judged(now, &policy.factors));
        Ok(found.map(|found| (found.holder, found.expires_at)))
    }

    /// Ends the grant of a token of this client (RFC 7009). A token of another one ends nothing.
    pub async fn revoke(&self, token: &str, client: &str) -> Result<bool, DbError> {
        const BY_ACCESS: &str =
            "UPDATE oidc_grants SET revoked_at = $1 WHERE client = $2 AND revoked_at IS NULL
            AND id = (SELECT grant_id FROM oidc_access WHERE token_hash = $3)";
        const SEED: &str =
            "SELECT seed FROM oidc_grants WHERE id = $1 AND client = $2 AND revoked_at IS NULL";
        let now = self.clock.now();
        let Some(RefreshToken { grant, generation, hash }) = self.parse_refresh(token) else {
            let Some(access) = self.given(b"access", token) else { return Ok(false) };
            return Ok(execute!(&self.db => query(BY_ACCESS).bind(now.0).bind(client)
                .bind(self.hash(b"access", &access)))?
                > 0);
        };
        let mut tx = self.db.begin().await?;
        let seed: Option<String> = on_tx!(&mut tx, connection => query_scalar(SEED).bind(grant.to_string())
            .bind(client).fetch_optional(connection).await)?;
        let ours =
            seed.is_some_and(|seed| crate::secret::same(&hash, &self.refresh_hash(grant, generation, &seed)));
        let ended = ours && self.end(&mut tx, grant, now).await?.is_some();
        tx.commit().await?;
        Ok(ended)
    }

    /// Whether somebody has agreed to all of a scope before.
    pub async fn has_consented(
        &self,
        account: AccountId,
        client: &str,
        scope: &str,
    ) -> Result<bool, DbError> {
        let agreed = self.agreed(account, client).await?;
        Ok(scope.split(' ').all(|one| agreed.split(' ').any(|known| known == one)))
    }

    /// Besides what they have agreed to before.
    pub async fn consent(&self, account: AccountId, client: &str, scope: &str) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO oidc_consents (account, client, scope, at) VALUES ($1, $2, $3, $4)
            ON CONFLICT (account, client) DO UPDATE SET scope = excluded.scope, at = excluded.at";
        let all = both(&self.agreed(account, client).await?, scope);
        execute!(&self.db => query(SQL).bind(account.to_string()).bind(client).bind(&all).bind(self.clock.now().0))?;
        Ok(())
    }

    /// The clients that have something of an account.
    pub async fn clients(&self, account: AccountId) -> Result<Vec<GrantedClient>, DbError> {
        const SQL: &str = "SELECT client, scope, MAX(rotated_at) AS used_at, CAST(NULL AS BIGINT) AS agreed_at
            FROM oidc_grants WHERE account = $1 AND revoked_at IS NULL AND rotated_at > $2
            AND EXISTS (SELECT 1 FROM sessions WHERE id = session AND idle_until > $3)
            AND NOT EXISTS (SELECT 1 FROM oidc_codes WHERE grant_id = oidc_grants.id AND used_at IS NULL)
            GROUP BY client, scope
            UNION ALL SELECT client, scope, NULL, at FROM oidc_consents WHERE account = $1 ORDER BY client, scope";
        let now = self.clock.now();
        let alive = now.minus(self.settings.refresh_idle).0;
        let found: Vec<GrantedClient> = on_db!(&self.db, pool => query_as(SQL).bind(account.to_string()).bind(alive)
            .bind(now.0).fetch_all(pool).await)?;
        let mut clients: Vec<GrantedClient> = Vec::new();
        for one in found {
            match clients.last_mut().filter(|last| last.client == one.client) {
                Some(last) => {
                    last.scope = both(&last.scope, &one.scope);
                    last.used_at = last.used_at.max(one.used_at);
                    last.agreed_at = last.agreed_at.max(one.agreed_at);
                }
                None => clients.push(one),
            }
        }
        Ok(clients)
    }

    /// Ends all that a client has of an account, and forgets what was agreed to; the client is told as of the end of a
    /// session. False if there was nothing. Each row is locked by itself: with two of them, this and the end of a session
    /// could wait for each other.
    pub async fn forget_client(&self, account: AccountId, client: &str) -> Result<bool, DbError> {
        const CONSENT: &str = "DELETE FROM oidc_consents WHERE account = $1 AND client = $2";
        const TELL: &str = "INSERT INTO oidc_logouts (session, client, account) VALUES ($1, $2, $3)
            ON CONFLICT (session, client) DO NOTHING";
        const GRANTS: &str =
            "SELECT id, session FROM oidc_grants WHERE account = $1 AND client = $2 AND revoked_at IS NULL";
        // No client has such an id, and PostgreSQL stores no such text.
        if client.contains('\0') {
            return Ok(false);
        }
        let (id, now) = (account.to_string(), self.clock.now());
        let mut ended = execute!(&self.db => query(CONSENT).bind(&id).bind(client))? > 0;
        let grants: Vec<(GrantId, String)> =
            on_db!(&self.db, pool => query_as(GRANTS).bind(&id).bind(client).fetch_all(pool).await)?;
        for (grant, session) in grants {
            let mut tx = self.db.begin().await?;
            ended |= self.end(&mut tx, grant, now).await?.is_some();
            tx.commit().await?;
            execute!(&self.db => query(TELL).bind(session).bind(client).bind(&id))?;
        }
        Ok(ended)
    }

    async fn agreed(&self, account: AccountId, client: &str) -> Result<String, DbError> {
        const SQL: &str = "SELECT scope FROM oidc_consents WHERE account = $1 AND client = $2";
        let agreed: Option<String> = on_db!(&self.db, pool => query_scalar(SQL).bind(account.to_string()).bind(client)
            .fetch_optional(pool).await)?;
        Ok(agreed.unwrap_or_default())
    }

    /// Deletes what has expired, a few at a time; returns how many of the largest kind. Grants that were fetched go with
    /// their sessions, so that their clients are told of the end of those.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        const ACCESS: &str = "DELETE FROM oidc_access WHERE token_hash IN (SELECT token_hash FROM oidc_access
            WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
        const UNFETCHED: &str = "DELETE FROM oidc_grants WHERE id IN (SELECT grant_id FROM oidc_codes
            WHERE used_at IS NULL AND expires_at <= $1 ORDER BY expires_at LIMIT $2)";
        const CODES: &str = "DELETE FROM oidc_codes WHERE code_hash IN (SELECT code_hash FROM oidc_codes
            WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
        let now = self.db.now(&self.clock).await?;
        let mut most = 0;
        for (sql, before) in [(ACCESS, now), (UNFETCHED, now), (CODES, now.minus(CODE_KNOWN))] {
            most = most.max(execute!(&self.db => query(sql).bind(before.0).bind(i64::from(batch)))?);
        }
        Ok(most)
    }

    async fn end_copied(
        &self,
        mut tx: Tx,
        grant: GrantId,
        now: Micros,
        refusal: Option<Refusal>,
    ) -> Result<Issued, DbError> {
        let account = self.end(&mut tx, grant, now).await?;
        tx.commit().await?;
        Ok(Err(account.map_or(GrantRefusal::Invalid, |account| GrantRefusal::Copied(account, refusal))))
    }

    async fn end(&self, tx: &mut Tx, grant: GrantId, now: Micros) -> Result<Option<AccountId>, DbError> {
        const SQL: &str =
            "UPDATE oidc_grants SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL RETURNING account";
        Ok(
            on_tx!(tx, connection => query_scalar(SQL).bind(now.0).bind(grant.to_string()).fetch_optional(connection)
            .await)?,
        )
    }

    /// Whether a refresh token or an access token was given out once, by us. Asks no database.
    pub fn gave_out(&self, token: &str) -> bool {
        self.parse_refresh(token).is_some() || self.given(b"access", token).is_some()
    }

    /// Parses a code or an access token; None if it was never given out.
    fn given(&self, kind: &[u8], text: &str) -> Option<SessionToken> {
        SessionToken::parse(text).filter(|token| token.is_tagged(&self.key, kind))
    }

    /// Parses a refresh token; None if it was never given out.
    fn parse_refresh(&self, text: &str) -> Option<RefreshToken> {
        let token = RefreshToken::parse(text)?;
        crate::secret::same(&token.hash[RANDOM..], &self.refresh_tag(token.grant, token.generation))
            .then_some(token)
    }

    fn refresh_tag(&self, grant: GrantId, generation: i64) -> [u8; 32 - RANDOM] {
        token_tag(&self.key, b"refresh", &[&grant.as_bytes()[..], &generation.to_be_bytes()].concat())
    }

    fn hash(&self, kind: &[u8], token: &SessionToken) -> String {
        hash_text(self.key.hash(&[kind, token.bytes()]))
    }

    fn refresh_hash(&self, grant: GrantId, generation: i64, seed: &str) -> [u8; 32] {
        let mut hash =
            self.key.hash(&[b"refresh", grant.as_bytes(), &generation.to_be_bytes(), seed.as_bytes()]);
        hash[RANDOM..].copy_from_slice(&self.refresh_tag(grant, generation));
        hash
    }

    fn refresh_token(&self, grant: GrantId, generation: i64, seed: &str) -> Zeroizing<String> {
        let hash = self.refresh_hash(grant, generation, seed);
        let bytes = Zeroizing::new([&grant.as_bytes()[..], &generation.to_be_bytes(), &hash].concat());
        Zeroizing::new(URL_SAFE_NO_PAD.encode(&*bytes))
    }
}

/// Scopes together.
fn both(known: &str, more: &str) -> String {
    let mut all: Vec<&str> = known.split_whitespace().collect();
    all.extend(more.split_whitespace().filter(|one| !known.split(' ').any(|known| known == *one)));
    all.join(" ")
}

from_row!(GrantedClient, row => GrantedClient {
    client: row.try_get("client")?,
    scope: row.try_get("scope")?,
    used_at: row.try_get::<Option<i64>, _>("used_at")?.map(Micros),
    agreed_at: row.try_get::<Option<i64>, _>("agreed_at")?.map(Micros),
});

struct StoredHolder {
    holder: GrantHolder,
    seed: String,
    /// When the access token expires by which it was found.
    expires_at: Micros,
    factors: FactorState,
}

impl StoredHolder {
    /// Applies `[factors]`. Returns None if the session began by a passkey that is gone.
    fn judged(mut self, now: Micros, settings: &FactorSettings) -> Option<Self> {
        self.holder.visitor.setup = self.factors.due(now, settings);
        (!self.holder.visitor.proved.is_void()).then_some(self)
    }
}

from_row!(StoredHolder, row => StoredHolder {
    holder: GrantHolder {
        grant: row.try_get("grant_id")?,
        client: row.try_get("client")?,
        scope: row.try_get("scope")?,
        methods: row.try_get("proved")?,
        auth_time: Micros(row.try_get("auth_time")?),
        visitor: AppVisitor::from_row(row)?,
    },
    seed: row.try_get("seed")?,
    expires_at: Micros(row.try_get("expires_at")?),
    factors: FactorState::from_row(row)?,
});
