//! The figures of the console, from sums of events. `docs/figures.md` says what each counts, and a test compares it
//! with what was sent.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use gatehouse_limiter::{Limit, Rule, RuleAction};

use crate::audit::{Action, EventCount, EventEntry, Fate, MaskedSubject, Outcome};
use crate::clock::Micros;
use crate::config::{LimitName, LimitSubject, LimitUnit};
use crate::web::console::chart::Series;
use crate::web::http::Layout;

pub const HOUR: Duration = Duration::from_secs(60 * 60);
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The fates of attempts of one kind as a chart stacks them, each with the locale key of its name and its colour.
pub type FateSeries = (&'static str, &'static str, &'static [Fate]);

pub const SIGN_INS: [FateSeries; 4] = [
    ("overview.signed-in", "ok", &[Fate::Done]),
    ("overview.wrong", "wrong", &[Fate::Wrong, Fate::Failed]),
    ("overview.challenged", "asked", &[Fate::Challenged]),
    ("overview.refused", "refused", &[Fate::Refused]),
];
pub const MESSAGES: [FateSeries; 4] = [
    ("overview.sent", "ok", &[Fate::Done]),
    ("overview.not-sent", "wrong", &[Fate::Wrong, Fate::Failed]),
    ("overview.challenged", "asked", &[Fate::Challenged]),
    ("overview.refused", "refused", &[Fate::Refused]),
];
pub const EVENTS: [FateSeries; 4] = [
    ("outcome.ok", "ok", &[Fate::Done]),
    ("event.failed", "wrong", &[Fate::Wrong, Fate::Failed]),
    ("outcome.challenged", "asked", &[Fate::Challenged]),
    ("event.refused", "refused", &[Fate::Refused]),
];

/// The actions that send a code: by SMS and by e-mail.
pub const CODES_SENT: [Action; 2] = [Action::Send, Action::Mail];
/// The actions that enter one.
const CODES_ENTERED: [Action; 2] = [Action::Guess, Action::MailGuess];

#[derive(Debug, Clone, Copy, Default)]
pub struct Period {
    pub signed_in: u64,
    pub wrong: u64,
    /// The challenges of all attempts here; the next is of all, too.
    pub challenged: u64,
    pub refused: u64,
    pub images: u64,
    pub solved: u64,
    pub sent: u64,
    pub entered: u64,
    pub wrong_codes: u64,
    /// Passwords disabled after too many wrong ones in a row.
    pub disabled: u64,
    /// Codes by SMS that were not sent because codes are rationed.
    pub withheld: u64,
}

pub fn period(sums: &[EventCount]) -> Period {
    let ended =
        |action: Action, outcome: Outcome| total(sums, |sum| sum.action == action && sum.outcome == outcome);
    let of = |actions: &[Action], fate: Fate| {
        total(sums, |sum| actions.contains(&sum.action) && sum.fate() == fate)
    };
    let all = |fate: Fate| total(sums, |sum| sum.action.is_attempt() && sum.fate() == fate);
    let sent = of(&CODES_SENT, Fate::Done);
    Period {
        signed_in: of(&[Action::SignIn], Fate::Done),
        wrong: of(&[Action::SignIn], Fate::Wrong),
        challenged: all(Fate::Challenged),
        refused: all(Fate::Refused),
        images: ended(Action::Captcha, Outcome::Asked),
        solved: ended(Action::Captcha, Outcome::Ok).min(ended(Action::Captcha, Outcome::Asked)),
        sent,
        // A code sent before the hour may be entered in it.
        entered: of(&CODES_ENTERED, Fate::Done).min(sent),
        wrong_codes: of(&CODES_ENTERED, Fate::Wrong),
        disabled: of(&[Action::PasswordDisabled], Fate::Done),
        withheld: ended(Action::Send, Outcome::Withheld),
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitUse {
    /// Its hits. None for a custom limit, whose hits no event tells.
    pub counted: Option<u64>,
    pub challenged: u64,
    pub refused: u64,
    /// What it would have challenged or refused, but for monitor mode.
    pub noted: u64,
}

impl LimitUse {
    pub fn of(name: &str, sums: &[EventCount]) -> Self {
        let mine = |fate: Fate| total(sums, |sum| sum.limit == name && !sum.noted && sum.fate() == fate);
        let limit = LimitName::parse(name);
        Self {
            counted: limit.map(|limit| total(sums, |sum| counts(limit, sum))),
            challenged: mine(Fate::Challenged),
            refused: mine(Fate::Refused),
            noted: total(sums, |sum| sum.limit == name && sum.noted),
        }
    }
}

/// How near the busiest subject of a limit came to one of its rules.
#[derive(Debug, Clone, PartialEq)]
pub struct NearestRule {
    /// At most as many as the rule allows.
    pub used: u64,
    pub rule: Rule,
}

impl NearestRule {
    /// The nearest since then, of hits in the order of time. None if there was none, or no event tells its hits.
    pub fn of(limit: &Limit, hits: &[(EventEntry, EventCount)], since: Micros) -> Option<Self> {
        let name = LimitName::parse(limit.name())?;
        let mut subjects: HashMap<_, Vec<(Micros, u64)>> = HashMap::new();
        for (row, sum) in hits.iter().filter(|(_, sum)| counts(name, sum)) {
            let Some(subject) = subject_of(name.subject(), row) else { continue };
            subjects.entry(subject).or_default().push((row.at, sum.count.unsigned_abs()));
        }
        let most = |rule: &Rule| {
            let used = subjects.values().map(|hits| most_within(hits, rule.span.longest(), since)).max()?;
            let used = used.min(u64::from(rule.max));
            (used > 0).then(|| Self { used, rule: rule.clone() })
        };
        // A rule that refuses goes before one that is as near.
        let nearness = |near: &Self| {
            (near.used * u64::from(u32::MAX) / u64::from(near.rule.max), near.rule.then == RuleAction::Block)
        };
        limit.rules().iter().filter_map(most).max_by_key(nearness)
    }

    pub fn percent(&self) -> u64 {
        (self.used * 100).div_ceil(u64::from(self.rule.max))
    }
}

/// The most hits of a window that ended since then.
fn most_within(hits: &[(Micros, u64)], window: Duration, since: Micros) -> u64 {
    let (mut first, mut used, mut most) = (0, 0, 0);
    for (at, count) in hits {
        used += count;
        while hits[first].0.plus(window) <= *at {
            used -= hits[first].1;
            first += 1;
        }
        most = most.max(if *at >= since { used } else { 0 });
    }
    most
}

/// Whose hit it is, by the keys of its row; None if the row does not say.
fn subject_of(kind: LimitSubject, row: &EventEntry) -> Option<(Option<&str>, Option<&str>, i64)> {
    let key = |subject: &Option<MaskedSubject>| subject.as_ref().map(|subject| subject.key);
    let (name, detail) = (row.name.as_deref(), row.detail.as_deref());
    Some(match kind {
        LimitSubject::Account => (None, None, key(&row.account)?),
        LimitSubject::Device => (None, detail, key(&row.account)?),
        LimitSubject::Phone | LimitSubject::Mailbox => (None, None, key(&row.phone)?),
        LimitSubject::Address => (None, None, key(&row.address)?),
        LimitSubject::Network => (None, None, key(&row.network)?),
        LimitSubject::Prefix => (None, None, key(&row.prefix)?),
        LimitSubject::Everyone => (None, None, 0),
        LimitSubject::Program => (name, None, 0),
        LimitSubject::RealmAccount => (name, None, key(&row.account)?),
        LimitSubject::RealmDevice => (name, detail, key(&row.account)?),
        LimitSubject::ProgramAddress | LimitSubject::RealmAddress => (name, None, key(&row.address)?),
        LimitSubject::ProgramNetwork | LimitSubject::RealmNetwork => (name, None, key(&row.network)?),
        LimitSubject::ProgramPrefix => (name, None, key(&row.prefix)?),
        LimitSubject::Grant | LimitSubject::Password | LimitSubject::MailDomain => return None,
    })
}

/// Whether these were hits of a limit: what its rules count, not all that it has let through.
fn counts(limit: LimitName, sum: &EventCount) -> bool {
    let by = |limit: LimitName| sum.counted_by == limit.as_str();
    let wrong = sum.fate() == Fate::Wrong;
    let answers = |by: bool| sum.action == Action::Captcha && wrong && by;
    let factors = |by: bool| sum.action == Action::FactorFailed && wrong && by;
    match (limit.unit(), limit) {
        (LimitUnit::SignIn, LimitName::LoginDevice) => sum.action == Action::SignIn && wrong && by(limit),
        (LimitUnit::SignIn, _) => {
            sum.action == Action::SignIn && wrong && !by(LimitName::LoginDevice)
                || limit != LimitName::LoginAccount && answers(by(LimitName::LoginAddress))
                || limit == LimitName::LoginAddress && factors(by(limit))
        }
        (LimitUnit::Factor, LimitName::FactorDevice) => factors(by(limit)),
        (LimitUnit::Factor, _) => factors(!by(LimitName::FactorDevice) && !by(LimitName::LoginAddress)),
        (LimitUnit::ClientCall, _) => sum.action == Action::ClientCall && wrong,
        // Which password was wrong is told nowhere.
        (LimitUnit::Name, _) => false,
        // What is refused counts nowhere: its grant has ended.
        (LimitUnit::Repeat, _) => sum.action == Action::TokenReuse && sum.outcome == Outcome::Ok,
        (LimitUnit::Attempt, LimitName::GuardDevice) => sum.action == Action::Attempt && wrong && by(limit),
        (LimitUnit::Attempt, _) => {
            sum.action == Action::Attempt && wrong && !by(LimitName::GuardDevice)
                || limit != LimitName::GuardAccount && answers(by(LimitName::GuardAddress))
        }
        (LimitUnit::Registration, _) => sum.action == Action::Register && by(limit),
        (LimitUnit::Image, _) => sum.action == Action::Captcha && sum.outcome == Outcome::Asked,
        (LimitUnit::Message, _) => sum.action == Action::Send && counts_message(limit, sum),
        // What is withheld counts for the mailbox and for whoever asked. Domains and notices are counted in SQL.
        (LimitUnit::Mail, LimitName::MailDomain | LimitName::MailNotice) => false,
        (LimitUnit::Mail, LimitName::MailTotal) => sum.action == Action::Mail && sum.outcome == Outcome::Ok,
        (LimitUnit::Mail, _) => {
            sum.action == Action::Mail && matches!(sum.outcome, Outcome::Ok | Outcome::Withheld)
        }
        (LimitUnit::Guess, LimitName::MailGuess) => sum.action == Action::MailGuess && wrong,
        (LimitUnit::Guess, _) => sum.action == Action::Guess && wrong,
    }
}

/// What the gateway refused counts for who asked for it alone, and so does what was withheld, for the number besides.
/// Programs count their own addresses, networks and prefixes, and relays state no address.
fn counts_message(limit: LimitName, sum: &EventCount) -> bool {
    let by = |limit: LimitName| sum.counted_by == limit.as_str();
    let by_program = by(LimitName::VerifyToken) || by(LimitName::RelayToken);
    let sent = matches!(sum.outcome, Outcome::Ok | Outcome::Unknown);
    let asked = sent || matches!(sum.outcome, Outcome::Withheld | Outcome::Failed);
    match limit.as_str() {
        "sms-address" | "sms-network" => asked && !by_program,
        "program-address" | "program-network" => asked && by(LimitName::VerifyToken),
        "sms-prefix" => sent && !by_program,
        "program-prefix" => sent && by_program,
        "sms-phone" => sent || sum.outcome == Outcome::Withheld,
        "verify-token" | "relay-token" => sent && by(limit),
        _ => sent,
    }
}

impl Layout {
    /// What a figure counts, by the key of its name: the same wherever it is shown. Empty for the state of something.
    pub fn means(&self, figure: &str) -> Cow<'static, str> {
        let key = match figure.split('.').next_back().unwrap_or_default() {
            "gateway" => "means.braked".to_owned(),
            "ok" => "means.done".to_owned(),
            name => format!("means.{name}"),
        };
        crate::_rust_i18n_try_translate(self.locale.code(), key).unwrap_or_default()
    }
}

/// What fits in each step, as a chart stacks it.
pub fn stacked(
    kinds: &[FateSeries],
    steps: &[Vec<EventCount>],
    fits: impl Fn(&EventCount) -> bool,
) -> Vec<Series> {
    let counted =
        |sums: &[EventCount], fates: &[Fate]| total(sums, |sum| fits(sum) && fates.contains(&sum.fate()));
    let counts = |fates: &[Fate]| steps.iter().map(|sums| counted(sums, fates)).collect();
    kinds.iter().map(|(key, tone, fates)| Series { key, tone, counts: counts(fates) }).collect()
}

pub fn total(sums: &[EventCount], fits: impl Fn(&EventCount) -> bool) -> u64 {
    sums.iter().filter(|sum| fits(sum)).map(|sum| u64::try_from(sum.count).unwrap_or(0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_a_window_counts_that_ended_in_the_time_asked_for() {
        let hits = [(0, 5), (50, 1), (70, 2), (115, 1)].map(|(at, count)| (Micros::from_seconds(at), count));
        let most = |since| most_within(&hits, Duration::from_secs(60), Micros::from_seconds(since));
        assert_eq!(most(0), 6, "at 50 seconds, those at the start included");
        assert_eq!(most(60), 3, "a hit exactly as old as the window no longer counts");
        assert_eq!(most(116), 0);
    }
}
