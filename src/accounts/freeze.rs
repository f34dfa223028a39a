//! Freezing an account: whoever had its address before can stop what somebody else may be doing with it, and nothing more.
//!
//! A frozen account has no sessions. Whoever changed the address knew the password, so what the account had before decides:
//! a second factor that is older than the code lifts the freeze when it is proved at a sign-in, and so does a new password
//! by a code to a number that it had for a week by then. The password alone does only where there is nothing of both. An
//! administrator can always.

use std::time::Duration;

use data_encoding::BASE32_NOPAD;
use sqlx::{query, query_as, query_scalar};
use zeroize::Zeroizing;

use super::emails::void_codes;
use super::factors::END_WITHOUT_FACTOR;
use super::{Account, AccountId, Accounts, Emails, Factor, FactorProof, session_changes};
use crate::clock::Micros;
use crate::db::{Db, DbError, DbLock, Tx, execute, on_db, on_tx};
use crate::entropy::Entropy;
use crate::mail::{self, LetterKind};

/// How long the code works that an address gets when it is an account's no more.
const LASTS: Duration = Duration::from_secs(7 * 24 * 60 * 60);

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

    /// Uses a code up: every session of its account ends, and codes no longer open it. None if there is no such code.
    pub async fn freeze(&self, code: &FreezeCode) -> Result<Option<AccountId>, DbError> {
        const WHOSE: &str =
            "SELECT account, expires_at FROM freeze_codes WHERE code = $1 AND expires_at > $2";
        const USE: &str = "DELETE FROM freeze_codes WHERE code = $1";
        const FREEZE: &str = "UPDATE accounts SET frozen_at = $2, password_version = password_version + 1,
            frozen_from = CASE WHEN frozen_at IS NOT NULL AND frozen_from < $3 THEN frozen_from ELSE $3 END
            WHERE id = $1";
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
        if execute!(in &mut tx => query(USE).bind(&hash))? == 0 {
            return Ok(None);
        }
        if execute!(in &mut tx => query(FREEZE).bind(&id).bind(at.0).bind(from.0))? > 0 {
            for sql in END {
                execute!(in &mut tx => query(sql).bind(&id))?;
            }
            // They would set a password once the freeze is lifted.
            void_codes(&mut tx, &id, at).await?;
            mail::tell(&mut tx, &self.entropy, (&id, LetterKind::Frozen), at).await?;
            session_changes::record(&mut tx, &self.entropy, &id, at).await?;
        }
        tx.commit().await?;
        Ok(Some(account))
    }

    fn hash_of(&self, code: &FreezeCode) -> String {
        self.seal.hash_of_code(&code.0)
    }
}

/// Whether a frozen account has the number that it had for a week when its code was written. Of a row of `accounts`.
macro_rules! had_number {
    () => {
        "(phone IS NOT NULL
        AND COALESCE(phone_since, created_at) <= COALESCE(frozen_from, frozen_at) - 604800000000)"
    };
}
pub(super) use had_number;

/// What a frozen account had before its address changed.
pub struct HadBefore {
    pub factor: bool,
    pub number: bool,
    /// Its number of then is gone since, or was shortly before.
    lost_number: bool,
    /// The factor that is shown is one of these.
    proved: bool,
}

