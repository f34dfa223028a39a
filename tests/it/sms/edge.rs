//! What is refused before a code is sent or compared, and who sees what.

use serde_json::json;

use super::http::{NUMBER, OTHER, enter, with_number};
use crate::support::app::{ANSWER, Answer, PASSWORD, Store, TestApp};
use crate::support::setup::max;

#[tokio::test]
async fn numbers_that_no_code_goes_to_are_refused() {
    let app = TestApp::on(Store::Memory).set("sms.countries", "['CN']").start().await;
    let client = app.client();
    for phone in ["", "12", "+86 10 6552 9988", "138001380001234", "+8613800138000;ext=5", "hello"] {
        let refused = client.ask_code(phone, "login").await;
        assert_eq!((refused.status, refused.problem()), (422, "invalid-phone"), "{phone}");
    }
    let refused = client.ask_code("+49 1512 3456789", "login").await;
    assert_eq!((refused.status, refused.problem()), (422, "country-not-allowed"));
    assert_eq!(enter(&client, "+49 1512 3456789", "123456").await.problem(), "country-not-allowed");
    assert_eq!(client.ask_code(NUMBER, "gift").await.problem(), "invalid-input");
    assert_eq!(client.codes("").await, Vec::<String>::new());
}

/// Networks of satellites and the like, whatever is said of countries.
#[tokio::test]
async fn global_networks_are_sent_to_only_if_they_are_named() {
    const SATELLITES: [&str; 2] = ["+870 773 111 632", "+881 612 345 678"];
    let all = TestApp::start(Store::Memory).await;
    for number in SATELLITES {
        let refused = all.client().ask_code(number, "login").await;
        assert_eq!(
            (refused.status, refused.problem()),
            (422, "country-not-allowed"),
            "{number} {}",
            refused.text
        );
    }
    for number in
        ["+979 123 456 789", "+1 900 555 1234", "+44 70 1234 5678", "+44 7640 123456", "+49 180 1234567"]
    {
        let refused = all.client().ask_code(number, "login").await;
        assert_eq!((refused.status, refused.problem()), (422, "invalid-phone"), "{number} {}", refused.text);
    }
    assert_eq!(all.client().ask_code("+49 1512 3456789", "login").await.status, 202);
    let named = TestApp::on(Store::Memory).set("sms.countries", "['CN', '001']").start().await;
    assert_eq!(named.client().ask_code(SATELLITES[1], "login").await.status, 202);
    assert_eq!(named.client().ask_code("+49 1512 3456789", "login").await.problem(), "country-not-allowed");
}

#[tokio::test]
async fn past_a_captcha_rule_a_solved_one_is_asked_for() {
    let app = TestApp::on(Store::Memory)
        .limit("sms-phone", &[max(1).per("1h").captcha(), max(2).per("1h")])
        .start()
        .await;
    let client = app.client();
    assert_eq!(client.ask_code(NUMBER, "login").await.status, 202);
    let asked = client.ask_code(NUMBER, "login").await;
    assert_eq!((asked.status, asked.problem()), (403, "captcha-required"));
    let ask_with = async |id: &str, answer: &str| {
        let captcha = json!({ "id": id, "answer": answer });
        client.call("/sms/codes", json!({ "phone": NUMBER, "purpose": "login", "captcha": captcha })).await
    };
    let for_login = client.challenge().await;
    assert_eq!(ask_with(&for_login, ANSWER).await.problem(), "captcha-invalid", "of another form");
    let id = asked.body["captcha"]["id"].as_str().unwrap();
    assert_eq!(ask_with(id, ANSWER).await.status, 202);
    assert_eq!(ask_with(id, ANSWER).await.problem(), "captcha-invalid", "once");
    let answer = client.call("/captcha", json!({ "for": "sms" })).await;
    let refused = ask_with(answer.body["id"].as_str().unwrap(), ANSWER).await;
    assert_eq!((refused.problem(), &refused.body["limit"]), ("throttled", &json!("sms-phone")));
    assert_eq!(client.codes("").await.len(), 2);
}

#[tokio::test]
async fn a_page_of_another_site_can_ask_for_nothing() {
    let app = TestApp::start(Store::Memory).await;
    let client = with_number(&app, "alice", NUMBER).await;
    let before = client.codes("").await.len();
    for (method, path) in [
        ("POST", "/sms/codes"),
        ("POST", "/sms/login"),
        ("POST", "/password/reset"),
        ("POST", "/account/phone"),
        ("DELETE", "/account/phone"),
        ("DELETE", "/admin/brakes/+861380013"),
    ] {
        let request = client.http.request(method.parse().unwrap(), format!("{}/api/v1{path}", app.url));
        let body = match path {
            _ if method == "DELETE" => json!({}),
            "/sms/codes" => json!({ "phone": OTHER, "purpose": "login" }),
            "/password/reset" => json!({ "phone": OTHER, "code": "123456", "new_password": PASSWORD }),
            _ => json!({ "phone": OTHER, "code": "123456" }),
        };
        let request = request.header("origin", "https://evil.example").json(&body);
        let refused = Answer::read(request.send().await.unwrap()).await;
        assert_eq!((refused.status, refused.problem()), (403, "csrf"), "{path}");
    }
    assert_eq!(client.codes("").await.len(), before);
    assert_eq!(client.get("/api/v1/session").await.body["user"]["phone"], NUMBER);
}

#[tokio::test]
async fn without_the_store_no_code_is_sent_or_compared() {
    let mut app = TestApp::on(Store::Redis).set("store.timeout", "200ms").start().await;
    let client = app.client();
    let code = client.code(NUMBER, "login").await;
    drop(app.redis.take());
    for answer in [client.ask_code(OTHER, "login").await, enter(&client, NUMBER, &code).await] {
        assert_eq!((answer.status, answer.problem()), (503, "unavailable"), "{}", answer.text);
        assert!(!answer.header("retry-after").is_empty());
    }
    assert_eq!(client.codes("").await.len(), 1);
}

