//! The ledger: every message that was admitted, in SQL. It decides for good, whatever the window store
//! remembers, and it holds the codes that are good now.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{query, query_as, query_scalar};

use super::brake::{self, Braked, Remembered};
use super::budgets::Keys;
use super::{Delivery, MessageId, Phone, Purpose, once};
use crate::clock::{Clock, Micros};
use crate::config::Brake;
use crate::db::{Db, DbError, Tx, on_db, on_tx};
use crate::entropy::Entropy;
use crate::throttle::window::{self, Gathered, Log};
use crate::throttle::{HitId, Key, Limit, Refusal};

mod pages;
mod rows;

pub use pages::{Cursor, Entry, Filter, Page};
use rows::hex;
pub use rows::{HitRow, Place, State};

/// The ledger over its database. Clones share it.
#[derive(Clone)]
pub struct Ledger {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    brakes: Arc<Remembered>,
}

/// A message about to be sent.
pub struct Draft<'a> {
    pub id: MessageId,
    pub keys: &'a Keys,
    pub hit: HitId,
    pub phone: &'a Phone,
    pub purpose: Purpose,
    pub gateway: &'static str,
    pub code_hash: &'a str,
    pub code_ttl: Duration,
    /// A challenge was solved with it.
    pub solved: bool,
    /// The number's own limit.
    pub limit: &'a Limit,
    pub brake: &'a Brake,
}

/// What the ledger says of a draft.
pub enum Written {
    /// It stands, and its code is the number's code for its purpose. `at` is the ledger's time.
    New {
        at: Micros,
        resend_after: Duration,
    },
    Not(WhyNot),
}

/// Why a draft was not written.
pub enum WhyNot {
    /// The same request stands already.
    Repeated(Earlier),
    /// The number's rules, which the ledger knows better than the window store.
    Refused(Refusal),
    Braked(Braked),
}

/// A message that was sent by a request of the same name.
pub struct Earlier {
    pub state: State,
    pub expires_in: Duration,
}

/// The code of a number for a purpose.
pub struct Current {
    pub message: MessageId,
    pub code_hash: String,
    pub expires_at: Micros,
}

impl Ledger {
    pub fn new(db: Db, clock: Clock, entropy: Entropy) -> Self {
        Self { db, clock, entropy, brakes: Arc::new(Remembered::new()) }
    }

    /// How long the number is braked, where this process ran into that brake a moment ago.
    pub fn known_brake(&self, phone: &Phone) -> Option<Duration> {
        self.brakes.recall(phone, self.clock.now())
    }

    /// The time that windows of messages are counted by.
    pub async fn now(&self) -> Result<Micros, DbError> {
        self.db.now(&self.clock).await
    }

    /// Judges a draft and writes it, in one step that nothing else writes beside. A brake that it trips
    /// stays, though the draft is refused.
    pub async fn write(&self, draft: &Draft<'_>) -> Result<Written, DbError> {
        let mut tx = self.db.begin_exclusive().await?;
        let mut now = tx.now(&self.clock).await?;
        if let Some(once) = draft.keys.once
            && let Some(earlier) = earlier(&mut tx, once, now).await?
        {
            return Ok(Written::Not(WhyNot::Repeated(earlier)));
        }
        let mut sent = sent_to(&mut tx, draft.keys.phone, draft.limit, now).await?;
        // Never older than the newest, whatever the clock says.
        now = sent.0.first().map_or(now, |&newest| newest.max(now));
        if let Some(refusal) = judge(draft.limit, &sent, now, draft.solved) {
            return Ok(Written::Not(WhyNot::Refused(refusal)));
        }
        let context = brake::Context { remembered: &self.brakes, clock: &self.clock, entropy: &self.entropy };
        if let Some(braked) = brake::judge(&mut tx, draft.phone, draft.brake, now, context).await? {
            tx.commit().await?;
            return Ok(Written::Not(WhyNot::Braked(braked)));
        }
        insert(&mut tx, draft, now).await?;
        tx.commit().await?;
        sent.0.insert(0, now);
        Ok(Written::New { at: now, resend_after: wait(draft.limit, &sent, now) })
    }

