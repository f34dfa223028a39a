//! Limits and their rules, checked when they are built.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

/// The most hits that a rule may admit in its window: a log of that size still answers quickly.
pub const MAX_HITS: u32 = 1_000_000;
/// A window may not be shorter.
pub const SHORTEST_WINDOW: Duration = Duration::from_millis(100);
/// A leap year.
pub const LONGEST_WINDOW: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// Every rule costs a look-up in each decision; nobody is known to need more than four.
pub const MOST_RULES: usize = 8;

/// A named policy: one or more rules that read one log of each subject. Clones are cheap.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit(Arc<LimitInner>);

#[derive(Debug, Clone)]
struct LimitInner {
    name: String,
    /// Replaces the name when a subject is hashed.
    tag: [u8; 8],
    rules: Vec<Rule>,
    /// The largest `max`, or more if others with a larger one use the same logs.
    capacity: u32,
    /// The longest window, if no rule follows the calendar: how long a hit can be counted.
    sight: Option<Duration>,
    mode: LimitMode,
    /// Its `captcha` rules refuse nobody.
    unchallenged: bool,
    /// See [`Limit::challenging`].
    challenging: Option<Limit>,
}

/// Two limits are equal if they decide the same, however much their logs keep.
impl PartialEq for LimitInner {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, tag: _, rules, capacity: _, sight: _, mode, unchallenged, challenging: _ } = self;
        (name, rules, mode, unchallenged) == (&other.name, &other.rules, &other.mode, &other.unchallenged)
    }
}

/// At most `max` hits within `span`, and what happens past it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// How many hits it allows in its window.
    pub max: u32,
    /// The window.
    pub span: RuleSpan,
    /// What happens to the next one.
    pub then: RuleAction,
}

/// The time span that a rule counts over.
#[derive(Debug, Clone, PartialEq)]
pub enum RuleSpan {
    /// The last `window` before now; a hit exactly that old no longer counts.
    Sliding(Duration),
    /// The current calendar unit in a named time zone; counting starts again when it ends.
    Calendar {
        /// The unit.
        unit: CalendarUnit,
        /// Where it begins and ends.
        zone: TimeZone,
    },
}

impl RuleSpan {
    /// The longest time that it can look back.
    pub const fn longest(&self) -> Duration {
        match self {
            Self::Sliding(window) => *window,
            Self::Calendar { unit, .. } => match unit {
                CalendarUnit::Minute => Duration::from_secs(60),
                CalendarUnit::Hour => Duration::from_secs(60 * 60),
                // Putting a clock back makes a day an hour longer, and some zones have moved by more.
                CalendarUnit::Day => Duration::from_secs(2 * 24 * 60 * 60),
                CalendarUnit::Week => Duration::from_secs(8 * 24 * 60 * 60),
                CalendarUnit::Month => Duration::from_secs(32 * 24 * 60 * 60),
                CalendarUnit::Year => LONGEST_WINDOW,
            },
        }
    }
}

/// The windows of a calendar rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalendarUnit {
    /// From the full minute on.
    Minute,
    /// From the full hour on.
    Hour,
    /// From midnight on.
    Day,
    /// Monday to Sunday (ISO 8601).
    Week,
    /// From the first of the month on.
    Month,
    /// From 1 January on.
    Year,
}

impl CalendarUnit {
    /// Every unit, the shortest first.
    pub const ALL: [Self; 6] = [Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The name in documents and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

/// What happens to an attempt past a rule. Ordered by strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RuleAction {
    /// Refused unless a solved challenge came with the attempt.
    Captcha,
    /// Always refused.
    #[default]
    Block,
}

impl RuleAction {
    /// The name in documents and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Captcha => "captcha",
            Self::Block => "block",
        }
    }
}

/// Whether a limit refuses or only counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LimitMode {
    /// It refuses.
    #[default]
    Enforce,
    /// Counted and reported, never enforced.
    Monitor,
}

