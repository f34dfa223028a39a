//! Accounts of another system: they sign in with the passwords that they have, and nobody can tell them from others.

use gatehouse::accounts::{ImportFile, ImportOutcome, Username};
use gatehouse::sms::Phone;
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::app::{PASSWORD, Store, TestApp, on_both_stores};
use crate::support::until;

const OLD: &str = "correct horse";
const WRONG: &str = "a wrong password";

/// A row of each function; the password is "correct horse".
const ROWS: &str = r#"
{"login":"argon","password_hash":"$argon2i$v=19$m=64,t=2,p=1$c2l4dGVlbiBieXRlcyAhIQ$BZcmCWSWXk2RPIA4uUXaks5U+arJLO0hMaMRSyypft0"}
{"login":"scrypt","password_hash":"$scrypt$ln=4,r=8,p=1$B2CslTIm5HwPYexday2FsA$pFh5nsACIsxx78Hif1QJlCud/EKGFGPMqWK6wR024ss"}
{"login":"django","password_hash":"pbkdf2_sha256$3$saltsaltsalt$/YtbtpFO9qZpGwawxMfTioK8PTH3oHQCEIStXnku4gg="}
{"login":"bcrypt","password_hash":"$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6","phone":"+8613800138000","phone_verified":true}
{"login":"django-bcrypt","password_hash":"bcrypt_sha256$$2b$04$O5FR/zVg1qMDhoZ9/WxtreSkq/YY.a2WOiuKCDMNEniJT08N1hf.m"}
{"login":"unix","password_hash":"$6$rounds=1000$0123456789abcdef$GaScwcscdzvyk7gzZmxXAHiJAYBdSzwVcphgrsQJGOjgOegLlrTs5rVDD6z0u4r1gcbw2MjFIR1AQnAH5uLeW0"}
{"login":"debian","password_hash":"$y$j75$abcdefghijklmnopqrstu.$qCj3FJAOxenL84GhXQA.5yo90njyP/oqBzssCfadkhA"}
{"login":"phpass","password_hash":"$P$52XbcV.oR4pwKfm3LBXFgYQIlPDwZL."}
{"login":"wordpress","password_hash":"$wp$2y$04$XkNXLcQti/yBfWzA1LJdK.JGvpBGdTkEEqvuhv.x3Q9pSHRmq0rt."}
{"login":"ldap","password_hash":"{SSHA}adrk8txUzDwIv/fXCATG+nV3fGLqyiHa"}
{"login":"firebase","password_hash":"$fbscrypt$v=1,n=4,r=8,p=1,ss=Bw==,sk=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==$dGVuIGJ5dGVzIQ==$7/82bWxbgsNMJZeRvksDto4R1IFM+p6Mb8GMy90/DwWkKqma7FD9L1XrJl13GftBf5MBjA2vUFSwSunOVcmY7A=="}
{"login":"aspnet","password_hash":"AQAAAAEAAAADAAAAEHNpeHRlZW4gYnl0ZXMgISFB7B5rMwtVe37wauVFj2mrp4wEaSAwk+MNaSfiMqrWhw=="}
"#;
const LOGINS: [&str; 12] = [
    "argon",
    "scrypt",
    "django",
    "bcrypt",
    "django-bcrypt",
    "unix",
    "debian",
    "phpass",
    "wordpress",
    "ldap",
    "firebase",
    "aspnet",
];

on_both_stores!(
    an_imported_account_signs_in_with_its_old_password_and_is_hashed_anew,
    sign_ins_at_once_replace_an_imported_hash_once_and_keep_every_session,
    an_imported_password_is_changed_like_any_other,
    an_imported_account_is_answered_like_none,
);

async fn import(app: &TestApp) {
    let file = ImportFile::read(ROWS.as_bytes(), |phone| Phone::parse(phone, "CN")).unwrap();
    assert_eq!(file.mistakes.count(), 0, "{:?}", file.mistakes);
    let factors = app.services.factor_verifier.factors();
    let imported = app.services.accounts.import(&file.rows, factors, false).await.unwrap();
    assert_eq!(imported, ImportOutcome::Done);
}

