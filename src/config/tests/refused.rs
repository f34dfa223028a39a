//! One fixture for each kind of mistake, with its message.

use super::{read, refusal};

/// One mistake per line, each in a document of its own, with the message without its place.
pub(super) fn told(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(refusal(text), format!("gatehouse.toml:1: {expected}"), "for {text}");
    }
}

/// Like [`told`], for one rule of one limit.
fn rule_told(cases: &[(&str, &str)]) {
    for (rule, expected) in cases {
        let text = format!("limits.login-account.rules = [{rule}]");
        assert_eq!(
            refusal(&text),
            format!("gatehouse.toml:1: limits.login-account.rules[0]{expected}"),
            "for {rule}"
        );
    }
}

#[test]
fn what_is_no_toml() {
    let message = refusal("[server]\nbind = \n");
    assert!(message.starts_with("gatehouse.toml:2: is not TOML: "), "{message}");
    assert_eq!(
        refusal("[server]\nbind = '1'\n\nbind = '2'"),
        "gatehouse.toml:4: server.bind: is set twice; keep one of them"
    );
    assert_eq!(
        refusal("[server]\n[store]\n[server]"),
        "gatehouse.toml:3: server: is set twice; keep one of them"
    );
}

#[test]
fn a_detector_has_one_window_and_only_asks() {
    let told = |rules: &str, expected: &str| {
        let text = format!("limits.login-guess.rules = {rules}");
        assert_eq!(
            refusal(&text),
            format!("gatehouse.toml:1: limits.login-guess.rules{expected}"),
            "{rules}"
        );
    };
    let one = ": must be one rule with a window of 10m to 24h: a detector has one window";
    told("[{ max = 5, window = '1h' }, { max = 9, window = '2h' }]", one);
    told("[{ max = 5, window = '1m' }]", one);
    told("[{ max = 5, per = 'day' }]", one);
    told(
        "[{ max = 5, window = '1h', then = 'block' }]",
        "[0].then: cannot be \"block\": strangers who fill it would lock out the people whose password or domain it is; use \"captcha\"",
    );
}

#[test]
fn unknown_keys() {
    told(&[
        ("serverr.bind = 'x'", "serverr: is not a setting; did you mean server?"),
        ("server.bnid = 'x'", "server.bnid: is not a setting; did you mean bind?"),
        ("secrets.zzz = 'x'", "secrets.zzz: is not a setting; allowed here: key_file"),
        (
            "limits.login_account.rules = []",
            "limits.login_account: is not a setting; did you mean login-account?",
        ),
        (
            "limits.sms-phone.rule = []",
            "limits.sms-phone.rules: is missing; list the rules, or write rules = [] to switch the limit off\ngatehouse.toml:1: limits.sms-phone.rule: is not a setting; did you mean rules?",
        ),
        (
            "captcha.colour = 'red'",
            "captcha.colour: is not a setting; allowed here: provider, fixed_answer, difficulty, ttl, proof_of_work, help",
        ),
    ]);
    rule_told(&[
        ("{ max = 1, windw = '1m', window = '1m' }", ".windw: is not a setting; did you mean window?"),
        (
            "{ max = 1, window = '1m', zz = 1 }",
            ".zz: is not a setting; allowed here: max, then, window, per, timezone",
        ),
    ]);
}

#[test]
fn wrong_types() {
    told(&[
        ("server = 1", "server: is a number; it must be a table"),
        ("server.bind = 8080", "server.bind: is a number; it must be text in quotes"),
        ("server.trusted_proxies = '::1'", "server.trusted_proxies: is text; it must be a list in [ ]"),
        ("server.trusted_proxies = [1]", "server.trusted_proxies[0]: is a number; it must be text in quotes"),
        ("password.queue = 1.5", "password.queue: is a number with a fraction; it must be a whole number"),
        ("password.queue = true", "password.queue: is a boolean; it must be a whole number"),
        (
            "store.timeout = 100",
            "store.timeout: is a number; it must be text in quotes, such as \"10s\", \"3m\" or \"24h\"",
        ),
        ("limits.login-account = []", "limits.login-account: is a list; it must be a table"),
        (
            "limits.login-account.rules = [3]",
            "limits.login-account.rules[0]: is a number; it must be a table",
        ),
    ]);
}

