//! Mails that wait for the server that delivers. A mail with a code is handed over once at most: whoever takes it writes
//! first that it may have been sent. A notice is handed over until a server has taken it.

use std::time::Duration;

use sqlx::{Row, query, query_as, query_scalar};
use strum::IntoStaticStr;

use super::{LetterKind, MailSeal, QueuedMail, SealedLetter};
use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, Tx, execute, from_row, on_db};
use crate::entropy::Entropy;
use crate::message::hex;

/// How a mail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum MailState {
    Sent,
    /// The server refused it for good, or its mailbox refuses mail.
    Refused,
    /// It may have been sent, and is not sent again.
    Unknown,
    /// Nothing was to be sent.
    Withheld,
    /// Its code is none any more, its address is gone, or it is too old.
    Expired,
}

/// How long whoever takes a notice has to hand it over, before another instance takes it.
const LEASE: Duration = Duration::from_secs(10 * 60);
/// How long a notice is tried to be sent.
const NOTICES_LAST: Duration = Duration::from_secs(3 * 24 * 60 * 60);
/// How long a mail is remembered that is sent. Notices are counted by what is remembered.
const REMEMBERED: Duration = Duration::from_secs(2 * 24 * 60 * 60);
/// An address that was refused so often for good gets nothing for a while.
const REFUSALS: i64 = 2;
const SUPPRESSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[derive(Clone)]
pub struct MailQueue {
    db: Db,
    clock: Clock,
}

/// A mail to be handed over now.
pub struct TakenMail {
    pub id: String,
    /// None: one of a newer version.
    pub kind: Option<LetterKind>,
    /// Whose notice it is; None: it has a code that is in the ledger.
    pub account: Option<String>,
    pub mailbox: String,
    pub sealed: Option<String>,
    /// The address of the account that has the mailbox, sealed for that account, and the language of its owner.
    pub address: Option<(String, String, String)>,
    /// The masked address of whoever caused it.
    pub network: Option<String>,
    pub times: u32,
    pub created_at: Micros,
    pub expires_at: Micros,
    pub tries: u32,
}

/// What became of a mail that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailResult {
    Ended(MailState),
    /// It is tried again, as long as it has not expired.
    Later(Duration),
}

/// How many notices of a kind an account gets in a window, each. More are folded into one that is sent later.
#[derive(Debug, Clone, Copy)]
pub struct NoticeRule {
    pub max: u32,
    pub window: Duration,
}

impl NoticeRule {
    /// The rule for changes of what opens an account: nobody changes it more often by hand.
    pub const CRITICAL: Self = Self { max: 10, window: Duration::from_secs(24 * 60 * 60) };
}

impl QueuedMail {
    /// Writes it in the transaction of its message.
    pub async fn insert(&self, tx: &mut Tx, now: Micros, expires_at: Micros) -> Result<(), DbError> {
        const SQL: &str =
            "INSERT INTO mail_queue (id, kind, mailbox, sealed, created_at, expires_at, next_at)
            VALUES ($1, $2, $3, $4, $5, $6, $5)";
        execute!(in tx => query(SQL).bind(&self.id).bind(self.kind.into_str()).bind(&self.mailbox)
            .bind(&self.sealed).bind(now.0).bind(expires_at.0))?;
        Ok(())
    }
}

/// Tells the owner of an account by mail of a change of what opens it, if the account has an address: in the transaction
/// of the change, so that neither is without the other.
pub async fn tell(
    tx: &mut Tx,
    entropy: &Entropy,
    what: (&str, LetterKind),
    now: Micros,
) -> Result<(), DbError> {
    queue_notice(tx, entropy, what, None, NoticeRule::CRITICAL, now).await
}

/// Tells the owner of an account by mail of a sign-in from a new browser, and the network that it is in.
pub async fn tell_of_device(
    tx: &mut Tx,
    entropy: &Entropy,
    (account, network): (&str, &str),
    rule: NoticeRule,
    now: Micros,
) -> Result<(), DbError> {
    queue_notice(tx, entropy, (account, LetterKind::NewDevice), Some(network), rule, now).await
}

