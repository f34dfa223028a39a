//! Reads events: page by page, newest first, by subject and other filters; and sums of them, by time and by subject.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, FromRow, Row, query, query_as, query_scalar};
use strum::VariantArray;

use super::AttackEntry;
use super::event::{Action, EventEntry, MaskedSubject, Outcome, SubjectKind};
use super::sums::{EventCount, MINUTE, QUARTER, StepSpan, floor, summed};
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
    /// The keys of subjects, made by [`Audit::subject`](super::Audit::subject).
    pub subjects: BTreeMap<SubjectKind, i64>,
    /// The `x-request-id` of the request.
    pub request: Option<String>,
    pub since: Option<Micros>,
    pub until: Option<Micros>,
    /// Part of what a row says, or the beginning of a key in it. No index finds that.
    pub text: Option<String>,
    /// Only those that name an account.
    pub named: bool,
    /// A page reads no more rows than these to find its own. If it finds fewer, the next one reads on.
    pub most: Option<u32>,
    /// Only what a limit in monitor mode would have refused, or only the rest.
    pub noted: Option<bool>,
    /// Without the events of these attacks, and without those that tell of attacks.
    pub folded: Option<Vec<AttackEntry>>,
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
        let after = after.unwrap_or(EventCursor::NEWEST);
        let tests = self.tests(filter);
        let floor = self.floor(filter, &tests, after).await?;
        let FilterTests { indexed, others, texts, .. } = &tests;
        let floor_test = floor.map(|at| format!(" AND at >= {}", at.0)).unwrap_or_default();
        let sql = format!(
            "SELECT {COLUMNS} FROM events WHERE (at, id) < ($1, $2){indexed}{others}{floor_test}
            ORDER BY at DESC, id DESC LIMIT $3"
        );
        let rows: Vec<EventEntry> = self.rows(sql, after, i64::from(limit) + 1, texts).await?;
        let place = |last: &EventEntry| EventCursor { at: last.at, id: last.id };
        let page = EventPage::of(rows.into_iter().map(Ok), limit, place)?;
        let below = floor.map(|at| EventCursor { at, id: i64::MIN });
        Ok(EventPage { next: page.next.or(below), ..page })
    }

    /// Until when a page reads, if it may not read all that an index finds: what that finds is counted in the index.
    async fn floor(
        &self,
        filter: &EventFilter,
        tests: &FilterTests<'_>,
        after: EventCursor,
    ) -> Result<Option<Micros>, DbError> {
        let Some(most) = filter.most.filter(|_| !tests.others.is_empty()) else { return Ok(None) };
        let sql = format!(
            "SELECT at FROM events WHERE (at, id) < ($1, $2){} ORDER BY at DESC LIMIT 1 OFFSET $3",
            tests.indexed
        );
        let texts = &tests.texts[..usize::from(tests.by_text)];
        let floor: Vec<(i64,)> = self.rows(sql, after, most.into(), texts).await?;
        Ok(floor.first().map(|(at,)| Micros(*at)))
    }

    /// The answer to a question whose parameters are a place, a number of rows, and the texts of a filter. As many
    /// questions as filters are not worth preparing.
    async fn rows<T>(
        &self,
        sql: String,
        before: EventCursor,
        rows: i64,
        texts: &[Cow<'_, str>],
    ) -> Result<Vec<T>, DbError>
    where
        T: for<'row> FromRow<'row, SqliteRow> + for<'row> FromRow<'row, PgRow> + Send + Unpin,
    {
        Ok(on_db!(&self.db, pool => {
            let question = query_as(AssertSqlSafe(sql)).persistent(false).bind(before.at.0).bind(before.id);
            let question = question.bind(rows);
            texts.iter().fold(question, |question, text| question.bind(&**text)).fetch_all(pool).await
        })?)
    }

    fn tests<'a>(&self, filter: &'a EventFilter) -> FilterTests<'a> {
        let mut tests = FilterTests::default();
        for (test, at) in [(">=", filter.since), ("<", filter.until)] {
            tests.indexed.extend(at.map(|at| format!(" AND at {test} {}", at.0)));
        }
        tests.text("request", filter.request.as_deref());
        for (kind, key) in &filter.subjects {
            tests.add(Some(format!("{} = {key}", kind.key_column())));
        }
        // A partial index has these rows, with their limits.
        tests.add(filter.noted.map(|noted| format!("noted = {}", i64::from(noted))));
        tests.text("limit_name", filter.limit.as_deref());
        tests.add(filter.realm.as_ref().map(|_| "action = 'attempt'".to_owned()));
        tests.text("name", filter.realm.as_deref());
        for (column, words) in [("outcome", of(&filter.outcomes)), ("action", of(&filter.actions))] {
            match words[..] {
                [] => {}
                [word] => tests.word(column, &format!("'{word}'")),
                _ => tests.other(&one_of(column, &words)),
            }
        }
        if filter.named {
            tests.other("account_key IS NOT NULL");
        }
        if let Some(attacks) = &filter.folded {
            tests.other("action <> 'attack'");
            for attack in attacks {
                let realm = Some(attack.realm.as_str()).filter(|realm| !realm.is_empty());
                tests.texts.extend(realm.map(Cow::Borrowed));
                tests.other(&without(attack, tests.texts.len() + 3));
            }
        }
        if let Some(text) = &filter.text {
            tests.texts.push(format!("%{}%", escaped(text)).into());
            tests.other(&self.says(text, tests.texts.len() + 3));
        }
        tests
    }

    /// Whether a row says the text, which is the parameter of this number.
    fn says(&self, text: &str, parameter: usize) -> String {
        const SAID: &str =
            "detail name limit_name action outcome actor request account_mask address_mask phone_mask";
        // SQLite's takes letters of both cases for the same.
        let like = if matches!(self.db, Db::Sqlite(_)) { "LIKE" } else { "ILIKE" };
        let said = SAID.split(' ').map(|column| format!("{column} {like} ${parameter} ESCAPE '\\'"));
        let of_keys = |(first, last): (i64, i64)| {
            let columns = SubjectKind::VARIANTS.iter().map(|kind| kind.key_column());
            columns.map(move |column| format!("{column} BETWEEN {first} AND {last}"))
        };
        let keys = keys_from(text).into_iter().flat_map(of_keys);
        format!("({})", said.chain(keys).collect::<Vec<_>>().join(" OR "))
    }

    /// The subject whose key begins with these hexadecimal digits, if events name exactly one.
    pub async fn subject(&self, digits: &str) -> Result<Option<(SubjectKind, i64)>, DbError> {
        let Some((first, last)) = keys_from(digits) else { return Ok(None) };
        let mut found = Vec::new();
        for &kind in SubjectKind::VARIANTS {
            let column = kind.key_column();
            let end = |end| format!("(SELECT {end}({column}) FROM events WHERE {column} BETWEEN $1 AND $2)");
            let sql = format!("SELECT {}, {}", end("MIN"), end("MAX"));
            let (one, other): (Option<i64>, Option<i64>) = on_db!(&self.db, pool =>
                query_as(AssertSqlSafe(sql)).bind(first).bind(last).fetch_one(pool).await)?;
            found.extend([one, other.filter(|_| other != one)].into_iter().flatten().map(|key| (kind, key)));
        }
        Ok(if let [only] = found[..] { Some(only) } else { None })
    }

    /// The attempts of each step, without their limits, among the newest 50,000 rows.
    pub async fn counts(
        &self,
        filter: &EventFilter,
        span: &StepSpan,
    ) -> Result<Vec<Vec<EventCount>>, DbError> {
        if filter.has_nul() {
            return Ok(span.filled(Vec::new()));
        }
        let filter = EventFilter { since: Some(span.start), until: Some(span.end()), ..filter.clone() };
        let FilterTests { indexed, others, texts, .. } = self.tests(&filter);
        let (start, step) = (span.start.0, span.step.as_micros());
        let sql = format!(
            "SELECT CAST((at - {start}) / {step} AS BIGINT) AS step, action, '' AS realm, outcome, '' AS limit_name,
            noted, CAST(SUM(count) AS BIGINT)
            FROM (SELECT * FROM events WHERE (at, id) < ($1, $2){indexed} ORDER BY at DESC, id DESC LIMIT $3)
            AS newest WHERE 1 = 1{others} GROUP BY step, action, outcome, noted"
        );
        Ok(span.filled(self.rows(sql, EventCursor::NEWEST, CHART_ROWS, &texts).await?))
    }

    /// How often each network (a /24, of IPv6 a /48) took part since then, among the newest 50,000 rows of an action that
    /// ended so: in any way if `outcomes` is empty, in any realm if that is.
    pub async fn networks(
        &self,
        (action, outcomes): (Action, &[Outcome]),
        realm: &str,
        since: Micros,
    ) -> Result<Vec<(String, i64)>, DbError> {
        // `||` keeps SQLite from the index of outcomes.
        let ended = match outcomes {
            [] => String::new(),
            outcomes => format!(" AND (outcome || '') IN ('{}')", of(outcomes).join("', '")),
        };
        let sql = format!(
            "SELECT address_mask, CAST(SUM(count) AS BIGINT) FROM (SELECT COALESCE(address_mask, '') AS address_mask,
            count FROM events WHERE action = $1 AND at >= $2 AND ($3 = '' OR name = $3){ended}
            ORDER BY at DESC, id DESC LIMIT $4) AS newest GROUP BY address_mask"
        );
        Ok(on_db!(&self.db, pool => query_as(AssertSqlSafe(sql)).bind(action.into_str()).bind(since.0)
            .bind(realm).bind(CHART_ROWS).fetch_all(pool).await)?)
    }

    /// The newest events of one subject.
    pub async fn by_subject(
        &self,
        kind: SubjectKind,
        key: i64,
        since: Micros,
        limit: u32,
    ) -> Result<Vec<EventEntry>, DbError> {
        let subjects = [(kind, key)].into();
        let filter = EventFilter { subjects, since: Some(since), ..EventFilter::default() };
        Ok(self.page(&filter, None, limit).await?.entries)
    }
}

