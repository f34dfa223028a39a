//! Reads what was recorded of a span from the database, page by page, as numbers only: text is what makes
//! reading slow.

use std::time::Duration;

use sqlx::{query_as, query_scalar};

use super::book::NAMES;
use super::row::{Action, Intake, KINDS, Outcome, Recorded, Recording};
use crate::clock::Micros;
use crate::db::{Db, DbError, on_db};

/// The most rows that one replay takes: 96 MB of them.
pub const MOST_ROWS: usize = 2_000_000;
const PAGE: i64 = 20_000;

/// What was read.
#[derive(Debug)]
pub struct Read {
    pub recording: Recording,
    pub from: Micros,
    pub to: Micros,
    /// From here on every event is in it.
    pub warm_from: Micros,
    /// When the oldest event there is was.
    pub oldest: Option<Micros>,
    /// Whether what came before the span had to be left out in part.
    pub cut: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the span holds more than {MOST_ROWS} events; ask for a shorter one")]
    TooMany,
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Action (3 bits), outcome (3), solved, forgave nothing, limit (4), reset, no limit at all: what of a row is
/// text, in one number.
/// What is wanted stands in a CASE, which no index serves: SQLite would look it up by action and sort the whole
/// rest for every page (15 s for a million rows; in the order of the key, as it stands, a fifth of that).
const SQL: &str = "SELECT at, id, until_at, count, CAST(
        CASE action WHEN 'sign-in' THEN CASE WHEN name = 'device' THEN 5 ELSE 0 END WHEN 'guess' THEN
            CASE WHEN detail IS NULL OR outcome = 'ok' THEN 1 WHEN detail = '{\"from\":\"known device\"}' THEN 5 ELSE 7 END
            WHEN 'send' THEN 2 WHEN 'register' THEN 3 WHEN 'captcha' THEN 6 ELSE 4 END
        + 8 * CASE outcome WHEN 'ok' THEN 0 WHEN 'unknown' THEN 0 WHEN 'wrong' THEN 1 WHEN 'failed' THEN 2
            WHEN 'challenged' THEN 3 WHEN 'throttled' THEN 4 ELSE 5 END
        + 64 * solved
        + 128 * CASE WHEN detail = '{\"forgave\":false}' THEN 1 ELSE 0 END
        + 256 * CASE limit_name WHEN 'login-account' THEN 0 WHEN 'login-address' THEN 1
            WHEN 'login-network' THEN 2 WHEN 'register-address' THEN 3 WHEN 'sms-phone' THEN 4
            WHEN 'sms-address' THEN 5 WHEN 'sms-network' THEN 6 WHEN 'sms-prefix' THEN 7 WHEN 'sms-total' THEN 8
            WHEN 'sms-guess' THEN CASE WHEN action = 'guess' AND detail IS NOT NULL THEN 15 ELSE 9 END ELSE 15 END
        + 4096 * CASE WHEN action = 'reset' THEN 1 ELSE 0 END
        + 8192 * CASE WHEN limit_name IS NULL THEN 1 ELSE 0 END AS BIGINT),
        account_key, address_key, network_key, phone_key, prefix_key
    FROM events
    WHERE (at, id) > ($1, $2) AND at < $3
        AND CASE WHEN action IN ('sign-in', 'reset', 'guess', 'send', 'register') AND (name IS NULL OR name <> 'code' OR action <> 'sign-in')
            OR action = 'captcha' AND outcome = 'wrong'
            OR action = 'admin' AND name = 'subject.clear' AND outcome = 'ok' THEN 1 ELSE 0 END = 1
    ORDER BY at, id LIMIT $4";

