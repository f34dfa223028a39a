//! `[access]`: what it accepts, what it refuses and why.

use std::time::Duration;

use super::{read, read_with, refusal};
use crate::clock::Micros;
use crate::config::{AccessSettings, LimitName, LiveHandle};

const END: &str = "2026-12-01T00:00:00Z";

/// An entry of `deny` alone.
fn deny(network: &str) -> String {
    format!("[access]\ndeny = [{{ network = \"{network}\", until = \"{END}\", reason = \"an attack\" }}]\n")
}

fn told(network: &str) -> String {
    let message = refusal(&deny(network));
    let lead = "gatehouse.toml:2: access.deny[0].network: ";
    message.strip_prefix(lead).unwrap_or_else(|| panic!("{message}")).to_owned()
}

#[test]
fn access_is_read_with_times_in_any_zone_and_networks_as_they_are_compared() {
    let text = "[access]\nchallenge_everyone_until = \"2026-12-01T08:00:00+08:00\"\n\
        deny = [{ network = \"::ffff:203.0.113.0/120\", until = \"2026-12-01T00:00:00.5Z\", reason = \" an attack \" }]\n\
        allow = [{ network = \"2001:db8::7\", until = \"1999-01-01T00:00:00Z\", reason = \"办公室\" }]\n\
        pause_sms = [{ prefix = \"+86138\", until = \"2026-12-01T00:00:00Z\", reason = \"pumping\" }]\n";
    let access = read(text).expect("valid").live.access;
    let settings = access.settings();
    let end = Micros(1_796_083_200_000_000);
    assert_eq!(settings.challenge_everyone_until, Some(end));
    assert_eq!(settings.deny[0].subject.to_string(), "203.0.113.0/24");
    assert_eq!(settings.deny[0].until, end.plus(Duration::from_millis(500)));
    assert_eq!(settings.deny[0].reason, "an attack");
    assert_eq!(settings.allow[0].network.to_string(), "2001:db8::7/128", "what has ended stays valid");
    assert_eq!((settings.pause_sms[0].prefix.as_str(), settings.pause_sms[0].until), ("+86138", end));
    let again = read(&settings.toml()).expect("what is written is valid").live.access;
    assert_eq!(again.settings(), settings);
}

#[test]
fn without_entries_nothing_is_written_and_nothing_is_looked_up() {
    let access = read("[access]\nchallenge_everyone_until = \"\"\n").expect("valid").live.access;
    assert!(access.settings().is_empty());
    assert_eq!(AccessSettings::default().toml(), "");
}

#[test]
fn a_network_that_would_hit_more_than_one_provider_is_refused() {
    assert!(told("0.0.0.0/0").starts_with("0.0.0.0/0 covers every address"));
    assert!(told("::/0").starts_with("::/0 covers every address"));
    assert!(told("8.0.0.0/7").contains("too wide; the widest IPv4 network is a /8"));
    assert!(told("2000::/18").contains("too wide; the widest IPv6 network is a /19"));
    for widest in ["8.0.0.0/8", "2003::/19", "203.0.113.7", "2001:db8::1"] {
        read(&deny(widest)).unwrap_or_else(|error| panic!("{widest}: {error}"));
    }
}

#[test]
fn a_network_is_spelt_without_host_bits_and_the_right_spelling_is_told() {
    assert!(told("203.0.113.7/24").contains("write 203.0.113.0/24 for the network, or 203.0.113.7/32"));
    assert!(told("2001:db8::1/64").contains("write 2001:db8::/64 for the network"));
    assert!(told("::ffff:203.0.113.7/120").contains("write 203.0.113.0/24"));
    for nonsense in ["", "office", "203.0.113.0/33", "203.0.113/24", "203.0.113.0-9"] {
        assert!(told(nonsense).contains("is not a network"), "{nonsense}");
    }
}

#[test]
fn the_proxies_and_what_contains_them_are_never_refused_or_exempt() {
    let proxies = "[server]\ntrusted_proxies = [\"10.1.0.0/16\", \"::ffff:192.0.2.1\"]\n";
    for list in ["deny", "allow"] {
        for network in ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3", "192.0.2.0/24", "192.0.2.1"] {
            let text = format!("{proxies}{}", deny(network).replace("deny", list));
            let message = refusal(&text);
            assert!(
                message.starts_with(&format!("gatehouse.toml:4: access.{list}[0].network: ")),
                "{message}"
            );
            assert!(message.contains("in server.trusted_proxies"), "{message}");
        }
        read(&format!("{proxies}{}", deny("10.2.0.0/16").replace("deny", list))).expect("beside them");
    }
}

