//! An e-mail address that is accepted is its own canonical form, is one address for those who send to it and begins no
//! other line of a message; whatever spelling of a mailbox is counted, the count has none of its own; and a mask shows
//! one letter of its owner. Input: what somebody typed.
#![no_main]

use gatehouse::mail::Mailbox;
use lettre::Address;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(mailbox) = Mailbox::parse(text) else { return };
    let kept = mailbox.as_str();
    assert_eq!(Mailbox::parse(kept).as_ref().map(Mailbox::as_str), Ok(kept), "{text:?}");
    let (local, domain) = kept.split_once('@').expect("an @");
    assert!(kept.len() <= 254 && local.len() <= 64 && !domain.contains('@'), "{text:?}");
    assert!(!kept.contains(|letter: char| letter.is_control() || letter.is_whitespace()), "{text:?}");
    assert!(!kept.contains(['"', '<', '>', '(', ')', '\\', ',', ';', ':', '[', ']']), "{text:?}");
    let host = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-.".contains(&letter);
    assert!(domain.bytes().all(host), "{text:?}: {domain}");
    let sent_to: Address = kept.parse().expect("mails can be sent to it");
    assert_eq!((sent_to.user(), sent_to.domain()), (local, domain), "{text:?}");

    // Another spelling of the local part's ASCII letters, and another tag, are the same mailbox.
    let counted = mailbox.counted().to_owned();
    for other in [kept.to_ascii_uppercase(), format!("{}+x@{domain}", local.split('+').next().unwrap_or(local))] {
        if let Ok(other) = Mailbox::parse(&other)
            && !local.starts_with('+')
        {
            assert_eq!(other.counted(), counted, "{text:?}");
        }
    }
    // It may be no address: a tag may be all that follows a dot.
    if let Ok(again) = Mailbox::parse(&counted) {
        assert_eq!(again.counted(), counted, "{text:?}");
    }

    let masked = mailbox.masked();
    let shown = masked.strip_suffix(domain).and_then(|rest| rest.strip_suffix("***@")).expect("a mask");
    assert!(shown.chars().count() == 1 && local.starts_with(shown), "{masked}");
});
