//! Second factors in the database: the authenticator app of an account, its recovery codes, and whether a sign-in is
//! asked for one of them.

mod reseal;
mod totp;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::BASE32_NOPAD;
use sqlx::{query, query_as, query_scalar};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::factor_sql::{has_factor, proof_holds};
use super::{AccountId, DeviceId, Factor, FactorProof, SessionId, proofs, session_changes};
use crate::clock::{Clock, Micros};
use crate::config::AppFactor;
use crate::db::{Db, DbError, DbLock, Tx, execute, on_db, on_tx};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::mail::{self, LetterKind};
use crate::secret::{SubKey, hidden_debug};

use totp::{SecretSeal, read_base32};
pub use totp::{TotpCode, TotpSecret};

/// Wrong codes of strangers in a row, who have the password; then no stranger's code is compared.
pub const MOST_FACTOR_FAILURES: i64 = 100;
/// Handed out together.
pub const RECOVERY_CODES: usize = 10;

/// Has sign-ins to an account asked for its second factor from now on.
pub(super) const ASK: &str = concat!(
    "INSERT INTO factor_policies (account, required) SELECT $1, $2 WHERE ",
    has_factor!("$1"),
    " ON CONFLICT (account) DO UPDATE SET required = excluded.required WHERE factor_policies.required = 0"
);

/// With an account's last factor goes that it is asked for one, and what stands in for it: recovery codes and trust.
pub(super) const END_WITHOUT_FACTOR: [&str; 4] = [
    concat!("DELETE FROM factor_devices WHERE account = $1 AND NOT ", has_factor!("$1")),
    concat!("DELETE FROM recovery_codes WHERE account = $1 AND NOT ", has_factor!("$1")),
    concat!("DELETE FROM trusted_devices WHERE account = $1 AND NOT ", has_factor!("$1")),
    concat!("UPDATE factor_policies SET required = 0 WHERE account = $1 AND NOT ", has_factor!("$1")),
];

/// Remembers that a factor is gone: if the account was frozen soon, the password alone would not be enough.
pub(super) async fn note_lost_factor(tx: &mut Tx, account: &str, now: Micros) -> Result<(), DbError> {
    const SQL: &str = "UPDATE accounts SET factor_lost_at = $2 WHERE id = $1";
    execute!(in tx => query(SQL).bind(account).bind(now.0))?;
    Ok(())
}

/// One of ten: 80 random bits, so that nobody needs to count guesses at them.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct RecoveryCode([u8; 10]);

hidden_debug!(RecoveryCode);

impl RecoveryCode {
    /// Parses a code as it was typed.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(read_base32(text)?);
        Some(Self(bytes.as_slice().try_into().ok()?))
    }

    /// Four groups of four letters.
    pub fn expose(&self) -> String {
        let letters = Zeroizing::new(BASE32_NOPAD.encode(&self.0));
        let group = |at: usize| letters[at * 4..at * 4 + 4].to_ascii_lowercase();
        [group(0), group(1), group(2), group(3)].join("-")
    }
}

/// What an account has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountFactors {
    /// Since when the authenticator app is set up.
    pub totp_since: Option<Micros>,
    /// Since when its codes are compared for known devices alone.
    pub totp_disabled_at: Option<Micros>,
    /// Recovery codes that are left.
    pub recovery_left: i64,
    pub passkeys: i64,
}

impl AccountFactors {
    /// What can be proved, the strongest first.
    pub fn methods(self) -> Vec<Factor> {
        let have = [
            (self.passkeys > 0, Factor::Passkey),
            (self.totp_since.is_some(), Factor::Totp),
            (self.recovery_left > 0, Factor::Recovery),
        ];
        have.into_iter().filter_map(|(has, factor)| has.then_some(factor)).collect()
    }

    /// It has neither an app nor a passkey.
    pub const fn is_empty(self) -> bool {
        self.totp_since.is_none() && self.passkeys == 0
    }

    /// The factors with which an application is content.
    pub fn fit_for(self, needed: AppFactor) -> Vec<Factor> {
        let fits = |factor: &Factor| needed != AppFactor::Passkey || *factor == Factor::Passkey;
        self.methods().into_iter().filter(fits).collect()
    }
}

/// What a code of an app is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TotpResult {
    /// With what it proves.
    Right(FactorProof),
    /// Wrong, or used before.
    Wrong,
    /// It was wrong, and one too many: strangers' codes are not compared any more.
    WrongAndDisabled,
    /// Nothing was compared: the account has no app, or its codes are not compared for strangers.
    Closed,
}

#[derive(Clone)]
pub struct Factors {
    pub(super) db: Db,
    pub(super) clock: Clock,
    pub(super) entropy: Entropy,
    seal: SecretSeal,
    codes: SubKey,
}

