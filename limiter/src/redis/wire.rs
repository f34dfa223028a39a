//! What the scripts are sent, what they reply, and what else a server says.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::clock::Micros;
use crate::limit::{Limit, LimitMode, Rule, RuleAction, RuleSpan};
use crate::store::*;
use crate::window;

pub fn write_bucket(command: &mut Cmd, limit: &Limit, now: Micros, solved: bool) {
    command.arg(limit.capacity()).arg(life_millis(limit));
    write_rules(command, limit, now, solved);
}

/// The number of their arguments, then each.
pub fn write_rules(command: &mut Cmd, limit: &Limit, now: Micros, solved: bool) {
    let of_a_rule = |rule: &Rule| if matches!(rule.span, RuleSpan::Calendar { .. }) { 4 } else { 3 };
    let arguments: usize = limit.rules().iter().map(of_a_rule).sum();
    command.arg(arguments);
    for rule in limit.rules() {
        write_rule(command, rule, limit, now, solved);
    }
}

/// Few arguments, because each costs the server a twentieth of a look-up: what is rare is sent if it is there.
fn write_rule(command: &mut Cmd, rule: &Rule, limit: &Limit, now: Micros, solved: bool) {
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

/// How long the log of a hit is kept that the server writes at its own time.
pub fn life_millis(limit: &Limit) -> u64 {
    millis(window::longest_life(limit))
}

/// Rounded up.
pub fn millis(life: Duration) -> u64 {
    life.as_millis() as u64 + 1
}

/// The bytes of a replication id. In lower case, as the script of a reservation compares it.
pub fn replication_id(id: &str) -> Option<[u8; 20]> {
    let id = id.as_bytes();
    let mut bytes = [0; 20];
    for (byte, digits) in bytes.iter_mut().zip(id.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    (id.len() == 40 && !id.iter().any(u8::is_ascii_uppercase)).then_some(bytes)
}

/// Reads the reply to a reservation (`lua/reserve.lua`). `place` finds the bucket that was asked for by the number
/// that the script gave it.
pub fn verdict(
    reply: &[i64],
    ask: &ReserveRequest<'_>,
    place: impl Fn(i64) -> Option<usize>,
) -> Result<StoreVerdict, StoreError> {
    let broken = || StoreError::Broken(format!("{reply:?} to a reservation"));
    let refusal = |bucket: i64, rule: i64, wait: i64, frees_at: i64| {
        let bucket = place(bucket)?;
        let then = ask.buckets[bucket].limit.rules().get(rule as usize)?.then;
        Some(Refusal {
            bucket,
            rule: rule as usize,
            then,
            retry_after: Duration::from_micros(wait.max(0) as u64),
            frees_at: Micros(frees_at),
        })
    };
    Ok(match *reply {
        [0, at, room_bucket, room_rule, remaining, oldest, ref noted @ ..] => {
            let at = Micros(at);
            let room = (room_bucket >= 0).then(|| {
                let bucket = place(room_bucket)?;
                let rule = ask.buckets[bucket].limit.rules().get(room_rule as usize)?;
                let oldest = (oldest > 0).then_some(Micros(oldest));
                Some(window::room(bucket, room_rule as usize, rule, remaining as u32, oldest, at))
            });
            let noted = match *noted {
                [] => None,
                [bucket, rule, wait, frees] => Some(refusal(bucket, rule, wait, frees).ok_or_else(broken)?),
                _ => return Err(broken()),
            };
            StoreVerdict::Admitted { at, room: room.flatten(), noted }
        }
        [1, at, bucket] => StoreVerdict::Held { at: Micros(at), bucket: place(bucket).ok_or_else(broken)? },
        [2, at, bucket, rule, frees] => {
            let wait = frees.checked_sub(at).ok_or_else(broken)?;
            let refusal = refusal(bucket, rule, wait, frees).ok_or_else(broken)?;
            StoreVerdict::Refused { refusal }
        }
        // The only rule of the only bucket: the server's time in seconds and microseconds, and the hit in the way.
        [2, seconds, micros, oldest] => {
            let at = seconds.checked_mul(1_000_000).and_then(|whole| whole.checked_add(micros));
            let at = at.ok_or_else(broken)?;
            let limit = place(0).map(|bucket| ask.buckets[bucket].limit);
            let refusal = limit.and_then(only_window).and_then(|window| {
                let frees = Micros(oldest).plus(window).0;
                refusal(0, 0, frees.checked_sub(at)?, frees)
            });
            StoreVerdict::Refused { refusal: refusal.ok_or_else(broken)? }
        }
        _ => return Err(broken()),
    })
}

/// Reads the states of these logs (`lua/state.lua`). None: something else was replied.
pub fn states(reply: &[i64], buckets: &[Bucket<'_>], at: Micros) -> Option<Vec<LogPeek>> {
    let mut rest = reply;
    let states = buckets.iter().map(|bucket| {
        let (holds, after) = rest.split_first()?;
        let (rules, after) = after.split_at_checked(2 * bucket.limit.rules().len())?;
        rest = after;
        let rules = rules.chunks_exact(2).map(|pair| RulePeek {
            count: pair[0] as u32,
            retry_after: Duration::from_micros(pair[1].max(0) as u64),
        });
        Some(LogPeek { at, holds: *holds as u32, rules: rules.collect() })
    });
    let states: Option<Vec<LogPeek>> = states.collect();
    states.filter(|_| rest.is_empty())
}

fn only_window(limit: &Limit) -> Option<Duration> {
    match limit.rules() {
        [Rule { span: RuleSpan::Sliding(window), .. }] => Some(*window),
        _ => None,
    }
}

/// Reads a list of integers: an array, or text with blanks between them, which costs the server less.
pub fn integers(value: Value) -> Result<Vec<i64>, StoreError> {
    let list = match value {
        Value::Nil => return Ok(Vec::new()),
        Value::Array(list) => list,
        Value::BulkString(text) => {
            let numbers = std::str::from_utf8(&text).ok().and_then(|text| {
                text.split(' ').map(|number| number.parse().ok()).collect::<Option<Vec<i64>>>()
            });
            return numbers.ok_or_else(|| StoreError::Broken(format!("{text:?} instead of integers")));
        }
        other => return Err(StoreError::Broken(format!("{other:?}"))),
    };
    let integer = |item| match item {
        Value::Int(number) => Ok(number),
        other => Err(StoreError::Broken(format!("{other:?} instead of an integer"))),
    };
    list.into_iter().map(integer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LimitMode, RuleAction};

    /// As from something else than Redis at its address.
    #[test]
    fn a_reply_of_impossible_times_is_no_verdict() {
        let span = RuleSpan::Sliding(Duration::from_secs(60));
        let rules = vec![Rule { max: 3, span, then: RuleAction::Block }];
        let limit = Limit::new("test", rules, LimitMode::Enforce).unwrap();
        let buckets = [Bucket { limit: &limit, key: SubjectKey([0; 16]) }];
        let ask = ReserveRequest {
            buckets: &buckets,
            id: HitId([0; 6]),
            kind: ReserveKind::Hit,
            solved: false,
            complete: None,
        };
        let read = |reply: &[i64]| verdict(reply, &ask, |number| (number == 0).then_some(0)).is_ok();
        assert!(read(&[2, 1, 0, 0, 2]) && read(&[2, 1, 1, 0]), "these are possible");
        for reply in [
            &[2, i64::MIN, 0, 0, 1][..],
            &[2, -2, 0, 0, i64::MAX],
            &[2, i64::MAX, 0, 0],
            &[2, i64::MAX / 1_000_000, i64::MAX, 0],
            &[2, i64::MIN / 1_000_000, 0, i64::MAX],
            &[2, 1, 1, 0, 2],
            &[2, 1, 0, 1, 2],
            &[2, 1, 0, -1, 2],
        ] {
            assert!(!read(reply), "{reply:?}");
        }
    }
}
