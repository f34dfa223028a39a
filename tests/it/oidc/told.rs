//! Back-channel logout: clients are told that a session has ended, however that was.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gatehouse::accounts::{AccountAct, Username};
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::*;
use crate::support::app::on_both_stores;
use crate::support::hanging::HangingServer;
use crate::support::until;

on_both_stores! {
    a_client_is_told_of_the_end_of_a_session_however_it_ends,
    a_client_that_does_not_answer_is_told_again,
    many_ends_at_once_are_told_at_once,
    clients_that_do_not_answer_delay_no_other,
    what_waits_for_a_client_that_is_away_is_told_when_it_is_back,
    what_waits_for_a_client_that_answers_nothing_for_hours_is_given_up,
}

/// `wiki`, which listens there.
fn listening(at: &MockServer) -> String {
    listening_at(&at.uri())
}

fn listening_at(url: &str) -> String {
    let uri = format!("backchannel_logout_uri = '{url}/logout'\nallow_private = true\n");
    clients().replace("post_logout_redirect_uris", &format!("{uri}post_logout_redirect_uris"))
}

/// The claims of what was told, once it was so often.
async fn told(at: &MockServer, times: usize) -> Vec<Value> {
    told_while(at, times, || {}).await
}

/// The same, while something happens again and again.
async fn told_while(at: &MockServer, times: usize, happens: impl Fn()) -> Vec<Value> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let posted = at.received_requests().await.unwrap();
        if posted.len() >= times {
            let form = |body: &[u8]| {
                let (name, token) = url::form_urlencoded::parse(body).next().expect("a field");
                assert_eq!(name, "logout_token");
                claims(&token)
            };
            return posted.iter().map(|request| form(&request.body)).collect();
        }
        assert!(tokio::time::Instant::now() < deadline, "told {} times", posted.len());
        happens();
        tokio::time::sleep(Duration::from_millis(50)).await; // a task with a timer of its own posts
    }
}

async fn a_client_is_told_of_the_end_of_a_session_however_it_ends(store: Store) {
    let receiver = MockServer::start().await;
    let listens = Mock::given(method("POST")).and(path("/logout"));
    listens.respond_with(ResponseTemplate::new(200)).mount(&receiver).await;
    let app = start(TestApp::on(store).file(&listening(&receiver))).await;
    let beside =
        app.beside(TestApp::on(store).set("server.public_url", &app.url).file(&listening(&receiver))).await;

    let browser = browser(&app, "ada").await;
    let answer = exchange(&app, &code(&browser, &[]).await).await;
    let id = claims(answer.body["id_token"].as_str().unwrap());
    assert_eq!(browser.submit("/account", "/logout", &[]).await.status, 303);
    let first = told(&receiver, 1).await.remove(0);
    for claim in ["iss", "aud", "sub", "sid"] {
        assert_eq!(first[claim], id[claim], "{claim}");
    }
    assert_eq!(first["events"]["http://schemas.openid.net/event/backchannel-logout"], serde_json::json!({}));
    assert!(first["nonce"].is_null() && first["jti"].is_string());

    let (browser, ..) = granted(&app, "boris").await;
    let other = app.client();
    assert_eq!(other.login("boris", PASSWORD).await.status, 200);
    assert_eq!(other.submit("/account", "/account/sessions/revoke-others", &[]).await.status, 303);
    told(&receiver, 2).await;
    assert_eq!(browser.get("/account").await.status, 303);

    // Its own part of one that goes on.
    let (dora, ..) = granted(&app, "dora").await;
    assert_eq!(crate::factors::delete(&dora, "/account/apps/wiki").await.status, 204);
    told(&receiver, 3).await;
    assert_eq!(dora.get("/account").await.status, 200);

    let (_browser, ..) = granted(&app, "carol").await;
    let carol = app.services.accounts.find(&Username::parse("carol").unwrap()).await.unwrap().unwrap();
    app.services.accounts.change(carol.id, AccountAct::Disable, false).await.unwrap();
    let all = told(&receiver, 4).await;
    assert_eq!(all[3]["sub"], carol.id.to_string());
    let (browser, access, _) = granted(&app, "eve").await;
    assert_eq!(userinfo(&beside.url, &access).await.status, 200);
    assert!(app.services.accounts.end_all_sessions().await.unwrap() >= 1);
    assert_eq!(browser.get("/account").await.status, 303);
    assert_eq!(userinfo(&beside.url, &access).await.status, 401);
    // Of eve's, and of dora's, whose grant had ended before.
    told(&receiver, 6).await;
    drop(beside);
    assert_eq!(told(&receiver, 6).await.len(), 6, "each once, whichever instance does it");
}

