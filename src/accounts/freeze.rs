//! Freezing an account: whoever had its address before can stop what somebody else may be doing with it, and nothing more.
//!
//! A frozen account has no sessions. Whoever changed the address knew the password, and has proved a second factor if there
//! was one, so what the account had a week before decides: a second factor of then lifts the freeze when it is proved at a
//! sign-in, and so does a new password by a code to a number of then. The password alone does only if it is the one of then,
//! there is no factor and was no number, and the account has lost neither since. An administrator always can. Whatever lifts
//! it, what the account got since goes: by that a thief would get in again.

use std::time::Duration;

use data_encoding::BASE32_NOPAD;
use sqlx::{Row, query, query_as, query_scalar};
use zeroize::Zeroizing;

use super::emails::void_codes;
use super::factors::END_WITHOUT_FACTOR;
use super::{Account, AccountId, Accounts, Emails, Factor, FactorProof, is_as_it_was, session_changes};
use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, DbLock, Tx, execute, from_row, on_db, on_tx};
use crate::entropy::Entropy;
use crate::mail::{self, LetterKind};

/// How long the code works that an address gets when it is an account's no more.
const LASTS: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// For how long an account must have had what lifts a freeze when its address changed.
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// What a new account gets within this time is its owner's.
const BEGINNING: Duration = Duration::from_secs(10 * 60);

/// 80 random bits, which nobody guesses. Wiped when dropped, never printed.
pub struct FreezeCode(Zeroizing<String>);

impl FreezeCode {
    fn random(entropy: &Entropy) -> Self {
        Self(Zeroizing::new(BASE32_NOPAD.encode(&entropy.bytes::<10>())))
    }

    /// Parses a code as people type and paste it.
    pub fn parse(text: &str) -> Option<Self> {
        let shown =
            text.chars().filter(|letter| !letter.is_whitespace() && !"-\u{2010}\u{2013}".contains(*letter));
        let code: String = shown.map(|letter| letter.to_ascii_uppercase()).take(17).collect();
        let fits =
            code.len() == 16 && code.bytes().all(|it| it.is_ascii_uppercase() || (b'2'..=b'7').contains(&it));
        fits.then(|| Self(Zeroizing::new(code)))
    }

    /// In groups of four.
    pub fn shown(&self) -> String {
        let groups: Vec<_> = self.0.as_bytes().chunks(4).map(String::from_utf8_lossy).collect();
        groups.join("-")
    }
}

impl Emails {
    /// A code for the address that an account had until now. Those that earlier addresses have stay good: somebody who has
    /// taken an account over and changes its address twice makes no other code useless.
    pub(super) async fn new_freeze_code(
        &self,
        tx: &mut Tx,
        account: &str,
        now: Micros,
    ) -> Result<FreezeCode, DbError> {
        const SQL: &str = "INSERT INTO freeze_codes (code, account, expires_at) VALUES ($1, $2, $3)";
        let code = FreezeCode::random(&self.entropy);
        execute!(in tx => query(SQL).bind(self.hash_of(&code)).bind(account).bind(now.plus(LASTS).0))?;
        Ok(code)
    }

