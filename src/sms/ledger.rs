//! The ledger: every admitted message, in SQL. It has the final decision, whatever the window store
//! remembers, and it stores the valid codes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{query, query_as, query_scalar};

use super::brake::{BrakedPrefix, RememberedBrakes};
use super::share::BudgetShare;
use super::{MessageId, Phone};
use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, Tx, on_db};
use crate::entropy::Entropy;
use crate::throttle::window::{self, GatheredVerdict, WindowLog};
use crate::throttle::{HitId, KeptHit, Limit, Refusal, SubjectKey};

mod codes;
mod guesses;
mod pages;
mod relay;
mod rows;
mod write;

pub use codes::{AskedBy, StoredVerification};
pub use pages::{LedgerCursor, LedgerEntry, LedgerFilter, LedgerPage};
pub(super) use rows::hex;
pub use rows::{HitRow, LedgerPosition, MessageState};
pub use write::{MessageDraft, MessageOutcome, WhyNot, WriteResult};

/// The ledger over its database. Clones share it.
#[derive(Clone)]
pub struct Ledger {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    brakes: Arc<RememberedBrakes>,
}

/// A message that an earlier request with the same name sent.
pub struct EarlierMessage {
    pub id: MessageId,
    pub state: MessageState,
    /// Codes were short: the answer does not say which were sent.
    pub short: bool,
    pub expires_in: Duration,
    /// What counts it in the window store.
    pub hit: HitId,
    /// It is a verification that was approved, or whose code was entered at another: the answer is of no use.
    pub used_up: bool,
}

impl Ledger {
    pub fn new(db: Db, clock: Clock, entropy: Entropy) -> Self {
        Self { db, clock, entropy, brakes: Arc::new(RememberedBrakes::new()) }
    }

    /// What the number's prefixes ask, if this process met it a moment ago.
    pub fn known_brake(&self, scope: &str, phone: &Phone) -> Option<BrakedPrefix> {
        self.brakes.recall(scope, phone, self.clock.now())
    }

    /// When a code for the number first came back to that program, by what the ledger keeps.
    pub async fn proven_since(&self, scope: &str, phone: SubjectKey) -> Result<Option<Micros>, DbError> {
        const SQL: &str = "SELECT MIN(entered_at) FROM sms_messages
            WHERE phone_key = $1 AND scope = $2 AND state <> 'refused' AND state <> 'withheld'";
        let at: Option<i64> = on_db!(&self.db, pool => query_scalar(SQL).bind(hex(&phone.0)).bind(scope)
            .fetch_one(pool).await)?;
        Ok(at.map(Micros))
    }

    pub(super) const fn db(&self) -> &Db {
        &self.db
    }

    /// This process's time, for what is not counted.
    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time that windows of messages are counted by.
    pub async fn now(&self) -> Result<Micros, DbError> {
        self.db.now(&self.clock).await
    }

    /// The message that an earlier request with this name sent.
    pub async fn earlier(&self, once: SubjectKey) -> Result<Option<EarlierMessage>, DbError> {
        let now = self.now().await?;
        let row: Option<EarlierRow> =
            on_db!(&self.db, pool => query_as(EARLIER).bind(hex(&once.0)).fetch_optional(pool).await)?;
        Ok(row.map(|row| EarlierMessage::read(row, now)).transpose()?.flatten())
    }

    /// How long until the number's rules admit the next message.
    pub async fn resend_after(&self, phone: SubjectKey, limit: &Limit) -> Result<Duration, DbError> {
        let now = self.now().await?;
        let times: Vec<i64> = on_db!(&self.db, pool => query_scalar(SENT).bind(hex(&phone.0))
            .bind(horizon(limit, now).0).bind(i64::from(limit.capacity())).fetch_all(pool).await)?;
        Ok(wait(limit, &SentTimes(times.into_iter().map(Micros).collect()), now))
    }

    /// What the window store should have of a number.
    pub async fn sent_to(&self, phone: SubjectKey, limit: &Limit) -> Result<Vec<KeptHit>, DbError> {
        const SQL: &str = "SELECT created_at, hit FROM sms_messages WHERE phone_key = $1 AND created_at > $2
            AND created_at > COALESCE((SELECT up_to FROM sms_excuses WHERE phone_key = $1), 0) AND state <> 'refused' ORDER BY created_at DESC LIMIT $3";
        let now = self.now().await?;
        let rows: Vec<(i64, String)> = on_db!(&self.db, pool => query_as(SQL).bind(hex(&phone.0))
            .bind(horizon(limit, now).0).bind(i64::from(limit.capacity())).fetch_all(pool).await)?;
        let kept = |(at, hit): (i64, String)| Ok(KeptHit { at: Micros(at), id: rows::stored_hit(&hit)? });
        Ok(rows.into_iter().map(kept).collect::<Result<_, sqlx::Error>>()?)
    }