#[test]
fn every_entry_says_until_when_and_why() {
    let entry = |inside: &str| refusal(&format!("access.deny = [{{ {inside} }}]"));
    let missing = entry("");
    for key in ["network", "until", "reason"] {
        assert!(missing.contains(&format!("access.deny[0].{key}: is missing")), "{missing}");
    }
    let with = |until: &str, reason: &str| {
        entry(&format!("network = '203.0.113.0/24', until = '{until}', reason = '{reason}'"))
    };
    for time in ["", "tomorrow", "2026-12-01", "2026-12-01T00:00:00", "2026-13-01T00:00:00Z", "1h"] {
        let message = with(time, "why");
        assert!(
            message.contains("access.deny[0].until: ") && message.contains("RFC 3339"),
            "{time}: {message}"
        );
    }
    assert!(with(END, " ").contains("access.deny[0].reason: is empty"));
    assert!(with(END, &"字".repeat(201)).contains("access.deny[0].reason: has 201 characters"));
    let control = refusal(&deny("203.0.113.0/24").replace("an attack", "a\\u0007b"));
    assert!(
        control.contains("access.deny[0].reason: contains a line break or another character"),
        "{control}"
    );
    let unseen = refusal(&deny("203.0.113.0/24").replace("an attack", "a\\u3164b"));
    assert!(unseen.contains("access.deny[0].reason: contains a line break or another character"), "{unseen}");
    assert!(entry("colour = 1").contains("access.deny[0].colour: is not a setting"));
    assert!(refusal("access.challenge_everyone_until = 'soon'").contains("RFC 3339"));
    assert!(refusal("access.denyy = []").contains("did you mean deny?"));
    assert!(refusal("access.deny = 'all'").contains("must be a list"));
}

#[test]
fn a_prefix_is_a_plus_and_digits() {
    let pause = |prefix: &str| {
        format!("access.pause_sms = [{{ prefix = '{prefix}', until = '{END}', reason = 'pumping' }}]")
    };
    for wrong in ["", "+", "86138", "+86 138", "+86-138", "+8613800138000123", "+８６", "++86", "*"] {
        let message = refusal(&pause(wrong));
        assert!(message.contains("access.pause_sms[0].prefix: "), "{wrong}: {message}");
    }
    for right in ["+1", "+86138", "+861380013800012"] {
        read(&pause(right)).unwrap_or_else(|error| panic!("{right}: {error}"));
    }
}

#[test]
fn a_list_has_at_most_a_thousand_entries() {
    let list = |count: usize| {
        let entry = |n: usize| {
            format!("{{ network = '10.{}.{}.0/24', until = '{END}', reason = 'r' }}", n / 250, n % 250)
        };
        format!("access.deny = [{}]", (0..count).map(entry).collect::<Vec<_>>().join(", "))
    };
    read(&list(1_000)).expect("a thousand");
    let message = refusal(&list(1_001));
    assert!(message.contains("access.deny: has 1001 entries; at most 1000 are allowed"), "{message}");
}

#[test]
fn a_variable_sets_access_too() {
    let entry = format!("[{{ network = '203.0.113.0/24', until = '{END}', reason = 'r' }}]");
    let config = read_with("", &[("GATEHOUSE__ACCESS__DENY", &entry)]).expect("valid");
    assert_eq!(config.live.access.settings().deny.len(), 1);
}

