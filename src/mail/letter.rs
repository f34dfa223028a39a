//! The letters: subject, text and HTML of every e-mail that we send.
//!
//! A letter holds our words, the site's name, and what its facts say; nothing that a person typed. Its link opens a page
//! and does nothing else: what a letter can do, its code does, on that page.

use std::borrow::Cow;

use askama::Template;
use rust_i18n::t;
use strum::{EnumString, IntoStaticStr, VariantArray};
use zeroize::{Zeroize, ZeroizeOnDrop};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum LetterKind {
    /// Proves that an address is its owner's.
    ConfirmCode,
    RegisterCode,
    ResetCode,
    /// A sign-in from a browser that is not known at the account.
    NewDevice,
    PasswordChanged,
    /// The account has another number, or its first one.
    PhoneChanged,
    PhoneRemoved,
    /// To the old address, with a code that freezes the account.
    AddressChanged,
    /// To the address that was removed; also with a code that freezes the account, if it is given one.
    AddressRemoved,
    /// To the new address.
    AddressSet,
    FactorAdded,
    FactorRemoved,
    Frozen,
}

impl LetterKind {
    /// Asks for nothing but that its code is entered.
    pub const fn is_code(self) -> bool {
        matches!(self, Self::ConfirmCode | Self::RegisterCode | Self::ResetCode)
    }

    const fn can_freeze(self) -> bool {
        matches!(self, Self::AddressChanged | Self::AddressRemoved)
    }

    fn word(self, part: &str, locale: &str, brand: &str) -> String {
        let kind: &str = self.into_str();
        closed(&t!(format!("mail.{kind}.{part}"), locale = locale, brand = brand))
    }
}

/// What a letter is about. Not `Debug`: no log line contains a code.
#[derive(Clone, Copy)]
pub struct LetterFacts<'a> {
    pub kind: LetterKind,
    pub locale: &'a str,
    /// The name of the site.
    pub brand: &'a str,
    /// The page to open: absolute, without anything secret.
    pub link: &'a str,
    /// To be entered on that page. Letters that do not ask for a code leave it out.
    pub code: Option<&'a str>,
    /// How long a code that was asked for is valid. The days of one that freezes are in the words.
    pub minutes: Option<u64>,
    /// The time in words: `2026-11-29 14:05 UTC`.
    pub at: Option<&'a str>,
    /// Masked.
    pub network: Option<&'a str>,
    /// How many notices this one stands for.
    pub times: u32,
    /// Where people find help: an `https:`, `mailto:` or `tel:` URL.
    pub support: Option<&'a str>,
}

/// A letter as it is sent; as secret as its code, and wiped when dropped.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Letter {
    pub subject: String,
    pub text: String,
    pub html: String,
    /// Which is in the text, too.
    pub code: Option<String>,
}

/// A paragraph.
enum Block {
    Words(String),
    Code(String),
    /// A line each.
    Facts(Vec<String>),
    /// On a line of its own: what follows a URL within a sentence may be taken for a part of it.
    Link(String),
}

struct Support {
    href: String,
    /// Without the scheme, if it is an address or a number.
    shown: String,
}

/// What both templates say.
struct Content<'a> {
    locale: &'a str,
    brand: Cow<'a, str>,
    subject: String,
    /// The subject without the name of the site.
    title: String,
    blocks: Vec<Block>,
    help: String,
    /// Between a label and what it is for: Chinese punctuation has its room in itself.
    gap: &'static str,
    support: Option<Support>,
}

#[derive(Template)]
#[template(path = "letters/mail.txt", escape = "none", whitespace = "preserve")]
struct MailText<'a> {
    letter: &'a Content<'a>,
}

#[derive(Template)]
#[template(path = "letters/mail.html")]
struct MailHtml<'a> {
    letter: &'a Content<'a>,
}

