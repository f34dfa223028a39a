//! A mobile number that can receive messages: parsed, canonical, and safe to print.

use std::fmt;

use crate::config::{CountryMode, GLOBAL_NETWORKS, SmsTunables};
use crate::typed;
use rlibphonenumber::{PHONE_NUMBER_UTIL, PhoneNumber, PhoneNumberFormat, PhoneNumberType, Region};

#[cfg(test)]
mod tests;

/// A mobile number in E.164 (`+8613800138000`): every spelling of it is the same bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Phone {
    /// The number; before it the one that counts, if another one reaches the same phone and counts for both. In one text,
    /// so that an account is no larger for it.
    text: Box<str>,
    /// Where the number begins.
    number: u8,
}

/// Two calling codes under which the same national numbers reach the same phone.
struct OnePhone {
    /// The first one counts.
    codes: [&'static str; 2],
    digits: usize,
    begin: &'static [&'static str],
}

/// Only what is proven: docs/sms.md has the sources, and what else was looked at. Palestine's mobile numbers, which were
/// in Israel's plan before it had a code of its own, and still are.
const ONE_PHONE: [OnePhone; 1] = [OnePhone { codes: ["+970", "+972"], digits: 9, begin: &["56", "59"] }];

impl OnePhone {
    /// The number under the other code, and whether that one counts.
    fn other(&self, number: &str) -> Option<(String, bool)> {
        let [first, second] = self.codes;
        let of = |code: &str| {
            let national = number.strip_prefix(code)?;
            let fits = national.len() == self.digits && self.begin.iter().any(|it| national.starts_with(it));
            fits.then_some(national)
        };
        let under = |code: &str, national: &str| format!("{code}{national}");
        match (of(first), of(second)) {
            (Some(national), _) => Some((under(second, national), false)),
            (None, Some(national)) => Some((under(first, national), true)),
            (None, None) => None,
        }
    }
}

/// Why a text is not a number that a code can be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PhoneError {
    #[error("is missing")]
    Missing,
    #[error("is not a phone number")]
    NotANumber,
    #[error("is not a mobile number")]
    NotMobile,
    #[error("is in a country to which no codes are sent")]
    CountryNotAllowed,
}

/// In bytes: enough for the longest number in full-width digits with separators.
const LONGEST_TEXT: usize = 64;
/// E.164 has 15; an international prefix, a carrier code and a trunk zero may come before them.
const MOST_DIGITS: usize = 24;

impl Phone {
    /// Parses what people type and paste; `default_region` (ISO 3166-1) applies to a number without a country
    /// code. Anything except digits, a leading plus and separators is refused, so that no extension or letter
    /// is accepted.
    pub fn parse(text: &str, default_region: &str) -> Result<Self, PhoneError> {
        if text.len() > LONGEST_TEXT {
            return Err(PhoneError::NotANumber);
        }
        let dialled = dialled(text)?;
        let mut number = parsed(&dialled, default_region).ok_or(PhoneError::NotANumber)?;
        // Dialled as from abroad, in a region whose international prefix is not 00.
        if let Some(rest) = dialled.strip_prefix("00").filter(|_| !number.is_valid()) {
            number = parsed(&format!("+{rest}"), default_region).ok_or(PhoneError::NotANumber)?;
        }
        let number = current(number);
        if !number.is_valid() {
            return Err(PhoneError::NotANumber);
        }
        match number.get_type() {
            PhoneNumberType::Mobile | PhoneNumberType::FixedLineOrMobile if !is_of_the_past(&number) => {
                Ok(Self::stored(number.format_as(PhoneNumberFormat::E164).into_owned()))
            }
            _ => Err(PhoneError::NotMobile),
        }
    }

