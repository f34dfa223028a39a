//! Whose guesses at a number's codes count together.

use super::Phone;

/// Each has a log of the limit `sms-guess` to itself, so that nobody else's guesses keep out who has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guesser {
    /// Everyone, from everywhere.
    Anyone,
    /// The browser that asked for the code.
    Asker,
    /// Browsers that the number's account was signed in to before: together, so that it is one bound.
    Known,
}

impl Guesser {
    pub const ALL: [Self; 3] = [Self::Anyone, Self::Asker, Self::Known];

    /// Whom `sms-guess` counts. A guess that finds no code is counted elsewhere, so that it takes nothing from a
    /// code that comes later, and its sender hears the same.
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

    /// What an event says of it, where it is not what the number's own log counts.
    pub const fn detail(self, finds_code: bool) -> Option<&'static str> {
        match (self, finds_code) {
            (Self::Known, _) => Some(r#"{"from":"known device"}"#),
            (_, false) => Some(r#"{"code":"none"}"#),
            (Self::Asker, true) => Some(r#"{"from":"asker"}"#),
            (Self::Anyone, true) => None,
        }
    }
}
