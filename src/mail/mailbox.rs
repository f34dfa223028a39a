//! A mailbox that can receive messages: an e-mail address, parsed, the same in every spelling, and safe to print.

use std::borrow::Cow;
use std::fmt;

use icu_properties::CodePointMapData;
use icu_properties::props::GeneralCategory;
use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46, verify_dns_length};
use lettre::Address;

use crate::unseen::{is_shaper, is_unseen};

/// In bytes: no mail server takes a longer address (RFC 5321, 4.5.3.1.3, without the brackets).
const LONGEST: usize = 254;
/// In bytes, of what stands before the @ (RFC 5321, 4.5.3.1.1).
const LONGEST_LOCAL: usize = 64;
/// In bytes before the domain is mapped: full-width letters take a third of theirs in ASCII, but what is longer is no
/// address that anybody has.
const MOST_TYPED: usize = 1024;

/// An e-mail address as somebody typed it, without spaces around it. Its domain is in ASCII and in lower case (UTS 46), so
/// that every spelling of a domain is the same bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Mailbox {
    address: Address,
    counted: String,
}

/// Why a text is not an address that a message can be sent to. Said of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MailboxError {
    /// Nothing was typed.
    #[error("is missing")]
    Missing,
    /// It does not have the form of one address, or hides something.
    #[error("is not one e-mail address, such as ada@example.org")]
    Malformed,
    /// No mail server takes a text of this length for an address.
    #[error(
        "is too long: an e-mail address has at most {LONGEST_LOCAL} bytes before the @ and {LONGEST} in all"
    )]
    TooLong,
    /// What stands after the @ is no domain name on the Internet.
    #[error("has no domain name after the @, such as example.org")]
    Domain,
}

impl Mailbox {
    /// Parses what people type and paste. Quoted names, comments, display names and numeric addresses of hosts, which mail
    /// has as well, are refused: nobody's mailbox needs them.
    pub fn parse(text: &str) -> Result<Self, MailboxError> {
        if text.len() > MOST_TYPED {
            return Err(MailboxError::TooLong);
        }
        // An end of a line is nothing that people type into a field, and begins another header in a message.
        let text = text.trim_matches(|letter: char| letter.is_whitespace() && !is_unseen(letter));
        if text.is_empty() {
            return Err(MailboxError::Missing);
        }
        let (local, domain) = text.split_once('@').ok_or(MailboxError::Malformed)?;
        if domain.is_empty() || domain.contains(AT) || !is_plain(local) {
            return Err(MailboxError::Malformed);
        }
        if text.contains(|letter| is_blank(letter) || FRAMES.contains(&letter)) {
            return Err(MailboxError::Malformed);
        }
        if local.len() > LONGEST_LOCAL {
            return Err(MailboxError::TooLong);
        }
        let domain = in_ascii(domain)?;
        if local.len() + 1 + domain.len() > LONGEST {
            return Err(MailboxError::TooLong);
        }
        if !is_on_the_internet(&domain) {
            return Err(MailboxError::Domain);
        }
        let address = Address::new(local, domain).map_err(|_| MailboxError::Malformed)?;
        Ok(Self { counted: counted(&address), address })
    }

    /// The address to send to.
    pub fn as_str(&self) -> &str {
        self.address.as_ref()
    }

    /// The domain in ASCII.
    pub fn domain(&self) -> &str {
        self.address.domain()
    }

    /// What limits count, and what accounts are found by: the same for the spellings that commonly reach one mailbox. It is
    /// a key and no address. A server may still keep two of the spellings apart, for two owners: whatever opens an account
    /// is sent to the address that the account has, and never to the one that was just typed.
    pub fn counted(&self) -> &str {
        &self.counted
    }

    /// For display: `a***@example.org`. A domain that only looks like another one shows itself as `xn--…`.
    pub fn masked(&self) -> String {
        let first = self.address.user().chars().take(1);
        first.chain("***@".chars()).chain(self.domain().chars()).collect()
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Mailbox({})", self.masked())
    }
}

