//! Where an account needs an address: who gets one, by page and by program, and what other ways there are no more.

use std::time::Duration;

use gatehouse::db::Db;
use serde_json::json;

use super::flows::{ask, mails, newest_code, reset, until_subject};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp};

const ADA: &str = "ada@example.org";
const REQUIRED: &str = "[registration]\nrequire = ['email']\n";

async fn app() -> TestApp {
    TestApp::on(Store::Memory).file_more(REQUIRED).start().await
}

async fn ask_to_register(client: &Client, email: &str) -> Answer {
    client.call("/email/codes", json!({ "email": email, "purpose": "register" })).await
}

async fn register(client: &Client, login: &str, email: &str, code: &str) -> Answer {
    client
        .call("/register", json!({ "login": login, "password": PASSWORD, "email": email, "code": code }))
        .await
}

#[tokio::test]
async fn whoever_registers_proves_an_address_that_sets_a_password_later() {
    let app = app().await;
    let ada = app.client();
    assert_eq!(ask_to_register(&ada, ADA).await.status, 202);
    let code = newest_code(&app, ADA, 1).await;
    let wrong = if code == "000000" { "000001" } else { "000000" };
    assert_eq!(register(&ada, "ada", ADA, wrong).await.problem(), "invalid-code");
    // The code confirms the spelling that it was sent to, and no other.
    assert_eq!(register(&ada, "ada", "ada+x@example.org", &code).await.problem(), "invalid-code");
    let made = register(&ada, "ada", ADA, &code).await;
    assert_eq!((made.status, &made.body["user"]["login"]), (201, &json!("ada")), "{}", made.text);
    let page = ada.get("/account").await;
    assert!(page.text.contains(ADA), "{}", page.text);
    assert_eq!(register(&app.client(), "eve", ADA, &code).await.problem(), "invalid-code", "good once");
    app.advance(Duration::from_secs(61));
    assert_eq!(ask(&app.client(), ADA).await.status, 202);
    assert_eq!(reset(&app.client(), ADA, &newest_code(&app, ADA, 2).await).await.status, 204);
}

#[tokio::test]
async fn the_browser_that_registers_is_not_told_of_as_a_new_one() {
    let app = app().await;
    let ada = app.client();
    assert_eq!(ask_to_register(&ada, ADA).await.status, 202);
    assert_eq!(register(&ada, "ada", ADA, &newest_code(&app, ADA, 1).await).await.status, 201);
    app.advance(Duration::from_secs(61));
    assert_eq!(app.client().login("ada", PASSWORD).await.status, 200);
    until_subject(&app, ADA, "new browser").await;
    // Two that wait would be one mail, which counts them.
    let db = Db::connect(&app.database).await.unwrap();
    let Db::Sqlite(pools) = &db else { unreachable!("it counts in process") };
    let told = "SELECT SUM(times) FROM mail_queue WHERE kind = 'new-device'";
    let told: i64 = sqlx::query_scalar(told).fetch_one(&pools.all).await.unwrap();
    assert_eq!(told, 1, "of the second browser");
}

#[tokio::test]
async fn that_an_address_is_taken_is_told_to_whoever_has_its_code() {
    let app = app().await;
    let alice = app.client();
    assert_eq!(ask_to_register(&alice, ADA).await.status, 202);
    assert_eq!(register(&alice, "alice", ADA, &newest_code(&app, ADA, 1).await).await.status, 201);
    app.advance(Duration::from_secs(61));
    let eve = app.client();
    let [known, unknown] = [ask_to_register(&eve, ADA).await, ask_to_register(&eve, "bob@example.org").await];
    assert_eq!((known.status, &known.body["expires_in"]), (unknown.status, &unknown.body["expires_in"]));
    assert_eq!(register(&eve, "eve", ADA, "012345").await.problem(), "invalid-code");
    let code = newest_code(&app, ADA, 2).await;
    let taken = register(&eve, "eve", ADA, &code).await;
    assert_eq!(taken.problem(), "email-taken", "{}", taken.text);
    assert_eq!(eve.login("eve", PASSWORD).await.status, 401, "no account is left behind");
    let bob = newest_code(&app, "bob@example.org", 1).await;
    assert_eq!(register(&eve, "alice", "bob@example.org", &bob).await.problem(), "login-taken");
    assert_eq!(
        register(&eve, "bob", "bob@example.org", &bob).await.status,
        201,
        "a taken name uses up no code"
    );
}

