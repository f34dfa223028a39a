//! Secrets of apps that were sealed under another key file, sealed anew under this one.

use std::collections::BTreeSet;

use sqlx::{query, query_as, query_scalar};

use super::{Factors, SecretSeal};
use crate::accounts::{AccountId, Username};
use crate::db::{DbError, execute, on_db};
use crate::secret::MasterKey;

/// Secrets that are sealed in one transaction.
const BATCH: i64 = 100;

/// What became of the secrets there are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Resealed {
    pub sealed: u64,
    /// Under this key file already: by a run before, or set up since.
    pub kept: u64,
    /// Accounts whose recovery codes are gone: they are keyed hashes, which nobody can hash anew.
    pub without_codes: u64,
    /// Whose secret opens under neither.
    pub lost: Vec<Username>,
}

impl Factors {
    /// Opens secrets under `old` and seals them under the key of this one. A run that was interrupted leaves each
    /// secret under one of the two, so that the next one goes on.
    pub async fn reseal(&self, old: &MasterKey) -> Result<Resealed, DbError> {
        const NEXT: &str =
            "SELECT t.account, t.secret, a.login FROM totp t JOIN accounts a ON a.id = t.account
            WHERE t.secret IS NOT NULL AND t.account > $1 ORDER BY t.account LIMIT $2";
        let old = seal_of(old);
        let (mut done, mut after) = (Resealed::default(), String::new());
        loop {
            let batch: Vec<(AccountId, String, Username)> = on_db!(&self.db, pool => query_as(NEXT).bind(&after)
                .bind(BATCH).fetch_all(pool).await)?;
            let Some((last, ..)) = batch.last() else { break };
            after = last.to_string();
            self.reseal_batch(&old, batch, &mut done).await?;
        }
        if done.sealed > 0 {
            done.without_codes += self.void_others().await?;
        }
        Ok(done)
    }

    /// Recovery codes of accounts that have passkeys and no app are hashed under the old file, too.
    async fn void_others(&self) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM recovery_codes
            WHERE account NOT IN (SELECT account FROM totp WHERE secret IS NOT NULL) RETURNING account";
        let voided: Vec<String> = on_db!(&self.db, pool => query_scalar(SQL).fetch_all(pool).await)?;
        Ok(voided.into_iter().collect::<BTreeSet<_>>().len() as u64)
    }

    async fn reseal_batch(
        &self,
        old: &SecretSeal,
        batch: Vec<(AccountId, String, Username)>,
        done: &mut Resealed,
    ) -> Result<(), DbError> {
        // What was set up anew meanwhile is left as it is.
        const SEAL: &str = "UPDATE totp SET secret = $1, failures = 0 WHERE account = $2 AND secret = $3";
        const VOID: &str = "DELETE FROM recovery_codes WHERE account = $1";
        let mut tx = self.db.begin().await?;
        let (mut sealed, mut without_codes) = (0, 0);
        for (account, before, login) in batch {
            if self.seal.open(account, &before).is_some() {
                done.kept += 1;
                continue;
            }
            let Some(secret) = old.open(account, &before) else {
                done.lost.push(login);
                continue;
            };
            let (id, after) = (account.to_string(), self.seal.seal(account, &secret, &self.entropy));
            let changed = execute!(in &mut tx => query(SEAL).bind(after).bind(&id).bind(before))?;
            if changed == 0 {
                continue;
            }
            sealed += changed;
            let codes = execute!(in &mut tx => query(VOID).bind(&id))?;
            without_codes += u64::from(codes > 0);
        }
        tx.commit().await?;
        done.sealed += sealed;
        done.without_codes += without_codes;
        Ok(())
    }
}

pub(super) fn seal_of(master: &MasterKey) -> SecretSeal {
    SecretSeal::new(master.derive("factor.seal"))
}
