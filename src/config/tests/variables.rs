//! Environment variables: what they set, and how they are refused.

use crate::config::*;

use super::{read_with, refusal_with};

#[test]
fn a_variable_wins_over_the_file() {
    let config = read_with("[server]\nbind = '127.0.0.1:1'", &[("GATEHOUSE__SERVER__BIND", "127.0.0.1:2")]);
    assert_eq!(config.expect("valid").settings.server.bind.port(), 2);
}

#[test]
fn values_are_toml_where_that_fits_and_text_otherwise() {
    let config = read_with(
        "",
        &[
            ("GATEHOUSE__SERVER__WORKERS", " 3 "),
            ("GATEHOUSE__SERVER__TRUSTED_PROXIES", "['10.0.0.0/8']"),
            ("GATEHOUSE__STORE__TIMEOUT", "\"250ms\""),
            ("GATEHOUSE__CAPTCHA__PROVIDER", "fixed"),
            ("GATEHOUSE__CAPTCHA__FIXED_ANSWER", "1234"),
        ],
    );
    let settings = config.expect("valid").settings;
    assert_eq!(settings.server.workers, Some(3));
    assert_eq!(settings.server.trusted_proxies.len(), 1);
    assert_eq!(settings.store.timeout.as_millis(), 250);
    assert_eq!(settings.captcha.provider, CaptchaProvider::Fixed { answer: "1234".to_owned() });
}

#[test]
fn underscores_stand_for_the_dashes_of_limits_and_headers() {
    let config = read_with(
        "",
        &[
            ("GATEHOUSE__LIMITS__LOGIN_ACCOUNT__RULES", r#"[{max=4,window="1m"}]"#),
            ("GATEHOUSE__LIMITS__CUSTOM__LEAVE_CAMPUS__RULES", r#"[{max=3,per="month"}]"#),
            ("GATEHOUSE__SMS__GATEWAY", "http"),
            ("GATEHOUSE__SMS__HTTP__URL", "https://sms.example/"),
            ("GATEHOUSE__SMS__HTTP__HEADERS__X_KEY", "env:SMS_KEY"),
        ],
    )
    .expect("valid");
    assert_eq!(config.live.limits.login_account.capacity(), 4);
    assert!(config.live.limits.custom.contains_key("leave-campus"));
    let GatewaySettings::Http(http) = &config.settings.sms.gateways[0].gateway else {
        panic!("the chosen gateway")
    };
    assert_eq!(http.headers[0].0, "x-key");
}

#[test]
fn a_whole_table_may_be_one_variable() {
    let config = read_with("", &[("GATEHOUSE__SESSION", "{ idle = '1h', absolute = '2h' }")]).expect("valid");
    assert_eq!(config.settings.session.idle.as_secs(), 3600);
}

#[test]
fn other_programs_variables_are_left_alone() {
    read_with("", &[("GATEHOUSE_ADMIN_TOKEN", "x"), ("PATH", "/bin"), ("GATEHOUSE", "1")]).expect("valid");
    // Even one that looks like a setting, if the document says that it is its own.
    let own = [("GATEHOUSE_DATABASE_URL", "x"), ("GATEHOUSE_PORT_8080_TCP", "tcp://10.0.0.1:8080")];
    let told = refusal_with("", &own);
    assert!(
        told.starts_with(
            "GATEHOUSE_DATABASE_URL: database.url: sets nothing; write GATEHOUSE__DATABASE__URL,"
        ),
        "{told}"
    );
    let file = "[sms]\ngateway = 'http'\n[sms.http]\nurl = 'https://sms.example/'\nheaders = { x = 'env:GATEHOUSE_DATABASE_URL' }\n";
    read_with(file, &own).expect("valid");
}

#[test]
fn a_bad_variable_is_named() {
    let refused = |name: &str, value: &str| refusal_with("", &[(name, value)]);
    assert_eq!(
        refused("GATEHOUSE__SERVER__BIMD", "127.0.0.1:1"),
        "GATEHOUSE__SERVER__BIMD: server.bimd: is not a setting; did you mean bind?"
    );
    assert_eq!(
        refused("GATEHOUSE__SERVER__WORKERS", "many"),
        "GATEHOUSE__SERVER__WORKERS: server.workers: is text; it must be a whole number"
    );
    assert_eq!(
        refused("GATEHOUSE__LIMITS__LOGIN_ACCOUNT__RULES", "[{max=0,window='1m'}]"),
        "GATEHOUSE__LIMITS__LOGIN_ACCOUNT__RULES: limits.login-account.rules[0].max: 0 is out of range; it must be from 1 to 1000000"
    );
    assert_eq!(
        refused("GATEHOUSE__server__bind", "127.0.0.1:1"),
        "GATEHOUSE__server__bind: server.bind: must be written in capitals: GATEHOUSE__SERVER__BIND"
    );
    assert_eq!(refused("GATEHOUSE__SERVER", "x"), "GATEHOUSE__SERVER: server: is text; it must be a table");
    assert_eq!(
        refused("GATEHOUSE__SERVER____BIND", "x"),
        "GATEHOUSE__SERVER____BIND: server.bind: sets nothing; write GATEHOUSE__SERVER__BIND, or choose another name if it is for something else"
    );
    assert_eq!(
        refused("GATEHOUSE__SERVER__BIND__PORT", "1"),
        "GATEHOUSE__SERVER__BIND__PORT: server.bind: is a table; it must be text in quotes"
    );
}

#[test]
fn one_setting_from_two_variables_is_refused() {
    let twice =
        [("GATEHOUSE__LIMITS__SMS_TOTAL__RULES", "[]"), ("GATEHOUSE__LIMITS__SMS_TOTAL", "{ rules = [] }")];
    assert_eq!(
        refusal_with("", &twice),
        "GATEHOUSE__LIMITS__SMS_TOTAL__RULES: limits.sms-total.rules: sets the same as GATEHOUSE__LIMITS__SMS_TOTAL; keep one of them"
    );
}

#[test]
fn problems_of_the_file_come_before_those_of_variables() {
    let message = refusal_with("\nserver.bimd = 1", &[("GATEHOUSE__STORE__TIMEOUT", "1h")]);
    let expected = "gatehouse.toml:2: server.bimd: is not a setting; did you mean bind?\n\
        GATEHOUSE__STORE__TIMEOUT: store.timeout: 1h is out of range; it must be from 10ms to 5s";
    assert_eq!(message, expected);
}
