//! Lets a number in again on behalf of an administrator: earlier messages to it no longer count.

use sqlx::query;

use super::ledger::Ledger;
use super::ledger::hex;
use super::{Phone, SmsCodes, SmsError};
use crate::config::LiveSettings;
use crate::db::{DbError, on_db};
use crate::throttle::SubjectKey;

impl SmsCodes {
    /// Messages up to now no longer count for the number's own limit. Everything else that they count for is
    /// unchanged: the prefix, the requester, the total and the brake.
    pub async fn waive(&self, live: &LiveSettings, phone: &Phone) -> Result<(), SmsError> {
        Ok(self.0.ledger.waive(self.phone_key(live, phone)).await?)
    }

    /// Wrong guesses up to now no longer count for the number's valid codes of that program; of ours if there is none.
    pub async fn forget_tries(
        &self,
        live: &LiveSettings,
        phone: &Phone,
        program: Option<&str>,
    ) -> Result<(), SmsError> {
        Ok(self.0.ledger.forget_tries(self.phone_key(live, phone), program).await?)
    }
}

impl Ledger {
    async fn waive(&self, phone: SubjectKey) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO sms_excuses (phone_key, up_to) VALUES ($1, $2)
            ON CONFLICT (phone_key) DO UPDATE SET up_to = excluded.up_to
            WHERE sms_excuses.up_to < excluded.up_to";
        let now = self.now().await?;
        on_db!(self.db(), pool => query(SQL).bind(hex(&phone.0)).bind(now.0).execute(pool).await.map(drop))?;
        Ok(())
    }
}
