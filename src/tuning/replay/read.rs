//! Reads the recorded events of a span from the database. It writes them as text, a page of them in one value: to fetch
//! a value by itself costs several times as much.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde::Deserialize;
use sqlx::query_scalar;

use super::PreviewError;
use super::row::{MOST_ROWS, RecordedEvent, ReplayAction, ReplayOutcome, ReplayRow, RowIntake, is_replayed};
use crate::audit::{NOT_FORGIVEN, UNCOUNTED_REGISTRATIONS};
use crate::clock::Micros;
use crate::config::LimitName;
use crate::db::{Db, DbError, on_db};
use crate::message::{MessagePurpose, ProgramKind};

/// Events of a page: some 10 ms of work for the database. Tests have fewer events, and are to read several pages, too.
const PAGE: usize = if cfg!(test) { 50 } else { 10_000 };
/// How many pages are read at once. More would leave no core to whoever signs in.
const READERS: usize = 2;

/// What was read.
#[derive(Debug)]
pub struct RecordRead {
    pub recording: Vec<ReplayRow>,
    pub from: Micros,
    pub to: Micros,
    /// From here on every event is included.
    pub warm_from: Micros,
    /// The time of the oldest event.
    pub oldest: Option<Micros>,
    /// Whether a part of the time before the span was left out.
    pub cut: bool,
}

/// For each event: numbers and words, each with a space behind it, and texts of as many characters as the last three numbers
/// say; without a number there is none. Then a semicolon.
const PAGE_SQL: &str = "SELECT string_agg(line, '') FROM (
    SELECT concat(at, ' ', until_at - at, ' ', count, ' ', noted, ' ', solved, ' ', rule, ' ', account_key, ' ',
        address_key, ' ', network_key, ' ', phone_key, ' ', prefix_key, ' ', action, ' ', outcome, ' ', limit_name, ' ',
        length(name), ' ', length(detail), ' ', length(hits), ' ', name, detail, hits, ';') AS line
    FROM events WHERE at >= $1 AND at < $2 ORDER BY at, id) AS page";

/// Everything from `back` before the span to its end. `progress` is told how many pages of how many were read.
pub async fn read(
    db: &Db,
    from: Micros,
    to: Micros,
    back: Duration,
    progress: impl Fn(usize, usize),
) -> Result<RecordRead, PreviewError> {
    let oldest = oldest(db).await?;
    let wanted = from.minus(back);
    let bounds = bounds(db, wanted, to).await?;
    // If there is too much, the time before the span is cut first.
    let warm_from = bounds[0];
    if warm_from > from {
        return Err(PreviewError::Span(format!(
            "the period has more than {MOST_ROWS} events; choose a shorter one"
        )));
    }
    let of = bounds.len() - 1;
    let each = stream::iter(0..of).map(|number| page(db, bounds[number], bounds[number + 1]));
    let mut pages = each.buffered(READERS).enumerate();
    let mut intake = RowIntake::default();
    while let Some((number, page)) = pages.next().await {
        let page = page?.unwrap_or_default();
        let mut lines = EventLines(&page);
        while !lines.0.is_empty() {
            let event = lines.next_event();
            lines.end()?;
            if let Some((event, hits)) = event {
                take(&mut intake, event, hits);
            }
        }
        progress(number + 1, of);
    }
    let recording = intake.finish();
    Ok(RecordRead { recording, from, to, warm_from, oldest, cut: warm_from > wanted })
}

/// Several events in one row come at their own times, where the row says these.
fn take(intake: &mut RowIntake, event: RecordedEvent, hits: Option<&str>) {
    let offsets = hits.filter(|_| !intake.is_full()).map(|hits| hits.split(',').map(str::parse::<i64>));
    let Some(Ok(offsets)) = offsets.map(Iterator::collect::<Result<Vec<_>, _>>) else {
        return intake.take(&event);
    };
    for offset in offsets {
        let at = Micros(event.at.0.saturating_add(offset));
        intake.take(&RecordedEvent { at, until: at, count: 1, ..event });
    }
}

