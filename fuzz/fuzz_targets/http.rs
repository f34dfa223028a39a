//! The whole server: paths, queries, headers, cookies, JSON bodies and forms, as nobody, as an administrator and by
//! token. Nothing that anybody sends is an error of ours: no 5xx but 503.
//!
//! Input: a line such as `POST boss json /api/v1/login?x=y`, a line with a header, and a body.
#![no_main]

use std::sync::LazyLock;

use gatehouse::app::{Application, TimeAndEntropy};
use gatehouse::config::ConfigSource;
use gatehouse::accounts::{Roles, Username};
use gatehouse::login::{HashCaller, Password};
use libfuzzer_sys::fuzz_target;
use reqwest::header::{CONTENT_TYPE, COOKIE, HeaderName, HeaderValue, ORIGIN};
use reqwest::{Client, Method};
use tokio::runtime::Runtime;

const CONFIG: &str = "[server]\nbind = '127.0.0.1:0'\ntrusted_proxies = ['127.0.0.0/8']
[database]\nurl = 'sqlite::memory:'\n[captcha]\nprovider = 'fixed'\nfixed_answer = 'solo'
[password]\nmemory_kib = 7168\niterations = 1\n[limits.custom.reply]\nrules = [{ max = 5, window = '1s' }]
[limits]\nlogin-address.rules = []\nlogin-network.rules = []\nsms-address.rules = []\nsms-network.rules = []\nsms-prefix.rules = []\nsms-total.rules = []\nregister-address.rules = []";
const PASSWORD: &str = "correct horse battery staple";

/// The headers besides those of [`Rig`].
const HEADERS: [&str; 13] = [
    "x-forwarded-for",
    "cookie",
    "authorization",
    "accept-language",
    "if-match",
    "idempotency-key",
    "user-agent",
    "x-request-id",
    "accept",
    "content-type",
    "sec-fetch-site",
    "referer",
    "traceparent",
];

struct Rig {
    runtime: Runtime,
    http: Client,
    url: String,
    cookies: HeaderValue,
    token: String,
    csrf: String,
}

/// The first `Set-Cookie`s of an answer as a `Cookie` header.
fn cookies(answer: &reqwest::Response) -> HeaderValue {
    let lines = answer.headers().get_all("set-cookie").iter().filter_map(|line| line.to_str().ok());
    let pairs: Vec<&str> = lines.filter_map(|line| line.split(';').next()).collect();
    pairs.join("; ").parse().expect("a header")
}

async fn start() -> (String, HeaderValue, String, String, Client) {
    let folder = Box::leak(Box::new(tempfile::tempdir().expect("a folder")));
    let file = folder.path().join("gatehouse.toml");
    std::fs::write(&file, CONFIG).expect("written");
    let key = ("GATEHOUSE__SECRETS__KEY_FILE".to_owned(), folder.path().join("key").display().to_string());
    let loaded = ConfigSource::new(Some(&file), vec![key]).load().unwrap_or_else(|wrong| panic!("{wrong}"));
    let recorder = gatehouse::telemetry::builder().install_recorder().expect("the first");
    let application = Application::build(loaded.settings, loaded.live, TimeAndEntropy::default(), recorder)
        .await
        .unwrap_or_else(|wrong| panic!("{wrong}"));
    let services = application.services.clone();
    let serving = application.serve().unwrap_or_else(|wrong| panic!("{wrong}"));
    let url = format!("http://{}", serving.address);
    tokio::spawn(serving.run());
    let password = Password::attempt(PASSWORD).expect("a password");
    let hash = services.hasher.hash(&HashCaller::OPERATOR, &password).await.expect("hashed");
    let name = Username::parse("boss").expect("a name");
    services.accounts.create(&name, &hash, Roles { admin: true }).await.expect("created");

    let http =
        Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let call = |path: &str, body: String| {
        http.post(format!("{url}{path}")).header(CONTENT_TYPE, "application/json").body(body)
    };
    let signed_in = call("/api/v1/login", format!(r#"{{"login":"boss","password":"{PASSWORD}"}}"#))
        .send()
        .await
        .expect("an answer");
    let mut all = cookies(&signed_in).to_str().expect("ours").to_owned();
    let page = http.get(format!("{url}/login")).header(COOKIE, &all).send().await.expect("an answer");
    all = [all.as_str(), cookies(&page).to_str().expect("ours")].join("; ");
    let page = http.get(format!("{url}/admin/lookup")).header(COOKIE, &all).send().await.expect("an answer");
    let page = page.text().await.expect("a page");
    let csrf = page.split("name=\"csrf_token\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
    let csrf = csrf.expect("a form").to_owned();
    let made =
        call("/api/v1/admin/tokens", r#"{"name":"fuzz","scopes":["*"]}"#.to_owned()).header(COOKIE, &all);
    let made = made.send().await.expect("an answer").text().await.expect("a body");
    let token = made.split("ght_").nth(1).and_then(|rest| rest.split('"').next()).expect("a token");
    (url, all.parse().expect("a header"), format!("Bearer ght_{token}"), csrf, http)
}

static RIG: LazyLock<Rig> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (url, cookies, token, csrf, http) = runtime.block_on(start());
    Rig { runtime, http, url, cookies, token, csrf }
});

/// Method, who asks, the kind of the body, and the path with its query.
fn head(line: &[u8]) -> Option<(Method, &str, &str, &str)> {
    let mut words = std::str::from_utf8(line).ok()?.splitn(4, ' ');
    let method = words.next()?.parse().ok()?;
    Some((method, words.next()?, words.next()?, words.next()?))
}

fuzz_target!(|input: &[u8]| {
    let rig = &*RIG;
    let mut parts = input.splitn(3, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (line, header, mut body) = (part(), part(), part().to_vec());
    let Some((method, who, kind, path)) = head(line) else { return };
    let Ok(url) = reqwest::Url::parse(&format!("{}{path}", rig.url)) else { return };
    if url.origin().ascii_serialization() != rig.url {
        return;
    }
    // What would end the session or the token, with which everything after it is asked.
    let ends = ["logout", "revoke", "delete", "password", "tokens/"];
    if who != "nobody" && ends.into_iter().any(|word| url.path().contains(word)) {
        return;
    }
    let mut request = rig.http.request(method, url);
    request = match who {
        "token" => request.header("authorization", &rig.token),
        "boss" => request.header(COOKIE, &rig.cookies).header(ORIGIN, &rig.url),
        _ => request,
    };
    request = match kind {
        "json" => request.header(CONTENT_TYPE, "application/json"),
        "form" => {
            body.extend(format!("&csrf_token={}", rig.csrf).bytes());
            request.header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        }
        _ => request,
    };
    let colon = header.iter().position(|byte| *byte == b':').unwrap_or(header.len());
    let (name, value) = header.split_at(colon);
    let known = HEADERS.into_iter().find(|known| known.as_bytes() == name);
    if let (Some(name), Ok(value)) = (known, HeaderValue::from_bytes(value.get(1..).unwrap_or_default())) {
        request = request.header(HeaderName::from_static(name), value);
    }
    rig.runtime.block_on(async {
        let Ok(answer) = request.body(body).send().await else { return };
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap_or_default();
        assert!(status < 500 || status == 503, "{status} to {}: {text}", String::from_utf8_lossy(input));
    });
});
