//! The brake, against SMS pumping: if many messages go to a dialling prefix and hardly any code is entered,
//! somebody is paid for each message. For a while codes are short for that prefix: a solved challenge is
//! required, and codes go only to numbers that belonged to an account before the brake began.

use std::time::Duration;

use sqlx::{query, query_as};

use super::Phone;
use crate::clock::{Clock, Micros};
use crate::config::Brake;
use crate::db::{DbError, DbLock, Tx, on_tx};
use crate::entropy::Entropy;

pub const LIFT: &str =
    "UPDATE sms_brakes SET ends_at = $1, lifted_by = $2 WHERE prefix = $3 AND ends_at > $1";

/// The most that unreturned messages requested from one network weigh. It is a fifth of the 20 that trip a
/// block, so that it takes five networks. One address, or one customer's /48, trips nothing.
const MOST_OF_A_NETWORK: u32 = 4;

/// The number's prefix is under a brake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrakedPrefix {
    pub retry_after: Duration,
    /// Messages go only to numbers that belonged to an account before this time. The messages that tripped
    /// the brake are later, and whoever requested them may have created accounts for them.
    pub proven_before: Micros,
    /// This request tripped it.
    pub tripped: bool,
}

/// A brake in force, as an administrator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveBrake {
    /// A block or a range of numbers.
    pub prefix: String,
    pub began_at: Micros,
    pub ends_at: Micros,
    /// What was counted when it began.
    pub sent: i64,
    pub entered: i64,
}

/// How long a brake is remembered in this process: a flood at a braked prefix asks the database this often,
/// and other instances notice that an administrator lifted a brake this much later.
const REMEMBERED: Duration = Duration::from_secs(1);
/// Prefixes that are remembered at once.
const MOST_REMEMBERED: usize = 10_000;

/// Brakes that this process met a moment ago. A remembered brake can only refuse.
pub struct RememberedBrakes(quick_cache::sync::Cache<String, RememberedBrake>);

#[derive(Clone, Copy)]
struct RememberedBrake {
    /// By this process's clock.
    at: Micros,
    wait: Duration,
    proven_before: Micros,
}

impl RememberedBrakes {
    pub fn new() -> Self {
        Self(quick_cache::sync::Cache::new(MOST_REMEMBERED))
    }

    fn note(&self, prefix: &str, at: Micros, wait: Duration, proven_before: Micros) {
        self.0.insert(prefix.to_owned(), RememberedBrake { at, wait, proven_before });
    }

    pub fn forget(&self, prefix: &str) {
        self.0.remove(prefix);
    }

    /// The brake that the number is still under.
    pub fn recall(&self, phone: &Phone, now: Micros) -> Option<BrakedPrefix> {
        let braked = |prefix| {
            let seen = self.0.get(prefix)?;
            let gone = now.since(seen.at);
            let stands = now >= seen.at && gone < REMEMBERED && gone < seen.wait;
            let retry_after = seen.wait.saturating_sub(gone);
            stands.then_some(BrakedPrefix { retry_after, proven_before: seen.proven_before, tripped: false })
        };
        [phone.block(), phone.range()].into_iter().filter_map(braked).reduce(BrakedPrefix::and)
    }
}

impl BrakedPrefix {
    /// The number's block and its range, both.
    fn and(self, other: Self) -> Self {
        Self {
            retry_after: self.retry_after.max(other.retry_after),
            proven_before: self.proven_before.min(other.proven_before),
            tripped: self.tripped || other.tripped,
        }
    }
}

/// What was sent to a prefix, and how much of it was entered.
#[derive(Debug, Clone, Copy, Default, sqlx::FromRow)]
struct PrefixTraffic {
    sent: i64,
    entered: i64,
    /// Messages without an entered code, in half messages: one requested with a solved challenge weighs half,
    /// because that cost somebody something. No network's weigh more than [`MOST_OF_A_NETWORK`].
    weight: i64,
}

/// The most that one network's unreturned messages weigh. It is less if fewer messages trip the brake, so
/// that it still takes five networks.
fn most_of_a_network(min_sent: u32) -> u32 {
    MOST_OF_A_NETWORK.min(min_sent / 5).max(1)
}

/// Whether so few of so many codes were entered that the prefix gets a brake.
fn trips(traffic: PrefixTraffic, min_sent: u32, min_entered: f64) -> bool {
    let weighed = traffic.entered as f64 + traffic.weight as f64 / 2.0;
    weighed >= f64::from(min_sent) && (traffic.entered as f64) < min_entered * weighed
}

/// From when messages count: the window, but nothing from before the last brake ended.
fn since(now: Micros, window: Duration, last_end: Option<Micros>) -> Micros {
    let start = now.minus(window);
    last_end.map_or(start, |end| end.max(start))
}

/// What a check of the brakes needs besides the database.
#[derive(Clone, Copy)]
pub struct BrakeContext<'a> {
    pub remembered: &'a RememberedBrakes,
    pub clock: &'a Clock,
    pub entropy: &'a Entropy,
}