pub fn letter(facts: &LetterFacts<'_>) -> Letter {
    let content = content(facts);
    // Rendering into a string fails only if a template calls something that can fail.
    let text = MailText { letter: &content }.render().unwrap_or_default();
    let html = MailHtml { letter: &content }.render().unwrap_or_default();
    let html = html.lines().filter(|line| !line.trim().is_empty());
    let code = facts.code.map(str::to_owned);
    Letter { subject: content.subject, text: tidy(text.trim().lines()), html: tidy(html), code }
}

fn content<'a>(facts: &LetterFacts<'a>) -> Content<'a> {
    let LetterFacts { kind, locale, .. } = *facts;
    let brand = plain(facts.brand);
    let word = |part| kind.word(part, locale, &brand);
    let said = |words: Cow<'_, str>| Block::Words(words.into_owned());

    let mut lead = word("lead");
    if facts.times > 1 {
        lead.push_str(gap_after(&lead));
        lead.push_str(&t!("mail.letter.times", locale = locale, times = facts.times));
    }
    let mut blocks = vec![Block::Words(lead)];
    let at = facts.at.map(|at| t!("mail.letter.at", locale = locale, at = plain(at)).into_owned());
    let network = facts
        .network
        .map(|network| t!("mail.letter.network", locale = locale, network = plain(network)).into_owned());
    let about: Vec<String> = at.into_iter().chain(network).collect();
    if !about.is_empty() && !kind.is_code() {
        blocks.push(Block::Facts(about));
    }
    let link = Block::Link(plain(facts.link).into_owned());
    match facts.code.map(|code| Block::Code(plain(code).into_owned())) {
        code if kind.is_code() => {
            let mut enter = facts.minutes.map(|minutes| valid(minutes, locale)).unwrap_or_default();
            enter.push_str(gap_after(&enter));
            enter.push_str(&t!("mail.letter.enter", locale = locale));
            let ignore = said(t!("mail.letter.ignore", locale = locale));
            blocks.extend(code.into_iter().chain([Block::Words(enter), link, ignore]));
        }
        Some(code) if kind.can_freeze() => {
            let then = Block::Words(word("then"));
            blocks.extend([said(t!("mail.letter.freeze", locale = locale)), code, link, then]);
        }
        _ => blocks.extend([Block::Words(word("then")), link]),
    }
    let help = t!("mail.letter.support", locale = locale).into_owned();
    Content {
        locale,
        subject: subject(kind, locale, &brand),
        title: word("subject"),
        blocks,
        gap: gap_after(&help),
        help,
        support: facts.support.map(support),
        brand,
    }
}

/// RFC 5322, 2.1.1: a line should be at most 78 characters.
const LONGEST_LINE: usize = 78;

/// With as much of the name as there is room for.
fn subject(kind: LetterKind, locale: &str, brand: &str) -> String {
    let with = |brand: &str| {
        let title = kind.word("subject", locale, brand);
        t!("mail.letter.subject", locale = locale, brand = brand, subject = title).into_owned()
    };
    let (whole, letters) = (with(brand), brand.chars().count());
    match whole.chars().count().saturating_sub(LONGEST_LINE) {
        0 => whole,
        over => with(&brand.chars().take(letters.saturating_sub(over + 1)).chain(['…']).collect::<String>()),
    }
}

fn valid(minutes: u64, locale: &str) -> String {
    let key = if minutes == 1 { "span.minute" } else { "span.minutes" };
    let span = t!(key, locale = locale, count = minutes);
    t!("mail.letter.valid", locale = locale, span = span).into_owned()
}

fn support(url: &str) -> Support {
    let href = plain(url).into_owned();
    let bare = href.strip_prefix("mailto:").or_else(|| href.strip_prefix("tel:"));
    let shown = bare.map_or(href.as_str(), |bare| bare.split('?').next().unwrap_or(bare)).to_owned();
    Support { href, shown }
}

/// Without what could end a line of a header or of the text, or end a string.
fn plain(text: &str) -> Cow<'_, str> {
    let breaks = |letter: char| letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}');
    if text.contains(breaks) { Cow::Owned(text.replace(breaks, "")) } else { Cow::Borrowed(text) }
}