    pub fn stored(e164: String) -> Self {
        match ONE_PHONE.iter().find_map(|pair| pair.other(&e164)) {
            Some((counts_as, true)) => {
                Self { number: counts_as.len() as u8, text: (counts_as + &e164).into_boxed_str() }
            }
            Some((_, false)) | None => Self { number: 0, text: e164.into_boxed_str() },
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text[usize::from(self.number)..]
    }

    /// Whom limits, the ledger and guesses count: the same for numbers that reach the same phone. Accounts have the number
    /// itself and codes are bound to it, because not every operator may send both to one phone for ever.
    pub fn subject(&self) -> &str {
        match self.number {
            0 => &self.text,
            counts_as => &self.text[..usize::from(counts_as)],
        }
    }

    /// Every number of the phone that is known to reach it, its own first.
    pub fn numbers(&self) -> impl Iterator<Item = String> + use<> {
        let other = ONE_PHONE.iter().find_map(|pair| pair.other(self.as_str()));
        [self.as_str().to_owned()].into_iter().chain(other.map(|(other, _)| other))
    }

    /// E.164 without its plus sign, as some gateways want it.
    pub fn digits(&self) -> &str {
        self.as_str().trim_start_matches('+')
    }

    /// ISO 3166-1, two letters, or [`GLOBAL_NETWORKS`]; None if the numbering plans no longer contain the number.
    pub fn country(&self) -> Option<String> {
        country_of(self.as_str())
    }

    /// Refuses a number of any other country; an empty list allows all countries, and no global network.
    pub fn allowed_in(self, countries: &[String]) -> Result<Self, PhoneError> {
        let country = self.country();
        let allowed = match (&country, countries) {
            (Some(country), []) => country != GLOBAL_NETWORKS,
            (None, []) => true,
            (country, listed) => country.as_ref().is_some_and(|country| listed.contains(country)),
        };
        if allowed { Ok(self) } else { Err(PhoneError::CountryNotAllowed) }
    }

    /// Refuses a number to which no codes are sent.
    pub fn allowed_by(self, sms: &SmsTunables) -> Result<Self, PhoneError> {
        let phone = self.allowed_in(&sms.countries)?;
        match phone.country_mode(sms) {
            CountryMode::Monitor | CountryMode::Allow | CountryMode::Challenge => Ok(phone),
            CountryMode::Block => Err(PhoneError::CountryNotAllowed),
        }
    }

    /// Whether no code goes there without a solved challenge.
    pub fn is_challenged(&self, sms: &SmsTunables) -> bool {
        let listed = |number: &str| sms.challenge_prefixes.iter().any(|prefix| number.starts_with(prefix));
        self.numbers().any(|number| listed(&number)) || self.country_mode(sms) == CountryMode::Challenge
    }

    /// The strictest mode of a country in which the phone has a number.
    pub fn country_mode(&self, sms: &SmsTunables) -> CountryMode {
        if sms.country.is_empty() {
            return CountryMode::Allow;
        }
        // Both numbers of one phone reach it, and cost what it costs.
        let modes = self.numbers().map(|number| sms.mode_of(country_of(&number).as_deref()));
        modes.max().unwrap_or_default()
    }

    /// The dialling prefix that its subject shares with 9,999 neighbours: all but the last four digits.
    pub fn block(&self) -> &str {
        self.without_last(4)
    }

    /// The million numbers that an operator gets at once: all but the last six digits.
    pub fn range(&self) -> &str {
        self.without_last(6)
    }

    /// For its owner: `+86138****8000`. Hides at least four digits, and half of a number with at most eight
    /// digits after the country code.
    pub fn masked(&self) -> String {
        // A corrupted row is not a number, and nothing of it is shown.
        let Some(number) = self.number() else { return "****".to_owned() };
        let national = number.get_national_significant_number();
        let last = (national.len() / 2).min(4).min(national.len().saturating_sub(4));
        let first = national.len().saturating_sub(8).min(3);
        format!("+{}{}****{}", number.country_code, &national[..first], &national[national.len() - last..])
    }

    /// For the ledger, which stores [`Self::block`] in clear: only the rest is hidden.
    pub fn ledger_mask(&self) -> String {
        format!("{}****", self.block())
    }

    fn number(&self) -> Option<PhoneNumber> {
        PHONE_NUMBER_UTIL.parse(self.as_str(), None).ok()
    }

    fn without_last(&self, digits: usize) -> &str {
        let subject = self.subject();
        let end = subject.len().saturating_sub(digits);
        subject.get(..end).unwrap_or_default()
    }
}

/// Where a number is of which no country is known. Messages of before countries were kept have none, and cost nothing.
pub const UNKNOWN_COUNTRY: &str = "ZZ";

fn country_of(number: &str) -> Option<String> {
    PHONE_NUMBER_UTIL.parse(number, None).ok()?.get_region_code().map(|region| region.to_string())
}

impl fmt::Debug for Phone {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Phone(…)")
    }
}

/// The digits of a text, after a plus if it starts with one.
fn dialled(text: &str) -> Result<String, PhoneError> {
    let mut out = String::new();
    for letter in text.trim().chars() {
        match (letter, typed::digit(letter)) {
            (_, Some(digit)) => out.push(digit),
            ('+' | '＋' | '﹢', _) if out.is_empty() => out.push('+'),
            // Two lines are two numbers.
            _ if letter.is_control() => return Err(PhoneError::NotANumber),
            _ if typed::is_separator(letter) || is_bracket(letter) => {}
            _ => return Err(PhoneError::NotANumber),
        }
    }
    match out.len() {
        0 => Err(PhoneError::Missing),
        2..=MOST_DIGITS => Ok(out),
        _ => Err(PhoneError::NotANumber),
    }
}

/// What stands between digits in phone numbers alone.
const fn is_bracket(letter: char) -> bool {
    matches!(letter, '(' | ')' | '[' | ']' | '（' | '）' | '.' | '．' | '/')
}

fn parsed(dialled: &str, default_region: &str) -> Option<PhoneNumber> {
    PHONE_NUMBER_UTIL.parse(dialled, Region::from_code(default_region).ok()).ok()
}

/// In 2019 Mexico abolished the digits before mobile numbers (1, 01, 044, 045), but people still write them;
/// the plans treat such a number as invalid.
fn current(number: PhoneNumber) -> PhoneNumber {
    const MEXICO: i32 = 52;
    const DIGITS: usize = 10;
    let national = number.get_national_significant_number();
    let prefix = national.len().checked_sub(DIGITS).and_then(|end| national.get(..end));
    match prefix {
        Some("1" | "01" | "044" | "045") if number.country_code == MEXICO && !number.is_valid() => {
            parsed(&format!("+{MEXICO}{}", &national[national.len() - DIGITS..]), "MX").unwrap_or(number)
        }
        _ => number,
    }
}

/// The tables still contain Gabon's plan from before 2019, with and without a leading zero: two names of a
/// number that no longer works. Today's mobile numbers are 6x or 7x and six digits.
fn is_of_the_past(number: &PhoneNumber) -> bool {
    const GABON: i32 = 241;
    let national = number.get_national_significant_number();
    number.country_code == GABON && (national.len() < 8 || national.starts_with('0'))
}
