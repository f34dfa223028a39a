//! Reads events: page by page, newest first, by subject and other filters; and sums of them, by time and by subject.

use std::fmt::Write;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row, query, query_as, query_scalar};
use strum::{IntoStaticStr, VariantArray};

use super::event::{Action, AttackKind, EventEntry, Fate, MaskedSubject, Outcome};
use crate::clock::Micros;
use crate::db::{self, Db, DbError, execute, from_row, on_db};

/// Reads recorded events. Call [`Audit::flush`](super::Audit::flush) first to include what was recorded just
/// now.
#[derive(Debug, Clone)]
pub struct EventLog {
    pub(super) db: Db,
}

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
    pub since: Option<Micros>,
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
        let (tests, texts) = filter.tests();
        let sql = format!(
            "SELECT {COLUMNS} FROM events WHERE (at, id) < ($1, $2){tests} ORDER BY at DESC, id DESC LIMIT $3"
        );
        let place = after.unwrap_or(EventCursor::NEWEST);
        let rows: Vec<EventEntry> = on_db!(&self.db, pool => {
            let question = query_as(AssertSqlSafe(sql)).persistent(false).bind(place.at.0).bind(place.id);
            let question = question.bind(i64::from(limit) + 1);
            texts.iter().fold(question, |question, text| question.bind(text)).fetch_all(pool).await
        })?;
        let place = |last: &EventEntry| EventCursor { at: last.at, id: last.id };
        Ok(EventPage::of(rows.into_iter().map(Ok), limit, place)?)
    }

    /// Attempts by step and fate, among the newest 100,000 rows.
    pub async fn counts(
        &self,
        filter: &EventFilter,
        step: Duration,
    ) -> Result<Vec<(Micros, Fate, i64)>, DbError> {
        if filter.has_nul() {
            return Ok(Vec::new());
        }
        let (tests, texts) = filter.tests();
        let step = step.as_micros() as i64;
        let sql = format!(
            "SELECT CAST(at / {step} * {step} AS BIGINT) AS step, outcome, noted, CAST(SUM(count) AS BIGINT)
            FROM (SELECT at, outcome, noted, count FROM events WHERE (at, id) < ($1, $2){tests}
            ORDER BY at DESC, id DESC LIMIT $3) AS newest GROUP BY step, outcome, noted"
        );
        let place = EventCursor::NEWEST;
        let rows: Vec<(i64, Outcome, i64, i64)> = on_db!(&self.db, pool => {
            let question = query_as(AssertSqlSafe(sql)).persistent(false).bind(place.at.0).bind(place.id);
            let question = question.bind(MOST_ROWS);
            texts.iter().fold(question, |question, text| question.bind(text)).fetch_all(pool).await
        })?;
        let count = |(at, outcome, noted, count): (i64, Outcome, i64, i64)| {
            (Micros(at), outcome.fate(noted != 0), count)
        };
        Ok(rows.into_iter().map(count).collect())
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

/// Kinds of subjects by which events can be found and summed; by these words in URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum SubjectKind {
    Account,
    Address,
    Network,
    Phone,
}

