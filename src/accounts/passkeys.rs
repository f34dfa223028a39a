//! Passkeys in the database: the keys of an account, and the challenges that were answered. A challenge is a keyed hash
//! over what it is for and the browser that asked for it; nothing is stored of it until its answer was right.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sqlx::{Row, query, query_as, query_scalar};
use strum::IntoStaticStr;
use utoipa::ToSchema;

use super::{
    Account, AccountId, Factor, FactorProof, Factors, PasskeyId, RecoveryCode, Session, SessionId, proofs,
    session_changes,
};
use crate::clock::{Clock, Micros, as_time, as_time_if};
use crate::db::{Db, DbError, DbLock, Tx, execute, from_row, on_db, on_tx};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::mail::{self, LetterKind};
use crate::secret::{SigningKeys, SubKey};
use crate::unseen::is_seen_whole;
use crate::webauthn::{
    Assertion, Attestation, AttestationResponse, PasskeyFault, RelyingParty, StoredKey, challenge_of,
};

/// How long somebody may take to answer.
pub const CHALLENGE_LASTS: Duration = Duration::from_secs(300);
/// More than anybody carries, and few enough for one page.
pub const MOST_PASSKEYS: usize = 20;
const LONGEST_LABEL: usize = 64;
/// Ways to reach an authenticator: there are seven, of at most ten letters.
const MOST_TRANSPORTS: usize = 8;

/// What a challenge is for: its answer is right for nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum ChallengePurpose {
    #[default]
    SignIn,
    SecondStep,
    /// To prove again who is signed in.
    Confirm,
    Add,
}

/// What its owner calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasskeyLabel(String);

impl PasskeyLabel {
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = (1..=LONGEST_LABEL).contains(&text.chars().count()) && is_seen_whole(text);
        fits.then(|| Self(text.to_owned()))
    }
}

// A passkey as its owner sees it, and as it is in the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Passkey {
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    pub id: PasskeyId,
    pub label: String,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Micros,
    /// Left out if it was not used yet.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_time_if")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<Micros>,
    /// It is kept by a password manager or a cloud, too.
    pub backed_up: bool,
    /// The domain that it is for: it works nowhere else.
    pub rp_id: String,
    /// The authenticator's name for it, in base64url.
    #[serde(skip)]
    pub credential: String,
}

/// Why an answer is not accepted.
#[derive(Debug)]
pub enum PasskeyRefusal {
    /// It is wrong, or the key is unknown.
    Wrong,
    /// The signature is right, but its authenticator has counted fewer uses than before: there may be a copy of it.
    CountedBack(Box<Account>),
}

impl PasskeyRefusal {
    /// Whose passkey it is, as far as the signature tells.
    pub fn account(&self) -> Option<&Account> {
        if let Self::CountedBack(account) = self { Some(account) } else { None }
    }

    /// For the record: its owner should hear of a copy.
    pub fn detail(&self) -> Option<String> {
        self.account().map(|_| r#"{"cause":"sign-count"}"#.to_owned())
    }
}

/// Why a key is not taken.
#[derive(Debug)]
pub enum AddRefusal {
    Fault(PasskeyFault),
    /// It is some account's already.
    Known,
    TooMany,
}

#[derive(Clone)]
pub struct Passkeys {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    keys: SigningKeys,
    /// The domain of passkeys; None where browsers have no passkeys: at an address without a domain, or without https.
    site: Option<RelyingParty>,
    factors: Factors,
}

impl Passkeys {
    pub fn new(foundation: &Foundation, site: Option<RelyingParty>, factors: Factors) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        Self { db, clock, entropy, keys: secrets.derive_signing("passkey.challenge"), site, factors }
    }

    pub const fn site(&self) -> Option<&RelyingParty> {
        self.site.as_ref()
    }

    pub fn challenge(&self, purpose: ChallengePurpose, browser: &[u8; 16]) -> Vec<u8> {
        let expires_at = self.clock.now().plus(CHALLENGE_LASTS);
        let body = [&expires_at.0.to_be_bytes()[..], &self.entropy.bytes::<16>()].concat();
        let told = mac(self.keys.signing(), purpose, browser, &body);
        [&body[..], &told].concat()
    }

    /// Until when it may be answered; None if it is none of ours, for something else or another browser, or too old.
    /// `browser` is its random name: none was asked by a browser without one.
    fn read_challenge(
        &self,
        challenge: &[u8],
        purpose: ChallengePurpose,
        browser: Option<&[u8; 16]>,
        now: Micros,
    ) -> Option<Micros> {
        let (browser, (body, told)) = (browser?, challenge.split_last_chunk::<16>()?);
        self.keys.signer(told, |key| mac(key, purpose, browser, body))?;
        let expires_at = Micros(i64::from_be_bytes(*body.first_chunk()?));
        (expires_at > now).then_some(expires_at)
    }

