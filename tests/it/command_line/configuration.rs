//! What is reported about a configuration before the server runs.

use crate::support::process::Home;

fn repository(name: &str) -> String {
    format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_good_configuration_is_told_so() {
    let home = Home::new();
    let none = home.run(&["check-config"]);
    let told = "gatehouse.toml: there is no such file; the defaults and variables are in force: ok\n";
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), told), "{}", none.stderr);
    home.write("gatehouse.toml", "[limits.login-account]\nrules = [{ max = 5, window = \"1m\" }]\n");
    for arguments in [&["check-config"][..], &["check-config", "gatehouse.toml"]] {
        let ended = home.run(arguments);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(0), "gatehouse.toml: ok\n"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn a_bad_configuration_ends_with_2_and_its_place() {
    let home = Home::new();
    for (text, told) in [
        ("[limits.login-account\n", "bad.toml:1: is not TOML"),
        (
            "\n[limits.login-account]\nrules = [{ max = 0, window = \"1m\" }]\n",
            "bad.toml:3: limits.login-account.rules[0].max: 0 is out of range",
        ),
        ("[limits.login-acount]\n", "did you mean login-account?"),
        ("[store]\nurl = \"memcached://x\"\n", "bad.toml:2: store.url: "),
        ("[database]\nurl = \"mysql://x/y\"\n", "bad.toml:2: database.url: "),
        ("[captcha]\nttl = 3\n", "bad.toml:2: captcha.ttl: "),
    ] {
        home.write("bad.toml", text);
        for arguments in [&["check-config", "bad.toml"][..], &["serve", "--config", "bad.toml"]] {
            let ended = home.run(arguments);
            assert_eq!(ended.code, Some(2), "{arguments:?} {text}");
            assert!(ended.stderr.contains(told), "{told:?} is not in {:?}", ended.stderr);
            assert!(ended.stdout.is_empty());
        }
    }
}

/// With the environment from docker-compose.yml, and a filled-in .env.
#[test]
fn what_is_deployed_is_a_good_configuration() {
    let compose = std::fs::read_to_string(repository("docker-compose.yml")).unwrap();
    let mut home = Home::new();
    let mut seen = 0;
    for line in compose.lines().map(str::trim).filter(|line| line.starts_with("GATEHOUSE__")) {
        let (name, value) = line.split_once(": ").unwrap();
        let mut value = value.to_owned();
        while let Some((before, rest)) = value.clone().split_once("${") {
            let (variable, after) = rest.split_once('}').unwrap();
            let filled = match variable.split(':').next().unwrap() {
                "GATEHOUSE_PUBLIC_URL" => "https://auth.example",
                "POSTGRES_PASSWORD" => "0123456789abcdef",
                other => panic!("{other} is not in .env.example as this test knows it"),
            };
            value = format!("{before}{filled}{after}");
        }
        home.set(name, value);
        seen += 1;
    }
    assert!(seen > 4, "docker-compose.yml sets nothing");
    for file in ["deploy/gatehouse.toml", "gatehouse.example.toml"] {
        if file == "gatehouse.example.toml" {
            // Its outbox is refused on the deployed address.
            home.set("GATEHOUSE__SMS__GATEWAY", "none");
        }
        let ended = home.run(&["check-config", &repository(file)]);
        assert_eq!(ended.code, Some(0), "{file}: {}", ended.stderr);
    }
    let ended = Home::new().run(&["check-config", &repository("gatehouse.example.toml")]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let home = Home::new();
    for arguments in [
        &["check-config", "none.toml"][..],
        &["serve", "--config", "none.toml"],
        &["admin", "create", "ada", "--password-stdin", "--config", "none.toml"],
        &["limits", "show", "--config", "none.toml"],
        &["--config", "none.toml", "limits", "show"],
        &["--config", "none.toml"],
        &["check-config", "--config", "none.toml"],
    ] {
        let ended = home.run(arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), "none.toml: there is no such file\n"));
    }
    let two = home.run(&["check-config", "none.toml", "--config", "other.toml"]);
    assert!(two.code == Some(2) && two.stderr.contains("cannot be used with"), "{}", two.stderr);
    assert!(!home.path("data").exists(), "no account was created");
}

