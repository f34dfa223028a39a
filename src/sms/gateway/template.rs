//! Text with placeholders that a message is filled into, each value escaped for where it stands.

use secrecy::ExposeSecret;

use super::Message;
use super::escape::Escape;
use crate::config::{SecretError, SecretRef};

#[cfg(test)]
mod tests;

/// What a placeholder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Phone,
    PhoneDigits,
    Text,
    /// For gateways that take Unicode as hexadecimal UTF-16 (big-endian) only.
    TextUtf16Hex,
    Code,
    Id,
    ReportToken,
    ReportUrl,
}

const PLACES: [(&str, Place); 8] = [
    ("phone", Place::Phone),
    ("phone_digits", Place::PhoneDigits),
    ("text", Place::Text),
    ("text_utf16_hex", Place::TextUtf16Hex),
    ("code", Place::Code),
    ("id", Place::Id),
    ("report_token", Place::ReportToken),
    ("report_url", Place::ReportUrl),
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// As it stands, escaped by whoever wrote it.
    Literal(String),
    Place(Place),
    Secret(SecretRef),
}

/// A template, as written. Its Debug form shows no literal text, which may hold what is secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

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
    /// Braces around anything but a name are the text's own, as in JSON.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            literal.push_str(&rest[..at]);
            rest = &rest[at..];
            let name = rest[1..].split_once('}').map(|(name, _)| name).filter(|name| is_name(name));
            let Some(name) = name else {
                literal.push('{');
                rest = &rest[1..];
                continue;
            };
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            pieces.push(piece(name)?);
            rest = &rest[name.len() + 2..];
        }
        literal.push_str(rest);
        pieces.push(Piece::Literal(literal));
        Ok(Self(pieces))
    }

    /// With every placeholder replaced by the same text: to see whether the rest has the right form.
    pub(crate) fn sample(&self, value: &str) -> String {
        let shown = |piece: &Piece| match piece {
            Piece::Literal(text) => text.clone(),
            Piece::Place(_) | Piece::Secret(_) => value.to_owned(),
        };
        self.0.iter().map(shown).collect()
    }

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
        Ok(Ready { pieces: self.0.iter().map(read).collect::<Result<_, _>>()?, escape })
    }
}

impl std::fmt::Debug for Template {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = self.0.iter().filter(|piece| !matches!(piece, Piece::Literal(_)));
        out.debug_list().entries(places).finish()
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
    fn of(&self, place: Place) -> String {
        let message = self.message;
        match place {
            Place::Phone => message.phone.as_str().to_owned(),
            Place::PhoneDigits => message.phone.digits().to_owned(),
            Place::Text => message.text.to_owned(),
            Place::TextUtf16Hex => message.text.encode_utf16().map(|unit| format!("{unit:04x}")).collect(),
            Place::Code => message.code.expose().to_owned(),
            Place::Id => message.id.to_string(),
            Place::ReportToken => self.report_token.to_owned(),
            Place::ReportUrl => self.report_url.to_owned(),
        }
    }
}

fn is_name(name: &str) -> bool {
    let word = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_';
    let secret = name.starts_with("env:") || name.starts_with("file:");
    secret || (name.starts_with(|first: char| first.is_ascii_lowercase()) && name.bytes().all(word))
}

fn piece(name: &str) -> Result<Piece, String> {
    if name.starts_with("env:") || name.starts_with("file:") {
        return SecretRef::parse(name.to_owned()).map(Piece::Secret);
    }
    let place = PLACES.iter().find(|(known, _)| *known == name);
    place.map(|(_, place)| Piece::Place(*place)).ok_or_else(|| {
        let known: Vec<_> = PLACES.iter().map(|(known, _)| format!("{{{known}}}")).collect();
        format!(
            "{{{name}}} is no placeholder; there are {}, {{env:NAME}} and {{file:PATH}}",
            known.join(", ")
        )
    })
}
