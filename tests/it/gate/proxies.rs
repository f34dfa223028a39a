//! The same through real nginx, Caddy and HAProxy, with the files of `deploy/`.

use super::account;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::authority::Authority;
use crate::support::browser::{Browser, PHONE};
use crate::support::reverse_proxy::{EchoApp, ProxyKind, ProxyPlan, ReverseProxy};

const WIKI: &str = "wiki.example";

/// Two applications, each with a proxy, and Gatehouse behind the first one.
struct Site {
    app: TestApp,
    _authority: Authority,
    _echo: EchoApp,
    wiki: ReverseProxy,
    _files: ReverseProxy,
    wiki_host: String,
    files_host: String,
}

impl Site {
    async fn behind(kind: ProxyKind) -> Self {
        let (wiki, files) = (ProxyPlan::new(kind, WIKI), ProxyPlan::new(kind, "files.test"));
        let (wiki_host, files_host) = (wiki.host(), files.host());
        let (authority, echo) = (Authority::new(), EchoApp::start().await);
        let apps = format!(
            "[[apps]]\nname = 'wiki'\nhosts = ['{wiki_host}']\nwho = ['ada', 'bob']\npublic = ['/health']\n\
             parts = [{{ path = '/admin/*', who = ['ada'] }}]\n\
             [[apps]]\nname = 'files'\nhosts = ['{files_host}']\nwho = ['everyone']\n\
             [[apps]]\nname = 'open'\nhosts = ['open.example']\nwho = ['everyone']\npublic = ['/*']\n"
        );
        let app = TestApp::on(Store::Memory)
            .file(&apps)
            .behind_a_proxy()
            .set("server.public_url", format!("https://id.example:{}", wiki.port))
            .start()
            .await;
        let port = app.url.rsplit(':').next().unwrap().parse().unwrap();
        for login in ["ada", "bob"] {
            account(&app, login, &["staff"]).await;
        }
        let (wiki, files) =
            (wiki.start(&authority, port, echo.port), files.start(&authority, port, echo.port));
        Self { app, _authority: authority, _echo: echo, wiki, _files: files, wiki_host, files_host }
    }

