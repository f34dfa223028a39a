//! The ledger: every admitted message, in SQL. It has the final decision, whatever the window store
//! remembers, and it stores the valid codes.

mod codes;
mod pages;
mod write;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use gatehouse_limiter::window::{self, GatheredVerdict, TimesLog};
use gatehouse_limiter::{Bucket, HitId, KeptHit, Limit, Refusal, SubjectKey};
use serde::Serialize;
use sqlx::{Row, query, query_as, query_scalar};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::brake::SmsBrakes;
use super::decide::BudgetShare;
use super::{MessageId, MessagePurpose, hex};
use crate::clock::{Clock, Micros};
use crate::db::{self, Db, DbError, execute, from_row, on_db};
use crate::entropy::Entropy;

pub use codes::{CurrentCode, Guesser, StoredVerification};
pub use pages::{LedgerCursor, LedgerEntry, LedgerFilter, LedgerPage};
pub use write::{MessageDraft, WriteResult};

#[derive(Clone)]
pub struct Ledger {
    pub(super) db: Db,
    /// This process's time, for what is not counted.
    pub(super) clock: Clock,
    pub(super) brakes: Arc<SmsBrakes>,
}

pub struct EarlierMessage {
    pub id: MessageId,
    pub state: MessageState,
    /// Codes were short: the answer does not say which were sent.
    pub short: bool,
    pub expires_in: Duration,
    pub hit: HitId,
    /// It is a verification that was approved, or whose code was entered at another: the answer is of no use.
    pub used_up: bool,
}

impl Ledger {
    pub fn new(db: Db, clock: Clock, entropy: Entropy) -> Self {
        Self { db, clock: clock.clone(), brakes: Arc::new(SmsBrakes::new(clock, entropy)) }
    }

    /// When a code for the number first came back to that program, by what the ledger keeps.
    pub async fn proven_since(&self, scope: &str, phone: SubjectKey) -> Result<Option<Micros>, DbError> {
        const SQL: &str = "SELECT MIN(entered_at) FROM sms_messages
            WHERE phone_key = $1 AND scope = $2 AND state <> 'refused' AND state <> 'withheld'";
        let at: Option<i64> = on_db!(&self.db, pool => query_scalar(SQL).bind(hex(&phone.0)).bind(scope)
            .fetch_one(pool).await)?;
        Ok(at.map(Micros))
    }

    /// The time that windows of messages are counted by.
    pub async fn now(&self) -> Result<Micros, DbError> {
        self.db.now(&self.clock).await
    }

    pub async fn earlier(&self, once: SubjectKey) -> Result<Option<EarlierMessage>, DbError> {
        let now = self.now().await?;
        let row: Option<EarlierRow> =
            on_db!(&self.db, pool => query_as(EARLIER).bind(hex(&once.0)).fetch_optional(pool).await)?;
        Ok(row.map(|row| EarlierMessage::read(row, now)).transpose()?.flatten())
    }

    pub async fn resend_after(&self, number: Bucket<'_>) -> Result<Duration, DbError> {
        Ok(wait(number.limit, &self.sent_to(number).await?, self.now().await?))
    }

    /// What the window store should have of a number: the messages to it, newest first, as many as its limit can need.
    pub async fn sent_to(&self, number: Bucket<'_>) -> Result<Vec<KeptHit>, DbError> {
        let now = self.now().await?;
        let rows: Vec<(i64, String)> = on_db!(&self.db, pool => query_as(SENT).bind(hex(&number.key.0))
            .bind(window::horizon(number.limit.rules(), now).0).bind(i64::from(number.limit.capacity())).fetch_all(pool).await)?;
        Ok(kept_hits(rows)?)
    }

