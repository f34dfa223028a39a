//! Several gateways: which one takes a message, when the next one may, and what no gateway is given a second time.

use std::collections::HashMap;

use gatehouse::codes::*;
use gatehouse::entropy::Entropy;
use gatehouse::sms::gateway::GatewayOutage;
use gatehouse::sms::*;
use serde_json::json;
use tokio::net::TcpSocket;

use super::gateways::secret_file;
use super::rig::{SECOND, address, all, ask, is_sent, number_of, phone, sent};
use super::scripted::{Provider, Says, Scripted, section};
use crate::support::app::{Store, TestApp, on_both_stores};

const LIMITS: [&str; 5] = ["sms-phone", "sms-address", "sms-network", "sms-prefix", "sms-total"];
const MESSAGES: usize = 200;

on_both_stores! {
    two_hundred_messages_are_each_taken_once_and_none_is_lost,
    of_120_parallel_requests_five_are_sent_by_whichever_gateway,
    what_is_out_for_everybody_is_passed_over_and_what_is_about_a_number_is_not,
    nothing_that_may_have_been_sent_is_given_to_another_gateway,
    a_gateway_that_is_not_there_costs_no_message,
    strangers_take_no_gateway_out_of_service,
    a_gateway_is_back_when_it_says_so_and_no_message_has_to_try,
    where_there_is_nothing_to_ask_one_message_tries_again,
    an_outage_that_a_check_does_not_see_is_tried_by_messages,
    a_403_is_about_the_message,
    the_last_gateway_is_tried_whatever_was_said_of_it,
    a_number_goes_to_the_gateway_of_its_country,
    each_gateway_reports_on_its_own_messages,
    the_console_says_which_gateway_is_out_since_when_and_why,
}

/// Tencent Cloud before Alibaba Cloud, and the app that uses them.
struct Pair {
    first: Scripted,
    second: Scripted,
    app: TestApp,
    _secret: tempfile::NamedTempFile,
}

impl Pair {
    async fn start(store: Store, first: Says, second: Says) -> Self {
        Self::with(store, first, second, |text| text).await
    }

    async fn with(store: Store, first: Says, second: Says, change: impl Fn(String) -> String) -> Self {
        Self::limited(store, [first, second], change, &LIMITS).await
    }

    async fn limited(
        store: Store,
        [first, second]: [Says; 2],
        change: impl Fn(String) -> String,
        without: &[&str],
    ) -> Self {
        let first = Scripted::start(Provider::Tencent, first).await;
        let second = Scripted::start(Provider::Aliyun, second).await;
        let secret = secret_file("key");
        let path = secret.path().display().to_string();
        let sections = change([first.section(&path), second.section(&path)].concat());
        let text = format!("[sms]\ngateways = ['tencent', 'aliyun']\ntimeout = '1s'\n{sections}");
        let app = start_without(store, &text, without).await;
        Self { first, second, app, _secret: secret }
    }

    async fn send(&self) -> SendOutcome {
        send(&self.app, &phone()).await
    }

    fn outages(&self) -> Vec<(&'static str, OutOfService, Option<String>)> {
        outages(&self.app).into_iter().map(|it| (it.gateway, it.why, it.country)).collect()
    }

    /// How many messages each has read.
    fn read(&self) -> [usize; 2] {
        [&self.first, &self.second].map(|gateway| gateway.seen().len())
    }
}

async fn start(store: Store, text: &str) -> TestApp {
    start_without(store, text, &LIMITS).await
}

async fn start_without(store: Store, text: &str, limits: &[&str]) -> TestApp {
    TestApp::on(store).file(text).without(limits).set("sms.brake.enabled", false).start().await
}

/// A gateway of one's own before Alibaba Cloud.
async fn before_aliyun(
    store: Store,
    own: &wiremock::MockServer,
) -> (TestApp, Scripted, tempfile::NamedTempFile) {
    let (second, secret) = (Scripted::start(Provider::Aliyun, Says::Accepts).await, secret_file("key"));
    let sections = second.section(&secret.path().display().to_string());
    let text = format!("[sms]\ngateways = ['http', 'aliyun']\n[sms.http]\nurl = '{}'\n{sections}", own.uri());
    (start(store, &text).await, second, secret)
}

