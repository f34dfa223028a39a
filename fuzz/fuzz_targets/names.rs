//! A username that is accepted is its own canonical form, so that one person has one subject; and it cannot break a line
//! or pass for markup.
#![no_main]

use gatehouse::accounts::Username;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(name) = Username::parse(text) {
        let again = Username::parse(name.as_str());
        assert_eq!(again.as_ref().map(Username::as_str), Ok(name.as_str()), "{text:?}");
        let odd = |letter: char| letter.is_control() || letter.is_whitespace() || letter.is_uppercase();
        assert!(!name.as_str().is_empty() && !name.as_str().contains(odd), "{text:?}");
    }
});
