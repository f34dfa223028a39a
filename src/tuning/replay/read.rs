//! Reads the recorded events of a span from the database, page by page, mostly as numbers, because text makes
//! reading slow.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde::Deserialize;
use sqlx::{AssertSqlSafe, query_as, query_scalar};

use super::PreviewError;
use super::row::{RecordedEvent, ReplayAction, ReplayOutcome, ReplayRow, RowIntake, is_replayed};
use crate::audit::NOT_FORGIVEN;
use crate::clock::Micros;
use crate::config::LimitName;
use crate::db::{Db, DbError, on_db};
use crate::sms::{MessagePurpose, ProgramKind};

/// The most rows that one replay takes: 96 MB of them.
const MOST_ROWS: usize = 2_000_000;
const PAGE: i64 = 20_000;

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

/// Which events are attempts: the first condition that is true. A sign-in by code is the guess before it.
const ACTIONS: [(&str, ReplayAction); 16] = [
    ("action = 'sign-in' AND name = 'device'", ReplayAction::DeviceSignIn),
    ("action = 'sign-in' AND (name IS NULL OR name NOT IN ('code', 'passkey'))", ReplayAction::SignIn),
    ("action = 'attempt' AND SUBSTR(detail, 1, 10) = '{\"device\":'", ReplayAction::DeviceAttempt),
    ("action = 'attempt'", ReplayAction::Attempt),
    (
        "action = 'factor-failed' AND name = 'totp' AND SUBSTR(detail, 1, 10) = '{\"device\":'",
        ReplayAction::DeviceFactor,
    ),
    ("action = 'factor-failed' AND name = 'totp'", ReplayAction::Factor),
    ("action = 'factor-failed'", ReplayAction::FactorElsewhere),
    ("action = 'send'", ReplayAction::Send),
    ("action = 'guess' AND detail IS NULL", ReplayAction::Guess),
    (
        "action = 'guess' AND detail IN ('{\"from\":\"known device\"}', '{\"from\":\"program\"}')",
        ReplayAction::DeviceGuess,
    ),
    ("action = 'guess'", ReplayAction::GuessApart),
    ("action = 'register'", ReplayAction::Register),
    (
        "action = 'captcha' AND outcome = 'wrong' AND COALESCE(name, '') NOT IN ('attempt', 'verification')",
        ReplayAction::Answer,
    ),
    ("action = 'captcha' AND outcome = 'wrong' AND name = 'attempt'", ReplayAction::AttemptAnswer),
    ("action = 'reset'", ReplayAction::Clear),
    ("action = 'admin' AND name = 'subject.clear' AND outcome = 'ok'", ReplayAction::Clear),
];
/// The first condition that is true.
const OUTCOMES: [(&str, ReplayOutcome); 6] = [
    // A registration counts however it ends, if its name was looked up.
    (
        "action = 'register' AND outcome = 'failed' AND COALESCE(name, '') NOT IN ('unfit-password', 'busy')",
        ReplayOutcome::Ok,
    ),
    ("outcome IN ('ok', 'unknown')", ReplayOutcome::Ok),
    ("outcome = 'wrong'", ReplayOutcome::Wrong),
    ("outcome = 'failed'", ReplayOutcome::Failed),
    ("outcome = 'challenged'", ReplayOutcome::Challenged),
    ("outcome = 'throttled'", ReplayOutcome::Throttled),
];

/// Everything in a row except its times and subjects, in one number: action, outcome, limit (each 31 if
/// unknown), rule, and three flags. The conditions are in a CASE, which no index serves: otherwise SQLite
/// would look events up by action and sort all the rest for every page (15 s for a million rows; in the order
/// of the key, a fifth of that).
fn sql() -> String {
    let case = |conditions: &mut dyn Iterator<Item = String>| {
        let mut case = "CASE".to_owned();
        for (number, condition) in conditions.enumerate() {
            let _ = write!(case, " WHEN {condition} THEN {number}");
        }
        case + " ELSE 31 END"
    };
    let action = case(&mut ACTIONS.iter().map(|(condition, _)| (*condition).to_owned()));
    let outcome = case(&mut OUTCOMES.iter().map(|(condition, _)| (*condition).to_owned()));
    let limit = case(&mut LimitName::ALL.iter().map(|name| match name {
        // A new password, which clears the account's log.
        LimitName::LoginAccount => {
            "limit_name = 'login-account' OR action = 'reset' AND limit_name IS NULL".to_owned()
        }
        name => format!("limit_name = '{}'", name.as_str()),
    }));
    format!(
        "SELECT at, id, until_at, count,
            CAST({action} + 32 * {outcome} + 1024 * {limit} + 32768 * COALESCE(rule, 0) + 1048576 * noted
                + 2097152 * solved + 4194304 * CASE WHEN detail = '{NOT_FORGIVEN}' THEN 1 ELSE 0 END AS BIGINT),
            account_key, address_key, network_key, phone_key, prefix_key,
            CASE WHEN action = 'sign-in' AND name = 'device' OR action IN ('attempt', 'captcha', 'factor-failed')
                OR action = 'admin' AND (limit_name LIKE 'guard-%' OR limit_name LIKE 'program-%') THEN detail END,
            CASE WHEN action IN ('attempt', 'send') THEN name END
        FROM events WHERE (at, id) > ($1, $2) AND at < $3 AND {action} < 31 ORDER BY at, id LIMIT $4"
    )
}

