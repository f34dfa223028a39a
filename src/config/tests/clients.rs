//! `[apps.oidc]`: what it accepts and refuses, and which addresses a client may name.

use super::{read, refusal};
use crate::config::{Apps, Consent, EmailSource, OidcClient, Pkce, RedirectUri};

/// A file with a secret, and how the document names it.
struct Secret(tempfile::TempDir);

impl Secret {
    fn of(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), text).unwrap();
        Self(folder)
    }

    fn name(&self) -> String {
        format!("file:{}", self.0.path().join("secret").display())
    }
}

/// An application with these lines in `[apps.oidc]`.
fn with(lines: &str) -> String {
    let uris = if lines.contains("redirect_uris =") && !lines.contains("post_") {
        ""
    } else {
        "redirect_uris = [\"https://app.example/cb\"]\n"
    };
    format!("[[apps]]\nname = \"grafana\"\n[apps.oidc]\n{uris}{lines}\n")
}

fn apps(text: &str) -> Apps {
    read(text).unwrap_or_else(|error| panic!("{text}: {error}")).live.apps
}

fn client(lines: &str) -> OidcClient {
    let apps = apps(&with(lines));
    apps.client("grafana").unwrap_or_else(|| panic!("{lines}")).1.clone()
}

fn registered(uris: &[&str]) -> OidcClient {
    client(&format!("redirect_uris = {uris:?}"))
}

#[test]
fn a_client_has_safe_defaults() {
    let apps = apps(&with(""));
    let (app, client) = apps.client("grafana").unwrap();
    assert!(app.hosts.is_empty() && client.is_public() && !client.is_native() && !client.allow_private);
    assert_eq!((client.pkce, client.consent), (Pkce::Required, Consent::None));
    assert!(client.post_logout_redirect_uris.is_empty() && client.backchannel_logout_uri.is_none());
    assert!(client.tells("staff") && !client.has_odd_http() && !client.lacks_secret());
    for other in ["", "Grafana", "grafana ", "wiki"] {
        assert!(apps.client(other).is_none(), "{other:?}");
    }
    assert!(read(&with("")).unwrap().warnings.is_empty());
}

#[test]
fn every_key_is_read_and_written_as_the_document_takes_it() {
    let secret = Secret::of("correct horse battery staple\n");
    let lines = format!(
        "client_id = \"dash\"\nsecret = \"{}\"\nredirect_uris = [\"https://a.example/cb?x=1\", \"https://a.example\"]\n\
         post_logout_redirect_uris = [\"https://a.example/bye\"]\nbackchannel_logout_uri = \"http://10.0.0.7/out\"\n\
         allow_private = true\npkce = \"optional\"\nconsent = \"once\"\nemail = \"verified\"\ngroups = [\"staff\", \"team-*\"]",
        secret.name()
    );
    let text = format!("[[apps]]\nname = \"grafana\"\nhosts = [\"a.example\"]\n[apps.oidc]\n{lines}\n");
    let read = apps(&text);
    let (app, client) = read.client("dash").unwrap();
    assert_eq!((app.name.as_str(), app.hosts.len()), ("grafana", 1));
    assert!(!client.is_public() && !client.is_native());
    assert_eq!((client.pkce, client.consent), (Pkce::Optional, Consent::Once));
    assert_eq!(client.email, EmailSource::Verified);
    for (group, told) in
        [("staff", true), ("staff-2", false), ("team-", true), ("team-a", true), ("team", false)]
    {
        assert_eq!(client.tells(group), told, "{group}");
    }
    let shown = serde_json::to_value(&**app).unwrap();
    assert_eq!(shown["oidc"]["secret"], secret.name());
    let again = toml::to_string(&serde_json::json!({ "apps": [shown] })).unwrap();
    assert_eq!(apps(&again), read, "{again}");
    // The defaults are left out.
    let plain = serde_json::to_value(registered(&["https://app.example/cb"])).unwrap();
    let expected = serde_json::json!({ "client_id": "grafana", "redirect_uris": ["https://app.example/cb"] });
    assert_eq!(plain, expected);
}

