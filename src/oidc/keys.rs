//! The keys that sign tokens. They are in SQL, sealed under the key file, so that every instance has the same ones, and in
//! memory, where they are used. The next key is published a day before it signs, and the one before it a day after its
//! last token, so that clients may remember what they have read.
//!
//! No key is made before somebody asks for one: most installations have no such application.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use sqlx::{query, query_as};
use tokio::sync::{Notify, oneshot};
use zeroize::Zeroizing;

use super::signature::{self, PrivateKey, PublicKey};
use super::{jws, rsa};
use crate::audit::{Action, Audit, AuditEvent, Outcome};
use crate::clock::{Clock, Micros, iso};
use crate::config::{LiveHandle, OidcClient, OidcSettings, SigningAlgorithm};
use crate::db::{Db, DbError, DbLock, execute, from_row, on_db, on_tx};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::{MasterKey, Seal};

/// How long a key is published before its first token, and after its last: longer than anybody may remember the set. It is
/// beyond any difference between the clocks of two instances.
const OVERLAP: Duration = Duration::from_secs(24 * 60 * 60);
/// Between two reads of the table, if nobody asks for an unknown key.
const READ_EVERY: Duration = Duration::from_secs(10);
/// Between two reads at least: anybody can ask for unknown keys.
const PAUSE: Duration = Duration::from_secs(1);

/// No key signs yet; the first one is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no signing key yet")]
pub struct NotReady;

/// Clones share the keys.
#[derive(Clone)]
pub struct TokenKeys(Arc<TokenKeysInner>);

struct TokenKeysInner {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    audit: Audit,
    seal: Seal,
    settings: OidcSettings,
    /// Whose clients may want another algorithm; none for a command.
    live: Option<LiveHandle>,
    /// The published keys, in the order in which they sign.
    keys: ArcSwap<Vec<Arc<SigningKey>>>,
    /// Somebody asked for a key when there was none.
    wanted: AtomicBool,
    read_now: Notify,
    /// Held over a read and what follows from it.
    turn: tokio::sync::Mutex<()>,
    /// The ids of keys that do not open, which is logged once for each.
    lost: Mutex<HashSet<String>>,
}

struct SigningKey {
    kid: String,
    algorithm: SigningAlgorithm,
    private: PrivateKey,
    public: PublicKey,
    begins_at: Micros,
    ends_at: Option<Micros>,
}

/// A key that has just been made, sealed.
struct NewKey {
    kid: String,
    algorithm: SigningAlgorithm,
    sealed: String,
}

struct KeyRow {
    kid: String,
    algorithm: String,
    private_key: String,
    begins_at: Micros,
    ends_at: Option<Micros>,
}

from_row!(KeyRow, row => {
    use sqlx::Row;
    Self {
        kid: row.try_get("kid")?,
        algorithm: row.try_get("algorithm")?,
        private_key: row.try_get("private_key")?,
        begins_at: Micros(row.try_get("begins_at")?),
        ends_at: row.try_get::<Option<i64>, _>("ends_at")?.map(Micros),
    }
});

const READ: &str = "SELECT kid, algorithm, private_key, begins_at, ends_at FROM oidc_keys ORDER BY begins_at, created_at, kid";

/// A JWK set (RFC 7517, 5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Jwks {
    pub keys: Vec<Jwk>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Jwk {
    pub kid: String,
    pub alg: SigningAlgorithm,
    #[serde(rename = "use")]
    usage: &'static str,
    #[serde(flatten)]
    pub key: PublicKey,
}

/// What became of the keys that were sealed under another key file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ResealedKeys {
    pub sealed: u64,
    /// Under this key file already.
    pub kept: u64,
    /// They open under neither.
    pub lost: u64,
}