    /// What the window store is rebuilt from: messages that count, newest first, later than `from` and after
    /// `place`.
    pub async fn hits(
        &self,
        from: Micros,
        place: &LedgerPosition,
        limit: u32,
    ) -> Result<Vec<HitRow>, DbError> {
        const SQL: &str =
            "SELECT created_at, id, phone_key, address_key, network_key, once_key, hit, block, share, purpose
            FROM sms_messages WHERE created_at > $1 AND (created_at, id) < ($2, $3) AND state <> 'refused'
            ORDER BY created_at DESC, id DESC LIMIT $4";
        let rows: Vec<rows::RawHit> = on_db!(&self.db, pool => query_as(SQL).bind(from.0).bind(place.at.0)
            .bind(&place.id).bind(i64::from(limit)).fetch_all(pool).await)?;
        Ok(rows.into_iter().map(rows::RawHit::parse).collect::<Result<_, _>>()?)
    }

    /// Up to when messages no longer count in a log, as administrators have said.
    pub async fn waived(&self) -> Result<HashMap<SubjectKey, Micros>, DbError> {
        const SQL: &str = "SELECT phone_key, up_to FROM sms_excuses";
        let rows: Vec<(String, i64)> = on_db!(&self.db, pool => query_as(SQL).fetch_all(pool).await)?;
        let parsed = |(log, up_to): (String, i64)| Ok((rows::stored_key(&log)?, Micros(up_to)));
        Ok(rows.into_iter().map(parsed).collect::<Result<_, sqlx::Error>>()?)
    }

    /// Deletes at most `batch` messages from before that time, and as many expired codes and brakes; returns
    /// the largest of these counts. Less than a batch means that none are left.
    pub async fn purge(&self, before: Micros, batch: u32) -> Result<u64, DbError> {
        const MESSAGES: &str = "DELETE FROM sms_messages WHERE id IN (SELECT id FROM sms_messages
            WHERE created_at < $1 ORDER BY created_at LIMIT $2)";
        const CODES: &str = "DELETE FROM sms_codes WHERE message IN (SELECT message FROM sms_codes
            WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
        const BRAKES: &str = "DELETE FROM sms_brakes WHERE id IN (SELECT id FROM sms_brakes
            WHERE ends_at < $1 ORDER BY ends_at LIMIT $2)";
        let now = self.now().await?;
        const EXCUSES: &str = "DELETE FROM sms_excuses WHERE phone_key IN (SELECT phone_key FROM sms_excuses
            WHERE up_to < $1 LIMIT $2)";
        let mut most = 0;
        for (sql, until) in [(MESSAGES, before), (CODES, now), (BRAKES, before), (EXCUSES, before)] {
            let gone = on_db!(&self.db, pool => query(sql).bind(until.0).bind(i64::from(batch)).execute(pool)
                .await.map(|done| done.rows_affected()))?;
            most = gone.max(most);
        }
        Ok(most)
    }
}

const SENT: &str = "SELECT created_at FROM sms_messages WHERE phone_key = $1 AND created_at > $2
    AND created_at > COALESCE((SELECT up_to FROM sms_excuses WHERE phone_key = $1), 0) AND state <> 'refused' ORDER BY created_at DESC LIMIT $3";
/// Also whether it is a verification whose code is used up.
const EARLIER: &str = "SELECT id, state, share, expires_at, hit,
    CAST(CASE WHEN substr(purpose, 1, 7) = 'verify:' AND (entered_at IS NOT NULL OR NOT EXISTS
        (SELECT 1 FROM sms_codes c WHERE c.phone_key = m.phone_key AND c.purpose = m.purpose))
        THEN 1 ELSE 0 END AS BIGINT) FROM sms_messages m WHERE once_key = $1";

/// When messages went to a number, newest first: as many as its limit can need.
struct SentTimes(Vec<Micros>);

impl WindowLog for SentTimes {
    fn nth_newest(&self, n: u32) -> Option<Micros> {
        self.0.get((n as usize).checked_sub(1)?).copied()
    }

    fn newer_than(&self, start: Micros) -> u32 {
        self.0.iter().take_while(|&&at| at > start).count() as u32
    }

    fn holds(&self) -> u32 {
        0
    }
}

fn horizon(limit: &Limit, now: Micros) -> Micros {
    limit.rules().iter().map(|rule| window::start(&rule.span, now)).min().unwrap_or(now)
}

fn judge(limit: &Limit, sent: &SentTimes, now: Micros, solved: bool) -> Option<Refusal> {
    let mut gathered = GatheredVerdict::default();
    gathered.add(0, limit, sent, now, solved);
    gathered.refused()
}

/// Until the rules that no challenge lifts admit one more.
fn wait(limit: &Limit, sent: &SentTimes, now: Micros) -> Duration {
    judge(limit, sent, now, true).map_or(Duration::ZERO, |refusal| refusal.retry_after)
}

type EarlierRow = (String, String, String, i64, String, i64);

impl EarlierMessage {
    /// None if the name is free again: it expires with its code.
    fn read(row: EarlierRow, now: Micros) -> Result<Option<Self>, sqlx::Error> {
        let (id, state, share, expires_at, hit, used_up) = row;
        let known = now < Micros(expires_at);
        let earlier = Self {
            hit: rows::stored_hit(&hit)?,
            used_up: used_up != 0,
            id: rows::stored_id(&id)?,
            state: MessageState::stored(&state)?,
            short: rows::stored_share(&share)? != BudgetShare::Open,
            expires_in: Micros(expires_at).since(now),
        };
        Ok(known.then_some(earlier))
    }
}
