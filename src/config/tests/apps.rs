//! `[[apps]]`: what it accepts, what it refuses and why.

use std::path::Path;
use std::time::Duration;

use super::{read, refusal};
use crate::config::source::BackendRead;
use crate::config::{
    App, AskedPath, BackendKind, ConfigSource, Draft, Edit, LiveHandle, LiveSection, PathPattern, SaveError,
    Who,
};

const WIKI: &str = "[[apps]]\nname = \"wiki\"\nhosts = [\"wiki.example\", \"notes.test:8443\"]\n\
    who = [\"everyone\", \"group:on-call\", \"ada\"]\npublic = [\"/health\", \"/static/*\"]\n\
    parts = [{ path = \"/admin/*\", who = [\"group:staff\"], signed_in_within = \"8h\", password_within = \"15m\" }]\n";

/// With one line more, or another one instead of the line of the same key.
fn with(line: &str) -> String {
    let key = line.split(' ').next().unwrap();
    let kept = "[[apps]]\nname = \"wiki\"\nhosts = [\"wiki.example\"]".lines();
    let kept: Vec<_> = kept.filter(|other| other.split(' ').next() != Some(key)).collect();
    format!("{}\n{line}\n", kept.join("\n"))
}

fn told(line: &str) -> String {
    refusal(&with(line))
}

#[test]
fn an_application_is_found_by_its_hosts() {
    let apps = read(WIKI).expect("valid").live.apps;
    let App { name, who, public, parts, .. } = &*apps.all()[0];
    assert_eq!(name, "wiki");
    assert_eq!(who, &[Who::Everyone, Who::Group("on-call".to_owned()), Who::Name("ada".to_owned())]);
    assert_eq!(public.iter().map(ToString::to_string).collect::<Vec<_>>(), ["/health", "/static/*"]);
    assert_eq!(parts[0].who, Some(vec![Who::Group("staff".to_owned())]));
    assert_eq!(parts[0].signed_in_within, Some(Duration::from_secs(8 * 3600)));
    assert_eq!(parts[0].password_within, Some(Duration::from_secs(15 * 60)));
    for host in ["wiki.example", "notes.test:8443", "WIKI.example"] {
        assert!(apps.at(host).is_some(), "{host}");
    }
    for other in ["", "example", "wiki.example.", "wiki.example:443", "a.wiki.example", "notes.test"] {
        assert!(apps.at(other).is_none(), "{other}");
    }
    assert!(apps.names("ada") && !apps.names("on-call") && !apps.names("everyone"));
}

#[test]
fn without_who_nobody_may_use_it() {
    let apps = read(&with("public = []")).expect("valid").live.apps;
    assert_eq!((&apps.all()[0].who, apps.all()[0].parts.len()), (&Vec::new(), 0));
}

#[test]
fn a_host_is_written_as_browsers_send_it() {
    for host in ["wiki.example", "127.0.0.2:3000", "[::1]:8443", "xn--fiqs8s", "a-b.c9"] {
        read(&with(&format!("hosts = [\"{host}\"]"))).unwrap_or_else(|error| panic!("{error}"));
    }
    for (host, reason) in [
        ("Wiki.example", "write \"wiki.example\""),
        ("wiki.example:443", "is sent by browsers as \"wiki.example\""),
        ("wiki.example:80", "is sent by browsers as \"wiki.example\""),
        ("https://wiki.example", "is not a host"),
        ("wiki.example/", "is not a host"),
        ("wiki.example.", "is not a host"),
        ("*.example", "is not a host"),
        ("a b", "is not a host"),
        ("维基", "is not a host"),
        ("", "is not a host"),
        ("127.1", "is sent by browsers as \"127.0.0.1\""),
        ("127.0.0.1:8080", "is the name of server.public_url"),
        ("127.0.0.1:3000", "is the name of server.public_url"),
    ] {
        let message = told(&format!("hosts = [\"{host}\"]"));
        assert!(message.contains("apps[0].hosts[0]: ") && message.contains(reason), "{message}");
    }
    assert!(
        told("hosts = []").contains("apps[0].hosts: is missing; name the hosts"),
        "{}",
        told("hosts = []")
    );
}

