//! The ledger: every admitted message, in SQL. It has the final decision, whatever the window store
//! remembers: a message is judged and written in one step, and settled by the gateway's answer. It stores the valid codes.

mod codes;
mod pages;

use std::collections::HashMap;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use gatehouse_limiter::window::{self, GatheredVerdict, TimesLog};
use gatehouse_limiter::{Bucket, HitId, KeptHit, Limit, Refusal, SubjectKey};
use serde::Serialize;
use sqlx::{Row, query, query_as, query_scalar};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::RequestedMessage;
use super::decide::{BudgetShare, Facts, Obstacle, SendDecision, SendPath, decide};
use super::message_limits::MessageLogs;
use super::recipient::{Channel, Recipient};
use crate::audit::{EventSubject, mask};
use crate::clock::{Clock, Micros};
use crate::config::Brake;
use crate::db::{self, Db, DbError, DbLock, Tx, execute, from_row, on_db, on_tx};
use crate::entropy::Entropy;
use crate::mail::QueuedMail;
use crate::message::{MessageId, MessagePurpose, hex};
use crate::sms::brake::{JudgedNumber, RangeStanding, SmsBrakes};
use crate::sms::{DeliveryResult, UNKNOWN_COUNTRY};

pub use codes::{CurrentCode, Guesser, StoredVerification};
pub use pages::{LedgerCursor, LedgerEntry, LedgerFilter, LedgerPage};

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
        channel: Channel,
        from: Micros,
        position: &LedgerPosition,
        limit: u32,
    ) -> Result<Vec<HitRow>, DbError> {
        const MESSAGES: &str =
            "SELECT created_at, id, phone_key, address_key, network_key, once_key, hit, block, share, purpose
            FROM sms_messages WHERE created_at > $1 AND (created_at, id) < ($2, $3) AND state <> 'refused'
            AND scope <> 'mail' ORDER BY created_at DESC, id DESC LIMIT $4";
        const MAILS: &str =
            "SELECT created_at, id, phone_key, address_key, network_key, once_key, hit, block, share, purpose
            FROM sms_messages WHERE created_at > $1 AND (created_at, id) < ($2, $3) AND state <> 'refused'
            AND scope = 'mail' ORDER BY created_at DESC, id DESC LIMIT $4";
        let sql = match channel {
            Channel::Sms => MESSAGES,
            Channel::Mail => MAILS,
        };
        Ok(on_db!(&self.db, pool => query_as(sql).bind(from.0).bind(position.at.0)
            .bind(&position.id).bind(i64::from(limit)).fetch_all(pool).await)?)
    }

    /// Up to when messages no longer count in a log, as administrators have said.
    pub async fn forgiven(&self) -> Result<HashMap<SubjectKey, Micros>, DbError> {
        const SQL: &str = "SELECT phone_key, up_to FROM sms_excuses";
        let rows: Vec<(String, i64)> = on_db!(&self.db, pool => query_as(SQL).fetch_all(pool).await)?;
        let parsed = |(log, up_to): (String, i64)| Ok((stored_key(&log)?, Micros(up_to)));
        Ok(rows.into_iter().map(parsed).collect::<Result<_, sqlx::Error>>()?)
    }

    /// Deletes, at most `batch` of each: messages from before `before`; messages of our own pages that were withheld before
    /// `counted` (anybody causes those, as fast as they solve challenges or as their addresses are admitted); expired codes;
    /// brakes that ended before `before` and `again_within` ago; wrong codes and askers older than `guess_window`, which
    /// nothing counts any more. Returns the largest of these counts: less than a batch means that none are left.
    pub async fn purge(
        &self,
        before: Micros,
        counted: Micros,
        [guess_window, again_within]: [Duration; 2],
        batch: u32,
    ) -> Result<u64, DbError> {
        const MESSAGES: &str = "DELETE FROM sms_messages WHERE id IN (SELECT id FROM sms_messages
            WHERE created_at < $1 ORDER BY created_at LIMIT $2)";
        const WITHHELD: &str = "DELETE FROM sms_messages WHERE id IN (SELECT id FROM sms_messages
            WHERE state = 'withheld' AND scope IN ('', 'mail') AND created_at < $1 ORDER BY created_at LIMIT $2)";
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
            (BRAKES, before.min(now.minus(again_within))),
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

