//! Digits and letters as keyboards and clipboards give them: in any script's digits, in full width, in groups, with marks
//! that nobody sees.

use icu_properties::CodePointMapData;
use icu_properties::props::GeneralCategory;
use zeroize::Zeroizing;

/// The ASCII digit of a decimal digit, whose script may be any.
pub fn digit(letter: char) -> Option<char> {
    if letter.is_ascii() {
        return letter.is_ascii_digit().then_some(letter);
    }
    // Unicode encodes them in rows of ten, zero first, and few rows follow one another.
    let category = CodePointMapData::<GeneralCategory>::new();
    let is_decimal = |code: &u32| category.get32(*code) == GeneralCategory::DecimalNumber;
    let before = (0..=u32::from(letter)).rev().take_while(is_decimal).count() as u32;
    char::from_digit(before.checked_sub(1)? % 10, 10)
}

/// The ASCII character that is meant: of a digit, or of the full-width form that Chinese and Japanese input methods give.
/// Every other character is itself.
pub fn plain(letter: char) -> char {
    match letter {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(letter) - 0xff01 + 0x21).unwrap_or(letter),
        _ => digit(letter).unwrap_or(letter),
    }
}

/// Exactly `count` digits, whatever separates them.
pub fn digits(text: &str, count: usize) -> Option<Zeroizing<String>> {
    let mut out = Zeroizing::new(String::with_capacity(count));
    for letter in text.chars().filter(|letter| !is_separator(*letter)) {
        if out.len() == count {
            return None;
        }
        out.push(digit(letter)?);
    }
    (out.len() == count).then_some(out)
}

/// What people and address books put between digits and groups of letters, and what surrounds them when they are pasted:
/// white space, dashes, marks of direction and of no width.
pub fn is_separator(letter: char) -> bool {
    let dash = matches!(letter, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '－' | 'ー');
    dash || is_invisible(letter)
        || (letter.is_whitespace() && !letter.is_control() || matches!(letter, '\n' | '\r' | '\t'))
}

fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_every_script_are_digits() {
        for text in [
            "0123456789",
            "٠١٢٣٤٥٦٧٨٩",
            "۰۱۲۳۴۵۶۷۸۹",
            "०१२३४५६७८९",
            "০১২৩৪৫৬৭৮৯",
            "０１２３４５６７８９",
            "๐๑๒๓๔๕๖๗๘๙",
        ] {
            assert_eq!(digits(text, 10).unwrap().as_str(), "0123456789");
        }
        let category = CodePointMapData::<GeneralCategory>::new();
        for letter in '\0'..=char::MAX {
            let decimal = category.get(letter) == GeneralCategory::DecimalNumber;
            assert_eq!(digit(letter).is_some(), decimal, "{:x}", u32::from(letter));
        }
        for row in category.iter_ranges_for_value(GeneralCategory::DecimalNumber) {
            assert_eq!(row.count() % 10, 0, "a row begins with zero");
        }
        for letter in ['²', '½', '①', '五', 'Ⅳ'] {
            assert_eq!(digit(letter), None, "{letter}");
        }
    }

    #[test]
    fn groups_and_marks_separate_and_nothing_else_does() {
        for text in [
            "962526",
            " 962 526\n",
            "962-526",
            "962–526",
            "\u{200e}962526\u{202c}",
            "９６２　５２６",
            "۹۶۲۵26",
        ] {
            assert_eq!(digits(text, 6).unwrap().as_str(), "962526", "{text:?}");
        }
        for text in ["", "96252", "9625260", "96252a", "+962526", "962.526", "962526\0", "9625²6"] {
            assert!(digits(text, 6).is_none(), "{text:?}");
        }
    }

    #[test]
    fn full_width_is_plain() {
        assert_eq!("ａＢ－７۷é明".chars().map(plain).collect::<String>(), "aB-77é明");
    }
}