fn counted(address: &Address) -> String {
    // ASCII letters alone: by Unicode's rules a Kelvin sign would be a k, and its owner somebody else.
    let local = address.user().to_ascii_lowercase();
    let untagged = match local.find('+') {
        Some(tag @ 1..) => &local[..tag],
        Some(0) | None => &local,
    };
    match address.domain() {
        // Two names of one service, which does not see dots.
        "gmail.com" | "googlemail.com" => format!("{}@gmail.com", untagged.replace('.', "")),
        domain => format!("{untagged}@{domain}"),
    }
}

/// What people take for an @.
const AT: [char; 3] = ['@', '＠', '﹫'];
/// What a header puts around names, addresses and comments.
const FRAMES: [char; 5] = ['"', '<', '>', '(', ')'];

fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || is_unseen(letter)
}

/// What makes a route of an address: a server that knows `example.org` as its own may hand `ada%gmail.com@example.org` and
/// `gmail.com!ada@example.org` on to Ada's mailbox, of which there would be spellings without end.
const ROUTES: [char; 2] = ['%', '!'];

/// Whether the text before the @ shows all of itself, names no other server, and is taken by none for an encoded word
/// (RFC 2047). The rest of its form is the parser's to check.
fn is_plain(local: &str) -> bool {
    let is_format =
        |letter| CodePointMapData::<GeneralCategory>::new().get(letter) == GeneralCategory::Format;
    let hides = |letter| is_shaper(letter) || is_format(letter);
    !local.contains(hides) && !local.contains(AT) && !local.contains(ROUTES) && !local.contains("=?")
}

/// The domain by UTS 46, non-transitional, with the rules of STD 3. Its length is left to be checked.
fn in_ascii(domain: &str) -> Result<Cow<'_, str>, MailboxError> {
    Uts46::new()
        .to_ascii(domain.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Ignore)
        .map_err(|_| MailboxError::Domain)
}

