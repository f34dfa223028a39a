//! Answers as a text to compare: one line for the call, then its JSON, with what differs in every run left out.

use serde_json::{Map, Value};

use crate::support::app::Answer;

#[derive(Default)]
pub struct Transcript(String);

impl Transcript {
    /// Keeps an answer. One that repeats the one before it adds nothing.
    pub fn add(&mut self, method: &str, path: &str, answer: &Answer) {
        let mut entry = format!("{} {path}: {}\n", method.to_uppercase(), answer.status);
        if !answer.body.is_null() {
            let body = serde_json::to_string_pretty(&settled(&answer.body)).unwrap();
            entry.push_str(&format!("{body}\n"));
        }
        if !self.0.ends_with(&entry) {
            self.0.push_str(&entry);
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The value with its times, numbers of seconds and random ids replaced by what they are.
fn settled(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, field)| (name.clone(), settled_field(name, field)))
                .collect::<Map<_, _>>(),
        ),
        Value::Array(items) => items.iter().map(settled).collect(),
        Value::String(text) if is_time(text) => "[time]".into(),
        // The name of an account that was made for a number.
        Value::String(text) if text.starts_with("user-") => "user-[random]".into(),
        other => other.clone(),
    }
}

fn settled_field(name: &str, field: &Value) -> Value {
    const SPANS: [&str; 5] =
        ["retry_after", "retry_after_ms", "reset_after_ms", "expires_in", "resend_after"];
    const RANDOM: [&str; 15] = [
        "actor", "id", "image", "hit", "version", "previous", "token", "key", "request", "etag", "host",
        "cursor", "next", "diff", "reason",
    ];
    match field {
        Value::Number(_) if SPANS.contains(&name) => "[span]".into(),
        Value::String(text) if RANDOM.contains(&name) && !text.is_empty() => format!("[{name}]").into(),
        Value::Number(_) if RANDOM.contains(&name) => format!("[{name}]").into(),
        other => settled(other),
    }
}

/// As the API writes times (RFC 3339, UTC).
fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T'
}