/// Rows that a page of the console reads at most: some 25 ms of SQLite's time.
pub const SEARCHED: u32 = 20_000;
/// Rows that a chart counts at most: a tenth of a second of SQLite's time.
const CHART_ROWS: i64 = 50_000;
/// Fewer digits of a key would match too many.
const FEWEST_DIGITS: usize = 4;

/// The keys that begin with these hexadecimal digits.
fn keys_from(digits: &str) -> Option<(i64, i64)> {
    if !(FEWEST_DIGITS..=16).contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    {
        return None;
    }
    let key =
        |filler: &str| u64::from_str_radix(&format!("{digits}{}", filler.repeat(16 - digits.len())), 16);
    Some((key("0").ok()?.cast_signed(), key("f").ok()?.cast_signed()))
}

/// For `LIKE`, as itself.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
}

/// The conditions of a filter in SQL, and their texts, which are the parameters from `$4` on.
#[derive(Default)]
struct FilterTests<'a> {
    /// The time, and the first test that an index finds in the order of time.
    indexed: String,
    is_indexed: bool,
    /// Whether that is the test of the first text.
    by_text: bool,
    others: String,
    texts: Vec<Cow<'a, str>>,
}

impl<'a> FilterTests<'a> {
    /// One that has an index; the first that is added is found by it.
    fn add(&mut self, test: Option<String>) {
        let Some(test) = test else { return };
        if self.is_indexed {
            self.other(&test);
        } else {
            self.is_indexed = true;
            let _ = write!(self.indexed, " AND {test}");
        }
    }