    /// What the window store is rebuilt from: messages that count, newest first, later than `from` and after
    /// `position`.
    pub async fn hits(
        &self,
        from: Micros,
        position: &LedgerPosition,
        limit: u32,
    ) -> Result<Vec<HitRow>, DbError> {
        const SQL: &str =
            "SELECT created_at, id, phone_key, address_key, network_key, once_key, hit, block, share, purpose
            FROM sms_messages WHERE created_at > $1 AND (created_at, id) < ($2, $3) AND state <> 'refused'
            ORDER BY created_at DESC, id DESC LIMIT $4";
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(from.0).bind(position.at.0)
            .bind(&position.id).bind(i64::from(limit)).fetch_all(pool).await)?)
    }

    /// Up to when messages no longer count in a log, as administrators have said.
    pub async fn forgiven(&self) -> Result<HashMap<SubjectKey, Micros>, DbError> {
        const SQL: &str = "SELECT phone_key, up_to FROM sms_excuses";
        let rows: Vec<(String, i64)> = on_db!(&self.db, pool => query_as(SQL).fetch_all(pool).await)?;
        let parsed = |(log, up_to): (String, i64)| Ok((stored_key(&log)?, Micros(up_to)));
        Ok(rows.into_iter().map(parsed).collect::<Result<_, sqlx::Error>>()?)
    }

    /// Deletes at most `batch` messages from before that time, as many of our own pages that were withheld before
    /// `counted` (anybody causes those as fast as they solve challenges), as many expired codes and brakes, and as many
    /// wrong codes and askers that are older than `guess_window`, which nothing counts any more; returns the largest of
    /// these counts. Less than a batch means that none are left.
    pub async fn purge(
        &self,
        before: Micros,
        counted: Micros,
        guess_window: Duration,
        batch: u32,
    ) -> Result<u64, DbError> {
        const MESSAGES: &str = "DELETE FROM sms_messages WHERE id IN (SELECT id FROM sms_messages
            WHERE created_at < $1 ORDER BY created_at LIMIT $2)";
        const WITHHELD: &str = "DELETE FROM sms_messages WHERE id IN (SELECT id FROM sms_messages
            WHERE state = 'withheld' AND scope = '' AND created_at < $1 ORDER BY created_at LIMIT $2)";
        const CODES: &str = "DELETE FROM sms_codes WHERE message IN (SELECT message FROM sms_codes
            WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
        const BRAKES: &str = "DELETE FROM sms_brakes WHERE id IN (SELECT id FROM sms_brakes
            WHERE ends_at < $1 ORDER BY ends_at LIMIT $2)";
        const EXCUSES: &str = "DELETE FROM sms_excuses WHERE phone_key IN (SELECT phone_key FROM sms_excuses
            WHERE up_to < $1 LIMIT $2)";
        const WRONG: &str = "DELETE FROM sms_guesses WHERE (at, hit) IN (SELECT at, hit FROM sms_guesses
            WHERE at <= $1 ORDER BY at LIMIT $2)";
        const ASKERS: &str = "DELETE FROM sms_askers WHERE phone_key IN (SELECT phone_key FROM sms_askers
            WHERE acts_until <= $1 ORDER BY acts_until LIMIT $2)";
        let now = self.now().await?;
        let over = now.minus(guess_window);
        let mut most = 0;
        for (sql, until) in [
            (MESSAGES, before),
            (WITHHELD, counted),
            (CODES, now),
            (BRAKES, before),
            (EXCUSES, before),
            (WRONG, over),
            (ASKERS, over),
        ] {
            let gone = execute!(&self.db => query(sql).bind(until.0).bind(i64::from(batch)))?;
            most = gone.max(most);
        }
        Ok(most)
    }
}

const SENT: &str = "SELECT created_at, hit FROM sms_messages WHERE phone_key = $1 AND created_at > $2
    AND created_at > COALESCE((SELECT up_to FROM sms_excuses WHERE phone_key = $1), 0) AND state <> 'refused' ORDER BY created_at DESC LIMIT $3";
/// It says, too, whether it is a verification whose code is used up.
const EARLIER: &str = "SELECT id, state, share, expires_at, hit,
    CAST(CASE WHEN substr(purpose, 1, 7) = 'verify:' AND (entered_at IS NOT NULL OR NOT EXISTS
        (SELECT 1 FROM sms_codes c WHERE c.phone_key = COALESCE(m.number_key, m.phone_key) AND c.purpose = m.purpose))
        THEN 1 ELSE 0 END AS BIGINT) FROM sms_messages m WHERE once_key = $1";

fn kept_hits(rows: Vec<(i64, String)>) -> Result<Vec<KeptHit>, sqlx::Error> {
    rows.into_iter().map(|(at, hit)| Ok(KeptHit { at: Micros(at), id: stored_hit(&hit)? })).collect()
}