#[test]
fn a_secret_is_compared_whole_and_shown_nowhere() {
    let secret = Secret::of("correct horse battery staple\n");
    let client = client(&format!("secret = \"{}\"", secret.name()));
    assert!(client.secret_matches(b"correct horse battery staple"));
    for wrong in
        ["", "correct horse battery", "correct horse battery staple\n", "Correct horse battery staple"]
    {
        assert!(!client.secret_matches(wrong.as_bytes()), "{wrong:?}");
    }
    assert!(!registered(&["https://a.example/"]).secret_matches(b""), "a public client has none");
    let shown = format!("{client:?}{}", serde_json::to_string(&client).unwrap());
    assert!(!shown.contains("horse") && shown.contains("secret"), "{shown}");
}

#[test]
fn a_secret_that_cannot_be_read_is_warned_of_and_matches_nothing() {
    let (short, long) = (Secret::of("fifteen letters"), Secret::of(&"x".repeat(513)));
    let (odd, two) = (Secret::of("sixteen létters, yes"), Secret::of("sixteen characters\nand more"));
    for (named, told) in [
        (
            "env:GATEHOUSE_TEST_NOT_SET".to_owned(),
            "environment variable GATEHOUSE_TEST_NOT_SET, which is not set",
        ),
        ("file:/does/not/exist".to_owned(), "is not one line of 16 to 512 printable"),
        (short.name(), "is not one line of 16 to 512 printable"),
        (long.name(), "is not one line of 16 to 512 printable"),
        (odd.name(), "is not one line of 16 to 512 printable"),
        (two.name(), "is not one line of 16 to 512 printable"),
    ] {
        let config = read(&with(&format!("secret = \"{named}\""))).expect("in force all the same");
        let [warning] = &config.warnings[..] else { panic!("{named}: {:?}", config.warnings) };
        let warning = warning.to_string();
        assert!(warning.starts_with("gatehouse.toml:5: apps[0].oidc.secret: "), "{warning}");
        assert!(warning.contains(told) && !warning.contains("letters"), "{warning}");
        let client = config.live.apps.client("grafana").unwrap().1.clone();
        assert!(client.lacks_secret() && !client.is_public());
        for given in ["", "fifteen letters", "env:GATEHOUSE_TEST_NOT_SET"] {
            assert!(!client.secret_matches(given.as_bytes()), "{named}: {given}");
        }
    }
}

