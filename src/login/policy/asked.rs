//! What was asked and reported about one attempt, without I/O: the same login, address and password in one session.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Micros;
use crate::throttle::window::HOLD_LIFE;

/// The most that are open at once; beyond it the oldest is forgotten, and lapses by itself.
const MOST: usize = 64;

/// The open attempts, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedBefore {
    open: Vec<OpenAttempt>,
    /// Answers without a slot of their own that may have led to a look at a password, and were not reported.
    unpaid: u8,
    /// Something was reported, and nothing asked since.
    told: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OpenAttempt {
    ticket: String,
    at: i64,
    /// It was asked about again.
    again: bool,
}

/// What a report of a failure is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureOf {
    /// The attempt with this ticket.
    Open(String),
    /// One that has no slot: it is counted now.
    Unasked,
    /// One that counts already.
    Counted,
}

impl AskedBefore {
    /// Whether this is the second question about an open attempt, which Dovecot asks after a right password. It gets
    /// the first one's answer, once.
    pub fn ask_again(&mut self, now: Micros) -> bool {
        let live = self.open.iter_mut().rev().find(|open| open.is_live(now) && !open.again);
        live.is_some_and(|open| {
            open.again = true;
            true
        })
    }

    /// An attempt was admitted.
    pub fn begin(&mut self, ticket: &str, now: Micros) {
        if self.open.len() >= MOST {
            self.open.remove(0);
        }
        self.open.push(OpenAttempt { ticket: ticket.to_owned(), at: now.0, again: false });
        self.told = false;
    }

    /// The password was right, and so it was in the other attempts with it. Returns the tickets that are open.
    pub fn succeed(&mut self, now: Micros) -> Vec<String> {
        let open = std::mem::take(self).open;
        self.told = true;
        open.into_iter().filter(|open| open.is_live(now)).map(|open| open.ticket).collect()
    }

    /// One password was right, and nothing says which of the open attempts had it. Returns the oldest.
    pub fn succeed_one(&mut self, now: Micros) -> Vec<String> {
        let first = self.open.iter().position(|open| open.is_live(now));
        first.map(|first| self.open.remove(first).ticket).into_iter().collect()
    }

    /// The password was wrong.
    pub fn fail(&mut self, now: Micros) -> FailureOf {
        let told = std::mem::replace(&mut self.told, true);
        if let Some(first) = self.open.iter().position(|open| open.is_live(now)) {
            let open = self.open.remove(first);
            // The second question may have been about another attempt that looks the same.
            self.unpaid = self.unpaid.saturating_add(open.again.into());
            FailureOf::Open(open.ticket)
        } else if let Some(lapsed) = self.open.pop() {
            self.unpaid = self.unpaid.saturating_add(lapsed.again.into());
            FailureOf::Counted
        } else if self.unpaid > 0 {
            self.unpaid -= 1;
            FailureOf::Unasked
        } else if told {
            FailureOf::Counted
        } else {
            FailureOf::Unasked
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.open.is_empty() && self.unpaid == 0 && !self.told
    }
}

impl OpenAttempt {
    fn is_live(&self, now: Micros) -> bool {
        now.since(Micros(self.at)) < HOLD_LIFE
    }
}

/// For how long a report is recognised.
pub const KEPT: Duration = Duration::from_secs(10 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_000_000);

    fn asked(tickets: &[&str]) -> AskedBefore {
        let mut asked = AskedBefore::default();
        for ticket in tickets {
            asked.begin(ticket, NOW);
        }
        asked
    }

    #[test]
    fn the_question_after_a_right_password_takes_no_second_slot() {
        let mut one = asked(&["a"]);
        assert!(one.ask_again(NOW) && !one.ask_again(NOW), "once");
        assert_eq!(one.succeed(NOW), ["a"]);
        assert!(!one.ask_again(NOW), "it is over");
        assert_eq!(one.fail(NOW), FailureOf::Counted, "told otherwise");
    }

    #[test]
    fn a_failure_counts_once_however_often_it_is_reported() {
        let mut one = asked(&["a"]);
        assert_eq!(one.fail(NOW), FailureOf::Open("a".into()));
        assert_eq!((one.fail(NOW), one.fail(NOW)), (FailureOf::Counted, FailureOf::Counted));
        let mut none = asked(&[]);
        assert_eq!((none.fail(NOW), none.fail(NOW)), (FailureOf::Unasked, FailureOf::Counted));
        one.begin("b", NOW);
        assert_eq!(one.fail(NOW), FailureOf::Open("b".into()), "asked again, counted again");
    }

    /// A report may come after the next question, and twelve bits of two passwords may be the same.
    #[test]
    fn every_look_that_failed_counts() {
        let mut one = asked(&["a"]);
        assert!(one.ask_again(NOW));
        assert_eq!(one.fail(NOW), FailureOf::Open("a".into()));
        assert_eq!((one.fail(NOW), one.fail(NOW)), (FailureOf::Unasked, FailureOf::Counted));
        let mut two = asked(&["a", "b"]);
        assert_eq!(two.fail(NOW), FailureOf::Open("a".into()), "the oldest first");
        assert_eq!((two.fail(NOW), two.fail(NOW)), (FailureOf::Open("b".into()), FailureOf::Counted));
    }

    /// Those of others go on.
    #[test]
    fn a_success_that_names_no_attempt_ends_one() {
        let mut two = asked(&["a", "b"]);
        assert_eq!(two.succeed_one(NOW), ["a"]);
        assert_eq!(two.fail(NOW), FailureOf::Open("b".into()));
        assert!(two.succeed_one(NOW).is_empty());
    }

    #[test]
    fn what_has_lapsed_counts_already() {
        let late = NOW.plus(HOLD_LIFE);
        let mut one = asked(&["a"]);
        assert!(!one.ask_again(late));
        assert_eq!((one.fail(late), one.fail(late)), (FailureOf::Counted, FailureOf::Counted));
        let mut two = asked(&["a"]);
        two.begin("b", late);
        assert_eq!(two.succeed(late), ["b"]);
    }

    #[test]
    fn it_never_grows() {
        let mut many = asked(&["a"; 1000]);
        assert_eq!(many.succeed(NOW).len(), MOST);
    }
}