async fn send(app: &TestApp, phone: &Phone) -> SendOutcome {
    let live = app.services.live.snapshot();
    app.services.codes.send(&live, ask(phone, &address())).await.unwrap()
}

fn outages(app: &TestApp) -> Vec<GatewayOutage> {
    app.services.codes.gateways().outages()
}

async fn rows(app: &TestApp) -> Vec<LedgerEntry> {
    app.services.codes.ledger().page(&LedgerFilter::default(), None, 1000).await.unwrap().entries
}

async fn two_hundred_messages_are_each_taken_once_and_none_is_lost(store: Store) {
    let pair = Pair::start(store, Says::Accepts, Says::Accepts).await;
    for (seed, gateway) in [(11, &pair.first), (12, &pair.second)] {
        let entropy = Entropy::seeded(seed);
        gateway.follows(Box::new(move || match entropy.bytes::<1>()[0] % 20 {
            0 => Says::Hangs,
            1 => Says::Half,
            2 => Says::Closes,
            3 => Says::BetweenLines,
            4 => Says::Fails,
            5 | 6 => Says::RefusesNumber,
            7 | 8 => Says::RefusesAll(OutOfService::Signature),
            9 => Says::RefusesAll(OutOfService::Balance),
            10 => Says::RefusesAll(OutOfService::Credentials),
            _ => Says::Accepts,
        }));
    }
    let mut outcomes = Vec::new();
    for _ in 0..MESSAGES / 40 {
        let services = &pair.app.services;
        let sends = (0..40).map(|_| {
            let (services, phone) = (services.clone(), phone());
            async move {
                let live = services.live.snapshot();
                services.codes.send(&live, ask(&phone, &address())).await.unwrap()
            }
        });
        outcomes.extend(all(sends).await);
    }
    let mut seen: HashMap<String, Vec<(&str, Says)>> = HashMap::new();
    for (name, gateway) in [("tencent", &pair.first), ("aliyun", &pair.second)] {
        for (id, says) in gateway.seen() {
            seen.entry(id).or_default().push((name, says));
        }
    }
    let rows = rows(&pair.app).await;
    assert_eq!((rows.len(), seen.len()), (MESSAGES, MESSAGES), "each has one row, and was read by a gateway");
    for row in &rows {
        let seen = &seen[&row.id.to_string()];
        let taken: Vec<_> = seen.iter().filter(|(_, says)| !says.is_refusal()).collect();
        match taken[..] {
            [(gateway, says)] => {
                let state =
                    if *says == Says::Accepts { MessageState::Accepted } else { MessageState::Unknown };
                assert_eq!((row.gateway.as_str(), row.state), (*gateway, state), "{seen:?}");
            }
            [] => {
                assert_eq!(row.state, MessageState::Refused, "{seen:?}");
                let of_number = seen.iter().filter(|(_, says)| *says == Says::RefusesNumber).count();
                assert!(seen.len() == 2 || of_number == 1, "another gateway could have taken it: {seen:?}");
            }
            _ => panic!("sent twice: {seen:?}"),
        }
        let ends = |says: &Says| !matches!(says, Says::RefusesAll(_));
        assert!(seen.iter().filter(|(_, says)| ends(says)).count() <= 1, "asked on: {seen:?}");
    }
    let sent = outcomes.iter().filter(|outcome| is_sent(outcome)).count();
    assert_eq!(sent, rows.iter().filter(|row| row.state != MessageState::Refused).count());
    assert!(sent > MESSAGES / 2, "{sent}");
}