#[test]
fn who_and_paths_are_read_strictly() {
    for (line, field, reason) in [
        ("name = \" \"", "apps[0].name", "is not a name"),
        ("who = [\"Ada\"]", "apps[0].who[0]", "is nobody"),
        ("who = [\"*\"]", "apps[0].who[0]", "is nobody"),
        ("who = [\"group:Staff\"]", "apps[0].who[0]", "is not a group"),
        ("who = [\"group:\"]", "apps[0].who[0]", "is not a group"),
        ("public = [\"static\"]", "apps[0].public[0]", "is not a path"),
        ("public = [\"/a*\"]", "apps[0].public[0]", "is not a path"),
        ("public = [\"/*/a\"]", "apps[0].public[0]", "is not a path"),
        ("public = [\"/a/../b\"]", "apps[0].public[0]", "is not a path"),
        ("public = [\"/%61\"]", "apps[0].public[0]", "is not a path"),
        ("public = [\"/a?b\"]", "apps[0].public[0]", "is not a path"),
        ("public = [\"//a\"]", "apps[0].public[0]", "is not a path"),
        ("parts = [{ path = \"/a\" }]", "apps[0].parts[0]", "requires nothing"),
        ("parts = [{ who = [] }]", "apps[0].parts[0].path", "is missing"),
        (
            "parts = [{ path = \"/a\", signed_in_within = \"1s\" }]",
            "apps[0].parts[0].signed_in_within",
            "it must be from 1m to 30days",
        ),
        ("secret = 1", "apps[0].secret", "allowed here: name, hosts, who, public, parts"),
    ] {
        let message = told(line);
        assert!(message.contains(&format!("{field}: ")) && message.contains(reason), "{line}: {message}");
    }
}

#[test]
fn no_host_and_no_name_belongs_to_two() {
    let twice = refusal(&format!("{}{}", with("who = []"), with("who = []")));
    assert!(twice.contains("apps[1].name: \"wiki\" is the name of another"), "{twice}");
    assert!(twice.contains("apps[1].hosts: \"wiki.example\" is listed twice"), "{twice}");
    let ports = told("hosts = [\"wiki.example\", \"wiki.example:8443\"]");
    assert!(ports.contains("apps[0].hosts: \"wiki.example\" is listed twice"), "{ports}");
}

#[test]
fn neither_an_application_nor_a_part_lists_more_than_can_be_counted() {
    let who = |count: usize| {
        let groups: Vec<_> = (0..count).map(|number| format!("\"group:g{number}\"")).collect();
        format!("who = [{}]", groups.join(", "))
    };
    let part = |count| format!("parts = [{{ path = \"/a\", {} }}]", who(count));
    assert!(read(&with(&who(200))).is_ok() && read(&with(&part(200))).is_ok());
    for (line, field) in [(who(201), "apps[0].who"), (part(201), "apps[0].parts[0].who")] {
        let message = told(&line);
        let reason = format!("{field}: has 201 entries; at most 200 are allowed");
        assert!(message.contains(&reason), "{message}");
    }
}

#[test]
fn no_draft_gets_the_host_that_is_ours_until_the_restart() {
    let source = ConfigSource::optional(Path::new("gatehouse.toml"), Vec::new());
    let at = |host: &str| {
        let server = format!("public_url = \"https://{host}\"\ntrusted_proxies = [\"127.0.0.1/32\"]\n");
        source
            .interpret(&BackendRead::Bytes(format!("[server]\n{server}").into_bytes()), None)
            .expect("valid")
    };
    let live = LiveHandle::new(at("id.example"), source.clone(), BackendKind::File);
    let moved = at("new.example");
    live.replace(moved.config.live, moved.fingerprint, moved.document);
    let draft = |host: &str| {
        let draft = format!("[[apps]]\nname = \"a\"\nhosts = [\"{host}\"]\n");
        live.check(Edit::Section(LiveSection::Apps, Draft::Toml(draft))).map_err(SaveError::into_errors)
    };
    // The second is refused by the document, which knows no line of the draft.
    for (host, line) in [("id.example", Some(3)), ("new.example", None)] {
        let errors = draft(host).expect_err("a refusal");
        assert_eq!((errors[0].field.as_str(), errors[0].line), ("apps[0].hosts[0]", line), "{host}");
    }
    assert!(draft("a.example").is_ok());
}

/// A trial takes examples to be plain without looking: that was most of what it computed.
#[test]
fn an_example_of_what_a_pattern_covers_is_plain() {
    let patterns = ["/", "/*", "/health", "/a~/*", "/a.b/~c:d/*", "/.well-known/x"];
    let examples = patterns.map(|pattern| PathPattern::parse(pattern).unwrap().example());
    for example in examples.into_iter().chain([PathPattern::unmatched_example()]) {
        assert_eq!(AskedPath::of(&example), AskedPath::Plain(&example));
    }
}