#[test]
fn rules() {
    rule_told(&[
        ("{ max = 0, window = '1m' }", ".max: 0 is out of range; it must be from 1 to 1000000"),
        ("{ max = 1000001, window = '1m' }", ".max: 1000001 is out of range; it must be from 1 to 1000000"),
        ("{ max = -3, window = '1m' }", ".max: -3 is out of range; it must be from 1 to 1000000"),
        (
            "{ max = 99999999999999999999, window = '1m' }",
            ".max: 99999999999999999999 is out of range; it must be from 1 to 1000000",
        ),
        ("{ window = '1m' }", ".max: is missing; write how many hits the rule admits"),
        (
            "{ max = 1 }",
            ": has neither window nor per; add window = \"1h\" (sliding) or per = \"day\" (calendar)",
        ),
        (
            "{ max = 1, window = '1m', per = 'day' }",
            ".per: cannot be combined with window; keep one of them: window is sliding, per follows the calendar",
        ),
        (
            "{ max = 1, window = '1m', timezone = 'UTC' }",
            ".timezone: is only valid with per; a sliding window is the same in every time zone",
        ),
        ("{ max = 1, window = '99ms' }", ".window: 99ms is out of range; it must be from 100ms to 366days"),
        ("{ max = 1, window = '367d' }", ".window: 367d is out of range; it must be from 100ms to 366days"),
        (
            "{ max = 1, window = 'soon' }",
            ".window: \"soon\" is not a duration; write it as \"100ms\", \"10s\", \"3m\", \"24h\" or \"7d\"",
        ),
        (
            "{ max = 1, window = '1M' }",
            ".window: \"1M\" is in months or years, whose length varies; write days (\"30d\"), or minutes as \"m\"",
        ),
        (
            "{ max = 1, per = 'fortnight' }",
            ".per: \"fortnight\" is not allowed; use one of: minute, hour, day, week, month, year",
        ),
        (
            "{ max = 1, per = 'day', timezone = 'Mars/Base' }",
            ".timezone: \"Mars/Base\" is not a time zone; write an IANA name such as \"Asia/Shanghai\" or \"UTC\"",
        ),
        (
            "{ max = 1, window = '1m', then = 'ban' }",
            ".then: \"ban\" is not allowed; use one of: captcha, block",
        ),
    ]);
}