async fn of_120_parallel_requests_five_are_sent_by_whichever_gateway(store: Store) {
    let five = |text| format!("{text}[limits.sms-phone]\nrules = [{{ max = 5, window = '1h' }}]\n");
    let pair = Pair::limited(store, [Says::Accepts; 2], five, &LIMITS[1..]).await;
    let mut turn = 0;
    pair.first.follows(Box::new(move || {
        turn += 1;
        if turn % 2 == 0 { Says::Accepts } else { Says::RefusesAll(OutOfService::Balance) }
    }));
    let (services, phone) = (&pair.app.services, phone());
    let sends = (0..120).map(|_| {
        let (services, phone) = (services.clone(), phone.clone());
        async move {
            let live = services.live.snapshot();
            services.codes.send(&live, ask(&phone, &address())).await.unwrap()
        }
    });
    let outcomes = all(sends).await;
    assert_eq!(outcomes.iter().filter(|outcome| is_sent(outcome)).count(), 5);
    let taken = [&pair.first, &pair.second].map(|gateway| {
        let seen = gateway.seen();
        seen.into_iter().filter(|(_, says)| *says == Says::Accepts).count()
    });
    assert_eq!(taken[0] + taken[1], 5, "{taken:?}");
    let rows = rows(&pair.app).await;
    assert!(rows.len() == 5 && rows.iter().all(|row| row.state == MessageState::Accepted), "{rows:?}");
}

async fn what_is_out_for_everybody_is_passed_over_and_what_is_about_a_number_is_not(store: Store) {
    for why in [OutOfService::Signature, OutOfService::Balance, OutOfService::Credentials] {
        let pair = Pair::start(store, Says::RefusesAll(why), Says::Accepts).await;
        for _ in 0..3 {
            assert!(sent(pair.send().await).confirmed);
        }
        assert_eq!(pair.read(), [1, 3], "{why:?}: the first is asked once");
        let country = (why != OutOfService::Credentials).then(|| "CN".to_owned());
        assert_eq!(pair.outages(), [("tencent", why, country)]);
        assert!(rows(&pair.app).await.iter().all(|row| row.gateway == "aliyun"));
    }
    let pair = Pair::start(store, Says::RefusesNumber, Says::Accepts).await;
    assert_eq!(pair.send().await, SendOutcome::NotSent);
    assert_eq!((pair.read(), pair.outages()), ([1, 0], vec![]));
    assert_eq!(rows(&pair.app).await[0].gateway, "tencent");
}

async fn nothing_that_may_have_been_sent_is_given_to_another_gateway(store: Store) {
    let pair = Pair::start(store, Says::Accepts, Says::Accepts).await;
    for says in [Says::Hangs, Says::Closes, Says::Half, Says::BetweenLines, Says::Fails] {
        pair.first.says(says);
        assert!(!sent(pair.send().await).confirmed, "{says:?}");
    }
    assert_eq!((pair.read(), pair.outages()), ([5, 0], vec![]));
    let rows = rows(&pair.app).await;
    assert!(rows.iter().all(|row| (row.gateway.as_str(), row.state) == ("tencent", MessageState::Unknown)));
}

async fn a_gateway_that_is_not_there_costs_no_message(store: Store) {
    // Nobody listens, nor can while the port is held.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nowhere = format!("http://{}", held.local_addr().unwrap());
    let (second, secret) = (Scripted::start(Provider::Aliyun, Says::Accepts).await, secret_file("key"));
    let path = secret.path().display().to_string();
    let sections = [section(Provider::Tencent, &nowhere, &path), second.section(&path)].concat();
    let app = start(store, &format!("[sms]\ngateways = ['tencent', 'aliyun']\n{sections}")).await;
    for _ in 0..3 {
        assert!(sent(send(&app, &phone()).await).confirmed);
    }
    let [outage] = &outages(&app)[..] else { panic!("one outage") };
    assert_eq!((outage.gateway, outage.why), ("tencent", OutOfService::Unreachable));
    assert_eq!(outage.since, app.clock.now());
    assert_eq!(second.seen().len(), 3);
}

async fn strangers_take_no_gateway_out_of_service(store: Store) {
    let pair = Pair::start(store, Says::RefusesNumber, Says::Accepts).await;
    for _ in 0..50 {
        assert_eq!(pair.send().await, SendOutcome::NotSent);
    }
    assert_eq!(pair.outages(), []);
    // Nor, where others are, by a country for which the account has no signature.
    pair.first.says(Says::RefusesAll(OutOfService::Signature));
    assert!(is_sent(&send(&pair.app, &number_of("+6581234567")).await));
    assert_eq!(pair.outages(), [("tencent", OutOfService::Signature, Some("SG".to_owned()))]);
    pair.first.says(Says::Accepts);
    assert!(sent(pair.send().await).confirmed);
    assert_eq!(pair.read(), [52, 1], "the next message goes to the first");
}