/// What stands between this and the words after it.
fn gap_after(words: &str) -> &'static str {
    if words.ends_with(|last: char| last.is_ascii()) { " " } else { "" }
}

/// Without spaces between two Chinese letters: there is one on each side of a name, for names in Latin letters.
fn closed(words: &str) -> String {
    let chinese = |letter: Option<char>| letter.is_some_and(|letter| ('\u{2e80}'..).contains(&letter));
    let mut out = String::with_capacity(words.len());
    let mut rest = words.chars();
    while let Some(letter) = rest.next() {
        if letter != ' ' || !chinese(out.chars().next_back()) || !chinese(rest.clone().next()) {
            out.push(letter);
        }
    }
    out
}

/// Lines of at most 78 characters, unless a word is longer. Broken at spaces, and after what ends a Chinese sentence or
/// clause.
fn wrapped(words: &str) -> String {
    let (mut out, mut line) = (String::with_capacity(words.len() + 8), String::new());
    for word in words.split_inclusive([' ', '。', '，', '；', '：']) {
        let length = line.chars().count() + word.trim_end().chars().count();
        if length > LONGEST_LINE && !line.is_empty() {
            out.push_str(line.trim_end());
            out.push('\n');
            line.clear();
        }
        line.push_str(word);
    }
    out + line.trim_end()
}

