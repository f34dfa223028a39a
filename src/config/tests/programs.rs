//! What the messages of other programs may say.

use super::read;
use super::refused::told;

#[test]
fn texts_that_are_refused() {
    let text = |text: &str| format!("verify.shop.text = '{text}'");
    let once = "verify.shop.text: must contain {code} exactly once";
    let link = "verify.shop.text: contains a link, or what phones show as one (a full stop between letters, :// or @)";
    let braces = "verify.shop.text: contains braces around something else than {code}, {program}, {minutes}";
    let long = "verify.shop.text: is too long for one SMS with a code of 10 characters: 160 characters of plain ASCII, or 70 if there are others";
    let unseen =
        "verify.shop.text: contains a line break, or a character that is not seen or turns text around";
    let cases = [
        (text("shop says hello"), once),
        (text("shop: {code} {code}"), once),
        (text("{code}"), "verify.shop.text: must name the program; write {program} or \"shop\" in it"),
        (text("shop: {code}, see https://evil"), link),
        (text("shop: {code}, see evil.example/x"), link),
        (text("shop: {code}, see evil．example"), link),
        (text("shop.example {code}"), link),
        (text("shop x.{code}"), link),
        (text("shop @evil #{code}"), link),
        (text("shop ＠evil #{code}"), link),
        (text("shop: {code}, see evil。example"), link),
        (text("shop: {code}, see evil․example"), link),
        (text("shop: {code}, see evil\u{200d}．\u{200c}example"), link),
        (text("shop: {code}, see http：／／evil"), link),
        (text("shop: {code}\u{2028}see"), unseen),
        (text("shop: {code} \u{202e}live"), unseen),
        (text("shop: {code}, see evil\u{200b}.example"), unseen),
        (text("shop: {code}\u{85}see"), unseen),
        (text("{program}: {code} {phone}"), braces),
        (text("{program}: {code} {"), braces),
        (text(&format!("{{program}}: {{code}}{}", "x".repeat(150))), long),
        (text(&format!("{{program}}：{{code}}{}", "字".repeat(56))), long),
        ("verify.shop.text = \"shop {code}\\nsee\"".into(), unseen),
        ("verify.shop.texts = { de = 'x' }".into(), "verify.shop.texts.de: must contain {code} exactly once"),
        (
            "verify.shop.texts = { 'd e' = 'shop {code}' }".into(),
            "verify.shop.texts.d e: is not a language tag, such as \"en\" or \"zh-CN\"",
        ),
        (
            "verify.shop.program = ''".into(),
            "verify.shop.program: must be 1 to 40 characters: what people know the program by",
        ),
        (
            "verify.shop.program = 'a{code}'".into(),
            "verify.shop.program: must not contain braces, line breaks, or characters that are not seen",
        ),
        (
            "verify.shop.program = \"a\\u202eb\"".into(),
            "verify.shop.program: must not contain braces, line breaks, or characters that are not seen",
        ),
        (
            format!("verify.shop.program = '{}'", "😀".repeat(21)),
            "verify.shop.program: must be 1 to 40 characters: what people know the program by",
        ),
        (
            "verify.shop.program = 'shop.example'".into(),
            "verify.shop.program: contains a link, or what phones show as one (a full stop between letters, :// or @)",
        ),
        (
            "verify.Shop.program = 'x'".into(),
            "verify.Shop: is not a name as in the scope of a token; use 1 to 64 of a-z, 0-9 and -",
        ),
        ("verify.shop.txt = 'x'".into(), "verify.shop.txt: is not a setting; did you mean text?"),
    ];
    let cases: Vec<_> = cases.iter().map(|(text, told)| (text.as_str(), *told)).collect();
    told(&cases);
}

#[test]
fn a_full_stop_that_ends_a_sentence_is_no_link() {
    let text = |text: &str| format!("[verify.shop]\nprogram = '某店'\ntext = '{text}'");
    for fine in [
        "【{program}】验证码{code}。切勿告诉他人。",
        "{program}: {code}. Do not share it.",
        "{program}：می\u{200c}شود {code}",
    ] {
        assert!(read(&text(fine)).is_ok(), "{fine}");
    }
}

#[test]
fn texts_are_chosen_by_language_and_filled_in() {
    let config = read(
        "[verify.shop]\nprogram = 'Example Shop'\ntext = 'Your code at {program}: {code}. Valid for {minutes} min.'\n\
         texts = { zh-CN = '【{program}】{code}', pt-BR = 'Example Shop {code}' }\n[verify.bare]\nprogram = 'Bare'",
    );
    let verify = config.expect("valid").settings.verify;
    let fill = |language| verify["shop"].fill(language, "012345", "5").expect("a text").to_string();
    assert_eq!(fill(None), "Your code at Example Shop: 012345. Valid for 5 min.");
    assert_eq!(fill(Some("fr")), fill(None));
    for tag in ["zh-CN", "zh", "ZH-hant-tw"] {
        assert_eq!(fill(Some(tag)), "【Example Shop】012345", "{tag}");
    }
    assert_eq!(fill(Some("pt-PT")), "Example Shop 012345");
    assert_eq!(verify["bare"].fill(Some("en"), "012345", "5"), None);
    assert_eq!(verify["bare"].program, "Bare");
}

#[test]
fn relays_that_are_refused() {
    told(&[
        (
            "relay.main.secret = 'whsec_plain'",
            "relay.main.secret: contains the secret itself; write \"env:NAME\" or \"file:PATH\" to say where it is read from",
        ),
        (
            "relay.main.secret = []",
            "relay.main.secret: lists 0 secrets; write one, or two while they are changed",
        ),
        (
            "relay.main.secret = ['env:A', 'env:B', 'env:C']",
            "relay.main.secret: lists 3 secrets; write one, or two while they are changed",
        ),
        (
            "relay.main.text = 'main {code}, {minutes} min'",
            "relay.main.text: contains braces around something else than {code}, {program}",
        ),
        (
            "relay.Main.secret = 'env:A'",
            "relay.Main: is not a name as in the scope of a token; use 1 to 64 of a-z, 0-9 and -",
        ),
    ]);
    let relays = read("[relay.a]\nsecret = 'env:A'\n[relay.b]\nsecret = ['env:A', 'file:/b']\n[relay.c]");
    let relays = relays.expect("valid").settings.relay;
    assert_eq!(["a", "b", "c"].map(|name| relays[name].secrets.len()), [1, 2, 0]);
}