/// Whether the name could be registered: labels of 1 to 63 bytes, two at least. No top-level domain begins with a digit,
/// and every IP address ends in a number, be it a hexadecimal one.
fn is_on_the_internet(domain: &str) -> bool {
    let top = domain.rsplit_once('.').map(|(_, top)| top);
    verify_dns_length(domain, false)
        && top.is_some_and(|top| top.starts_with(|it: char| it.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox(text: &str) -> Mailbox {
        Mailbox::parse(text).unwrap_or_else(|error| panic!("{text:?} {error}"))
    }

    fn counted(text: &str) -> String {
        mailbox(text).counted
    }

    fn refusal(text: &str) -> Option<MailboxError> {
        Mailbox::parse(text).err()
    }

    fn all_are(refused: MailboxError, texts: &[&str]) {
        for text in texts {
            assert_eq!(refusal(text), Some(refused), "{text:?}");
        }
    }

    #[test]
    fn an_address_is_kept_as_it_was_typed_and_its_domain_in_ascii() {
        for (typed, kept) in [
            ("ada@example.org", "ada@example.org"),
            (" \u{3000}Ada.Lovelace+News@Example.ORG\u{a0} ", "Ada.Lovelace+News@example.org"),
            ("o'brien{|}~#$&*/?=^_`-@x-1.example", "o'brien{|}~#$&*/?=^_`-@x-1.example"),
            ("用户@例子.广告", "用户@xn--fsqu00a.xn--4rr70v"),
            ("josé@exämple.org", "josé@xn--exmple-cua.org"),
            ("jose\u{301}@example.org", "jose\u{301}@example.org"),
            ("1@163.com", "1@163.com"),
            ("a@ab--c.d-e.co", "a@ab--c.d-e.co"),
            ("a@XN--FSQU00A.XN--4RR70V", "a@xn--fsqu00a.xn--4rr70v"),
            ("a@نامه\u{200c}ای.com", "a@xn--mgba3gch31f060k.com"),
        ] {
            let parsed = Mailbox::parse(typed);
            assert_eq!(parsed.as_ref().map(Mailbox::as_str), Ok(kept), "{typed:?}");
            assert_eq!(kept.split_once('@').unwrap().1, mailbox(typed).domain());
            assert_eq!(parsed, Mailbox::parse(kept), "what was parsed is parsed to itself");
        }
    }

    #[test]
    fn eight_spellings_of_one_mailbox_count_as_one() {
        for text in [
            "adalovelace@gmail.com",
            "Ada.Lovelace@gmail.com",
            "a.d.a.l.o.v.e.l.a.c.e@GMAIL.com",
            "adalovelace+news@gmail.com",
            "ADALOVELACE+a+b.c@googlemail.com",
            "ada.lovelace@GoogleMail.Com",
            " adalovelace+@gmail.com ",
            "AdaLovelace.+x@ｇｍａｉｌ。com",
        ] {
            assert_eq!(counted(text), "adalovelace@gmail.com", "{text}");
        }
        for text in ["ada@example.org", "ADA@EXAMPLE.ORG", "ada+x@example.org", "Ada+@example.org"] {
            assert_eq!(counted(text), "ada@example.org", "{text}");
        }
    }

    #[test]
    fn dots_count_except_where_they_do_not() {
        assert_eq!(counted("a.d.a@example.org"), "a.d.a@example.org");
        assert_eq!(counted("a.d.a@mail.gmail.com"), "a.d.a@mail.gmail.com");
        assert_eq!(counted("a.d.a@gmail.com.example"), "a.d.a@gmail.com.example");
        assert_eq!(counted("a.d.a@notgmail.com"), "a.d.a@notgmail.com");
        // Something is left without the dots, for no name is made of them.
        all_are(MailboxError::Malformed, &[".@gmail.com", "...@gmail.com", ".+x@gmail.com"]);
        assert_eq!(counted("+.x@gmail.com"), "+x@gmail.com");
    }

    #[test]
    fn a_name_that_begins_with_a_plus_has_no_tag() {
        assert_eq!(counted("+x@example.org"), "+x@example.org");
        assert_eq!(counted("+X+y@example.org"), "+x+y@example.org");
        assert_eq!(counted("+@example.org"), "+@example.org");
        assert_eq!(counted("a＋x@example.org"), "a＋x@example.org", "a full-width plus is another character");
    }

    #[test]
    fn a_kelvin_sign_is_no_k() {
        assert_eq!(counted("\u{212a}ate@example.org"), "\u{212a}ate@example.org");
        assert_ne!(counted("\u{212a}ate@example.org"), counted("kate@example.org"));
        assert_ne!(mailbox("\u{212a}ate@example.org"), mailbox("Kate@example.org"));
    }

    #[test]
    fn no_look_alike_counts_as_the_mailbox_of_somebody_else() {
        let hers = ["kate.miller@gmail.com", "info@paypal.com", "strasse@fass.example"].map(counted);
        for text in [
            "\u{212a}ate.miller@gmail.com",
            "kate.m\u{131}ller@gmail.com",
            "KATE.M\u{130}LLER@gmail.com",
            "ｋａｔｅ.miller@gmail.com",
            "kate．miller@gmail.com",
            "k\u{430}te.miller@gmail.com",
            "kate.miller@gma\u{131}l.com",
            "kate.miller@gm\u{430}il.com",
            "k\u{301}ate.miller@gmail.com",
            "\u{131}nfo@paypal.com",
            "info@p\u{430}ypal.com",
            "info@\u{440}\u{430}\u{443}\u{440}\u{430}l.com",
            "info@paypaI.com",
            "ſtrasse@fass.example",
            "strasse@faß.example",
        ] {
            assert!(!hers.contains(&counted(text)), "{text}");
        }
        assert_eq!(mailbox("a@p\u{430}ypal.com").masked(), "a***@xn--pypal-4ve.com", "it shows itself");
        assert_eq!(mailbox("a@faß.example").domain(), "xn--fa-hia.example", "non-transitional");
    }

    #[test]
    fn a_domain_is_the_same_in_every_spelling() {
        for text in [
            "ada@example.org",
            "ada@EXAMPLE.ORG",
            "ada@ｅｘａｍｐｌｅ.ｏｒｇ",
            "ada@example。org",
            "ada@example．org",
            "ada@example｡org",
            "ada@ⓔxample.org",
        ] {
            assert_eq!(mailbox(text), mailbox("ada@example.org"), "{text}");
        }
        assert_eq!(mailbox("a@\u{212a}iel.example").domain(), "kiel.example", "as every browser finds it");
        assert_eq!(mailbox("a@exa\u{308}mple.org"), mailbox("a@ex\u{e4}mple.org"));
    }

    #[test]
    fn nothing_typed_is_missing() {
        all_are(MailboxError::Missing, &["", " ", "\u{3000}\u{a0}"]);
    }

    #[test]
    fn what_is_not_one_address_is_refused() {
        let texts = [
            "@",
            "ada",
            "ada@",
            "@example.org",
            "ada@@example.org",
            "ada@eve@example.org",
            "ada@example.org@example.org",
            "ada@example.org,eve@example.org",
            "ada@example.org eve@example.org",
            "ada＠example.org",
            "ada＠example.org@example.com",
            "ada﹫example.org@example.com",
            "ada@example.org＠example.com",
            "Ann <a@b.co>",
            "<a@b.co>",
            "Ann<a@b.co>",
            "a@b.co (Ann)",
            "(Ann)a@b.co",
            "a@b.co(Ann)",
            "a@b.co>",
            "a@\"b.co\"",
            "a(Ann)@b.co",
            "mailto:a@b.co",
            "ada%gmail.com@example.org",
            "ada%gmail.com%example.net@example.org",
            "gmail.com!ada@example.org",
            "\"ada\"@example.org",
            "\"a b\"@example.org",
            "\"\"@example.org",
            "\"@example.org",
            "ada\"@example.org",
            "\"a@b\"@example.org",
            "a\\@b@example.org",
            "a\\b@example.org",
            ".ada@example.org",
            "ada.@example.org",
            "a..b@example.org",
            "a b@example.org",
            "ada @example.org",
            "ada@ example.org",
            "a;b@example.org",
            "a,b@example.org",
            "a:b@example.org",
            "a[b@example.org",
            "=?utf-8?q?x?=@example.org",
            "x=?utf-8?q?x?=@example.org",
        ];
        all_are(MailboxError::Malformed, &texts);
    }

    #[test]
    fn what_is_no_domain_name_on_the_internet_is_refused() {
        let texts = [
            "ada@[1.2.3.4]",
            "ada@[IPv6:::1]",
            "ada@1.2.3.4",
            "ada@１.２.３.４",
            "ada@127.1",
            "ada@0x7f.0x1",
            "ada@example.42",
            "ada@::1",
            "ada@localhost",
            "ada@org",
            "ada@.org",
            "ada@.",
            "ada@example.",
            "ada@example.org.",
            "ada@example.org。",
            "ada@example..org",
            "ada@example。.org",
            "ada@-example.org",
            "ada@example-.org",
            "ada@example.-org",
            "ada@exa_mple.org",
            "ada@example.org:25",
            "ada@example.org/x",
            "ada@exam%70le.org",
            "ada@xn--.org",
            "ada@xn--example-.org",
            "ada@xn--a.org",
            "ada@xn--\u{e4}.org",
            "ada@example\u{2488}org",
            "ada@ex\u{2100}mple.org",
            "ada@\u{301}example.org",
            "ada@example\u{200d}.org",
            "ada@א1a.example",
        ];
        all_are(MailboxError::Domain, &texts);
    }

    #[test]
    fn no_end_of_a_line_and_no_control_stands_anywhere() {
        let address = "ada@example.org";
        for unseen in ['\r', '\n', '\0', '\t', '\u{b}', '\u{1b}', '\u{7f}', '\u{85}', '\u{2028}', '\u{2029}']
        {
            for at in 0..=address.len() {
                for twice in
                    [format!("{unseen}"), format!("{unseen} "), format!("\r\n{unseen}"), format!(" {unseen}")]
                {
                    let mut text = address.to_owned();
                    text.insert_str(at, &twice);
                    assert_eq!(refusal(&text), Some(MailboxError::Malformed), "{text:?}");
                }
            }
        }
        all_are(
            MailboxError::Malformed,
            &["ada@example.org\r\nBcc: eve@example.org", "ada@example.org\r\n", "\n", "\0"],
        );
    }

    #[test]
    fn nothing_hides_before_the_at() {
        for letter in [
            '\u{ad}',
            '\u{200b}',
            '\u{200e}',
            '\u{202e}',
            '\u{2066}',
            '\u{feff}',
            '\u{3164}',
            '\u{e0041}',
            '\u{fffe}',
        ] {
            for text in [
                format!("a{letter}da@example.org"),
                format!("ada@exa{letter}mple.org"),
                format!("{letter}@b.co"),
            ] {
                assert_eq!(refusal(&text), Some(MailboxError::Malformed), "{text:?}");
            }
        }
        for letter in [
            '\u{200c}', '\u{200d}', '\u{fe0f}', '\u{180b}', '\u{600}', '\u{a0}', '\u{2003}', '\u{3000}',
            '\u{1680}',
        ] {
            assert_eq!(
                refusal(&format!("a{letter}da@example.org")),
                Some(MailboxError::Malformed),
                "{letter:?}"
            );
        }
    }

    #[test]
    fn lengths_are_those_of_what_is_sent() {
        let local = |bytes: usize| format!("{}@example.org", "a".repeat(bytes));
        assert_eq!(mailbox(&local(64)).as_str(), local(64));
        assert_eq!(refusal(&local(65)), Some(MailboxError::TooLong));
        let han = |letters: usize, more: &str| format!("{}{more}@example.org", "明".repeat(letters));
        assert_eq!(mailbox(&han(21, "a")).as_str().len(), 64 + 12);
        assert_eq!(refusal(&han(21, "ab")), Some(MailboxError::TooLong), "65 bytes, 23 letters");

        let label = |bytes: usize| format!("a@{}.org", "b".repeat(bytes));
        assert!(refusal(&label(63)).is_none());
        assert_eq!(refusal(&label(64)), Some(MailboxError::Domain));

        let whole = |bytes: usize| {
            let end = format!("@{}.{}.example", "b".repeat(63), "c".repeat(63));
            format!("{}@{}.{}", "a".repeat(60), "d".repeat(bytes - 60 - 1 - end.len()), &end[1..])
        };
        assert_eq!((whole(254).len(), refusal(&whole(254))), (254, None));
        assert_eq!((whole(255).len(), refusal(&whole(255))), (255, Some(MailboxError::TooLong)));

        // What is typed may be longer than what is sent, and the other way around.
        let wide = format!("{}@{}.org", "a".repeat(60), vec!["ｂ".repeat(59); 3].join("."));
        assert!(wide.len() > 500 && mailbox(&wide).as_str().len() <= 254);
        let grows = format!("{}@{}org", "a".repeat(60), "明.".repeat(25));
        assert!(grows.len() < 254 && refusal(&grows) == Some(MailboxError::TooLong));

        assert_eq!(refusal(&format!("a@{}.org", "b.".repeat(130))), Some(MailboxError::TooLong));
        assert_eq!(refusal(&"a".repeat(10_000_000)), Some(MailboxError::TooLong));
        assert_eq!(refusal(&" ".repeat(10_000_000)), Some(MailboxError::TooLong));
    }

    #[test]
    fn a_mask_shows_the_first_letter_and_the_domain() {
        assert_eq!(mailbox("Ada.Lovelace@Example.org").masked(), "A***@example.org");
        assert_eq!(mailbox("a@example.org").masked(), "a***@example.org", "nor how long the name is");
        assert_eq!(mailbox("明明@例子.广告").masked(), "明***@xn--fsqu00a.xn--4rr70v");
    }

    #[test]
    fn debug_output_never_shows_the_whole_address() {
        for text in ["ada@example.org", "a@example.org", "用户@例子.广告", "a+tag@gmail.com"] {
            let shown = format!("{:?} {:#?}", mailbox(text), Some(mailbox(text)));
            let (local, _) = text.split_once('@').unwrap();
            assert!(!shown.contains(text) && !shown.contains(mailbox(text).as_str()), "{shown}");
            assert!(!shown.contains(&format!("{local}@")) && !shown.contains("tag"), "{shown}");
        }
        assert_eq!(format!("{:?}", mailbox("ada@example.org")), "Mailbox(a***@example.org)");
    }

    #[test]
    fn only_other_letters_before_the_at_need_smtputf8() {
        assert!(mailbox("ada@例子.广告").as_str().is_ascii());
    }

    #[test]
    fn an_error_says_what_is_wrong_with_the_field() {
        assert_eq!(MailboxError::Missing.to_string(), "is missing");
        assert!(MailboxError::TooLong.to_string().contains("64 bytes before the @ and 254 in all"));
    }

    #[test]
    fn odd_texts_are_parsed_or_refused_and_nothing_panics() {
        const SEEDS: [&str; 6] = [
            "ada@example.org",
            "A.b+c@GoogleMail.com",
            "用户@例子.广告",
            "a@xn--fsqu00a.xn--4rr70v",
            "\"a b\"@[127.0.0.1]",
            "Ann <a@b.co>",
        ];
        const ODD: [&str; 24] = [
            "", "@", ".", "+", "-", "\"", "<", "[", "\\", "=?", "xn--", "\0", "\r\n", " ", "\u{200d}",
            "\u{301}", "\u{202e}", "\u{212a}", "＠", "。", "ß", "א", "\u{fdd0}", "😀",
        ];
        for seed in SEEDS {
            let letters: Vec<char> = seed.chars().collect();
            for (at, odd, more) in (0..=letters.len()).flat_map(|at| {
                ODD.into_iter()
                    .flat_map(move |odd| ODD.into_iter().step_by(5).map(move |more| (at, odd, more)))
            }) {
                let before: String = letters[..at].iter().collect();
                for taken in 0..=2.min(letters.len() - at) {
                    let after: String = letters[at + taken..].iter().collect();
                    let text = format!("{before}{odd}{after}{more}");
                    let Ok(parsed) = Mailbox::parse(&text) else { continue };
                    let (local, domain) = parsed.as_str().split_once('@').unwrap();
                    assert!(
                        text.contains(local) && !domain.contains('@') && domain == parsed.domain(),
                        "{text:?}"
                    );
                    assert!(domain.is_ascii() && domain.contains('.') && parsed.as_str().len() <= LONGEST);
                    assert!(!parsed.as_str().contains(is_blank), "{text:?}");
                    assert_eq!(Mailbox::parse(parsed.as_str()).as_ref(), Ok(&parsed), "{text:?}");
                    assert!(parsed.counted().len() <= parsed.as_str().len() && !parsed.masked().is_empty());
                    assert!(!format!("{parsed:?}").contains(parsed.as_str()), "{text:?}");
                }
            }
        }
    }
}