async fn hash(app: &TestApp, login: &str) -> String {
    let account = app.services.accounts.find(&Username::parse(login).unwrap()).await.unwrap().unwrap();
    account.password_hash.unwrap().as_str().to_owned()
}

/// It is replaced after the answer.
async fn until_replaced(app: &TestApp, login: &str) {
    until("it is hashed anew", async || hash(app, login).await.starts_with("$argon2id$")).await;
}

async fn an_imported_account_signs_in_with_its_old_password_and_is_hashed_anew(store: Store) {
    let app = TestApp::start(store).await;
    import(&app).await;
    app.services.sign_in.follow_imported().await.unwrap();
    for login in LOGINS {
        let client = app.client();
        assert_eq!(client.login(login, WRONG).await.problem(), "invalid-credentials");
        assert!(hash(&app, login).await.starts_with("imported$"), "a wrong password replaces nothing");
        let answer = client.login(&login.to_uppercase(), OLD).await;
        assert_eq!((answer.status, &answer.body["user"]["login"]), (200, &json!(login)), "{}", answer.text);
        until_replaced(&app, login).await;
        assert_eq!(client.get("/api/v1/session").await.status, 200, "the session goes on");
        let again = app.client();
        assert_eq!(again.login(login, OLD).await.status, 200, "by our hash");
        assert_eq!(again.login(login, WRONG).await.problem(), "invalid-credentials");
    }
    assert_eq!(app.services.accounts.slowest_imported().await.unwrap(), None);
    let code = app.client().code("+8613800138000", "login").await;
    let by_code = app.client().call("/sms/login", json!({ "phone": "+8613800138000", "code": code })).await;
    assert_eq!(by_code.body["user"]["login"], "bcrypt", "{}", by_code.text);
}

async fn sign_ins_at_once_replace_an_imported_hash_once_and_keep_every_session(store: Store) {
    let app = TestApp::start(store).await;
    import(&app).await;
    let clients: Vec<_> = (0..6).map(|_| app.client()).collect();
    let mut tasks = JoinSet::new();
    for client in clients.clone() {
        tasks.spawn(async move { client.login("bcrypt", OLD).await });
    }
    for answer in tasks.join_all().await {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    until_replaced(&app, "bcrypt").await;
    for client in clients {
        assert_eq!(client.get("/api/v1/session").await.status, 200);
    }
}

async fn an_imported_password_is_changed_like_any_other(store: Store) {
    let app = TestApp::start(store).await;
    import(&app).await;
    let client = app.client();
    assert_eq!(client.login("scrypt", OLD).await.status, 200);
    // While it is being replaced, or after that.
    let fields = [("current_password", OLD), ("new_password", PASSWORD)];
    let answer = client.submit("/account", "/account/password", &fields).await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    assert_eq!(app.client().login("scrypt", OLD).await.problem(), "invalid-credentials");
    assert_eq!(app.client().login("scrypt", PASSWORD).await.status, 200);
    assert!(hash(&app, "scrypt").await.starts_with("$argon2id$"));
}

async fn an_imported_account_is_answered_like_none(store: Store) {
    let app = TestApp::start(store).await;
    import(&app).await;
    let mut told = Vec::new();
    for login in ["nobody", "bcrypt", "unix", "debian", "firebase"] {
        let client = app.client();
        for _ in 0..5 {
            let answer = client.login(login, WRONG).await;
            told.push((
                login,
                answer.status,
                answer.problem().to_owned(),
                answer.body["captcha_required"].clone(),
            ));
        }
    }
    let (unknown, imported) = told.split_at(5);
    for (one, other) in imported.iter().zip(unknown.iter().cycle()) {
        assert_eq!((one.1, &one.2, &one.3), (other.1, &other.2, &other.3), "{}", one.0);
    }
}