/// A message that is pending for this long has nobody left to settle it: the gateway has half a minute, and
/// the database some seconds before and after.
const PENDING_AT_MOST: Duration = Duration::from_secs(5 * 60);
/// A mail is pending for longer: it waits in the queue for as long as its code is valid.
const QUEUED_AT_MOST: Duration = Duration::from_secs(60 * 60);
const NEVER_SETTLED: &str = "the process that sent it ended before the gateway answered";

/// A message as the ledger is to write it.
pub struct MessageDraft<'a> {
    pub id: MessageId,
    pub message: &'a RequestedMessage,
    /// Where the number is, if that is known.
    pub country: Option<&'a str>,
    pub logs: &'a MessageLogs,
    /// The key of the number itself, to which the code is bound.
    pub number: SubjectKey,
    pub hit: HitId,
    /// The key by which events name the number, if they cannot otherwise.
    pub event_key: Option<i64>,
    pub gateway: &'static str,
    /// The hash of the code; None if it is not ours to check.
    pub code_hash: Option<&'a str>,
    pub code_ttl: Duration,
    /// The requesting browser, if it has an id, and how far back guesses count.
    pub asker: Option<String>,
    pub guess_window: Duration,
    pub brake: &'a Brake,
    /// What is written for the server that delivers; None if a gateway is called instead.
    pub mail: Option<QueuedMail>,
    pub share: BudgetShare,
    /// The path that led to the share.
    pub path: SendPath,
}

/// Why an attempt to send a message ended without one. Nothing of it counts, and nothing is written.
pub enum Unsent {
    Met(Obstacle),
    /// The window store knows the request. It was sent, or another instance is sending it or about to give it up.
    Repeated,
    /// The ledger knows the request.
    Earlier(EarlierMessage),
    /// The windows in which it counted were lost, or its caller has stopped waiting.
    TakenBack,
}

impl Ledger {
    /// Judges a draft and writes it in one step, during which nothing else is written for its number. Its code is then the
    /// number's code for its purpose. A brake that it trips stays even if the draft is refused. Continues with the time
    /// until the number's rules admit the next.
    pub async fn write(&self, draft: &MessageDraft<'_>) -> Result<ControlFlow<Unsent, Duration>, DbError> {
        let mut tx = self.db.begin_exclusive(DbLock::number(&draft.logs.phone.key.0)).await?;
        let mut now = tx.now(&self.clock).await?;
        if let Some(once) = &draft.logs.once
            && let Some(earlier) = earlier(&mut tx, once.key, now).await?
        {
            return Ok(Break(Unsent::Earlier(earlier)));
        }
        let number = draft.logs.phone.borrow();
        let mut sent = sent_to(&mut tx, number, now).await?;
        // Never older than the newest message, whatever the clock says.
        now = sent.first().map_or(now, |newest| newest.at.max(now));
        if let Some(refusal) = evaluate(number.limit, &sent, now, draft.message.solved) {
            // The ledger knows the number better than the window store.
            return Ok(Break(Unsent::Met(Obstacle::Limit(number.limit.name().to_owned(), refusal))));
        }
        let (RequestedMessage { to, purpose, solved, .. }, path) = (draft.message, draft.path);
        let judged = match to {
            Recipient::Phone(phone) => {
                self.brakes.evaluate(&mut tx, phone, purpose, draft.brake, now).await?
            }
            Recipient::Mailbox(_) => JudgedNumber::default(),
        };
        if let Some(braked) = judged.braked {
            let met = Obstacle::Brake(braked);
            if decide(Facts { purpose, solved: *solved, path, met: &met }) != SendDecision::GoOn(path) {
                tx.commit().await?;
                return Ok(Break(Unsent::Met(met)));
            }
        }
        insert(&mut tx, draft, judged.standing, now).await?;
        if let Some(mail) = &draft.mail {
            mail.insert(&mut tx, now, now.plus(draft.code_ttl)).await?;
        }
        tx.commit().await?;
        sent.insert(0, KeptHit { at: now, id: draft.hit });
        Ok(Continue(wait(number.limit, &sent, now)))
    }

