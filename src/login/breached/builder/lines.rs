//! The lines of a list of lost passwords.

use std::io::{self, BufRead, Read};

use crate::login::breached::filter::key_of;

/// In bytes, without its end. Nobody has a longer password.
const LONGEST_LINE: usize = 1024;
/// The digits of a SHA-1.
const HASH_DIGITS: usize = 40;
/// The digits of it that are the key.
const KEY_DIGITS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputLine {
    /// A SHA-1, and how often it was found.
    Hash {
        key: u64,
        count: Option<u64>,
    },
    /// A password itself.
    Word {
        key: u64,
    },
    Empty,
    TooLong,
}

/// Reads lines, and keeps no more than the longest line in memory.
pub(super) struct LineReader<R> {
    input: R,
    text: Vec<u8>,
    last_bytes: u64,
}

impl<R: BufRead> LineReader<R> {
    pub fn new(input: R) -> Self {
        Self { input, text: Vec::with_capacity(LONGEST_LINE + 2), last_bytes: 0 }
    }

    /// Reads a line; None at the end of the input. The last line needs no end.
    pub fn next_line(&mut self) -> io::Result<Option<InputLine>> {
        self.text.clear();
        let most = LONGEST_LINE as u64 + 2;
        self.last_bytes = self.input.by_ref().take(most).read_until(b'\n', &mut self.text)? as u64;
        if self.last_bytes == 0 {
            return Ok(None);
        }
        let ended = self.text.ends_with(b"\n");
        let text = without_end(&self.text);
        if text.len() <= LONGEST_LINE {
            return Ok(Some(parse(text)));
        }
        if !ended {
            self.last_bytes += self.input.skip_until(b'\n')? as u64;
        }
        Ok(Some(InputLine::TooLong))
    }

    /// The bytes of the line that was read last, with its end.
    pub const fn last_bytes(&self) -> u64 {
        self.last_bytes
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    match line {
        [text @ .., b'\r', b'\n'] | [text @ .., b'\n'] => text,
        text => text,
    }
}

fn parse(text: &[u8]) -> InputLine {
    if text.is_empty() {
        return InputLine::Empty;
    }
    parse_hash(text).unwrap_or_else(|| InputLine::Word { key: key_of(text) })
}

/// Reads a hash and its count; None if the line is no hash.
fn parse_hash(text: &[u8]) -> Option<InputLine> {
    let (hash, rest) = text.split_at_checked(HASH_DIGITS)?;
    if !hash.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let count = match rest {
        [] => None,
        [b':', digits @ ..] => Some(parse_count(digits)?),
        _ => return None,
    };
    let digit = |letter: &u8| u64::from(char::from(*letter).to_digit(16).unwrap_or_default());
    let key = hash[..KEY_DIGITS].iter().fold(0, |key, letter| key << 4 | digit(letter));
    Some(InputLine::Hash { key, count })
}

/// More than fits counts as the most that does.
fn parse_count(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let append = |count: u64, digit: &u8| count.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, append))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &str = "5BAA61E4C9B93F3F0682250B6CF8331B7EE68FD8";

    fn lines(input: impl AsRef<[u8]>) -> Vec<InputLine> {
        let mut lines = LineReader::new(input.as_ref());
        let mut read = Vec::new();
        let mut bytes = 0;
        while let Some(line) = lines.next_line().unwrap() {
            read.push(line);
            bytes += lines.last_bytes();
        }
        assert_eq!(bytes, input.as_ref().len() as u64, "every byte is counted");
        read
    }

    fn word(text: &[u8]) -> InputLine {
        InputLine::Word { key: key_of(text) }
    }

    #[test]
    fn hashes_of_either_case_are_read_with_and_without_counts() {
        let key = key_of(b"password");
        let lower = PASSWORD.to_lowercase();
        let hash = |count| InputLine::Hash { key, count };
        assert_eq!(lines(PASSWORD), [hash(None)]);
        assert_eq!(lines(format!("{lower}\r\n")), [hash(None)]);
        assert_eq!(lines(format!("{PASSWORD}:37359195\n{lower}:0")), [hash(Some(37_359_195)), hash(Some(0))]);
        assert_eq!(lines(format!("{PASSWORD}:{}", "9".repeat(30))), [hash(Some(u64::MAX))]);
    }

    #[test]
    fn everything_else_is_a_word_as_it_is() {
        for text in [
            "password",
            " ",
            "\rx",
            "passwort\u{e9}",
            &PASSWORD[1..],
            &format!("{PASSWORD}0"),
            &format!("{PASSWORD}:"),
            &format!("{PASSWORD}:x"),
            &format!("{PASSWORD}:-1"),
            &format!("{PASSWORD} :1"),
            &PASSWORD.replace('F', "G"),
        ] {
            assert_eq!(lines(format!("{text}\n")), [word(text.as_bytes())], "{text:?}");
        }
        assert_eq!(lines(b"\xff\xfe\x00x\n"), [word(b"\xff\xfe\x00x")]);
        assert_eq!(lines(b"ab\r\ncd\nef\r"), [word(b"ab"), word(b"cd"), word(b"ef\r")]);
    }

    #[test]
    fn a_line_has_up_to_1024_bytes_whatever_its_end() {
        for end in ["", "\n", "\r\n"] {
            let fits = "x".repeat(1024);
            assert_eq!(lines(format!("{fits}{end}")), [word(fits.as_bytes())], "{end:?}");
            for length in [1025, 1026, 1027, 5000] {
                assert_eq!(
                    lines(format!("{}{end}", "x".repeat(length))),
                    [InputLine::TooLong],
                    "{length}{end:?}"
                );
            }
        }
        let long = format!("{}\nafter\n\r\n\nlast", "x".repeat(100_000));
        let rest = [InputLine::TooLong, word(b"after"), InputLine::Empty, InputLine::Empty, word(b"last")];
        assert_eq!(lines(long), rest);
        assert_eq!(lines(""), []);
    }
}
