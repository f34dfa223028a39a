//! Which characters of a text are not seen by those who read it, so that one text can pass for another or for nothing.

use icu_properties::CodePointSetData;
use icu_properties::props::{
    DefaultIgnorableCodePoint, JoinControl, NoncharacterCodePoint, VariationSelector,
};

/// Whether nobody sees the character, or it hides or turns around what stands beside it: control characters and
/// separators of lines, what Unicode has displays ignore (Default_Ignorable_Code_Point: fillers, marks of direction, tags),
/// noncharacters, and signs that are drawn blank. What shapes its neighbours is part of a text: [`is_shaper`].
pub fn is_unseen(letter: char) -> bool {
    letter.is_control() || is_ignored(letter) || is_blank(letter)
}

/// Whether the character shapes what stands beside it and shows nothing by itself: the joiners of Persian and Indic words
/// and of emoji, and selectors of variants of emoji, Han and Mongolian letters.
pub fn is_shaper(letter: char) -> bool {
    CodePointSetData::new::<JoinControl>().contains(letter)
        || CodePointSetData::new::<VariationSelector>().contains(letter)
}

/// Whether readers see all of the text, and anything at all.
pub fn is_seen_whole(text: &str) -> bool {
    !text.contains(is_unseen) && text.contains(|letter: char| !is_shaper(letter) && !letter.is_whitespace())
}

fn is_ignored(letter: char) -> bool {
    let ignored = CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(letter);
    ignored && !is_shaper(letter) || CodePointSetData::new::<NoncharacterCodePoint>().contains(letter)
}

/// Separators of lines and annotations, and letters and signs whose picture is empty: of Braille, music, Khitan and
/// hieroglyphs. They have no property in common.
const fn is_blank(letter: char) -> bool {
    matches!(
        letter,
        '\u{2028}' | '\u{2029}' | '\u{fff9}'
            ..='\u{fffc}' | '\u{2800}' | '\u{1d159}' | '\u{16fe4}' | '\u{13441}' | '\u{13442}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_known_by_its_property() {
        for letter in [
            '\0',
            '\u{7f}',
            '\u{85}',
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{1160}',
            '\u{17b4}',
            '\u{17b5}',
            '\u{180e}',
            '\u{200b}',
            '\u{200e}',
            '\u{2028}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2800}',
            '\u{3164}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fffa}',
            '\u{fffc}',
            '\u{fffe}',
            '\u{ffff}',
            '\u{fdd0}',
            '\u{1d159}',
            '\u{1d173}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{10ffff}',
        ] {
            assert!(is_unseen(letter), "{:x}", u32::from(letter));
        }
        for letter in
            ['a', ' ', '\u{a0}', '\u{3000}', '明', 'ا', '\u{301}', '\u{600}', '👩', '\u{e000}', '\u{fffd}']
        {
            assert!(!is_unseen(letter) && !is_shaper(letter), "{:x}", u32::from(letter));
        }
        for letter in ['\u{200c}', '\u{200d}', '\u{fe0e}', '\u{fe0f}', '\u{180b}', '\u{e0100}'] {
            assert!(is_shaper(letter) && !is_unseen(letter), "{:x}", u32::from(letter));
        }
    }

    #[test]
    fn a_text_is_seen_whole_or_it_is_not() {
        for text in
            ["Ada", "می\u{200c}خواهم", "👩\u{200d}💻", "❤\u{fe0f}", "葛\u{e0100}城", "क्\u{200d}ष", "a b"]
        {
            assert!(is_seen_whole(text), "{text:?}");
        }
        for text in [
            "",
            " ",
            "\u{200d}",
            "\u{200d} \u{200d}",
            "\u{fe0f}",
            "\u{3164}",
            "Ada\u{3164}",
            "\u{2800}",
            "a\nb",
        ] {
            assert!(!is_seen_whole(text), "{text:?}");
        }
    }
}