    /// Every session of the code's account ends, and codes no longer open it. None if there is no such code. While it is
    /// frozen, only a code that is older than the one that froze it does anything.
    pub async fn freeze(&self, code: &FreezeCode) -> Result<Option<AccountId>, DbError> {
        const WHOSE: &str =
            "SELECT account, expires_at FROM freeze_codes WHERE code = $1 AND expires_at > $2";
        const STILL: &str = "SELECT COUNT(*) FROM freeze_codes WHERE code = $1";
        const FREEZE: &str = "UPDATE accounts SET frozen_at = $2, frozen_from = $3,
            password_version = password_version + 1
            WHERE id = $1 AND (frozen_at IS NULL OR COALESCE(frozen_from, frozen_at) > $3)";
        const END: [&str; 4] = [
            "DELETE FROM sessions WHERE account = $1",
            "DELETE FROM half_sign_ins WHERE account = $1",
            "DELETE FROM device_failures WHERE account = $1",
            "DELETE FROM trusted_devices WHERE account = $1",
        ];
        let (hash, at) = (self.hash_of(code), self.db.now(&self.clock).await?);
        let whose: Option<(AccountId, i64)> = on_db!(&self.db, pool => query_as(WHOSE).bind(&hash).bind(at.0)
            .fetch_optional(pool).await)?;
        let Some((account, expires_at)) = whose else { return Ok(None) };
        let (id, from) = (account.to_string(), Micros(expires_at).minus(LASTS));
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        let still: i64 =
            on_tx!(&mut tx, connection => query_scalar(STILL).bind(&hash).fetch_one(connection).await)?;
        if still == 0 {
            return Ok(None);
        }
        if execute!(in &mut tx => query(FREEZE).bind(&id).bind(at.0).bind(from.0))? > 0 {
            for sql in END {
                execute!(in &mut tx => query(sql).bind(&id))?;
            }
            // They would set a password once the freeze is lifted.
            void_codes(&mut tx, &id, at).await?;
            mail::tell(&mut tx, &self.entropy, (&id, LetterKind::Frozen), at).await?;
            // It goes there even if the address is taken away in the next moment.
            self.keep_notices(&mut tx, &id).await?;
            session_changes::record(&mut tx, &self.entropy, &id, at).await?;
        }
        tx.commit().await?;
        Ok(Some(account))
    }

    fn hash_of(&self, code: &FreezeCode) -> String {
        self.seal.hash_of_code(&code.0)
    }
}

/// What a frozen account had before its address changed: a week before, since its owner is told of each change by mail, and
/// can act meanwhile. Of a younger account it is what it had at its beginning.
pub struct HadBefore {
    pub factor: bool,
    pub number: bool,
    /// Its password is the one of then, and there is nothing else of then, nor a factor of now: who freezes gets nobody past
    /// that. Nor has it lost a number or a factor since, perhaps to whoever changed the address.
    password_alone: bool,
    /// The factor that is shown is one of then.
    proved: bool,
    /// It has another number, or another password, since.
    newer_number: bool,
    newer_password: bool,
    until: Micros,
    from: Micros,
}

struct FrozenRow {
    from: Micros,
    created_at: Micros,
    admin: i64,
    password_since: Micros,
    phone_since: Option<i64>,
    phone_lost_at: Option<i64>,
    factor_lost_at: Option<i64>,
    first_passkey: Option<i64>,
    app: Option<i64>,
    shown_passkey: Option<i64>,
    shown_recovery_code: Option<i64>,
}

from_row!(FrozenRow, row => FrozenRow {
    from: Micros(row.try_get("began")?),
    created_at: Micros(row.try_get("created_at")?),
    admin: row.try_get("admin")?,
    password_since: Micros(row.try_get("password_at")?),
    phone_since: row.try_get("phone_at")?,
    phone_lost_at: row.try_get("phone_lost_at")?,
    factor_lost_at: row.try_get("factor_lost_at")?,
    first_passkey: row.try_get("first_passkey")?,
    app: row.try_get("app")?,
    shown_passkey: row.try_get("shown_passkey")?,
    shown_recovery_code: row.try_get("shown_recovery_code")?,
});

