//! `gatehouse sms check`: the real binary, asking providers as the test says.

use gatehouse::sms::OutOfService;
use serde_json::json;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::scripted::{Provider, Says, Scripted};
use crate::support::process::{Ended, Home};

fn home(gateways: &str, sections: &str) -> Home {
    let home = Home::new();
    home.write("key", "secret");
    home.write("gatehouse.toml", &format!("[sms]\ngateways = {gateways}\ntimeout = '1s'\n{sections}"));
    home
}

async fn pair(first: Says, second: Says) -> (Scripted, Scripted, Home) {
    let first = Scripted::start(Provider::Tencent, first).await;
    let second = Scripted::start(Provider::Aliyun, second).await;
    let sections = format!("{}countries = ['CN']\n{}", first.section("key"), second.section("key"));
    let home = home("['tencent', 'aliyun']", &sections);
    (first, second, home)
}

/// On a thread of its own, while the providers answer.
async fn check(home: Home, number: Option<&'static str>) -> (Ended, Home) {
    let run = move || (home.run(&[&["sms", "check"][..], number.as_slice()].concat()), home);
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test]
async fn what_is_in_order_is_told_line_by_line_and_nothing_is_sent() {
    let (first, second, home) = pair(Says::Accepts, Says::Accepts).await;
    let (ended, _) = check(home, None).await;
    assert_eq!(
        ended.stdout,
        "ok   tencent connection: answers\n\
         ok   tencent credentials: accepted\n\
         ok   tencent signature: 门房 may be used\n\
         ok   tencent template: 1110 may be used\n\
         ok   tencent balance: 750 messages are left in packages\n\
         ok   aliyun connection: answers\n\
         ok   aliyun credentials: accepted\n\
         ok   aliyun signature: 门房 may be used\n\
         ok   aliyun template: SMS_0123 may be used\n\
         note aliyun balance cannot be asked: its console shows it; this API has no call for it\n"
    );
    assert_eq!((ended.code, first.seen().len(), second.seen().len()), (Some(0), 0, 0), "{}", ended.stderr);
}

#[tokio::test]
async fn what_is_not_in_order_is_told_with_what_to_do() {
    let (first, _second, home) = pair(Says::Accepts, Says::Accepts).await;
    first.is_in_order(false);
    let (ended, home) = check(home, None).await;
    let line = "FAIL tencent signature: 门房 is refused, or not filed with the carriers: 资质 不符; check the signature";
    assert!(ended.stdout.contains(line), "{}", ended.stdout);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), "One check failed.\n"));
    // Nobody listens there any more.
    let gone = home.path("gatehouse.toml");
    let text = std::fs::read_to_string(&gone).unwrap().replace(&first.port.to_string(), "9");
    home.write("gatehouse.toml", &text);
    let (ended, _) = check(home, None).await;
    assert!(
        ended.stdout.starts_with("FAIL tencent connection: the gateway cannot be reached; check its address")
    );
    assert_eq!(ended.code, Some(1));
}

#[tokio::test]
async fn a_number_gets_a_message_through_each_gateway_of_its_country() {
    let (first, second, home) = pair(Says::Accepts, Says::RefusesAll(OutOfService::Balance)).await;
    let (ended, home) = check(home, Some("138 0013 8000")).await;
    assert!(
        ended.stdout.contains("ok   tencent accepted a message to +86138****8000 as 5000:1\n"),
        "{}",
        ended.stdout
    );
    let refused = "FAIL aliyun did not send a message to +86138****8000: the gateway answered isv.AMOUNT_NOT_ENOUGH; top up";
    assert!(ended.stdout.contains(refused), "{}", ended.stdout);
    assert_eq!((ended.code, first.seen().len(), second.seen().len()), (Some(1), 1, 1));
    second.says(Says::Accepts);
    let (ended, home) = check(home, Some("+6581234567")).await;
    assert_eq!((ended.code, first.seen().len(), second.seen().len()), (Some(0), 1, 2), "{}", ended.stdout);
    let (ended, _) = check(home, Some("12345")).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), "NUMBER is not a phone number\n"));
}

#[tokio::test]
async fn twilio_and_a_gateway_of_ones_own_are_asked_what_they_have() {
    let server = MockServer::start().await;
    let answer = |body: serde_json::Value| ResponseTemplate::new(200).set_body_json(body);
    for (at, body) in [
        ("/2010-04-01/Accounts/AC0123.json", json!({ "status": "active" })),
        ("/2010-04-01/Accounts/AC0123/Balance.json", json!({ "balance": "-0.25", "currency": "USD" })),
    ] {
        Mock::given(method("GET")).and(path(at)).respond_with(answer(body)).mount(&server).await;
    }
    let sections = format!(
        "[sms.twilio]\nurl = '{0}'\naccount_sid = 'AC0123'\nauth_token = 'file:key'\nfrom = '+15005550006'\n\
         [sms.http]\nurl = '{0}/send?to={{phone}}&key={{file:key}}'\n",
        server.uri()
    );
    let (ended, _) = check(home("['twilio', 'http']", &sections), None).await;
    assert_eq!(
        ended.stdout,
        "ok   twilio connection: answers\n\
         ok   twilio credentials: accepted\n\
         ok   twilio account: active\n\
         FAIL twilio balance: -0.25 USD; top up the account, or buy a package of messages\n\
         ok   http connection: answers\n\
         note http credentials cannot be asked: no call is known for it\n\
         note http balance cannot be asked: no call is known for it\n"
    );
    assert_eq!(ended.code, Some(1));
    let calls = server.received_requests().await.unwrap();
    assert!(calls.iter().all(|call| matches!(call.method.as_str(), "GET" | "HEAD")), "{calls:?}");
}

#[tokio::test]
async fn what_sends_nothing_has_nothing_to_ask() {
    let (ended, _) = check(home("['none']", ""), None).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "note none has nothing to ask\n"));
}
