//! `[verify.NAME]` and `[relay.NAME]`: what the messages of other programs' codes say, and what signs a relay's calls.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use zeroize::Zeroizing;

use super::document::{ConfigValue, ValueNode};
use super::limits::is_custom_name;
use super::reader::{MOST_ENTRIES, ParseResult, SectionReader};
use super::values::{SecretRef, secret};
use crate::unseen::{is_seen_whole, is_unseen};

/// Texts, by the name in the scope of a program's token.
pub type ProgramTexts = BTreeMap<String, ProgramText>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramText {
    pub program: String,
    /// In any language that `texts` does not have.
    text: Option<String>,
    texts: BTreeMap<String, String>,
}

/// Relays, by their names.
pub type Relays = BTreeMap<String, RelaySettings>;

/// One identity provider that makes its codes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelaySettings {
    /// What signs its hook; two while they are changed, none if it calls by token.
    pub secrets: Vec<SecretRef>,
    pub text: ProgramText,
}

/// The most units of one SMS segment: septets of GSM 03.38, or else UTF-16.
const SEPTETS: usize = 160;
const UTF16_UNITS: usize = 70;
/// In UTF-16 units: whatever letters it has, they leave room for a code and a sentence.
const LONGEST_PROGRAM: usize = 40;
/// The longest code.
const LONGEST_CODE: &str = "0000000000";
const LONGEST_MINUTES: &str = "10";

const CODE: &str = "{code}";
const PROGRAM: &str = "{program}";
const MINUTES: &str = "{minutes}";

pub(super) fn read(section: &mut SectionReader<'_>) -> ProgramTexts {
    let program = |name: &str, section: &mut SectionReader<'_>| program(name, section, &[PROGRAM, MINUTES]);
    section.entries(MOST_ENTRIES, name, program).into_iter().collect()
}

pub(super) fn read_relays(section: &mut SectionReader<'_>) -> Relays {
    let relay = |name: &str, section: &mut SectionReader<'_>| RelaySettings {
        secrets: section.value("secret", Vec::new(), secrets),
        // How long the code is valid is not known here.
        text: program(name, section, &[PROGRAM]),
    };
    section.entries(MOST_ENTRIES, name, relay).into_iter().collect()
}

/// One, or two in a list.
fn secrets(node: ValueNode) -> ParseResult<Vec<SecretRef>> {
    let node = node.typed();
    match node.value {
        ConfigValue::Array(items) if (1..=2).contains(&items.len()) => {
            items.into_iter().map(secret).collect()
        }
        ConfigValue::Array(items) => {
            Err(format!("lists {} secrets; write one, or two while they are changed", items.len()))
        }
        _ => secret(node).map(|one| vec![one]),
    }
}

fn name(name: &str) -> ParseResult<()> {
    if is_custom_name(name) {
        Ok(())
    } else {
        Err("is not a name as in the scope of a token; use 1 to 64 of a-z, 0-9 and -".to_owned())
    }
}

/// `name` is what the program is called unless it says otherwise.
fn program(name: &str, section: &mut SectionReader<'_>, places: &[&str]) -> ProgramText {
    let program = section.value("program", name.to_owned(), |node| title(node.text()?));
    let text = section.optional("text", |node| template(&program, places, node));
    let pairs = section.section("texts", |inner| {
        inner.pairs(|tag, node| Ok((language(tag)?, template(&program, places, node)?)))
    });
    let mut texts = BTreeMap::new();
    for (_, (tag, text)) in pairs {
        if let Entry::Vacant(free) = texts.entry(tag) {
            free.insert(text);
        }
    }
    ProgramText { program, text, texts }
}

pub(super) fn title(text: String) -> ParseResult<String> {
    if text.trim().is_empty() || text.encode_utf16().count() > LONGEST_PROGRAM {
        return Err(format!("must be 1 to {LONGEST_PROGRAM} characters: what people know the program by"));
    }
    no_link(&text)?;
    match text.contains(['{', '}']) || !is_seen_whole(&text) {
        true => Err("must not contain braces, line breaks, or characters that are not seen".to_owned()),
        false => Ok(text),
    }
}

/// A tag as requests name languages (RFC 5646), in small letters.
fn language(tag: &str) -> ParseResult<String> {
    let part = |part: &str| {
        (1..=8).contains(&part.len()) && part.bytes().all(|letter| letter.is_ascii_alphanumeric())
    };
    match tag.split('-').all(part) {
        true => Ok(tag.to_ascii_lowercase()),
        false => Err("is not a language tag, such as \"en\" or \"zh-CN\"".to_owned()),
    }
}

