//! Filling a message into a template, each value escaped for where it is written.

use secrecy::ExposeSecret;

use super::Message;
use super::escape::Escape;
use crate::config::{Piece, Placeholder, SecretError, Template};

#[cfg(test)]
mod tests;

/// A template whose secrets are read.
pub(super) struct Ready {
    pieces: Vec<Piece>,
    escape: Escape,
}

/// What a message fills in.
pub(super) struct Values<'a> {
    pub message: &'a Message<'a>,
    pub report_token: &'a str,
    pub report_url: &'a str,
}

impl Template {
    /// Reads the secrets that it names.
    pub(super) fn open(&self, escape: Escape) -> Result<Ready, SecretError> {
        let read = |piece: &Piece| match piece {
            Piece::Secret(secret) => {
                let mut literal = String::new();
                escape.push(&mut literal, secret.read()?.expose_secret());
                Ok(Piece::Literal(literal))
            }
            other => Ok(other.clone()),
        };
        Ok(Ready { pieces: self.pieces().iter().map(read).collect::<Result<_, _>>()?, escape })
    }
}

impl Ready {
    pub fn fill(&self, values: &Values<'_>) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out.push_str(text),
                Piece::Place(place) => self.escape.push(&mut out, &values.of(*place)),
                // `Template::open` left none.
                Piece::Secret(_) => {}
            }
        }
        out
    }
}

impl Values<'_> {
    fn of(&self, place: Placeholder) -> String {
        let message = self.message;
        match place {
            Placeholder::Phone => message.phone.as_str().to_owned(),
            Placeholder::PhoneDigits => message.phone.digits().to_owned(),
            Placeholder::Text => message.text.to_owned(),
            Placeholder::TextUtf16Hex => {
                message.text.encode_utf16().map(|unit| format!("{unit:04x}")).collect()
            }
            Placeholder::Code => message.code.expose().to_owned(),
            Placeholder::Id => message.id.to_string(),
            Placeholder::ReportToken => self.report_token.to_owned(),
            Placeholder::ReportUrl => self.report_url.to_owned(),
        }
    }
}
