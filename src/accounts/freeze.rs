//! Freezing an account: whoever had its address before can stop what somebody else may be doing with it, and nothing more.
//! A frozen account has no sessions, and no code opens it or sets a password, until its owner signs in with a passkey, or with
//! the password and the second factor, if there is one, or an administrator unlocks it.

use std::time::Duration;

use data_encoding::BASE32_NOPAD;
use sqlx::{query, query_scalar};
use zeroize::Zeroizing;

use super::{AccountId, Emails, session_changes};
use crate::clock::Micros;
use crate::db::{DbError, DbLock, Tx, execute, on_db};
use crate::entropy::Entropy;
use crate::mail::{LetterKind, NoticeRule, tell};

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

    /// Uses a code up: every session of its account ends, and codes no longer open it. False if there is no such code.
    pub async fn freeze(&self, code: &FreezeCode) -> Result<Option<AccountId>, DbError> {
        const WHOSE: &str = "SELECT account FROM freeze_codes WHERE code = $1 AND expires_at > $2";
        const USE: &str = "DELETE FROM freeze_codes WHERE code = $1";
        const FREEZE: &str = "UPDATE accounts SET frozen_at = $2, password_version = password_version + 1
            WHERE id = $1 AND disabled_at IS NULL";
        const END: [&str; 4] = [
            "DELETE FROM sessions WHERE account = $1",
            "DELETE FROM half_sign_ins WHERE account = $1",
            "DELETE FROM device_failures WHERE account = $1",
            "DELETE FROM trusted_devices WHERE account = $1",
        ];
        let (hash, at) = (self.hash_of(code), self.db.now(&self.clock).await?);
        let whose: Option<AccountId> = on_db!(&self.db, pool => query_scalar(WHOSE).bind(&hash).bind(at.0)
            .fetch_optional(pool).await)?;
        let Some(account) = whose else { return Ok(None) };
        let id = account.to_string();
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        if execute!(in &mut tx => query(USE).bind(&hash))? == 0 {
            return Ok(None);
        }
        if execute!(in &mut tx => query(FREEZE).bind(&id).bind(at.0))? > 0 {
            for sql in END {
                execute!(in &mut tx => query(sql).bind(&id))?;
            }
            tell(&mut tx, &self.entropy, (&id, LetterKind::Frozen), None, NoticeRule::CRITICAL, at).await?;
            session_changes::record(&mut tx, &self.entropy, &id, at).await?;
        }
        tx.commit().await?;
        Ok(Some(account))
    }

    /// The owner has signed in with the password, and the second factor if there is one.
    pub async fn lift(&self, account: AccountId) -> Result<(), DbError> {
        const SQL: &str = "UPDATE accounts SET frozen_at = NULL WHERE id = $1 AND frozen_at IS NOT NULL";
        execute!(&self.db => query(SQL).bind(account.to_string()))?;
        Ok(())
    }

    fn hash_of(&self, code: &FreezeCode) -> String {
        self.seal.hash_of_code(&code.0)
    }
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