/// Where pages begin, and where the last one ends, in the order of time. The first of them begins later than `from` if
/// there are too many events.
async fn bounds(db: &Db, from: Micros, to: Micros) -> Result<Vec<Micros>, DbError> {
    const SQL: &str =
        "SELECT at FROM events WHERE at >= $1 AND at < $2 ORDER BY at DESC, id DESC LIMIT 1 OFFSET $3";
    let (mut bounds, mut before) = (vec![to], to);
    while bounds.len() <= MOST_ROWS / PAGE {
        let newest: Option<i64> = on_db!(db, pool => query_scalar(SQL)
            .bind(from.0).bind(before.0).bind(PAGE as i64).fetch_optional(pool).await)?;
        let Some(at) = newest else {
            bounds.push(from);
            break;
        };
        // A page has all events of its first microsecond, or none.
        before = Micros((at + 1).min(before.0 - 1));
        bounds.push(before);
    }
    bounds.reverse();
    Ok(bounds)
}

async fn page(db: &Db, from: Micros, to: Micros) -> Result<Option<String>, DbError> {
    Ok(on_db!(db, pool => query_scalar(PAGE_SQL).bind(from.0).bind(to.0).fetch_one(pool).await)?)
}

async fn oldest(db: &Db) -> Result<Option<Micros>, DbError> {
    const SQL: &str = "SELECT MIN(at) FROM events";
    let at: Option<i64> = on_db!(db, pool => query_scalar(SQL).fetch_one(pool).await)?;
    Ok(at.map(Micros))
}

/// What is left of a page.
struct EventLines<'t>(&'t str);

impl<'t> EventLines<'t> {
    fn word(&mut self) -> &'t str {
        let (word, rest) = self.0.split_once(' ').unwrap_or((self.0, ""));
        self.0 = rest;
        word
    }

    fn number(&mut self) -> Option<i64> {
        self.word().parse().ok()
    }

    fn text(&mut self, length: Option<i64>) -> Option<&'t str> {
        let length = usize::try_from(length?).ok()?;
        let end = self.0.char_indices().nth(length).map_or(self.0.len(), |(end, _)| end);
        let (text, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(text)
    }

    /// Behind each event.
    fn end(&mut self) -> Result<(), DbError> {
        let rest = self.0.strip_prefix(';');
        self.0 =
            rest.ok_or_else(|| sqlx::Error::Decode("an event's texts are not as long as it says".into()))?;
        Ok(())
    }

    /// Reads the next event; None if it is no attempt. With the times of several, if it has them.
    fn next_event(&mut self) -> Option<(RecordedEvent, Option<&'t str>)> {
        let [at, lasts, count, noted, solved, rule] = [(); 6].map(|()| self.number().unwrap_or(0));
        let [account, address, network, phone, prefix] = [(); 5].map(|()| self.number());
        let [action, outcome, limit] = [(); 3].map(|()| self.word());
        let [name, detail, hits] = [(); 3].map(|()| self.number());
        let (name, detail, hits) = (self.text(name), self.text(detail), self.text(hits));
        let tells = match (action, name) {
            ("sign-in", name) => name == Some("device"),
            ("admin", _) => limit.starts_with("guard-") || limit.starts_with("program-"),
            (action, _) => matches!(action, "attempt" | "captcha" | "factor-failed"),
        };
        let fields = detail.filter(|_| tells).and_then(|detail| serde_json::from_str(detail).ok());
        let fields: DetailFields = fields.unwrap_or_default();
        let limit = match (action, limit) {
            // A new password, which clears the account's log.
            ("reset", "") => Some(LimitName::LoginAccount),
            (_, limit) => LimitName::parse(limit),
        };
        let outcome_of = replayed_outcome(action, name, outcome);
        let (action, realm) = match replayed_action(action, name, outcome, detail)? {
            ReplayAction::Send => sender(name),
            other => (other, name.filter(|_| action == "attempt").map(str::to_owned)),
        };
        let apart = matches!(action, ReplayAction::GuessApart | ReplayAction::DeviceGuess);
        let realm = realm.or(fields.realm).or(fields.name);
        let in_realm = |key: Option<i64>| realm.as_ref().map_or(key, |realm| Some(together((realm, key?))));
        let event = RecordedEvent {
            at: Micros(at),
            until: Micros(at.saturating_add(lasts)),
            count: count.unsigned_abs(),
            action,
            outcome: outcome_of,
            limit: limit.filter(|limit| is_replayed(*limit) && !(apart && *limit == LimitName::SmsGuess)),
            rule: rule as u8,
            noted: noted != 0,
            solved: solved != 0,
            forgave: detail != Some(NOT_FORGIVEN) && fields.forgave.unwrap_or(true),
            keys: [
                account,
                in_realm(address),
                in_realm(network),
                phone,
                in_realm(prefix),
                // A device is identified together with its account.
                fields.device.map(|device| together((account, device))).or_else(|| in_realm(phone)),
            ],
        };
        Some((event, hits))
    }
}