    fn text(&mut self, column: &str, text: Option<&'a str>) {
        let Some(text) = text else { return };
        self.by_text |= !self.is_indexed;
        self.texts.push(text.into());
        self.word(column, &format!("${}", self.texts.len() + 3));
    }

    /// If another index finds the rows, this column's must not: SQLite knows nothing of how many each would find.
    fn word(&mut self, column: &str, word: &str) {
        let column = if self.is_indexed { format!("({column} || '')") } else { column.to_owned() };
        self.add(Some(format!("{column} = {word}")));
    }

    fn other(&mut self, test: &str) {
        let _ = write!(self.others, " AND {test}");
    }
}

impl EventFilter {
    fn has_nul(&self) -> bool {
        let texts = [&self.limit, &self.realm, &self.request, &self.text];
        texts.into_iter().flatten().any(|text| text.contains('\0'))
    }
}

/// The condition for everything but the events of an attack: those of its kind in its time, and in its realm, if it has
/// one, whose parameter has this number.
fn without(attack: &AttackEntry, realm: usize) -> String {
    let AttackEntry { kind, began_at, seen_at, .. } = attack;
    let outcomes = of(kind.outcomes());
    let outcomes = match outcomes.is_empty() {
        true => String::new(),
        false => format!(" AND {}", one_of("outcome", &outcomes)),
    };
    let action = one_of("action", &of(&[kind.action()]));
    let realm = if attack.realm.is_empty() { String::new() } else { format!(" AND name = ${realm}") };
    format!("NOT ({action}{realm}{outcomes} AND at >= {} AND at <= {})", began_at.0, seen_at.0)
}

