//! Reads events: page by page, newest first, by subject and other filters.

use std::fmt::Write;
use std::time::Duration;

use sqlx::{AssertSqlSafe, query_as};

use super::attack_kind::AttackKind;
use super::event::{Action, Outcome};
use super::fate::Fate;
use crate::clock::Micros;
use crate::db::{self, Db, DbError, on_db};

/// Reads recorded events. Call [`Audit::flush`](super::Audit::flush) first to include what was recorded just
/// now.
#[derive(Debug, Clone)]
pub struct EventLog {
    pub(super) db: Db,
}

/// A filter of events; everything if nothing is set.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// One of these; any if empty.
    pub actions: Vec<Action>,
    pub outcomes: Vec<Outcome>,
    /// Attempts at this login of another program.
    pub realm: Option<String>,
    pub limit: Option<String>,
    /// By [`Audit::subject`](super::Audit::subject).
    pub account: Option<i64>,
    pub address: Option<i64>,
    pub network: Option<i64>,
    pub phone: Option<i64>,
    /// Events that began at this time or later.
    pub since: Option<Micros>,
    /// Events that began before this time.
    pub until: Option<Micros>,
    /// Only what a limit in monitor mode would have refused, or only the rest.
    pub noted: Option<bool>,
    /// Without the events of these attacks, and without those that tell of attacks.
    pub folded: Option<Vec<FoldedAttack>>,
}

/// An attack whose events are left out: those of its kind in its time, and in its realm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedAttack {
    pub kind: AttackKind,
    /// Empty if it is here.
    pub realm: String,
    pub from: Micros,
    /// Inclusive.
    pub until: Micros,
}

pub type EventCursor = db::RowCursor<i64>;
pub type EventPage = db::RowPage<EventEntry, i64>;

/// One row: an event, or an episode of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventEntry {
    pub at: Micros,
    pub id: i64,
    /// The last time of an episode; for a failure, from when it counts.
    pub until: Micros,
    pub count: i64,
    pub action: Action,
    pub outcome: Outcome,
    pub name: Option<String>,
    pub limit: Option<String>,
    /// From 0.
    pub rule: Option<i64>,
    pub noted: bool,
    pub solved: bool,
    pub account: Option<MaskedSubject>,
    pub address: Option<MaskedSubject>,
    pub network: Option<MaskedSubject>,
    pub phone: Option<MaskedSubject>,
    pub prefix: Option<MaskedSubject>,
    /// The id of an account.
    pub actor: Option<String>,
    pub detail: Option<String>,
    /// The request id; for an episode, of the first request.
    pub request: Option<String>,
}

/// A subject as it may be shown, with the key to find more of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedSubject {
    pub key: i64,
    pub mask: String,
}

impl EventCursor {
    const NEWEST: Self = Self { at: Micros(i64::MAX), id: i64::MAX };

    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_with(text, |id| id.parse().ok())
    }
}

impl EventLog {
    /// At most `limit` rows, newest first, after the cursor. With one filter it reads only what it returns;
    /// with several it may have to skip rows that match only one of them.
    pub async fn page(
        &self,
        filter: &EventFilter,
        after: Option<EventCursor>,
        limit: u32,
    ) -> Result<EventPage, DbError> {
        // A text that PostgreSQL cannot store matches nothing.
        if filter.has_nul() {
            return Ok(EventPage::empty());
        }
        let (tests, numbers, texts) = filter.tests();
        let sql = format!(
            "SELECT at, id, until_at, count, action, outcome, name, limit_name, rule, noted, solved,
            account_key, address_key, network_key, phone_key, prefix_key, account_mask, address_mask,
            phone_mask, actor, detail, request FROM events WHERE (at, id) < ($1, $2){tests}
            ORDER BY at DESC, id DESC LIMIT $3"
        );
        let place = after.unwrap_or(EventCursor::NEWEST);
        let rows: Vec<RawEventEntry> = on_db!(&self.db, pool => {
            let mut question = query_as(AssertSqlSafe(sql)).bind(place.at.0).bind(place.id);
            question = question.bind(i64::from(limit) + 1);
            for number in &numbers {
                question = question.bind(number);
            }
            for text in &texts {
                question = question.bind(text);
            }
            question.fetch_all(pool).await
        })?;
        let place = |last: &EventEntry| EventCursor { at: last.at, id: last.id };
        Ok(EventPage::of(rows.into_iter().map(RawEventEntry::parse), limit, place)?)
    }