impl HadBefore {
    /// Reads it, and whether the factor that is shown is one of then; None if the account is not frozen.
    pub(super) async fn of(
        tx: &mut Tx,
        account: &str,
        shown: Option<&FactorProof>,
    ) -> Result<Option<Self>, DbError> {
        const SQL: &str = "SELECT COALESCE(frozen_from, frozen_at) AS began, created_at, admin,
            COALESCE(password_since, created_at) AS password_at, phone_lost_at, factor_lost_at,
            CASE WHEN phone IS NOT NULL THEN COALESCE(phone_since, created_at) END AS phone_at,
            (SELECT MIN(p.created_at) FROM passkeys p WHERE p.account = $1) AS first_passkey,
            (SELECT COALESCE(t.confirmed_at, 0) FROM totp t WHERE t.account = $1 AND t.secret IS NOT NULL) AS app,
            (SELECT p.created_at FROM passkeys p WHERE p.account = $1 AND p.id = $2) AS shown_passkey,
            (SELECT COALESCE(r.handed_out_at, 0) FROM recovery_codes r WHERE r.account = $1 AND r.code_hash = $2)
            AS shown_recovery_code FROM accounts WHERE id = $1 AND frozen_at IS NOT NULL";
        let credential = shown.and_then(|shown| shown.credential.as_deref());
        let row: Option<FrozenRow> = on_tx!(tx, connection => query_as(SQL).bind(account).bind(credential)
            .fetch_optional(connection).await)?;
        let Some(row) = row else { return Ok(None) };
        let (week_before, begun) = (row.from.minus(WEEK), row.created_at.plus(BEGINNING));
        let until = week_before.max(begun.min(row.from.minus(Duration::from_micros(1))));
        let older = |at: Option<i64>| at.is_some_and(|at| at <= until.0);
        let newer = |at: Option<i64>| at.is_some_and(|at| at > until.0);
        // No code opens an administrator's account.
        let number = older(row.phone_since) && row.admin == 0;
        let has_factor = row.first_passkey.is_some() || row.app.is_some();
        let lost = newer(row.phone_lost_at) || newer(row.factor_lost_at);
        let newer_password = row.password_since > until;
        Ok(Some(Self {
            factor: older(row.first_passkey) || older(row.app),
            number,
            password_alone: !newer_password && !number && !has_factor && !lost,
            proved: shown.is_some_and(|shown| match shown.factor {
                Factor::Passkey => older(row.shown_passkey),
                Factor::Totp => older(row.app),
                Factor::Recovery => older(row.shown_recovery_code),
            }),
            newer_number: newer(row.phone_since),
            newer_password,
            until,
            from: row.from,
        }))
    }

    /// Lifts the freeze, and takes away what the account got since: whoever changed the address would get in again by it.
    /// The version of the password afterwards. The code that froze it stays good where the password alone has lifted that,
    /// which may have been the thief, who knows it.
    pub(super) async fn lift(
        &self,
        tx: &mut Tx,
        account: &str,
        by: FreezeEndedBy,
        now: Micros,
    ) -> Result<i64, DbError> {
        const FORGET: [&str; 4] = [
            "DELETE FROM passkeys WHERE account = $1 AND created_at > $2",
            "DELETE FROM totp WHERE account = $1 AND confirmed_at > $2",
            "DELETE FROM recovery_codes WHERE account = $1 AND handed_out_at > $2",
            "DELETE FROM account_emails WHERE account = $1 AND since > $2",
        ];
        const CODES: &str = "DELETE FROM freeze_codes WHERE account = $1 AND expires_at > $2";
        const LIFT: &str = "UPDATE accounts SET frozen_at = NULL, frozen_from = NULL,
            password_hash = CASE WHEN $2 = 1 THEN NULL ELSE password_hash END,
            password_version = password_version + $2,
            phone = CASE WHEN $3 = 1 THEN NULL ELSE phone END,
            phone_since = CASE WHEN $3 = 1 THEN NULL ELSE phone_since END
            WHERE id = $1 RETURNING password_version";
        // Before its address is: they are found by it.
        void_codes(tx, account, now).await?;
        for sql in FORGET {
            execute!(in tx => query(sql).bind(account).bind(self.until.0))?;
        }
        for sql in END_WITHOUT_FACTOR {
            execute!(in tx => query(sql).bind(account))?;
        }
        // The code that froze it was written at `from`, and those of later addresses since.
        let code_stays_good = by == FreezeEndedBy::Password && !self.proved;
        let kept = if code_stays_good { self.from } else { self.from.minus(Duration::from_micros(1)) };
        execute!(in tx => query(CODES).bind(account).bind(kept.plus(LASTS).0))?;
        let loses_password = i64::from(match by {
            FreezeEndedBy::Password | FreezeEndedBy::NewPassword => false,
            FreezeEndedBy::Passkey => self.newer_password,
            // The thief knows that of then, too.
            FreezeEndedBy::Administrator => !self.password_alone,
        });
        Ok(on_tx!(tx, connection => query_scalar(LIFT).bind(account).bind(loses_password)
            .bind(i64::from(self.newer_number)).fetch_one(connection).await)?)
    }
}

