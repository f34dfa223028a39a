//! A configured text with placeholders for the parts of a message.

use super::values::SecretRef;

/// The value of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placeholder {
    Phone,
    PhoneDigits,
    Text,
    /// For gateways that take Unicode only as hexadecimal UTF-16 (big-endian).
    TextUtf16Hex,
    Code,
    Id,
    ReportToken,
    ReportUrl,
}

impl Placeholder {
    /// All of them, by their names.
    pub const ALL: [(&str, Self); 8] = [
        ("phone", Self::Phone),
        ("phone_digits", Self::PhoneDigits),
        ("text", Self::Text),
        ("text_utf16_hex", Self::TextUtf16Hex),
        ("code", Self::Code),
        ("id", Self::Id),
        ("report_token", Self::ReportToken),
        ("report_url", Self::ReportUrl),
    ];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePiece {
    /// As it is; its author has escaped it.
    Literal(String),
    Place(Placeholder),
    Secret(SecretRef),
}

/// A template, as written. Its Debug form shows no literal text, which may contain a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct GatewayTemplate(Vec<TemplatePiece>);

impl GatewayTemplate {
    /// Braces around anything other than a name are literal, as in JSON.
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
            pieces.push(TemplatePiece::Literal(std::mem::take(&mut literal)));
            pieces.push(piece(name)?);
            rest = &rest[name.len() + 2..];
        }
        literal.push_str(rest);
        pieces.push(TemplatePiece::Literal(literal));
        Ok(Self(pieces))
    }

    /// With every placeholder replaced by the same text, to check the form of the rest.
    pub(crate) fn sample(&self, value: &str) -> String {
        let shown = |piece: &TemplatePiece| match piece {
            TemplatePiece::Literal(text) => text.clone(),
            TemplatePiece::Place(_) | TemplatePiece::Secret(_) => value.to_owned(),
        };
        self.0.iter().map(shown).collect()
    }

    pub(crate) fn pieces(&self) -> &[TemplatePiece] {
        &self.0
    }
}

impl std::fmt::Debug for GatewayTemplate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = self.0.iter().filter(|piece| !matches!(piece, TemplatePiece::Literal(_)));
        out.debug_list().entries(places).finish()
    }
}

/// The format of a body, which decides how values in it are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    Form,
    Xml,
    Other,
}

impl BodyKind {
    /// From its Content-Type header.
    pub fn of_type(content_type: &str) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/x-www-form-urlencoded" => Self::Form,
            "application/json" | "text/json" => Self::Json,
            "application/xml" | "text/xml" => Self::Xml,
            other if other.ends_with("+json") => Self::Json,
            other if other.ends_with("+xml") => Self::Xml,
            _ => Self::Other,
        }
    }

    /// From the shape of a sample, if there is no header.
    pub fn of_shape(sample: &str) -> Self {
        let body = sample.trim_start();
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.[]%+".contains(&byte);
        let is_pair = |pair: &str| {
            pair.split_once('=').is_some_and(|(key, _)| !key.is_empty() && key.bytes().all(is_key))
        };
        match body.as_bytes().first() {
            Some(b'{' | b'[') => Self::Json,
            Some(b'<') => Self::Xml,
            Some(_) if body.split('&').all(is_pair) => Self::Form,
            _ => Self::Other,
        }
    }
}

fn is_name(name: &str) -> bool {
    let word = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_';
    let secret = name.starts_with("env:") || name.starts_with("file:");
    secret || (name.starts_with(|first: char| first.is_ascii_lowercase()) && name.bytes().all(word))
}

fn piece(name: &str) -> Result<TemplatePiece, String> {
    if name.starts_with("env:") || name.starts_with("file:") {
        return SecretRef::parse(name.to_owned()).map(TemplatePiece::Secret);
    }
    let place = Placeholder::ALL.iter().find(|(known, _)| *known == name);
    place.map(|(_, place)| TemplatePiece::Place(*place)).ok_or_else(|| {
        let known: Vec<_> = Placeholder::ALL.iter().map(|(known, _)| format!("{{{known}}}")).collect();
        format!("{{{name}}} is not a placeholder; use {}, {{env:NAME}} and {{file:PATH}}", known.join(", "))
    })
}