    /// Writes what became of a message. Of one that did not go out the code is void, and its caller may
    /// ask again by the same name.
    pub async fn settle(&self, draft: &Draft<'_>, delivery: &Delivery) -> Result<(), DbError> {
        const SQL: &str = "UPDATE sms_messages SET state = $1, reference = $2, reason = $3, settled_at = $4,
            once_key = CASE WHEN $5 = 1 THEN NULL ELSE once_key END WHERE id = $6 AND state = 'pending'";
        const VOID: &str = "DELETE FROM sms_codes WHERE phone_key = $1 AND purpose = $2 AND message = $3";
        let now = self.now().await?;
        let (state, reference, reason) = match delivery {
            Delivery::Accepted { reference } => (State::Accepted, reference.as_deref(), None),
            Delivery::Refused { reason } => (State::Refused, None, Some(rows::short(reason))),
            Delivery::Unknown { reason } => (State::Unknown, None, Some(rows::short(reason))),
        };
        let (id, refused) = (draft.id.to_string(), state == State::Refused);
        on_db!(&self.db, pool => query(SQL).bind(state.as_str()).bind(reference).bind(reason).bind(now.0)
            .bind(i64::from(refused)).bind(&id).execute(pool).await.map(drop))?;
        if refused {
            on_db!(&self.db, pool => query(VOID).bind(hex(&draft.keys.phone.0)).bind(draft.purpose.as_str())
                .bind(&id).execute(pool).await.map(drop))?;
        }
        Ok(())
    }

    /// The message that an earlier request of this name sent.
    pub async fn earlier(&self, once: Key) -> Result<Option<Earlier>, DbError> {
        let now = self.now().await?;
        let row: Option<EarlierRow> =
            on_db!(&self.db, pool => query_as(EARLIER).bind(hex(&once.0)).fetch_optional(pool).await)?;
        Ok(row.map(|row| Earlier::read(row, now)).transpose()?.flatten())
    }

    /// How long until the number's rules admit the next message.
    pub async fn resend_after(&self, phone: Key, limit: &Limit) -> Result<Duration, DbError> {
        let now = self.now().await?;
        let times: Vec<i64> = on_db!(&self.db, pool => query_scalar(SENT).bind(hex(&phone.0))
            .bind(horizon(limit, now).0).bind(i64::from(limit.capacity())).fetch_all(pool).await)?;
        Ok(wait(limit, &Sent(times.into_iter().map(Micros).collect()), now))
    }

    pub async fn current_code(&self, phone: Key, purpose: Purpose) -> Result<Option<Current>, DbError> {
        const SQL: &str =
            "SELECT message, code_hash, expires_at FROM sms_codes WHERE phone_key = $1 AND purpose = $2";
        let row: Option<(String, String, i64)> = on_db!(&self.db, pool => query_as(SQL).bind(hex(&phone.0))
            .bind(purpose.as_str()).fetch_optional(pool).await)?;
        let Some((message, code_hash, expires_at)) = row else { return Ok(None) };
        Ok(Some(Current { message: rows::stored_id(&message)?, code_hash, expires_at: Micros(expires_at) }))
    }

    /// Uses a code up. Of any number of callers that show it at once, one is told that it was there.
    pub async fn redeem(&self, phone: Key, purpose: Purpose, code: &Current) -> Result<bool, DbError> {
        const SQL: &str = "DELETE FROM sms_codes WHERE phone_key = $1 AND purpose = $2 AND message = $3
            AND code_hash = $4 AND expires_at > $5";
        let now = self.now().await?;
        let rows = on_db!(&self.db, pool => query(SQL).bind(hex(&phone.0)).bind(purpose.as_str())
            .bind(code.message.to_string()).bind(&code.code_hash).bind(now.0).execute(pool).await
            .map(|done| done.rows_affected()))?;
        Ok(rows == 1)
    }

    /// The code of this message came back, and was right.
    pub async fn note_entered(&self, message: MessageId) -> Result<(), DbError> {
        const SQL: &str = "UPDATE sms_messages SET entered_at = $1 WHERE id = $2";
        let now = self.now().await?;
        on_db!(&self.db, pool => query(SQL).bind(now.0).bind(message.to_string()).execute(pool).await
            .map(drop))?;
        Ok(())
    }

    /// What the window store is written back from: messages that count, newest first, later than `from`
    /// and behind `place`.
    pub async fn hits(&self, from: Micros, place: &Place, limit: u32) -> Result<Vec<HitRow>, DbError> {
        const SQL: &str = "SELECT created_at, id, phone_key, address_key, once_key, hit, block
            FROM sms_messages WHERE created_at > $1 AND (created_at, id) < ($2, $3) AND state <> 'refused'
            ORDER BY created_at DESC, id DESC LIMIT $4";
        let rows: Vec<rows::RawHit> = on_db!(&self.db, pool => query_as(SQL).bind(from.0).bind(place.at.0)
            .bind(&place.id).bind(i64::from(limit)).fetch_all(pool).await)?;
        Ok(rows.into_iter().map(rows::RawHit::parse).collect::<Result<_, _>>()?)
    }