impl TokenKeys {
    pub fn new(
        foundation: &Foundation,
        audit: Audit,
        (settings, live): (OidcSettings, Option<LiveHandle>),
    ) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        Self(Arc::new(TokenKeysInner {
            db,
            clock,
            entropy,
            audit,
            seal: seal_of(&secrets),
            settings,
            live,
            keys: ArcSwap::default(),
            wanted: AtomicBool::new(false),
            read_now: Notify::new(),
            turn: tokio::sync::Mutex::default(),
            lost: Mutex::default(),
        }))
    }

    /// Reads the keys that there are, so that an instance signs from its first request on; makes none.
    pub async fn load(&self) -> Result<(), DbError> {
        self.0.keys.store(Arc::new(self.0.open(&self.0.read().await?)));
        Ok(())
    }

    /// The algorithm by which tokens of this client are signed.
    pub fn algorithm_of(&self, client: &OidcClient) -> SigningAlgorithm {
        client.signing.unwrap_or(self.0.settings.signing)
    }

    /// Has the first key made, if there is none: before anybody waits for it.
    pub fn want(&self) {
        if !self.0.wanted.swap(true, Ordering::Relaxed) {
            self.0.read_now.notify_one();
        }
    }

    /// Whether a token could be signed now.
    pub fn is_ready(&self, algorithm: SigningAlgorithm) -> bool {
        let ready = self.0.signer(&self.0.keys.load(), self.0.clock.now(), algorithm).is_some();
        if !ready {
            self.want();
        }
        ready
    }

    /// A token with these claims. `typ` says what it is (RFC 8725, 3.11).
    pub fn sign(
        &self,
        algorithm: SigningAlgorithm,
        claims: &impl Serialize,
        typ: &str,
    ) -> Result<String, NotReady> {
        let keys = self.0.keys.load();
        let Some(key) = self.0.signer(&keys, self.0.clock.now(), algorithm) else {
            self.want();
            return Err(NotReady);
        };
        jws::sign((key.algorithm, &key.kid, &key.private), typ, claims).ok_or(NotReady)
    }

    /// What one of our tokens claims, if a published key has signed it. Whom it is for and whether it has expired is for
    /// the caller to judge.
    pub fn verify<T: DeserializeOwned>(&self, token: &str) -> Option<T> {
        let (keys, now) = (self.0.keys.load(), self.0.clock.now());
        jws::verify(token, |kid| {
            let Some(key) = keys.iter().find(|key| key.kid == kid) else {
                // Another instance may have made it a moment ago.
                self.0.read_now.notify_one();
                return None;
            };
            (!key.has_ended(now)).then_some((key.algorithm, &key.public))
        })
    }

    /// The keys by which others verify our tokens; none until the first one is made.
    pub fn jwks(&self) -> Jwks {
        let (keys, now) = (self.0.keys.load(), self.0.clock.now());
        if self.0.in_use().into_iter().any(|algorithm| self.0.signer(&keys, now, algorithm).is_none()) {
            self.want();
        }
        let published = keys.iter().filter(|key| !key.has_ended(now));
        let jwk = |key: &Arc<SigningKey>| Jwk {
            kid: key.kid.clone(),
            alg: key.algorithm,
            usage: "sig",
            key: key.public.clone(),
        };
        Jwks { keys: published.map(jwk).collect() }
    }

    /// Keeps the keys until it is dropped: whatever it does is done whole or not at all.
    pub async fn run(&self) {
        loop {
            // An outage is reported by the probes; until its end the keys in memory are used.
            let _ = self.follow().await;
            tokio::time::sleep(PAUSE).await;
            let _ = tokio::time::timeout(READ_EVERY - PAUSE, self.0.read_now.notified()).await;
        }
    }

    /// Reads the keys, and makes those that are due.
    pub async fn follow(&self) -> Result<(), DbError> {
        let _turn = self.0.turn.lock().await;
        let now = self.0.db.now(&self.0.clock).await?;
        let rows = self.0.read().await?;
        let keys = self.0.open(&rows);
        let is_used = !rows.is_empty() || self.0.wanted.load(Ordering::Relaxed);
        let mut due = self.0.in_use();
        due.retain(|algorithm| is_used && self.0.due(&keys, now, *algorithm).is_some());
        self.0.keys.store(Arc::new(keys));
        if due.is_empty() {
            return self.0.tidy(&rows, now).await;
        }
        for algorithm in due {
            if let Some(key) = self.0.make(algorithm).await {
                self.0.publish(&key).await?;
                self.0.keys.store(Arc::new(self.0.open(&self.0.read().await?)));
            }
        }
        Ok(())
    }

    /// Deletes keys that have ended, which sign and prove nothing.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str =
            "DELETE FROM oidc_keys WHERE kid IN (SELECT kid FROM oidc_keys WHERE ends_at <= $1 LIMIT $2)";
        let now = self.0.db.now(&self.0.clock).await?;
        Ok(execute!(&self.0.db => query(SQL).bind(now.0).bind(i64::from(batch)))?)
    }

    /// Opens keys under `old` and seals them under the key file of this one.
    pub async fn reseal(&self, old: &MasterKey) -> Result<ResealedKeys, DbError> {
        const SEAL: &str = "UPDATE oidc_keys SET private_key = $1 WHERE kid = $2 AND private_key = $3";
        let (old, mut done) = (seal_of(old), ResealedKeys::default());
        for KeyRow { kid, private_key, .. } in self.0.read().await? {
            let owner = kid.as_bytes();
            if self.0.seal.open(owner, &private_key).is_some() {
                done.kept += 1;
            } else if let Some(secret) = old.open(owner, &private_key) {
                let sealed = self.0.seal.seal(owner, &secret, &self.0.entropy);
                done.sealed +=
                    execute!(&self.0.db => query(SEAL).bind(&sealed).bind(&kid).bind(&private_key))?;
            } else {
                done.lost += 1;
            }
        }
        Ok(done)
    }
}

