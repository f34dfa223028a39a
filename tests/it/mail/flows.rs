//! What tests do by mail: ask for codes, read what came, confirm an address, set a password.

use std::time::Duration;

use gatehouse::db::Db;
use serde_json::{Value, json};
use sqlx::query_scalar;

use crate::support::app::{ANSWER, Answer, Client, PASSWORD, TestApp};

pub const NEW: &str = "a new password for ada 9";

/// Asks for a code that sets a new password.
pub async fn ask(client: &Client, email: &str) -> Answer {
    client.call("/email/codes", json!({ "email": email, "purpose": "reset" })).await
}

/// Asks for one, with the challenge that is required first.
pub async fn ask_solved(client: &Client, email: &str) -> Answer {
    let asked = ask(client, email).await;
    assert_eq!(asked.problem(), "captcha-required", "{}", asked.text);
    let captcha = json!({ "id": asked.body["captcha"]["id"], "answer": ANSWER });
    let body = json!({ "email": email, "purpose": "reset", "captcha": captcha });
    client.call("/email/codes", body).await
}

/// The mails to a mailbox, newest first.
pub async fn mails(app: &TestApp, email: &str) -> Vec<Value> {
    let found = app.client().get(&format!("/dev/outbox.json?email={}", email.replace('+', "%2B"))).await;
    found.body.as_array().cloned().unwrap_or_default()
}

/// What the mails to a mailbox are seen to be, once they are.
pub async fn until<T>(app: &TestApp, email: &str, seen: impl Fn(&[Value]) -> Option<T>) -> T {
    for _ in 0..1_500 {
        if let Some(seen) = seen(&mails(app, email).await) {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // mails are handed over in real time
    }
    panic!("{:?}", mails(app, email).await)
}

pub async fn until_mails(app: &TestApp, email: &str, count: usize) -> Vec<Value> {
    until(app, email, |mails| (mails.len() >= count).then(|| mails.to_vec())).await
}

/// Waits for a mail whose subject has that word.
pub async fn until_subject(app: &TestApp, email: &str, word: &str) -> Value {
    let is_it = |mail: &&Value| mail["subject"].as_str().is_some_and(|subject| subject.contains(word));
    until(app, email, |mails| mails.iter().find(is_it).cloned()).await
}

/// The code of a mail's text: the only line of six digits.
pub fn code_of(mail: &Value) -> String {
    let text = mail["text"].as_str().unwrap();
    let is_code = |line: &&str| line.len() == 6 && line.bytes().all(|byte| byte.is_ascii_digit());
    text.lines().map(str::trim).find(is_code).unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// The newest of so many mails with a code. A notice may come after it.
pub async fn newest_with_code(app: &TestApp, email: &str, count: usize) -> Value {
    let newest = |mails: &[Value]| {
        let codes: Vec<_> = mails.iter().filter(|mail| has_code(mail)).collect();
        (codes.len() >= count).then(|| codes[0].clone())
    };
    until(app, email, newest).await
}

/// The code of the newest of so many mails with a code.
pub async fn newest_code(app: &TestApp, email: &str, count: usize) -> String {
    code_of(&newest_with_code(app, email, count).await)
}

/// How many mails with a code have come.
pub async fn codes(app: &TestApp, email: &str) -> usize {
    mails(app, email).await.iter().filter(|mail| has_code(mail)).count()
}

/// The code of a mail that freezes an account, if it has one.
pub fn freeze_code(mail: &Value) -> Option<String> {
    let mut lines = mail["text"].as_str().unwrap().lines().map(str::trim);
    lines.find(|line| line.len() == 19 && line.matches('-').count() == 3).map(str::to_owned)
}

pub fn has_code(mail: &Value) -> bool {
    let is_code =
        |line: &str| line.trim().len() == 6 && line.trim().bytes().all(|byte| byte.is_ascii_digit());
    mail["text"].as_str().is_some_and(|text| text.lines().any(is_code))
}

/// Gives the signed-in account the address. It has no other code by mail yet.
pub async fn confirm(app: &TestApp, owner: &Client, email: &str) {
    owner.login("alice", PASSWORD).await;
    confirm_signed_in(app, owner, email).await;
}

/// As another account.
pub async fn confirm_as(app: &TestApp, login: &str, email: &str) {
    let owner = app.client();
    owner.login(login, PASSWORD).await;
    confirm_signed_in(app, &owner, email).await;
}

pub async fn confirm_signed_in(app: &TestApp, owner: &Client, email: &str) {
    let asked = owner.call("/email/codes", json!({ "email": email, "purpose": "verify" })).await;
    assert_eq!(asked.status, 202, "{}", asked.text);
    let code = newest_code(app, email, 1).await;
    let set = set(owner, email, &code).await;
    assert_eq!(set.status, 200, "{}", set.text);
    // The mailbox may have another now.
    app.advance(Duration::from_secs(61));
}

pub async fn set(owner: &Client, email: &str, code: &str) -> Answer {
    let body = json!({ "email": email, "code": code, "current_password": PASSWORD });
    owner.call("/account/email", body).await
}

pub async fn reset(client: &Client, email: &str, code: &str) -> Answer {
    client.call("/password/reset", json!({ "email": email, "code": code, "new_password": NEW })).await
}

/// How many mails of such a kind (as in SQL's LIKE) are queued, those that are handed over right now included.
pub async fn waiting(db: &Db, kind: &str) -> i64 {
    const SQL: &str = "SELECT COUNT(*) FROM mail_queue WHERE state = 'queued' AND kind LIKE $1";
    match db {
        Db::Sqlite(pools) => query_scalar(SQL).bind(kind).fetch_one(&pools.all).await.unwrap(),
        Db::Postgres(pools) => query_scalar(SQL).bind(kind).fetch_one(&pools.all).await.unwrap(),
    }
}