    /// Removes a draft that no gateway has seen. The number's older code is still gone. False if it is a mail that is being
    /// handed over already: it stays, and counts.
    pub async fn withdraw(&self, draft: &MessageDraft<'_>) -> Result<bool, DbError> {
        const MAIL: &str = "DELETE FROM mail_queue WHERE id = $1 AND state = 'queued' AND tries = 0";
        const MESSAGE: &str = "DELETE FROM sms_messages WHERE id = $1";
        const CODE: &str = "DELETE FROM sms_codes WHERE message = $1";
        let id = draft.id.to_string();
        let mut tx = self.db.begin_exclusive(DbLock::number(&draft.logs.phone.key.0)).await?;
        if draft.mail.is_some() && execute!(in &mut tx => query(MAIL).bind(&id))? == 0 {
            return Ok(false);
        }
        for sql in [CODE, MESSAGE] {
            execute!(in &mut tx => query(sql).bind(&id))?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Writes the outcome of a message, and which gateway took it; None: it was withheld. If it was not sent, its code
    /// becomes invalid and the caller may ask again with the same name. False if the message was given up in the meantime:
    /// then it stays unknown, and counts.
    pub async fn settle(
        &self,
        id: MessageId,
        taken: Option<&(&'static str, DeliveryResult)>,
    ) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE sms_messages SET state = $1, reference = $2, reason = $3, settled_at = $4,
            once_key = CASE WHEN $5 = 1 THEN NULL ELSE once_key END, gateway = COALESCE($7, gateway)
            WHERE id = $6 AND state = 'pending'";
        const VOID: &str = "DELETE FROM sms_codes WHERE message = $1";
        let now = self.now().await?;
        let (state, reference, reason) = match taken.map(|(_, delivery)| delivery) {
            Some(DeliveryResult::Accepted { reference }) => {
                (MessageState::Accepted, reference.as_deref(), None)
            }
            Some(DeliveryResult::Refused { reason, .. }) => {
                (MessageState::Refused, None, Some(short(reason)))
            }
            Some(DeliveryResult::Unknown { reason }) => (MessageState::Unknown, None, Some(short(reason))),
            None => (MessageState::Withheld, None, None),
        };
        let (id, refused) = (id.to_string(), state == MessageState::Refused);
        let rows = execute!(&self.db => query(SQL).bind(state.into_str()).bind(reference).bind(reason)
            .bind(now.0).bind(i64::from(refused)).bind(&id).bind(taken.map(|(gateway, _)| *gateway)))?;
        if refused && rows > 0 {
            execute!(&self.db => query(VOID).bind(&id))?;
        }
        Ok(rows > 0)
    }

    /// Messages whose process died before the gateway answered become unknown: they count, and their codes
    /// work if they arrive. At most `batch`; returns how many.
    pub async fn give_up(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "UPDATE sms_messages SET state = 'unknown', settled_at = $1, reason = $2
            WHERE state = 'pending' AND id IN (SELECT id FROM sms_messages
            WHERE state = 'pending' AND created_at < $3 AND (scope <> 'mail' OR created_at < $5)
            ORDER BY created_at LIMIT $4)";
        let now = self.now().await?;
        let given_up = execute!(&self.db => query(SQL).bind(now.0).bind(NEVER_SETTLED)
            .bind(now.minus(PENDING_AT_MOST).0).bind(i64::from(batch)).bind(now.minus(QUEUED_AT_MOST).0))?;
        if given_up > 0 {
            tracing::warn!(
                messages = given_up,
                "messages without a recorded outcome are now marked as unknown"
            );
        }
        Ok(given_up)
    }
}

async fn sent_to(tx: &mut Tx, number: Bucket<'_>, now: Micros) -> Result<Vec<KeptHit>, DbError> {
    let (horizon, capacity) =
        (window::horizon(number.limit.rules(), now), i64::from(number.limit.capacity()));
    let rows: Vec<(i64, String)> = on_tx!(tx, connection => query_as(SENT).bind(hex(&number.key.0))
        .bind(horizon.0).bind(capacity).fetch_all(connection).await)?;
    Ok(kept_hits(rows)?)
}

async fn earlier(tx: &mut Tx, once: SubjectKey, now: Micros) -> Result<Option<EarlierMessage>, DbError> {
    const FREE: &str = "UPDATE sms_messages SET once_key = NULL WHERE once_key = $1";
    let once = hex(&once.0);
    let row: Option<EarlierRow> =
        on_tx!(tx, connection => query_as(EARLIER).bind(&once).fetch_optional(connection).await)?;
    let Some(row) = row else { return Ok(None) };
    let earlier = EarlierMessage::read(row, now)?.filter(|earlier| !earlier.used_up);
    if earlier.is_none() {
        execute!(in tx => query(FREE).bind(&once))?;
    }
    Ok(earlier)
}

async fn insert(
    tx: &mut Tx,
    draft: &MessageDraft<'_>,
    standing: RangeStanding,
    now: Micros,
) -> Result<(), DbError> {
    const MESSAGE: &str = "INSERT INTO sms_messages (id, created_at, phone_key, address_key, network_key,
        once_key, hit, block, number_range, purpose, gateway, state, expires_at, share, solved, judged, event_key, scope,
        asked_from, number_key, standing, country)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'pending', $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)";
    const CODE: &str = "INSERT INTO sms_codes (phone_key, purpose, message, code_hash, expires_at)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT (phone_key, purpose) DO UPDATE SET
        message = excluded.message, code_hash = excluded.code_hash, expires_at = excluded.expires_at,
        tries = 0, asker_tries = 0, known_tries = 0";
    let (id, phone_key) = (draft.id.to_string(), hex(&draft.logs.phone.key.0));
    let number_key = hex(&draft.number.0);
    let [address, network] = &draft.logs.origin;
    let asked_from =
        draft.message.origin.as_ref().map(|origin| mask(&EventSubject::Network(&origin.network)));
    let judged = is_judged(tx, &draft.message.purpose, now).await?;
    let (purpose, expires_at) = (draft.message.purpose.stored(), now.plus(draft.code_ttl).0);
    execute!(in tx => query(MESSAGE).bind(&id).bind(now.0).bind(&phone_key)
        .bind(hex(&address.key.0)).bind(hex(&network.key.0))
        .bind(draft.logs.once.as_ref().map(|log| hex(&log.key.0)))
        .bind(hex(&draft.hit.0)).bind(&*draft.message.to.block()).bind(draft.message.to.range()).bind(&*purpose)
        .bind(draft.gateway).bind(expires_at).bind(draft.share.into_str()).bind(i64::from(draft.message.solved))
        .bind(i64::from(judged)).bind(draft.event_key).bind(&*draft.message.scope()).bind(asked_from)
        .bind((draft.number != draft.logs.phone.key).then_some(&number_key)).bind(standing as i64)
        .bind(draft.country.unwrap_or(UNKNOWN_COUNTRY)))?;
    if let Some(code_hash) = draft.code_hash {
        execute!(in tx => query(CODE).bind(&number_key).bind(&*purpose).bind(&id).bind(code_hash)
            .bind(expires_at))?;
    }
    if let Some(asker) = &draft.asker {
        // Unless another browser still has the requester's own guesses for the number.
        const ASKER: &str = "INSERT INTO sms_askers (phone_key, asker, acts_until) VALUES ($1, $2, $3)
            ON CONFLICT (phone_key) DO UPDATE SET asker = excluded.asker, acts_until = excluded.acts_until
            WHERE sms_askers.asker = excluded.asker OR sms_askers.acts_until <= $4";
        execute!(in tx => query(ASKER).bind(&phone_key).bind(asker).bind(expires_at)
            .bind(now.minus(draft.guess_window).0))?;
    }
    Ok(())
}

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
        let purpose: Option<MessagePurpose> = on_db!(&self.db, pool => query_scalar(MESSAGE).bind(id.to_string())
            .fetch_optional(pool).await)?;
        if purpose.as_ref() != Some(relay) {
            return Ok(false);
        }
        execute!(&self.db => query(TOLD).bind(&*relay.stored()).bind(now.0))?;
        if used {
            execute!(&self.db => query(USED).bind(now.0).bind(id.to_string()))?;
        }
        Ok(true)
    }
}

/// Whether the brake can judge by whether the message's code is entered: not if it is a relay's that never says so.
async fn is_judged(tx: &mut Tx, purpose: &MessagePurpose, now: Micros) -> Result<bool, DbError> {
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
