//! Second factors of an account that comes from another system, in what its owner downloads, and when it is deleted.

use gatehouse::accounts::{ImportFile, ImportOutcome, Profile, Username};
use gatehouse::db::Db;
use gatehouse::sms::Phone;
use sqlx::{AssertSqlSafe, query, query_scalar};

use super::*;
use crate::support::app::{Store, on_both_stores};

on_both_stores! {
    an_imported_account_is_asked_for_its_app_from_the_first_sign_in,
    an_owner_downloads_what_factors_there_are_without_secrets,
    of_a_deleted_account_no_factor_is_left,
}

/// Those of "correct horse".
const HASH: &str = "$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6";
const OLD: &str = "correct horse";
/// The appendix of RFC 6238, and half of it: 80 bits, as the first apps had.
const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
const SHORT: &str = "GEZDGNBVGY3TQOJQ";

async fn import(app: &TestApp) {
    let uri = format!("otpauth://totp/Old:boris?secret={SHORT}&issuer=Old&algorithm=SHA1&digits=6&period=30");
    let row = |login: &str, more: &str| format!(r#"{{"login":"{login}","password_hash":"{HASH}"{more}}}"#);
    let rows = [
        row("alice", &format!(r#","totp":"{}""#, SECRET.to_lowercase())),
        row("boris", &format!(r#","totp":"{uri}""#)),
        row("clara", ""),
    ]
    .join("\n");
    let file = ImportFile::read(rows.as_bytes(), |phone| Phone::parse(phone, "CN")).unwrap();
    assert_eq!(file.mistakes.count(), 0, "{:?}", file.mistakes);
    let factors = app.services.factor_verifier.factors();
    let imported = app.services.accounts.import(&file.rows, factors, false).await.unwrap();
    assert_eq!(imported, ImportOutcome::Done);
}

async fn an_imported_account_is_asked_for_its_app_from_the_first_sign_in(store: Store) {
    let app = TestApp::start(store).await;
    import(&app).await;
    for (login, secret) in [("alice", SECRET), ("boris", SHORT)] {
        let browser = app.client();
        let first = browser.login(login, OLD).await;
        assert_eq!((first.status, first.problem()), (403, "factor-required"), "{}", first.text);
        assert_eq!(first.body["methods"], json!(["totp"]), "it has no recovery codes yet");
        assert_eq!(by_totp(&browser, WRONG_CODE).await.problem(), "invalid-factor");
        let done = by_totp(&browser, &totp(&app, secret)).await;
        assert_eq!(done.status, 200, "{}", done.text);
        let codes = browser.call("/recovery-codes", json!({})).await;
        assert_eq!(codes.status, 200, "its owner makes some: {}", codes.text);
    }
    assert_eq!(app.client().login("clara", OLD).await.status, 200);
}

async fn an_owner_downloads_what_factors_there_are_without_secrets(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let id = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap().id;
    add_passkey(&app, &id.to_string()).await;
    let fields = [("current_password", PASSWORD)];
    let file = owner.browser.submit("/account/export", "/account/export", &fields).await;
    assert_eq!(file.status, 200, "{}", file.text);
    let factors = &file.body["factors"];
    assert!(factors["app_since"].as_str().is_some_and(|at| at.starts_with("2026-")), "{factors}");
    assert_eq!(factors["recovery_codes_left"], 10);
    assert_eq!(factors["passkeys"][0]["label"], "my laptop");
    for secret in [&owner.secret, &owner.recovery[0], "a key"] {
        assert!(!file.text.contains(secret), "{}", file.text);
    }
}

/// A row as a passkey has it.
pub async fn add_passkey(app: &TestApp, account: &str) {
    const PASSKEY: &str =
        "INSERT INTO passkeys (id, credential, account, rp_id, algorithm, public_key, sign_count,
        backed_up, label, aaguid, transports, created_at)
        VALUES ('b19bb51d57b40116de95f7448daf9aef', 'c', $1, 'x', -7, 'a key', 0, 0, 'my laptop', '', '', 1)";
    match &Db::connect(&app.database).await.unwrap() {
        Db::Sqlite(pools) => {
            query(PASSKEY).bind(account).execute(pools.reachable().unwrap()).await.map(drop).unwrap()
        }
        Db::Postgres(pools) => {
            query(PASSKEY).bind(account).execute(pools.reachable().unwrap()).await.map(drop).unwrap()
        }
    }
}

async fn of_a_deleted_account_no_factor_is_left(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let id = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap().id;
    let half = app.client();
    first_step(&half, "alice").await;
    let profile = Profile::parse(Some("ada@example.org"), true, Some("Ada")).unwrap();
    app.services.profiles.set(id, &profile, false).await.unwrap();
    assert!(rows_of(&app, &id.to_string()).await.len() >= 6, "totp, codes, policy, half, session, profile");
    let fields = [("current_password", PASSWORD)];
    let gone = owner.browser.submit("/account/delete", "/account/delete", &fields).await;
    assert_eq!(gone.status, 303, "{}", gone.text);
    assert_eq!(rows_of(&app, &id.to_string()).await, Vec::<String>::new());
    let late = by_totp(&half, &totp(&app, &owner.secret)).await;
    assert_eq!(late.problem(), "lapsed");
}

/// The tables that have a row of the account in a column of that name, but for what tells other instances that its
/// sessions ended.
async fn rows_of(app: &TestApp, id: &str) -> Vec<String> {
    const SQLITE: &str = "SELECT t.name FROM sqlite_master t JOIN pragma_table_info(t.name) c
        WHERE t.type = 'table' AND c.name = 'account' AND t.name <> 'session_changes' ORDER BY t.name";
    const POSTGRES: &str = "SELECT CAST(table_name AS TEXT) FROM information_schema.columns
        WHERE column_name = 'account' AND table_schema = current_schema()
        AND table_name <> 'session_changes' ORDER BY table_name";
    macro_rules! found {
        ($pools:expr, $tables:expr) => {{
            let pool = $pools.reachable().unwrap();
            let tables: Vec<String> = query_scalar($tables).fetch_all(pool).await.unwrap();
            let mut found = Vec::new();
            for table in tables {
                let count = format!("SELECT COUNT(*) FROM {table} WHERE account = $1");
                let rows: i64 = query_scalar(AssertSqlSafe(count)).bind(id).fetch_one(pool).await.unwrap();
                found.extend((rows > 0).then_some(table));
            }
            found
        }};
    }
    match &Db::connect(&app.database).await.unwrap() {
        Db::Sqlite(pools) => found!(pools, SQLITE),
        Db::Postgres(pools) => found!(pools, POSTGRES),
    }
}
