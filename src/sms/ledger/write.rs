//! How a message enters the ledger: judged and written in one step, settled by the gateway's answer.

use std::time::Duration;

use gatehouse_limiter::{Bucket, HitId, KeptHit, Refusal, SubjectKey, window};
use sqlx::{query, query_as, query_scalar};

use super::{
    EARLIER, EarlierMessage, EarlierRow, Ledger, MessageState, SENT, evaluate, hex, kept_hits, short, wait,
};
use crate::audit::{EventSubject, mask};
use crate::clock::Micros;
use crate::config::Brake;
use crate::db::{DbError, DbLock, Tx, execute, on_db, on_tx};
use crate::sms::brake::BrakedPrefix;
use crate::sms::decide::{BudgetShare, Decision, Facts, Obstacle, SendPath, decide};
use crate::sms::message_limits::MessageLogs;
use crate::sms::{DeliveryResult, MessageId, MessagePurpose, RequestedMessage};

/// A message that is pending for this long has nobody left to settle it: the gateway has half a minute, and
/// the database some seconds before and after.
const PENDING_AT_MOST: Duration = Duration::from_secs(5 * 60);
const NEVER_SETTLED: &str = "the process that sent it ended before the gateway answered";

pub struct MessageDraft<'a> {
    pub id: MessageId,
    pub message: &'a RequestedMessage,
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
    pub asker: Option<&'a str>,
    pub guess_window: Duration,
    pub brake: &'a Brake,
    pub share: BudgetShare,
    /// The path that led to the share.
    pub path: SendPath,
}

pub enum WriteResult {
    /// It was written, and its code is now the number's code for its purpose.
    New {
        /// Until the number's rules admit the next.
        resend_after: Duration,
    },
    /// The request is already there.
    Repeated(EarlierMessage),
    /// The number's rules, which the ledger knows better than the window store.
    Refused(Refusal),
    /// Its prefix asks for a challenge or is under a brake, as `SmsBrakes::evaluate` found in the same transaction: it does
    /// not go on by its path.
    Braked(BrakedPrefix),
}

impl Ledger {
    /// Judges a draft and writes it in one step, during which nothing else is written for its number. A brake
    /// that it trips stays even if the draft is refused.
    pub async fn write(&self, draft: &MessageDraft<'_>) -> Result<WriteResult, DbError> {
        let mut tx = self.db.begin_exclusive(DbLock::number(&draft.logs.phone.key.0)).await?;
        let mut now = tx.now(&self.clock).await?;
        if let Some(once) = &draft.logs.once
            && let Some(earlier) = earlier(&mut tx, once.key, now).await?
        {
            return Ok(WriteResult::Repeated(earlier));
        }
        let number = draft.logs.phone.borrow();
        let mut sent = sent_to(&mut tx, number, now).await?;
        // Never older than the newest message, whatever the clock says.
        now = sent.first().map_or(now, |newest| newest.at.max(now));
        if let Some(refusal) = evaluate(number.limit, &sent, now, draft.message.solved) {
            return Ok(WriteResult::Refused(refusal));
        }
        let (RequestedMessage { phone, purpose, solved, .. }, path) = (draft.message, draft.path);
        if let Some(braked) = self.brakes.evaluate(&mut tx, phone, purpose, draft.brake, now).await? {
            let facts = Facts { purpose, solved: *solved, path, met: &Obstacle::Brake(braked) };
            if decide(facts) != Decision::GoOn(path) {
                tx.commit().await?;
                return Ok(WriteResult::Braked(braked));
            }
        }
        insert(&mut tx, draft, now).await?;
        tx.commit().await?;
        sent.insert(0, KeptHit { at: now, id: draft.hit });
        Ok(WriteResult::New { resend_after: wait(number.limit, &sent, now) })
    }

    /// Removes a draft that no gateway has seen. The number's older code is still gone.
    pub async fn withdraw(&self, draft: &MessageDraft<'_>) -> Result<(), DbError> {
        const MESSAGE: &str = "DELETE FROM sms_messages WHERE id = $1";
        const CODE: &str = "DELETE FROM sms_codes WHERE message = $1";
        let id = draft.id.to_string();
        let mut tx = self.db.begin_exclusive(DbLock::number(&draft.logs.phone.key.0)).await?;
        for sql in [CODE, MESSAGE] {
            execute!(in &mut tx => query(sql).bind(&id))?;
        }
        tx.commit().await
    }

    /// Writes the outcome of a message; None: it was withheld. If it was not sent, its code becomes invalid and the caller may ask
    /// again with the same name. False if the message was given up in the meantime: then it stays unknown,
    /// and counts.
    pub async fn settle(&self, id: MessageId, delivery: Option<&DeliveryResult>) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE sms_messages SET state = $1, reference = $2, reason = $3, settled_at = $4,
            once_key = CASE WHEN $5 = 1 THEN NULL ELSE once_key END WHERE id = $6 AND state = 'pending'";
        const VOID: &str = "DELETE FROM sms_codes WHERE message = $1";
        let now = self.now().await?;
        let (state, reference, reason) = match delivery {
            Some(DeliveryResult::Accepted { reference }) => {
                (MessageState::Accepted, reference.as_deref(), None)
            }
            Some(DeliveryResult::Refused { reason }) => (MessageState::Refused, None, Some(short(reason))),
            Some(DeliveryResult::Unknown { reason }) => (MessageState::Unknown, None, Some(short(reason))),
            None => (MessageState::Withheld, None, None),
        };
        let (id, refused) = (id.to_string(), state == MessageState::Refused);
        let rows = execute!(&self.db => query(SQL).bind(state.into_str()).bind(reference).bind(reason)
            .bind(now.0).bind(i64::from(refused)).bind(&id))?;
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
            WHERE state = 'pending' AND created_at < $3 ORDER BY created_at LIMIT $4)";
        let now = self.now().await?;
        let given_up = execute!(&self.db => query(SQL).bind(now.0).bind(NEVER_SETTLED)
            .bind(now.minus(PENDING_AT_MOST).0).bind(i64::from(batch)))?;
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

async fn insert(tx: &mut Tx, draft: &MessageDraft<'_>, now: Micros) -> Result<(), DbError> {
    const MESSAGE: &str = "INSERT INTO sms_messages (id, created_at, phone_key, address_key, network_key,
        once_key, hit, block, number_range, purpose, gateway, state, expires_at, share, solved, judged, event_key, scope,
        asked_from, number_key)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'pending', $12, $13, $14, $15, $16, $17, $18, $19)";
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
        .bind(hex(&draft.hit.0)).bind(draft.message.phone.block()).bind(draft.message.phone.range()).bind(&*purpose)
        .bind(draft.gateway).bind(expires_at).bind(draft.share.into_str()).bind(i64::from(draft.message.solved))
        .bind(i64::from(judged)).bind(draft.event_key).bind(&*draft.message.purpose.scope()).bind(asked_from)
        .bind((draft.number != draft.logs.phone.key).then_some(&number_key)))?;
    if let Some(code_hash) = draft.code_hash {
        execute!(in tx => query(CODE).bind(&number_key).bind(&*purpose).bind(&id).bind(code_hash)
            .bind(expires_at))?;
    }
    if let Some(asker) = draft.asker {
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