async fn a_client_that_does_not_answer_is_told_again(store: Store) {
    let receiver = MockServer::start().await;
    let fails = Mock::given(method("POST")).and(path("/logout")).respond_with(ResponseTemplate::new(500));
    fails.up_to_n_times(2).mount(&receiver).await;
    let listens = Mock::given(method("POST")).and(path("/logout"));
    listens.respond_with(ResponseTemplate::new(200)).mount(&receiver).await;
    let app = start(TestApp::on(store).file(&listening(&receiver))).await;
    let (browser, ..) = granted(&app, "ada").await;
    assert_eq!(browser.submit("/account", "/logout", &[]).await.status, 303);
    // A pause begins once an answer has been read, which may be after the clock was moved.
    let all = told_while(&receiver, 3, || app.advance(Duration::from_secs(61))).await;
    assert_ne!(all[0]["jti"], all[2]["jti"]);
}

/// As after a restore, or when somebody signs in and out as fast as they can.
async fn many_ends_at_once_are_told_at_once(store: Store) {
    let receiver = MockServer::start().await;
    let listens = Mock::given(method("POST")).and(path("/logout"));
    listens.respond_with(ResponseTemplate::new(200)).mount(&receiver).await;
    let app = start(TestApp::on(store).file(&listening(&receiver))).await;
    // Of a client that hears of no session, too.
    note(&app, &["wiki", "files-client"], 500).await;
    let (browser, ..) = granted(&app, "ada").await;
    assert_eq!(browser.submit("/account", "/logout", &[]).await.status, 303);
    let all = told(&receiver, 501).await;
    assert_eq!(all.len(), 501, "each once");
}

/// Notes for each of these clients, as ended sessions leave them.
async fn note(app: &TestApp, clients: &[&str], count: u32) {
    let db = gatehouse::db::Db::connect(&app.database).await.unwrap();
    for client in clients {
        let notes = format!(
            "INSERT INTO oidc_logouts (session, client, account) WITH RECURSIVE notes (number) AS
            (SELECT 1 UNION ALL SELECT number + 1 FROM notes WHERE number < {count})
            SELECT '0 session ' || number, '{client}', 'account' FROM notes"
        );
        match &db {
            gatehouse::db::Db::Sqlite(pools) => {
                sqlx::query(sqlx::AssertSqlSafe(notes)).execute(&pools.all).await.map(drop).unwrap()
            }
            gatehouse::db::Db::Postgres(pools) => {
                sqlx::query(sqlx::AssertSqlSafe(notes)).execute(&pools.all).await.map(drop).unwrap()
            }
        }
    }
}

