//! Counts of decisions: in total, for each limit, and by rule.

use gatehouse_limiter::{Limit, LimitMode, RuleAction};
use serde::Serialize;
use utoipa::ToSchema;

use super::ComparisonSide;
use super::row::{
    COUNT, LogPart, ReplayAction, ReplayDecision, ReplayOutcome, ReplayRow, is_replayed, logs_of,
};
use crate::config::LimitName;

/// The counts of attempts, for one limit or in total.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
#[schema(as = PreviewCounts)]
pub struct AttemptCounts {
    pub attempts: u64,
    pub admitted: u64,
    /// A challenge was required: by this limit, or by any.
    pub challenged: u64,
    pub throttled: u64,
    /// Refused for another reason than a limit, as recorded.
    pub undecided: u64,
    /// Refused, although they were right, or a right one came soon after from the same address.
    pub bothered: u64,
    /// Wrong passwords and codes that were compared.
    pub guesses_verified: u64,
    /// Guesses that were compared when recorded, and now are not.
    pub guesses_stopped: u64,
    /// Messages handed to the gateway.
    pub messages_sent: u64,
    pub messages_stopped: u64,
    /// For how many attempts the record does not show the end: refused then and admitted now, asked for a
    /// challenge only now, or recorded without the subject that the limit counts.
    pub unknown: u64,
}

/// What one limit did: admitted are the attempts that every limit admitted; the other numbers are what this one
/// refused or, in monitor mode, noted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
#[schema(as = PreviewLimit)]
pub struct LimitCounts {
    pub name: String,
    /// `enforce` or `monitor`.
    pub mode: &'static str,
    /// Admitted are those that every limit admitted; refused are those that this one refused.
    #[serde(flatten)]
    pub counts: AttemptCounts,
    /// Admitted, because the limit is in monitor mode.
    pub noted: u64,
    /// What each rule refused, in order.
    pub rules: Vec<RuleCounts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
#[schema(as = PreviewRule)]
pub struct RuleCounts {
    pub max: u32,
    /// `captcha` or `block`.
    pub then: &'static str,
    pub refused: u64,
}

#[derive(Debug)]
pub struct ReplayTally {
    all: AttemptCounts,
    limits: [LimitCounts; COUNT],
}

impl ReplayTally {
    pub fn new(limits: [&Limit; COUNT]) -> Self {
        let rules = |limit: &Limit| {
            let rules = limit.rules().iter();
            rules.map(|rule| RuleCounts { max: rule.max, then: rule.then.as_str(), refused: 0 }).collect()
        };
        let limits = limits.map(|limit| LimitCounts {
            name: limit.name().to_owned(),
            mode: match limit.mode() {
                LimitMode::Enforce => "enforce",
                LimitMode::Monitor => "monitor",
            },
            rules: rules(limit),
            ..LimitCounts::default()
        });
        Self { all: AttemptCounts::default(), limits }
    }

    /// Counts `n` attempts of a row in the logs of such an action; `unknown` if the record cannot know how
    /// they would have ended.
    pub fn count(
        &mut self,
        row: &ReplayRow,
        action: ReplayAction,
        n: u32,
        decision: ReplayDecision,
        unknown: bool,
    ) {
        let n = u64::from(n);
        let unknown = if unknown { n } else { 0 };
        self.all.add(row, n, decision, None);
        self.all.unknown += unknown;
        for log in logs_of(action, row).filter(|log| log.part != LogPart::Challenges) {
            let counts = &mut self.limits[log.limit as usize].counts;
            counts.add(row, n, decision, Some(log.limit));
            counts.unknown += unknown;
        }
        match decision {
            ReplayDecision::Admitted { noted: Some(limit) } => self.limits[limit as usize].noted += n,
            ReplayDecision::Refused { limit, rule, then } => {
                // The rules may differ from those that the record names by number.
                let rule =
                    self.limits[limit as usize].rules.get_mut(rule).filter(|rule| rule.then == then.as_str());
                if let Some(rule) = rule {
                    rule.refused += n;
                }
            }
            ReplayDecision::Admitted { noted: None } | ReplayDecision::Undecided => {}
        }
    }

    pub fn finish(self) -> ComparisonSide {
        let replayed = LimitName::ALL.iter().zip(self.limits).filter(|(name, _)| is_replayed(**name));
        ComparisonSide { all: self.all, limits: replayed.map(|(_, counts)| counts).collect() }
    }
}

impl AttemptCounts {
    /// With a limit: only what it refused itself.
    fn add(&mut self, row: &ReplayRow, n: u64, decision: ReplayDecision, of: Option<LimitName>) {
        self.attempts += n;
        let (mut admitted, mut refused) = (0, 0);
        match decision {
            ReplayDecision::Undecided => self.undecided += n,
            ReplayDecision::Admitted { .. } => admitted = n,
            ReplayDecision::Refused { limit, .. } if of.is_some_and(|of| of != limit) => {}
            ReplayDecision::Refused { then, .. } => {
                refused = n;
                *match then {
                    RuleAction::Captcha => &mut self.challenged,
                    RuleAction::Block => &mut self.throttled,
                } += n;
            }
        }
        self.admitted += admitted;
        if row.honest() {
            self.bothered += refused;
        }
        if row.action.is_send() {
            self.messages_sent += admitted;
            self.messages_stopped += refused;
        }
        if row.action.is_compared() && row.outcome == ReplayOutcome::Wrong {
            self.guesses_verified += admitted;
            self.guesses_stopped += refused;
        } else if row.action.is_compared() && row.is_refused() && !row.honest() {
            self.guesses_verified += admitted;
        }
    }
}
