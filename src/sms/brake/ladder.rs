//! When a brake asks for a challenge and when it is put on: the arithmetic alone, without the database.

use std::time::Duration;

use crate::config::Brake;

/// The most that unreturned messages requested from one network weigh. It is a fifth of the 20 that trip a
/// block, so that it takes five networks. One address, or one customer's /48, trips nothing.
const MOST_OF_A_NETWORK: u32 = 4;
/// It takes this many networks to brake a range; to brake it again, as many as messages are enough.
const NETWORKS_OF_A_RANGE: u32 = 100;

/// From how many unreturned codes of a day on a country asks for challenges, if so many came back on its best day, today
/// included. Most of its traffic is honest, so a few that came back do not speak for all, as they do for a range.
pub fn country_asks_from(brake: &Brake, best_day: u32) -> u32 {
    brake.min_sent_country.max(best_day / 2)
}

/// What was sent to a prefix, and how much of it was entered.
#[derive(Debug, Clone, Copy, Default)]
pub struct PrefixTraffic {
    pub sent: i64,
    pub entered: i64,
    /// Messages without an entered code, in half messages: one requested with a solved challenge weighs half,
    /// because that cost somebody something. No network's weigh more than the ladder says.
    pub weight: i64,
    /// Messages with a solved challenge and without an entered code. No network's count more than the ladder says.
    pub solved: i64,
    /// When the oldest of them was sent.
    pub oldest: Option<i64>,
}

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

/// A brake that is put on again lasts so many times as long as the first, by how often that was before.
const TERMS: [u32; 3] = [1, 4, 24];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a brake is on, after `before` others that count against the prefix.
pub fn lasts(brake: &Brake, before: usize) -> Duration {
    (brake.lifts_after * TERMS[before.min(TERMS.len() - 1)]).min(30 * DAY)
}

impl Ladder {
    /// The ladder of a million numbers, which were under `before` brakes lately.
    pub fn of_range(brake: &Brake, challenges: bool, before: usize) -> Self {
        if before == 0 {
            return Self::of_rungs(brake.min_sent_range, brake.min_solved_range, challenges);
        }
        let again = brake.min_sent_again;
        Self::of_rungs(
            again.div_ceil(5).min(brake.min_sent_range),
            again.min(brake.min_solved_range),
            challenges,
        )
    }

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

    /// The rungs of many numbers. Nobody who asks a relay can be shown a challenge, so there both rungs are one, as high as
    /// both.
    fn of_rungs(free: u32, solved: u32, challenges: bool) -> Self {
        let both = free + solved;
        Self {
            challenge: challenges.then_some(free),
            brake: if challenges { solved } else { both },
            of_solved: challenges,
            most: if challenges { most_of_a_network(free) } else { (both / NETWORKS_OF_A_RANGE).max(1) },
            most_solved: (solved / NETWORKS_OF_A_RANGE).max(1),
        }
    }

    /// Raises each rung by a factor. What one network counts stays, so it takes as many more networks.
    pub fn times(self, factor: u32) -> Self {
        let challenge = self.challenge.map(|rung| rung.saturating_mul(factor));
        Self { challenge, brake: self.brake.saturating_mul(factor), ..self }
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
pub fn most_of_a_network(rung: u32) -> u32 {
    MOST_OF_A_NETWORK.min(rung / 5).max(1)
}

fn reaches(entered: f64, unreturned: f64, rung: u32, min_entered: f64) -> bool {
    let weighed = entered + unreturned;
    weighed >= f64::from(rung) && entered < min_entered * weighed
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let range =
            |free, solved| Ladder::of_range(&defaults, true, 0).rung(&unreturned(free, solved, 0), 0.1);
        let relay = |free| Ladder::of_range(&defaults, false, 0).rung(&unreturned(free, 0, 0), 0.1);
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
        let range = |challenges| Ladder::of_range(&Brake::default(), challenges, 0);
        assert_eq!((range(true).most_solved, range(false).most), (5, 6));
    }

    #[test]
    fn a_higher_ladder_takes_more_networks() {
        let high = |free, solved| {
            Ladder::of_range(&Brake::default(), true, 0).times(5).rung(&unreturned(free, solved, 0), 0.1)
        };
        assert_eq!(
            [high(499, 0), high(500, 0), high(500, 2_499), high(500, 2_500)],
            [None, Some(Rung::Challenge), Some(Rung::Challenge), Some(Rung::Brake)]
        );
    }

    #[test]
    fn after_a_brake_fewer_are_enough_and_the_next_lasts_longer() {
        let defaults = Brake::default();
        let again =
            |free, solved| Ladder::of_range(&defaults, true, 1).rung(&unreturned(free, solved, 0), 0.1);
        assert_eq!(
            [again(9, 1), again(10, 0), again(100, 49), again(10, 50)],
            [None, Some(Rung::Challenge), Some(Rung::Challenge), Some(Rung::Brake)]
        );
        let relay = |free| Ladder::of_range(&defaults, false, 3).rung(&unreturned(free, 0, 0), 0.1);
        assert_eq!([relay(59), relay(60)], [None, Some(Rung::Brake)]);
        let hours = |before| lasts(&defaults, before).as_secs() / 3600;
        assert_eq!([0, 1, 2, 3, 100].map(hours), [1, 4, 24, 24, 24]);
        let month = Brake { lifts_after: 30 * DAY, ..Brake::default() };
        assert_eq!(lasts(&month, 2), 30 * DAY, "the longest that may be set");
        let many = Brake { min_sent_again: 1_000_000, ..Brake::default() };
        let never_more = Ladder::of_range(&many, true, 1).rung(&unreturned(100, 500, 0), 0.1);
        assert_eq!(never_more, Some(Rung::Brake), "never more than at first");
    }
}