type Fields = (i64, i64, i64, i64, i64, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

/// Everything from `back` before the span to its end.
pub async fn read(db: &Db, from: Micros, to: Micros, back: Duration) -> Result<Read, ReadError> {
    let oldest = oldest(db).await?;
    let wanted = from.minus(back);
    let mut warm_from = wanted;
    // Where there is too much of it, what came before the span is cut first.
    if let Some(first) = nth_newest(db, to, MOST_ROWS).await? {
        if first >= from {
            return Err(ReadError::TooMany);
        }
        warm_from = warm_from.max(Micros(first.0 + 1));
    }
    let mut intake = Intake::default();
    let (mut at, mut id) = (warm_from.0 - 1, i64::MAX);
    loop {
        let page: Vec<Fields> = on_db!(db, pool => query_as(SQL)
            .bind(at).bind(id).bind(to.0).bind(PAGE).fetch_all(pool).await)
        .map_err(DbError::from)?;
        for fields in &page {
            take(&mut intake, fields);
        }
        match page.last() {
            Some(last) if page.len() as i64 == PAGE => (at, id) = (last.0, last.1),
            _ => break,
        }
    }
    let recording = intake.finish();
    Ok(Read { recording, from, to, warm_from, oldest, cut: warm_from > wanted })
}

async fn oldest(db: &Db) -> Result<Option<Micros>, DbError> {
    const SQL: &str = "SELECT MIN(at) FROM events";
    let at: Option<i64> = on_db!(db, pool => query_scalar(SQL).fetch_one(pool).await)?;
    Ok(at.map(Micros))
}

/// When the event was before which so many others end the span.
async fn nth_newest(db: &Db, to: Micros, n: usize) -> Result<Option<Micros>, DbError> {
    const SQL: &str = "SELECT at FROM events WHERE at < $1 ORDER BY at DESC, id DESC LIMIT 1 OFFSET $2";
    let at: Option<i64> =
        on_db!(db, pool => query_scalar(SQL).bind(to.0).bind(n as i64).fetch_optional(pool).await)?;
    Ok(at.map(Micros))
}

fn take(intake: &mut Intake, fields: &Fields) {
    let (at, _, until, count, code, account, address, network, phone, prefix) = *fields;
    let reset = code & 4096 != 0;
    let not_replayed = code >> 8 & 15 == 15;
    // A cleared log that no replay has: of an owner's own limit, or of challenges.
    if code & 7 == 4 && !reset && not_replayed && code & 8192 == 0 {
        return;
    }
    let action = match code & 7 {
        _ if reset => Action::Clear,
        0 => Action::SignIn,
        1 => Action::Guess,
        2 => Action::Send,
        3 => Action::Register,
        5 => Action::Known,
        6 => Action::Answer,
        7 => Action::GuessApart,
        _ => Action::Clear,
    };
    let outcome = match (action, code >> 3 & 7) {
        (_, 0) => Outcome::Ok,
        // However it ended, it counts.
        (Action::Register, 1 | 2) => Outcome::Ok,
        (Action::SignIn | Action::Known | Action::Guess | Action::GuessApart | Action::Answer, 1) => {
            Outcome::Wrong
        }
        (Action::Send, 2) => Outcome::Failed,
        // What no limit that is replayed has refused, none admits.
        (_, 3 | 4) if not_replayed || action == Action::Known => Outcome::Undecided,
        (_, 3) => Outcome::Challenged,
        (_, 4) => Outcome::Throttled,
        _ => Outcome::Undecided,
    };
    let limit = (code >> 8 & 15) as u8;
    let limit = if reset { Some(0) } else { Some(limit).filter(|limit| usize::from(*limit) < NAMES.len()) };
    let password = action == Action::SignIn && outcome == Outcome::Ok;
    let keys: [Option<i64>; KINDS] = [account, address, network, phone, prefix];
    intake.take(&Recorded {
        at: Micros(at),
        until: Micros(until),
        count: count.unsigned_abs(),
        action,
        outcome,
        limit,
        solved: code & 64 != 0,
        reset,
        forgave: password.then_some(code & 128 == 0),
        keys,
    });
}
