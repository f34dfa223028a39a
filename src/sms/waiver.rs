//! Lets somebody in again on behalf of an administrator: earlier messages no longer count in that log.

use sqlx::query;

use super::ledger::Ledger;
use super::ledger::hex;
use super::watched::PAGES;
use super::{Phone, SmsCodes, SmsError};
use crate::config::{LimitName, LiveSettings};
use crate::db::{DbError, on_db};
use crate::throttle::{Limit, SubjectKey};

impl SmsCodes {
    /// Messages up to now no longer count for this subject of a limit. Everything else that they count for is
    /// unchanged: other limits and the brake.
    pub async fn waive(&self, limit: &Limit, subject: &[u8]) -> Result<(), SmsError> {
        let key = self.0.budgets.limiter().bucket(limit, subject).key;
        Ok(self.0.ledger.waive(key).await?)
    }

    /// Of a limit whose `captcha` rules are for our own pages alone: the subject that counts them.
    pub fn beside(&self, limit: Option<LimitName>) -> Option<&'static [u8]> {
        (limit == Some(LimitName::SmsTotal)).then_some(PAGES)
    }

    /// Wrong guesses up to now no longer count for the number's valid codes of that program, of ours if there is none;
    /// nor in these logs.
    pub async fn forget_guesses(
        &self,
        live: &LiveSettings,
        phone: &Phone,
        program: Option<&str>,
        logs: &[SubjectKey],
    ) -> Result<(), SmsError> {
        Ok(self.0.ledger.forget_guesses(self.phone_key(live, phone), program, logs).await?)
    }
}

impl Ledger {
    async fn waive(&self, log: SubjectKey) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO sms_excuses (phone_key, up_to) VALUES ($1, $2)
            ON CONFLICT (phone_key) DO UPDATE SET up_to = excluded.up_to
            WHERE sms_excuses.up_to < excluded.up_to";
        let now = self.now().await?;
        on_db!(self.db(), pool => query(SQL).bind(hex(&log.0)).bind(now.0).execute(pool).await.map(drop))?;
        Ok(())
    }
}