    /// A request to the wiki with these header lines; the connection is closed after it.
    async fn ask(&self, line: &str, headers: &str) -> String {
        let host = &self.wiki_host;
        self.wiki
            .raw(WIKI, &format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"))
            .await
    }

    /// The `Cookie` line of somebody who is signed in at the wiki.
    async fn signed_in(&self, login: &str) -> String {
        let form = [("login", login), ("password", PASSWORD)];
        let body = serde_json::json!({ form[0].0: form[0].1, form[1].0: form[1].1 });
        let answer = self.app.client().call("/login", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let own = answer.cookie("__Host-gh_session").unwrap().split(';').next().unwrap().to_owned();
        let start = header(&self.ask("GET /", "Accept: text/html\r\n").await, "location").unwrap();
        let start = self.ask(&format!("GET {}", path_of(&start)), "").await;
        let state = header(&start, "set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let sign_in = header(&start, "location").unwrap();
        let id = format!("id.example:{}", self.wiki.port);
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {id}\r\nCookie: {own}\r\nConnection: close\r\n\r\n",
            path_of(&sign_in)
        );
        let callback = header(&self.wiki.raw("id.example", &request).await, "location").unwrap();
        assert!(callback.contains("/.gatehouse/callback?code="), "{callback}");
        let last = self.ask(&format!("GET {}", path_of(&callback)), &format!("Cookie: {state}\r\n")).await;
        let session = header(&last, "set-cookie").unwrap_or_else(|| panic!("{last}"));
        assert!(session.starts_with("__Host-gh_app="), "{session}");
        format!("Cookie: {}\r\n", session.split(';').next().unwrap())
    }
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

fn header(answer: &str, name: &str) -> Option<String> {
    let (head, _) = answer.split_once("\r\n\r\n")?;
    head.lines().find_map(|line| {
        let (other, value) = line.split_once(':')?;
        other.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

fn path_of(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap();
    &rest[rest.find('/').unwrap()..]
}

/// What the application was sent.
fn shown(answer: &str) -> &str {
    assert_eq!(status(answer), 200, "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1
}

macro_rules! through_each_proxy {
    ($($test:ident),+ $(,)?) => {
        through_each_proxy!(@ nginx Nginx $($test)+);
        through_each_proxy!(@ caddy Caddy $($test)+);
        through_each_proxy!(@ haproxy Haproxy $($test)+);
    };
    (@ $name:ident $kind:ident $($test:ident)+) => {
        mod $name {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::support::reverse_proxy::ProxyKind::$kind).await;
            })+
        }
    };
}

through_each_proxy!(
    somebody_signs_in_at_an_application_and_out_everywhere,
    what_a_client_says_about_itself_never_passes,
    requests_reach_the_application_as_they_were_sent,
    nobody_passes_while_the_gate_is_gone,
);

async fn somebody_signs_in_at_an_application_and_out_everywhere(kind: ProxyKind) {
    let site = Site::behind(kind).await;
    let at = |host: &str, path: &str| format!("https://{host}{path}");
    let (deep, files) = (at(&site.wiki_host, "/a/page?b=c%20d&e=1"), at(&site.files_host, "/list"));
    let browser = Browser::start("").await;
    let address = async || browser.driver.current_url().await.unwrap().to_string();
    let says = async || browser.text("body").await;

    browser.open(&deep).await;
    assert!(
        address().await.starts_with(&format!("https://id.example:{}/login?rd=", site.wiki.port)),
        "{}",
        address().await
    );
    browser.fill(&[("login", "ada"), ("password", "a wrong one")]).await;
    browser.submit().await;
    browser.fill(&[("login", "ada"), ("password", PASSWORD)]).await;
    browser.submit().await;
    assert_eq!(address().await, deep);
    let body = says().await;
    assert!(body.starts_with("GET /a/page?b=c%20d&e=1 "), "{body}");
    assert!(
        body.to_lowercase().contains("remote-user: ada")
            && body.to_lowercase().contains("remote-groups: staff"),
        "{body}"
    );

    browser.open(&files).await;
    assert_eq!(address().await, files, "without a form");
    assert!(says().await.to_lowercase().contains("remote-user: ada"));

    browser.open(&at(&site.wiki_host, "/.gatehouse/logout")).await;
    browser.submit().await;
    assert!(says().await.contains("You are signed out"), "{}", says().await);
    browser.picture(&format!("gate-signed-out-{kind:?}")).await;
    for url in [&deep, &files] {
        browser.open(url).await;
        assert!(address().await.contains("/login?rd="), "{url}: {}", address().await);
    }

    // Without rights.
    browser.fill(&[("login", "bob"), ("password", PASSWORD)]).await;
    browser.submit().await;
    browser.open(&at(&site.wiki_host, "/admin/")).await;
    assert!(
        says().await.contains("You may not use this") && says().await.contains("signed in as bob"),
        "{}",
        says().await
    );
    browser.picture(&format!("gate-forbidden-{kind:?}")).await;
    browser.screen(PHONE).await;
    browser.picture(&format!("gate-forbidden-phone-{kind:?}")).await;
}

#[tokio::test]
async fn tabs_that_a_browser_opens_at_once_all_arrive() {
    let site = Site::behind(ProxyKind::Nginx).await;
    let at = |path: &str| format!("https://{}{path}", site.wiki_host);
    let browser = Browser::start("").await;
    let driver = &browser.driver;
    let forget = async |name: &str| {
        browser.cdp("Network.deleteCookies", serde_json::json!({ "name": name, "url": at("/") })).await;
    };
    // Before there is a session, a form in each: the state of the second takes the place of that of the first.
    browser.open(&at("/first")).await;
    let first = driver.window().await.unwrap();
    forget("__Host-gh_state").await;
    driver.switch_to_window(driver.new_tab().await.unwrap()).await.unwrap();
    browser.open(&at("/second")).await;
    assert!(browser.has("#password").await);
    driver.switch_to_window(first).await.unwrap();
    browser.fill(&[("login", "ada"), ("password", PASSWORD)]).await;
    browser.submit().await;
    assert_eq!(driver.current_url().await.unwrap().as_str(), at("/first"));

    // With a session at Gatehouse, without a form.
    forget("__Host-gh_state").await;
    forget("__Host-gh_app").await;
    let before = driver.windows().await.unwrap();
    let mut pages: Vec<String> = (0..6).map(|tab| at(&format!("/tab/{tab}"))).collect();
    browser.js(&format!("for (const page of {}) window.open(page)", serde_json::json!(pages))).await;
    let mut arrived = Vec::new();
    for tab in driver.windows().await.unwrap().into_iter().filter(|tab| !before.contains(tab)) {
        driver.switch_to_window(tab).await.unwrap();
        let is_there = "return location.href !== 'about:blank' && document.readyState === 'complete'";
        browser.until("a page in the tab", is_there).await;
        arrived.push(driver.current_url().await.unwrap().to_string());
    }
    arrived.sort();
    pages.sort();
    assert_eq!(arrived, pages);
}

async fn what_a_client_says_about_itself_never_passes(kind: ProxyKind) {
    let site = Site::behind(kind).await;
    let bob = site.signed_in("bob").await;
    let names = [
        "Remote-User",
        "remote-user",
        "REMOTE-USER",
        "Remote_User",
        "remote_user",
        "REMOTE_USER",
        "Remote-Groups",
        "Remote_Groups",
        "Remote-Name",
        "Remote_Name",
        "Remote-Email",
        "Remote_Email",
        "X-Forwarded-User",
        "X_Forwarded_User",
        "X-Forwarded-Host",
        "X_Forwarded_Host",
        "X-Forwarded-Proto",
        "X-Forwarded-Uri",
        "X_Forwarded_Uri",
        "X-Forwarded-Method",
        "X-Forwarded-For",
        "X-Forwarded-Prefix",
        "X-Original-URL",
        "X_Original_URL",
        "X-Original-URI",
        "X-Original-Method",
        "X-Original-Host",
        "Forwarded",
    ];
    for name in names {
        let spoofed = format!("{name}: spoofed\r\n");
        let to_app = site.ask("GET /page", &format!("{bob}{spoofed}")).await;
        assert!(!shown(&to_app).contains("spoofed"), "{name}: {to_app}");
        let lower = shown(&to_app).to_lowercase();
        assert_eq!(lower.matches("remote-user:").count(), 1, "{name}: {to_app}");
        assert!(lower.contains("remote-user: bob"), "{name}: {to_app}");
        let public = site.ask("GET /health", &spoofed).await;
        assert!(!shown(&public).contains("spoofed"), "{name}: {public}");
    }
    // Nor does any of it change what is decided.
    let open = "/health";
    for claim in [
        format!("X-Forwarded-Uri: {open}\r\n"),
        format!("X-Original-URL: https://{}{open}\r\n", site.wiki_host),
        "X-Forwarded-Host: open.example\r\n".to_owned(),
        "X-Forwarded-Method: HEAD\r\nX-Forwarded-Uri: /health\r\n".to_owned(),
        "X-Original-URL: https://open.example/\r\nX-Original-Method: GET\r\n".to_owned(),
        "Remote-User: ada\r\n".to_owned(),
    ] {
        let answer = site.ask("GET /page", &format!("{claim}Accept: text/html\r\n")).await;
        assert_eq!(status(&answer), 302, "{claim}: {answer}");
        let admin = site.ask("GET /admin/", &format!("{bob}{claim}")).await;
        assert_eq!(status(&admin), 403, "{claim}: {admin}");
    }
    // What is judged is what is passed on.
    for before in ["http://evil\\admin\\users?", "http://evil?page=admin&a="] {
        let request = format!(
            "GET {before}@{0}/health HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n\r\n",
            site.wiki_host
        );
        let answer = site.wiki.raw(WIKI, &request).await;
        // Caddy answers nothing where no site has the name.
        let passed = answer.split_once("\r\n\r\n").is_some_and(|(_, body)| body.contains("HTTP/1."));
        assert!(!passed || shown(&answer).starts_with("GET /health HTTP/1."), "{before}: {answer}");
    }
    // A connection that is upgraded is for a WebSocket: another protocol carries requests that nobody judges.
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    let line = format!("GET /health HTTP/1.1\r\nHost: {}\r\n{h2c}\r\n", site.wiki_host);
    let answer = site.wiki.raw_once(WIKI, &line).await;
    assert!(!answer.to_lowercase().contains("upgrade: h2c"), "{answer}");
    // What proxies ask is not for everybody.
    let id = format!("id.example:{}", site.wiki.port);
    let original = format!("X-Original-URL: https://{}/health\r\nX-Original-Method: GET\r\n", site.wiki_host);
    let request =
        format!("GET /api/authz/auth-request HTTP/1.1\r\nHost: {id}\r\nConnection: close\r\n{original}\r\n");
    let answer = site.wiki.raw("id.example", &request).await;
    assert_eq!(status(&answer), 404, "{answer}");
    // A header that the client has removed on the way is missing, and not made up.
    for removed in
        ["X-Forwarded-Host", "X-Forwarded-Uri", "X-Original-URL", "Remote-User", "X-Forwarded-Proto"]
    {
        let line =
            format!("GET /page HTTP/1.1\r\nHost: {}\r\nConnection: close, {removed}\r\n", site.wiki_host);
        let stranger = site.wiki.raw(WIKI, &format!("{line}Accept: text/html\r\n\r\n")).await;
        assert_ne!(status(&stranger), 200, "{removed}: {stranger}");
        let known = site.wiki.raw(WIKI, &format!("{line}{bob}Remote-User: ada\r\n\r\n")).await;
        assert!(
            status(&known) != 200 || known.to_lowercase().contains("remote-user: bob"),
            "{removed}: {known}"
        );
        assert!(!known.to_lowercase().contains("remote-user: ada"), "{removed}: {known}");
    }
    // The name of the application is what stands in the proxy's file.
    for (target, host) in [
        (format!("https://{}/page", site.wiki_host), "open.example"),
        (format!("http://{}/page", site.wiki_host), "open.example"),
        ("/page".to_owned(), "open.example"),
        ("https://open.example/page".to_owned(), site.wiki_host.as_str()),
        (format!("https://{}/page", site.wiki_host), site.wiki_host.as_str()),
        (format!("http://evil\\page\\x?@{}/page", site.wiki_host), site.wiki_host.as_str()),
        (format!("http://evil?page=admin&a=@{}/page", site.wiki_host), site.wiki_host.as_str()),
        ("*".to_owned(), site.wiki_host.as_str()),
    ] {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: text/html\r\n\r\n"
        );
        let answer = site.wiki.raw(WIKI, &request).await;
        assert!(!answer.contains("GET /page") && !answer.contains("Host: "), "{target} {host}: {answer}");
    }
}

async fn requests_reach_the_application_as_they_were_sent(kind: ProxyKind) {
    let site = Site::behind(kind).await;
    let ada = site.signed_in("ada").await;
    for target in ["/a%20b", "/a%2Fb", "/%E4%B8%AD?x=%00", "/a;b=c", "/a//b", "/?x=/../y"] {
        let answer = site.ask(&format!("GET {target}"), &ada).await;
        assert!(shown(&answer).starts_with(&format!("GET {target} HTTP/1.")), "{target}: {answer}");
    }
    // An odd path opens no part that it may be.
    let bob = site.signed_in("bob").await;
    for target in ["/%61dmin/", "/x/../admin/", "//admin/", "/ADMIN/", "/admin;x/", "/health/../admin/"] {
        let answer = site.ask(&format!("GET {target}"), &bob).await;
        assert!(matches!(status(&answer), 400 | 403 | 404), "{target}: {answer}");
        let stranger = site.ask(&format!("GET {target}"), "Accept: text/html\r\n").await;
        assert!(matches!(status(&stranger), 302 | 400 | 404), "{target}: {stranger}");
    }
    let body = "name=value&more=1";
    let posted = site.ask("POST /form", &format!("{ada}Content-Length: {}\r\n\r\n{body}", body.len())).await;
    assert!(shown(&posted).starts_with("POST /form ") && posted.contains(body), "{posted}");
    let refused = site
        .ask("POST /form", &format!("Accept: text/html\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
        .await;
    assert_eq!(status(&refused), 303, "{refused}");
    let script = site.ask("GET /api", "Accept: application/json\r\n").await;
    assert_eq!(status(&script), 401, "{script}");

    let upgrade =
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    let line =
        format!("GET /socket HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\n{upgrade}", site.wiki_host);
    let opened = site.wiki.raw(WIKI, &format!("{line}{ada}\r\n")).await;
    assert!(status(&opened) == 101 && opened.ends_with("hello over a socket"), "{opened}");
    let refused = site.wiki.raw_once(WIKI, &format!("{line}\r\n")).await;
    assert_eq!(status(&refused), 401, "{refused}");
}

async fn nobody_passes_while_the_gate_is_gone(kind: ProxyKind) {
    let site = Site::behind(kind).await;
    let ada = site.signed_in("ada").await;
    assert_eq!(status(&site.ask("GET /page", &ada).await), 200);
    site.app.stop().await;
    for headers in [ada.as_str(), ""] {
        let answer = site.ask("GET /page", headers).await;
        assert!((500..600).contains(&status(&answer)), "{answer}");
        assert!(!answer.contains("GET /page"), "{answer}");
    }
}