#[test]
fn limits() {
    told(&[
        (
            "limits.sms-phone.rules = [{ max = 1, window = '60s' }, { max = 2, window = '1m' }]",
            "limits.sms-phone.rules[1]: has the same span and action as rule 0; keep one of them",
        ),
        (
            "limits.sms-phone = { mode = 'watch', rules = [] }",
            "limits.sms-phone.mode: \"watch\" is not allowed; use one of: enforce, monitor",
        ),
        (
            "limits.custom.Reply.rules = []",
            "limits.custom.Reply: is not a valid limit name; use 1 to 64 of a-z, 0-9 and -",
        ),
        (
            "limits.custom.reply.rules = [{ max = 1, window = '1s', then = 'captcha' }]",
            "limits.custom.reply.rules[0].then: cannot be \"captcha\": programs have no form to show one; use \"block\"",
        ),
        (
            "limits.sms-guess.rules = [{ max = 1, window = '1s', then = 'captcha' }]",
            "limits.sms-guess.rules[0].then: cannot be \"captcha\": anyone who solves CAPTCHAs could try every code; use \"block\"",
        ),
        ("mail.url = 'smtps://mail.example'", "mail.url: needs mail.from, the address that our mail is from"),
        (
            "mail.url = 'smtps://login@mail.example'\nmail.from = 'login@example.org'",
            "mail.url: names a user; set mail.password, such as \"env:MAIL_PASSWORD\"",
        ),
        (
            "mail.password = 'env:MAIL_PASSWORD'",
            "mail.password: belongs to no user; write the user into mail.url, as smtps://user@host",
        ),
        (
            "mail.url = 'smtps://login:hunter2@mail.example'",
            "mail.url: contains a password; write that as mail.password",
        ),
        (
            "mail.url = 'smtps://exämple.org'",
            "mail.url: names a server in other letters than ASCII; write its name as \"xn--…\"",
        ),
        (
            "mail.from = 'Gatehouse <login@example.org>'",
            "mail.from: is not an address alone, such as \"login@example.org\"",
        ),
        (
            "registration.require = ['email']\nsms.gateway = 'none'",
            "registration.require: has \"email\", but no mail is sent; set mail.url, or leave it out",
        ),
        (
            "registration.require = ['phone']",
            "registration.require[0]: \"phone\" is not allowed; use one of: email",
        ),
        (
            "limits.mail-notice.rules = [{ max = 1, window = '1h' }, { max = 3, window = '24h' }]",
            "limits.mail-notice.rules: must be one rule with a window of 10m to 24h: notices are counted in one window",
        ),
        (
            "limits.mail-notice.rules = [{ max = 1, window = '1h', then = 'captcha' }]",
            "limits.mail-notice.rules[0].then: cannot be \"captcha\": nobody asks for notices, so there is nobody to challenge; use \"block\", which folds them",
        ),
        (
            "limits.mail-domain.rules = [{ max = 1, window = '1h', then = 'block' }]",
            "limits.mail-domain.rules[0].then: cannot be \"block\": strangers who fill it would lock out the people whose password or domain it is; use \"captcha\"",
        ),
        ("mail.timeout = '3m'", "mail.timeout: 3m is out of range; it must be from 1s to 2m"),
        (
            "limits.captcha-total.rules = [{ max = 1, window = '1s', then = 'captcha' }]",
            "limits.captcha-total.rules[0].then: cannot be \"captcha\": this limit counts CAPTCHAs; use \"block\"",
        ),
    ]);
    let nine: Vec<_> = (1..=9).map(|minutes| format!("{{ max = 1, window = '{minutes}m' }}")).collect();
    assert_eq!(
        refusal(&format!("limits.sms-phone.rules = [{}]", nine.join(", "))),
        "gatehouse.toml:1: limits.sms-phone.rules: has 9 entries; at most 8 are allowed"
    );
}

#[test]
fn addresses_and_urls() {
    told(&[
        (
            "server.bind = 'localhost:1'",
            "server.bind: \"localhost:1\" is not an address to listen on; write an IP address and a port: \"127.0.0.1:8080\" or \"[::]:8080\"",
        ),
        (
            "server.trusted_proxies = ['10.0.0.0/33']",
            "server.trusted_proxies[0]: \"10.0.0.0/33\" is not a network; write it as \"10.0.0.0/8\" or \"2001:db8::/32\"",
        ),
        (
            "server.public_url = 'ftp://a'",
            "server.public_url: has the scheme \"ftp\"; it must be http or https",
        ),
        (
            "server.public_url = 'https://a/login'",
            "server.public_url: has a path, but Gatehouse serves only from the root; write only scheme and host: \"https://login.example\"",
        ),
        (
            "database.url = 'mysql://a'",
            "database.url: has the scheme \"mysql\"; it must be sqlite or postgres",
        ),
        (
            "database.url = 'postgres://u@db/g?target_session_attrs=prefer-standby'",
            "database.url: has target_session_attrs=prefer-standby, but only a server that takes writes can be used; write target_session_attrs=read-write, or leave it out",
        ),
        (
            "database.url = 'postgres://u@one,two/g'",
            "database.url: names several hosts; name one that leads to the server that takes writes",
        ),
        (
            "database.url = 'sqlite://a.db?mode=ro'",
            "database.url: has options after `?`; remove them, Gatehouse sets its own",
        ),
        (
            "passkeys.rp_id = '192.0.2.1'",
            "passkeys.rp_id: is an address; browsers make passkeys for domains only",
        ),
        (
            "passkeys.rp_id = 'https://a.example'",
            "passkeys.rp_id: is not a domain; write it as \"example.org\"",
        ),
        (
            "passkeys.rp_id = 'example.org'",
            "passkeys.rp_id: is \"example.org\", but the host of server.public_url is \"127.0.0.1\"; it must be that or a domain above it",
        ),
        ("store.timeout = '9ms'", "store.timeout: 9ms is out of range; it must be from 10ms to 5s"),
    ]);
}