pub(super) const COLUMNS: &str =
    "at, id, until_at, count, action, outcome, name, limit_name, rule, noted, solved, account_key, address_key,
    network_key, phone_key, prefix_key, account_mask, address_mask, phone_mask, actor, detail, request, hits";

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
        hits: maybe("hits")?,
    }
});

/// What receivers of webhooks are told, and its number.
#[derive(Debug, Clone)]
pub struct NewsEntry {
    pub number: i64,
    pub entry: EventEntry,
}

from_row!(NewsEntry, row => NewsEntry { number: row.try_get("news")?, entry: EventEntry::from_row(row)? });

impl EventLog {
    /// What is told after this number, the first first. A number is seen after all smaller ones, so that whoever reads on
    /// misses nothing.
    pub async fn news(&self, after: i64, limit: u32) -> Result<Vec<NewsEntry>, DbError> {
        let sql = format!("SELECT {COLUMNS}, news FROM events WHERE news > $1 ORDER BY news LIMIT $2");
        Ok(on_db!(&self.db, pool => query_as(AssertSqlSafe(sql)).bind(after).bind(i64::from(limit))
            .fetch_all(pool).await)?)
    }

    /// The number before the first that happened since then.
    pub async fn news_before(&self, since: Micros) -> Result<i64, DbError> {
        const SQL: &str = "SELECT COALESCE(
            (SELECT MIN(news) - 1 FROM events WHERE news IS NOT NULL AND at >= $1), (SELECT newest FROM event_news))";
        Ok(on_db!(&self.db, pool => query_scalar(SQL).bind(since.0).fetch_one(pool).await)?)
    }
}

/// Rows that are searched for the busiest subject of each limit.
const HIT_ROWS: i64 = 10_000;
/// What limits may have counted, in SQL: all but what was refused, and what is right. `||` keeps SQLite from the index of
/// outcomes: in an attack of 900,000 rows it would sort them all (1.6 s, against 0.04 s by time).
const HITS: &str = "(outcome || '' IN ('wrong', 'asked', 'withheld', 'failed', 'unknown')
    OR outcome || '' = 'ok' AND action IN ('send', 'mail', 'register', 'token-reuse'))";

/// Rows that are searched for the busiest subjects.
pub const TOP_ROWS: i64 = 30_000;

/// Which events are attempts, in SQL: one for each request. A challenge is part of the attempt that it came
/// with, a sign-in by code follows from the guess before it, and a guess at a code for a registration is part
/// of that.
const ATTEMPTS: &str = "action IN ('sign-in', 'attempt', 'register', 'send', 'guess', 'mail', 'mail-guess', 'custom',
    'request') AND action || ' ' || COALESCE(name, '') NOT IN ('sign-in code', 'guess register', 'mail-guess register')";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedSubject {
    pub kind: SubjectKind,
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
    ranked: Vec<RankedSubject>,
    /// If nearly all attempts come from it, there is a proxy that we do not trust. None if there were no attempts.
    pub shared: Option<SharedAddress>,
}