/// Notices of a kind that are not sent yet are one.
async fn queue_notice(
    tx: &mut Tx,
    entropy: &Entropy,
    (account, kind): (&str, LetterKind),
    network: Option<&str>,
    rule: NoticeRule,
    now: Micros,
) -> Result<(), DbError> {
    const FOLD: &str = "UPDATE mail_queue SET times = times + 1, network = $3, created_at = $4
        WHERE account = $1 AND kind = $2 AND state = 'queued' AND tries = 0
        AND mailbox = (SELECT mailbox FROM account_emails WHERE account = $1)";
    const WRITE: &str =
        "INSERT INTO mail_queue (id, kind, account, mailbox, network, created_at, expires_at, next_at)
        SELECT $5, $2, e.account, e.mailbox, $3, $4, $6, CASE WHEN room.at > $4 THEN room.at ELSE $4 END
        FROM account_emails e, (SELECT COALESCE((SELECT q.created_at + $7 FROM mail_queue q
            WHERE q.account = $1 AND q.kind = $2 AND q.created_at > $4 - $7
            ORDER BY q.created_at DESC LIMIT 1 OFFSET $8), 0) AS at) AS room WHERE e.account = $1";
    let kind = kind.into_str();
    let folded = execute!(in tx => query(FOLD).bind(account).bind(kind).bind(network).bind(now.0))?;
    if folded > 0 {
        return Ok(());
    }
    let offset = i64::from(rule.max.saturating_sub(1));
    execute!(in tx => query(WRITE).bind(account).bind(kind).bind(network).bind(now.0)
        .bind(hex(&entropy.bytes::<16>())).bind(now.plus(rule.window + NOTICES_LAST).0)
        .bind(i64::try_from(rule.window.as_micros()).unwrap_or(i64::MAX)).bind(offset))?;
    Ok(())
}

/// Tells an address that is no account's any more.
pub async fn tell_elsewhere(
    tx: &mut Tx,
    (seal, entropy): (&MailSeal, &Entropy),
    (account, kind): (&str, LetterKind),
    (mailbox, letter): (&str, &SealedLetter),
    now: Micros,
) -> Result<(), DbError> {
    const SQL: &str =
        "INSERT INTO mail_queue (id, kind, account, mailbox, sealed, created_at, expires_at, next_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $6)";
    let id = hex(&entropy.bytes::<16>());
    let sealed = seal.seal_letter(&id, letter, entropy);
    execute!(in tx => query(SQL).bind(&id).bind(kind.into_str()).bind(account).bind(mailbox).bind(&sealed)
        .bind(now.0).bind(now.plus(NOTICES_LAST).0))?;
    Ok(())
}

