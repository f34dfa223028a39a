//! Whom `[factors]` asks for what is told before it is saved.

use gatehouse::accounts::{
    AccountAct, FactorsTrial, FirstFactor, Groups, Roles, SessionStart, SignInClient, Username,
};
use gatehouse::db::Db;

use sqlx::query;

use super::*;
use crate::support::app::{Store, on_both_stores};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const ACCOUNTS: usize = 600;

on_both_stores! {
    what_is_told_is_what_happens,
}

async fn execute(db: &Db, sql: &'static str, account: &str, at: i64) {
    macro_rules! rows {
        ($pools:expr) => {{
            let pool = $pools.reachable().unwrap();
            query(sql).bind(account).bind(at).execute(pool).await.unwrap().rows_affected()
        }};
    }
    let rows = match db {
        Db::Sqlite(pools) => rows!(pools),
        Db::Postgres(pools) => rows!(pools),
    };
    assert_eq!(rows, 1);
}

/// Accounts of every kind: the kind follows from the number, so that each combination is there.
async fn make_up(app: &TestApp) -> Vec<Username> {
    const TOTP: &str = "INSERT INTO totp (account, secret, confirmed_at) VALUES ($1, 'sealed', $2)";
    const PENDING: &str = "INSERT INTO totp (account, pending, failures) VALUES ($1, 'sealed', $2)";
    const ASKED: &str = "INSERT INTO factor_policies (account, required) VALUES ($1, $2)";
    const SINCE: &str = "INSERT INTO factor_policies (account, required, since) VALUES ($1, 0, $2)";
    let db = Db::connect(&app.database).await.unwrap();
    let (accounts, now) = (&app.services.accounts, app.clock.now());
    app.register("a-password").await;
    let found = accounts.find(&Username::parse("a-password").unwrap()).await.unwrap().unwrap();
    let phc = found.password_hash.unwrap();
    let mut logins = vec![found.login];
    for number in 0..ACCOUNTS {
        let login = Username::parse(&format!("user-{number:04}")).unwrap();
        let roles = Roles { admin: number % 7 == 0 };
        let account = accounts.create(&login, &phc, roles).await.unwrap();
        let id = account.id.to_string();
        let groups: &[&str] = [&[][..], &["staff"], &["others"], &["others", "staff-2"]][number % 4];
        if !groups.is_empty() {
            let groups = Groups::parse(groups.iter().copied()).unwrap();
            accounts.change_groups(account.id, false, |_| groups).await.unwrap();
        }
        match number % 5 {
            0 => execute(&db, TOTP, &id, now.0).await,
            1 => execute(&db, PENDING, &id, 0).await,
            _ => {}
        }
        match (number % 5, number % 3) {
            (0, 0) => execute(&db, ASKED, &id, now.0).await,
            (_, 1) => execute(&db, SINCE, &id, now.minus(DAY * (number % 11) as u32).0).await,
            _ => {}
        }
        if number % 13 == 0 {
            accounts.change(account.id, AccountAct::Disable, false).await.unwrap();
        }
        logins.push(login);
    }
    logins
}