    /// Forgets at most `batch` messages from before that time, and as many codes and brakes that are
    /// over; how many went.
    pub async fn purge(&self, before: Micros, batch: u32) -> Result<u64, DbError> {
        const MESSAGES: &str = "DELETE FROM sms_messages WHERE id IN (SELECT id FROM sms_messages
            WHERE created_at < $1 ORDER BY created_at LIMIT $2)";
        const CODES: &str = "DELETE FROM sms_codes WHERE message IN (SELECT message FROM sms_codes
            WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
        const BRAKES: &str = "DELETE FROM sms_brakes WHERE id IN (SELECT id FROM sms_brakes
            WHERE ends_at < $1 ORDER BY ends_at LIMIT $2)";
        let now = self.now().await?;
        let mut gone = 0;
        for (sql, until) in [(MESSAGES, before), (CODES, now), (BRAKES, before)] {
            gone += on_db!(&self.db, pool => query(sql).bind(until.0).bind(i64::from(batch)).execute(pool)
                .await.map(|done| done.rows_affected()))?;
        }
        Ok(gone)
    }
}

const SENT: &str = "SELECT created_at FROM sms_messages WHERE phone_key = $1 AND created_at > $2
    AND state <> 'refused' ORDER BY created_at DESC LIMIT $3";
const EARLIER: &str = "SELECT state, created_at, expires_at FROM sms_messages WHERE once_key = $1";

/// When messages went to a number, newest first: as many as its limit can ask for.
struct Sent(Vec<Micros>);

impl Log for Sent {
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

async fn sent_to(tx: &mut Tx, phone: Key, limit: &Limit, now: Micros) -> Result<Sent, DbError> {
    let (horizon, capacity) = (horizon(limit, now), i64::from(limit.capacity()));
    let times: Vec<i64> = on_tx!(tx, connection => query_scalar(SENT).bind(hex(&phone.0)).bind(horizon.0)
        .bind(capacity).fetch_all(connection).await)?;
    Ok(Sent(times.into_iter().map(Micros).collect()))
}

fn horizon(limit: &Limit, now: Micros) -> Micros {
    limit.rules().iter().map(|rule| window::start(&rule.span, now)).min().unwrap_or(now)
}

fn judge(limit: &Limit, sent: &Sent, now: Micros, solved: bool) -> Option<Refusal> {
    let mut gathered = Gathered::default();
    gathered.add(0, limit, sent, now, solved);
    gathered.refused
}

/// Until the rules that nothing lifts admit one more.
fn wait(limit: &Limit, sent: &Sent, now: Micros) -> Duration {
    judge(limit, sent, now, true).map_or(Duration::ZERO, |refusal| refusal.retry_after)
}

type EarlierRow = (String, i64, i64);

impl Earlier {
    /// None where the name is free again.
    fn read(row: EarlierRow, now: Micros) -> Result<Option<Self>, sqlx::Error> {
        let (state, created_at, expires_at) = row;
        let known = now < Micros(created_at).plus(once::LIFE);
        let earlier = Self { state: State::stored(&state)?, expires_in: Micros(expires_at).since(now) };
        Ok(known.then_some(earlier))
    }
}

async fn earlier(tx: &mut Tx, once: Key, now: Micros) -> Result<Option<Earlier>, DbError> {
    const FREE: &str = "UPDATE sms_messages SET once_key = NULL WHERE once_key = $1";
    let once = hex(&once.0);
    let row: Option<EarlierRow> =
        on_tx!(tx, connection => query_as(EARLIER).bind(&once).fetch_optional(connection).await)?;
    let Some(row) = row else { return Ok(None) };
    let earlier = Earlier::read(row, now)?;
    if earlier.is_none() {
        on_tx!(tx, connection => query(FREE).bind(&once).execute(connection).await.map(drop))?;
    }
    Ok(earlier)
}

async fn insert(tx: &mut Tx, draft: &Draft<'_>, now: Micros) -> Result<(), DbError> {
    const MESSAGE: &str = "INSERT INTO sms_messages (id, created_at, phone_key, address_key, once_key, hit,
        block, number_range, purpose, gateway, state, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', $11)";
    const CODE: &str = "INSERT INTO sms_codes (phone_key, purpose, message, code_hash, expires_at)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT (phone_key, purpose) DO UPDATE SET
        message = excluded.message, code_hash = excluded.code_hash, expires_at = excluded.expires_at";
    let (id, phone_key) = (draft.id.to_string(), hex(&draft.keys.phone.0));
    let (purpose, expires_at) = (draft.purpose.as_str(), now.plus(draft.code_ttl).0);
    on_tx!(tx, connection => query(MESSAGE).bind(&id).bind(now.0).bind(&phone_key)
        .bind(hex(&draft.keys.address.0)).bind(draft.keys.once.map(|key| hex(&key.0)))
        .bind(hex(&draft.hit.0)).bind(draft.phone.block()).bind(draft.phone.range()).bind(purpose)
        .bind(draft.gateway).bind(expires_at).execute(connection).await.map(drop))?;
    on_tx!(tx, connection => query(CODE).bind(&phone_key).bind(purpose).bind(&id).bind(draft.code_hash)
        .bind(expires_at).execute(connection).await.map(drop))?;
    Ok(())
}