/// Without blanks at the ends of lines.
fn tidy<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.flat_map(|line| [line.trim_end(), "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    const LINK: &str = "https://id.example/account/address?lang=en&from=letter";
    const SUPPORT: &str = "https://help.example/contact";
    const LOCALES: [&str; 2] = ["en", "zh-CN"];
    /// The longest name that `[brand]` takes.
    const LONGEST: &str = "Aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn facts(kind: LetterKind, locale: &'static str) -> LetterFacts<'static> {
        let code = if kind.is_code() { Some("493027") } else { Some("K7QF-2MXN-9TBD-4HWA") };
        LetterFacts {
            kind,
            locale,
            brand: "Gatehouse",
            link: LINK,
            code: code.filter(|_| kind.is_code() || kind.can_freeze()),
            minutes: Some(10),
            at: Some("2026-11-29 14:05 UTC"),
            network: Some("203.0.113.*"),
            times: 1,
            support: Some(SUPPORT),
        }
    }

    fn each(check: impl Fn(LetterFacts<'static>)) {
        for locale in LOCALES {
            LetterKind::VARIANTS.iter().for_each(|kind| check(facts(*kind, locale)));
        }
    }

    /// What a reader sees of the HTML, one line for each of its own.
    fn shown(html: &str) -> String {
        let body = html.split_once("<body").unwrap().1.split_once('>').unwrap().1;
        let mut out = String::new();
        for (at, piece) in body.split('<').enumerate() {
            let (tag, text) = if at == 0 { ("", piece) } else { piece.split_once('>').unwrap() };
            if ["p ", "h1", "br"].iter().any(|it| tag.starts_with(it)) {
                out.push('\n');
            }
            out.push_str(text.trim_matches('\n'));
        }
        out.replace("&#38;", "&")
    }

    #[test]
    fn every_letter_is_complete_in_each_language() {
        each(|facts| {
            let whole = letter(&facts);
            let kind: &str = facts.kind.into_str();
            for part in [&whole.subject, &whole.text, &whole.html] {
                assert!(!part.trim().is_empty(), "{kind}");
                for mark in ["%{", "mail.", "span.", "{{", "{%"] {
                    assert!(!part.contains(mark), "{kind} has {mark}: {part}");
                }
                assert!(part.contains("Gatehouse"), "{kind}");
            }
            assert!(whole.html.contains(&format!("<title>{}</title>", whole.subject)), "{kind}");
            assert!(whole.html.contains(&format!("<html lang=\"{}\">", facts.locale)), "{kind}");
            let chinese = |text: &str| text.contains(|letter| ('\u{4e00}'..='\u{9fff}').contains(&letter));
            for part in [&whole.subject, &whole.text, &whole.html] {
                assert_eq!(chinese(part), facts.locale == "zh-CN", "{kind}: {part}");
            }
        });
    }

    #[test]
    fn no_two_kinds_read_alike() {
        for locale in LOCALES {
            let all = LetterKind::VARIANTS.iter().map(|kind| letter(&facts(*kind, locale)));
            let (subjects, texts): (std::collections::BTreeSet<_>, std::collections::BTreeSet<_>) =
                all.map(|letter| (letter.subject.clone(), letter.text.clone())).unzip();
            assert_eq!(subjects.len(), LetterKind::VARIANTS.len());
            assert_eq!(texts.len(), LetterKind::VARIANTS.len());
        }
    }

    #[test]
    fn a_kind_is_known_by_its_name() {
        for kind in LetterKind::VARIANTS {
            assert_eq!(LetterKind::from_str(kind.into_str()), Ok(*kind));
        }
        assert_eq!(LetterKind::AddressChanged.into_str(), "address-changed");
    }

    #[test]
    fn a_subject_is_one_short_line_without_the_code() {
        let long = "a".repeat(100);
        let names =
            ["Gatehouse", "Gate\r\nBcc: x@y.example\0", "\u{85}\u{2028}门\u{7f}", LONGEST, long.as_str()];
        each(|facts| {
            for brand in names {
                let whole = letter(&LetterFacts { brand, ..facts });
                assert!((1..=LONGEST_LINE).contains(&whole.subject.chars().count()), "{}", whole.subject);
                let stray = |letter: char| letter.is_control() || letter == '\u{2028}';
                assert!(!whole.subject.contains(stray), "{:?}", whole.subject);
                let broken = |text: &str| text.lines().any(|line| line.contains(stray));
                assert!(!broken(&whole.text) && !broken(&whole.html), "{brand:?}");
                assert!(!whole.text.lines().any(|line| line.starts_with("Bcc")), "{brand:?}");
                let code = facts.code.unwrap_or("493027");
                assert!(!whole.subject.contains(code) && !whole.subject.contains('!'));
                let title = facts.kind.word("subject", facts.locale, "");
                assert!(whole.subject.ends_with(&title), "what it is about stays: {}", whole.subject);
            }
        });
        let cut = letter(&LetterFacts { brand: &long, ..facts(LetterKind::Frozen, "en") }).subject.clone();
        assert!(cut.ends_with("aaa…: Account frozen") && cut.chars().count() == LONGEST_LINE, "{cut}");
    }

    #[test]
    fn html_loads_nothing_and_leads_nowhere_but_to_the_page_and_to_help() {
        each(|facts| {
            let html = letter(&facts).html.clone();
            let link = LINK.replace('&', "&#38;");
            let left = html.replace(&link, "").replace(SUPPORT, "");
            for mark in ["http", "//", "src=", "url(", "@import", "<img", "<link", "<script", "<form"] {
                assert!(!left.to_ascii_lowercase().contains(mark), "{mark}");
            }
            assert_eq!(html.matches(&link).count(), 2, "where it leads, and that it does");
            assert_eq!(html.matches(SUPPORT).count(), 2);
            assert_eq!(html.matches("href=").count(), 2);
        });
    }

    #[test]
    fn text_and_html_say_the_same() {
        each(|facts| {
            for times in [1, 4] {
                let whole = letter(&LetterFacts { times, ..facts });
                // The HTML has the name and the rest of the subject in two lines.
                let words = |text: &str| text.split_whitespace().collect::<String>();
                let name = facts.brand;
                let title = facts.kind.word("subject", facts.locale, name);
                let text = whole.text.strip_prefix(&whole.subject).unwrap();
                assert_eq!(words(&format!("{name}{title}{text}")), words(&shown(&whole.html)));
            }
        });
    }

    #[test]
    fn a_code_stands_alone_on_its_line() {
        each(|facts| {
            let whole = letter(&facts);
            if let Some(code) = facts.code {
                assert_eq!(whole.text.lines().filter(|line| line.trim() == code).count(), 1);
                assert_eq!(whole.html.matches(&format!(">{code}</p>")).count(), 1);
                assert_eq!(whole.text.matches(code).count() + whole.html.matches(code).count(), 2);
            }
            // A notice has no use for one.
            let stray = letter(&LetterFacts { code: Some("K7QF-2MXN-9TBD-4HWA"), ..facts });
            let kept = facts.kind.is_code() || facts.kind.can_freeze();
            assert_eq!(stray.text.contains("K7QF"), kept);
            assert_eq!(stray.html.contains("K7QF"), kept);
        });
    }

    #[test]
    fn lines_of_text_are_short_and_end_without_blanks() {
        each(|facts| {
            for brand in ["Gatehouse", "门房统一身份认证", LONGEST] {
                let whole = letter(&LetterFacts { brand, times: 4, ..facts });
                for line in whole.text.lines() {
                    assert!(line.chars().count() <= LONGEST_LINE, "{line}");
                }
                for text in [&whole.text, &whole.html] {
                    assert!(text.lines().all(|line| line.trim_end() == line));
                    assert!(text.ends_with('\n') && !text.ends_with("\n\n") && !text.contains("\n\n\n"));
                    assert!(!text.contains('\r'));
                }
                assert!(whole.text.lines().any(|line| line == LINK), "a link is not broken");
            }
        });
        assert_eq!(wrapped("a b"), "a b");
        assert_eq!(wrapped(&"ab ".repeat(27)), format!("{}\nab", ["ab"; 26].join(" ")));
        let word = "x".repeat(90);
        assert_eq!(wrapped(&format!("a {word} b")), format!("a\n{word}\nb"));
    }

    #[test]
    fn text_is_not_escaped_and_html_is() {
        let odd = LetterFacts { brand: "A & B <i>", ..facts(LetterKind::NewDevice, "en") };
        let whole = letter(&odd);
        assert!(whole.subject.starts_with("A & B <i>: "));
        assert!(whole.text.contains("your A & B <i> account") && whole.text.contains("?lang=en&from="));
        assert!(!whole.html.contains("<i>") && whole.html.contains("A &#38; B &#60;i&#62;"));
    }

    #[test]
    fn a_name_in_chinese_stands_without_spaces_among_chinese_words() {
        let text = |brand, locale| {
            letter(&LetterFacts { brand, ..facts(LetterKind::PasswordChanged, locale) }).text.clone()
        };
        assert!(text("门房", "zh-CN").contains("您的门房账号的密码"));
        assert!(text("Gatehouse", "zh-CN").contains("您的 Gatehouse 账号的密码"));
        assert!(text("门房 ID", "zh-CN").contains("您的门房 ID 账号的密码"));
        assert!(text("门房", "en").contains("your 门房 account"));
    }

    #[test]
    fn every_letter_says_what_to_do() {
        each(|facts| {
            let text = letter(&facts).text.clone();
            let told = match (facts.kind, facts.locale) {
                (kind, "en") if kind.is_code() => "Never pass it on; we never ask for it.",
                (kind, _) if kind.is_code() => "切勿把验证码告诉任何人",
                (kind, "en") if kind.can_freeze() => "enter this code within seven days",
                (kind, _) if kind.can_freeze() => "请在七天内打开下方页面",
                (LetterKind::Frozen, "en") => "sign in with your password",
                (LetterKind::Frozen, _) => "请用密码登录",
                (_, "en") => "If that was you, there is nothing to do.",
                _ => "无需处理",
            };
            let says = |told| text.replace('\n', " ").contains(told) || text.replace('\n', "").contains(told);
            assert!(says(told), "{text}");
            if facts.kind.can_freeze() {
                let then = if facts.locale == "en" {
                    "Then set a new password, and"
                } else {
                    "然后请设置新密码"
                };
                assert!(says(then), "{text}");
            }
        });
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        each(|facts| {
            let bare = letter(&LetterFacts {
                minutes: None,
                at: None,
                network: None,
                support: None,
                code: None,
                ..facts
            });
            for word in
                ["Time:", "Network:", "Help:", "valid for", "时间：", "网络：", "帮助：", "有效", "None"]
            {
                assert!(!bare.text.contains(word) && !shown(&bare.html).contains(word), "{word}");
            }
            assert!(!bare.text.contains("\n\n\n") && bare.text.contains(LINK));
            assert!(!bare.text.contains("mail."), "{}", bare.text);
        });
    }

    #[test]
    fn folded_notices_and_times_are_counted() {
        let folded = |times, locale| {
            letter(&LetterFacts { times, ..facts(LetterKind::NewDevice, locale) }).text.clone()
        };
        assert!(folded(4, "en").contains("This happened 4 times."));
        assert!(folded(4, "zh-CN").contains("登录。共发生 4 次。"));
        assert!((0..2).all(|times| !folded(times, "en").contains("This happened")));
        let valid = |minutes, locale| {
            let facts = facts(LetterKind::ConfirmCode, locale);
            letter(&LetterFacts { minutes: Some(minutes), ..facts }).text.clone()
        };
        assert!(valid(1, "en").contains("valid for 1 minute. Enter"));
        assert!(valid(10, "en").contains("valid for 10 minutes. Enter"));
        assert!(valid(10, "zh-CN").contains("验证码在 10 分钟内有效。请"));
    }

    #[test]
    fn help_is_shown_as_people_use_it() {
        for (url, shown) in [
            ("mailto:help@example.com?subject=Help", "help@example.com"),
            ("tel:+441632960000", "+441632960000"),
            (SUPPORT, SUPPORT),
        ] {
            let whole = letter(&LetterFacts { support: Some(url), ..facts(LetterKind::Frozen, "en") });
            assert!(whole.text.ends_with(&format!("\n\nHelp: {shown}\n")), "{}", whole.text);
            assert!(whole.html.contains(&format!("href=\"{url}\"")), "{}", whole.html);
            assert!(whole.html.contains(&format!(">{shown}</a>")), "{}", whole.html);
        }
    }

    /// WCAG 2.2, "contrast ratio".
    #[test]
    fn every_colour_can_be_read_light_and_dark() {
        let luminance = |colour: &str| {
            let [red, green, blue] = [1, 3, 5].map(|at| {
                let channel = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
                if channel <= 0.040_45 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
            });
            0.2126 * red + 0.7152 * green + 0.0722 * blue
        };
        let contrast = |one: &str, other: &str| {
            let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
            one.max(other) / one.min(other)
        };
        // Every colour of a text, and the grounds of cards and of codes.
        let light = (["#1c2628", "#566063", "#0d5a52"], ["#fffdf9", "#f4f1ea"]);
        let dark = (["#e8ebe6", "#a3afae", "#74cbbb"], ["#182124", "#11181a"]);
        let html = letter(&facts(LetterKind::AddressChanged, "en")).html.clone();
        for (inks, grounds) in [light, dark] {
            for (ink, ground) in inks.iter().flat_map(|ink| grounds.map(|ground| (ink, ground))) {
                assert!(contrast(ink, ground) >= 4.5, "{ink} on {ground}");
                assert!(html.contains(ink) && html.contains(ground), "{ink} on {ground}");
            }
        }
        let used: std::collections::BTreeSet<&str> =
            html.match_indices("color: #").map(|(at, _)| &html[at + 7..at + 14]).collect();
        let lines = ["#d8d2c4", "#2e393c"];
        let known: Vec<&str> =
            [light, dark].iter().flat_map(|(inks, grounds)| inks.iter().chain(grounds)).copied().collect();
        assert!(used.iter().all(|colour| known.contains(colour) || lines.contains(colour)), "{used:?}");
    }
}
