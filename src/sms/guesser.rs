//! Whose guesses at a number's codes are counted together.

use super::Phone;
use crate::throttle::SubjectKey;

/// Each has a log of its own under the limit `sms-guess`, so that other people's guesses do not lock out the
/// owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guesser {
    /// Everyone, from everywhere.
    Anyone,
    /// The browser that requested the code.
    Asker,
    /// Browsers in which the number's account has signed in before; together, so that it is one bound.
    Known,
}

impl Guesser {
    pub const ALL: [Self; 3] = [Self::Anyone, Self::Asker, Self::Known];
    /// Of codes of other programs, which nobody signs in with.
    pub const IN_PROGRAMS: [Self; 2] = [Self::Anyone, Self::Asker];

    /// The subject for `sms-guess`. A guess that finds no code counts elsewhere: it uses up nothing of a
    /// later code, and gets the same answer.
    pub fn subject(self, phone: &Phone, finds_code: bool) -> Vec<u8> {
        let lead = match (self, finds_code) {
            (Self::Anyone, true) => "",
            (Self::Asker, true) => "asker",
            (Self::Known, true) => "known",
            (Self::Anyone, false) => "no code",
            (Self::Asker, false) => "no code, asker",
            (Self::Known, false) => "no code, known",
        };
        [lead.as_bytes(), phone.as_str().as_bytes()].concat()
    }

    /// The subject for `sms-guess` in another program, which sees what people type: none of its guesses counts anywhere
    /// else. `number` is the ledger's key of the number.
    pub fn subject_in(self, program: &str, number: SubjectKey) -> Vec<u8> {
        let lead: &[u8] = if self == Self::Asker { b"/asker/" } else { b"/" };
        [program.as_bytes(), lead, &number.0].concat()
    }

    /// What an event says about it, unless the number's own log counts it.
    pub const fn detail(self, finds_code: bool) -> Option<&'static str> {
        match (self, finds_code) {
            (Self::Known, _) => Some(r#"{"from":"known device"}"#),
            (_, false) => Some(r#"{"code":"none"}"#),
            (Self::Asker, true) => Some(r#"{"from":"asker"}"#),
            (Self::Anyone, true) => None,
        }
    }
}
