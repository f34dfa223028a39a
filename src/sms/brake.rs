//! The brake, against SMS pumping: if many messages go to a dialling prefix and hardly any code is entered,
//! somebody is paid for each message. First a solved challenge is required there; past the next rung the prefix is
//! under a brake for a while: everybody gets the same answer, and codes go only to numbers that were proven before.
//! Ranges that were never proven count together, as one more prefix: whoever sends one message to each of thousands meets
//! that. Our pages have brakes of their own and so has each program, so that nobody shuts a prefix for a stranger's users.

use std::time::Duration;

use data_encoding::HEXLOWER;
use serde::Serialize;
use sqlx::{Row, query, query_as};
use utoipa::ToSchema;

use super::Phone;
use crate::clock::{Clock, Micros, as_time};
use crate::config::Brake;
use crate::db::{DbError, DbLock, Tx, execute, from_row, on_tx};
use crate::entropy::Entropy;
use crate::message::{MessagePurpose, ProgramKind};

mod country;
mod ladder;
#[cfg(test)]
mod made_up_day_tests;

pub use country::CountryStates;
pub use ladder::{Ladder, PrefixTraffic, Rung, country_asks_from, lasts, most_of_a_network};

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
    /// A block or a range of numbers; `+` for all ranges together of which no codes were entered on two days.
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

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a prefix is remembered in this process: a flood at a braked prefix asks the database this often, and
/// other instances notice that an administrator lifted a brake this much later. So does this one for the brake of
/// ranges that were never proven, since it is remembered for each of them.
const REMEMBERED: Duration = Duration::from_secs(1);
const MOST_REMEMBERED: usize = 10_000;
/// How long a range that had nothing against it over a day is judged over the window alone: as many messages too many.
const CLEARED_FOR: Duration = Duration::from_secs(60);
/// How long a range that was proven is not looked up again: its codes leave the ledger some day.
const PROVEN_FOR: Duration = Duration::from_secs(60 * 60);

/// Reads the brakes, puts them on, and remembers the prefixes that this process met a moment ago, by scope. A remembered
/// one can only refuse.
pub struct SmsBrakes {
    remembered: quick_cache::sync::Cache<(String, String), (Micros, BrakedPrefix)>,
    /// When a range was found to be proven, by scope.
    proven: quick_cache::sync::Cache<(String, String), Micros>,
    /// When a range had nothing against it over a day, by scope: to count a busy one takes milliseconds.
    cleared: quick_cache::sync::Cache<(String, String), Micros>,
    /// Whether nearly all codes that come back are from proven ranges, by scope, and when that was counted.
    mostly_proven: quick_cache::sync::Cache<String, (Micros, bool)>,
    pub countries: CountryStates,
    clock: Clock,
    entropy: Entropy,
}

impl SmsBrakes {
    pub fn new(clock: Clock, entropy: Entropy) -> Self {
        Self {
            remembered: quick_cache::sync::Cache::new(MOST_REMEMBERED),
            proven: quick_cache::sync::Cache::new(MOST_REMEMBERED),
            cleared: quick_cache::sync::Cache::new(MOST_REMEMBERED),
            mostly_proven: quick_cache::sync::Cache::new(MOST_REMEMBERED),
            countries: CountryStates::default(),
            clock,
            entropy,
        }
    }

    fn clear(&self, judged: &JudgedPrefix<'_>, now: Micros) {
        self.cleared.insert((judged.scope.to_owned(), judged.prefix.to_owned()), now);
    }

    fn cleared(&self, judged: &JudgedPrefix<'_>, now: Micros, span: Duration) -> bool {
        let at = self.cleared.get(&(judged.scope.to_owned(), judged.prefix.to_owned()));
        at.is_some_and(|at| is_fresh(at, now, span))
    }

    pub fn forget(&self, scope: &str, prefix: &str) {
        self.remembered.remove(&(scope.to_owned(), prefix.to_owned()));
    }

    pub fn recall(&self, scope: &str, phone: &Phone, country: Option<&str>) -> Option<BrakedPrefix> {
        let now = self.clock.now();
        let braked = |prefix: &str| {
            let (at, found) = self.remembered.get(&(scope.to_owned(), prefix.to_owned()))?;
            let gone = now.since(at);
            let stands = now >= at && gone < REMEMBERED && gone < found.retry_after;
            let retry_after = found.retry_after.saturating_sub(gone);
            stands.then_some(BrakedPrefix { retry_after, ..found })
        };
        let country = country.and_then(|code| self.countries.asks(scope, code, now));
        [phone.block(), phone.range()].into_iter().filter_map(braked).chain(country).reduce(BrakedPrefix::and)
    }