async fn what_is_told_is_what_happens(store: Store) {
    let app = TestApp::start(store).await;
    let logins = make_up(&app).await;
    let before = app.services.live.snapshot().factors.clone();
    let nobody = app.services.accounts.try_factors(&before, &before).await.unwrap();
    assert_eq!(nobody, FactorsTrial::default());
    for rules in ["require = ['group:staff', 'admins']\ngrace = '5d'", "require = ['everyone']\ngrace = '0s'"]
    {
        let with = app.beside(TestApp::on(store).file(&format!("[factors]\n{rules}"))).await;
        let after = with.services.live.snapshot().factors.clone();
        let told = app.services.accounts.try_factors(&before, &after).await.unwrap();
        let (mut enrol, mut shut, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        let client = SignInClient::new("203.0.113.7".parse().unwrap(), "a browser");
        for login in &logins {
            let account = app.services.accounts.find(login).await.unwrap().unwrap();
            let start = async |app: &TestApp| {
                app.services.sessions.begin(&account, &client, FirstFactor::Password, None).await.unwrap()
            };
            match start(&with).await {
                SessionStart::Void | SessionStart::Frozen => {}
                SessionStart::FactorMissing => {
                    if matches!(start(&app).await, SessionStart::Begun(_)) {
                        asked.push(login.as_str());
                    }
                }
                SessionStart::Begun(token) => {
                    let found = with.services.sessions.recognise(&token).await.unwrap().unwrap();
                    match found.session.setup {
                        Some(setup) if setup.overdue => shut.push(login.as_str()),
                        Some(_) => enrol.push(login.as_str()),
                        None => {}
                    }
                }
            }
        }
        for (told, happened) in [(&told.enrol, enrol), (&told.shut, shut), (&told.asked, asked)] {
            assert_eq!(told.count, happened.len() as u64, "{rules}");
            let named: Vec<&str> = told.first.iter().map(|named| named.login.as_str()).collect();
            assert_eq!(named, happened[..happened.len().min(20)], "{rules}");
        }
        if rules.contains("staff") {
            assert!(told.enrol.count > 30 && told.shut.count > 15 && told.asked.count > 15, "{told:?}");
        }
    }
}

fn ticks(page: &Answer, who: &str) -> bool {
    page.text.contains(&format!("name=\"require\" value=\"{who}\" checked"))
}

#[tokio::test]
async fn the_console_tells_it_and_saves_with_every_comment() {
    const DOCUMENT: &str = "# Ours.\n[factors]\ngrace = '3d' # a long weekend\n";
    let app = TestApp::with(Store::Memory, DOCUMENT).await;
    let admin = app.client();
    admin.register("alice", PASSWORD).await;
    let alice = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap();
    app.services.accounts.change(alice.id, AccountAct::MakeAdmin, false).await.unwrap();
    admin.login("alice", PASSWORD).await;
    crate::gate::account(&app, "bob", &["office"]).await;
    let page = admin.get("/admin/factors").await;
    assert_eq!(page.status, 200, "{}", page.text);
    let version = page.hidden("version").unwrap();
    let send = async |fields: &[(&str, &str)]| {
        let fixed = [("version", version.as_str()), ("trust_device", "30d")];
        admin.submit("/admin/factors", "/admin/factors", &[fields, &fixed].concat()).await
    };
    let wrong = send(&[("more", "bob"), ("grace", "1y"), ("do", "try")]).await;
    assert!(wrong.status == 422 && wrong.text.contains("id=\"require-error\""), "{}", wrong.text);
    let tried = send(&[("require", "everyone"), ("grace", "3d"), ("do", "try")]).await;
    assert!(tried.status == 200 && tried.text.contains("<bdi>bob</bdi>"), "{}", tried.text);
    assert_eq!(std::fs::read_to_string(app.file()).unwrap(), DOCUMENT, "trying changes nothing");
    let unsaid = send(&[("require", "everyone"), ("grace", "3d"), ("do", "save")]).await;
    assert!(unsaid.status == 422 && unsaid.text.contains("id=\"reason-error\""), "{}", unsaid.text);
    let wanted = [("require", "admins"), ("more", "group:staff"), ("grace", "3d"), ("reason", "audit")];
    let added = send(&[&wanted[..], &[("do", "enter")]].concat()).await;
    assert!(ticks(&added, "admins") && ticks(&added, "group:staff"), "{}", added.text);
    assert_eq!(std::fs::read_to_string(app.file()).unwrap(), DOCUMENT, "what is typed is added first");
    let saved = send(&[&wanted[..], &[("do", "save")]].concat()).await;
    assert_eq!((saved.status, saved.header("location")), (303, "/admin/factors"), "{}", saved.text);
    let document = std::fs::read_to_string(app.file()).unwrap();
    assert_eq!(document, format!("{DOCUMENT}require = [\"admins\", \"group:staff\"]\n"));
    let shown = admin.get("/admin/factors").await;
    assert!(ticks(&shown, "admins") && ticks(&shown, "group:staff"), "{}", shown.text);
    assert!(!ticks(&shown, "everyone") && shown.text.contains("value=\"group:office\""), "{}", shown.text);
    assert!(admin.get("/api/v1/factors").await.body["setup_by"].is_string(), "it is in force at once");
}
