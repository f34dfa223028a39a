//! Valid documents and their results.

use std::time::Duration;

use gatehouse_limiter::{CalendarUnit, LimitMode, Rule, RuleAction, RuleSpan};

use crate::config::*;

use super::read;

/// The configuration in the description of the public interface, as it is written there.
const DESCRIBED: &str = r#"
[server]
bind = "127.0.0.1:8080"
public_url = "http://127.0.0.1:8080"   # https makes cookies Secure
trusted_proxies = []                   # CIDRs
[database]
url = "sqlite://data/gatehouse.db"     # or postgres://…
[store]
url = "memory:"
[secrets]
key_file = "data/secret.key"           # made at first start, mode 0600
[captcha]
provider = "image"
difficulty = "medium"
ttl = "3m"
[sms]
gateway = "outbox"
default_region = "CN"
countries = []
code_ttl = "5m"
[sms.http]
method = "POST"
url = "https://gateway.example/send"
headers = {}
body = '{"to":"{phone}","text":"{text}"}'
[limits.login-account]
rules = [{ max = 3, window = "1m", then = "captcha" }, { max = 20, window = "1h", then = "block" }]
[limits.login-address]
rules = [{ max = 20, window = "1m", then = "captcha" }, { max = 60, window = "1h", then = "captcha" }]
[limits.sms-phone]
rules = [{ max = 1, window = "1m" }, { max = 3, window = "24h", then = "captcha" }, { max = 5, window = "1h" }, { max = 10, window = "24h" }]
[limits.sms-address]
rules = [{ max = 10, window = "1h", then = "captcha" }, { max = 20, window = "1h" }]
[limits.sms-network]
rules = [{ max = 20, window = "1h", then = "captcha" }, { max = 100, window = "1h" }]
[limits.sms-prefix]
rules = [{ max = 40, window = "24h", then = "captcha" }, { max = 200, window = "24h" }]
[limits.sms-total]
rules = [{ max = 1000, window = "24h", then = "captcha" }, { max = 10000, window = "24h" }]
[limits.sms-guess]
rules = [{ max = 5, window = "10m" }]
"#;

#[test]
fn an_empty_document_is_the_defaults() {
    assert_eq!(read("").expect("valid"), Config::default());
}

#[test]
fn the_described_configuration_is_the_defaults() {
    assert_eq!(read(DESCRIBED).expect("valid"), Config::default());
}

#[test]
fn a_named_limit_is_replaced_whole_and_the_others_keep_their_defaults() {
    let config = read("[limits.login-account]\nmode = 'monitor'\nrules = [{ max = 7, window = '2m' }]")
        .expect("valid");
    let limits = config.live.limits;
    let rule = Rule::sliding(7, Duration::from_secs(120), RuleAction::Block);
    assert_eq!(limits.login_account.rules(), [rule]);
    assert_eq!(limits.login_account.mode(), LimitMode::Monitor);
    assert_eq!(limits.login_account.name(), "login-account");
    assert_eq!(limits.login_address, Limits::default().login_address);
}

#[test]
fn no_rules_switch_a_limit_off() {
    let config = read("[limits.sms-total]\nrules = []").expect("valid");
    assert!(config.live.limits.sms_total.rules().is_empty());
}

#[test]
fn custom_limits_slide_or_follow_the_calendar() {
    let text = "[limits.custom.reply]\nrules = [{ max = 5, window = '1s' }]\n\
                [limits.custom.leave-campus]\nrules = [{ max = 3, per = 'month', timezone = 'Asia/Shanghai' }]\n\
                [limits.custom.a]\nrules = [{ max = 1, per = 'day' }]";
    let limits = read(text).expect("valid").live.limits;
    assert_eq!(limits.custom["reply"].name(), "custom.reply");
    let span = |name: &str| limits.get(name).expect("a limit").rules()[0].span.clone();
    let shanghai = jiff::tz::TimeZone::get("Asia/Shanghai").expect("a zone");
    assert_eq!(span("custom.leave-campus"), RuleSpan::Calendar { unit: CalendarUnit::Month, zone: shanghai });
    let utc = jiff::tz::TimeZone::UTC;
    assert_eq!(span("custom.a"), RuleSpan::Calendar { unit: CalendarUnit::Day, zone: utc });
}