    /// Whose passkey it is, if the answer is right, which it is once, and what that proves. `account`: of whom it has to be.
    /// Nothing is written for a wrong one.
    pub async fn accept(
        &self,
        shown: &Assertion,
        purpose: ChallengePurpose,
        browser: Option<&[u8; 16]>,
        account: Option<AccountId>,
    ) -> Result<Result<(Account, FactorProof), PasskeyRefusal>, DbError> {
        const FIND: &str = "SELECT k.id AS passkey, k.algorithm, k.public_key, k.sign_count, a.*
            FROM passkeys k JOIN accounts a ON a.id = k.account WHERE k.credential = $1 AND a.disabled_at IS NULL";
        const NOTE: &str = "UPDATE passkeys SET sign_count = $2, backed_up = $3, last_used_at = $4
            WHERE id = $1 AND (sign_count < $2 OR (sign_count = 0 AND $2 = 0))";
        const WRONG: Result<(Account, FactorProof), PasskeyRefusal> = Err(PasskeyRefusal::Wrong);
        let Assertion { id, response: answer } = shown;
        let (Some(site), Ok(challenge)) = (&self.site, challenge_of(&answer.client_data.0)) else {
            return Ok(WRONG);
        };
        let now = self.db.now(&self.clock).await?;
        let Some(until) = self.read_challenge(&challenge, purpose, browser, now) else { return Ok(WRONG) };
        let found: Option<FoundPasskey> =
            on_db!(&self.db, pool => query_as(FIND).bind(text_of(&id.0)).fetch_optional(pool).await)?;
        let Some(found) = found.filter(|found| {
            account.is_none_or(|account| account == found.account.id)
                && answer.user_handle.as_ref().is_none_or(|handle| handle.0 == found.account.id.as_bytes())
        }) else {
            return Ok(WRONG);
        };
        let key = StoredKey { algorithm: found.algorithm, public_key: &found.public_key };
        let (data, signature) = (&answer.authenticator_data.0, &answer.signature.0);
        let Ok(asserted) = site.assert(&challenge, key, &answer.client_data.0, data, signature) else {
            return Ok(WRONG);
        };
        let mut tx = self.db.begin().await?;
        if !spend(&mut tx, &challenge, until).await? {
            return Ok(WRONG);
        }
        let noted = execute!(in &mut tx => query(NOTE).bind(&found.passkey).bind(i64::from(asserted.sign_count))
            .bind(i64::from(asserted.backed_up)).bind(now.0))?;
        if noted == 0 {
            return Ok(Err(PasskeyRefusal::CountedBack(Box::new(found.account))));
        }
        tx.commit().await?;
        let proof = FactorProof::of(Factor::Passkey, found.passkey, self.clock.now());
        Ok(Ok((found.account, proof)))
    }

    /// Gives the account a key, and recovery codes if it has none left. The session has proved it with that.
    pub async fn add(
        &self,
        &Session { id: session, account, .. }: &Session,
        made: &Attestation,
        browser: Option<&[u8; 16]>,
        label: &PasskeyLabel,
    ) -> Result<Result<(Passkey, Vec<RecoveryCode>, FactorProof), AddRefusal>, DbError> {
        const COUNT: &str = "SELECT COUNT(*) FROM passkeys WHERE account = $1";
        const LEFT: &str = "SELECT COUNT(*) FROM recovery_codes WHERE account = $1 AND used_at IS NULL";
        const ADD: &str =
            "INSERT INTO passkeys (id, credential, account, rp_id, algorithm, public_key, sign_count,
            backed_up, label, aaguid, transports, created_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING";
        let Some(site) = &self.site else { return Ok(Err(AddRefusal::Fault(PasskeyFault::WrongRp))) };
        let now = self.db.now(&self.clock).await?;
        let AttestationResponse { client_data, attestation_object, transports } = &made.response;
        let verified = challenge_of(&client_data.0).and_then(|challenge| {
            let until = self.read_challenge(&challenge, ChallengePurpose::Add, browser, now);
            let until = until.ok_or(PasskeyFault::WrongChallenge)?;
            Ok((site.register(&challenge, &client_data.0, &attestation_object.0)?, challenge, until))
        });
        let (new, challenge, until) = match verified {
            Ok(verified) => verified,
            Err(fault) => return Ok(Err(AddRefusal::Fault(fault))),
        };
        let passkey = Passkey {
            id: PasskeyId::random(&self.entropy),
            credential: text_of(&new.id),
            rp_id: site.id.clone(),
            label: label.0.clone(),
            backed_up: new.backed_up,
            created_at: now,
            last_used_at: None,
        };
        let id = account.to_string();
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        let count: i64 =
            on_tx!(&mut tx, connection => query_scalar(COUNT).bind(&id).fetch_one(connection).await)?;
        if count >= MOST_PASSKEYS as i64 {
            return Ok(Err(AddRefusal::TooMany));
        }
        if !spend(&mut tx, &challenge, until).await? {
            return Ok(Err(AddRefusal::Fault(PasskeyFault::WrongChallenge)));
        }
        let added = execute!(in &mut tx => query(ADD).bind(passkey.id.to_string()).bind(&passkey.credential)
            .bind(&id).bind(&passkey.rp_id).bind(new.algorithm).bind(text_of(&new.public_key))
            .bind(i64::from(new.sign_count)).bind(i64::from(new.backed_up)).bind(&passkey.label)
            .bind(HEXLOWER.encode(&new.aaguid)).bind(known_transports(transports)).bind(now.0))?;
        if added == 0 {
            return Ok(Err(AddRefusal::Known));
        }
        let proof = FactorProof::of(Factor::Passkey, passkey.id.to_string(), now);
        proofs::prove(&mut tx, session, &proof).await?;
        let left: i64 =
            on_tx!(&mut tx, connection => query_scalar(LEFT).bind(&id).fetch_one(connection).await)?;
        let mut codes = Vec::new();
        if left == 0 {
            codes = self.factors.hand_out(&mut tx, account).await?;
            self.factors.end_void(&mut tx, account, session, now).await?;
        } else {
            session_changes::record(&mut tx, &self.entropy, &id, now).await?;
        }
        mail::tell(&mut tx, &self.factors.entropy, (&id, LetterKind::FactorAdded), now).await?;
        tx.commit().await?;
        Ok(Ok((passkey, codes, proof)))
    }

