//! The brake, against SMS pumping: if many messages go to a dialling prefix and hardly any code is entered,
//! somebody is paid for each message. First a solved challenge is required there; past the next rung the prefix is
//! under a brake for a while: everybody gets the same answer, and codes go only to numbers that were proven before.
//! Our pages have brakes of their own and so has each program, so that nobody shuts a prefix for a stranger's users.

use std::time::Duration;

use data_encoding::HEXLOWER;
use serde::Serialize;
use sqlx::{Row, query, query_as};
use utoipa::ToSchema;

use super::{MessagePurpose, Phone, ProgramKind};
use crate::clock::{Clock, Micros, as_time};
use crate::config::Brake;
use crate::db::{DbError, DbLock, Tx, execute, from_row, on_tx};
use crate::entropy::Entropy;

#[cfg(test)]
mod made_up_day_tests;

/// The number's prefix asks for more than usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrakedPrefix {
    pub retry_after: Duration,
    /// Under a brake: messages go only to numbers that were proven before this time. The messages that tripped
    /// the brake are later, and whoever requested them may have entered codes for theirs. None: a solved challenge
    /// is enough.
    pub proven_before: Option<Micros>,
    pub tripped: bool,
}

// In force, as an administrator sees it, and as it is in the API. The counts are those of its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Brake)]
pub struct HeldBrake {
    // A block or a range of numbers.
    pub prefix: String,
    /// The program that it is for, `verify:NAME` or `relay:NAME`. Missing: this installation's own pages and calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub began_at: Micros,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub ends_at: Micros,
    /// Codes that were sent to the prefix.
    #[schema(minimum = 0)]
    pub sent: i64,
    /// How many of them were entered.
    #[schema(minimum = 0)]
    pub entered: i64,
}

/// How long a prefix is remembered in this process: a flood at a braked prefix asks the database this often,
/// and other instances notice that an administrator lifted a brake this much later.
const REMEMBERED: Duration = Duration::from_secs(1);
const MOST_REMEMBERED: usize = 10_000;

/// Reads the brakes, puts them on, and remembers the prefixes that this process met a moment ago, by scope. A remembered
/// one can only refuse.
pub struct SmsBrakes {
    remembered: quick_cache::sync::Cache<(String, String), (Micros, BrakedPrefix)>,
    clock: Clock,
    entropy: Entropy,
}

impl SmsBrakes {
    pub fn new(clock: Clock, entropy: Entropy) -> Self {
        Self { remembered: quick_cache::sync::Cache::new(MOST_REMEMBERED), clock, entropy }
    }

    pub fn forget(&self, scope: &str, prefix: &str) {
        self.remembered.remove(&(scope.to_owned(), prefix.to_owned()));
    }

    pub fn recall(&self, scope: &str, phone: &Phone) -> Option<BrakedPrefix> {
        let now = self.clock.now();
        let braked = |prefix: &str| {
            let (at, found) = self.remembered.get(&(scope.to_owned(), prefix.to_owned()))?;
            let gone = now.since(at);
            let stands = now >= at && gone < REMEMBERED && gone < found.retry_after;
            let retry_after = found.retry_after.saturating_sub(gone);
            stands.then_some(BrakedPrefix { retry_after, ..found })
        };
        [phone.block(), phone.range()].into_iter().filter_map(braked).reduce(BrakedPrefix::and)
    }

    /// What the number's block and range ask now of who has messages sent for that purpose. May put a brake on.
    pub async fn evaluate(
        &self,
        tx: &mut Tx,
        phone: &Phone,
        purpose: &MessagePurpose,
        brake: &Brake,
        now: Micros,
    ) -> Result<Option<BrakedPrefix>, DbError> {
        if !brake.enabled {
            return Ok(None);
        }
        let scope = purpose.scope();
        let challenges = !matches!(purpose.program(), Some((ProgramKind::Relay, _)));
        let mut braked: Option<BrakedPrefix> = None;
        for (sql, prefix, ladder) in [
            (BLOCK, phone.block(), Ladder::of_block(brake, challenges)),
            (RANGE, phone.range(), Ladder::of_range(brake, challenges)),
        ] {
            let judging = JudgedPrefix { sql, scope: &scope, prefix, ladder, brake };
            let Some(found) = judging.evaluate(tx, now, &self.entropy).await? else { continue };
            let remembered = (self.clock.now(), BrakedPrefix { tripped: false, ..found });
            self.remembered.insert((scope.to_string(), prefix.to_owned()), remembered);
            braked = Some(braked.map_or(found, |other| other.and(found)));
        }
        Ok(braked)
    }
}