/// Whether the number's block or range is under a brake, or gets one now. Returns the one that lasts longer.
pub async fn judge(
    tx: &mut Tx,
    phone: &Phone,
    brake: &Brake,
    now: Micros,
    context: BrakeContext<'_>,
) -> Result<Option<BrakedPrefix>, DbError> {
    if !brake.enabled {
        return Ok(None);
    }
    let mut braked: Option<BrakedPrefix> = None;
    for (sql, prefix, min_sent) in
        [(BLOCK, phone.block(), brake.min_sent), (RANGE, phone.range(), brake.min_sent_range)]
    {
        let last = last(tx, prefix).await?;
        let last_end = last.map(|(_, end)| end);
        let (began_at, ends_at, tripped) = match last.filter(|(_, end)| *end > now) {
            Some((began, end)) => (began, end, false),
            None => {
                let since = since(now, brake.window, last_end);
                let most = 2 * i64::from(most_of_a_network(min_sent));
                let traffic: PrefixTraffic = on_tx!(tx, connection => query_as(sql).bind(prefix).bind(since.0)
                    .bind(most).fetch_one(connection).await)?;
                if !trips(traffic, min_sent, brake.min_entered) {
                    continue;
                }
                // Requests that run at the same time are counted beside this one, so the brake may trip a few
                // messages late; one of them sets it.
                tx.lock(DbLock::brake(prefix)).await?;
                match self::last(tx, prefix).await?.filter(|(_, end)| *end > now) {
                    Some((began, end)) => (began, end, false),
                    None => {
                        let end = now.plus(brake.lifts_after);
                        put_on(tx, prefix, (now, end), traffic, context.entropy).await?;
                        (now, end, true)
                    }
                }
            }
        };
        let proven_before = began_at.minus(brake.window);
        let retry_after = ends_at.since(now);
        context.remembered.note(prefix, context.clock.now(), retry_after, proven_before);
        let held = BrakedPrefix { retry_after, proven_before, tripped };
        braked = Some(braked.map_or(held, |other| other.and(held)));
    }
    Ok(braked)
}

/// What counts for a brake, by the requester's network. Messages in a shortage do not count: some of them
/// were sent and some were not, and everybody can see a brake trip.
macro_rules! traffic {
    ($prefix:literal) => {
        concat!(
            "SELECT CAST(COALESCE(SUM(sent), 0) AS BIGINT) AS sent,
            CAST(COALESCE(SUM(entered), 0) AS BIGINT) AS entered,
            CAST(COALESCE(SUM(CASE WHEN weight > $3 THEN $3 ELSE weight END), 0) AS BIGINT) AS weight
            FROM (SELECT COUNT(*) AS sent, COUNT(entered_at) AS entered,
            SUM(CASE WHEN entered_at IS NOT NULL THEN 0 ELSE 2 - solved END) AS weight FROM sms_messages WHERE ",
            $prefix,
            " = $1 AND created_at > $2 AND state <> 'refused' AND share = 'open' AND judged = 1
            GROUP BY network_key) AS networks"
        )
    };
}
const BLOCK: &str = traffic!("block");
const RANGE: &str = traffic!("number_range");

/// When the last brake on it began, and when it ends or ended.
async fn last(tx: &mut Tx, prefix: &str) -> Result<Option<(Micros, Micros)>, DbError> {
    const SQL: &str =
        "SELECT began_at, ends_at FROM sms_brakes WHERE prefix = $1 ORDER BY ends_at DESC LIMIT 1";
    let last: Option<(i64, i64)> =
        on_tx!(tx, connection => query_as(SQL).bind(prefix).fetch_optional(connection).await)?;
    Ok(last.map(|(began, end)| (Micros(began), Micros(end))))
}

async fn put_on(
    tx: &mut Tx,
    prefix: &str,
    (now, end): (Micros, Micros),
    PrefixTraffic { sent, entered, .. }: PrefixTraffic,
    entropy: &Entropy,
) -> Result<(), DbError> {
    const SQL: &str = "INSERT INTO sms_brakes (id, prefix, began_at, ends_at, sent, entered)
        VALUES ($1, $2, $3, $4, $5, $6)";
    let id = format!("{:032x}", u128::from_be_bytes(entropy.bytes()));
    on_tx!(tx, connection => query(SQL).bind(id).bind(prefix).bind(now.0).bind(end.0).bind(sent).bind(entered)
        .execute(connection).await.map(drop))?;
    // The prefix is on the administrator's page, not in the log: the block of a short number reveals nearly
    // all of it.
    tracing::warn!(sent, entered, "a dialling prefix is under a brake: hardly any of its codes were entered");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_messages_say_nothing_and_enough_codes_speak_for_a_prefix() {
        let traffic = |unreturned: i64, entered| PrefixTraffic { sent: 0, entered, weight: 2 * unreturned };
        assert!(!trips(traffic(19, 0), 20, 0.1));
        assert!(trips(traffic(20, 0), 20, 0.1));
        assert!(trips(traffic(19, 1), 20, 0.1), "5 % came back");
        assert!(!trips(traffic(18, 2), 20, 0.1), "just the share that is wanted");
        assert!(!trips(traffic(1000, 0), 20, 0.0), "a share of nothing is always reached");
    }

    #[test]
    fn it_takes_five_networks_to_trip_a_brake_that_takes_five_messages() {
        for min_sent in [5, 9, 19, 20, 100, 1_000_000] {
            assert!(4 * most_of_a_network(min_sent) < min_sent, "{min_sent}");
        }
        assert_eq!((most_of_a_network(20), most_of_a_network(1)), (4, 1));
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
