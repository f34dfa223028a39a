//! What is watched: traffic of one kind here, and failed attempts at each other program's login.

use std::collections::BTreeSet;
use strum::VariantArray;

use super::AttackEntry;
use super::rule::{self, MinuteCounts};
use crate::audit::attack_kind::AttackKind;
use crate::audit::{EventCount, FiguresStep};
use crate::clock::Micros;

/// Traffic that is counted by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchedTraffic {
    pub kind: AttackKind,
    /// Empty if it is here.
    pub realm: String,
}

impl WatchedTraffic {
    /// All that there is: each kind, each realm in which something was tried lately, and what an attack goes on at.
    pub fn all(lately: &[FiguresStep], going_on: &[AttackEntry]) -> BTreeSet<Self> {
        let here = AttackKind::VARIANTS.iter().copied().filter(|kind| *kind != AttackKind::Attempts);
        let here = here.map(|kind| Self { kind, realm: String::new() });
        let sums = lately.iter().flat_map(|step| &step.sums).filter(|sum| !sum.realm.is_empty());
        let realms = sums.map(|sum| Self { kind: AttackKind::Attempts, realm: sum.realm.clone() });
        here.chain(realms).chain(going_on.iter().map(Self::of)).collect()
    }

    pub fn of(attack: &AttackEntry) -> Self {
        Self { kind: attack.kind, realm: attack.realm.clone() }
    }

    pub fn counted(&self, sums: &[EventCount]) -> u64 {
        let counts = |sum: &&EventCount| sum.realm == self.realm && self.kind.counts(sum.action, sum.outcome);
        sums.iter().filter(counts).map(|sum| u64::try_from(sum.count).unwrap_or(0)).sum()
    }

    pub fn minutes(&self, lately: &[FiguresStep], now: Micros) -> MinuteCounts {
        let mut minutes = MinuteCounts::until(now);
        for step in lately {
            minutes.add(step.at, self.counted(&step.sums));
        }
        minutes
    }

    /// The usual in an hour, from the sums of the same hour on earlier days.
    pub fn usual(&self, days: &[Vec<EventCount>]) -> u64 {
        rule::usual(days.iter().map(|sums| self.counted(sums)).collect())
    }
}
