//! Text with placeholders that a message is filled into, each value escaped for where it stands.

use std::fmt::Write as _;

use secrecy::ExposeSecret;
use url::form_urlencoded;

use super::Message;
use crate::config::{SecretError, SecretRef};

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

/// How a value is kept from being more than a value where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escape {
    /// Percent-encoded, all but RFC 3986's unreserved characters.
    Url,
    Form,
    Json,
    Xml,
    /// Into a header: one line.
    Line,
    Nothing,
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

impl Escape {
    fn push(self, out: &mut String, value: &str) {
        match self {
            Self::Url => percent_encode(out, value),
            Self::Form => out.extend(form_urlencoded::byte_serialize(value.as_bytes())),
            Self::Json => {
                let quoted = serde_json::Value::from(value).to_string();
                out.push_str(&quoted[1..quoted.len() - 1]);
            }
            Self::Xml => value.chars().for_each(|letter| push_xml(out, letter)),
            Self::Line => {
                out.extend(value.chars().map(|letter| if letter.is_control() { ' ' } else { letter }))
            }
            Self::Nothing => out.push_str(value),
        }
    }
}

/// RFC 3986, section 2.3: what needs no encoding anywhere.
pub(super) fn percent_encode(out: &mut String, value: &str) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

fn push_xml(out: &mut String, letter: char) {
    match letter {
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '&' => out.push_str("&amp;"),
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&apos;"),
        // XML 1.0 has no way to write these.
        '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
        _ => out.push(letter),
    }
}

/// What a body is, and so how values in it are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    Form,
    Xml,
    Other,
}

impl BodyKind {
    /// By what its Content-Type header says.
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

    /// By the shape of a sample of it, where no header says.
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

    pub(super) const fn escape(self) -> Escape {
        match self {
            Self::Json => Escape::Json,
            Self::Form => Escape::Form,
            Self::Xml => Escape::Xml,
            Self::Other => Escape::Nothing,
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Form => "application/x-www-form-urlencoded",
            Self::Xml => "application/xml; charset=utf-8",
            Self::Other => "text/plain; charset=utf-8",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;
    use crate::sms::{Code, MessageId, Phone};

    /// Everything that means something somewhere.
    const HOSTILE: &str = "a\"b\\c<d>&e='f'%41 +\n\u{1}#?验证码😀{code}";

    fn filled(template: &str, escape: Escape) -> String {
        let phone = Phone::parse("13800138000", "CN").unwrap();
        let code = Code::parse("012345").unwrap();
        let id = MessageId::random(&Entropy::seeded(1));
        let message = Message { id, phone: &phone, code: &code, text: HOSTILE };
        let values =
            Values { message: &message, report_token: "t0", report_url: "https://h.example/r?id=1&token=2" };
        Template::parse(template).unwrap().open(escape).unwrap().fill(&values)
    }

    #[test]
    fn in_a_url_a_value_stays_one_value() {
        let url =
            filled("https://g.example/{phone}/s?p={phone}&t={text}&d={report_url}%26s%3D%25d", Escape::Url);
        let url = url::Url::parse(&url).unwrap();
        assert_eq!(url.path(), "/%2B8613800138000/s");
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        assert_eq!(pairs[0], ("p".to_owned(), "+8613800138000".to_owned()));
        assert_eq!(pairs[1], ("t".to_owned(), HOSTILE.to_owned()));
        assert_eq!(pairs[2], ("d".to_owned(), "https://h.example/r?id=1&token=2&s=%d".to_owned()));
        assert_eq!((pairs.len(), url.fragment()), (3, None));
    }

    #[test]
    fn in_json_a_value_stays_one_string() {
        let json: serde_json::Value = serde_json::from_str(&filled(
            r#"{"to":"{phone}","n":{phone_digits},"text":"{text}","deep":{"code":"{code}"}}"#,
            Escape::Json,
        ))
        .unwrap();
        assert_eq!(json["text"], HOSTILE);
        assert_eq!((&json["to"], &json["deep"]["code"]), (&"+8613800138000".into(), &"012345".into()));
        assert_eq!(json["n"], 8_613_800_138_000_u64);
    }

    #[test]
    fn in_a_form_a_value_stays_one_field() {
        let form = filled("to={phone}&text={text}&x=1", Escape::Form);
        let pairs: Vec<(String, String)> = form_urlencoded::parse(form.as_bytes()).into_owned().collect();
        let expected = [("to", "+8613800138000"), ("text", HOSTILE), ("x", "1")];
        assert_eq!(pairs, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn in_xml_a_value_stays_text() {
        assert_eq!(
            filled("<m to='{phone}'>{text}</m>", Escape::Xml),
            "<m to='+8613800138000'>a&quot;b\\c&lt;d&gt;&amp;e=&apos;f&apos;%41 +\n#?验证码😀{code}</m>"
        );
    }

    #[test]
    fn in_a_header_a_value_stays_one_line() {
        assert!(!filled("{text}", Escape::Line).contains(['\n', '\u{1}']));
    }

    #[test]
    fn what_is_filled_in_is_not_filled_again() {
        assert!(filled("{text}", Escape::Nothing).ends_with("{code}"));
        assert_eq!(filled("{ {} {\"phone\"} {phone", Escape::Nothing), "{ {} {\"phone\"} {phone");
        assert_eq!(filled("{report_token}", Escape::Nothing), "t0");
        assert!(filled("{text_utf16_hex}", Escape::Nothing).contains("9a8c8bc17801d83dde00"));
    }

    #[test]
    fn names_that_stand_for_nothing_are_refused() {
        let known =
            "{phone}, {phone_digits}, {text}, {text_utf16_hex}, {code}, {id}, {report_token}, {report_url}";
        assert_eq!(
            Template::parse("a {nmae}").unwrap_err(),
            format!("{{nmae}} is no placeholder; there are {known}, {{env:NAME}} and {{file:PATH}}")
        );
        assert!(Template::parse("{env:}").is_err());
        assert_eq!(
            format!("{:?}", Template::parse("hunter2 {env:KEY}{id}").unwrap()),
            "[Secret(env:KEY), Place(Id)]"
        );
    }

    #[test]
    fn secrets_are_read_and_escaped_too() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"p&w=1 2\n").unwrap();
        let template = format!("u={{file:{}}}&c={{code}}", file.path().display());
        assert_eq!(filled(&template, Escape::Url), "u=p%26w%3D1%202&c=012345");
        let missing = Template::parse("{env:GATEHOUSE_NO_SUCH}").unwrap().open(Escape::Url);
        assert!(missing.is_err());
    }

    #[test]
    fn a_body_is_what_its_header_or_its_shape_says() {
        for (content_type, kind) in [
            ("application/json; charset=utf-8", BodyKind::Json),
            ("Application/Vnd.Api+JSON", BodyKind::Json),
            ("application/x-www-form-urlencoded", BodyKind::Form),
            ("application/soap+xml", BodyKind::Xml),
            ("text/plain", BodyKind::Other),
        ] {
            assert_eq!(BodyKind::of_type(content_type), kind, "{content_type}");
        }
        for (body, kind) in [
            (r#" {"to":"{phone}"}"#, BodyKind::Json),
            ("[1]", BodyKind::Json),
            ("<m/>", BodyKind::Xml),
            ("to={phone}&text={text}", BodyKind::Form),
            ("to={phone}", BodyKind::Form),
            ("0: 0", BodyKind::Other),
            ("SMS {phone}", BodyKind::Other),
            ("", BodyKind::Other),
        ] {
            assert_eq!(BodyKind::of_shape(body), kind, "{body}");
        }
    }
}
