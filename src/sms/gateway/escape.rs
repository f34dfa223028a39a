//! How a value is escaped for the place where it is written: a URL, a form, JSON, XML or a header.

use std::fmt::Write as _;

use url::form_urlencoded;

use crate::config::BodyKind;

/// Keeps a value from changing the structure around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escape {
    /// Percent-encoded, except RFC 3986's unreserved characters.
    Url,
    Form,
    Json,
    Xml,
    /// Into a header: one line.
    Line,
    Nothing,
}

impl Escape {
    pub fn push(self, out: &mut String, value: &str) {
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

/// RFC 3986, section 2.3: characters that need no encoding.
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
        // XML 1.0 cannot express these.
        '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
        _ => out.push(letter),
    }
}

impl BodyKind {
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