impl BrakedPrefix {
    fn and(self, other: Self) -> Self {
        let (one, two) = match (self.proven_before, other.proven_before) {
            // A brake is the whole answer, beside a challenge.
            (Some(_), None) => (self, self),
            (None, Some(_)) => (other, other),
            _ => (self, other),
        };
        Self {
            retry_after: one.retry_after.max(two.retry_after),
            proven_before: one.proven_before.min(two.proven_before),
            tripped: self.tripped || other.tripped,
        }
    }
}

/// From when messages count: the window, but nothing from before the last brake ended.
fn since(now: Micros, window: Duration, last_end: Option<Micros>) -> Micros {
    let start = now.minus(window);
    last_end.map_or(start, |end| end.max(start))
}

struct JudgedPrefix<'a> {
    sql: &'static str,
    scope: &'a str,
    prefix: &'a str,
    ladder: Ladder,
    brake: &'a Brake,
}

impl JudgedPrefix<'_> {
    async fn evaluate(
        &self,
        tx: &mut Tx,
        now: Micros,
        entropy: &Entropy,
    ) -> Result<Option<BrakedPrefix>, DbError> {
        let Self { brake, ladder, .. } = self;
        let last = self.last(tx).await?;
        if let Some(held) = last.filter(|(_, end)| *end > now) {
            return Ok(Some(self.under(held, now)));
        }
        let since = since(now, brake.window, last.map(|(_, end)| end));
        let traffic: PrefixTraffic = on_tx!(tx, connection => query_as(self.sql).bind(self.prefix)
            .bind(self.scope).bind(since.0).bind(2 * i64::from(ladder.most)).bind(i64::from(ladder.most_solved))
            .fetch_one(connection).await)?;
        match ladder.rung(&traffic, brake.min_entered) {
            None => return Ok(None),
            Some(Rung::Challenge) => {
                // Until the oldest message without an entered code stops counting.
                let oldest = traffic.oldest.map(Micros);
                let retry_after = oldest.map_or(brake.window, |at| at.plus(brake.window).since(now));
                return Ok(Some(BrakedPrefix { retry_after, proven_before: None, tripped: false }));
            }
            Some(Rung::Brake) => {}
        }
        // Requests that run at the same time are counted beside this one, so the brake may trip a few
        // messages late; one of them sets it.
        tx.lock(DbLock::brake(self.scope, self.prefix)).await?;
        if let Some(held) = self.last(tx).await?.filter(|(_, end)| *end > now) {
            return Ok(Some(self.under(held, now)));
        }
        let end = now.plus(brake.lifts_after);
        self.put_on(tx, (now, end), traffic, entropy).await?;
        Ok(Some(BrakedPrefix { tripped: true, ..self.under((now, end), now) }))
    }

    fn under(&self, (began_at, ends_at): (Micros, Micros), now: Micros) -> BrakedPrefix {
        let proven_before = Some(began_at.minus(self.brake.window));
        BrakedPrefix { retry_after: ends_at.since(now), proven_before, tripped: false }
    }

    /// When the last brake on it began, and when it ends or ended.
    async fn last(&self, tx: &mut Tx) -> Result<Option<(Micros, Micros)>, DbError> {
        const SQL: &str = "SELECT began_at, ends_at FROM sms_brakes WHERE prefix = $1 AND scope = $2
            ORDER BY ends_at DESC LIMIT 1";
        let last: Option<(i64, i64)> = on_tx!(tx, connection => query_as(SQL).bind(self.prefix).bind(self.scope)
            .fetch_optional(connection).await)?;
        Ok(last.map(|(began, end)| (Micros(began), Micros(end))))
    }

    async fn put_on(
        &self,
        tx: &mut Tx,
        (now, end): (Micros, Micros),
        PrefixTraffic { sent, entered, .. }: PrefixTraffic,
        entropy: &Entropy,
    ) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO sms_brakes (id, prefix, began_at, ends_at, sent, entered, scope)
            VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let id = HEXLOWER.encode(&entropy.bytes::<16>());
        execute!(in tx => query(SQL).bind(id).bind(self.prefix).bind(now.0).bind(end.0).bind(sent)
            .bind(entered).bind(self.scope))?;
        // The prefix is on the administrator's page, not in the log: the block of a short number reveals nearly
        // all of it.
        let scope = self.scope;
        tracing::warn!(
            sent,
            entered,
            scope,
            "a dialling prefix is under a brake: hardly any of its codes were entered"
        );
        Ok(())
    }
}