#[test]
fn an_exempt_client_has_tenfold_limits_of_addresses_and_networks_and_no_others() {
    let text = format!(
        "{}[limits.login-network]\nrules = [{{ max = 200000, window = \"1h\", then = \"captcha\" }}]\n",
        deny("203.0.113.0/24").replace("deny", "allow")
    );
    let handle = LiveHandle::fixed(read(&text).expect("valid").live);
    let now = Micros(0);
    let own = handle.snapshot_for("203.0.113.9".parse().unwrap(), now);
    let others = handle.snapshot_for("203.0.114.9".parse().unwrap(), now);
    assert_eq!(*others, *handle.snapshot());
    let lifted = [
        LimitName::LoginAddress,
        LimitName::LoginNetwork,
        LimitName::OidcAddress,
        LimitName::GuardAddress,
        LimitName::GuardNetwork,
        LimitName::RegisterAddress,
        LimitName::CaptchaAddress,
        LimitName::CaptchaNetwork,
        LimitName::SmsAddress,
        LimitName::SmsNetwork,
        LimitName::ProgramAddress,
        LimitName::ProgramNetwork,
        LimitName::MailAddress,
        LimitName::MailNetwork,
    ];
    for name in LimitName::ALL {
        let (mine, theirs) =
            (own.limits.get(name.as_str()).unwrap(), others.limits.get(name.as_str()).unwrap());
        let expected = |max: u32| if lifted.contains(name) { (max * 10).min(1_000_000) } else { max };
        for (mine, theirs) in mine.rules().iter().zip(theirs.rules()) {
            assert_eq!(mine.max, expected(theirs.max), "{name:?}");
            assert_eq!((&mine.span, mine.then), (&theirs.span, theirs.then), "{name:?}");
        }
        assert_eq!(mine.capacity(), theirs.capacity(), "{name:?}: both use the same logs");
        assert_eq!(mine.tag(), theirs.tag(), "{name:?}");
    }
    let ended = handle.snapshot_for("203.0.113.9".parse().unwrap(), Micros(1_796_083_200_000_000));
    assert_eq!(*ended, *others, "it ends at its time");
}

fn origin(key: &str, value: &str) -> String {
    format!("{key} = [{{ origin = \"{value}\", until = \"{END}\", reason = \"an attack\" }}]\n")
}

#[test]
fn an_origin_is_read_and_written_as_it_stands() {
    let entries = ["asn:64496", "country:de", "list:tor"]
        .map(|value| format!("{{ origin = \"{value}\", until = \"{END}\", reason = \"an attack\" }}"));
    let settings = read(&format!("[access]\ndeny = [{}]\n", entries.join(", "))).unwrap().live.access;
    let settings = settings.settings();
    let told: Vec<_> = settings.deny.iter().map(|entry| entry.subject.to_string()).collect();
    assert_eq!(told, ["asn:64496", "country:DE", "list:tor"]);
    let again = read(&settings.toml()).expect("what is written is valid").live.access;
    assert_eq!(again.settings(), settings);
    assert_eq!(settings.json()["deny"][0]["origin"], "asn:64496");
    assert!(settings.json()["deny"][0].get("network").is_none());
}

#[test]
fn a_list_must_be_there_where_the_document_has_lists() {
    let lists = "[origins]\nlists = [{ name = \"tor\", file = \"tor.txt\" }]\n";
    read(&format!("{lists}[access]\n{}", origin("deny", "list:tor"))).expect("it is there");
    let message = refusal(&format!("{lists}[access]\n{}", origin("deny", "list:vpn")));
    assert!(message.contains("access.deny[0].origin: list:vpn names no list of origins.lists"), "{message}");
    read(&format!("[access]\n{}", origin("deny", "list:vpn"))).expect("the lists may be elsewhere");
    let message = refusal(&format!("[access]\n{}", origin("allow", "asn:64496")));
    assert!(message.contains("access.allow[0].origin: is for deny alone"), "{message}");
    assert!(!message.contains("is missing"), "{message}");
}

#[test]
fn the_files_of_origins_are_named_once() {
    let config =
        read("[origins]\nasn = \"a.mmdb\"\ncountry = \"\"\nlists = [{ name = \"tor\", file = \"t\" }]\n");
    let files = config.expect("valid").live.origins.files();
    let told: Vec<_> = files.iter().map(|(source, path)| format!("{source}: {}", path.display())).collect();
    assert_eq!(told, ["origins.asn: a.mmdb", "origins.lists: tor: t"]);
    for (lists, told) in [
        ("{ name = \"tor\", file = \"a\" }, { name = \"tor\", file = \"b\" }", "two lists with the name"),
        ("{ name = \"Tor\", file = \"a\" }", "origins.lists[0].name: \"Tor\" is no name of a list"),
        ("{ name = \"tor\" }", "origins.lists[0].file: is missing"),
        ("{ file = \"a\" }", "origins.lists[0].name: is missing"),
    ] {
        let message = refusal(&format!("[origins]\nlists = [{lists}]\n"));
        assert!(message.contains(told), "{message}");
    }
}