/// Which attempt an event is. A sign-in by code is the guess before it.
fn replayed_action(
    action: &str,
    name: Option<&str>,
    outcome: &str,
    detail: Option<&str>,
) -> Option<ReplayAction> {
    let device = detail.is_some_and(|detail| detail.starts_with(r#"{"device":"#));
    Some(match (action, name) {
        ("sign-in", Some("device")) => ReplayAction::DeviceSignIn,
        ("sign-in", Some("code" | "passkey")) => return None,
        ("sign-in", _) => ReplayAction::SignIn,
        ("attempt", _) if device => ReplayAction::DeviceAttempt,
        ("attempt", _) => ReplayAction::Attempt,
        ("factor-failed", _) if device => ReplayAction::DeviceFactor,
        ("factor-failed", Some("totp")) => ReplayAction::Factor,
        ("factor-failed", _) => ReplayAction::FactorElsewhere,
        ("send", _) => ReplayAction::Send,
        ("guess", _) => match detail {
            None => ReplayAction::Guess,
            Some(r#"{"from":"known device"}"# | r#"{"from":"program"}"#) => ReplayAction::DeviceGuess,
            Some(_) => ReplayAction::GuessApart,
        },
        ("register", _) => ReplayAction::Register,
        ("captcha", Some("attempt")) if outcome == "wrong" => ReplayAction::AttemptAnswer,
        ("captcha", _) if outcome == "wrong" => ReplayAction::Answer,
        ("reset", _) => ReplayAction::Clear,
        ("admin", Some("subject.clear")) if outcome == "ok" => ReplayAction::Clear,
        _ => return None,
    })
}

fn replayed_outcome(action: &str, name: Option<&str>, outcome: &str) -> ReplayOutcome {
    match outcome {
        "ok" | "unknown" => ReplayOutcome::Ok,
        // A registration counts however it ends, if its name was looked up.
        "failed" if action == "register" && !UNCOUNTED_REGISTRATIONS.contains(&name.unwrap_or_default()) => {
            ReplayOutcome::Ok
        }
        "failed" => ReplayOutcome::Failed,
        "wrong" => ReplayOutcome::Wrong,
        "challenged" => ReplayOutcome::Challenged,
        "throttled" => ReplayOutcome::Throttled,
        _ => ReplayOutcome::Undecided,
    }
}

/// The sender of a message with this purpose: our own pages, or a program by its kind and name.
fn sender(purpose: Option<&str>) -> (ReplayAction, Option<String>) {
    let purpose = purpose.and_then(MessagePurpose::parse);
    let Some((kind, name)) = purpose.as_ref().and_then(MessagePurpose::program) else {
        return (ReplayAction::Send, None);
    };
    let action = match kind {
        ProgramKind::Verifier => ReplayAction::VerifySend,
        ProgramKind::Relay => ReplayAction::RelaySend,
    };
    (action, Some(format!("{}{name}", kind.lead())))
}

/// What a replay reads in the detail of an event.
#[derive(Default, Deserialize)]
struct DetailFields {
    device: Option<String>,
    /// The realm of a wrong answer, and of a log that was cleared.
    realm: Option<String>,
    /// The name of a program whose log was cleared.
    name: Option<String>,
    forgave: Option<bool>,
}

/// One key for several.
fn together(parts: impl Hash) -> i64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish() as i64
}
