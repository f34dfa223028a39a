//! Reads the recorded events of a span from the database, page by page, mostly as numbers, because text makes
//! reading slow.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde::Deserialize;
use sqlx::{AssertSqlSafe, query_as, query_scalar};

use super::engine::is_replayed;
use crate::audit::NOT_FORGIVEN;
use crate::clock::Micros;
use crate::config::LimitName;
use crate::db::{Db, DbError, on_db};
use crate::sms::{MessagePurpose, ProgramKind};
use crate::throttle::RuleAction;

/// The most rows that one replay takes: 96 MB of them.
pub const MOST_ROWS: usize = 2_000_000;
const PAGE: i64 = 20_000;

/// What was read.
#[derive(Debug)]
pub struct RecordRead {
    pub recording: Recording,
    pub from: Micros,
    pub to: Micros,
    /// From here on every event is included.
    pub warm_from: Micros,
    /// The time of the oldest event.
    pub oldest: Option<Micros>,
    /// Whether a part of the time before the span was left out.
    pub cut: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the period has more than {MOST_ROWS} events; choose a shorter one")]
    TooMany,
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Which events are attempts: the first condition that is true. A sign-in by code is the guess before it.
const ACTIONS: [(&str, ReplayAction); 13] = [
    ("action = 'sign-in' AND name = 'device'", ReplayAction::DeviceSignIn),
    ("action = 'sign-in' AND (name IS NULL OR name <> 'code')", ReplayAction::SignIn),
    ("action = 'attempt' AND SUBSTR(detail, 1, 10) = '{\"device\":'", ReplayAction::DeviceAttempt),
    ("action = 'attempt'", ReplayAction::Attempt),
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
            CASE WHEN action = 'sign-in' AND name = 'device' OR action = 'attempt' OR action = 'captcha'
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
pub async fn read(db: &Db, from: Micros, to: Micros, back: Duration) -> Result<RecordRead, ReadError> {
    let oldest = oldest(db).await?;
    let wanted = from.minus(back);
    let mut warm_from = wanted;
    // If there is too much, the time before the span is cut first.
    if let Some(first) = nth_newest(db, to, MOST_ROWS).await? {
        if first >= from {
            return Err(ReadError::TooMany);
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
    let detail = detail.as_deref().map(DetailFields::read).unwrap_or_default();
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

impl DetailFields {
    fn read(detail: &str) -> Self {
        serde_json::from_str(detail).unwrap_or_default()
    }
}

/// One key for several.
fn together(parts: impl Hash) -> i64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish() as i64
}

/// If the same person succeeds within this time after an attempt, the attempt was theirs.
pub const SOON: Duration = Duration::from_secs(10 * 60);

/// The subjects of limits, as indexes of [`RecordedEvent::keys`].
pub const ACCOUNT: usize = 0;
pub const ADDRESS: usize = 1;
pub const NETWORK: usize = 2;
pub const PHONE: usize = 3;
pub const PREFIX: usize = 4;
pub const DEVICE: usize = 5;
/// Of a message of another program: the number there. It is in the place of the device, of which it has none.
pub const PROGRAM_PHONE: usize = DEVICE;
pub const KINDS: usize = 6;

/// The number for no subject.
pub const NOBODY: u32 = u32::MAX;

/// Where a password was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayedLogin {
    Own,
    /// Another program's.
    Realm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ReplayAction {
    SignIn,
    /// A password that counts in the log of a known device.
    DeviceSignIn,
    /// A password at another program's login. Its subjects belong to the realm.
    Attempt,
    DeviceAttempt,
    Guess,
    /// A guess at a code from a known device or at another program; no replayed log counts it.
    DeviceGuess,
    /// A guess at a code that the number's own log does not count: it came from the browser that requested
    /// the code, or there was no code.
    GuessApart,
    Send,
    /// The same for another program that checks the code here. Its requester and prefix belong to the program.
    VerifySend,
    /// The same for one that checks it itself.
    RelaySend,
    Register,
    /// A wrong answer to a challenge, which nothing refuses.
    Answer,
    /// The same at another program's login.
    AttemptAnswer,
    /// A log was cleared: by an administrator, or because a code set a new password.
    Clear,
}

impl ReplayAction {
    /// Whether a password or a code is compared: it takes its slot in the logs before its outcome is known.
    pub const fn is_compared(self) -> bool {
        self.is_password() || matches!(self, Self::Guess | Self::DeviceGuess | Self::GuessApart)
    }

    pub const fn is_password(self) -> bool {
        matches!(self, Self::SignIn | Self::DeviceSignIn | Self::Attempt | Self::DeviceAttempt)
    }

    pub const fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::VerifySend | Self::RelaySend)
    }

    pub const fn is_answer(self) -> bool {
        matches!(self, Self::Answer | Self::AttemptAnswer)
    }

    /// For a password from a known device: whose login it is at, and what it counts as if devices are strangers.
    pub const fn from_device(self) -> Option<(ReplayedLogin, Self)> {
        match self {
            Self::DeviceSignIn => Some((ReplayedLogin::Own, Self::SignIn)),
            Self::DeviceAttempt => Some((ReplayedLogin::Realm, Self::Attempt)),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplayOutcome {
    /// Right, sent, or created.
    Ok,
    /// It was compared, and counts.
    Wrong,
    /// Taken back: a message that the gateway refused, a registration whose name was not looked up.
    Failed,
    Challenged,
    Throttled,
    /// Not decided by a replayed limit: too busy, or a dependency was out.
    Undecided,
}

/// The decision on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayDecision {
    /// `noted`: the limit in monitor mode that would have refused it.
    Admitted { noted: Option<LimitName> },
    /// By that rule of that limit.
    Refused { limit: LimitName, rule: usize, then: RuleAction },
    /// Refused for another reason than a limit.
    Undecided,
}

/// One row of `events`, as read.
#[derive(Debug, Clone, Copy)]
pub struct RecordedEvent {
    pub at: Micros,
    pub until: Micros,
    pub count: u64,
    pub action: ReplayAction,
    pub outcome: ReplayOutcome,
    /// The limit that refused it, would have refused it (noted), or was cleared.
    pub limit: Option<LimitName>,
    pub rule: u8,
    pub noted: bool,
    pub solved: bool,
    /// For a right password: whether the account's failures were to be forgiven. For a known device it is not
    /// recorded, and is true.
    pub forgave: bool,
    pub keys: [Option<i64>; KINDS],
}

pub const SOLVED: u8 = 1;
/// A limit in monitor mode would have refused it.
const NOTED: u8 = 2;
pub const FORGAVE: u8 = 4;
/// Right, or soon followed by the right one from the same place.
pub const HONEST: u8 = 8;

#[derive(Debug, Clone, Copy)]
pub struct ReplayRow {
    pub at: Micros,
    /// Until the last attempt of an episode, or until its outcome was known: microseconds.
    lasts: u32,
    pub count: u32,
    pub subjects: [u32; KINDS],
    pub action: ReplayAction,
    pub outcome: ReplayOutcome,
    /// The limit that refused it, would have refused it, or was cleared.
    pub limit: Option<LimitName>,
    rule: u8,
    flags: u8,
}

const _: () = assert!(size_of::<ReplayRow>() == 48);

impl ReplayRow {
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub const fn lasts(&self) -> Duration {
        Duration::from_micros(self.lasts as u64)
    }

    pub fn until(&self) -> Micros {
        self.at.plus(self.lasts())
    }

    pub const fn is_refused(&self) -> bool {
        matches!(self.outcome, ReplayOutcome::Challenged | ReplayOutcome::Throttled)
    }

    /// The recorded decision.
    pub fn decision(&self) -> ReplayDecision {
        let refused = |then| match self.limit {
            Some(limit) => ReplayDecision::Refused { limit, rule: usize::from(self.rule), then },
            None => ReplayDecision::Undecided,
        };
        match self.outcome {
            ReplayOutcome::Ok | ReplayOutcome::Wrong | ReplayOutcome::Failed => {
                ReplayDecision::Admitted { noted: self.limit.filter(|_| self.has(NOTED)) }
            }
            ReplayOutcome::Challenged => refused(RuleAction::Captcha),
            ReplayOutcome::Throttled => refused(RuleAction::Block),
            ReplayOutcome::Undecided => ReplayDecision::Undecided,
        }
    }

    /// Whether the record cannot know how it would have ended with this decision instead.
    pub fn is_unknown_if(&self, decision: ReplayDecision) -> bool {
        match decision {
            ReplayDecision::Admitted { .. } => self.is_refused(),
            ReplayDecision::Refused { then: RuleAction::Captcha, .. } => {
                self.outcome != ReplayOutcome::Challenged
            }
            ReplayDecision::Refused { then: RuleAction::Block, .. } | ReplayDecision::Undecided => false,
        }
    }

    /// The order within one microsecond: what counts comes before what it refused, and that before what
    /// forgives; a solved challenge comes last. The record does not say; this order is possible.
    fn rank(&self) -> u8 {
        match self.outcome {
            ReplayOutcome::Challenged | ReplayOutcome::Throttled => 2,
            ReplayOutcome::Ok if self.lasts == 0 => 3,
            _ => u8::from(self.has(SOLVED)),
        }
    }
}

/// Everything recorded in a span, and in the time before it that the limits look back over.
#[derive(Debug)]
pub struct Recording {
    pub rows: Vec<ReplayRow>,
}

impl Recording {
    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<ReplayRow>()
    }
}

/// Collects rows, approximately in the order of time.
#[derive(Debug, Default)]
pub struct RowIntake {
    rows: Vec<ReplayRow>,
    numbers: [HashMap<i64, u32>; KINDS],
}

impl RowIntake {
    pub fn take(&mut self, recorded: &RecordedEvent) {
        let mut subjects = [NOBODY; KINDS];
        for ((place, numbers), key) in subjects.iter_mut().zip(&mut self.numbers).zip(recorded.keys) {
            if let Some(key) = key {
                let next = numbers.len() as u32;
                *place = *numbers.entry(key).or_insert(next);
            }
        }
        let flag = |set: bool, flag| if set { flag } else { 0 };
        // Refused by no replayed limit: no draft admits it.
        let foreign = matches!(recorded.outcome, ReplayOutcome::Challenged | ReplayOutcome::Throttled)
            && recorded.limit.is_none();
        self.rows.push(ReplayRow {
            at: recorded.at,
            lasts: u32::try_from(recorded.until.since(recorded.at).as_micros()).unwrap_or(u32::MAX),
            count: u32::try_from(recorded.count).unwrap_or(u32::MAX),
            subjects,
            action: recorded.action,
            outcome: if foreign { ReplayOutcome::Undecided } else { recorded.outcome },
            limit: recorded.limit,
            rule: recorded.rule,
            flags: flag(recorded.solved, SOLVED)
                | flag(recorded.noted, NOTED)
                | flag(recorded.forgave, FORGAVE),
        });
    }

    /// Sorted, each row with what the others reveal about it.
    pub fn finish(self) -> Recording {
        let mut rows = self.rows;
        rows.sort_by_key(|row| (row.at, row.rank()));
        rows.shrink_to_fit();
        find_honest(&mut rows);
        Recording { rows }
    }
}

/// Marks attempts of honest people, as far as that can be known: a right one, or one soon followed by a right
/// one from the same address. A message counts if its code was entered soon.
fn find_honest(rows: &mut [ReplayRow]) {
    let mut right: [HashMap<[u32; 2], Micros>; 2] = Default::default();
    for row in rows.iter_mut().rev() {
        let who = match row.action {
            ReplayAction::SignIn
            | ReplayAction::DeviceSignIn
            | ReplayAction::Attempt
            | ReplayAction::DeviceAttempt => ACCOUNT,
            ReplayAction::Guess
            | ReplayAction::DeviceGuess
            | ReplayAction::GuessApart
            | ReplayAction::Send
            | ReplayAction::VerifySend
            | ReplayAction::RelaySend => PHONE,
            ReplayAction::Register
            | ReplayAction::Answer
            | ReplayAction::AttemptAnswer
            | ReplayAction::Clear => continue,
        };
        let pair = [row.subjects[who], row.subjects[ADDRESS]];
        let known = !pair.contains(&NOBODY);
        let right = &mut right[usize::from(who == PHONE)];
        if row.outcome == ReplayOutcome::Ok && !row.action.is_send() {
            row.flags |= HONEST;
            if known {
                right.insert(pair, row.at);
            }
        } else if known && right.get(&pair).is_some_and(|at| at.since(row.until()) <= SOON) {
            row.flags |= HONEST;
        }
    }
}
