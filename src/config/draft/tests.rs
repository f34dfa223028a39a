use std::path::Path;

use serde_json::json;

use super::*;
use SentSection::{Json, Toml};

const DOCUMENT: &str = r#"# Ours, since 2024.
[server]
bind = "127.0.0.1:8080"   # loopback

# Watched by the night shift.
[limits.login-account]
rules = [
    { max = 3, window = "60s", then = "captcha" }, # three
    { max = 20, window = "1h" },  # twenty
]

[limits.sms-phone] # numbers
mode = "monitor"
rules = [{ max = 1, window = "1m" }]

# The store.
[store]
url = "memory:"

# One of our own.
[limits.custom.reply]
rules = [{ max = 5, window = "1s" }]

# The end.
[session]
idle = "1h"
# Nothing follows.
"#;

pub fn source(variables: &[(&str, &str)]) -> ConfigSource {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    ConfigSource::optional(Path::new("gatehouse.toml"), variables.collect())
}

fn limits_of(document: &str) -> String {
    LiveSection::Limits.text_in(document)
}

/// A draft of the limits, as a test writes it.
enum SentSection<'a> {
    Toml(&'a str),
    Json(&'a serde_json::Value),
}

fn put(document: &str, draft: SentSection<'_>, variables: &[(&str, &str)]) -> Result<String, SaveError> {
    let draft = match draft {
        Toml(text) => Draft::Toml(text.to_owned()),
        Json(value) => Draft::Json(value.clone()),
    };
    edit(document, &Edit::Section(LiveSection::Limits, draft), variables)
}

/// The document with the edit in it.
pub fn edit(document: &str, edit: &Edit, variables: &[(&str, &str)]) -> Result<String, SaveError> {
    let (source, public_url) = (source(variables), Url::parse("https://id.example").unwrap());
    let current = source.tree(document).and_then(|root| source.read(root));
    let access = current.map(|config| config.live.access.settings().clone()).unwrap_or_default();
    let origins = Origins::default();
    let base =
        EditBase { source: &source, document, access: &access, origins: &origins, public_url: &public_url };
    CheckedEdit::new(edit.clone(), &base).map(|checked| checked.candidate.text)
}

fn as_json(document: &str) -> serde_json::Value {
    let limits = source(&[]).read(source(&[]).tree(document).unwrap()).unwrap().live.limits;
    let mut all = json!({ "custom": {} });
    for limit in limits.iter() {
        let value = toml::from_str(&splice::limit_toml(limit).to_string()).unwrap();
        match limit.name().strip_prefix("custom.") {
            Some(own) => all["custom"][own] = value,
            None => all[limit.name()] = value,
        }
    }
    all
}

fn field(error: SaveError) -> (String, Option<usize>) {
    match error {
        SaveError::Invalid(errors) => (errors[0].field.clone(), errors[0].line),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_shown_and_sent_back_changes_no_byte() {
    assert_eq!(put(DOCUMENT, Json(&as_json(DOCUMENT)), &[]).unwrap(), DOCUMENT);
    for document in [DOCUMENT, "", include_str!("../../../gatehouse.example.toml")] {
        let shown = limits_of(document);
        let back = put(document, Toml(&shown), &[]).unwrap();
        assert_eq!(limits_of(&back), shown);
        assert_eq!(put(&back, Toml(&shown), &[]).unwrap(), back);
    }
    let example = include_str!("../../../gatehouse.example.toml");
    assert_eq!(put(example, Toml(&limits_of(example)), &[]).unwrap(), example);
    assert_eq!(put(example, Json(&as_json(example)), &[]).unwrap(), example);
}

#[test]
fn line_ends_and_the_mark_of_an_encoding_stay() {
    let theirs = format!("\u{feff}{}", DOCUMENT.replace('\n', "\r\n"));
    let mut draft = as_json(DOCUMENT);
    assert_eq!(put(&theirs, Json(&draft), &[]).unwrap(), theirs);
    let shown = limits_of(&theirs);
    assert_eq!(shown, limits_of(DOCUMENT));
    for sent in [shown.clone(), shown.replace('\n', "\r\n")] {
        let back = put(DOCUMENT, Toml(&sent), &[]).unwrap();
        assert_eq!(limits_of(&back), shown, "browsers end lines in their own way");
    }
    draft["sms-phone"]["rules"][0]["max"] = json!(4);
    assert_eq!(put(&theirs, Json(&draft), &[]).unwrap(), theirs.replace("max = 1,", "max = 4,"));
}

#[test]
fn one_number_changes_one_number() {
    let mut draft = as_json(DOCUMENT);
    draft["login-account"]["rules"][1]["max"] = json!(30);
    let wanted = DOCUMENT.replace("max = 20", "max = 30");
    assert_eq!(put(DOCUMENT, Json(&draft), &[]).unwrap(), wanted);
    draft["sms-phone"]["mode"] = json!("enforce");
    let wanted = wanted.replace("mode = \"monitor\"\n", "");
    assert_eq!(put(DOCUMENT, Json(&draft), &[]).unwrap(), wanted);
}

#[test]
fn rules_come_and_go_and_their_neighbours_keep_their_comments() {
    let mut draft = as_json(DOCUMENT);
    let rules = draft["login-account"]["rules"].as_array_mut().unwrap();
    rules.push(json!({ "max": 50, "per": "day", "timezone": "Asia/Shanghai" }));
    let out = put(DOCUMENT, Json(&draft), &[]).unwrap();
    for line in ["# three", "# twenty", "# Watched by the night shift.", "window = \"60s\""] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(
        out.contains(r#"{ max = 50, per = "day", timezone = "Asia/Shanghai", then = "block" }"#),
        "{out}"
    );
    let fewer = put(&out, Json(&as_json(DOCUMENT)), &[]).unwrap();
    assert_eq!(as_json(&fewer), as_json(DOCUMENT));
}

#[test]
fn what_a_draft_does_not_name_goes_and_the_rest_is_not_touched() {
    let out = put(
        DOCUMENT,
        Json(&json!({ "sms-phone": { "mode": "monitor", "rules": [{ "max": 1, "window": "1m" }] } })),
        &[],
    )
    .unwrap();
    let wanted = r#"# Ours, since 2024.
[server]
bind = "127.0.0.1:8080"   # loopback

[limits.sms-phone] # numbers
mode = "monitor"
rules = [{ max = 1, window = "1m" }]

# The store.
[store]
url = "memory:"

# The end.
[session]
idle = "1h"
# Nothing follows.
"#;
    assert_eq!(out, wanted);
    let none = put(DOCUMENT, Json(&json!({})), &[]).unwrap();
    assert!(!none.contains("limits"), "{none}");
    assert!(none.contains("# The store.\n[store]"), "{none}");
}

#[test]
fn a_draft_of_text_stands_where_the_limits_stood_as_it_was_written() {
    let draft = "# New.\n[limits.sms-phone]\nrules = [ ]  # off\n\n[limits.custom.b]\nrules = [{ max = 1, window = \"1s\" }]\n";
    let out = put(DOCUMENT, Toml(draft), &[]).unwrap();
    let wanted = DOCUMENT.split("# Watched").next().unwrap().to_owned()
        + draft
        + "\n# The store.\n[store]\nurl = \"memory:\"\n\n# The end.\n[session]\nidle = \"1h\"\n# Nothing follows.\n";
    assert_eq!(out, wanted);
    assert_eq!(limits_of(&out), draft);
}

#[test]
fn limits_are_put_into_a_document_without_any_in_whatever_shape_they_come() {
    let draft = json!({ "custom": { "a": { "rules": [{ "max": 1, "window": "90s" }] } } });
    let out = put("", Json(&draft), &[]).unwrap();
    assert_eq!(out.trim(), "[limits.custom.a]\nrules = [{ max = 1, window = \"1m 30s\", then = \"block\" }]");
    let out = put("[server]\nworkers = 2\n", Json(&draft), &[]).unwrap();
    assert!(out.starts_with("[server]\nworkers = 2\n\n[limits.custom.a]\n"), "{out}");
    for shape in [
        "limits = { custom = { a = { rules = [{ max = 9, window = \"1s\" }] } } }\n[server]\nworkers = 2\n",
        "limits.custom.a.rules = [{ max = 9, window = \"1s\" }]\n[server]\nworkers = 2\n",
        "[limits]\ncustom.a.rules = [{ max = 9, window = \"1s\" }]\n[server]\nworkers = 2\n",
        "[[limits.custom.a.rules]]\nmax = 9\nwindow = \"1s\"\n[server]\nworkers = 2\n",
    ] {
        for draft in [Json(&draft), Toml("[limits.custom.a]\nrules = [{ max = 1, window = \"90s\" }]\n")] {
            let out = put(shape, draft, &[]).unwrap();
            assert!(out.contains("workers = 2"), "{out}");
            assert_eq!(as_json(&out)["custom"]["a"]["rules"][0]["max"], 1, "{out}");
        }
    }
}

#[test]
fn mistakes_are_told_at_their_field_and_line() {
    let rules = |rule: serde_json::Value| json!({ "login-account": { "rules": [rule] } });
    for (draft, at) in [
        (rules(json!({ "max": 0, "window": "1m" })), "limits.login-account.rules[0].max"),
        (rules(json!({ "max": 1.5, "window": "1m" })), "limits.login-account.rules[0].max"),
        (rules(json!({ "max": null, "window": "1m" })), "limits.login-account.rules[0].max"),
        (rules(json!({ "max": u64::MAX, "window": "1m" })), "limits.login-account.rules[0].max"),
        (rules(json!({ "max": 1, "window": "soon" })), "limits.login-account.rules[0].window"),
        (rules(json!({ "max": 1 })), "limits.login-account.rules[0]"),
        (
            rules(json!({ "max": 1, "per": "day", "timezone": "Mars" })),
            "limits.login-account.rules[0].timezone",
        ),
        (rules(json!([1])), "limits.login-account.rules[0]"),
        (json!({ "login-account": [] }), "limits.login-account"),
        (json!({ "login-acount": { "rules": [] } }), "limits.login-acount"),
        (json!({ "custom": { "Not this": { "rules": [] } } }), "limits.custom.Not this"),
        (json!({ "sms-phone": { "rules": [{ "max": 1, "window": "100d" }] } }), "sms.retention"),
        (json!([]), "limits"),
    ] {
        assert_eq!(field(put(DOCUMENT, Json(&draft), &[]).unwrap_err()), (at.to_owned(), None));
    }
    for (draft, at, line) in [
        ("[limits.sms-phone]\n\nrules = [{ max = 0, window = \"1m\" }]", "limits.sms-phone.rules[0].max", 3),
        ("[limits.sms-phone]\nrules = []\n[server]\nworkers = 2\n", "server", 3),
        ("[limits.sms-phone]\nrules = [\n", "", 2),
        ("\nlimits = 3", "limits", 2),
    ] {
        assert_eq!(field(put(DOCUMENT, Toml(draft), &[]).unwrap_err()), (at.to_owned(), Some(line)));
    }
}

#[test]
fn a_limit_that_a_variable_sets_is_refused_unless_it_stays_as_it_is_shown() {
    let variables = [("GATEHOUSE__LIMITS__SMS_PHONE__RULES", "[{ max = 7, window = \"1m\" }]")];
    let mut draft = as_json(DOCUMENT);
    assert_eq!(put(DOCUMENT, Json(&draft), &variables).unwrap(), DOCUMENT, "as it stands there");
    draft["sms-phone"]["rules"][0] = json!({ "max": 7, "window": "1m" });
    assert_eq!(put(DOCUMENT, Json(&draft), &variables).unwrap(), DOCUMENT, "as it is in force");
    draft["sms-phone"]["rules"][0] = json!({ "max": 8, "window": "1m" });
    assert_eq!(field(put(DOCUMENT, Json(&draft), &variables).unwrap_err()).0, "limits.sms-phone");
    let text = limits_of(DOCUMENT).replace("max = 1,", "max = 2,");
    assert_eq!(
        field(put(DOCUMENT, Toml(&text), &variables).unwrap_err()),
        ("limits.sms-phone".to_owned(), Some(8))
    );
    let without = put(DOCUMENT, Toml(""), &variables).unwrap();
    assert_eq!(named_limits(&without), ["sms-phone"], "it is not the draft's to remove: {without}");
}

#[test]
fn a_mistake_elsewhere_in_the_document_is_not_the_drafts() {
    let broken = format!("{DOCUMENT}[password]\nqueue = 0\n");
    let refused = put(&broken, Json(&as_json(DOCUMENT)), &[]).unwrap_err();
    assert!(
        matches!(&refused, SaveError::Backend(reason) if reason.contains("password.queue")),
        "{refused:?}"
    );
    let broken = DOCUMENT.replace("max = 5", "max = 0");
    put(&broken, Json(&as_json(DOCUMENT)), &[]).expect("the draft mends it");
}

#[test]
fn spans_are_written_so_that_they_are_read_as_the_same() {
    use std::time::Duration;
    for (millis, text) in [
        (100, "100ms"),
        (1_000, "1s"),
        (60_000, "1m"),
        (90_500, "1m 30s 500ms"),
        (86_400_000, "24h"),
        (172_800_000, "2d"),
        (366 * 86_400_000, "366d"),
        (31 * 86_400_000 + 3_600_000, "31d 1h"),
    ] {
        let span = Duration::from_millis(millis);
        assert_eq!(crate::config::span_text(span), text);
        let document = format!("[limits.custom.a]\nrules = [{{ max = 1, window = \"{text}\" }}]");
        let read = source(&[]).read(source(&[]).tree(&document).unwrap()).unwrap().live.limits;
        assert_eq!(read.custom["a"].rules()[0].span, gatehouse_limiter::RuleSpan::Sliding(span));
    }
}

#[test]
fn a_comment_behind_a_rule_stays_when_the_next_rule_goes() {
    let mut draft = as_json(DOCUMENT);
    draft["login-account"]["rules"].as_array_mut().unwrap().pop();
    let out = put(DOCUMENT, Json(&draft), &[]).unwrap();
    assert!(out.contains("then = \"captcha\" }, # three\n]\n"), "{out}");
}

#[test]
fn comments_of_a_draft_are_saved_and_each_limit_keeps_its_place() {
    let draft = limits_of(DOCUMENT)
        .replace("# One of our own.", "# Two of\n# our own.")
        .replace("# twenty", "# twenty an hour")
        + "# raise in May\n";
    let out = put(DOCUMENT, Toml(&draft), &[]).unwrap();
    let wanted = DOCUMENT
        .replace("# One of our own.", "# Two of\n# our own.")
        .replace("# twenty", "# twenty an hour")
        .replace("# Nothing follows", "# raise in May\n# Nothing follows");
    assert_eq!(out, wanted);
}

const SECRETS: &str = r#"[database]
url = "sqlite:a.db"

# [sms.twilio]
# token = "first-secret"

# how often somebody may err
[limits.login-account]
rules = [{ max = 3, window = "1m" }]

# of one address
[limits.login-address]
rules = []

[sms]
code_ttl = "5m"
# key = "second-secret"

[limits.sms-total]
rules = []
# the end of the limits

# [sms.aliyun]
# key = "third-secret"
"#;

#[test]
fn what_was_commented_out_around_the_limits_is_shown_to_nobody() {
    let shown = limits_of(SECRETS);
    assert!(!shown.contains("secret"), "{shown}");
    for own in [
        "# how often somebody may err",
        "\n\n# of one address\n",
        "\n\n[limits.sms-total]",
        "# the end of the limits",
    ] {
        assert!(shown.contains(own), "{shown}");
    }
}

#[test]
fn what_is_not_shown_of_a_document_stays_in_it() {
    let shown = limits_of(SECRETS);
    let draft = shown.replace("max = 3", "max = 4");
    let changed = put(SECRETS, Toml(&draft), &[]).unwrap();
    for hidden in [
        "# [sms.twilio]\n# token = \"first-secret\"\n\n",
        "# key = \"second-secret\"\n",
        "\n\n# [sms.aliyun]\n# key = \"third-secret\"\n",
    ] {
        assert!(changed.contains(hidden), "{changed}");
    }
    assert!(limits_of(&changed).contains("max = 4") && !limits_of(&changed).contains("secret"));
    // With the limits side by side, the document is the same except for the change.
    let together = SECRETS.replace("[sms]\ncode_ttl = \"5m\"\n# key = \"second-secret\"\n\n", "");
    let changed = put(&together, Toml(&limits_of(&together).replace("max = 3", "max = 4")), &[]);
    assert_eq!(changed.unwrap(), together.replace("max = 3", "max = 4"));
    let none = "[server]\nbind = \"127.0.0.1:8080\"\n\n# [store]\n# url = \"redis://:secret@here\"\n";
    let changed = put(none, Toml("[limits.sms-total]\nrules = []\n"), &[]).unwrap();
    assert!(changed.ends_with("\n# [store]\n# url = \"redis://:secret@here\"\n"), "{changed}");
}

#[test]
fn what_is_hidden_stays_hidden_whatever_goes_or_comes_around_it() {
    let removed = put(SECRETS, Json(&json!({ "login-address": { "rules": [] } })), &[]).unwrap();
    let none = put(SECRETS, Toml(""), &[]).unwrap();
    let last = put(
        "[limits.sms-phone]\nrules = []\n# first-secret second-secret third-secret\n\n[limits.sms-total]\nrules = []\n",
        Toml("[limits.sms-phone]\nrules = []\n"),
        &[],
    );
    let first = put(
        "[server]\nworkers = 2\n# first-secret second-secret third-secret\n",
        Json(&json!({ "sms-total": { "rules": [] } })),
        &[],
    );
    for document in [removed, none, last.unwrap(), first.unwrap()] {
        assert!(!limits_of(&document).contains("secret"), "{document}");
        for secret in ["first-secret", "second-secret", "third-secret"] {
            assert!(document.contains(secret), "{secret}: {document}");
        }
    }
}

#[test]
fn one_limit_is_changed_and_everything_else_stays() {
    let put = |document: &str, name: &str, limit: serde_json::Value| {
        edit(document, &Edit::Limit(name.to_owned(), limit), &[])
    };
    let one = json!({ "rules": [{ "max": 2, "window": "1m", "then": "block" }] });
    let changed = put(DOCUMENT, "sms-phone", one.clone()).unwrap();
    assert_eq!(changed, DOCUMENT.replace("mode = \"monitor\"\n", "").replace("max = 1,", "max = 2,"));
    assert_eq!(
        put(DOCUMENT, "sms-phone", json!({ "mode": "monitor", "rules": [{ "max": 1, "window": "60s" }] }))
            .unwrap(),
        DOCUMENT
    );
    let added = put(DOCUMENT, "sms-total", one.clone()).unwrap();
    assert_eq!(
        added.replace("\n[limits.sms-total]\nrules = [{ max = 2, window = \"1m\", then = \"block\" }]\n", ""),
        DOCUMENT
    );
    let own = put("", "custom.reply", json!({ "rules": [] })).unwrap();
    assert_eq!(own.trim(), "[limits.custom.reply]\nrules = []");
    let braces = "limits.sms-phone = { rules = [], mode = \"enforce\" }\n";
    assert_eq!(as_json(&put(braces, "sms-phone", one.clone()).unwrap())["sms-phone"]["rules"][0]["max"], 2);
    let wrong = json!({ "rules": [{ "max": "three", "window": "1m" }] });
    assert_eq!(
        field(put(DOCUMENT, "custom.reply", wrong).unwrap_err()).0,
        "limits.custom.reply.rules[0].max"
    );
    let variables = [("GATEHOUSE__LIMITS__SMS_PHONE__RULES", "[]")];
    let refused = edit(DOCUMENT, &Edit::Limit("sms-phone".to_owned(), one), &variables);
    assert_eq!(field(refused.unwrap_err()).0, "limits.sms-phone");
}

#[test]
fn what_stands_above_a_table_that_goes_and_is_not_its_own_stays() {
    use gatehouse_limiter::middleware::{ClientAddress, TrustedProxies};

    let document = "[sms]\ncode_ttl = \"1m\"\n\n# [store]\n# url = \"redis://:a-secret@here\"\n\n[sms.brake]\nmin_sent = 30\n";
    let address = ClientAddress::at("192.0.2.1".parse().unwrap(), &TrustedProxies::default());
    let saver = AccessSaver { address, now: crate::clock::Micros(0) };
    let old = "[sms]\ncode_ttl = \"1m\"\n".to_owned();
    let out = edit(document, &Edit::Restored(LiveSection::Sms, old, saver), &[]).unwrap();
    assert!(out.contains("# url = \"redis://:a-secret@here\"\n") && !out.contains("brake"), "{out}");
    let listed = "[factors]\nrequire = [\n    \"admins\", # by law\n]\n";
    let both = Draft::Json(json!({ "require": ["admins", "everyone"] }));
    let out = edit(listed, &Edit::Section(LiveSection::Factors, both), &[]).unwrap();
    assert!(out.contains("\"admins\", # by law\n"), "{out}");
}

/// Two documents that differ in each live section, and have other things around it.
fn two(which: usize) -> String {
    let pick = |pair: [&'static str; 2]| pair[which];
    format!(
        "# Ours.\n[server]\npublic_url = \"https://id.example\"\ntrusted_proxies = [\"127.0.0.1/32\"]\n\n\
         [limits.sms-phone]\nrules = [{{ max = {}, window = \"1m\" }}]\n\n\
         [access]\nchallenge_everyone_until = \"{}\"\n\n\
         [[apps]]\nname = \"{}\"\nhosts = [\"a.example\"]\n\n\
         [factors]\n# of whom\nrequire = [\"{}\"]\n{}\n\
         [brand]\nname = \"{}\"\n\n\
         [login]\nmax_consecutive_failures = {}\n\n\
         [captcha]\nprovider = \"image\"\n# key = \"a-secret\"\ndifficulty = \"{}\"\n\n\
         [sms]\ngateway = \"outbox\"\n# key = \"a-secret\"\ncode_ttl = \"{}\"\n{}",
        pick(["1", "2"]),
        pick(["2026-03-01T13:00:00Z", "2026-03-01T14:00:00Z"]),
        pick(["wiki", "shop"]),
        pick(["admins", "everyone"]),
        pick(["", "grace = \"1d\"\n"]),
        pick(["One", "Two"]),
        pick(["7", "8"]),
        pick(["easy", "hard"]),
        pick(["1m", "2m"]),
        pick(["\n[sms.brake]\nmin_sent = 30\n", ""]),
    )
}

#[test]
fn every_live_section_can_be_restored_alone() {
    use gatehouse_limiter::middleware::{ClientAddress, TrustedProxies};
    use strum::VariantArray;

    let address = ClientAddress::at("192.0.2.1".parse().unwrap(), &TrustedProxies::default());
    // 2026-03-01 12:00 UTC
    let saver = AccessSaver { address, now: crate::clock::Micros(1_772_366_400_000_000) };
    let live = |document: &str| source(&[]).read(source(&[]).tree(document).unwrap()).unwrap().live;
    let texts = |document: &str| LiveTexts::read(document, live(document).access.settings());
    for (then, now) in [(two(0), two(1)), (two(1), two(0)), (two(0), String::new()), (String::new(), two(0))]
    {
        let (old, new) = (texts(&then), texts(&now));
        for section in LiveSection::VARIANTS {
            let restored = Edit::Restored(*section, old.section(*section).unwrap(), saver);
            let out = edit(&now, &restored, &[]).unwrap_or_else(|error| panic!("{section:?}: {error:?}"));
            let after = live(&out);
            for other in LiveSection::VARIANTS {
                let expected = live(if other == section { &then } else { &now });
                let parts = [other.parts(&after), other.parts(&expected)].concat();
                assert!(parts.iter().all(|part| other.same(&after, &expected, part)), "{section:?}: {out}");
                if other != section {
                    assert_eq!(texts(&out).section(*other), new.section(*other), "{section:?}: {out}");
                }
            }
            // A key that goes takes along what was said above it.
            let goes = then.is_empty() && [LiveSection::Captcha, LiveSection::Sms].contains(section);
            let kept = now.matches("# key = \"a-secret\"").count() - usize::from(goes);
            assert_eq!(out.matches("# key = \"a-secret\"").count(), kept, "{section:?}: {out}");
            assert!(now.is_empty() || out.contains("[server]"), "{out}");
        }
    }
}

#[test]
fn the_history_holds_what_is_live_and_nothing_else() {
    let texts = LiveTexts::read(&two(0), &AccessSettings::default());
    let others = texts.others.clone().unwrap();
    assert_eq!(
        others,
        "[factors]\nrequire = [\"admins\"]\n\n[brand]\nname = \"One\"\n\n[login]\nmax_consecutive_failures = 7\n\n\
         [captcha]\ndifficulty = \"easy\"\n\n[sms]\ncode_ttl = \"1m\"\nbrake = { min_sent = 30 }\n"
    );
    let all = [texts.limits, texts.access, texts.apps, others].concat();
    for foreign in ["secret", "server", "provider", "gateway"] {
        assert!(!all.contains(foreign), "{foreign}: {all}");
    }
    // In one form, whatever they have in the document, so that each is found again.
    for (section, document) in [
        (LiveSection::Login, "login.max_consecutive_failures = 7\n[factors]\ngrace = \"2d\"\n"),
        (LiveSection::Login, "login = { max_consecutive_failures = 7 }\n[factors]\ngrace = \"2d\"\n"),
        (LiveSection::Factors, "factors.grace = \"2d\"\n[login]\nmax_consecutive_failures = 7\n"),
        (LiveSection::Sms, "sms.brake.min_sent = 30\n[brand]\nname = \"x\"\n"),
    ] {
        let texts = LiveTexts::read(document, &AccessSettings::default());
        let (alone, mut root) = (texts.section(section).unwrap(), source(&[]).tree(document).unwrap());
        let meant = source(&[]).read(source(&[]).tree(&alone).unwrap()).unwrap().live;
        root.retain(|key, _| key == section.name());
        assert_eq!(meant, source(&[]).read(root).unwrap().live, "{alone}");
        assert!(!alone.is_empty());
    }
    let example = include_str!("../../../gatehouse.example.toml");
    let others = LiveTexts::read(example, &AccessSettings::default()).others.unwrap();
    assert!(source(&[]).tree(&others).is_ok(), "it is a document itself: {others}");
}

#[test]
fn what_a_variable_sets_is_not_restored() {
    use gatehouse_limiter::middleware::{ClientAddress, TrustedProxies};

    let address = ClientAddress::at("192.0.2.1".parse().unwrap(), &TrustedProxies::default());
    let saver = AccessSaver { address, now: crate::clock::Micros(0) };
    let variables = [("GATEHOUSE__BRAND__NAME", "Ours"), ("GATEHOUSE__FACTORS__REQUIRE", "[\"admins\"]")];
    for section in [LiveSection::Brand, LiveSection::Factors] {
        let old = section.text_in(&two(1));
        let out = edit(&two(0), &Edit::Restored(section, old, saver), &variables).unwrap();
        let kept = ["name = \"One\"", "require = [\"admins\"]"];
        assert!(kept.iter().all(|line| out.contains(line)), "{out}");
        assert_eq!(out.contains("grace"), section == LiveSection::Factors);
    }
    let factors = Draft::Json(json!({ "require": ["everyone"] }));
    let refused = edit(&two(0), &Edit::Section(LiveSection::Factors, factors), &variables);
    assert_eq!(field(refused.unwrap_err()).0, "factors.require");
}

/// Every key of every section of keys, none with its default.
const ALL_KEYS: &str = r##"
server = { public_url = "https://id.example" }
mail = { url = "smtps://mail.example", from = "id@id.example", reset = "no", notices = false }
factors = { require = ["admins"], grace = "1d", trust_device = "1d" }
login = { max_consecutive_failures = 7, breached = "/lost", breached_memory = 7, breached_then = "change" }
origins = { asn = "/asn", country = "/country", lists = [{ name = "tor", file = "/tor" }] }
registration = { mode = "invite", require = ["email"] }
captcha = { difficulty = "hard", ttl = "1m", proof_of_work = false, help = "Ask us" }

[brand]
name = "Ours"
logo = "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAKklEQVR42mPgjQqiKWIYtWDUglELRi0YtWDUglELRi0YtWDUglELhooFAD765B8qywLvAAAAAElFTkSuQmCC"
colour = "#0d5a53"
support = "mailto:help@id.example"

[sms]
default_region = "DE"
countries = ["DE"]
code_ttl = "1m"
retention = "99d"
challenge_prefixes = ["+4917"]
country = { DE = { mode = "challenge" } }
price = 0.5
budget = "200 EUR / day"
budget_blocks = true
brake = { min_sent = 30 }
"##;

#[test]
fn a_draft_in_json_is_about_the_keys_that_it_names_and_the_others_of_its_section_stay() {
    use strum::VariantArray;

    let live = |document: &str| source(&[]).read(source(&[]).tree(document).unwrap()).unwrap().live;
    let (all, default) = (live(ALL_KEYS), LiveSettings::default());
    let sections = LiveSection::VARIANTS.iter().filter(|section| !section.has_own_text());
    for (section, key) in sections.flat_map(|section| section.keys().iter().map(move |key| (section, *key))) {
        assert!(!section.same(&all, &default, key), "ALL_KEYS has the default of {section:?} {key}");
        let mut without: toml::Table = ALL_KEYS.parse().unwrap();
        let value = without[section.name()].as_table_mut().unwrap().remove(key).unwrap();
        let draft = Edit::Section(*section, Draft::Json(json!({ key: value })));
        let saved =
            edit(&without.to_string(), &draft, &[]).unwrap_or_else(|error| panic!("{key}: {error:?}"));
        assert_eq!(live(&saved), all, "{saved}");
    }
    // A variable that sets another key is in nobody's way.
    let variables = [("GATEHOUSE__REGISTRATION__REQUIRE", "[]")];
    let mode = Edit::Section(LiveSection::Registration, Draft::Json(json!({ "mode": "closed" })));
    let saved = edit(ALL_KEYS, &mode, &variables).unwrap();
    assert_eq!(saved, ALL_KEYS.replace("\"invite\"", "\"closed\""));
}