impl Factors {
    pub fn new(foundation: &Foundation) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        let seal = reseal::seal_of(&secrets);
        Self { db, clock, entropy, seal, codes: secrets.derive("factor.recovery") }
    }

    pub async fn of(&self, account: AccountId) -> Result<AccountFactors, DbError> {
        const SQL: &str = "SELECT (SELECT confirmed_at FROM totp WHERE account = $1),
            (SELECT disabled_at FROM totp WHERE account = $1),
            (SELECT COUNT(*) FROM recovery_codes WHERE account = $1 AND used_at IS NULL),
            (SELECT COUNT(*) FROM passkeys WHERE account = $1)";
        let (since, disabled, recovery_left, passkeys): (Option<i64>, Option<i64>, i64, i64) =
            on_db!(&self.db, pool => query_as(SQL).bind(account.to_string()).fetch_one(pool).await)?;
        let totp_since = since.map(Micros);
        Ok(AccountFactors { totp_since, totp_disabled_at: disabled.map(Micros), recovery_left, passkeys })
    }

    /// Whether an instance runs that would ask nobody for a second step: then no factor is set up.
    pub async fn is_upgrading(&self) -> Result<bool, DbError> {
        self.db.is_upgrading(&self.clock).await
    }

    /// A new secret for an app, for this session alone: nobody confirms one that somebody else has seen. The one in use
    /// stays in use until a code of the new one was right.
    pub async fn propose_totp(&self, account: AccountId, session: SessionId) -> Result<TotpSecret, DbError> {
        const SQL: &str = "INSERT INTO totp (account, pending) VALUES ($1, $2)
            ON CONFLICT (account) DO UPDATE SET pending = excluded.pending";
        let secret = TotpSecret::random(&self.entropy);
        let pending = pending(session, &self.sealed(account, &secret));
        execute!(&self.db => query(SQL).bind(account.to_string()).bind(pending))?;
        Ok(secret)
    }

    /// The secret that was proposed last, if it was in this session, and is not in use yet; and the same sealed.
    pub async fn proposed_totp(
        &self,
        account: AccountId,
        session: SessionId,
    ) -> Result<Option<(TotpSecret, String)>, DbError> {
        const SQL: &str = "SELECT pending FROM totp WHERE account = $1 AND pending IS NOT NULL";
        let found: Option<String> =
            on_db!(&self.db, pool => query_scalar(SQL).bind(account.to_string()).fetch_optional(pool).await)?;
        let sealed = found.as_deref().and_then(|found| found.strip_prefix(&pending(session, "")));
        Ok(sealed.and_then(|sealed| Some((self.seal.open(account, sealed)?, sealed.to_owned()))))
    }

    /// Takes the proposed secret into use if the code is right, and hands out recovery codes; None if it is wrong.
    /// From then on the account is asked for a second step, and this session alone has proved one.
    pub async fn confirm_totp(
        &self,
        account: AccountId,
        session: SessionId,
        code: &TotpCode,
    ) -> Result<Option<(Vec<RecoveryCode>, FactorProof)>, DbError> {
        const HAS: &str = "SELECT COUNT(*) FROM totp WHERE account = $1 AND secret IS NOT NULL";
        const USE: &str = "UPDATE totp SET secret = $4, pending = NULL, confirmed_at = $2, last_step = $3,
            failures = 0, disabled_at = NULL WHERE account = $1 AND pending = $5";
        let Some((secret, sealed)) = self.proposed_totp(account, session).await? else { return Ok(None) };
        let now = self.db.now(&self.clock).await?;
        let Some(step) = secret.step_of(code, now) else { return Ok(None) };
        let id = account.to_string();
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        let had: i64 =
            on_tx!(&mut tx, connection => query_scalar(HAS).bind(&id).fetch_one(connection).await)?;
        let used = execute!(in &mut tx => query(USE).bind(&id).bind(now.0).bind(step).bind(&sealed)
            .bind(pending(session, &sealed)))?;
        // It was taken into use meanwhile, or another one was proposed.
        if used == 0 {
            return Ok(None);
        }
        if had > 0 {
            note_lost_factor(&mut tx, &id, now).await?;
        }
        execute!(in &mut tx => query(ASK).bind(&id).bind(now.0))?;
        let proof = FactorProof::of(Factor::Totp, now.0.to_string(), now);
        proofs::prove(&mut tx, session, &proof).await?;
        let codes = self.hand_out(&mut tx, account).await?;
        self.end_void(&mut tx, account, session, now).await?;
        mail::tell(&mut tx, &self.entropy, (&id, LetterKind::FactorAdded), now).await?;
        tx.commit().await?;
        Ok(Some((codes, proof)))
    }

    /// Seals a secret as the table `totp` has it.
    pub(super) fn sealed(&self, account: AccountId, secret: &TotpSecret) -> String {
        self.seal.seal(account, secret, &self.entropy)
    }

    /// Ten new recovery codes. Those from before are void, and so is what they have proved.
    pub async fn renew_recovery_codes(
        &self,
        account: AccountId,
        session: SessionId,
    ) -> Result<Vec<RecoveryCode>, DbError> {
        let now = self.db.now(&self.clock).await?;
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        if !self.is_running(&mut tx, session).await? {
            return Ok(Vec::new());
        }
        let codes = self.hand_out(&mut tx, account).await?;
        self.end_void(&mut tx, account, session, now).await?;
        mail::tell(&mut tx, &self.entropy, (&account.to_string(), LetterKind::FactorAdded), now).await?;
        tx.commit().await?;
        Ok(codes)
    }

    /// Ends what factors have proved that are gone, of which every instance learns. Last, as wherever sessions end, so that
    /// no two wait for each other.
    pub(super) async fn end_void(
        &self,
        tx: &mut Tx,
        account: AccountId,
        changed_in: SessionId,
        now: Micros,
    ) -> Result<(), DbError> {
        proofs::end_void(tx, account, changed_in).await?;
        session_changes::record(tx, &self.entropy, &account.to_string(), now).await
    }

    /// Whether the session in which a factor is to go has not ended meanwhile, as by a freeze.
    async fn is_running(&self, tx: &mut Tx, session: SessionId) -> Result<bool, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM sessions WHERE id = $1";
        let count: i64 = on_tx!(tx, connection => query_scalar(SQL).bind(session.to_string()).fetch_one(connection).await)?;
        Ok(count > 0)
    }

    pub(super) async fn hand_out(
        &self,
        tx: &mut Tx,
        account: AccountId,
    ) -> Result<Vec<RecoveryCode>, DbError> {
        const VOID: &str = "DELETE FROM recovery_codes WHERE account = $1";
        const ADD: &str =
            "INSERT INTO recovery_codes (account, code_hash, handed_out_at) VALUES ($1, $2, $3)";
        let now = tx.now(&self.clock).await?;
        let id = account.to_string();
        execute!(in tx => query(VOID).bind(&id))?;
        let codes: Vec<_> = (0..RECOVERY_CODES).map(|_| RecoveryCode(self.entropy.bytes())).collect();
        for code in &codes {
            let hash = self.hash(account, code);
            execute!(in tx => query(ADD).bind(&id).bind(hash).bind(now.0))?;
        }
        Ok(codes)
    }

    /// Compares a code with the account's app. Each step's code is right once. A stranger's counts as wrong before it
    /// is compared, so that no more than `MOST_FACTOR_FAILURES` in a row are, however many come at once.
    pub async fn check_totp(
        &self,
        account: AccountId,
        code: &TotpCode,
        stranger: bool,
    ) -> Result<TotpResult, DbError> {
        const COUNT: &str = "UPDATE totp SET failures = failures + 1 WHERE account = $1 AND failures < $2
            AND secret IS NOT NULL AND disabled_at IS NULL RETURNING secret, COALESCE(confirmed_at, 0)";
        const READ: &str =
            "SELECT secret, COALESCE(confirmed_at, 0) FROM totp WHERE account = $1 AND secret IS NOT NULL";
        const TAKE: &str =
            "UPDATE totp SET last_step = $2, failures = CASE WHEN $3 = 1 THEN 0 ELSE failures END
            WHERE account = $1 AND last_step < $2";
        const DISABLE: &str = "UPDATE totp SET disabled_at = $2 WHERE account = $1 AND failures >= $3
            AND disabled_at IS NULL";
        let id = account.to_string();
        let app: Option<(String, i64)> = match stranger {
            true => on_db!(&self.db, pool => query_as(COUNT).bind(&id).bind(MOST_FACTOR_FAILURES)
                .fetch_optional(pool).await)?,
            false => on_db!(&self.db, pool => query_as(READ).bind(&id).fetch_optional(pool).await)?,
        };
        let Some((sealed, since)) = app else { return Ok(TotpResult::Closed) };
        let now = self.db.now(&self.clock).await?;
        let Some(secret) = self.seal.open(account, &sealed) else {
            tracing::error!("a TOTP secret cannot be opened: it was sealed under another key file");
            return Ok(TotpResult::Closed);
        };
        if let Some(step) = secret.step_of(code, now)
            && execute!(&self.db => query(TAKE).bind(&id).bind(step).bind(i64::from(stranger)))? > 0
        {
            return Ok(TotpResult::Right(FactorProof::of(Factor::Totp, since.to_string(), self.clock.now())));
        }
        let disabled = stranger
            && execute!(&self.db => query(DISABLE).bind(&id).bind(now.0).bind(MOST_FACTOR_FAILURES))? > 0;
        Ok(if disabled { TotpResult::WrongAndDisabled } else { TotpResult::Wrong })
    }

    /// Uses up a recovery code, and says what it proves; None if it is none of the account's, or was used before.
    pub async fn spend_recovery_code(
        &self,
        account: AccountId,
        code: &RecoveryCode,
    ) -> Result<Option<FactorProof>, DbError> {
        const SQL: &str = "UPDATE recovery_codes SET used_at = $1
            WHERE account = $2 AND code_hash = $3 AND used_at IS NULL";
        let now = self.db.now(&self.clock).await?.0;
        let hash = self.hash(account, code);
        let spent = execute!(&self.db => query(SQL).bind(now).bind(account.to_string()).bind(&hash))?;
        Ok((spent > 0).then(|| FactorProof::of(Factor::Recovery, hash, self.clock.now())))
    }

    /// Takes the app away. False if there was none.
    pub async fn remove_totp(&self, account: AccountId, session: SessionId) -> Result<bool, DbError> {
        let sql = "DELETE FROM totp WHERE account = $1";
        self.remove((account, session), sql, &[account.to_string()]).await
    }

    /// Deletes the factor with these keys, with what it has proved.
    pub(super) async fn remove(
        &self,
        (account, session): (AccountId, SessionId),
        sql: &'static str,
        keys: &[String],
    ) -> Result<bool, DbError> {
        let (id, now) = (account.to_string(), self.db.now(&self.clock).await?);
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        if !self.is_running(&mut tx, session).await? {
            return Ok(false);
        }
        let removed = execute!(in &mut tx => keys.iter().fold(query(sql), |delete, key| delete.bind(key)))?;
        if removed == 0 {
            return Ok(false);
        }
        for sql in END_WITHOUT_FACTOR {
            execute!(in &mut tx => query(sql).bind(&id))?;
        }
        note_lost_factor(&mut tx, &id, now).await?;
        self.end_void(&mut tx, account, session, now).await?;
        mail::tell(&mut tx, &self.entropy, (&id, LetterKind::FactorRemoved), now).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// A browser has proved a factor of the account, or set one up. The newest 20 are kept.
    pub async fn note_device(
        &self,
        account: AccountId,
        device: DeviceId,
        proof: &FactorProof,
    ) -> Result<(), DbError> {
        const NOTE: &str =
            "INSERT INTO factor_devices (account, device, proved_at, method, credential)
            VALUES ($1, $2, $3, $4, $5) ON CONFLICT (account, device) DO UPDATE SET proved_at = excluded.proved_at,
            method = excluded.method, credential = excluded.credential";
        const FORGET: &str =
            "DELETE FROM factor_devices WHERE account = $1 AND device NOT IN (SELECT device FROM factor_devices
            WHERE account = $1 ORDER BY proved_at DESC, device LIMIT 20)";
        // It is not known by which factor, so the row would earn nothing.
        let Some(credential) = &proof.credential else { return Ok(()) };
        let (id, now) = (account.to_string(), self.db.now(&self.clock).await?);
        execute!(&self.db => query(NOTE).bind(&id).bind(device.to_string()).bind(now.0).bind(proof.method())
            .bind(credential))?;
        execute!(&self.db => query(FORGET).bind(&id))?;
        Ok(())
    }

    /// Whether it has. One that only knows the password is a stranger to the app: whoever has the password makes as many
    /// of them as they like.
    pub async fn has_proved(&self, account: AccountId, device: DeviceId) -> Result<bool, DbError> {
        const SQL: &str = concat!(
            "SELECT COUNT(*) FROM factor_devices WHERE account = $1 AND device = $2 AND (method IS NULL OR ",
            proof_holds!("$1", "factor_devices.method", "factor_devices.credential"),
            ")"
        );
        let found: i64 = on_db!(&self.db, pool => query_scalar(SQL).bind(account.to_string())
            .bind(device.to_string()).fetch_one(pool).await)?;
        Ok(found > 0)
    }

    fn hash(&self, account: AccountId, code: &RecoveryCode) -> String {
        URL_SAFE_NO_PAD.encode(self.codes.hash(&[account.as_bytes(), &code.0]))
    }
}

/// A sealed secret as it is stored until it is in use: with the session that proposed it.
fn pending(session: SessionId, sealed: &str) -> String {
    format!("{session}.{sealed}")
}

#[cfg(test)]
mod tests;
