//! Wrong codes, as long as a window may count them: the windows of guesses are rebuilt from them. Each is written
//! before its answer.

use std::time::Duration;

use sqlx::{query, query_as};

use super::rows::{LedgerPosition, hex, stored_hit, stored_key};
use super::{KeptHit, Ledger, Micros, SubjectKey};
use crate::db::{DbError, on_db};
use crate::throttle::HitId;

/// A wrong code, and the log that counts it.
pub struct WrongGuess {
    pub place: LedgerPosition,
    pub log: SubjectKey,
    pub kept: KeptHit,
}

impl Ledger {
    pub async fn note_wrong(&self, log: SubjectKey, hit: HitId) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO sms_guesses (at, hit, log) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        let now = self.now().await?;
        on_db!(&self.db, pool => query(SQL).bind(now.0).bind(hex(&hit.0)).bind(hex(&log.0)).execute(pool).await
            .map(drop))?;
        Ok(())
    }

    /// Those later than `from` and after `place`, newest first.
    pub async fn wrong_guesses(
        &self,
        from: Micros,
        place: &LedgerPosition,
        limit: u32,
    ) -> Result<Vec<WrongGuess>, DbError> {
        const SQL: &str = "SELECT at, hit, log FROM sms_guesses WHERE at > $1 AND (at, hit) < ($2, $3)
            ORDER BY at DESC, hit DESC LIMIT $4";
        let rows: Vec<(i64, String, String)> = on_db!(&self.db, pool => query_as(SQL).bind(from.0)
            .bind(place.at.0).bind(&place.id).bind(i64::from(limit)).fetch_all(pool).await)?;
        let read = |(at, hit, log): (i64, String, String)| {
            let (at, log) = (Micros(at), stored_key(&log)?);
            let kept = KeptHit { at, id: stored_hit(&hit)? };
            Ok(WrongGuess { place: LedgerPosition { at, id: hit }, log, kept })
        };
        Ok(rows.into_iter().map(read).collect::<Result<_, sqlx::Error>>()?)
    }

    /// The logs were cleared.
    pub(super) async fn forget_wrong(&self, logs: &[SubjectKey]) -> Result<(), DbError> {
        const SQL: &str = "DELETE FROM sms_guesses WHERE log = $1";
        for log in logs {
            on_db!(&self.db, pool => query(SQL).bind(hex(&log.0)).execute(pool).await.map(drop))?;
        }
        Ok(())
    }

    /// Deletes at most `batch` wrong codes that no window counts, and as many browsers that requested codes; returns
    /// the larger count. `window` is how far back guesses count.
    pub async fn purge_guesses(&self, window: Duration, batch: u32) -> Result<u64, DbError> {
        const WRONG: &str = "DELETE FROM sms_guesses WHERE (at, hit) IN (SELECT at, hit FROM sms_guesses
            WHERE at <= $1 ORDER BY at LIMIT $2)";
        const ASKERS: &str = "DELETE FROM sms_askers WHERE phone_key IN (SELECT phone_key FROM sms_askers
            WHERE acts_until <= $1 ORDER BY acts_until LIMIT $2)";
        let over = self.now().await?.minus(window);
        let mut most = 0;
        for sql in [WRONG, ASKERS] {
            let gone = on_db!(&self.db, pool => query(sql).bind(over.0).bind(i64::from(batch)).execute(pool)
                .await.map(|done| done.rows_affected()))?;
            most = gone.max(most);
        }
        Ok(most)
    }
}
