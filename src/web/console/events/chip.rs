//! The filter of a list of events as chips, each with the link that removes it.

use std::borrow::Cow;

use url::form_urlencoded;

use super::{EventQuery, HERE, TEXT};
use crate::audit::EventEntry;
use crate::web::console::RecordSpan;
use crate::web::console::limit_text::title;
use crate::web::console::subject_link::{kind_key, tag};
use crate::web::http::{Locale, Moment};

pub struct FilterChip {
    pub name: Cow<'static, str>,
    pub value: Cow<'static, str>,
    /// A time, instead of the value.
    pub at: Option<Moment>,
    /// The list without it.
    pub href: String,
}

/// The first event of the list has the masks of the subjects that are asked for.
pub fn chips(asked: &EventQuery, first: Option<&EventEntry>, locale: Locale) -> Vec<FilterChip> {
    let pairs = asked.pairs();
    let chip = |(place, (name, value)): (usize, &(&'static str, String))| {
        let others = pairs.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, pair)| pair);
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(others).finish();
        let href = if query.is_empty() { HERE.to_owned() } else { format!("{HERE}?{query}") };
        let (key, value, at) = words(asked, name, value, first, locale);
        FilterChip { name: locale.t(key), value, at, href }
    };
    pairs.iter().enumerate().map(chip).collect()
}

fn words(
    asked: &EventQuery,
    name: &str,
    value: &str,
    first: Option<&EventEntry>,
    locale: Locale,
) -> (&'static str, Cow<'static, str>, Option<Moment>) {
    let own = || Cow::Owned(value.to_owned());
    let filter = &asked.filter;
    if let Some((kind, key)) = name.parse().ok().and_then(|kind| filter.subjects.get_key_value(&kind)) {
        let mask = first.and_then(|entry| entry.subject(*kind)).map(|shown| format!("{} ", shown.mask));
        return (kind_key(*kind), (mask.unwrap_or_default() + &tag(*key)).into(), None);
    }
    let (key, value) = match name {
        "action" => ("event.action", locale.named_word("event", value)),
        "outcome" => ("event.outcome", locale.named_word("outcome", value)),
        "realm" => ("detail.realm", format!("guard:{value}").into()),
        "limit" => ("event.limit", title(value, locale)),
        "request" => ("detail.request", own()),
        TEXT => ("event.text", filter.text.clone().unwrap_or_default().into()),
        "span" => ("event.time", RecordSpan::parse(value).map_or_else(own, |span| locale.t(span.key))),
        "since" => return ("event.since", "".into(), filter.since.map(Moment)),
        "until" => return ("event.until", "".into(), filter.until.map(Moment)),
        "noted" => ("event.only-noted", "".into()),
        _ => ("event.each", "".into()),
    };
    (key, value, None)
}