#[test]
fn every_bound_is_inside() {
    let text =
        "[limits.custom.x]\nrules = [{ max = 1, window = '100ms' }, { max = 1000000, window = '366d' }]";
    assert_eq!(read(text).expect("valid").live.limits.custom["x"].capacity(), 1_000_000);
}

#[test]
fn urls_come_to_what_they_name() {
    let database = |url: &str| read(&format!("database.url = '{url}'")).expect("valid").settings.database.url;
    assert_eq!(database("sqlite::memory:"), DatabaseUrl::Sqlite(SqliteFile::Memory));
    assert_eq!(database("sqlite:///srv/a.db"), DatabaseUrl::Sqlite(SqliteFile::Path("/srv/a.db".into())));
    assert!(matches!(database("postgres://u:p@db/gatehouse"), DatabaseUrl::Postgres(_)));
    for (libpq, socket) in [
        ("postgres://u@/g?host=/run/postgresql", "/run/postgresql"),
        ("postgresql://u:p@:5433/g?sslmode=disable&host=%2Ftmp", "/tmp"),
        ("postgres:///g?user=u&host=/tmp", "/tmp"),
        ("postgres://%2Ftmp/g", "/tmp"),
    ] {
        let DatabaseUrl::Postgres(url) = database(libpq) else { panic!("{libpq}") };
        let options: sqlx::postgres::PgConnectOptions = url.as_str().parse().unwrap();
        assert_eq!(options.get_socket().map(|path| path.to_str().unwrap()), Some(socket), "{libpq}");
    }
    let asked =
        "postgres://u@db/g?target_session_attrs=read-write&sslmode=verify-full&target_session_attrs=primary";
    let DatabaseUrl::Postgres(url) = database(asked) else { panic!("it is PostgreSQL's") };
    assert_eq!(url.as_str(), "postgres://u@db/g?sslmode=verify-full");
    let store = |url: &str| read(&format!("store.url = '{url}'")).expect("valid").settings.store.url;
    let shown = |url: &str| format!("{:?}", store(url));
    assert_eq!(shown("rediss://:hunter2@cache:6380/1"), "rediss://cache:6380/1");
    assert_eq!(
        shown("redis-sentinel://u:hunter2@a:1,[::1],c/main%20one?sentinel_user=s&sentinel_password=hunter2"),
        "redis-sentinel://a:1,[::1]:26379,c:26379/main one"
    );
    assert_eq!(shown("rediss-cluster://u:hunter2@a:7000,b"), "rediss-cluster://a:7000,b:6379");
    let ca_file = |text: &str| read(text).expect("valid").settings.store.ca_file;
    assert_eq!(ca_file("store.ca_file = ''"), None);
    assert_eq!(ca_file("store.ca_file = '/etc/ca.pem'"), Some("/etc/ca.pem".into()));
    let proxies = read("server.trusted_proxies = ['10.1.0.0/8', '::1']")
        .expect("valid")
        .settings
        .server
        .trusted_proxies;
    assert_eq!(proxies.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8", "::1/128"]);
}

#[test]
fn a_chosen_gateway_keeps_what_it_needs() {
    let text = "[server]\nbind = '0.0.0.0:80'\n[sms]\ngateway = 'http'\n[sms.http]\n\
                url = 'https://sms.example/send?to={phone}'\nheaders = { X-Key = 'env:SMS_KEY' }";
    let GatewaySettings::Http(http) = read(text).expect("valid").settings.sms.gateways.remove(0).gateway
    else {
        panic!("the chosen gateway")
    };
    assert_eq!(http.headers, [("X-Key".to_owned(), SecretRef::Variable("SMS_KEY".to_owned()))]);
    assert_eq!(http.method, HttpMethod::Post);
}

#[test]
fn the_brake_takes_its_bounds_and_a_whole_number_for_a_share() {
    let text = "[sms]\nretention = '366d'\n[sms.brake]\nenabled = false\nwindow = '7d'\nmin_sent = 1\n\
                min_sent_range = 1000000\nmin_solved_range = 1\nmin_entered = 1\nlifts_after = '30d'\n\
                again_within = '1m'\nmin_sent_again = 1\nmin_sent_country = 1\n\
                [limits.sms-phone]\nrules = [{ max = 1, per = 'year' }]";
    let sms = read(text).expect("valid").live.sms;
    let day = Duration::from_secs(24 * 60 * 60);
    let brake = Brake {
        enabled: false,
        window: 7 * day,
        min_sent: 1,
        min_sent_range: 1_000_000,
        min_solved_range: 1,
        min_entered: 1.0,
        lifts_after: 30 * day,
        again_within: Duration::from_secs(60),
        min_sent_again: 1,
        min_sent_country: 1,
    };
    assert_eq!((sms.retention, sms.brake), (366 * day, brake));
    let share = |text: &str| read(text).expect("valid").live.sms.brake.min_entered;
    assert_eq!((share("sms.brake.min_entered = 0.25"), share("sms.brake.min_entered = 0")), (0.25, 0.0));
}

#[test]
fn gateways_keep_their_order_and_their_countries() {
    let text = "[server]\nbind = '0.0.0.0:80'\n[sms]\ngateways = ['tencent', 'http']\n[sms.tencent]\n\
                countries = ['CN', '001']\nsecret_id = 'x'\nsecret_key = 'env:X'\nsdk_app_id = '1'\nsign_name = '门房'\n\
                template_id = '1110'\n[sms.http]\nurl = 'https://sms.example/'";
    let settings = read(text).expect("valid").settings;
    let [first, second] = &settings.sms.gateways[..] else { panic!("two gateways") };
    assert_eq!(
        (&first.countries[..], &second.countries[..]),
        (&["CN".to_owned(), "001".to_owned()][..], &[][..])
    );
    let GatewaySettings::Tencent(tencent) = &first.gateway else { panic!("the first of the list") };
    assert_eq!((tencent.template_id, tencent.region.as_str()), (1110, "ap-guangzhou"));
    assert_eq!(tencent.url.as_str(), "https://sms.tencentcloudapi.com/");
    assert!(matches!(second.gateway, GatewaySettings::Http(_)));
}

#[test]
fn a_country_that_no_gateway_serves_is_warned_of() {
    let text = |countries: &str| {
        format!(
            "[server]\nbind = '0.0.0.0:80'\n[sms]\ngateway = 'http'\ncountries = {countries}\n[sms.http]\n\
             countries = ['CN']\nurl = 'https://sms.example/'"
        )
    };
    assert!(read(&text("['CN']")).unwrap().warnings.is_empty());
    let config = read(&text("['CN', 'SG']")).unwrap();
    let [warning] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
    assert!(warning.to_string().contains("sms.countries: SG is served by none of the gateways"), "{warning}");
}

#[test]
fn get_sends_no_body_and_post_the_default_one() {
    let chosen = |method: &str| {
        let text =
            format!("[sms]\ngateway = 'http'\n[sms.http]\nmethod = '{method}'\nurl = 'http://a/?t={{text}}'");
        match read(&text).expect("valid").settings.sms.gateways.remove(0).gateway {
            GatewaySettings::Http(http) => http.body,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(chosen("GET"), None);
    assert_eq!(format!("{:?}", chosen("POST")), "Some([Place(Phone), Place(Text)])");
}

#[test]
fn debug_lines_hold_no_password() {
    let text = "database.url = 'postgres://u:hunter2@db/x?password=hunter2'\nstore.url = 'redis://:hunter2@r'\n\
                [sms]\ngateway = 'http'\n[sms.http]\nurl = 'http://a/?p=hunter2'\nbody = 'p=hunter2'\nheaders = { k = 'hunter2' }";
    let shown = format!("{:?}", read(text).expect("valid"));
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn what_takes_a_restart_is_named() {
    let one = read("").expect("valid").settings;
    let other = read("server.workers = 3\npassword.queue = 9\ncaptcha.ttl = '1m'\nsms.timeout = '9s'")
        .expect("valid")
        .settings;
    assert_eq!(one.differences(&other), ["server.workers", "password.queue", "sms.timeout"]);
    assert!(one.differences(&one).is_empty());
}