impl BusiestSubjects {
    pub fn of(&self, kind: SubjectKind) -> impl Iterator<Item = &RankedSubject> {
        self.ranked.iter().filter(move |ranked| ranked.kind == kind)
    }
}

/// The kind of a subject, or nothing for the shared address; its key and mask, its attempts; of that address also the
/// accounts tried from there, and all attempts.
type BusyRow = (String, Option<i64>, Option<String>, i64, i64, i64);

impl EventLog {
    /// How often each thing happened in each step of at least a minute. Reads the sums of minutes: some ten thousand rows
    /// for a day, whatever the traffic was; those of quarters of an hour if the steps are whole ones. An episode counts at
    /// its start.
    pub async fn series(&self, span: &StepSpan) -> Result<Vec<Vec<EventCount>>, DbError> {
        let quarters = [span.at(0), span.at(1)].iter().all(|at| floor(*at, QUARTER) == *at);
        // Each table is summed by itself, which takes SQLite half the time.
        let of = |table: &str, action: &str, realm: &str, key: &str| {
            format!(
                "SELECT CAST((minute - $1) / $3 AS BIGINT) AS step, {action} AS action, {realm} AS realm, outcome,
                limit_name, noted, CAST(SUM(count) AS BIGINT) AS total FROM {table}
                WHERE minute >= $1 AND minute < $2 GROUP BY step, {key}, outcome, limit_name, noted"
            )
        };
        let [here, realms] =
            if quarters { ["event_quarters", "realm_quarters"] } else { ["event_counts", "realm_counts"] };
        let (here, realms) = (of(here, "action", "''", "action"), of(realms, "'attempt'", "realm", "realm"));
        let sql = format!("{here} UNION ALL {realms} ORDER BY 1, 2, 3, 4, 5, 6");
        let rows = on_db!(&self.db, pool => query_as(AssertSqlSafe(sql)).bind(span.start.0)
            .bind(span.end().0).bind(span.step.as_micros() as i64).fetch_all(pool).await)?;
        Ok(span.filled(rows))
    }

    /// How often each thing happened from `since` (rounded down to a whole minute) until `until`.
    pub async fn totals(&self, since: Micros, until: Micros) -> Result<Vec<EventCount>, DbError> {
        let start = floor(since, MINUTE);
        let span = StepSpan { start, step: until.since(start).max(MINUTE), steps: 1 };
        Ok(self.series(&span).await?.concat())
    }

    /// The minute in which the sums begin; None if there are none.
    pub async fn began(&self) -> Result<Option<Micros>, DbError> {
        const SQL: &str = "SELECT MIN(minute) FROM event_counts";
        let minute: Option<i64> = on_db!(&self.db, pool => query_scalar(SQL).fetch_one(pool).await)?;
        Ok(minute.map(Micros))
    }