fn evaluate(limit: &Limit, sent: &[KeptHit], now: Micros, solved: bool) -> Option<Refusal> {
    let times: Vec<_> = sent.iter().map(|kept| kept.at).collect();
    let mut gathered = GatheredVerdict::default();
    gathered.add(0, limit, &TimesLog { times: &times, holds: 0 }, now, solved);
    gathered.refused()
}

/// Until the rules that no challenge lifts admit one more.
fn wait(limit: &Limit, sent: &[KeptHit], now: Micros) -> Duration {
    evaluate(limit, sent, now, true).map_or(Duration::ZERO, |refusal| refusal.retry_after)
}

type EarlierRow = (MessageId, MessageState, BudgetShare, i64, String, i64);

impl EarlierMessage {
    /// Reads an earlier message; None if the name is free again: it expires with its code.
    fn read(row: EarlierRow, now: Micros) -> Result<Option<Self>, sqlx::Error> {
        let (id, state, share, expires_at, hit, used_up) = row;
        let known = now < Micros(expires_at);
        let earlier = Self {
            hit: stored_hit(&hit)?,
            used_up: used_up != 0,
            id,
            state,
            short: share != BudgetShare::Open,
            expires_in: Micros(expires_at).since(now),
        };
        Ok(known.then_some(earlier))
    }
}

/// The most of a gateway's own words that is stored.
const LONGEST_WORDS: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray, Serialize)]
#[strum(serialize_all = "lowercase", const_into_str)]
#[serde(rename_all = "lowercase")]
pub enum MessageState {
    /// It was admitted, and its gateway has not answered yet. It counts, and becomes unknown if its process
    /// dies.
    Pending,
    Accepted,
    /// It was not sent, and its number's limit does not count it.
    Refused,
    /// It may have been sent. It counts, and is never sent again.
    Unknown,
    /// Codes were short, and it was not sent: the answer was the same as for any other number.
    Withheld,
}

crate::db::text_column!(MessageState, text => text.parse::<Self>()?);

pub type LedgerPosition = db::RowCursor<String>;

impl LedgerPosition {
    pub const NEWEST: Self = Self { at: Micros(i64::MAX), id: String::new() };
}

#[derive(Debug, Clone)]
pub struct HitRow {
    pub position: LedgerPosition,
    pub phone: SubjectKey,
    pub address: SubjectKey,
    pub network: SubjectKey,
    pub once: Option<SubjectKey>,
    pub hit: HitId,
    pub block: String,
    pub share: BudgetShare,
    pub purpose: MessagePurpose,
}

from_row!(HitRow, row => {
    let text = |column| row.try_get::<String, &'static str>(column);
    let once: Option<String> = row.try_get("once_key")?;
        HitRow {
        position: LedgerPosition { at: Micros(row.try_get("created_at")?), id: text("id")? },
        phone: stored_key(&text("phone_key")?)?,
        address: stored_key(&text("address_key")?)?,
        network: stored_key(&text("network_key")?)?,
        once: once.as_deref().map(stored_key).transpose()?,
        hit: stored_hit(&text("hit")?)?,
        block: text("block")?,
        share: row.try_get("share")?,
        purpose: row.try_get("purpose")?,
        }
});

fn unhex<const N: usize>(text: &str) -> Result<[u8; N], sqlx::Error> {
    let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| sqlx::Error::Decode("a column holds hexadecimal digits of the wrong length".into()))
}

pub fn stored_key(text: &str) -> Result<SubjectKey, sqlx::Error> {
    unhex(text).map(SubjectKey)
}

pub fn stored_hit(text: &str) -> Result<HitId, sqlx::Error> {
    unhex(text).map(HitId)
}

pub fn short(words: &str) -> &str {
    let end = words.char_indices().nth(LONGEST_WORDS).map_or(words.len(), |(at, _)| at);
    &words[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_from_their_text() {
        let key = SubjectKey([0x0f, 0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 255]);
        assert_eq!(stored_key(&hex(&key.0)).unwrap(), key);
        for text in ["", "0f", "+f0102030405060708090a0b0c0d0e0f", &"é".repeat(16)] {
            assert!(stored_key(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn words_are_cut_between_letters() {
        assert_eq!(short(&"短".repeat(300)).chars().count(), LONGEST_WORDS);
        assert_eq!(short("brief"), "brief");
    }
}
