//! The visible part of a subject: enough to recognise it, too little to find it.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::event::EventSubject;

/// How many digits of a number are hidden.
const HIDDEN_DIGITS: usize = 4;

pub fn mask(subject: &EventSubject<'_>) -> String {
    match subject {
        EventSubject::Account { login, .. } | EventSubject::Realm { login, .. } => name(login),
        EventSubject::Recorded { mask, .. } => (*mask).to_owned(),
        EventSubject::Login(login) | EventSubject::Custom(login) => name(login),
        EventSubject::Address(bytes) | EventSubject::Network(bytes) => network(bytes),
        EventSubject::Phone(number) => {
            format!("{}****", number.get(..number.len().saturating_sub(HIDDEN_DIGITS)).unwrap_or_default())
        }
        EventSubject::Prefix(prefix) => format!("{prefix}****"),
    }
}

/// The first letter, or two if a name has five or more. Subjects of custom limits are any text: characters
/// that could reorder the surrounding line, and those that PostgreSQL does not accept (NUL), are replaced.
fn name(login: &str) -> String {
    let shown = if login.chars().nth(4).is_some() { 2 } else { 1 };
    let readable = |letter: char| if is_unseen(letter) { char::REPLACEMENT_CHARACTER } else { letter };
    login.chars().take(shown).map(readable).chain(['…']).collect()
}

/// Control characters, and marks that set the direction of text or join letters (Unicode, general category
/// Cf).
fn is_unseen(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The /24 or /48, as `login::Client` shows it to an account's owner.
fn network(bytes: &[u8]) -> String {
    match *bytes {
        [4, a, b, c, ..] => format!("{}/24", Ipv4Addr::new(a, b, c, 0)),
        [6, a, b, c, d, e, f, ..] => {
            let part = |high, low| u16::from_be_bytes([high, low]);
            format!("{}/48", Ipv6Addr::new(part(a, b), part(c, d), part(e, f), 0, 0, 0, 0, 0))
        }
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_show_how_they_begin() {
        assert_eq!(mask(&EventSubject::Login("alice")), "al…");
        assert_eq!(mask(&EventSubject::Login("adam")), "a…");
        assert_eq!(mask(&EventSubject::Account { id: &[0; 16], login: "caroline" }), "ca…");
        assert_eq!(mask(&EventSubject::Login("张三")), "张…");
        assert_eq!(mask(&EventSubject::Login("")), "…");
    }

    #[test]
    fn nothing_in_a_mask_is_unseen_or_turns_a_line_around() {
        for unseen in ["\0", "\u{202e}", "\u{2066}", "\u{200b}", "\u{feff}", "\u{1b}", "\n", "\u{85}"] {
            assert_eq!(mask(&EventSubject::Custom(&format!("{unseen}{unseen}alice"))), "\u{fffd}\u{fffd}…");
        }
    }

    #[test]
    fn addresses_show_their_network() {
        assert_eq!(mask(&EventSubject::Address(&[4, 203, 0, 113, 77])), "203.0.113.0/24");
        assert_eq!(mask(&EventSubject::Network(&[4, 203, 0, 113])), "203.0.113.0/24");
        assert_eq!(mask(&EventSubject::Address(&[6, 0x20, 1, 0xd, 0xb8, 0, 0x42, 7, 7])), "2001:db8:42::/48");
        assert_eq!(mask(&EventSubject::Address(&[])), "?");
    }

    #[test]
    fn numbers_show_their_block() {
        assert_eq!(mask(&EventSubject::Phone("+8613800138000")), "+861380013****");
        assert_eq!(mask(&EventSubject::Prefix("+861380013")), "+861380013****");
        assert_eq!(mask(&EventSubject::Phone("+1")), "****");
    }
}