/// However much there is to tell them.
async fn clients_that_do_not_answer_delay_no_other(store: Store) {
    let (receiver, hanging) = (MockServer::start().await, HangingServer::start().await);
    let listens = Mock::given(method("POST")).and(path("/logout"));
    listens.respond_with(ResponseTemplate::new(200)).mount(&receiver).await;
    let names: Vec<String> = (0..4).map(|number| format!("hangs-{number}")).collect();
    let app = |name: &String| {
        format!(
            "[[apps]]\nname = '{name}'\nwho = ['everyone']\n[apps.oidc]\nredirect_uris = ['https://{name}.example/']
            backchannel_logout_uri = '{}/logout'\nallow_private = true\n",
            hanging.url
        )
    };
    let others: String = names.iter().map(app).collect();
    let app = start(TestApp::on(store).file(&format!("{}{others}", listening(&receiver)))).await;
    let (browser, ..) = granted(&app, "ada").await;
    note(&app, &names.iter().map(String::as_str).collect::<Vec<_>>(), 80).await;
    until("all that hang are told something", async || hanging.taken() >= 4).await;
    assert_eq!(browser.submit("/account", "/logout", &[]).await.status, 303);
    assert_eq!(told(&receiver, 1).await.len(), 1);
    assert!(hanging.taken() <= 32, "told {} times before", hanging.taken());
    assert_eq!(waiting(&app).await, 320, "nothing is given up before it was tried");
}

/// How many notes there are.
async fn waiting(app: &TestApp) -> i64 {
    const SQL: &str = "SELECT COUNT(*) FROM oidc_logouts";
    match &gatehouse::db::Db::connect(&app.database).await.unwrap() {
        gatehouse::db::Db::Sqlite(pools) => sqlx::query_scalar(SQL).fetch_one(&pools.all).await.unwrap(),
        gatehouse::db::Db::Postgres(pools) => sqlx::query_scalar(SQL).fetch_one(&pools.all).await.unwrap(),
    }
}

/// An address at which every connection is closed at once, until something listens there.
struct ClosingServer {
    listener: std::net::TcpListener,
    closed: Arc<AtomicUsize>,
    closing: tokio::task::JoinHandle<()>,
}

impl ClosingServer {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let taking = tokio::net::TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
        let closed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&closed);
        let closing = tokio::spawn(async move {
            while taking.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { listener, closed, closing }
    }

    fn url(&self) -> String {
        format!("http://{}", self.listener.local_addr().unwrap())
    }

    fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }

    async fn listens(self) -> MockServer {
        self.closing.abort();
        let _ = self.closing.await;
        MockServer::builder().listener(self.listener).start().await
    }
}

/// It was away for longer than one note is tried, if each time that it does not answer counted for all of them.
async fn what_waits_for_a_client_that_is_away_is_told_when_it_is_back(store: Store) {
    let away = ClosingServer::start();
    let app = start(TestApp::on(store).file(&listening_at(&away.url()))).await;
    note(&app, &["wiki"], 40).await;
    // First a wave, then one at a time, once it has rested.
    for tried in 8..20 {
        until("it is tried", async || away.closed() >= tried).await;
        let rested = tokio::time::Instant::now() + Duration::from_secs(60);
        while away.closed() == tried && tokio::time::Instant::now() < rested {
            // A rest begins once the answer has been read, which may be after the clock was moved.
            app.advance(Duration::from_secs(61));
            tokio::time::sleep(Duration::from_millis(600)).await; // a task with a timer of its own posts
        }
    }
    assert_eq!(waiting(&app).await, 40);
    let receiver = away.listens().await;
    let listens = Mock::given(method("POST")).and(path("/logout"));
    listens.respond_with(ResponseTemplate::new(200)).mount(&receiver).await;
    let all = told_while(&receiver, 40, || app.advance(Duration::from_secs(61))).await;
    let sessions: HashSet<_> = all.iter().map(|claims| claims["sid"].as_str().unwrap()).collect();
    assert_eq!(sessions.len(), 40);
}

async fn what_waits_for_a_client_that_answers_nothing_for_hours_is_given_up(store: Store) {
    let away = ClosingServer::start();
    let app = start(TestApp::on(store).file(&listening_at(&away.url()))).await;
    note(&app, &["wiki"], 40).await;
    until("it was tried", async || away.closed() > 0).await;
    until("it is given up", async || {
        app.advance(Duration::from_secs(30 * 60));
        tokio::time::sleep(Duration::from_millis(20)).await; // a task with a timer of its own posts
        waiting(&app).await == 0
    })
    .await;
    assert!(away.closed() < 40, "tried {} times", away.closed());
}
