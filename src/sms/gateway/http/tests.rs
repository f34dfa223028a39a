use proptest::prelude::*;
use url::form_urlencoded;

use super::*;
use crate::config::BodyKind;
use crate::entropy::Entropy;
use crate::message::{MessageCode, MessageId};
use crate::sms::Phone;

/// Every character with a special meaning in one of the formats.
const HOSTILE: &str = "a\"b\\c<d>&e='f'%41 +\n\u{1}#?验证码😀{code}";

fn filled(template: &str, escape: Escape) -> String {
    filled_with(template, escape, HOSTILE)
}

fn filled_with(template: &str, escape: Escape, text: &str) -> String {
    let phone = Phone::parse("13800138000", "CN").unwrap();
    let code = MessageCode::parse("012345").unwrap();
    let id = MessageId::random(&Entropy::seeded(1));
    let message = SmsMessage { id, phone: &phone, code: &code, text };
    let values = TemplateValues {
        message: &message,
        report_token: "t0",
        report_url: "https://h.example/r?id=1&token=2",
    };
    GatewayTemplate::parse(template).unwrap().open(escape).unwrap().fill(&values)
}

#[test]
fn in_a_url_a_value_stays_one_value() {
    let url = filled("https://g.example/{phone}/s?p={phone}&t={text}&d={report_url}%26s%3D%25d", Escape::Url);
    let url = url::Url::parse(&url).unwrap();
    assert_eq!(url.path(), "/%2B8613800138000/s");
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    assert_eq!(pairs[0], ("p".to_owned(), "+8613800138000".to_owned()));
    assert_eq!(pairs[1], ("t".to_owned(), HOSTILE.to_owned()));
    assert_eq!(pairs[2], ("d".to_owned(), "https://h.example/r?id=1&token=2&s=%d".to_owned()));
    assert_eq!((pairs.len(), url.fragment()), (3, None));
}

#[test]
fn in_json_a_value_stays_one_string() {
    let json: serde_json::Value = serde_json::from_str(&filled(
        r#"{"to":"{phone}","n":{phone_digits},"text":"{text}","deep":{"code":"{code}"}}"#,
        Escape::Json,
    ))
    .unwrap();
    assert_eq!(json["text"], HOSTILE);
    assert_eq!((&json["to"], &json["deep"]["code"]), (&"+8613800138000".into(), &"012345".into()));
    assert_eq!(json["n"], 8_613_800_138_000_u64);
}

#[test]
fn in_a_form_a_value_stays_one_field() {
    let form = filled("to={phone}&text={text}&x=1", Escape::Form);
    let pairs: Vec<(String, String)> = form_urlencoded::parse(form.as_bytes()).into_owned().collect();
    let expected = [("to", "+8613800138000"), ("text", HOSTILE), ("x", "1")];
    assert_eq!(pairs, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
}

#[test]
fn in_xml_a_value_stays_text() {
    assert_eq!(
        filled("<m to='{phone}'>{text}</m>", Escape::Xml),
        "<m to='+8613800138000'>a&quot;b\\c&lt;d&gt;&amp;e=&apos;f&apos;%41 +\n#?验证码😀{code}</m>"
    );
}

#[test]
fn in_a_header_a_value_stays_one_line() {
    assert!(!filled("{text}", Escape::Line).contains(['\n', '\u{1}']));
}

#[test]
fn what_is_filled_in_is_not_filled_again() {
    assert!(filled("{text}", Escape::Nothing).ends_with("{code}"));
    assert_eq!(filled("{ {} {\"phone\"} {phone", Escape::Nothing), "{ {} {\"phone\"} {phone");
    assert_eq!(filled("{report_token}", Escape::Nothing), "t0");
    assert!(filled("{text_utf16_hex}", Escape::Nothing).contains("9a8c8bc17801d83dde00"));
}

#[test]
fn names_that_stand_for_nothing_are_refused() {
    let known =
        "{phone}, {phone_digits}, {text}, {text_utf16_hex}, {code}, {id}, {report_token}, {report_url}";
    assert_eq!(
        GatewayTemplate::parse("a {nmae}").unwrap_err(),
        format!("{{nmae}} is not a placeholder; use {known}, {{env:NAME}} and {{file:PATH}}")
    );
    assert!(GatewayTemplate::parse("{env:}").is_err());
    assert_eq!(
        format!("{:?}", GatewayTemplate::parse("hunter2 {env:KEY}{id}").unwrap()),
        "[Secret(env:KEY), Place(Id)]"
    );
}

#[test]
fn secrets_are_read_and_escaped_too() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, b"p&w=1 2\n").unwrap();
    let template = format!("u={{file:{}}}&c={{code}}", file.path().display());
    assert_eq!(filled(&template, Escape::Url), "u=p%26w%3D1%202&c=012345");
    let missing = GatewayTemplate::parse("{env:GATEHOUSE_NO_SUCH}").unwrap().open(Escape::Url);
    assert!(missing.is_err());
}

#[test]
fn a_body_is_what_its_header_or_its_shape_says() {
    for (content_type, kind) in [
        ("application/json; charset=utf-8", BodyKind::Json),
        ("Application/Vnd.Api+JSON", BodyKind::Json),
        ("application/x-www-form-urlencoded", BodyKind::Form),
        ("application/soap+xml", BodyKind::Xml),
        ("text/plain", BodyKind::Other),
    ] {
        assert_eq!(BodyKind::of_type(content_type), kind, "{content_type}");
    }
    for (body, kind) in [
        (r#" {"to":"{phone}"}"#, BodyKind::Json),
        ("[1]", BodyKind::Json),
        ("<m/>", BodyKind::Xml),
        ("to={phone}&text={text}", BodyKind::Form),
        ("to={phone}", BodyKind::Form),
        ("0: 0", BodyKind::Other),
        ("SMS {phone}", BodyKind::Other),
        ("", BodyKind::Other),
    ] {
        assert_eq!(BodyKind::of_shape(body), kind, "{body}");
    }
}

proptest! {
    /// For any text in a message, the other side reads exactly that text in exactly that place.
    #[test]
    fn any_text_comes_back_whole(text in any::<String>()) {
        let json = filled_with(r#"{"a":["{text}"],"b":1}"#, Escape::Json, &text);
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), serde_json::json!({ "a": [&text], "b": 1 }));
        for (escape, start) in [(Escape::Form, ""), (Escape::Url, "http://h/?")] {
            let form = filled_with(&format!("{start}a={{text}}&b=1"), escape, &text);
            let pairs: Vec<_> = form_urlencoded::parse(&form.as_bytes()[start.len()..]).into_owned().collect();
            prop_assert_eq!(pairs, [("a".to_owned(), text.clone()), ("b".to_owned(), "1".to_owned())]);
        }
        let xml = filled_with("<a b=\"{text}\">{text}</a>", Escape::Xml, &text);
        prop_assert_eq!(xml.matches(['<', '>', '"']).count(), 6);
        let line = filled_with("{text}", Escape::Line, &text);
        prop_assert!(!line.contains(char::is_control));
    }

    /// What an owner wrote around the placeholders stays unchanged, including braces.
    #[test]
    fn what_is_no_name_is_literal(template in "[a-z\" {}]{0,40}") {
        let placeholder = <Placeholder as strum::VariantNames>::VARIANTS.iter().any(|name| template.contains(&format!("{{{name}}}")));
        if let Ok(parsed) = GatewayTemplate::parse(&template) {
            prop_assert!(placeholder || parsed.sample("") == template);
        }
    }
}