/// Where a newcomer finds the code, told on each page that asks for a number or a code.
#[tokio::test]
async fn pages_say_where_codes_are_while_none_is_sent() {
    let app = TestApp::on(Store::Memory).behind_a_proxy().without(&["sms-phone"]).start().await;
    let client = app.client();
    let link = "<a href=\"/dev/outbox\" target=\"_blank\">Development outbox</a>";
    let told = |answer: &Answer| answer.text.matches(link).count();
    for page in ["/login/code", "/password/reset", "/register"] {
        assert_eq!(told(&client.get(page).await), 1, "{page}");
        let fields = [("phone", NUMBER), ("login", "ada")];
        let sent = client.submit(page, page, &fields).await;
        assert!(sent.text.contains("sends no messages") && sent.text.contains("name=\"code\""), "{page}");
        assert_eq!(told(&sent), 1, "{page}: {}", sent.text);
    }
    assert_eq!(client.get("/dev/outbox").await.status, 200);
    let chinese = client.http.get(format!("{}/login/code?lang=zh-CN", client.url)).send().await.unwrap();
    assert!(chinese.text().await.unwrap().contains("本服务器处于开发模式，不会发送短信。"));
    app.register("lin").await;
    let lin = app.client();
    assert_eq!(lin.login("lin", PASSWORD).await.status, 200);
    assert_eq!(told(&lin.get("/account/phone").await), 1);
    // Who comes through a proxy is told the address on the machine itself.
    let away = app.client_at("203.0.113.7").get("/login/code").await.text;
    let there = format!("<a href=\"{}/dev/outbox\" target=\"_blank\">", app.url);
    assert!(away.contains(&there) && !away.contains(link), "{away}");
    // A real gateway says nothing of it.
    let app = TestApp::on(Store::Memory)
        .set("sms.gateway", "http")
        .set("sms.http.url", "http://127.0.0.1:9/")
        .start()
        .await;
    for page in ["/login/code", "/password/reset", "/register"] {
        assert!(!app.client().get(page).await.text.contains("/dev/outbox"), "{page}");
    }
}

#[tokio::test]
async fn the_outbox_is_for_this_machine_alone() {
    let app = TestApp::on(Store::Memory).behind_a_proxy().start().await;
    app.client().code(NUMBER, "login").await;
    for path in ["/dev/outbox", "/dev/outbox.json"] {
        let seen = app.client().get(path).await;
        assert!(seen.status == 200 && seen.text.contains(NUMBER), "{path}: {}", seen.text);
        for address in ["127.0.0.1", "203.0.113.7"] {
            assert_eq!(app.client_at(address).get(path).await.status, 404, "{path} for {address}");
        }
    }
    let none = app.client().get("/dev/outbox.json?phone=nonsense").await;
    assert_eq!(none.body, json!([]));
    let app = TestApp::on(Store::Memory)
        .set("sms.gateway", "http")
        .set("sms.http.url", "http://127.0.0.1:9/")
        .start()
        .await;
    for path in ["/dev/outbox", "/dev/outbox.json"] {
        assert_eq!(app.client().get(path).await.status, 404);
    }
    let refused = app.client().ask_code(NUMBER, "login").await;
    assert_eq!((refused.status, refused.problem()), (503, "unavailable"), "nobody listens there");
    assert!(refused.body["detail"].as_str().unwrap().contains("not sent"));
    assert_eq!(app.client().ask_code(NUMBER, "login").await.status, 503, "and it counted nowhere");
}

#[tokio::test]
async fn reports_are_taken_from_the_gateway_that_there_is() {
    let app = TestApp::start(Store::Memory).await;
    for gateway in ["outbox", "twilio", "nothing", "%2e%2e"] {
        assert_eq!(app.client().get(&format!("/sms/reports/{gateway}")).await.status, 404, "{gateway}");
    }
    let app = TestApp::on(Store::Memory)
        .set("sms.gateway", "http")
        .set("sms.http.url", "http://127.0.0.1:9/")
        .start()
        .await;
    let client = app.client();
    let forged = client.get("/sms/reports/http?id=0123456789abcdef0123456789abcdef&token=x&status=1").await;
    assert_eq!((forged.status, forged.text.as_str()), (401, ""));
    let request = client.http.post(format!("{}/sms/reports/http", app.url)).body(vec![b'x'; 65 * 1024]);
    assert_eq!(request.send().await.unwrap().status(), 413);
}

#[tokio::test]
async fn a_code_is_bound_to_the_site_in_the_last_line_of_its_message() {
    for (url, locale, last) in [
        ("https://id.example", "en", Some("@id.example #")),
        ("https://id.example", "zh-CN", Some("@id.example #")),
        ("https://a.rather.long.name.example", "zh-CN", None),
        ("http://127.0.0.1:8080", "en", None),
    ] {
        let app = TestApp::on(Store::Memory).set("server.public_url", url).start().await;
        let client = app.client_that_says(&[("accept-language", locale)]);
        assert_eq!(client.ask_code("+8613800138000", "login").await.status, 202);
        let outbox = client.get("/dev/outbox.json").await;
        let message = &outbox.body[0];
        let (text, code) = (message["text"].as_str().unwrap(), message["code"].as_str().unwrap());
        let bound = text.lines().last().unwrap().strip_suffix(code).filter(|line| line.starts_with('@'));
        assert_eq!(bound, last, "{text}");
    }
}