#[test]
fn tokens_of_applications() {
    told(&[
        ("oidc.signing = 'HS256'", "oidc.signing: \"HS256\" is not allowed; use one of: RS256, ES256"),
        ("oidc.signing = 'rs256'", "oidc.signing: \"rs256\" is not allowed; use one of: RS256, ES256"),
        (
            "oidc.access_token_ttl = '59s'",
            "oidc.access_token_ttl: 59s is out of range; it must be from 1m to 1h",
        ),
        (
            "oidc.refresh_idle = '366d'",
            "oidc.refresh_idle: 366d is out of range; it must be from 1h to 365days",
        ),
        (
            "oidc.key_rotation = '6d'",
            "oidc.key_rotation: 6d is out of range; it must be from 7days to 730days",
        ),
    ]);
}

#[test]
fn captcha_and_sessions() {
    told(&[
        (
            "captcha.provider = 'fixed'",
            "captcha.fixed_answer: is missing; captcha.provider = \"fixed\" requires it: the answer to every challenge",
        ),
        ("captcha.provider = 'none'", "captcha.provider: \"none\" is not allowed; use one of: image, fixed"),
        (
            "login.max_consecutive_failures = 101",
            "login.max_consecutive_failures: 101 is out of range; it must be from 0 to 100",
        ),
        ("captcha.proof_of_work = 'no'", "captcha.proof_of_work: is text; it must be true or false"),
        (
            "captcha.help = \"one\\ntwo\"",
            "captcha.help: must be one line of at most 200 characters: a URL (https:, mailto: or tel:) or text",
        ),
        (
            "captcha.difficulty = 'cruel'",
            "captcha.difficulty: \"cruel\" is not allowed; use one of: easy, medium, hard",
        ),
        (
            "session.idle = '31d'",
            "session.idle: is longer than session.absolute (30days), so it can never be reached",
        ),
        ("session.confirm = '59s'", "session.confirm: 59s is out of range; it must be from 1m to 1day"),
        ("session.confirm = '25h'", "session.confirm: 25h is out of range; it must be from 1m to 1day"),
        ("secrets.key_file = ''", "secrets.key_file: is empty"),
    ]);
}

#[test]
fn development_parts_beyond_loopback() {
    let ending = "for development only; choose others, or bind 127.0.0.1";
    assert_eq!(
        refusal("[server]\nbind = '0.0.0.0:80'"),
        format!(
            "gatehouse.toml:2: server.bind: 0.0.0.0:80 can be reached from other machines, but sms.gateway = \"outbox\" (also the default) is {ending}"
        )
    );
    assert_eq!(
        refusal("captcha = { provider = 'fixed', fixed_answer = 'x' }\nserver.bind = '[::]:80'"),
        format!(
            "gatehouse.toml:2: server.bind: [::]:80 can be reached from other machines, but sms.gateway = \"outbox\" and captcha.provider = \"fixed\" are {ending}"
        )
    );
    read("captcha = { provider = 'fixed', fixed_answer = 'x' }\nserver.bind = '[::1]:80'").expect("loopback");
    read("server.bind = '127.9.9.9:80'").expect("loopback");
}