    /// What the number's prefixes ask now of who has messages sent for that purpose. May put a brake on.
    pub async fn evaluate(
        &self,
        tx: &mut Tx,
        phone: &Phone,
        purpose: &MessagePurpose,
        brake: &Brake,
        now: Micros,
    ) -> Result<JudgedNumber, DbError> {
        if !brake.enabled {
            return Ok(JudgedNumber::default());
        }
        let scope = purpose.scope();
        let challenges = !matches!(purpose.program(), Some((ProgramKind::Relay, _)));
        let judge = |kind, prefix| JudgedPrefix { kind, scope: &scope, prefix, challenges, brake };
        let prefixes = [phone.block(), phone.range(), UNPROVEN];
        let [of_block, of_range, of_unproven] = histories(tx, (&scope, prefixes), brake, now).await?;
        let block = judge(PrefixKind::Block, phone.block()).evaluate(tx, now, of_block, self).await?;
        let mut range = judge(PrefixKind::Range, phone.range()).evaluate(tx, now, of_range, self).await?;
        let mut standing = RangeStanding::Proven;
        // Under a brake of its own nothing more is asked: what is sent then does not count.
        if BrakedPrefix::both(block, range).is_none_or(|found| found.proven_before.is_none()) {
            standing = self.standing(tx, &scope, phone.range(), now).await?;
            if standing != RangeStanding::Proven {
                let all = judge(PrefixKind::Unproven, UNPROVEN).evaluate(tx, now, of_unproven, self).await?;
                range = BrakedPrefix::both(range, all);
            }
        }
        for (prefix, found) in [(phone.block(), block), (phone.range(), range)] {
            if let Some(found) = found {
                let remembered = (self.clock.now(), BrakedPrefix { tripped: false, ..found });
                self.remembered.insert((scope.to_string(), prefix.to_owned()), remembered);
            }
        }
        Ok(JudgedNumber { braked: BrakedPrefix::both(block, range), standing })
    }

    async fn standing(
        &self,
        tx: &mut Tx,
        scope: &str,
        range: &str,
        now: Micros,
    ) -> Result<RangeStanding, DbError> {
        const SQL: &str = "SELECT (SELECT COALESCE(MAX(entered_at) - MIN(entered_at), 0) FROM sms_messages
            WHERE number_range = $1 AND scope = $2 AND entered_at IS NOT NULL),
            (SELECT COUNT(*) FROM (SELECT 1 FROM sms_messages WHERE number_range = $1 AND scope = $2
            AND created_at > $3 AND state <> 'refused' AND share = 'open' AND judged = 1 LIMIT $4) AS few)";
        let key = (scope.to_owned(), range.to_owned());
        if self.proven.get(&key).is_some_and(|at| is_fresh(at, now, PROVEN_FOR)) {
            return Ok(RangeStanding::Proven);
        }
        // Requests that run at the same time must see each other, or a burst to one range counts as a spread over many.
        tx.lock(DbLock::new_range(scope, range)).await?;
        let (apart, of_a_day): (i64, i64) = on_tx!(tx, connection => query_as(SQL).bind(range).bind(scope)
            .bind(now.minus(DAY).0).bind(i64::from(MOST_OF_AN_UNPROVEN_RANGE)).fetch_one(connection).await)?;
        if Micros(apart) >= Micros(0).plus(DAY) {
            self.proven.insert(key, now);
            return Ok(RangeStanding::Proven);
        }
        let few = of_a_day < i64::from(MOST_OF_AN_UNPROVEN_RANGE);
        Ok(if few { RangeStanding::Unproven } else { RangeStanding::UnprovenAndMany })
    }
}

fn is_fresh(at: Micros, now: Micros, lasts: Duration) -> bool {
    now >= at && now.since(at) < lasts
}

/// What is known of a range from the codes of it that were entered, as the ledger has it for each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RangeStanding {
    /// Two were entered at least a day apart, so that nobody proves a range in a hurry.
    #[default]
    Proven = 0,
    /// The message counts with those to other ranges that were never proven.
    Unproven = 1,
    /// So many messages went to it within a day that this one counts for its range alone.
    UnprovenAndMany = 2,
}

/// What the prefixes of a number ask, and the standing of its range.
#[derive(Debug, Clone, Copy, Default)]
pub struct JudgedNumber {
    pub braked: Option<BrakedPrefix>,
    pub standing: RangeStanding,
}

impl BrakedPrefix {
    fn both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).reduce(Self::and)
    }

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrefixKind {
    Block,
    Range,
    Unproven,
}

/// The prefix of all ranges that were never proven.
const UNPROVEN: &str = "+";
/// So many messages to one of these count there in a day: what is more is for its own ladder, so that a pumper of one
/// range shuts no others.
pub const MOST_OF_AN_UNPROVEN_RANGE: u32 = 5;
/// At least so many of five codes that come back are from proven ranges. Otherwise, as on the first days of an
/// installation, the people themselves are in ranges that were never proven, and those take more to be braked.
pub const PROVEN_OF_FIVE: i64 = 4;
/// The factor by which those take more.
pub const WHILE_PEOPLE_ARE_NEW: u32 = 5;