/// What counts for a brake, by the requester's network. Messages in a shortage do not count: some of them
/// were sent and some were not, and everybody can see a brake trip.
macro_rules! traffic {
    ($prefix:literal) => {
        concat!(
            "SELECT CAST(COALESCE(SUM(sent), 0) AS BIGINT) AS sent,
            CAST(COALESCE(SUM(entered), 0) AS BIGINT) AS entered,
            CAST(COALESCE(SUM(CASE WHEN weight > $4 THEN $4 ELSE weight END), 0) AS BIGINT) AS weight,
            CAST(COALESCE(SUM(CASE WHEN solved > $5 THEN $5 ELSE solved END), 0) AS BIGINT) AS solved,
            MIN(oldest) AS oldest
            FROM (SELECT COUNT(*) AS sent, COUNT(entered_at) AS entered,
            SUM(CASE WHEN entered_at IS NOT NULL THEN 0 ELSE 2 - solved END) AS weight,
            SUM(CASE WHEN entered_at IS NOT NULL THEN 0 ELSE solved END) AS solved,
            MIN(CASE WHEN entered_at IS NULL THEN created_at END) AS oldest FROM sms_messages WHERE ",
            $prefix,
            " = $1 AND scope = $2 AND created_at > $3 AND state <> 'refused' AND share = 'open' AND judged = 1
            GROUP BY network_key) AS networks"
        )
    };
}
const BLOCK: &str = traffic!("block");
const RANGE: &str = traffic!("number_range");

/// The most that unreturned messages requested from one network weigh. It is a fifth of the 20 that trip a
/// block, so that it takes five networks. One address, or one customer's /48, trips nothing.
const MOST_OF_A_NETWORK: u32 = 4;
/// It takes this many networks to brake a range.
const NETWORKS_OF_A_RANGE: u32 = 100;

/// What was sent to a prefix, and how much of it was entered.
#[derive(Debug, Clone, Copy, Default)]
pub struct PrefixTraffic {
    pub sent: i64,
    pub entered: i64,
    /// Messages without an entered code, in half messages: one requested with a solved challenge weighs half,
    /// because that cost somebody something. No network's weigh more than the ladder says.
    pub weight: i64,
    /// Those with a solved challenge, in messages, no network's more than the ladder says.
    pub solved: i64,
    /// When the oldest of them was sent.
    pub oldest: Option<i64>,
}