impl EventFilter {
    /// The conditions in SQL, and the parameters of their texts from `$4` on. Numbers need none, and a partial index
    /// covers noted rows.
    fn tests(&self) -> (String, Vec<&str>) {
        let (mut sql, mut texts) = (String::new(), Vec::new());
        for (test, number) in [
            ("at >=", self.since.map(|at| at.0)),
            ("at <", self.until.map(|at| at.0)),
            ("account_key =", self.account),
            ("address_key =", self.address),
            ("network_key =", self.network),
            ("phone_key =", self.phone),
            ("noted =", self.noted.map(i64::from)),
        ] {
            sql.extend(number.map(|number| format!(" AND {test} {number}")));
        }
        for (test, text) in [
            ("limit_name =", self.limit.as_deref()),
            ("action = 'attempt' AND name =", self.realm.as_deref()),
        ] {
            texts.extend(text);
            sql.extend(text.map(|_| format!(" AND {test} ${}", texts.len() + 3)));
        }
        for (column, words) in [("action", of(&self.actions)), ("outcome", of(&self.outcomes))] {
            if !words.is_empty() {
                let _ = write!(sql, " AND {}", one_of(column, &words));
            }
        }
        if let Some(attacks) = &self.folded {
            sql.push_str(" AND action <> 'attack'");
            for attack in attacks {
                texts.extend(Some(attack.realm.as_str()).filter(|realm| !realm.is_empty()));
                sql.push_str(&attack.without(texts.len() + 3));
            }
        }
        (sql, texts)
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

pub(super) const COLUMNS: &str =
    "at, id, until_at, count, action, outcome, name, limit_name, rule, noted, solved, account_key, address_key,
    network_key, phone_key, prefix_key, account_mask, address_mask, phone_mask, actor, detail, request";

/// Words of ours, which need no escape.
fn of<Word: Copy + Into<&'static str>>(words: &[Word]) -> Vec<&'static str> {
    words.iter().map(|word| (*word).into()).collect()
}

/// One word is found by its index, in the order of time. For several the index would have to sort all that it
/// finds, so rows are read in the order of time instead, until there are enough.
fn one_of(column: &str, words: &[&str]) -> String {
    match words {
        [word] => format!("{column} = '{word}'"),
        words => format!("({column} || '') IN ('{}')", words.join("', '")),
    }
}

from_row!(EventEntry, row => {
    let number = |column| row.try_get::<i64, &'static str>(column);
    let maybe = |column| row.try_get::<Option<String>, &'static str>(column);
    let shown = |key, mask| {
        let key: Option<i64> = row.try_get::<_, &'static str>(key)?;
        let mask = maybe(mask)?.unwrap_or_default();
        Ok::<_, sqlx::Error>(key.map(|key| MaskedSubject { key, mask }))
    };
        EventEntry {
        at: Micros(number("at")?),
        id: number("id")?,
        until: Micros(number("until_at")?),
        count: number("count")?,
        action: row.try_get("action")?,
        outcome: row.try_get("outcome")?,
        name: maybe("name")?,
        limit: maybe("limit_name")?,
        rule: row.try_get("rule")?,
        noted: number("noted")? != 0,
        solved: number("solved")? != 0,
        account: shown("account_key", "account_mask")?,
        address: shown("address_key", "address_mask")?,
        network: shown("network_key", "address_mask")?,
        phone: shown("phone_key", "phone_mask")?,
        prefix: shown("prefix_key", "phone_mask")?,
        actor: maybe("actor")?,
        detail: maybe("detail")?,
        request: maybe("request")?,
        }
});

pub const MINUTE: Duration = Duration::from_secs(60);
/// Rows that are searched for a chart: a quarter of a second of SQLite's time.
const MOST_ROWS: i64 = 100_000;
/// Rows that are searched for the busiest subjects.
pub const TOP_ROWS: i64 = 30_000;

/// Which events are attempts, in SQL: one for each request. A challenge is part of the attempt that it came
/// with, a sign-in by code follows from the guess before it, and a guess at a code for a registration is part
/// of that.
const ATTEMPTS: &str = "action IN ('sign-in', 'attempt', 'register', 'send', 'guess', 'custom', 'request')
    AND action || ' ' || COALESCE(name, '') NOT IN ('sign-in code', 'guess register')";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCount {
    pub action: Action,
    /// Of an attempt at another program's login; empty for everything else.
    pub realm: String,
    pub outcome: Outcome,
    /// The one that decided, or noted; of what was admitted, one that counts it and no other of its kind. Otherwise
    /// empty.
    pub limit: String,
    /// The same, except for what a limit only noted.
    pub counted_by: String,
    pub noted: bool,
    pub count: i64,
}

impl EventCount {
    pub const fn fate(&self) -> Fate {
        self.outcome.fate(self.noted)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiguresStep {
    pub at: Micros,
    pub sums: Vec<EventCount>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedSubject {
    pub subject: MaskedSubject,
    pub count: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAddress {
    pub address: MaskedSubject,
    /// Attempts from there, and in total.
    pub count: i64,
    pub of: i64,
    pub accounts: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BusiestSubjects {
    ranked: Vec<(SubjectKind, RankedSubject)>,
    /// If nearly all attempts come from it, there is a proxy that we do not trust. None if there were no attempts.
    pub shared: Option<SharedAddress>,
}

impl BusiestSubjects {
    pub fn of(&self, kind: SubjectKind) -> impl Iterator<Item = &RankedSubject> {
        self.ranked.iter().filter(move |(of, _)| *of == kind).map(|(_, subject)| subject)
    }
}

/// The kind of a subject, or nothing for the shared address; its key and mask, its attempts; of that address also the
/// accounts tried from there, and all attempts.
type BusyRow = (String, Option<i64>, Option<String>, i64, i64, i64);
type SumRow = (i64, Action, String, Outcome, String, i64, i64);

/// Sums by step and by everything that tells events apart here, from the minute `$1` until `$2`; of some actions only, if
/// any are named. Each table is summed by itself, which takes SQLite half the time.
fn sums(at: &str, order: &str, actions: &[Action]) -> String {
    let of = |table: &str, action: &str, realm: &str, key: &str, tests: &str| {
        format!(
            "SELECT {at} AS step, {action} AS action, {realm} AS realm, outcome, limit_name, noted,
            CAST(SUM(count) AS BIGINT) AS total FROM {table} WHERE minute >= $1 AND minute < $2{tests}
            GROUP BY step, {key}, outcome, limit_name, noted"
        )
    };
    let tests = match actions {
        [] => String::new(),
        actions => format!(" AND action IN ('{}')", self::of(actions).join("', '")),
    };
    let here = of("event_counts", "action", "''", "action", &tests);
    let realms = match actions.is_empty() || actions.contains(&Action::Attempt) {
        true => format!("UNION ALL {}", of("realm_counts", "'attempt'", "realm", "realm", "")),
        false => String::new(),
    };
    format!(
        "SELECT step, action, realm, outcome, limit_name, noted, total
        FROM ({here} {realms}) AS counts ORDER BY {order}, action, realm, outcome, limit_name, noted"
    )
}

impl EventLog {
    /// How often each thing happened, step by step, from `since` (rounded down to a whole minute) until
    /// `until`. Steps without events are left out. Reads the sums of minutes: some ten thousand rows for a
    /// day, whatever the traffic was. An episode counts at its start.
    pub async fn series(
        &self,
        since: Micros,
        until: Micros,
        step: Duration,
    ) -> Result<Vec<FiguresStep>, DbError> {
        self.series_of(&[], since, until, step).await
    }

    /// The same of some actions, which takes half the time; of all, if none are named.
    pub async fn series_of(
        &self,
        actions: &[Action],
        since: Micros,
        until: Micros,
        step: Duration,
    ) -> Result<Vec<FiguresStep>, DbError> {
        let sql = sums("CAST(minute / $3 * $3 AS BIGINT)", "step", actions);
        let step = step.max(MINUTE).as_micros() as i64;
        let step = step - step % MINUTE.as_micros() as i64;
        let since = since.0 - since.0.rem_euclid(MINUTE.as_micros() as i64);
        let rows: Vec<SumRow> = on_db!(&self.db, pool => query_as(AssertSqlSafe(sql)).bind(since).bind(until.0)
            .bind(step).fetch_all(pool).await)?;
        let mut steps: Vec<FiguresStep> = Vec::new();
        for (at, sum) in rows.into_iter().map(sum) {
            match steps.last_mut().filter(|step| step.at == at) {
                Some(step) => step.sums.push(sum),
                None => steps.push(FiguresStep { at, sums: vec![sum] }),
            }
        }
        Ok(steps)
    }

    /// How often each thing happened from `since` (rounded down to a whole minute) until `until`, the most
    /// frequent first.
    pub async fn totals(&self, since: Micros, until: Micros) -> Result<Vec<EventCount>, DbError> {
        let sql = sums("CAST(0 AS BIGINT)", "total DESC", &[]);
        let since = since.0 - since.0.rem_euclid(MINUTE.as_micros() as i64);
        let rows: Vec<SumRow> = on_db!(&self.db, pool => query_as(AssertSqlSafe(sql)).bind(since).bind(until.0)
            .fetch_all(pool).await)?;
        Ok(rows.into_iter().map(|row| sum(row).1).collect())
    }

    /// The minute in which the sums begin; None if there are none.
    pub async fn began(&self) -> Result<Option<Micros>, DbError> {
        const SQL: &str = "SELECT MIN(minute) FROM event_counts";
        let minute: Option<i64> = on_db!(&self.db, pool => query_scalar(SQL).fetch_one(pool).await)?;
        Ok(minute.map(Micros))
    }

    /// The `most` subjects of each kind with the most attempts since then, the busiest first; and the address with most
    /// of those at our own pages. In one pass over the newest [`TOP_ROWS`] rows.
    ///
    /// Console actions and reloads are not attempts, and addresses that other programs state say nothing about our
    /// proxies.
    pub async fn busiest(&self, since: Micros, most: u32) -> Result<BusiestSubjects, DbError> {
        let arms = SubjectKind::VARIANTS.iter().map(|kind| {
            let word = kind.into_str();
            let masked = if *kind == SubjectKind::Network { "address" } else { word };
            format!(
                "SELECT * FROM (SELECT '{word}' AS kind, {word}_key AS key, MAX({masked}_mask) AS mask,
                CAST(SUM(count) AS BIGINT) AS total, CAST(0 AS BIGINT) AS accounts, CAST(0 AS BIGINT) AS whole
                FROM newest WHERE {word}_key IS NOT NULL GROUP BY {word}_key
                ORDER BY total DESC, {word}_key LIMIT $3) AS {word} UNION ALL "
            )
        });
        let arms: String = arms.collect();
        let sql = format!(
            "WITH newest AS MATERIALIZED (SELECT action, count, account_key, account_mask, address_key, address_mask,
            network_key, phone_key, phone_mask FROM events WHERE at >= $1 AND {ATTEMPTS}
            ORDER BY at DESC, id DESC LIMIT $2)
            {arms} SELECT * FROM (SELECT '' AS kind, address_key AS key, MAX(address_mask) AS mask,
            CAST(SUM(count) AS BIGINT) AS total, COUNT(DISTINCT account_key) AS accounts,
            CAST(SUM(SUM(count)) OVER () AS BIGINT) AS whole FROM newest WHERE action NOT IN ('custom', 'attempt')
            GROUP BY address_key ORDER BY CASE WHEN address_key IS NULL THEN 1 ELSE 0 END, total DESC LIMIT 1)
            AS shared"
        );
        let rows: Vec<BusyRow> = on_db!(&self.db, pool => query_as(AssertSqlSafe(sql)).bind(since.0)
            .bind(TOP_ROWS).bind(i64::from(most)).fetch_all(pool).await)?;
        let mut busiest = BusiestSubjects::default();
        for (kind, key, mask, count, accounts, of) in rows {
            let Some(key) = key else { continue };
            let subject = MaskedSubject { key, mask: mask.unwrap_or_default() };
            match SubjectKind::VARIANTS.iter().find(|it| it.into_str() == kind) {
                Some(kind) => busiest.ranked.push((*kind, RankedSubject { subject, count })),
                None => busiest.shared = Some(SharedAddress { address: subject, count, of, accounts }),
            }
        }
        Ok(busiest)
    }
}

fn sum((at, action, realm, outcome, limit, noted, count): SumRow) -> (Micros, EventCount) {
    let (limit, counted_by) = limit.split_once(' ').unwrap_or((&limit, if noted == 0 { &limit } else { "" }));
    let (limit, counted_by) = (limit.to_owned(), counted_by.to_owned());
    (Micros(at), EventCount { action, realm, outcome, limit, counted_by, noted: noted != 0, count })
}

/// The newest rows that are grouped: a few milliseconds of SQLite's time.
const MOST_FAILURES: i64 = 5_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempts {
    /// Masked; None if too many took part at once to be told apart.
    pub network: Option<String>,
    pub first: Micros,
    pub last: Micros,
    pub wrong_passwords: i64,
    pub wrong_codes: i64,
    /// Refused before anything was compared.
    pub refused: i64,
}

/// The networks of the newest failures, and how many networks there are in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailureSummary {
    pub networks: Vec<FailedAttempts>,
    pub of: i64,
}

/// Mask, first and last time, wrong passwords, wrong codes, refusals, the number of networks.
type FailureRow = (Option<String>, i64, i64, i64, i64, i64, i64);

impl EventLog {
    /// Failed sign-ins to an account, and wrong codes of ours for its number, since then: at most `most` networks, the
    /// newest first. `account` and `phone` are keys of [`Audit::subject`](super::Audit::subject).
    pub async fn failures(
        &self,
        account: i64,
        phone: Option<i64>,
        since: Micros,
        most: u32,
    ) -> Result<FailureSummary, DbError> {
        const SQL: &str = "SELECT address_mask, MIN(at), MAX(until_at) AS newest,
            CAST(SUM(CASE WHEN action = 'sign-in' AND outcome = 'wrong' THEN count ELSE 0 END) AS BIGINT),
            CAST(SUM(CASE WHEN action = 'guess' AND outcome = 'wrong' THEN count ELSE 0 END) AS BIGINT),
            CAST(SUM(CASE WHEN outcome = 'wrong' THEN 0 ELSE count END) AS BIGINT), COUNT(*) OVER ()
            FROM (SELECT * FROM (SELECT at, until_at, action, outcome, count, address_mask FROM events
                    WHERE account_key = $1 AND at >= $3 AND action = 'sign-in'
                    AND outcome IN ('wrong', 'challenged', 'throttled') ORDER BY at DESC LIMIT $4) AS passwords
                UNION ALL SELECT * FROM (SELECT at, until_at, action, outcome, count, address_mask FROM events
                    WHERE phone_key = $2 AND at >= $3 AND action = 'guess'
                    AND COALESCE(detail, '') <> '{\"from\":\"program\"}'
                    AND outcome IN ('wrong', 'challenged', 'throttled') ORDER BY at DESC LIMIT $4) AS codes)
            AS failures GROUP BY address_mask ORDER BY newest DESC, address_mask LIMIT $5";
        let rows: Vec<FailureRow> = on_db!(&self.db, pool => query_as(SQL).bind(account).bind(phone)
            .bind(since.0).bind(MOST_FAILURES).bind(i64::from(most)).fetch_all(pool).await)?;
        let of = rows.first().map_or(0, |row| row.6);
        let failed = |(network, first, last, wrong_passwords, wrong_codes, refused, _): FailureRow| {
            let (first, last) = (Micros(first), Micros(last));
            FailedAttempts { network, first, last, wrong_passwords, wrong_codes, refused }
        };
        Ok(FailureSummary { networks: rows.into_iter().map(failed).collect(), of })
    }
}

impl EventLog {
    /// The oldest first.
    pub(super) async fn purge_before(&self, before: Micros, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM events WHERE (at, id) IN (SELECT at, id FROM events WHERE at < $1
            ORDER BY at, id LIMIT $2)";
        Ok(execute!(&self.db => query(SQL).bind(before.0).bind(i64::from(batch)))?)
    }

    /// The oldest first, except administrators' actions: anybody can create events, but must not push out the
    /// record of those.
    pub(super) async fn purge_oldest(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM events WHERE (at, id) IN (SELECT at, id FROM events
            WHERE NOT (action = 'admin' AND name <> 'access') ORDER BY at, id LIMIT $1)";
        Ok(execute!(&self.db => query(SQL).bind(i64::from(batch)))?)
    }

    pub(super) async fn purge_counts(&self, before: Micros) -> Result<(), DbError> {
        for sql in
            ["DELETE FROM event_counts WHERE minute < $1", "DELETE FROM realm_counts WHERE minute < $1"]
        {
            execute!(&self.db => query(sql).bind(before.0))?;
        }
        Ok(())
    }

    pub(super) async fn count(&self) -> Result<u64, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM events";
        let rows: i64 = on_db!(&self.db, pool => query_scalar(SQL).fetch_one(pool).await)?;
        Ok(rows.unsigned_abs())
    }
}