#[test]
fn sms_and_its_gateways() {
    told(&[
        (
            "sms.gateway = 'pigeon'",
            "sms.gateway: \"pigeon\" is not allowed; use one of: outbox, none, twilio, aliyun, tencent, http",
        ),
        ("sms.gateway = 'http'", "sms.http.url: is missing; the chosen sms.gateway requires it"),
        ("sms.gateways = ['http']", "sms.http.url: is missing; the chosen sms.gateway requires it"),
        (
            "sms = { gateway = 'none', gateways = ['none'] }",
            "sms.gateways: is set, and so is sms.gateway; keep one of them",
        ),
        (
            "sms.gateways = ['pigeon']",
            "sms.gateways[0]: \"pigeon\" is not allowed; use one of: outbox, none, twilio, aliyun, tencent, http",
        ),
        ("sms.gateways = ['none', 'none']", "sms.gateways[1]: \"none\" is listed twice"),
        (
            "sms = { gateways = ['http', 'outbox'], http = { url = 'https://a.example/' } }",
            "sms.gateways: has \"outbox\" beside others; leave it out, or write gateway = \"outbox\" alone",
        ),
        ("sms.gateways = []", "sms.gateways: is empty; list at least one, or write gateway = \"none\""),
        ("sms.gateways = 'http'", "sms.gateways: is text; it must be a list in [ ]"),
        (
            "sms.tencent.countries = ['cn']",
            "sms.tencent.countries[0]: \"cn\" is not a country code; write two capital letters (ISO 3166-1), such as \"CN\"",
        ),
        (
            "sms.tencent.template_id = 'SMS_1'",
            "sms.tencent.template_id: \"SMS_1\" is not the id of a template, which is a number such as \"1110\"",
        ),
        (
            "sms.tencent.region = 'Nanjing'",
            "sms.tencent.region: \"Nanjing\" is not a region; write it as \"ap-guangzhou\"",
        ),
        (
            "sms.countries = ['China']",
            "sms.countries[0]: \"China\" is not a country code; write two capital letters (ISO 3166-1), such as \"CN\"",
        ),
        (
            "sms.default_region = 'UK'",
            "sms.default_region: \"UK\" is not a country code; write two capital letters (ISO 3166-1), such as \"CN\"",
        ),
        (
            "sms.countries = ['CN', 'cn']",
            "sms.countries[1]: \"cn\" is not a country code; write two capital letters (ISO 3166-1), such as \"CN\"",
        ),
        ("sms.code_ttl = '11m'", "sms.code_ttl: 11m is out of range; it must be from 1s to 10m"),
        (
            "sms.http.body = '{nmae}'",
            "sms.http.body: {nmae} is not a placeholder; use {phone}, {phone_digits}, {text}, {text_utf16_hex}, {code}, {id}, {report_token}, {report_url}, {env:NAME} and {file:PATH}",
        ),
        (
            "sms.http.body = '{\"to\":\"{phone}\"'",
            "sms.http.body: is not valid JSON when it is filled in: EOF while parsing an object at line 1 column 9",
        ),
        (
            "sms.http = { method = 'GET', body = 'x' }",
            "sms.http.body: is set, but GET has no body; put the data into url, or use POST",
        ),
        (
            "sms.http.url = 'https://sms.example/?key={env:}'",
            "sms.http.url: names no environment variable after env:; write it as \"env:NAME\"",
        ),
        ("sms.timeout = '11s'", "sms.timeout: 11s is out of range; it must be from 1s to 10s"),
        (
            "sms.twilio.url = 'https://api.twilio.com/2010'",
            "sms.twilio.url: is not the address of a service; write only scheme and host: \"https://api.example\"",
        ),
        (
            "sms.aliyun.url = 'http://dysmsapi.aliyuncs.com'",
            "sms.aliyun.url: is http, but secrets are sent there; use https",
        ),
        (
            "sms.http.url = 'https://{phone}.example/'",
            "sms.http.url: has a placeholder in its host; use placeholders only after the host",
        ),
        ("sms.http.headers = { 'a b' = 'c' }", "sms.http.headers.a b: is not a valid HTTP header name"),
        (
            "sms.http.headers = { a = 'env:' }",
            "sms.http.headers.a: names no environment variable after env:; write it as \"env:NAME\"",
        ),
    ]);
    let message = refusal("sms.twilio.auth_token = 'hunter2'");
    assert_eq!(
        message,
        "gatehouse.toml:1: sms.twilio.auth_token: contains the secret itself; write \"env:NAME\" or \"file:PATH\" to say where it is read from"
    );
}