impl MailQueue {
    pub const fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock }
    }

    /// The time by the database's clock, by which mails are queued and expire.
    pub async fn now(&self) -> Result<Micros, DbError> {
        self.db.now(&self.clock).await
    }

    /// Ends at most `batch` mails that go to nobody, and their messages in the ledger: they must not wait where mails that
    /// are sent do, or unknown addresses would delay those. Returns how many.
    pub async fn withhold(&self, batch: u32) -> Result<u64, DbError> {
        const FOUND: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM mail_queue
            WHERE state = 'queued' AND next_at <= $1 AND account IS NULL AND sealed IS NULL LIMIT 1) AS due";
        const SETTLE: &str = "UPDATE sms_messages SET state = 'withheld', settled_at = $1
            WHERE state = 'pending' AND id IN (SELECT id FROM mail_queue
            WHERE state = 'queued' AND next_at <= $1 AND account IS NULL AND sealed IS NULL
            ORDER BY next_at LIMIT $2)";
        const END: &str = "UPDATE mail_queue SET state = 'withheld'
            WHERE state = 'queued' AND next_at <= $1 AND account IS NULL AND sealed IS NULL
            AND NOT EXISTS (SELECT 1 FROM sms_messages m WHERE m.id = mail_queue.id AND m.state = 'pending')";
        let now = self.db.now(&self.clock).await?;
        let found: i64 = on_db!(&self.db, pool => query_scalar(FOUND).bind(now.0).fetch_one(pool).await)?;
        if found == 0 {
            return Ok(0);
        }
        execute!(&self.db => query(SETTLE).bind(now.0).bind(i64::from(batch)))?;
        Ok(execute!(&self.db => query(END).bind(now.0))?)
    }

    /// Takes at most so many that are due and go to somebody. Of two instances one gets each.
    pub async fn take(&self, most: u32) -> Result<Vec<TakenMail>, DbError> {
        const SQL: &str = "UPDATE mail_queue SET tries = tries + 1, next_at = $2,
            state = CASE WHEN account IS NULL THEN 'unknown' ELSE state END
            WHERE state = 'queued' AND next_at <= $1 AND id IN (SELECT id FROM mail_queue
            WHERE state = 'queued' AND next_at <= $1 AND (account IS NOT NULL OR sealed IS NOT NULL)
            ORDER BY next_at, id LIMIT $3)
            RETURNING id, kind, account, mailbox, sealed, network, times, created_at, expires_at, tries,
            (SELECT e.account FROM account_emails e WHERE e.mailbox = mail_queue.mailbox) AS owner,
            (SELECT e.address FROM account_emails e WHERE e.mailbox = mail_queue.mailbox) AS address,
            (SELECT e.locale FROM account_emails e WHERE e.mailbox = mail_queue.mailbox) AS locale";
        let now = self.db.now(&self.clock).await?;
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(now.0).bind(now.plus(LEASE).0).bind(i64::from(most))
            .fetch_all(pool).await)?)
    }

    /// Whether the code of a mail that was taken is still its newest: asked last, before the server is given it.
    pub async fn holds(&self, id: &str) -> Result<bool, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM sms_codes WHERE message = $1 AND expires_at > $2";
        let now = self.db.now(&self.clock).await?;
        let count: i64 =
            on_db!(&self.db, pool => query_scalar(SQL).bind(id).bind(now.0).fetch_one(pool).await)?;
        Ok(count > 0)
    }

    pub async fn note(&self, mail: &TakenMail, result: MailResult) -> Result<(), DbError> {
        const ENDED: &str = "UPDATE mail_queue SET state = $1, sealed = NULL WHERE id = $2";
        const LATER: &str = "UPDATE mail_queue SET state = 'queued', next_at = $1 WHERE id = $2";
        let now = self.db.now(&self.clock).await?;
        match result {
            MailResult::Ended(state) => {
                execute!(&self.db => query(ENDED).bind(state.into_str()).bind(&mail.id))?
            }
            MailResult::Later(pause) if now.plus(pause) < mail.expires_at => {
                execute!(&self.db => query(LATER).bind(now.plus(pause).0).bind(&mail.id))?
            }
            MailResult::Later(_) => {
                execute!(&self.db => query(ENDED).bind(MailState::Expired.into_str()).bind(&mail.id))?
            }
        };
        Ok(())
    }

    /// Remembers whether a server takes mail for an address, by the key of its spelling.
    pub async fn note_bounce(&self, spelling: &str, refused: bool) -> Result<(), DbError> {
        const REFUSED: &str = "INSERT INTO mail_bounces (mailbox, refused, refused_at) VALUES ($1, 1, $2)
            ON CONFLICT (mailbox) DO UPDATE SET refused = mail_bounces.refused + 1, refused_at = excluded.refused_at";
        const TAKEN: &str = "DELETE FROM mail_bounces WHERE mailbox = $1";
        if refused {
            let now = self.db.now(&self.clock).await?;
            execute!(&self.db => query(REFUSED).bind(spelling).bind(now.0))?;
        } else {
            execute!(&self.db => query(TAKEN).bind(spelling))?;
        }
        Ok(())
    }

    /// Until when nothing is sent to an address, by the key of its spelling, because it was refused.
    pub async fn refused_until(&self, spelling: &str) -> Result<Option<Micros>, DbError> {
        const SQL: &str =
            "SELECT refused_at FROM mail_bounces WHERE mailbox = $1 AND refused >= $2 AND refused_at > $3";
        let over = self.db.now(&self.clock).await?.minus(SUPPRESSED);
        let at: Option<i64> = on_db!(&self.db, pool => query_scalar(SQL).bind(spelling).bind(REFUSALS).bind(over.0)
            .fetch_optional(pool).await)?;
        Ok(at.map(|at| Micros(at).plus(SUPPRESSED)))
    }

    /// How many mails wait for the server, without notices that wait for room in their budget.
    pub async fn waiting(&self) -> Result<i64, DbError> {
        const SQL: &str =
            "SELECT COUNT(*) FROM mail_queue WHERE state = 'queued' AND (tries > 0 OR next_at <= $1)";
        let now = self.db.now(&self.clock).await?;
        Ok(on_db!(&self.db, pool => query_scalar(SQL).bind(now.0).fetch_one(pool).await)?)
    }

    /// Whether a mail is due. Only then is anything written.
    pub async fn has_due(&self) -> Result<bool, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM mail_queue
            WHERE state = 'queued' AND next_at <= $1 LIMIT 1) AS due";
        let now = self.db.now(&self.clock).await?;
        let count: i64 = on_db!(&self.db, pool => query_scalar(SQL).bind(now.0).fetch_one(pool).await)?;
        Ok(count > 0)
    }

    /// Deletes at most `batch` of the mails that nobody counts any more, and as many refusals; returns the larger count.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        const MAILS: &str = "DELETE FROM mail_queue WHERE id IN (SELECT id FROM mail_queue
            WHERE created_at < $1 AND (state <> 'queued' OR expires_at < $3) ORDER BY created_at LIMIT $2)";
        const BOUNCES: &str = "DELETE FROM mail_bounces WHERE mailbox IN (SELECT mailbox FROM mail_bounces
            WHERE refused_at < $1 ORDER BY refused_at LIMIT $2)";
        const FREEZE_CODES: &str = "DELETE FROM freeze_codes WHERE code IN (SELECT code FROM freeze_codes
            WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
        let now = self.db.now(&self.clock).await?;
        let codes = execute!(&self.db => query(FREEZE_CODES).bind(now.0).bind(i64::from(batch)))?;
        let mails = execute!(&self.db => query(MAILS).bind(now.minus(REMEMBERED).0).bind(i64::from(batch)).bind(now.0))?;
        let bounces =
            execute!(&self.db => query(BOUNCES).bind(now.minus(SUPPRESSED).0).bind(i64::from(batch)))?;
        Ok(mails.max(bounces).max(codes))
    }
}

from_row!(TakenMail, row => {
    let text = |column: &'static str| row.try_get::<Option<String>, _>(column);
    let count = |column: &'static str| row.try_get::<i64, _>(column);
    let small = |column: &'static str| count(column).map(|some| u32::try_from(some).unwrap_or(u32::MAX));
    let kind: String = row.try_get("kind")?;
    TakenMail {
        id: row.try_get("id")?,
        kind: kind.parse().ok(),
        account: text("account")?,
        mailbox: row.try_get("mailbox")?,
        sealed: text("sealed")?,
        address: match (text("owner")?, text("address")?, text("locale")?) {
            (Some(owner), Some(address), Some(locale)) => Some((owner, address, locale)),
            _ => None,
        },
        network: text("network")?,
        times: small("times")?,
        created_at: Micros(count("created_at")?),
        expires_at: Micros(count("expires_at")?),
        tries: small("tries")?,
    }
});
