//! What the scripts are sent, and what else a server says.

use redis::{Cmd, Value};

use crate::clock::Micros;
use crate::throttle::limit::{Limit, LimitMode, Rule, RuleAction, RuleSpan};
use crate::throttle::link::CallError;
use crate::throttle::store::*;
use crate::throttle::window;

/// What the script does with a reservation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ScriptKind {
    Hit = 0,
    Hold = 1,
    /// Judges, and writes nothing.
    Look = 2,
}

impl From<ReserveKind> for ScriptKind {
    fn from(kind: ReserveKind) -> Self {
        match kind {
            ReserveKind::Hit => Self::Hit,
            ReserveKind::Hold => Self::Hold,
        }
    }
}

pub fn write_bucket(command: &mut Cmd, limit: &Limit, now: Micros, solved: bool) {
    let of_a_rule = |rule: &Rule| if matches!(rule.span, RuleSpan::Calendar { .. }) { 4 } else { 3 };
    let arguments: usize = limit.rules().iter().map(of_a_rule).sum();
    command.arg(limit.capacity()).arg(life_millis(limit, now)).arg(arguments);
    for rule in limit.rules() {
        write_rule(command, rule, limit, now, solved);
    }
}

/// Few arguments, because each costs the server a twentieth of a look-up: what is rare is sent if it is there.
pub fn write_rule(command: &mut Cmd, rule: &Rule, limit: &Limit, now: Micros, solved: bool) {
    let captcha = rule.then == RuleAction::Captcha;
    let calendar = matches!(rule.span, RuleSpan::Calendar { .. });
    let monitored = limit.mode() == LimitMode::Monitor;
    let marks = [captcha, monitored, limit.challenges(), limit.spares(rule, solved), calendar];
    let bits = marks.iter().rev().fold(0, |bits, mark| bits * 2 + u8::from(*mark));
    command.arg(rule.max).arg(bits);
    match &rule.span {
        RuleSpan::Sliding(window) => {
            command.arg(window.as_micros() as i64);
        }
        RuleSpan::Calendar { unit, zone } => {
            let stretch = window::stretch(*unit, zone, now);
            command.arg(stretch.start.0).arg(stretch.end.0);
        }
    }
}

pub fn life_millis(limit: &Limit, now: Micros) -> u64 {
    window::life(limit, now).as_millis() as u64 + 1
}

/// The replication id in an answer to `INFO replication`.
pub fn replication_id(answer: &Value) -> Option<[u8; 20]> {
    let text = match answer {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text,
        _ => return None,
    };
    let id = text.lines().find_map(|line| line.strip_prefix("master_replid:"))?.trim_end().as_bytes();
    let mut bytes = [0; 20];
    for (byte, digits) in bytes.iter_mut().zip(id.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    (id.len() == 40).then_some(bytes)
}

pub fn fault(error: CallError) -> StoreError {
    match error {
        CallError::Store(error) => error,
        CallError::Server(error) => StoreError::Broken(error.to_string()),
    }
}