impl PrefixKind {
    const fn sql(self) -> &'static str {
        match self {
            Self::Block => BLOCK,
            Self::Range => RANGE,
            Self::Unproven => UNPROVEN_RANGES,
        }
    }
}

struct JudgedPrefix<'a> {
    kind: PrefixKind,
    scope: &'a str,
    prefix: &'a str,
    /// Whether the requester can be shown a challenge.
    challenges: bool,
    brake: &'a Brake,
}

/// The brakes of a prefix within the last days.
#[derive(Debug, Clone, Copy, Default)]
struct BrakeHistory {
    /// When the one in force began, and when it ends.
    held: Option<(Micros, Micros)>,
    /// How many before it count against the prefix. One that an administrator has lifted does not, nor any before it.
    before: usize,
    /// When the last one ended that is over.
    last_end: Option<Micros>,
}

/// The histories of prefixes, in one query.
async fn histories<const N: usize>(
    tx: &mut Tx,
    (scope, prefixes): (&str, [&str; N]),
    brake: &Brake,
    now: Micros,
) -> Result<[BrakeHistory; N], DbError> {
    const SQL: &str =
        "SELECT prefix, began_at, ends_at, CAST(CASE WHEN lifted_by IS NULL THEN 0 ELSE 1 END AS BIGINT)
        FROM sms_brakes WHERE prefix IN ($1, $2, $3) AND scope = $4 AND ends_at > $5 ORDER BY ends_at DESC";
    let lately = now.minus(brake.again_within);
    let from = lately.min(now.minus(brake.window.max(DAY)));
    let bound = |place: usize| prefixes[place.min(N - 1)];
    let rows: Vec<(String, i64, i64, i64)> = on_tx!(tx, connection => query_as(SQL).bind(bound(0)).bind(bound(1))
        .bind(bound(2)).bind(scope).bind(from.0).fetch_all(connection).await)?;
    let of = |prefix| {
        let (held, over): (Vec<_>, Vec<_>) =
            rows.iter().filter(|(of, ..)| of == prefix).partition(|(_, _, ends_at, _)| *ends_at > now.0);
        let counts =
            |(_, _, ends_at, lifted): &&&(String, i64, i64, i64)| *ends_at > lately.0 && *lifted == 0;
        BrakeHistory {
            held: held.first().map(|(_, began_at, ends_at, _)| (Micros(*began_at), Micros(*ends_at))),
            before: over.iter().take_while(counts).count(),
            last_end: over.first().map(|(_, _, ends_at, _)| Micros(*ends_at)),
        }
    };
    Ok(prefixes.map(of))
}

