//! The answer: derived from the challenge's nonce, never stored, compared as a keyed hash.

use super::id::VerifiedId;
use super::{Difficulty, Provider};
use crate::secret::{MasterKey, SigningKeys, SubKey, same};

/// Letters that a reader told apart in 39 of 40 images, turned and over each other's edges, in either case, because some
/// are drawn small. Left out: I J L (each other, and 1), O Q (each other, and 0), U V (each other), G (C), B S Z (8 5 2),
/// F (an E without its foot), N (H and M), K and Y (H, T and X that lean); and every digit, so that a phone's keyboard
/// need not switch.
pub const ALPHABET: &[u8; 11] = b"ACDEHMPRTWX";

/// In bytes. A longer answer is always wrong, including a fixed one.
const LONGEST: usize = 128;

pub struct CaptchaAnswers {
    letters: SigningKeys,
    compare: SubKey,
    provider: Provider,
}

impl CaptchaAnswers {
    pub fn new(key: &MasterKey, provider: Provider) -> Self {
        Self {
            letters: key.derive_signing("captcha.answer"),
            compare: key.derive("captcha.compare"),
            provider,
        }
    }

    /// What the image shows.
    pub fn text(&self, body: &VerifiedId) -> String {
        match &self.provider {
            Provider::Image => self.draw_letters(body),
            Provider::Fixed { answer } => answer.clone(),
        }
    }

    /// Whether a typed answer is right, in constant time.
    pub fn accepts(&self, body: &VerifiedId, typed: &str) -> bool {
        let Some(typed) = normalise(typed) else { return false };
        let Some(right) = normalise(&self.text(body)) else { return false };
        let digest = |answer: &str| self.compare.hash(&[&body.nonce, answer.as_bytes()]);
        same(&digest(&typed), &digest(&right))
    }

    fn draw_letters(&self, body: &VerifiedId) -> String {
        let count = match body.difficulty() {
            Difficulty::Easy | Difficulty::Medium => 5,
            Difficulty::Hard => 6,
        };
        // Eight words of 32 bits; their remainder favours a letter by less than 1 in 10^8.
        let stream = self.letters.of(body.generation).hash(&[&body.nonce]);
        let words =
            stream.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        words.take(count).map(|word| char::from(ALPHABET[word as usize % ALPHABET.len()])).collect()
    }
}

/// Upper case without white space; full-width forms, as Chinese input methods type them, become plain. None
/// if it cannot be an answer: empty, or too long.
fn normalise(answer: &str) -> Option<String> {
    if answer.len() > LONGEST {
        return None;
    }
    let plain = |letter: char| match letter {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(letter as u32 - 0xff01 + 0x21).unwrap_or(letter),
        _ => letter,
    };
    let letters = answer.chars().filter(|letter| !letter.is_whitespace());
    let answer: String = letters.map(|letter| plain(letter).to_ascii_uppercase()).collect();
    (!answer.is_empty()).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_spaces_and_full_width_do_not_matter() {
        for typed in ["HKTX", " hk tx\n", "h\u{a0}K\tT x", "ｈＫＴｘ"] {
            assert_eq!(normalise(typed).as_deref(), Some("HKTX"), "{typed:?}");
        }
    }

    #[test]
    fn no_two_letters_of_the_alphabet_look_alike() {
        for pair in [
            "O0", "QO", "I1", "IL", "IJ", "UV", "CG", "B8", "S5", "Z2", "EF", "GQ", "VY", "NH", "NM", "XY",
            "KX", "KH",
        ] {
            let there = pair.bytes().filter(|letter| ALPHABET.contains(letter)).count();
            assert!(there < 2, "{pair}");
        }
        assert!(ALPHABET.iter().all(u8::is_ascii_uppercase));
    }
}
