//! A mobile number that can receive messages: parsed, canonical, and safe to print.

use std::fmt;

use rlibphonenumber::{PHONE_NUMBER_UTIL, PhoneNumber, PhoneNumberFormat, PhoneNumberType, Region};

#[cfg(test)]
mod tests;

/// A mobile number in E.164 (`+8613800138000`): every spelling of it is the same bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Phone(String);

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
                Ok(Self(number.format_as(PhoneNumberFormat::E164).into_owned()))
            }
            _ => Err(PhoneError::NotMobile),
        }
    }

    pub fn stored(e164: String) -> Self {
        Self(e164)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// E.164 without its plus sign, as some gateways want it.
    pub fn digits(&self) -> &str {
        self.0.trim_start_matches('+')
    }

    /// ISO 3166-1, two letters; None if the numbering plans no longer contain the number.
    pub fn country(&self) -> Option<String> {
        self.number()?.get_region_code().map(|region| region.to_string())
    }

    /// Refuses a number of any other country; an empty list allows all.
    pub fn allowed_in(self, countries: &[String]) -> Result<Self, PhoneError> {
        if countries.is_empty() || self.country().is_some_and(|country| countries.contains(&country)) {
            return Ok(self);
        }
        Err(PhoneError::CountryNotAllowed)
    }

    /// The dialling prefix that it shares with 9,999 neighbours: all but the last four digits.
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
        PHONE_NUMBER_UTIL.parse(&self.0, None).ok()
    }

    fn without_last(&self, digits: usize) -> &str {
        let end = self.0.len().saturating_sub(digits);
        self.0.get(..end).unwrap_or_default()
    }
}

impl fmt::Debug for Phone {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Phone(…)")
    }
}

/// The digits of a text, after a plus if it starts with one.
fn dialled(text: &str) -> Result<String, PhoneError> {
    let mut out = String::new();
    for letter in text.trim().chars().filter(|letter| !is_invisible(*letter)) {
        match letter {
            _ if digit(letter).is_some() => out.extend(digit(letter)),
            '+' | '＋' | '﹢' if out.is_empty() => out.push('+'),
            _ if is_between_digits(letter) => {}
            _ => return Err(PhoneError::NotANumber),
        }
    }
    match out.len() {
        0 => Err(PhoneError::Missing),
        2..=MOST_DIGITS => Ok(out),
        _ => Err(PhoneError::NotANumber),
    }
}

/// Digits on keyboards: ASCII, full-width, Arabic and Persian.
fn digit(letter: char) -> Option<char> {
    let zero = match letter {
        '0'..='9' => return Some(letter),
        '０'..='９' => '０',
        '٠'..='٩' => '٠',
        '۰'..='۹' => '۰',
        _ => return None,
    };
    char::from_digit(u32::from(letter) - u32::from(zero), 10)
}

/// Separators that people and address books put between digits.
fn is_between_digits(letter: char) -> bool {
    let dash = matches!(letter, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '－' | 'ー');
    let bracket = matches!(letter, '(' | ')' | '[' | ']' | '（' | '）');
    dash || bracket || matches!(letter, '.' | '．' | '/') || (letter.is_whitespace() && !letter.is_control())
}

/// Zero-width and direction marks, which surround numbers pasted from an address book.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
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