impl JudgedPrefix<'_> {
    async fn evaluate(
        &self,
        tx: &mut Tx,
        now: Micros,
        history: BrakeHistory,
        brakes: &SmsBrakes,
    ) -> Result<Option<BrakedPrefix>, DbError> {
        if let Some(held) = self.under(&history, now) {
            return Ok(Some(held));
        }
        let ladder = self.ladder(history.before);
        let mut found: Option<BrakedPrefix> = None;
        let (first, longest) = self.spans(history.before);
        for (span, is_second) in
            first.map(|span| (span, false)).into_iter().chain([(longest, first.is_some())])
        {
            // Ranges that were never proven are one prefix, which is long to count.
            let cleared_for = match (self.kind, is_second) {
                (PrefixKind::Unproven, _) => Some(REMEMBERED),
                (PrefixKind::Block | PrefixKind::Range, second) => second.then_some(CLEARED_FOR),
            };
            if found.is_none() && cleared_for.is_some_and(|span| brakes.cleared(self, now, span)) {
                continue;
            }
            let traffic = self.traffic(tx, &ladder, since(now, span, history.last_end)).await?;
            let mut rung = ladder.rung(&traffic, self.brake.min_entered);
            if rung.is_some()
                && self.kind == PrefixKind::Unproven
                && !self.mostly_proven(tx, now, brakes).await?
            {
                rung = ladder.times(WHILE_PEOPLE_ARE_NEW).rung(&traffic, self.brake.min_entered);
            }
            match rung {
                None if cleared_for.is_some() && found.is_none() => brakes.clear(self, now),
                None => {}
                Some(Rung::Challenge) => {
                    // Until the oldest message without an entered code stops counting.
                    let oldest = traffic.oldest.map(Micros);
                    let retry_after = oldest.map_or(span, |at| at.plus(span).since(now));
                    let asks = BrakedPrefix { retry_after, proven_before: None, tripped: false };
                    found = BrakedPrefix::both(found, Some(asks));
                }
                Some(Rung::Brake) => return self.trip(tx, now, traffic, &brakes.entropy).await.map(Some),
            }
        }
        Ok(found)
    }

    async fn traffic(&self, tx: &mut Tx, ladder: &Ladder, since: Micros) -> Result<PrefixTraffic, DbError> {
        Ok(
            on_tx!(tx, connection => query_as(self.kind.sql()).bind(self.prefix).bind(self.scope).bind(since.0)
            .bind(2 * i64::from(ladder.most)).bind(i64::from(ladder.most_solved)).fetch_one(connection).await)?,
        )
    }

    /// Puts a brake on, unless another request did. Requests that run at the same time are counted beside this one, so it
    /// may trip a few messages late.
    async fn trip(
        &self,
        tx: &mut Tx,
        now: Micros,
        traffic: PrefixTraffic,
        entropy: &Entropy,
    ) -> Result<BrakedPrefix, DbError> {
        tx.lock(DbLock::brake(self.scope, self.prefix)).await?;
        let [history] = histories(tx, (self.scope, [self.prefix]), self.brake, now).await?;
        if let Some(held) = self.under(&history, now) {
            return Ok(held);
        }
        // Twenty messages are enough to brake a block, so nobody may shut it for longer by repeating them.
        let before = if self.kind == PrefixKind::Block { 0 } else { history.before };
        let held = (now, now.plus(ladder::lasts(self.brake, before)));
        self.put_on(tx, held, traffic, entropy).await?;
        Ok(BrakedPrefix { tripped: true, ..self.held(held, now) })
    }

    fn ladder(&self, before: usize) -> Ladder {
        match self.kind {
            PrefixKind::Block => Ladder::of_block(self.brake, self.challenges),
            PrefixKind::Range | PrefixKind::Unproven => Ladder::of_range(self.brake, self.challenges, before),
        }
    }

    /// The spans over which it is judged. A range is judged over a day, too, so that nobody gains by patience; and over that
    /// alone where it was under a brake lately, or where each range gets a message or two.
    fn spans(&self, before: usize) -> (Option<Duration>, Duration) {
        let first = match self.kind {
            PrefixKind::Range if before == 0 => Some(self.brake.window).filter(|window| *window < DAY),
            PrefixKind::Block | PrefixKind::Range | PrefixKind::Unproven => None,
        };
        (first, self.longest())
    }

    /// How far back its messages count at most.
    fn longest(&self) -> Duration {
        match self.kind {
            PrefixKind::Block => self.brake.window,
            PrefixKind::Range | PrefixKind::Unproven => self.brake.window.max(DAY),
        }
    }

    fn under(&self, history: &BrakeHistory, now: Micros) -> Option<BrakedPrefix> {
        history.held.map(|held| self.held(held, now))
    }

    fn held(&self, (began_at, ends_at): (Micros, Micros), now: Micros) -> BrakedPrefix {
        let proven_before = Some(began_at.minus(self.longest()));
        BrakedPrefix { retry_after: ends_at.since(now), proven_before, tripped: false }
    }

    /// Whether nearly all codes that came back within a day are from proven ranges. Counted once a minute.
    async fn mostly_proven(&self, tx: &mut Tx, now: Micros, brakes: &SmsBrakes) -> Result<bool, DbError> {
        const SQL: &str = "SELECT COUNT(CASE WHEN standing = 0 THEN 1 END), COUNT(*) FROM sms_messages
            WHERE created_at > $1 AND scope = $2 AND entered_at IS NOT NULL AND share = 'open'";
        if let Some((at, known)) = brakes.mostly_proven.get(self.scope)
            && is_fresh(at, now, CLEARED_FOR)
        {
            return Ok(known);
        }
        let (proven, all): (i64, i64) = on_tx!(tx, connection => query_as(SQL).bind(now.minus(DAY).0)
            .bind(self.scope).fetch_one(connection).await)?;
        let mostly = all > 0 && 5 * proven >= PROVEN_OF_FIVE * all;
        brakes.mostly_proven.insert(self.scope.to_owned(), (now, mostly));
        Ok(mostly)
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
            " AND scope = $2 AND created_at > $3 AND state <> 'refused' AND share = 'open' AND judged = 1
            GROUP BY network_key) AS networks"
        )
    };
}
const BLOCK: &str = traffic!("block = $1");
const RANGE: &str = traffic!("number_range = $1");
const UNPROVEN_RANGES: &str = traffic!("standing = 1 AND CAST($1 AS TEXT) = '+'");

from_row!(PrefixTraffic, row => PrefixTraffic {
    sent: row.try_get("sent")?,
    entered: row.try_get("entered")?,
    weight: row.try_get("weight")?,
    solved: row.try_get("solved")?,
    oldest: row.try_get("oldest")?,
});

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
}