    /// The oldest first.
    pub async fn list(&self, account: AccountId) -> Result<Vec<Passkey>, DbError> {
        const SQL: &str =
            "SELECT id, credential, rp_id, label, backed_up, created_at, last_used_at FROM passkeys
            WHERE account = $1 ORDER BY created_at, id";
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(account.to_string()).fetch_all(pool).await)?)
    }

    /// False if the account has no such key. Sessions that it alone began end, but for this one.
    pub async fn remove(
        &self,
        account: AccountId,
        session: SessionId,
        passkey: PasskeyId,
    ) -> Result<bool, DbError> {
        let sql = "DELETE FROM passkeys WHERE account = $1 AND id = $2";
        self.factors.remove((account, session), sql, &[account.to_string(), passkey.to_string()]).await
    }

    /// How many are for another domain than this, and work nowhere here.
    pub async fn count_foreign(&self) -> Result<i64, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM passkeys WHERE rp_id <> $1";
        let id = self.site.as_ref().map_or("", |site| &site.id);
        Ok(on_db!(&self.db, pool => query_scalar(SQL).bind(id).fetch_one(pool).await)?)
    }

    /// Deletes at most `batch` challenges that nobody can answer any more; returns how many.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM spent_challenges WHERE hash IN (SELECT hash FROM spent_challenges
            WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
        let now = self.db.now(&self.clock).await?.0;
        Ok(execute!(&self.db => query(SQL).bind(now).bind(i64::from(batch)))?)
    }
}

fn mac(key: &SubKey, purpose: ChallengePurpose, browser: &[u8; 16], body: &[u8]) -> [u8; 16] {
    let hash = key.hash(&[purpose.into_str().as_bytes(), browser, body]);
    *hash.first_chunk().expect("a hash of 32 bytes")
}

/// False if it was answered before.
async fn spend(tx: &mut Tx, challenge: &[u8], until: Micros) -> Result<bool, DbError> {
    const SQL: &str =
        "INSERT INTO spent_challenges (hash, expires_at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    let hash = blake3::hash(challenge).to_hex().to_string();
    let spent = execute!(in tx => query(SQL).bind(hash).bind(until.0))?;
    Ok(spent > 0)
}

fn text_of(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What a browser says of how it reaches the authenticator, as far as it can be a word of the standard.
fn known_transports(told: &[String]) -> String {
    let is_word = |word: &&String| {
        (1..=16).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    };
    let words: Vec<&str> = told.iter().filter(is_word).take(MOST_TRANSPORTS).map(String::as_str).collect();
    words.join(",")
}

struct FoundPasskey {
    passkey: String,
    algorithm: i64,
    public_key: Vec<u8>,
    account: Account,
}

from_row!(FoundPasskey, row => FoundPasskey {
    passkey: row.try_get("passkey")?,
    algorithm: row.try_get("algorithm")?,
    public_key: URL_SAFE_NO_PAD.decode(row.try_get::<&str, _>("public_key")?)
        .map_err(|error| sqlx::Error::Decode(error.into()))?,
    account: Account::from_row(row)?,
});

from_row!(Passkey, row => Passkey {
    id: row.try_get("id")?,
    credential: row.try_get("credential")?,
    rp_id: row.try_get("rp_id")?,
    label: row.try_get("label")?,
    backed_up: row.try_get::<i64, _>("backed_up")? != 0,
    created_at: Micros(row.try_get("created_at")?),
    last_used_at: row.try_get::<Option<i64>, _>("last_used_at")?.map(Micros),
});