/// A text that says whose code it is, has the code once and leads nowhere.
/// `places` is what else may be in braces.
fn template(program: &str, places: &[&str], node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    if text.matches(CODE).count() != 1 {
        return Err(format!("must contain {CODE} exactly once"));
    }
    if !text.contains(PROGRAM) && !text.contains(program) {
        return Err(format!("must name the program; write {PROGRAM} or {program:?} in it"));
    }
    let rest = places.iter().fold(text.replace(CODE, ""), |rest, place| rest.replace(place, ""));
    if rest.contains(['{', '}']) {
        return Err(format!("contains braces around something else than {CODE}, {}", places.join(", ")));
    }
    if rest.contains(is_unseen) {
        return Err("contains a line break, or a character that is not seen or turns text around".to_owned());
    }
    let longest = filled(&text, program, LONGEST_CODE, LONGEST_MINUTES);
    no_link(&longest)?;
    if !fits_one_segment(&longest) {
        return Err(format!(
            "is too long for one SMS with a code of {} characters: {SEPTETS} characters of plain ASCII, or {UTF16_UNITS} if there are others",
            LONGEST_CODE.len()
        ));
    }
    Ok(text)
}

/// What phones and browsers read as ASCII in an address (UTS 46). Letters are joined across joiners.
fn as_in_an_address(letter: char) -> Option<char> {
    Some(match letter {
        '\u{200c}' | '\u{200d}' => return None,
        '．' | '｡' | '․' | '﹒' => '.',
        '：' | '﹕' => ':',
        '／' => '/',
        '＠' | '﹫' => '@',
        other => other,
    })
}

/// Phones make a link of anything that looks like a domain, whatever stands before it. A Chinese full stop ends a
/// sentence, too: it is one of a domain only before what a domain can end with.
fn no_link(text: &str) -> ParseResult<()> {
    let letters: Vec<char> = text.chars().filter_map(as_in_an_address).collect();
    let dotted = letters.windows(3).any(|three| {
        let stop = three[1] == '.' || (three[1] == '。' && three[2].is_ascii_alphanumeric());
        stop && three[0].is_alphanumeric() && three[2].is_alphanumeric()
    });
    let read: String = letters.into_iter().collect();
    match dotted || read.contains("://") || read.contains('@') {
        true => {
            Err("contains a link, or what phones show as one (a full stop between letters, :// or @)"
                .to_owned())
        }
        false => Ok(()),
    }
}

fn filled(template: &str, program: &str, code: &str, minutes: &str) -> Zeroizing<String> {
    // The code comes last: nothing that is replaced after it could be in it.
    let text = template.replace(PROGRAM, program).replace(MINUTES, minutes);
    Zeroizing::new(text.replace(CODE, code))
}

/// Whether a message costs no more than one.
pub fn fits_one_segment(text: &str) -> bool {
    let most = if text.chars().all(is_gsm) { SEPTETS } else { UTF16_UNITS };
    text.encode_utf16().count() <= most
}

/// The ASCII characters that take one septet in GSM 03.38.
fn is_gsm(letter: char) -> bool {
    matches!(letter, '\n' | ' '..='Z' | 'a'..='z') && letter != '`'
}

impl ProgramText {
    /// A program without words of its own.
    #[cfg(test)]
    pub fn named(program: &str) -> Self {
        Self { program: program.to_owned(), text: None, texts: BTreeMap::new() }
    }

    /// The message in a language, if there is a text for it; otherwise in the one for all. As secret as the code.
    pub fn fill(&self, language: Option<&str>, code: &str, minutes: &str) -> Option<Zeroizing<String>> {
        let text = language.and_then(|tag| self.text_in(tag)).or(self.text.as_deref())?;
        Some(filled(text, &self.program, code, minutes))
    }

    /// For the tag, or for its language in another region or script.
    fn text_in(&self, tag: &str) -> Option<&str> {
        let tag = tag.to_ascii_lowercase();
        let main = |tag: &str| tag.split('-').next().map(str::to_owned);
        let exact = self.texts.get(&tag);
        let near = || self.texts.iter().find(|(other, _)| main(other) == main(&tag)).map(|(_, text)| text);
        exact.or_else(near).map(String::as_str)
    }
}