type KeyColumn = Option<i64>;
type TextColumn = Option<String>;
type EventColumns =
    (i64, i64, i64, i64, i64, KeyColumn, KeyColumn, KeyColumn, KeyColumn, KeyColumn, TextColumn, TextColumn);

/// Everything from `back` before the span to its end.
pub async fn read(db: &Db, from: Micros, to: Micros, back: Duration) -> Result<RecordRead, PreviewError> {
    let oldest = oldest(db).await?;
    let wanted = from.minus(back);
    let mut warm_from = wanted;
    // If there is too much, the time before the span is cut first.
    if let Some(first) = nth_newest(db, to, MOST_ROWS).await? {
        if first >= from {
            return Err(PreviewError::Span(format!(
                "the period has more than {MOST_ROWS} events; choose a shorter one"
            )));
        }
        warm_from = warm_from.max(Micros(first.0 + 1));
    }
    let (mut intake, sql) = (RowIntake::default(), sql());
    let (mut at, mut id) = (warm_from.0 - 1, i64::MAX);
    loop {
        let page: Vec<EventColumns> = on_db!(db, pool => query_as(AssertSqlSafe(sql.as_str()))
            .bind(at).bind(id).bind(to.0).bind(PAGE).fetch_all(pool).await)
        .map_err(DbError::from)?;
        page.iter().filter_map(recorded).for_each(|row| intake.take(&row));
        match page.last() {
            Some(last) if page.len() as i64 == PAGE => (at, id) = (last.0, last.1),
            _ => break,
        }
    }
    let recording = intake.finish();
    Ok(RecordRead { recording, from, to, warm_from, oldest, cut: warm_from > wanted })
}

async fn oldest(db: &Db) -> Result<Option<Micros>, DbError> {
    const SQL: &str = "SELECT MIN(at) FROM events";
    let at: Option<i64> = on_db!(db, pool => query_scalar(SQL).fetch_one(pool).await)?;
    Ok(at.map(Micros))
}

/// The time of the `n`-th newest event before the end of the span.
async fn nth_newest(db: &Db, to: Micros, n: usize) -> Result<Option<Micros>, DbError> {
    const SQL: &str = "SELECT at FROM events WHERE at < $1 ORDER BY at DESC, id DESC LIMIT 1 OFFSET $2";
    let at: Option<i64> =
        on_db!(db, pool => query_scalar(SQL).bind(to.0).bind(n as i64).fetch_optional(pool).await)?;
    Ok(at.map(Micros))
}

fn recorded(fields: &EventColumns) -> Option<RecordedEvent> {
    let (at, _, until, count, code, account, address, network, phone, prefix, detail, name) = fields;
    let part = |shift: u32| (code >> shift & 31) as usize;
    let flag = |bit: u32| code >> bit & 1 == 1;
    let action = ACTIONS.get(part(0))?.1;
    let outcome = OUTCOMES.get(part(5)).map_or(ReplayOutcome::Undecided, |(_, outcome)| *outcome);
    let (action, realm) = match action {
        ReplayAction::Send => sender(name.as_deref()),
        other => (other, name.clone()),
    };
    let apart = matches!(action, ReplayAction::GuessApart | ReplayAction::DeviceGuess);
    let limit = match LimitName::ALL.get(part(10)).copied() {
        Some(LimitName::SmsGuess) if apart => None,
        limit => limit.filter(|limit| is_replayed(*limit)),
    };
    let detail = detail.as_deref().and_then(|detail| serde_json::from_str(detail).ok());
    let detail: DetailFields = detail.unwrap_or_default();
    let realm = realm.as_ref().or(detail.realm.as_ref()).or(detail.name.as_ref());
    let in_realm = |key: &KeyColumn| realm.map_or(*key, |realm| Some(together((realm, (*key)?))));
    Some(RecordedEvent {
        at: Micros(*at),
        until: Micros(*until),
        count: count.unsigned_abs(),
        action,
        outcome,
        limit,
        rule: part(15) as u8,
        noted: flag(20),
        solved: flag(21),
        forgave: !flag(22) && detail.forgave.unwrap_or(true),
        keys: [
            *account,
            in_realm(address),
            in_realm(network),
            *phone,
            in_realm(prefix),
            // A device is identified together with its account.
            detail.device.map(|device| together((account, device))).or_else(|| in_realm(phone)),
        ],
    })
}

/// Who had a message with this purpose sent: our own pages, or a program by its kind and name.
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
    /// Of a wrong answer, and of a log that was cleared.
    realm: Option<String>,
    /// Of a log of a program that was cleared.
    name: Option<String>,
    forgave: Option<bool>,
}

/// One key for several.
fn together(parts: impl Hash) -> i64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish() as i64
}