#[test]
fn the_brake_and_the_ledgers_memory() {
    told(&[
        ("audit.retention = '12h'", "audit.retention: 12h is out of range; it must be from 1day to 3660days"),
        ("audit.max_rows = 10", "audit.max_rows: 10 is out of range; it must be from 10000 to 1000000000"),
        ("audit.keep = '30d'", "audit.keep: is not a setting; allowed here: retention, max_rows"),
        ("sms.retention = '6d'", "sms.retention: 6d is out of range; it must be from 7days to 3660days"),
        (
            "sms.retention = '11y'",
            "sms.retention: \"11y\" is in months or years, whose length varies; write days (\"30d\"), or minutes as \"m\"",
        ),
        ("sms.brake = true", "sms.brake: is a boolean; it must be a table"),
        ("sms.brake.enabled = 1", "sms.brake.enabled: is a number; it must be true or false"),
        ("sms.brake.enabled = 'yes'", "sms.brake.enabled: is text; it must be true or false"),
        ("sms.brake.window = '59s'", "sms.brake.window: 59s is out of range; it must be from 1m to 7days"),
        ("sms.brake.window = '8d'", "sms.brake.window: 8d is out of range; it must be from 1m to 7days"),
        (
            "sms.brake.lifts_after = '1s'",
            "sms.brake.lifts_after: 1s is out of range; it must be from 1m to 30days",
        ),
        (
            "sms.brake.again_within = '31d'",
            "sms.brake.again_within: 31d is out of range; it must be from 1m to 30days",
        ),
        (
            "sms.brake.min_sent_again = 0",
            "sms.brake.min_sent_again: 0 is out of range; it must be from 1 to 1000000",
        ),
        ("sms.brake.min_sent = 0", "sms.brake.min_sent: 0 is out of range; it must be from 1 to 1000000"),
        (
            "sms.brake.min_sent_range = 0",
            "sms.brake.min_sent_range: 0 is out of range; it must be from 1 to 1000000",
        ),
        (
            "sms.brake.min_solved_range = 1000001",
            "sms.brake.min_solved_range: 1000001 is out of range; it must be from 1 to 1000000",
        ),
        ("sms.brake.min_entered = 1.5", "sms.brake.min_entered: 1.5 is out of range; it must be from 0 to 1"),
        (
            "sms.brake.min_entered = -0.1",
            "sms.brake.min_entered: -0.1 is out of range; it must be from 0 to 1",
        ),
        ("sms.brake.min_entered = nan", "sms.brake.min_entered: NaN is out of range; it must be from 0 to 1"),
        ("sms.brake.min_entered = 2", "sms.brake.min_entered: 2 is out of range; it must be from 0 to 1"),
        ("sms.brake.min_entered = '10 %'", "sms.brake.min_entered: is text; it must be a number from 0 to 1"),
        (
            "sms.brake.min_sent_country = 0",
            "sms.brake.min_sent_country: 0 is out of range; it must be from 1 to 1000000",
        ),
        ("sms.price = -0.1", "sms.price: -0.1 is out of range; it must be from 0 to 100"),
        ("sms.price = inf", "sms.price: inf is out of range; it must be from 0 to 100"),
        ("sms.price = '5 cents'", "sms.price: is text; it must be what a message costs, such as 0.05"),
        (
            "sms.budget = '200 EUR'",
            "sms.budget: \"200 EUR\" is not an amount a day; write it as \"200 EUR / day\"",
        ),
        (
            "sms.budget = '200 eur / day'",
            "sms.budget: \"200 eur / day\" is not an amount a day; write it as \"200 EUR / day\"",
        ),
        (
            "sms.budget = '200 EUR / week'",
            "sms.budget: \"200 EUR / week\" is not an amount a day; write it as \"200 EUR / day\"",
        ),
        ("sms.budget = '0 EUR / day'", "sms.budget: 0 is out of range; a day may cost from 0.01 to 10000000"),
        (
            "sms.budget = '200 EUR / day'",
            "sms.budget: counts nothing without prices; set sms.price, or price in the [sms.country.XX] that are sent to",
        ),
        ("sms.budget_blocks = true", "sms.budget_blocks: needs sms.budget, such as \"200 EUR / day\""),
        ("sms.brake.min_snet = 1", "sms.brake.min_snet: is not a setting; did you mean min_sent?"),
    ]);
}