impl HadBefore {
    /// Reads it, and whether the factor that is shown is one of before; None if the account is not frozen.
    async fn of(db: &Db, account: AccountId, shown: Option<&FactorProof>) -> Result<Option<Self>, DbError> {
        const SQL: &str = concat!(
            "SELECT COALESCE(frozen_from, frozen_at), phone_lost_at, CAST(CASE WHEN ",
            had_number!(),
            " THEN 1 ELSE 0 END AS BIGINT),
            (SELECT MIN(p.created_at) FROM passkeys p WHERE p.account = $1),
            (SELECT p.created_at FROM passkeys p WHERE p.account = $1 AND p.id = $2),
            (SELECT COALESCE(t.confirmed_at, 0) FROM totp t WHERE t.account = $1 AND t.secret IS NOT NULL)
            FROM accounts WHERE id = $1 AND frozen_at IS NOT NULL"
        );
        type Time = Option<i64>;
        let credential = shown.and_then(|shown| shown.credential.as_deref());
        let row: Option<(i64, Time, i64, Time, Time, Time)> = on_db!(db, pool => query_as(SQL).bind(account.to_string()).bind(credential)
                .fetch_optional(pool).await)?;
        let Some((from, lost_at, number, first_passkey, passkey, app)) = row else { return Ok(None) };
        let older = |at: Option<i64>| at.is_some_and(|at| at <= from);
        let factor = older(first_passkey) || older(app);
        Ok(Some(Self {
            factor,
            number: number > 0,
            lost_number: lost_at.is_some_and(|at| Micros(at) > Micros(from).minus(LASTS)),
            proved: shown.is_some_and(|shown| match shown.factor {
                Factor::Passkey => older(passkey),
                Factor::Totp => older(app),
                // Only whoever proves a factor gets others.
                Factor::Recovery => factor,
            }),
        }))
    }
}

impl Accounts {
    /// Reads what a frozen account had before its address changed; None if the account is not frozen.
    pub async fn had_before(&self, account: AccountId) -> Result<Option<HadBefore>, DbError> {
        HadBefore::of(&self.db, account, None).await
    }
}

/// Why a sign-in begins no session of a frozen account.
pub(super) enum FreezeRefusal {
    /// A factor that it had before is asked for.
    FactorMissing,
    Frozen,
}

/// Why what was shown begins no session of a frozen account; None if it lifts the freeze.
pub(super) async fn refuses(
    db: &Db,
    account: AccountId,
    by_password: bool,
    shown: Option<&FactorProof>,
) -> Result<Option<FreezeRefusal>, DbError> {
    let Some(had) = HadBefore::of(db, account, shown).await? else { return Ok(None) };
    let nothing = !had.factor && !had.number && !had.lost_number;
    Ok(match by_password {
        _ if had.proved => None,
        true if had.factor && shown.is_none() => Some(FreezeRefusal::FactorMissing),
        true if nothing => None,
        _ => Some(FreezeRefusal::Frozen),
    })
}

/// Its owner has signed in. Nothing happens if it was frozen once more since.
pub(super) async fn lift(db: &Db, account: &Account) -> Result<(), DbError> {
    const SQL: &str = "UPDATE accounts SET frozen_at = NULL, frozen_from = NULL
        WHERE id = $1 AND password_version = $2";
    execute!(db => query(SQL).bind(account.id.to_string()).bind(account.password_version))?;
    Ok(())
}

/// What a frozen account got since the code was written: its number takes it back, before it sets a password. Somebody
/// who changed the address would get in again by a factor or an address that he has added.
pub(super) async fn forget_newer(tx: &mut Tx, account: &str) -> Result<(), DbError> {
    const FROM: &str =
        "SELECT COALESCE(frozen_from, frozen_at) FROM accounts WHERE id = $1 AND frozen_at IS NOT NULL";
    const FORGET: [&str; 3] = [
        "DELETE FROM passkeys WHERE account = $1 AND created_at > $2",
        "DELETE FROM totp WHERE account = $1 AND confirmed_at > $2",
        "DELETE FROM account_emails WHERE account = $1 AND since >= $2",
    ];
    let from: Option<i64> =
        on_tx!(tx, connection => query_scalar(FROM).bind(account).fetch_optional(connection).await)?;
    let Some(from) = from else { return Ok(()) };
    for sql in FORGET {
        execute!(in tx => query(sql).bind(account).bind(from))?;
    }
    for sql in END_WITHOUT_FACTOR {
        execute!(in tx => query(sql).bind(account))?;
    }
    Ok(())
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
