use gatehouse_limiter::middleware::{ClientAddress, TrustedProxies};
use std::time::Duration;

use serde_json::{Value, json};

use super::tests::{edit, source};
use super::*;
use crate::clock::Micros;
use crate::config::AccessSettings;

/// 2026-03-01 12:00 UTC.
const NOW: Micros = Micros(1_772_366_400_000_000);
const LATER: &str = "2026-03-01T13:00:00Z";
const EARLIER: &str = "2026-03-01T11:00:00Z";

const DOCUMENT: &str = r#"# Ours.
[server]
trusted_proxies = ["10.0.0.0/16"]

[access] # answers
# The office.
allow = [{ network = "198.51.100.7/32", until = "2026-03-01T11:00:00Z", reason = "it has ended" }] # theirs
pause_sms = []

[limits.sms-phone]
rules = []
"#;

fn settings(document: &str, variables: &[(&str, &str)]) -> AccessSettings {
    let source = source(variables);
    source.read(source.tree(document).unwrap()).unwrap().live.access.settings().clone()
}

fn saver() -> AccessSaver {
    let address = ClientAddress::at("192.0.2.1".parse().unwrap(), &TrustedProxies::default());
    AccessSaver { address, now: NOW }
}

fn put_with(document: &str, draft: &Value, variables: &[(&str, &str)]) -> Result<String, SaveError> {
    edit(document, &Edit::Access(draft.clone(), saver()), variables)
}

fn put(document: &str, draft: &Value) -> Result<String, SaveError> {
    put_with(document, draft, &[])
}

fn entry(network: &str, until: &str) -> Value {
    json!({ "network": network, "until": until, "reason": "an attack" })
}