async fn a_gateway_is_back_when_it_says_so_and_no_message_has_to_try(store: Store) {
    let pair = Pair::start(store, Says::RefusesAll(OutOfService::Signature), Says::Accepts).await;
    let codes = &pair.app.services.codes;
    pair.first.is_in_order(false);
    assert!(is_sent(&pair.send().await));
    pair.app.advance(29 * SECOND);
    codes.probe_gateways().await;
    assert_eq!(pair.first.asked(), 0, "it is asked every thirty seconds");
    pair.app.advance(SECOND);
    codes.probe_gateways().await;
    assert!(pair.first.asked() > 0 && pair.outages().len() == 1, "it is still refused");
    assert!(is_sent(&pair.send().await));
    assert_eq!(pair.read(), [1, 2], "no message has tried");
    pair.first.is_in_order(true);
    pair.first.says(Says::Accepts);
    pair.app.advance(30 * SECOND);
    codes.probe_gateways().await;
    assert_eq!(pair.outages(), []);
    assert!(is_sent(&pair.send().await));
    assert_eq!(pair.read(), [2, 2]);
}

async fn an_outage_that_a_check_does_not_see_is_tried_by_messages(store: Store) {
    let pair = Pair::start(store, Says::RefusesAll(OutOfService::Signature), Says::Accepts).await;
    let codes = &pair.app.services.codes;
    // The check says that all is in order, and messages are refused.
    pair.first.is_in_order(true);
    assert!(is_sent(&pair.send().await));
    pair.app.advance(30 * SECOND);
    codes.probe_gateways().await;
    assert_eq!(pair.outages(), []);
    assert!(is_sent(&pair.send().await));
    assert_eq!((pair.outages().len(), pair.read()), (1, [2, 2]));
    for _ in 0..3 {
        pair.app.advance(29 * SECOND);
        codes.probe_gateways().await;
        assert_eq!(pair.outages().len(), 1, "it is not said to be back again");
        assert!(is_sent(&pair.send().await));
    }
    assert_eq!(pair.read(), [3, 5], "one message has tried in a minute and a half");
    pair.first.says(Says::Accepts);
    pair.app.advance(30 * SECOND);
    assert!(is_sent(&pair.send().await));
    assert_eq!((pair.outages(), pair.read()), (vec![], [4, 5]));
}

async fn a_403_is_about_the_message(store: Store) {
    let own = wiremock::MockServer::start().await;
    let refuses = wiremock::Mock::given(wiremock::matchers::method("POST"));
    refuses.respond_with(wiremock::ResponseTemplate::new(403)).mount(&own).await;
    let (app, second, _secret) = before_aliyun(store, &own).await;
    assert_eq!(send(&app, &phone()).await, SendOutcome::NotSent);
    assert_eq!((outages(&app), second.seen()), (vec![], vec![]));
}

async fn where_there_is_nothing_to_ask_one_message_tries_again(store: Store) {
    let own = wiremock::MockServer::start().await;
    let status = |status| {
        wiremock::Mock::given(wiremock::matchers::method("POST"))
            .respond_with(wiremock::ResponseTemplate::new(status))
    };
    let (app, second, _secret) = before_aliyun(store, &own).await;
    status(401).mount(&own).await;
    let tries = async || {
        let calls = own.received_requests().await.unwrap();
        calls.iter().filter(|call| call.method.as_str() == "POST").count()
    };
    assert!(is_sent(&send(&app, &phone()).await));
    app.advance(30 * SECOND);
    app.services.codes.probe_gateways().await;
    for _ in 0..3 {
        assert!(is_sent(&send(&app, &phone()).await));
    }
    assert_eq!((tries().await, second.seen().len()), (2, 4), "one of the three has tried");
    own.reset().await;
    status(200).mount(&own).await;
    app.advance(30 * SECOND);
    for _ in 0..3 {
        assert!(is_sent(&send(&app, &phone()).await));
    }
    assert_eq!((tries().await, second.seen().len(), outages(&app)), (3, 4, vec![]), "it is back");
}