from_row!(PrefixTraffic, row => PrefixTraffic {
    sent: row.try_get("sent")?,
    entered: row.try_get("entered")?,
    weight: row.try_get("weight")?,
    solved: row.try_get("solved")?,
    oldest: row.try_get("oldest")?,
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    Challenge,
    Brake,
}

/// The rungs of a block or a range, in unreturned messages.
#[derive(Debug, Clone, Copy)]
pub struct Ladder {
    challenge: Option<u32>,
    brake: u32,
    /// Only messages with a solved challenge count for the brake.
    of_solved: bool,
    /// The most of one network that count, and of those with a solved challenge.
    pub most: u32,
    pub most_solved: u32,
}

impl Ladder {
    pub fn of_block(brake: &Brake, challenges: bool) -> Self {
        let most = most_of_a_network(brake.min_sent);
        Self {
            challenge: challenges.then_some(brake.min_sent.div_ceil(2)),
            brake: brake.min_sent,
            of_solved: false,
            most,
            most_solved: most,
        }
    }

    /// Nobody who asks a relay can be shown a challenge, so there both rungs are one, as high as both.
    pub fn of_range(brake: &Brake, challenges: bool) -> Self {
        let (free, solved) = (brake.min_sent_range, brake.min_solved_range);
        let both = free + solved;
        Self {
            challenge: challenges.then_some(free),
            brake: if challenges { solved } else { both },
            of_solved: challenges,
            most: if challenges { most_of_a_network(free) } else { (both / NETWORKS_OF_A_RANGE).max(1) },
            most_solved: (solved / NETWORKS_OF_A_RANGE).max(1),
        }
    }

    /// The highest that the traffic has reached, if so few of its codes were entered.
    pub fn rung(&self, traffic: &PrefixTraffic, min_entered: f64) -> Option<Rung> {
        let weight = traffic.weight as f64 / 2.0;
        let unreturned = if self.of_solved { traffic.solved as f64 } else { weight };
        let reaches = |unreturned, rung| reaches(traffic.entered as f64, unreturned, rung, min_entered);
        if reaches(unreturned, self.brake) {
            return Some(Rung::Brake);
        }
        self.challenge.filter(|&rung| reaches(weight, rung)).map(|_| Rung::Challenge)
    }
}

/// The most that one network's unreturned messages weigh. It is less if fewer messages are enough, so that it
/// still takes five networks.
fn most_of_a_network(rung: u32) -> u32 {
    MOST_OF_A_NETWORK.min(rung / 5).max(1)
}

fn reaches(entered: f64, unreturned: f64, rung: u32, min_entered: f64) -> bool {
    let weighed = entered + unreturned;
    weighed >= f64::from(rung) && entered < min_entered * weighed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_ended_brake_was_put_on_for_does_not_count_again() {
        let (now, hour) = (Micros(10_000_000_000), Duration::from_secs(3600));
        assert_eq!(since(now, hour, None), now.minus(hour));
        let ended = now.minus(Duration::from_secs(60));
        assert_eq!(since(now, hour, Some(ended)), ended);
        assert_eq!(since(now, hour, Some(now.minus(2 * hour))), now.minus(hour));
    }

    #[test]
    fn a_brake_on_the_block_or_the_range_is_more_than_a_challenge_for_the_other() {
        let found = |seconds, proven: Option<i64>| BrakedPrefix {
            retry_after: Duration::from_secs(seconds),
            proven_before: proven.map(Micros),
            tripped: false,
        };
        let (challenge, brake) = (found(90, None), found(60, Some(7)));
        assert_eq!((challenge.and(brake), brake.and(challenge)), (brake, brake));
        assert_eq!(brake.and(found(70, Some(5))), found(70, Some(5)));
        assert_eq!(challenge.and(found(100, None)), found(100, None));
    }

    fn unreturned(free: i64, solved: i64, entered: i64) -> PrefixTraffic {
        PrefixTraffic { entered, weight: 2 * free + solved, solved, ..PrefixTraffic::default() }
    }

    #[test]
    fn few_messages_say_nothing_and_enough_codes_speak_for_a_prefix() {
        let brake = |free, entered, min_entered| {
            let ladder = Ladder::of_block(&Brake::default(), false);
            ladder.rung(&unreturned(free, 0, entered), min_entered) == Some(Rung::Brake)
        };
        assert!(!brake(19, 0, 0.1));
        assert!(brake(20, 0, 0.1));
        assert!(brake(19, 1, 0.1), "5 % came back");
        assert!(!brake(18, 2, 0.1), "just the share that is wanted");
        assert!(!brake(1000, 0, 0.0), "a share of nothing is always reached");
    }

    #[test]
    fn a_ladder_grows_with_what_it_shuts() {
        let defaults = Brake::default();
        let block = |free, solved| Ladder::of_block(&defaults, true).rung(&unreturned(free, solved, 0), 0.1);
        let range = |free, solved| Ladder::of_range(&defaults, true).rung(&unreturned(free, solved, 0), 0.1);
        let relay = |free| Ladder::of_range(&defaults, false).rung(&unreturned(free, 0, 0), 0.1);
        assert_eq!(
            [block(9, 1), block(10, 0), block(10, 19), block(10, 20)],
            [None, Some(Rung::Challenge), Some(Rung::Challenge), Some(Rung::Brake)]
        );
        assert_eq!(
            [range(99, 1), range(100, 0), range(100_000, 499), range(100, 500)],
            [None, Some(Rung::Challenge), Some(Rung::Challenge), Some(Rung::Brake)]
        );
        assert_eq!([relay(599), relay(600)], [None, Some(Rung::Brake)], "it can show no challenge");
    }

    #[test]
    fn it_takes_five_networks_to_brake_a_block_and_a_hundred_for_a_range() {
        for rung in [5, 9, 19, 20, 100, 1_000_000] {
            assert!(4 * most_of_a_network(rung) < rung, "{rung}");
        }
        assert_eq!((most_of_a_network(20), most_of_a_network(1)), (4, 1));
        let range = |challenges| Ladder::of_range(&Brake::default(), challenges);
        assert_eq!((range(true).most_solved, range(false).most), (5, 6));
    }
}