#[test]
fn a_variable_wins_over_the_file_and_is_named_where_it_is_wrong() {
    let mut home = Home::new();
    home.write("gatehouse.toml", "[limits.login-account]\nrules = [{ max = 5, window = \"1m\" }]\n");
    home.set("GATEHOUSE__LIMITS__LOGIN_ACCOUNT__RULES", "[{ max = 7, window = \"2m\" }]");
    let ended = home.run(&["limits", "show"]);
    assert!(ended.stdout.contains("at most 7 in any 2m"), "{}{}", ended.stdout, ended.stderr);
    home.set("GATEHOUSE__LIMITS__LOGIN_ACCOUNT__RULES", "[{ max = 7, window = \"2 moons\" }]");
    let ended = home.run(&["check-config"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("GATEHOUSE__LIMITS__LOGIN_ACCOUNT__RULES: limits.login-account.rules"),
        "{}",
        ended.stderr
    );
}

/// A setting that nobody reads would be noticed by an attacker first.
#[test]
fn a_variable_that_would_be_a_setting_in_another_spelling_ends_the_start() {
    const RIGHT: &str = "GATEHOUSE__SESSION__IDLE";
    for name in [
        "GATEHOUSE_SESSION__IDLE",
        "GATEHOUSE_SESSION_IDLE",
        "GATEHOUSE__SESSION_IDLE",
        "GATEHOUSE__session__idle",
        "gatehouse__session__idle",
        "Gatehouse_Session_Idle",
    ] {
        let mut home = Home::new();
        home.set(name, "1h");
        for arguments in [&["check-config"][..], &["serve"], &["limits", "show"]] {
            let ended = home.run(arguments);
            assert_eq!(ended.code, Some(2), "{name}: {}", ended.stderr);
            assert!(ended.stderr.starts_with(&format!("{name}: session.idle: ")), "{}", ended.stderr);
            assert!(ended.stderr.contains(RIGHT), "{}", ended.stderr);
        }
    }
    // Those of Kubernetes for a service of this name, and those that the document names.
    let mut home = Home::new();
    for (name, value) in [
        ("GATEHOUSE_PORT", "tcp://10.0.0.1:8080"),
        ("GATEHOUSE_SERVICE_HOST", "10.0.0.1"),
        ("GATEHOUSE_SERVICE_PORT", "8080"),
        ("GATEHOUSE_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("GATEHOUSE_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("GATEHOUSE_WEBHOOK_SECRET", "x"),
        ("GATEHOUSE_STORE_URL", "a secret of thirty-two characters"),
    ] {
        home.set(name, value);
    }
    let hook =
        "[[webhooks]]\nurl = 'https://hooks.example/'\nsecret = 'env:GATEHOUSE_STORE_URL'\nevents = ['*']\n";
    home.write("gatehouse.toml", hook);
    let ended = home.run(&["check-config"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    home.write("gatehouse.toml", "");
    assert_eq!(home.run(&["check-config"]).code, Some(2), "the document no longer names it");
}

#[test]
fn proxies_that_are_everyone_end_the_start_unless_that_is_meant() {
    let mut home = Home::new();
    home.write("gatehouse.toml", "[server]\ntrusted_proxies = [\"0.0.0.0/0\", \"::/0\"]\n");
    for arguments in [&["check-config"][..], &["serve"]] {
        let ended = home.run(arguments);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("gatehouse.toml:2: server.trusted_proxies: covers half"),
            "{}",
            ended.stderr
        );
    }
    home.set("GATEHOUSE__SERVER__TRUST_EVERYONE", "true");
    let ended = home.run(&["check-config"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let told = format!("{}{}", ended.stdout, ended.stderr);
    assert!(told.contains("warning: gatehouse.toml:2: server.trusted_proxies: "), "{told}");
}