#[test]
fn a_limit_that_looks_back_further_than_the_ledger() {
    assert_eq!(
        refusal("[sms]\nretention = '30d'\n[limits.sms-total]\nrules = [{ max = 1, window = '31d' }]"),
        "gatehouse.toml:2: sms.retention: 30days is shorter than the longest span of limits.sms-total; it must be at least 31days"
    );
    assert_eq!(
        refusal("[limits.sms-phone]\nrules = [{ max = 1, per = 'year' }]"),
        "gatehouse.toml:1: sms.retention: 90days is shorter than the longest span of limits.sms-phone; it must be at least 366days"
    );
    let others = "[limits.sms-guess]\nrules = [{ max = 1, window = '366d' }]\n[limits.login-account]\nrules = [{ max = 1, per = 'year' }]";
    assert!(read(others).is_ok(), "the ledger is not asked about these");
}

#[test]
fn every_mistake_is_told_at_once_in_the_order_of_the_file() {
    let text = "[server]\nbind = 1\nworkers = 0\n\n[limits.login-account]\nrules = [\n  { max = 0, window = '1m' },\n  { max = 1, window = '1x' },\n]\n[stor]\n";
    let error = read(text).expect_err("mistakes");
    let lines: Vec<_> = error
        .to_string()
        .lines()
        .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        lines,
        [
            "gatehouse.toml:2 server.bind",
            "gatehouse.toml:3 server.workers",
            "gatehouse.toml:7 limits.login-account.rules[0].max",
            "gatehouse.toml:8 limits.login-account.rules[1].window",
            "gatehouse.toml:10 stor",
        ]
    );
    let super::super::ConfigLocation::File { offset, .. } = error.problems()[2].place.clone() else {
        panic!("in the file")
    };
    assert_eq!(offset, text.find("0, window").expect("it is there"));
}

#[test]
fn passkeys_are_for_the_host_or_a_domain_above_it() {
    let at = |url: &str, rp_id: &str| format!("server.public_url = '{url}'\npasskeys.rp_id = '{rp_id}'\n");
    let site = |url: &str, rp_id: &str| {
        let settings = read(&at(url, rp_id)).expect("valid").settings;
        settings.passkeys.site(&settings.server.public_url).map(|site| (site.id, site.origin))
    };
    let told = |id: &str, origin: &str| Some((id.to_owned(), origin.to_owned()));
    for id in ["id.example.org", "example.org"] {
        assert_eq!(site("https://id.example.org", id), told(id, "https://id.example.org"));
    }
    assert_eq!(
        site("https://id.example.org:8443", ""),
        told("id.example.org", "https://id.example.org:8443")
    );
    assert_eq!(site("http://localhost:8080", ""), told("localhost", "http://localhost:8080"));
    for without in ["http://id.example.org", "https://192.0.2.1", "https://[2001:db8::1]"] {
        assert_eq!(site(without, ""), None, "{without}");
    }
    for foreign in ["org", "example.com", "a.id.example.org", "d.example.org"] {
        let told = refusal(&at("https://id.example.org", foreign));
        assert!(told.starts_with("gatehouse.toml:2: passkeys.rp_id: is "), "{told}");
    }
}