    /// The newest `HIT_ROWS` events since then that a limit may have counted, the oldest first, each with its part of the
    /// sums.
    pub async fn hits(&self, since: Micros) -> Result<Vec<(EventEntry, EventCount)>, DbError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM events WHERE at >= $1 AND {HITS} ORDER BY at DESC, id DESC LIMIT $2"
        );
        let rows: Vec<EventEntry> = on_db!(&self.db, pool => query_as(AssertSqlSafe(sql)).bind(since.0)
            .bind(HIT_ROWS).fetch_all(pool).await)?;
        Ok(rows
            .into_iter()
            .rev()
            .map(|row| {
                let sum = summed(&row);
                (row, sum)
            })
            .collect())
    }

    /// The `most` subjects of each kind with the most attempts since then, the busiest first; and the address with most
    /// of those at our own pages. In one pass over the newest [`TOP_ROWS`] rows.
    ///
    /// Console actions and reloads are not attempts, and addresses that other programs state say nothing about our
    /// proxies.
    pub async fn busiest(&self, since: Micros, most: u32) -> Result<BusiestSubjects, DbError> {
        let arms = SubjectKind::VARIANTS.iter().map(move |kind| {
            let (word, key, mask) = (kind.into_str(), kind.key_column(), kind.mask_column());
            format!(
                "SELECT * FROM (SELECT '{word}' AS kind, {key} AS key, MAX({mask}) AS mask,
                CAST(SUM(count) AS BIGINT) AS total, CAST(0 AS BIGINT) AS accounts, CAST(0 AS BIGINT) AS whole
                FROM newest WHERE {key} IS NOT NULL GROUP BY {key}
                ORDER BY total DESC, {key} LIMIT $3) AS {word} UNION ALL "
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
            match kind.parse() {
                Ok(kind) => busiest.ranked.push(RankedSubject { kind, subject, count }),
                Err(_) => busiest.shared = Some(SharedAddress { address: subject, count, of, accounts }),
            }
        }
        Ok(busiest)
    }
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
    /// After a right first factor.
    pub wrong_factors: i64,
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
type FailureRow = (Option<String>, i64, i64, i64, i64, i64, i64, i64);

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
            CAST(SUM(CASE WHEN action = 'factor-failed' AND outcome = 'wrong' THEN count ELSE 0 END) AS BIGINT),
            CAST(SUM(CASE WHEN outcome = 'wrong' THEN 0 ELSE count END) AS BIGINT), COUNT(*) OVER ()
            FROM (SELECT * FROM (SELECT at, until_at, action, outcome, count, address_mask FROM events
                    WHERE account_key = $1 AND at >= $3 AND action IN ('sign-in', 'factor-failed')
                    AND outcome IN ('wrong', 'challenged', 'throttled') ORDER BY at DESC LIMIT $4) AS passwords
                UNION ALL SELECT * FROM (SELECT at, until_at, action, outcome, count, address_mask FROM events
                    WHERE phone_key = $2 AND at >= $3 AND action = 'guess'
                    AND COALESCE(detail, '') <> '{\"from\":\"program\"}'
                    AND outcome IN ('wrong', 'challenged', 'throttled') ORDER BY at DESC LIMIT $4) AS codes)
            AS failures GROUP BY address_mask ORDER BY newest DESC, address_mask LIMIT $5";
        let rows: Vec<FailureRow> = on_db!(&self.db, pool => query_as(SQL).bind(account).bind(phone)
            .bind(since.0).bind(MOST_FAILURES).bind(i64::from(most)).fetch_all(pool).await)?;
        let of = rows.first().map_or(0, |row| row.7);
        let failed =
            |(network, first, last, wrong_passwords, wrong_codes, wrong_factors, refused, _): FailureRow| {
                let (first, last) = (Micros(first), Micros(last));
                FailedAttempts { network, first, last, wrong_passwords, wrong_codes, wrong_factors, refused }
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
    /// record of those. What is `access`, or an account's own data, is not theirs.
    pub(super) async fn purge_oldest(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM events WHERE (at, id) IN (SELECT at, id FROM events
            WHERE NOT (action = 'admin' AND name NOT IN ('access', 'account-export', 'account-delete'))
            ORDER BY at, id LIMIT $1)";
        Ok(execute!(&self.db => query(SQL).bind(i64::from(batch)))?)
    }

    /// At most `batch` of each table; returns the largest count.
    pub(super) async fn purge_counts(&self, before: Micros, batch: u32) -> Result<u64, DbError> {
        let mut most = 0;
        for (lead, what) in [("event", "action"), ("realm", "realm")] {
            for table in [format!("{lead}_counts"), format!("{lead}_quarters")] {
                let key = format!("minute, {what}, outcome, limit_name, noted");
                let sql = AssertSqlSafe(format!(
                    "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE minute < $1
                    ORDER BY minute LIMIT $2)"
                ));
                most = most.max(execute!(&self.db => query(sql).bind(before.0).bind(i64::from(batch)))?);
            }
        }
        Ok(most)
    }

    pub(super) async fn count(&self) -> Result<u64, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM events";
        let rows: i64 = on_db!(&self.db, pool => query_scalar(SQL).fetch_one(pool).await)?;
        Ok(rows.unsigned_abs())
    }
}
