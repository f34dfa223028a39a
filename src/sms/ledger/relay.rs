//! What a relay tells about its codes, which it checks itself.

use std::time::Duration;

use sqlx::{query, query_scalar};

use super::rows::stored_purpose;
use super::{Ledger, Tx};
use crate::clock::Micros;
use crate::db::{DbError, on_db, on_tx};
use crate::sms::{MessageId, MessagePurpose};

/// A relay that has told nothing for this long does not tell outcomes any more.
const TELLS: Duration = Duration::from_secs(7 * 24 * 60 * 60);

impl Ledger {
    /// Notes how a code of the relay ended. False if the message is none of its.
    pub async fn note_outcome(
        &self,
        relay: &MessagePurpose,
        id: MessageId,
        used: bool,
    ) -> Result<bool, DbError> {
        const MESSAGE: &str = "SELECT purpose FROM sms_messages WHERE id = $1";
        const TOLD: &str = "INSERT INTO relay_outcomes (relay, told_at) VALUES ($1, $2)
            ON CONFLICT (relay) DO UPDATE SET told_at = excluded.told_at";
        const USED: &str = "UPDATE sms_messages SET entered_at = $1 WHERE id = $2 AND entered_at IS NULL";
        let now = self.now().await?;
        let purpose: Option<String> = on_db!(&self.db, pool => query_scalar(MESSAGE).bind(id.to_string())
            .fetch_optional(pool).await)?;
        let purpose = purpose.as_deref().map(stored_purpose).transpose()?;
        if purpose.as_ref() != Some(relay) {
            return Ok(false);
        }
        on_db!(&self.db, pool => query(TOLD).bind(&*relay.stored()).bind(now.0).execute(pool).await.map(drop))?;
        if used {
            on_db!(&self.db, pool => query(USED).bind(now.0).bind(id.to_string()).execute(pool).await.map(drop))?;
        }
        Ok(true)
    }
}

/// Whether the brake can judge by whether the message's code is entered: not if it is a relay's that never says so.
pub async fn is_judged(tx: &mut Tx, purpose: &MessagePurpose, now: Micros) -> Result<bool, DbError> {
    const SQL: &str = "SELECT COUNT(*) FROM relay_outcomes WHERE relay = $1 AND told_at > $2";
    match purpose {
        MessagePurpose::Own(_) | MessagePurpose::Verification(_) => Ok(true),
        MessagePurpose::Relayed(_) => {
            let told: i64 = on_tx!(tx, connection => query_scalar(SQL).bind(&*purpose.stored())
                .bind(now.minus(TELLS).0).fetch_one(connection).await)?;
            Ok(told > 0)
        }
    }
}