    /// Attempts by step and fate, among the newest 100,000 rows.
    pub async fn counts(
        &self,
        filter: &EventFilter,
        step: Duration,
    ) -> Result<Vec<(Micros, Fate, i64)>, DbError> {
        const MOST_ROWS: i64 = 100_000;
        if filter.has_nul() {
            return Ok(Vec::new());
        }
        let (tests, numbers, texts) = filter.tests();
        let step = step.as_micros() as i64;
        let sql = format!(
            "SELECT CAST(at / {step} * {step} AS BIGINT) AS step, outcome, noted, CAST(SUM(count) AS BIGINT)
            FROM (SELECT at, outcome, noted, count FROM events WHERE (at, id) < ($1, $2){tests}
            ORDER BY at DESC, id DESC LIMIT $3) AS newest GROUP BY step, outcome, noted"
        );
        let place = EventCursor::NEWEST;
        let rows: Vec<(i64, String, i64, i64)> = on_db!(&self.db, pool => {
            let mut question = query_as(AssertSqlSafe(sql)).bind(place.at.0).bind(place.id).bind(MOST_ROWS);
            for number in &numbers {
                question = question.bind(number);
            }
            for text in &texts {
                question = question.bind(text);
            }
            question.fetch_all(pool).await
        })?;
        let count = |(at, ended, noted, count): (i64, String, i64, i64)| {
            Ok((Micros(at), outcome(&ended)?.fate(noted != 0), count))
        };
        Ok(rows.into_iter().map(count).collect::<Result<_, sqlx::Error>>()?)
    }

    /// The newest events of one subject, which `filter` names.
    pub async fn by_subject(
        &self,
        kind: SubjectKind,
        key: i64,
        since: Micros,
        limit: u32,
    ) -> Result<Vec<EventEntry>, DbError> {
        let mut filter = EventFilter { since: Some(since), ..EventFilter::default() };
        match kind {
            SubjectKind::Account => filter.account = Some(key),
            SubjectKind::Address => filter.address = Some(key),
            SubjectKind::Network => filter.network = Some(key),
            SubjectKind::Phone => filter.phone = Some(key),
        }
        Ok(self.page(&filter, None, limit).await?.entries)
    }
}

/// Kinds of subjects by which events can be found and summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectKind {
    Account,
    Address,
    Network,
    Phone,
}

impl EventFilter {
    /// The conditions in SQL and their parameters: numbers from `$4` on, then texts.
    fn tests(&self) -> (String, Vec<i64>, Vec<&str>) {
        let numbers = [
            ("at >=", self.since.map(|at| at.0)),
            ("at <", self.until.map(|at| at.0)),
            ("account_key =", self.account),
            ("address_key =", self.address),
            ("network_key =", self.network),
            ("phone_key =", self.phone),
        ];
        let texts = [
            ("limit_name =", self.limit.as_deref()),
            ("action = 'attempt' AND name =", self.realm.as_deref()),
        ];
        let numbers: Vec<_> = numbers.into_iter().filter_map(|(test, value)| Some((test, value?))).collect();
        let texts: Vec<_> = texts.into_iter().filter_map(|(test, value)| Some((test, value?))).collect();
        let tests = numbers.iter().map(|(test, _)| test).chain(texts.iter().map(|(test, _)| test));
        let mut sql: String =
            tests.enumerate().map(|(index, test)| format!(" AND {test} ${}", index + 4)).collect();
        for (column, words) in [("action", of(&self.actions)), ("outcome", of(&self.outcomes))] {
            if !words.is_empty() {
                let _ = write!(sql, " AND {}", one_of(column, &words));
            }
        }
        let mut texts: Vec<&str> = texts.into_iter().map(|(_, value)| value).collect();
        if let Some(attacks) = &self.folded {
            sql.push_str(" AND action <> 'attack'");
            for attack in attacks {
                texts.extend(Some(attack.realm.as_str()).filter(|realm| !realm.is_empty()));
                sql.push_str(&attack.without(numbers.len() + texts.len() + 3));
            }
        }
        // As a literal, because a partial index covers noted rows.
        sql.push_str(match self.noted {
            Some(true) => " AND noted = 1",
            Some(false) => " AND noted = 0",
            None => "",
        });
        let numbers = numbers.into_iter().map(|(_, value)| value).collect();
        (sql, numbers, texts)
    }