/// Why a limit cannot be built; `rule` is the index of the rule at fault, from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("max is {max}; it must be from 1 to {MAX_HITS}")]
    /// `max` is none that a log can hold.
    Max {
        /// The place of the rule, from 0.
        rule: usize,
        /// What was asked for.
        max: u64,
    },
    #[error("window is {}; it must be from 100ms to 366days", humantime::format_duration(*window))]
    /// The window is too short or too long.
    Window {
        /// The place of the rule, from 0.
        rule: usize,
        /// What was asked for.
        window: Duration,
    },
    #[error("has {count} rules; at most {MOST_RULES} can be checked in one step")]
    /// There are more rules than one step can judge.
    TooManyRules {
        /// How many were given.
        count: usize,
    },
    #[error("has the same span and action as rule {other}; keep one of them")]
    /// Two rules say the same of the same window.
    Duplicate {
        /// The place of the later one, from 0.
        rule: usize,
        /// The place of the earlier one, from 0.
        other: usize,
    },
}

impl LimitError {
    /// The place of the rule that is wrong, from 0; None if it is their number.
    pub const fn rule(&self) -> Option<usize> {
        match self {
            Self::Max { rule, .. } | Self::Window { rule, .. } | Self::Duplicate { rule, .. } => Some(*rule),
            Self::TooManyRules { .. } => None,
        }
    }
}

impl Limit {
    /// A limit with no rules is switched off: it admits everything and logs nothing.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use gatehouse_limiter::{Limit, LimitMode, Rule, RuleAction};
    ///
    /// let minute = Rule::sliding(3, Duration::from_secs(60), RuleAction::Captcha);
    /// let hour = Rule::sliding(20, Duration::from_secs(3600), RuleAction::Block);
    /// let limit = Limit::new("login", vec![minute, hour], LimitMode::Enforce)?;
    /// assert_eq!(limit.rules().len(), 2);
    /// # Ok::<(), gatehouse_limiter::LimitError>(())
    /// ```
    pub fn new(name: impl Into<String>, rules: Vec<Rule>, mode: LimitMode) -> Result<Self, LimitError> {
        if rules.len() > MOST_RULES {
            return Err(LimitError::TooManyRules { count: rules.len() });
        }
        for (index, rule) in rules.iter().enumerate() {
            rule.check(index)?;
            let twin =
                rules[..index].iter().position(|other| other.span == rule.span && other.then == rule.then);
            if let Some(other) = twin {
                return Err(LimitError::Duplicate { rule: index, other });
            }
        }
        let name = name.into();
        let tag = *blake3::hash(name.as_bytes()).as_bytes().first_chunk().expect("32 bytes hold 8");
        let asks = rules.iter().filter(|rule| rule.then == RuleAction::Captcha).cloned().collect::<Vec<_>>();
        let challenging = (!asks.is_empty()).then(|| Self::of(name.clone(), tag, asks, mode, None));
        Ok(Self::of(name, tag, rules, mode, challenging))
    }

    fn of(name: String, tag: [u8; 8], rules: Vec<Rule>, mode: LimitMode, challenging: Option<Self>) -> Self {
        let capacity = rules.iter().map(|rule| rule.max).max().unwrap_or(0);
        let sight = longest_window(&rules);
        Self(Arc::new(LimitInner {
            name,
            tag,
            rules,
            capacity,
            sight,
            mode,
            unchallenged: false,
            challenging,
        }))
    }

    /// Its `captcha` rules alone, for a log of hits that only these count; None if it has none. Use it with a subject of its
    /// own: the logs of one subject of two limits with one name are one log.
    pub fn challenging(&self) -> Option<&Self> {
        self.0.challenging.as_ref()
    }