#[test]
fn what_is_wrong_is_told_at_its_field() {
    let secret = Secret::of("correct horse battery staple");
    let confidential = |more: &str| format!("secret = \"{}\"\n{more}", secret.name());
    for (lines, field, reason) in [
        ("client_id = \"\"".to_owned(), "client_id", "is not an id"),
        ("client_id = \"a:b\"".to_owned(), "client_id", "is not an id"),
        ("client_id = \"a b\"".to_owned(), "client_id", "is not an id"),
        ("client_id = \"é\"".to_owned(), "client_id", "is not an id"),
        (format!("client_id = \"{}\"", "x".repeat(65)), "client_id", "is not an id"),
        ("secret = \"hunter2hunter2hunter2\"".to_owned(), "secret", "contains the secret itself"),
        ("redirect_uris = []".to_owned(), "redirect_uris", "is missing"),
        ("redirect_uris = [\"x\"]".to_owned(), "redirect_uris[0]", "is not an address"),
        (
            "post_logout_redirect_uris = [\"https://a.example/*\"]".to_owned(),
            "post_logout_redirect_uris[0]",
            "wildcard",
        ),
        (
            "backchannel_logout_uri = \"ftp://a.example\"".to_owned(),
            "backchannel_logout_uri",
            "must be http or https",
        ),
        (
            "backchannel_logout_uri = \"https://a.example/#x\"".to_owned(),
            "backchannel_logout_uri",
            "has a fragment",
        ),
        (
            "backchannel_logout_uri = \"http://a.example/\"".to_owned(),
            "backchannel_logout_uri",
            "set allow_private",
        ),
        (
            "backchannel_logout_uri = \"https://10.0.0.1/\"".to_owned(),
            "backchannel_logout_uri",
            "set allow_private",
        ),
        (
            "backchannel_logout_uri = \"https://[fd00::1]/\"".to_owned(),
            "backchannel_logout_uri",
            "set allow_private",
        ),
        ("pkce = \"optional\"".to_owned(), "pkce", "without a secret"),
        ("pkce = \"plain\"".to_owned(), "pkce", "use one of: required, optional"),
        ("consent = \"always\"".to_owned(), "consent", "use one of: none, once"),
        ("groups = [\"a*b\"]".to_owned(), "groups[0]", "is not a group"),
        ("groups = [\"*-admins\"]".to_owned(), "groups[0]", "is not a group"),
        ("groups = [\"\"]".to_owned(), "groups[0]", "is not a group"),
        ("scope = \"openid\"".to_owned(), "scope", "allowed here: client_id, secret, redirect_uris"),
        (confidential("redirect_uris = [\"com.example.app:/cb\"]"), "redirect_uris", "cannot keep a secret"),
        (
            confidential("post_logout_redirect_uris = [\"com.example.app:/cb\"]"),
            "post_logout_redirect_uris",
            "cannot keep a secret",
        ),
    ] {
        let message = refusal(&with(&lines));
        assert!(
            message.contains(&format!("apps[0].oidc.{field}: ")) && message.contains(reason),
            "{lines}: {message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
        assert_eq!(message.lines().count(), 1, "one mistake: {message}");
    }
    assert_eq!(client("backchannel_logout_uri = \"\"").backchannel_logout_uri, None);
}

#[test]
fn an_application_has_hosts_or_is_a_client() {
    let neither = refusal("[[apps]]\nname = \"a\"\n");
    assert!(neither.contains("apps[0].hosts: ") && neither.contains("[apps.oidc]"), "{neither}");
    for (key, value) in [("public", "[\"/health\"]"), ("parts", "[{ path = \"/a\", who = [] }]")] {
        let text = with("").replace("[apps.oidc]", &format!("{key} = {value}\n[apps.oidc]"));
        let message = refusal(&text);
        assert!(message.contains(&format!("apps[0].{key}: is about paths at hosts")), "{message}");
        apps(&text.replace("name =", "hosts = [\"a.example\"]\nname ="));
    }
    let named = with("").replace("grafana", "photo album");
    let message = refusal(&named);
    assert!(message.contains("apps[0].oidc.client_id: is missing, and the name is none"), "{message}");
    assert!(apps(&format!("{named}client_id = \"photos\"\n")).client("photos").is_some());
    let twice = format!("{}{}", with(""), with("client_id = \"grafana\"").replacen("grafana", "other", 1));
    let message = refusal(&twice);
    assert!(message.contains("apps[1].oidc.client_id: \"grafana\" is the id of another"), "{message}");
}

#[test]
fn an_address_is_registered_in_one_spelling_only() {
    for fits in [
        "https://app.example/cb",
        "https://app.example",
        "https://app.example/",
        "https://app.example:8443/a/b?c=d&e=%2F%20f",
        "https://xn--fiqs8s.example/cb",
        "https://10.0.0.1/cb",
        "http://127.0.0.1/cb",
        "http://127.0.0.1:8080/cb",
        "http://[::1]/cb",
        "http://localhost:5173/cb",
        "com.example.app:/cb",
        "com.example.app://cb",
    ] {
        assert_eq!(RedirectUri::parse(fits).map(|uri| uri.as_str().to_owned()), Ok(fits.to_owned()));
    }
    let long = format!("https://app.example/{}", "a".repeat(2_048));
    for (wrong, told) in [
        ("", "is not an address"),
        (long.as_str(), "is not an address"),
        ("/cb", "is not an address"),
        ("app.example/cb", "is not an address"),
        ("https://", "is not an address"),
        ("*", "wildcard"),
        ("https://*.app.example/cb", "wildcard"),
        ("https://app.example/*", "wildcard"),
        ("https://app.example/cb#", "fragment"),
        ("https://app.example/cb#x", "fragment"),
        ("https://app.example@evil.example/cb", "user name"),
        ("https://user:word@app.example/cb", "user name"),
        ("https://@app.example/cb", "write that"),
        ("https://app.example/a/../cb", "has .."),
        ("https://app.example/..", "has .."),
        ("https://app.example./cb", "a dot at the end"),
        ("https://app.example/%2e%2e/cb", "write that"),
        ("https://app.example/./cb", "write that"),
        ("https://App.example/cb", "write that"),
        ("HTTPS://app.example/cb", "write that"),
        ("https://app.example:443/cb", "write that"),
        ("https:/app.example/cb", "write that"),
        ("https:app.example/cb", "write that"),
        ("https://app.example\\@evil.example/cb", "more than one reading"),
        ("https://app.example/c b", "more than one reading"),
        ("https://app.example/cb\n", "more than one reading"),
        ("https://app.ex\tample/cb", "more than one reading"),
        ("https://app.example/\0", "more than one reading"),
        ("https://аpp.example/cb", "more than one reading"),
        ("http://app.example/cb", "is http"),
        ("http://10.0.0.1/cb", "is http"),
        ("http://127.0.0.2/cb", "is http"),
        ("http://127.0.0.1.evil.example/cb", "is http"),
        ("http://localhost.evil.example/cb", "is http"),
        ("http://127.1/cb", "is http"),
        ("http://[0:0:0:0:0:0:0:1]/cb", "is http"),
        ("http://127.0.0.1:80/cb", "write that"),
        ("javascript:alert(1)", "has a scheme"),
        ("data:text/html,x", "has a scheme"),
        ("file:///etc/passwd", "has a scheme"),
        ("blob:https://app.example/1", "has a scheme"),
        ("vbscript:x", "has a scheme"),
        ("about:blank", "has a scheme"),
        ("myapp:/cb", "has a scheme"),
        ("app.example:8443/cb", "has a scheme"),
        ("com.example.app:cb", "has a scheme"),
        ("ftp://app.example/cb", "has a scheme"),
    ] {
        let message = RedirectUri::parse(wrong).expect_err(wrong);
        assert!(message.contains(told), "{wrong:?}: {message}");
    }
}

/// What took codes from the users of pocket-id (CVE-2026-28512), Keycloak (CVE-2024-8883), authentik (CVE-2024-52289),
/// and the usual list.
#[test]
fn no_address_is_admitted_but_those_that_are_registered() {
    let client = registered(&[
        "https://app.example/cb",
        "https://app.example/a?x=1",
        "https://xn--fiqs8s.example/cb",
        "http://127.0.0.1/cb",
        "http://[::1]:4000/cb",
        "com.example.app:/cb",
    ]);
    for admitted in [
        "https://app.example/cb",
        "https://app.example/a?x=1",
        "http://127.0.0.1/cb",
        "http://127.0.0.1:1/cb",
        "http://127.0.0.1:51004/cb",
        "http://127.0.0.1:65535/cb",
        "http://[::1]/cb",
        "http://[::1]:4000/cb",
        "http://[::1]:9/cb",
        "com.example.app:/cb",
    ] {
        assert!(client.redirect(admitted).is_some(), "{admitted}");
    }
    let long = format!("https://app.example/cb{}", "/".repeat(100_000));
    for refused in [
        "",
        " ",
        "/cb",
        "//app.example/cb",
        "*",
        "null",
        long.as_str(),
        // Another host for some reader.
        "https://evil.example/cb",
        "https://app.example@evil.example/cb",
        "https://app.example:x@evil.example/cb",
        "https://app.example%40evil.example/cb",
        "https://app.example%2f@evil.example/cb",
        "https://evil.example\\@app.example/cb",
        "https://app.example\\@evil.example/cb",
        "https://app.example\\.evil.example/cb",
        "https:\\\\app.example\\cb",
        "https:///app.example/cb",
        "https:/app.example/cb",
        "https:app.example/cb",
        "https://evil.example?https://app.example/cb",
        "https://evil.example#https://app.example/cb",
        "https://evil.example/https://app.example/cb",
        "https://app.example.evil.example/cb",
        "https://app.example&@evil.example/cb",
        "https://evilapp.example/cb",
        "https://sub.app.example/cb",
        "https://app.exampl/cb",
        "https://app.example./cb",
        "https://app.example../cb",
        "https://app%2eexample/cb",
        "https://app。example/cb",
        // Lookalikes: Cyrillic, full width, and the name behind the punycode.
        "https://аpp.example/cb",
        "https://ａpp.example/cb",
        "https://中国.example/cb",
        "https://xn--pp-cda.example/cb",
        // The same address in another spelling.
        "HTTPS://app.example/cb",
        "https://APP.example/cb",
        "https://app.example/CB",
        "https://app.example:443/cb",
        "https://app.example:0443/cb",
        "https://app.example:/cb",
        "https://app.example:8443/cb",
        "https://@app.example/cb",
        "https://:@app.example/cb",
        "https://app.example/cb/",
        "https://app.example//cb",
        "https://app.example/./cb",
        "https://app.example/x/../cb",
        "https://app.example/%63b",
        "https://app.example/cb%20",
        "https://app.example/cb;x",
        "https://app.example/cb?",
        "https://app.example/cb#",
        "http://app.example/cb",
        // Beyond the registered path.
        "https://app.example",
        "https://app.example/",
        "https://app.example/cb/..",
        "https://app.example/cb/../open?to=//evil.example",
        "https://app.example/cb/%2e%2e/open",
        "https://app.example/cb/..%2fopen",
        "https://app.example/cb/..;/open",
        "https://app.example/cb/..\\open",
        "https://app.example/cbx",
        "https://app.example/cb?x=1",
        "https://app.example/cb?code=stolen",
        "https://app.example/cb&x=1",
        "https://app.example/cb#@evil.example/",
        "https://app.example/cb?#evil",
        "https://app.example/a",
        "https://app.example/a?x=2",
        "https://app.example/a?x=1&y=2",
        "https://app.example/a?X=1",
        "https://app.example/a?x=1#",
        // What parsers drop.
        " https://app.example/cb",
        "https://app.example/cb ",
        "\thttps://app.example/cb",
        "https://app.example/cb\n",
        "https://app.example/cb\r\nSet-Cookie: x=1",
        "ht\ntps://app.example/cb",
        "https://app.ex\tample/cb",
        "https://app.example/c\nb",
        "https://app.example/cb\0",
        "https://app.example/cb\0.evil.example",
        "https://app.example/cb%00",
        "\u{feff}https://app.example/cb",
        "https://app.example/cb\u{200b}",
        // Patterns are none: the dot of a host is a dot.
        "https://appXexample/cb",
        "https://app.example/.*",
        "^https://app.example/cb$",
        // Loopback addresses of another reading.
        "http://127.0.0.1.evil.example/cb",
        "http://127.0.0.1@evil.example/cb",
        "http://127.0.0.1:80@evil.example/cb",
        "http://127.0.0.1:80:90/cb",
        "http://127.0.0.1:/cb",
        "http://127.0.0.1:0/cb",
        "http://127.0.0.1:080/cb",
        "http://127.0.0.1:+80/cb",
        "http://127.0.0.1:65536/cb",
        "http://127.0.0.1:99999999999999999999/cb",
        "http://127.0.0.1: 80/cb",
        "http://127.0.0.1:80\\@evil.example/cb",
        "http://127.0.0.1:80/cb/",
        "http://127.0.0.1:80/cb?x",
        "http://127.0.0.1:80/cb#x",
        "http://127.0.0.1:80",
        "http://127.0.0.1:80cb",
        "http://127.0.0.1:80/../cb",
        "http://127.0.0.1#/cb",
        "http://127.0.0.1\\/cb",
        "http://127.0.0.2/cb",
        "http://127.1/cb",
        "http://127.0.0.01/cb",
        "http://0x7f.0.0.1/cb",
        "http://2130706433/cb",
        "http://0.0.0.0/cb",
        "http://localhost/cb",
        "http://localhost:1234/cb",
        "https://127.0.0.1/cb",
        "https://127.0.0.1:8080/cb",
        "HTTP://127.0.0.1/cb",
        "http://user@127.0.0.1/cb",
        "http://[::1]",
        "http://[::1]:4000",
        "http://[::1]:4000@evil.example/cb",
        "http://[::1].evil.example/cb",
        "http://[::]/cb",
        "http://[0:0:0:0:0:0:0:1]/cb",
        "http://[::0001]/cb",
        "http://[::ffff:127.0.0.1]/cb",
        "http://[::1%25lo]/cb",
        "http://[::1/cb",
        "http://::1/cb",
        // Schemes.
        "com.example.app:/cb2",
        "com.example.app://cb",
        "com.example.app:cb",
        "COM.example.app:/cb",
        "com.example.app.evil:/cb",
        "com.example.app:///cb",
        "javascript:alert(1)",
        "javascript://app.example/cb%0aalert(1)",
        "data:text/html,https://app.example/cb",
        "file:///cb",
        "blob:https://app.example/cb",
        "urn:ietf:wg:oauth:2.0:oob",
    ] {
        assert_eq!(client.redirect(refused), None, "{refused:?}");
        assert!(client.nearest(refused).is_some(), "{refused:?}");
    }
}

#[test]
fn only_an_address_of_loopback_has_any_port() {
    let localhost = registered(&["http://localhost:1234/cb"]);
    assert!(localhost.redirect("http://localhost:1234/cb").is_some());
    for other in ["http://localhost/cb", "http://localhost:1235/cb", "http://127.0.0.1:1234/cb"] {
        assert_eq!(localhost.redirect(other), None, "{other}");
    }
    let web = registered(&["https://127.0.0.1:8443/cb"]);
    assert_eq!(web.redirect("https://127.0.0.1:8444/cb"), None);
    let bare = registered(&["http://127.0.0.1"]);
    assert!(bare.redirect("http://127.0.0.1:5000").is_some());
    assert_eq!(bare.redirect("http://127.0.0.1:5000/"), None);
    let out = client("post_logout_redirect_uris = [\"https://app.example/bye\"]");
    assert!(out.post_logout_redirect("https://app.example/bye").is_some());
    for other in ["https://app.example/cb", "https://app.example/bye?x", ""] {
        assert_eq!(out.post_logout_redirect(other), None, "{other}");
    }
}

#[test]
fn an_administrator_is_told_which_address_was_meant() {
    let client = registered(&[
        "https://app.example/login/callback",
        "http://127.0.0.1/cb",
        "https://app.example/other",
    ]);
    for (asked, meant, at) in [
        ("https://app.example/login/callback/", "https://app.example/login/callback", 34),
        ("http://app.example/login/callback", "https://app.example/login/callback", 4),
        ("https://App.example/login/callback", "https://app.example/login/callback", 8),
        ("http://127.0.0.1:3000/callback", "http://127.0.0.1/cb", 16),
        ("https://app.example/othr", "https://app.example/other", 23),
    ] {
        let (nearest, differs, _) = client.nearest(asked).unwrap();
        assert_eq!((nearest.as_str(), differs), (meant, at), "{asked}");
    }
}

#[test]
fn native_clients_and_origins_follow_from_the_addresses() {
    let secret = Secret::of("correct horse battery staple");
    for (uri, native, odd) in [
        ("https://app.example/cb", false, false),
        ("http://127.0.0.1/cb", true, false),
        ("http://[::1]/cb", true, false),
        ("http://localhost:3000/cb", true, true),
        ("com.example.app:/cb", true, false),
    ] {
        let public = registered(&["https://web.example/cb", uri]);
        assert_eq!((public.is_native(), public.has_odd_http()), (native, odd), "{uri}");
        if !uri.starts_with("com.") {
            let confidential =
                client(&format!("secret = \"{}\"\nredirect_uris = [\"{uri}\"]", secret.name()));
            assert!(!confidential.is_native(), "{uri}");
            assert_eq!(confidential.has_odd_http(), uri.starts_with("http:"), "{uri}");
        }
    }
    let uris =
        ["https://a.example", "https://b.example:8443/cb?x", "http://127.0.0.1/cb", "com.example.app:/cb"];
    let client = registered(&uris);
    let origins = ["https://a.example", "https://b.example:8443", "http://127.0.0.1"];
    assert_eq!(client.origins().collect::<Vec<_>>(), origins);
}