    fn has_nul(&self) -> bool {
        [&self.limit, &self.realm].into_iter().flatten().any(|name| name.contains('\0'))
    }
}

impl FoldedAttack {
    /// The condition for everything else; `realm` is the number of the realm's parameter, if it has one.
    fn without(&self, realm: usize) -> String {
        let Self { kind, from, until, .. } = self;
        let outcomes = of(kind.outcomes());
        let outcomes = match outcomes.is_empty() {
            true => String::new(),
            false => format!(" AND {}", one_of("outcome", &outcomes)),
        };
        let action = one_of("action", &of(&[kind.action()]));
        let realm = if self.realm.is_empty() { String::new() } else { format!(" AND name = ${realm}") };
        format!(" AND NOT ({action}{realm}{outcomes} AND at >= {} AND at <= {})", from.0, until.0)
    }
}

/// Words of ours, which need no escape.
trait EventWord: Copy {
    fn word(self) -> &'static str;
}

impl EventWord for Action {
    fn word(self) -> &'static str {
        self.as_str()
    }
}

impl EventWord for Outcome {
    fn word(self) -> &'static str {
        self.as_str()
    }
}

fn of(words: &[impl EventWord]) -> Vec<&'static str> {
    words.iter().map(|word| word.word()).collect()
}

/// One word is found by its index, in the order of time. For several the index would have to sort all that it
/// finds, so rows are read in the order of time instead, until there are enough.
fn one_of(column: &str, words: &[&str]) -> String {
    match words {
        [word] => format!("{column} = '{word}'"),
        words => format!("({column} || '') IN ('{}')", words.join("', '")),
    }
}

#[derive(sqlx::FromRow)]
struct RawEventEntry {
    at: i64,
    id: i64,
    until_at: i64,
    count: i64,
    action: String,
    outcome: String,
    name: Option<String>,
    limit_name: Option<String>,
    rule: Option<i64>,
    noted: i64,
    solved: i64,
    account_key: Option<i64>,
    address_key: Option<i64>,
    network_key: Option<i64>,
    phone_key: Option<i64>,
    prefix_key: Option<i64>,
    account_mask: Option<String>,
    address_mask: Option<String>,
    phone_mask: Option<String>,
    actor: Option<String>,
    detail: Option<String>,
    request: Option<String>,
}

impl RawEventEntry {
    fn parse(self) -> Result<EventEntry, sqlx::Error> {
        let shown = |key: Option<i64>, mask: &Option<String>| {
            Some(MaskedSubject { key: key?, mask: mask.clone().unwrap_or_default() })
        };
        Ok(EventEntry {
            at: Micros(self.at),
            id: self.id,
            until: Micros(self.until_at),
            count: self.count,
            action: action(&self.action)?,
            outcome: outcome(&self.outcome)?,
            name: self.name,
            limit: self.limit_name,
            rule: self.rule,
            noted: self.noted != 0,
            solved: self.solved != 0,
            account: shown(self.account_key, &self.account_mask),
            address: shown(self.address_key, &self.address_mask),
            network: shown(self.network_key, &self.address_mask),
            phone: shown(self.phone_key, &self.phone_mask),
            prefix: shown(self.prefix_key, &self.phone_mask),
            actor: self.actor,
            detail: self.detail,
            request: self.request,
        })
    }
}

pub(super) fn action(text: &str) -> Result<Action, sqlx::Error> {
    Action::parse(text).ok_or_else(|| sqlx::Error::Decode("an unknown action".into()))
}

pub(super) fn outcome(text: &str) -> Result<Outcome, sqlx::Error> {
    Outcome::parse(text).ok_or_else(|| sqlx::Error::Decode("an unknown outcome".into()))
}