impl SigningKey {
    fn has_ended(&self, now: Micros) -> bool {
        self.ends_at.is_some_and(|ends_at| ends_at <= now)
    }
}

impl TokenKeysInner {
    /// The algorithms by which tokens are signed, first that of clients that want no other.
    fn in_use(&self) -> Vec<SigningAlgorithm> {
        let live = self.live.as_ref().map(LiveHandle::snapshot);
        let apps = live.iter().flat_map(|live| live.apps.all());
        let mut all = vec![self.settings.signing];
        for algorithm in apps.filter_map(|app| app.oidc.as_ref()?.signing) {
            if !all.contains(&algorithm) {
                all.push(algorithm);
            }
        }
        all
    }

    /// The published keys of an algorithm.
    fn published(
        keys: &[Arc<SigningKey>],
        now: Micros,
        algorithm: SigningAlgorithm,
    ) -> impl DoubleEndedIterator<Item = &Arc<SigningKey>> {
        keys.iter().filter(move |key| key.algorithm == algorithm && !key.has_ended(now))
    }

    fn signer<'k>(
        &self,
        keys: &'k [Arc<SigningKey>],
        now: Micros,
        algorithm: SigningAlgorithm,
    ) -> Option<&'k Arc<SigningKey>> {
        let begun = Self::published(keys, now, algorithm).rfind(|key| key.begins_at <= now);
        // The first one was made by an instance whose clock is ahead.
        begun.or_else(|| Self::published(keys, now, algorithm).next())
    }

    /// When a key has to begin that is not there yet.
    fn due(&self, keys: &[Arc<SigningKey>], now: Micros, algorithm: SigningAlgorithm) -> Option<Micros> {
        let Some(newest) = Self::published(keys, now, algorithm).next_back() else { return Some(now) };
        let next = newest.begins_at.plus(self.settings.key_rotation);
        (next.minus(OVERLAP) <= now).then(|| next.max(now.plus(OVERLAP)))
    }

    async fn read(&self) -> Result<Vec<KeyRow>, DbError> {
        Ok(on_db!(&self.db, pool => query_as(READ).fetch_all(pool).await)?)
    }

    /// Opens the keys that this instance can use.
    fn open(&self, rows: &[KeyRow]) -> Vec<Arc<SigningKey>> {
        let known = self.keys.load();
        let open = |row: &KeyRow| {
            // Another version may know more of them.
            let algorithm: SigningAlgorithm = row.algorithm.parse().ok()?;
            let (kid, begins_at, ends_at) = (row.kid.clone(), row.begins_at, row.ends_at);
            if let Some(key) = known.iter().find(|key| key.kid == kid)
                && (key.begins_at, key.ends_at) == (begins_at, ends_at)
            {
                return Some(Arc::clone(key));
            }
            let secret = self.seal.open(kid.as_bytes(), &row.private_key);
            let Some(private) = secret.and_then(|secret| signature::load(algorithm, &secret)) else {
                self.tell_lost(&kid);
                return None;
            };
            let public = signature::public(&private);
            Some(Arc::new(SigningKey { kid, algorithm, private, public, begins_at, ends_at }))
        };
        rows.iter().filter_map(open).collect()
    }

    fn tell_lost(&self, kid: &str) {
        if self.lost.lock().insert(kid.to_owned()) {
            tracing::error!(
                kid,
                "this signing key was sealed under another secrets.key_file and cannot be opened: another one signs, and tokens of this one are refused; if you have the old key file, run: gatehouse key reseal OLD.key"
            );
        }
    }

    /// On a thread of its own, because RSA takes a second; one that nothing waits for at the end of the process.
    async fn make(&self, algorithm: SigningAlgorithm) -> Option<NewKey> {
        let entropy = self.entropy.clone();
        let (made, secret) = oneshot::channel::<Option<Zeroizing<Vec<u8>>>>();
        let work = move || {
            let secret = match algorithm {
                SigningAlgorithm::Rs256 => Some(rsa::generate(&entropy)),
                SigningAlgorithm::Es256 => signature::generate_es256(),
            };
            let _ = made.send(secret.filter(|secret| works(algorithm, secret)));
        };
        let started = std::thread::Builder::new().name("signing-key".into()).spawn(work);
        let Ok(Some(secret)) = secret.await else {
            tracing::error!(error = ?started.err(), "no signing key could be made; it is tried again");
            return None;
        };
        let kid = HEXLOWER.encode(&self.entropy.bytes::<16>());
        let sealed = self.seal.seal(kid.as_bytes(), &secret, &self.entropy);
        Some(NewKey { kid, algorithm, sealed })
    }

    /// Writes a key, unless another instance has written one meanwhile.
    async fn publish(&self, key: &NewKey) -> Result<(), DbError> {
        const INSERT: &str = "INSERT INTO oidc_keys (kid, algorithm, private_key, created_at, begins_at)
            VALUES ($1, $2, $3, $4, $5)";
        // This includes the key before it that had ended already, if the algorithm was another one for a while.
        const END: &str = "UPDATE oidc_keys SET ends_at = $1 WHERE kid <> $2 AND algorithm = $4
            AND (ends_at IS NULL OR kid = $3)";
        let algorithm = key.algorithm.into_str();
        let mut tx = self.db.begin_exclusive(DbLock::on("oidc.keys")).await?;
        let now = tx.now(&self.clock).await?;
        let rows: Vec<KeyRow> = on_tx!(&mut tx, connection => query_as(READ).fetch_all(connection).await)?;
        let keys = self.open(&rows);
        let Some(begins_at) = self.due(&keys, now, key.algorithm) else { return Ok(()) };
        let previous = Self::published(&keys, now, key.algorithm).next_back().map(|key| key.kid.as_str());
        on_tx!(&mut tx, connection => query(INSERT).bind(&key.kid).bind(algorithm).bind(&key.sealed).bind(now.0)
            .bind(begins_at.0).execute(connection).await.map(drop))?;
        on_tx!(&mut tx, connection => query(END).bind(begins_at.plus(OVERLAP).0).bind(&key.kid).bind(previous)
            .bind(algorithm).execute(connection).await.map(drop))?;
        tx.commit().await?;
        let detail = json!({ "kid": key.kid, "begins_at": iso(begins_at), "previous": previous });
        self.audit.record(AuditEvent {
            name: Some(algorithm),
            detail: Some(detail.to_string()),
            ..AuditEvent::new(now, Action::KeyRotated, Outcome::Ok)
        });
        Ok(())
    }

    /// The newest key of each algorithm in use stays, and all others end: those of an algorithm that was in use before.
    /// Nothing is written unless there is such a key.
    async fn tidy(&self, rows: &[KeyRow], now: Micros) -> Result<(), DbError> {
        const STAY: &str = "UPDATE oidc_keys SET ends_at = NULL WHERE kid = $1";
        const END: &str = "UPDATE oidc_keys SET ends_at = $1 WHERE kid = $2 AND ends_at IS NULL";
        let keys = self.keys.load_full();
        let newest = |algorithm| Self::published(&keys, now, algorithm).next_back();
        let newest: Vec<_> = self.in_use().into_iter().filter_map(newest).collect();
        for key in newest.iter().filter(|key| key.ends_at.is_some()) {
            execute!(&self.db => query(STAY).bind(&key.kid))?;
        }
        let Some(begins_at) = newest.iter().map(|key| key.begins_at).max() else { return Ok(()) };
        let stays = |row: &&KeyRow| newest.iter().any(|key| key.kid == row.kid);
        for row in rows.iter().filter(|row| row.ends_at.is_none() && !stays(row)) {
            let ends_at = begins_at.max(now).plus(OVERLAP);
            execute!(&self.db => query(END).bind(ends_at.0).bind(&row.kid))?;
        }
        Ok(())
    }
}

/// Whether a key verifies what it signs. A part of it that is wrong shows here and not at somebody's sign-in.
fn works(algorithm: SigningAlgorithm, secret: &[u8]) -> bool {
    let Some(key) = signature::load(algorithm, secret) else { return false };
    let signed = signature::sign(&key, b"a test");
    signed.is_some_and(|signed| signature::verify(&signature::public(&key), b"a test", &signed))
}

fn seal_of(master: &MasterKey) -> Seal {
    Seal::new(master.derive("oidc.key"))
}