/// What has lifted a freeze.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FreezeEndedBy {
    /// A sign-in with the password, and a factor if it had one.
    Password,
    /// A sign-in without the password.
    Passkey,
    /// A code to its number, with which another password is set.
    NewPassword,
    Administrator,
}

impl Accounts {
    /// Reads what a frozen account had before its address changed; None if the account is not frozen.
    pub async fn had_before(&self, account: AccountId) -> Result<Option<HadBefore>, DbError> {
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        HadBefore::of(&mut tx, &account.to_string(), None).await
    }

    /// Lifts the freeze, for an administrator. False if there is none.
    pub async fn unfreeze(&self, account: AccountId) -> Result<bool, DbError> {
        let id = account.to_string();
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        let Some(had) = HadBefore::of(&mut tx, &id, None).await? else { return Ok(false) };
        let now = tx.now(&self.clock).await?;
        had.lift(&mut tx, &id, FreezeEndedBy::Administrator, now).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// Whether what was shown at a sign-in lifts the freeze of an account.
pub(super) enum FreezeEnd {
    /// There is none any more. With the version of the password.
    Lifted(i64),
    /// A factor that it had before is asked for.
    FactorMissing,
    Frozen,
}

/// Lifts the freeze of an account if what was shown at a sign-in does that. The account is as it was when it was shown.
pub(super) async fn end_by_sign_in(
    (db, clock): (&Db, &Clock),
    account: &Account,
    by_password: bool,
    shown: Option<&FactorProof>,
) -> Result<FreezeEnd, DbError> {
    let id = account.id.to_string();
    let mut tx = db.begin_exclusive(DbLock::account(account.id.as_bytes())).await?;
    let Some(had) = HadBefore::of(&mut tx, &id, shown).await? else {
        return Ok(FreezeEnd::Lifted(account.password_version));
    };
    if by_password && had.factor && shown.is_none() {
        return Ok(FreezeEnd::FactorMissing);
    }
    let lifts = had.proved || by_password && had.password_alone;
    if !lifts || !is_as_it_was(&mut tx, account).await? {
        return Ok(FreezeEnd::Frozen);
    }
    let now = tx.now(clock).await?;
    let by = if by_password { FreezeEndedBy::Password } else { FreezeEndedBy::Passkey };
    let version = had.lift(&mut tx, &id, by, now).await?;
    tx.commit().await?;
    Ok(FreezeEnd::Lifted(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_people_type_it() {
        let code = FreezeCode::random(&Entropy::seeded(7));
        let shown = code.shown();
        assert_eq!(shown.len(), 19, "{shown}");
        for typed in [shown.clone(), shown.to_lowercase(), shown.replace('-', " "), format!(" {shown} ")] {
            assert_eq!(*FreezeCode::parse(&typed).unwrap().0, *code.0, "{typed}");
        }
        for typed in ["", "7K3M", &shown[1..], &format!("{shown}A"), &shown.replace(&shown[..1], "1")] {
            assert!(FreezeCode::parse(typed).is_none(), "{typed}");
        }
    }
}
