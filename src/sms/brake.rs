//! The brake: a dialling prefix that many messages go to and whose codes nobody enters is one that
//! somebody is paid for by the message. It is stopped for a while.

use std::time::Duration;

use sqlx::{query, query_as, query_scalar};

use super::Phone;
use crate::clock::{Clock, Micros};
use crate::config::Brake;
use crate::db::{DbError, Lock, Tx, on_tx};
use crate::entropy::Entropy;

/// How a refusal by a brake is named, beside the names of limits.
pub const NAME: &str = "sms-brake";

pub const LIFT: &str =
    "UPDATE sms_brakes SET ends_at = $1, lifted_by = $2 WHERE prefix = $3 AND ends_at > $1";

/// No message goes to the number's prefix until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Braked {
    pub retry_after: Duration,
    /// This very question tripped it.
    pub tripped: bool,
}

/// A brake that holds, as an administrator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// A block or a range of numbers.
    pub prefix: String,
    pub began_at: Micros,
    pub ends_at: Micros,
    /// What was counted when it was put on.
    pub sent: i64,
    pub entered: i64,
}

/// How long a brake is known by heart: a flood at a braked prefix asks the database once in so long, and an
/// administrator's lift is noticed by the other instances as late.
const REMEMBERED: Duration = Duration::from_secs(1);
/// Prefixes known at once.
const MOST_REMEMBERED: usize = 10_000;

/// Brakes that this process ran into a moment ago. What is remembered only ever refuses.
pub struct Remembered(quick_cache::sync::Cache<String, Seen>);

#[derive(Clone, Copy)]
struct Seen {
    /// By this process's clock.
    at: Micros,
    wait: Duration,
}

impl Remembered {
    pub fn new() -> Self {
        Self(quick_cache::sync::Cache::new(MOST_REMEMBERED))
    }

    fn note(&self, prefix: &str, at: Micros, wait: Duration) {
        self.0.insert(prefix.to_owned(), Seen { at, wait });
    }

    pub fn forget(&self, prefix: &str) {
        self.0.remove(prefix);
    }

    /// How long the number is braked still.
    pub fn recall(&self, phone: &Phone, now: Micros) -> Option<Duration> {
        let wait = |prefix| {
            let seen = self.0.get(prefix)?;
            let gone = now.since(seen.at);
            let stands = now >= seen.at && gone < REMEMBERED && gone < seen.wait;
            stands.then(|| seen.wait.saturating_sub(gone))
        };
        [phone.block(), phone.range()].into_iter().filter_map(wait).max()
    }
}

/// Whether so few of so many codes came back that the prefix is to be braked.
fn trips(sent: i64, entered: i64, min_sent: u32, min_entered: f64) -> bool {
    sent >= i64::from(min_sent) && (entered as f64) < min_entered * sent as f64
}

/// From when messages count: the window, but nothing from before the last brake ended.
fn since(now: Micros, window: Duration, last_end: Option<Micros>) -> Micros {
    let start = now.minus(window);
    last_end.map_or(start, |end| end.max(start))
}

/// What a look at the brakes needs besides the database.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub remembered: &'a Remembered,
    pub clock: &'a Clock,
    pub entropy: &'a Entropy,
}

/// Whether the number's block or range is braked, or is to be from now on. The one that lasts longer.
pub async fn judge(
    tx: &mut Tx,
    phone: &Phone,
    brake: &Brake,
    now: Micros,
    context: Context<'_>,
) -> Result<Option<Braked>, DbError> {
    const BLOCK: &str = "SELECT COUNT(*), COUNT(entered_at) FROM sms_messages
        WHERE block = $1 AND created_at > $2 AND state <> 'refused'";
    const RANGE: &str = "SELECT COUNT(*), COUNT(entered_at) FROM sms_messages
        WHERE number_range = $1 AND created_at > $2 AND state <> 'refused'";
    if !brake.enabled {
        return Ok(None);
    }
    let mut braked: Option<Braked> = None;
    for (sql, prefix, min_sent) in
        [(BLOCK, phone.block(), brake.min_sent), (RANGE, phone.range(), brake.min_sent_range)]
    {
        let last_end = last_end(tx, prefix).await?;
        let (ends_at, tripped) = match last_end.filter(|end| *end > now) {
            Some(end) => (end, false),
            None => {
                let since = since(now, brake.window, last_end);
                let (sent, entered): (i64, i64) = on_tx!(tx, connection => query_as(sql).bind(prefix)
                    .bind(since.0).fetch_one(connection).await)?;
                if !trips(sent, entered, min_sent, brake.min_entered) {
                    continue;
                }
                // Others count beside this one, so that it may trip a few messages late; one of them puts it on.
                tx.lock(Lock::brake(prefix)).await?;
                match self::last_end(tx, prefix).await?.filter(|end| *end > now) {
                    Some(end) => (end, false),
                    None => {
                        let end = now.plus(brake.lifts_after);
                        put_on(tx, prefix, (now, end), (sent, entered), context.entropy).await?;
                        (end, true)
                    }
                }
            }
        };
        context.remembered.note(prefix, context.clock.now(), ends_at.since(now));
        let tripped = tripped || braked.is_some_and(|other| other.tripped);
        let retry_after = braked.map_or(Duration::ZERO, |other| other.retry_after).max(ends_at.since(now));
        braked = Some(Braked { retry_after, tripped });
    }
    Ok(braked)
}

async fn last_end(tx: &mut Tx, prefix: &str) -> Result<Option<Micros>, DbError> {
    const SQL: &str = "SELECT MAX(ends_at) FROM sms_brakes WHERE prefix = $1";
    let end: Option<i64> =
        on_tx!(tx, connection => query_scalar(SQL).bind(prefix).fetch_one(connection).await)?;
    Ok(end.map(Micros))
}

async fn put_on(
    tx: &mut Tx,
    prefix: &str,
    (now, end): (Micros, Micros),
    (sent, entered): (i64, i64),
    entropy: &Entropy,
) -> Result<(), DbError> {
    const SQL: &str = "INSERT INTO sms_brakes (id, prefix, began_at, ends_at, sent, entered)
        VALUES ($1, $2, $3, $4, $5, $6)";
    let id = format!("{:032x}", u128::from_be_bytes(entropy.bytes()));
    on_tx!(tx, connection => query(SQL).bind(id).bind(prefix).bind(now.0).bind(end.0).bind(sent).bind(entered)
        .execute(connection).await.map(drop))?;
    // Which prefix is on the administrator's page: a block of a short number says nearly all of it.
    tracing::warn!(sent, entered, "a dialling prefix is braked: its codes do not come back");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_messages_say_nothing_and_enough_codes_speak_for_a_prefix() {
        assert!(!trips(19, 0, 20, 0.1));
        assert!(trips(20, 0, 20, 0.1));
        assert!(trips(20, 1, 20, 0.1), "5 % came back");
        assert!(!trips(20, 2, 20, 0.1), "just the share that is wanted");
        assert!(!trips(1000, 0, 20, 0.0), "a share of nothing is always reached");
    }

    #[test]
    fn what_an_ended_brake_was_put_on_for_does_not_count_again() {
        let (now, hour) = (Micros(10_000_000_000), Duration::from_secs(3600));
        assert_eq!(since(now, hour, None), now.minus(hour));
        let ended = now.minus(Duration::from_secs(60));
        assert_eq!(since(now, hour, Some(ended)), ended);
        assert_eq!(since(now, hour, Some(now.minus(2 * hour))), now.minus(hour));
    }
}