async fn the_last_gateway_is_tried_whatever_was_said_of_it(store: Store) {
    let pair = Pair::start(
        store,
        Says::RefusesAll(OutOfService::Balance),
        Says::RefusesAll(OutOfService::Credentials),
    );
    let pair = pair.await;
    assert_eq!(pair.send().await, SendOutcome::NotSent);
    assert_eq!((pair.read(), pair.outages().len()), ([1, 1], 2));
    let row = &rows(&pair.app).await[0];
    assert_eq!((row.gateway.as_str(), row.state), ("aliyun", MessageState::Refused));
    pair.second.says(Says::Accepts);
    assert!(sent(pair.send().await).confirmed);
    assert_eq!(pair.outages(), [("tencent", OutOfService::Balance, Some("CN".to_owned()))]);
}

async fn a_number_goes_to_the_gateway_of_its_country(store: Store) {
    let countries = |text: String| {
        let text = text.replace("[sms.tencent]", "[sms.tencent]\ncountries = ['CN']");
        text.replace("[sms.aliyun]", "[sms.aliyun]\ncountries = ['SG', 'MY']")
    };
    let pair = Pair::with(store, Says::Accepts, Says::Accepts, countries).await;
    assert!(is_sent(&pair.send().await));
    assert!(is_sent(&send(&pair.app, &number_of("+6581234567")).await));
    assert_eq!(pair.read(), [1, 1]);
    assert_eq!(send(&pair.app, &number_of("+85291234567")).await, SendOutcome::NotSent);
    let rows = rows(&pair.app).await;
    let unserved = rows.iter().find(|row| row.gateway == "none").expect("one that no gateway has seen");
    assert_eq!(unserved.reason.as_deref(), Some("no gateway serves the country"));
    // Not even where its own is out.
    pair.first.says(Says::RefusesAll(OutOfService::Credentials));
    assert_eq!(pair.send().await, SendOutcome::NotSent);
    assert_eq!(pair.read(), [2, 1]);
}

async fn each_gateway_reports_on_its_own_messages(store: Store) {
    let pair = Pair::start(store, Says::Accepts, Says::Accepts).await;
    assert!(is_sent(&pair.send().await));
    pair.first.says(Says::RefusesAll(OutOfService::Credentials));
    assert!(is_sent(&pair.send().await));
    let codes = &pair.app.services.codes;
    let url = codes.gateways().named("tencent").unwrap().reports_to().unwrap();
    let query = url.split_once('?').unwrap().1.to_owned();
    let client = pair.app.client();
    let tell = async |path: &str, body: serde_json::Value| {
        client
            .http
            .post(format!("{}{path}", pair.app.url))
            .json(&body)
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    let report = json!([{ "mobile": "13800138000", "report_status": "SUCCESS", "errmsg": "DELIVRD", "sid": "5000:1" }]);
    assert_eq!(tell("/sms/reports/tencent", report.clone()).await, 401, "its address is not the secret one");
    assert_eq!(tell(&format!("/sms/reports/tencent?{query}"), report.clone()).await, 200);
    assert_eq!(tell("/sms/reports/twilio", report).await, 404);
    let states: HashMap<_, _> =
        rows(&pair.app).await.into_iter().map(|row| (row.gateway, (row.state, row.report))).collect();
    assert_eq!(states["tencent"], (MessageState::Accepted, Some(ReportState::Delivered)));
    assert_eq!(states["aliyun"], (MessageState::Accepted, None));
}

async fn the_console_says_which_gateway_is_out_since_when_and_why(store: Store) {
    let pair = Pair::start(store, Says::RefusesAll(OutOfService::Signature), Says::Accepts).await;
    assert!(is_sent(&pair.send().await));
    let admin = pair.app.sign_in_admin("ada").await;
    let page = admin.get("/admin").await.text;
    for words in [
        "Tencent Cloud sends no messages to CN, since ",
        "filed with the carriers under a real name",
        "FailedOperation.SignatureIncorrectOrUnapproved",
        "Tencent Cloud, Alibaba Cloud",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let chinese = admin.http.get(format!("{}/admin?lang=zh-CN", admin.url)).send().await.unwrap();
    let chinese = chinese.text().await.unwrap();
    assert!(chinese.contains("腾讯云短信自 ") && chinese.contains("向各运营商报备"), "{chinese}");
}
