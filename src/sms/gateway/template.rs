//! Fills a message into a template, with each value escaped for its place.

use secrecy::ExposeSecret;

use super::SmsMessage;
use super::escape::Escape;
use crate::config::{GatewayTemplate, Placeholder, SecretError, TemplatePiece};

#[cfg(test)]
mod tests;

/// A template whose secrets have been read.
pub(super) struct ReadyTemplate {
    pieces: Vec<TemplatePiece>,
    escape: Escape,
}

/// The values that a message fills in.
pub(super) struct TemplateValues<'a> {
    pub message: &'a SmsMessage<'a>,
    pub report_token: &'a str,
    pub report_url: &'a str,
}

impl GatewayTemplate {
    /// Reads the secrets that it refers to.
    pub(super) fn open(&self, escape: Escape) -> Result<ReadyTemplate, SecretError> {
        let read = |piece: &TemplatePiece| match piece {
            TemplatePiece::Secret(secret) => {
                let mut literal = String::new();
                escape.push(&mut literal, secret.read()?.expose_secret());
                Ok(TemplatePiece::Literal(literal))
            }
            other => Ok(other.clone()),
        };
        Ok(ReadyTemplate { pieces: self.pieces().iter().map(read).collect::<Result<_, _>>()?, escape })
    }
}

impl ReadyTemplate {
    pub fn fill(&self, values: &TemplateValues<'_>) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Literal(text) => out.push_str(text),
                TemplatePiece::Place(place) => self.escape.push(&mut out, &values.of(*place)),
                // `GatewayTemplate::open` left none.
                TemplatePiece::Secret(_) => {}
            }
        }
        out
    }
}

impl TemplateValues<'_> {
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