#[test]
fn networks_of_proxies_that_are_everyone() {
    let half = |family: &str| {
        format!("covers half of all {family} addresses or more, so clients could say that they are anybody")
    };
    for (networks, family) in [
        ("'0.0.0.0/0', '::/0'", "IPv4"),
        ("'0.0.0.0/0'", "IPv4"),
        ("'0.0.0.0/1'", "IPv4"),
        ("'0.0.0.0/2', '64.0.0.0/3', '96.0.0.0/3', '10.0.0.0/8'", "IPv4"),
        ("'::ffff:0:0/96'", "IPv4"),
        ("'::ffff:128.0.0.0/97'", "IPv4"),
        ("'::/0'", "IPv6"),
        ("'8000::/1'", "IPv6"),
        ("'2000::/3'", "IPv6"),
        ("'2000::/5', '2800::/5'", "IPv6"),
    ] {
        let text = format!("server.trusted_proxies = [{networks}]");
        let told = refusal(&text);
        assert!(
            told.starts_with("gatehouse.toml:1: server.trusted_proxies: ") && told.contains(&half(family)),
            "{told}"
        );
        assert!(told.contains("server.trust_everyone = true"), "{told}");
        let config = read(&format!("{text}\nserver.trust_everyone = true")).expect("valid");
        assert_eq!(config.warnings.len(), 1, "{networks}: {:?}", config.warnings);
    }
    for (networks, warnings) in [
        ("'10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'", 0),
        ("'127.0.0.1', '::1', '2001:db8::/32', '2400::/19'", 0),
        ("'64.0.0.0/3', '96.0.0.0/4'", 1),
        ("'2000::/5'", 1),
        ("'2400::/18'", 1),
    ] {
        let config = read(&format!("server.trusted_proxies = [{networks}]")).expect("valid");
        assert_eq!(config.warnings.len(), warnings, "{networks}: {:?}", config.warnings);
    }
    // Others are told the same way.
    let open = read("server.metrics_from = ['0.0.0.0/0', '::/0']").expect("valid");
    assert!(open.warnings[0].to_string().contains("anybody may read the metrics"), "{:?}", open.warnings);
    let entry = |first: u32| {
        format!("{{ network = '{first}.0.0.0/8', until = '2030-01-01T00:00:00Z', reason = 'x' }}")
    };
    let allow: Vec<_> = (0..128).map(entry).collect();
    let told = refusal(&format!("access.allow = [{}]", allow.join(", ")));
    assert!(told.contains("access.allow: covers half of all IPv4 addresses or more"), "{told}");
}

#[test]
fn prefixes_of_translators() {
    told(&[
        (
            "server.nat64 = ['10.0.0.0/8']",
            "server.nat64[0]: is not a network of IPv6; write a prefix as \"64:ff9b::/96\"",
        ),
        (
            "server.nat64 = ['64:ff9b::/97']",
            "server.nat64[0]: 64:ff9b::/97 is no prefix of translated addresses (RFC 6052): it must have 32, 40, 48, 56, 64 or 96 bits, of which bits 64 to 71 are zero",
        ),
    ]);
    assert!(
        read("server.nat64 = []").is_ok()
            && read("server.nat64 = ['2001:db8::/32', '64:ff9b:1::/48']").is_ok()
    );
}