/// The field and the message of the first mistake.
fn mistake(refused: Result<String, SaveError>) -> (String, String) {
    match refused {
        Err(SaveError::Invalid(errors)) => (errors[0].field.clone(), errors[0].message.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_entry_is_written_a_line_and_everything_else_stays() {
    let draft = json!({ "deny": [entry("203.0.113.0/24", LATER), entry("2001:db8::/32", LATER)] });
    let out = put(DOCUMENT, &draft).unwrap();
    let wanted = DOCUMENT
        .replace(
            "allow = [{ network = \"198.51.100.7/32\", until = \"2026-03-01T11:00:00Z\", reason = \"it has ended\" }] # theirs",
            "allow = [] # theirs",
        )
        .replace(
            "pause_sms = []\n",
            "pause_sms = []\ndeny = [\n    { network = \"203.0.113.0/24\", until = \"2026-03-01T13:00:00Z\", reason = \"an attack\" },\n    \
             { network = \"2001:db8::/32\", until = \"2026-03-01T13:00:00Z\", reason = \"an attack\" },\n]\n",
        );
    assert_eq!(out, wanted);
    let none = put(&out, &json!({})).unwrap();
    assert!(settings(&none, &[]).is_empty(), "{none}");
    assert!(none.contains("# The office.") && none.contains("[limits.sms-phone]"), "{none}");
}

#[test]
fn a_document_takes_it_in_whatever_shape_it_stands_there() {
    let draft = json!({
        "deny": [entry("203.0.113.0/24", LATER)],
        "challenge_everyone_until": LATER,
        "pause_sms": [{ "prefix": "+86138", "until": LATER, "reason": "\"quoted\" \\ and 引号" }],
    });
    for document in [
        "",
        "# A comment.\n",
        "[server]\nworkers = 2\n",
        "access = {}\n[server]\nworkers = 2\n",
        "access.deny = []\n[server]\nworkers = 2\n",
        "access.challenge_everyone_until = \"\"\n",
        "[[access.deny]]\nnetwork = \"192.0.2.9\"\nuntil = \"2026-03-01T13:00:00Z\"\nreason = \"r\"\n\n[server]\nworkers = 2\n",
        "[access]\n[[access.deny]]\nnetwork = \"192.0.2.9\"\nuntil = \"2026-03-01T13:00:00Z\"\nreason = \"r\"\n",
    ] {
        let out = put(document, &draft).unwrap_or_else(|error| panic!("{document}: {error:?}"));
        let written = settings(&out, &[]);
        assert_eq!((written.deny.len(), written.pause_sms.len()), (1, 1), "{out}");
        assert_eq!(written.challenge_everyone_until, Some(NOW.plus(Duration::from_secs(3600))), "{out}");
        assert!(out.contains("workers = 2") == document.contains("workers = 2"), "{out}");
        assert_eq!(put(&out, &draft).unwrap(), out, "the same again changes nothing");
    }
    let windows = put("\u{feff}[server]\r\nworkers = 2\r\n", &draft).unwrap();
    assert!(windows.starts_with("\u{feff}[server]\r\n") && !windows.replace("\r\n", "").contains('\n'));
}

#[test]
fn what_has_ended_is_dropped_if_it_was_there_and_refused_if_it_is_new() {
    let stood = json!({ "network": "198.51.100.7/32", "until": EARLIER, "reason": "it has ended" });
    let out = put(DOCUMENT, &json!({ "allow": [stood, entry("198.51.100.8", LATER)] })).unwrap();
    assert_eq!(settings(&out, &[]).allow.len(), 1, "{out}");
    for (draft, field) in [
        (
            json!({ "deny": [entry("203.0.113.0/24", LATER), entry("203.0.114.0/24", EARLIER)] }),
            "deny[1].until",
        ),
        (json!({ "allow": [entry("203.0.113.0/24", EARLIER)] }), "allow[0].until"),
        (json!({ "challenge_everyone_until": EARLIER }), "challenge_everyone_until"),
        (json!({ "pause_sms": [{ "prefix": "+1", "until": EARLIER, "reason": "r" }] }), "pause_sms[0].until"),
    ] {
        let (told, message) = mistake(put(DOCUMENT, &draft));
        assert_eq!(told, field);
        assert!(message.contains("has passed"), "{message}");
    }
}

#[test]
fn nobody_refuses_themselves_or_a_proxy() {
    let (field, message) = mistake(put(DOCUMENT, &json!({ "deny": [entry("192.0.2.0/24", LATER)] })));
    assert_eq!(field, "deny[0].network");
    assert!(message.contains("the address that you save from"), "{message}");
    put(DOCUMENT, &json!({ "allow": [entry("192.0.2.0/24", LATER)] })).expect("their own is exempt");
    let stood = "[access]\ndeny = [{ network = \"192.0.2.0/24\", until = \"2026-03-01T13:00:00Z\", reason = \"an attack\" }]\n";
    let both = json!({ "deny": [entry("192.0.2.0/24", LATER), entry("203.0.113.0/24", LATER)] });
    put(stood, &both).expect("somebody else has refused them, and they change something else");
    let draft = json!({ "deny": [entry("203.0.113.0/24", LATER), entry("10.0.0.0/8", LATER)] });
    let (field, message) = mistake(put(DOCUMENT, &draft));
    assert_eq!(field, "deny[1].network");
    assert!(message.contains("server.trusted_proxies"), "{message}");
}

#[test]
fn mistakes_are_told_at_their_entries() {
    for (draft, field) in [
        (json!({ "deny": [entry("203.0.113.7/24", LATER)] }), "deny[0].network"),
        (json!({ "deny": [{ "network": "203.0.113.0/24", "until": LATER }] }), "deny[0].reason"),
        (json!({ "deny": [7] }), "deny[0]"),
        (json!({ "deny": {} }), "deny"),
        (json!({ "colour": 1 }), "colour"),
        (json!({ "challenge_everyone_until": 7 }), "challenge_everyone_until"),
        (json!({ "pause_sms": [{ "prefix": "86", "until": LATER, "reason": "r" }] }), "pause_sms[0].prefix"),
        (json!([]), "access"),
    ] {
        assert_eq!(mistake(put(DOCUMENT, &draft)).0, field, "{draft}");
    }
}

#[test]
fn what_a_variable_sets_stays_or_is_refused() {
    let variables = [(
        "GATEHOUSE__ACCESS__DENY",
        "[{ network = '203.0.113.0/24', until = '2026-03-01T13:00:00Z', reason = 'an attack' }]",
    )];
    let as_shown = json!({ "deny": [entry("203.0.113.0/24", LATER)], "challenge_everyone_until": LATER });
    let out = put_with(DOCUMENT, &as_shown, &variables).unwrap();
    assert!(!out.contains("deny") && out.contains("challenge_everyone_until"), "{out}");
    let as_it_stands = put_with(DOCUMENT, &json!({ "deny": [] }), &variables).unwrap();
    assert!(!as_it_stands.contains("deny"), "{as_it_stands}");
    let (field, message) =
        mistake(put_with(DOCUMENT, &json!({ "deny": [entry("203.0.114.0/24", LATER)] }), &variables));
    assert_eq!(field, "deny");
    assert!(message.contains("environment variable"), "{message}");
}

#[test]
fn a_mistake_elsewhere_in_the_document_is_not_this_drafts() {
    let broken = format!("{DOCUMENT}[password]\nqueue = 0\n");
    let refused = put(&broken, &json!({ "challenge_everyone_until": LATER })).unwrap_err();
    assert!(matches!(&refused, SaveError::Backend(why) if why.contains("password.queue")), "{refused:?}");
}

/// Pages send all of it back with one answer more or less.
#[test]
fn what_is_told_of_it_has_every_key() {
    let told = AccessSettings::default().json();
    assert!(crate::config::access::KEYS.iter().all(|key| told.get(key).is_some()), "{told}");
}