    /// Returns this limit with logs that keep at least so many hits: for limits of the same name and longest window
    /// with different rules, which use the same logs. Otherwise a hit under the smaller one would drop hits that the
    /// larger one counts.
    #[must_use]
    pub fn keeping(&self, hits: u32) -> Self {
        if self.0.rules.is_empty() || self.0.capacity >= hits {
            return self.clone();
        }
        let challenging = self.challenging().map(|asks| asks.keeping(hits));
        Self(Arc::new(LimitInner { capacity: hits, challenging, ..LimitInner::clone(&self.0) }))
    }

    /// Returns this limit over the same logs, for callers that cannot be shown a challenge, or are asked for one by
    /// another log: its `captcha` rules let them pass, as if they had solved one.
    #[must_use]
    pub fn unchallenged(&self) -> Self {
        let challenging = self.challenging().map(Self::unchallenged);
        Self(Arc::new(LimitInner { unchallenged: true, challenging, ..LimitInner::clone(&self.0) }))
    }

    /// Whether this rule lets an attempt pass, however full it is. `solved`: a challenge was solved with it.
    pub fn spares(&self, rule: &Rule, solved: bool) -> bool {
        rule.then == RuleAction::Captcha && (solved || self.0.unchallenged)
    }

    /// Returns this limit with so many times as many hits.
    #[must_use]
    pub fn times(&self, factor: u32) -> Self {
        let more = |hits: u32| hits.saturating_mul(factor).min(MAX_HITS);
        let rules = self.rules().iter().map(|rule| Rule { max: more(rule.max), ..rule.clone() }).collect();
        let challenging = self.challenging().map(|asks| asks.times(factor));
        let capacity = more(self.0.capacity);
        Self(Arc::new(LimitInner { rules, capacity, challenging, ..LimitInner::clone(&self.0) }))
    }

    /// Separates this limit's subjects from those of other limits: a hash of the name.
    pub fn tag(&self) -> [u8; 8] {
        self.0.tag
    }

    /// Its name, which its logs are found by.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The longest time that any of its rules looks back.
    pub fn longest_window(&self) -> Duration {
        self.rules().iter().map(|rule| rule.span.longest()).max().unwrap_or_default()
    }

    /// Its rules, in the order in which they were given.
    pub fn rules(&self) -> &[Rule] {
        &self.0.rules
    }

    /// Whether it refuses.
    pub fn mode(&self) -> LimitMode {
        self.0.mode
    }

    /// Whether this is the same limit object, not just another one with the same name.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How long a hit can be counted, if that is the same at any time, that is, if no rule follows the
    /// calendar.
    pub(crate) fn sight(&self) -> Option<Duration> {
        self.0.sight
    }

    /// Whether a rule of it asks for a challenge. Only then does a success forgive anything.
    pub fn challenges(&self) -> bool {
        self.0.rules.iter().any(|rule| rule.then == RuleAction::Captcha)
    }

    /// How many hits a log keeps: the largest `max` of its rules, or what [`Limit::keeping`] asks for.
    pub fn capacity(&self) -> u32 {
        self.0.capacity
    }
}

fn longest_window(rules: &[Rule]) -> Option<Duration> {
    rules.iter().try_fold(Duration::ZERO, |longest, rule| match rule.span {
        RuleSpan::Sliding(window) => Some(longest.max(window)),
        RuleSpan::Calendar { .. } => None,
    })
}

impl Rule {
    /// A rule that counts the last `window`, at every moment.
    pub const fn sliding(max: u32, window: Duration, then: RuleAction) -> Self {
        Self { max, span: RuleSpan::Sliding(window), then }
    }

    fn check(&self, rule: usize) -> Result<(), LimitError> {
        if self.max == 0 || self.max > MAX_HITS {
            return Err(LimitError::Max { rule, max: u64::from(self.max) });
        }
        match self.span {
            RuleSpan::Sliding(window) if !(SHORTEST_WINDOW..=LONGEST_WINDOW).contains(&window) => {
                Err(LimitError::Window { rule, window })
            }
            _ => Ok(()),
        }
    }
}