#[tokio::test]
async fn there_is_no_account_without_an_address() {
    let app = app().await;
    let eve = app.client();
    let errors = |answer: &Answer| {
        let fields = answer.body["errors"].as_array().unwrap_or_else(|| panic!("{}", answer.text));
        fields.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let none = eve.register("eve", PASSWORD).await;
    assert_eq!((none.status, errors(&none)), (422, vec!["email".to_owned(), "code".to_owned()]));
    let phone = json!({ "login": "eve", "password": PASSWORD, "phone": "13800138000", "code": "012345" });
    let phone = eve.call("/register", phone).await;
    assert_eq!((phone.status, errors(&phone)), (422, vec!["phone".to_owned()]));
    assert_eq!(register(&eve, "eve", "eve", "012345").await.problem(), "invalid-email");
    // Nor by a code to a new number: the answer says that codes go to numbers of accounts alone.
    let asked = eve.ask_code("13800138000", "login").await;
    assert_eq!((asked.status, &asked.body["short"]), (202, &json!(true)), "{}", asked.text);
    assert!(eve.codes("+8613800138000").await.is_empty());
    let asked = eve.ask_code("13800138000", "register").await;
    assert_eq!((asked.status, asked.body["errors"][0]["field"].as_str()), (422, Some("purpose")));
    assert!(eve.codes("").await.is_empty(), "no message is paid for");
    let page = eve.get("/login/code").await;
    assert!(
        page.text.contains("A six-digit code will be sent to your number if it belongs to an account"),
        "{}",
        page.text
    );
}

#[tokio::test]
async fn mail_to_whom_strangers_name_is_for_where_an_address_is_required() {
    let app = TestApp::on(Store::Memory).start().await;
    let refused = ask_to_register(&app.client(), ADA).await;
    assert_eq!((refused.status, refused.body["errors"][0]["field"].as_str()), (422, Some("purpose")));
    let extra = register(&app.client(), "ada", ADA, "012345").await;
    assert_eq!((extra.status, extra.body["errors"][0]["field"].as_str()), (422, Some("email")));
    let closed = format!("{REQUIRED}mode = 'closed'\n");
    let closed = TestApp::on(Store::Memory).file_more(&closed).start().await;
    assert_eq!(ask_to_register(&closed.client(), ADA).await.problem(), "registration-closed");
    assert!(mails(&app, ADA).await.is_empty() && mails(&closed, ADA).await.is_empty());
}

#[tokio::test]
async fn the_form_asks_for_the_address_first_and_for_the_password_with_its_code() {
    let app = app().await;
    let ada = app.client();
    let first = ada.get("/register").await;
    assert!(
        first.text.contains("name=\"email\"") && !first.text.contains("name=\"phone\""),
        "{}",
        first.text
    );
    assert!(!first.text.contains("name=\"password\""), "{}", first.text);
    let empty = ada.submit("/register", "/register", &[("login", ""), ("email", "")]).await;
    assert_eq!(empty.status, 422);
    assert!(mails(&app, ADA).await.is_empty());
    // A page from before that asked for a number, and its second step.
    let number = [("login", "ada"), ("phone", "13800138000"), ("code", "012345"), ("good_until", "1")];
    let number = ada.submit("/register", "/register", &number).await;
    assert!(number.status == 422 && number.text.contains("type=\"email\""), "{}", number.text);
    let second = ada.submit("/register", "/register", &[("login", "ada"), ("email", ADA)]).await;
    assert_eq!(second.status, 200, "{}", second.text);
    let code = newest_code(&app, ADA, 1).await;
    let entry =
        [("login", "ada"), ("email", ADA), ("code", &code), ("good_until", "1"), ("password", PASSWORD)];
    let made = ada.post("/register", &[&entry[..], &[("csrf_token", &second.csrf_token())]].concat()).await;
    assert_eq!((made.status, made.header("location")), (303, "/account"), "{}", made.text);
    assert!(ada.get("/account").await.text.contains(ADA));
}
