//! The same through real nginx, Caddy and HAProxy, with the files that the program prints.

use gatehouse::accounts::{Profile, Username};

use super::account;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::authority::Authority;
use crate::support::browser::{Browser, PHONE};
use crate::support::reverse_proxy::{EchoApp, ProxyKind, ProxyPlan, ReverseProxy};

pub const WIKI: &str = "wiki.example";

/// Two applications and Gatehouse behind one proxy.
pub struct Site {
    app: TestApp,
    _authority: Authority,
    _echo: EchoApp,
    pub wiki: ReverseProxy,
    pub wiki_host: String,
    files_host: String,
}

impl Site {
    pub async fn behind(kind: ProxyKind) -> Self {
        let plan = ProxyPlan::new(kind, &[WIKI, "files.test"]);
        let (wiki_host, files_host) = (plan.host(WIKI), plan.host("files.test"));
        let authority = Authority::new();
        let echo = match kind {
            ProxyKind::CaddyToFastCgi => EchoApp::fast_cgi().await,
            _ => EchoApp::start().await,
        };
        let apps = format!(
            "[[apps]]\nname = 'wiki'\nhosts = ['{wiki_host}']\nwho = ['ada', 'bob']\npublic = ['/health']\n\
             parts = [{{ path = '/admin/*', who = ['ada'] }}]\n\
             [[apps]]\nname = 'files'\nhosts = ['{files_host}']\nwho = ['everyone']\n"
        );
        // Behind another proxy.
        let open = "[[apps]]\nname = 'open'\nhosts = ['open.example']\nwho = ['everyone']\npublic = ['/*']\n";
        let public_url = format!("https://{}", plan.host("id.example"));
        let app = TestApp::on(Store::Memory)
            .file(&format!("{apps}{open}"))
            .behind_a_proxy()
            .set("server.public_url", &public_url)
            .start()
            .await;
        for login in ["ada", "bob"] {
            account(&app, login, &["staff"]).await;
        }
        let config = format!("{}public_url = '{public_url}'\n{apps}", server(&app));
        let wiki = plan.start(&authority, &config, echo.port);
        Self { app, _authority: authority, _echo: echo, wiki, wiki_host, files_host }
    }

    /// A request to the wiki with these header lines; the connection is closed after it.
    pub async fn ask(&self, line: &str, headers: &str) -> String {
        let host = &self.wiki_host;
        self.wiki
            .raw(WIKI, &format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"))
            .await
    }

    /// The `Cookie` line of somebody who is signed in at the wiki.
    pub async fn signed_in(&self, login: &str) -> String {
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

/// How a server of the tests is set up, for the program that prints files.
pub fn server(app: &TestApp) -> String {
    let bind = app.url.trim_start_matches("http://");
    format!("[server]\nbind = '{bind}'\ntrusted_proxies = ['127.0.0.0/8']\n")
}

pub fn status(answer: &str) -> u16 {
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
pub fn shown(answer: &str) -> &str {
    assert_eq!(status(answer), 200, "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1
}

macro_rules! through_each_proxy {
    ($($test:ident),+ $(,)?) => {
        $crate::gate::proxies::through_each_proxy!(@ nginx Nginx $($test)+);
        $crate::gate::proxies::through_each_proxy!(@ caddy Caddy $($test)+);
        $crate::gate::proxies::through_each_proxy!(@ haproxy Haproxy $($test)+);
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
pub(super) use through_each_proxy;

through_each_proxy!(
    somebody_signs_in_at_an_application_and_out_everywhere,
    requests_reach_the_application_as_they_were_sent,
    an_application_is_told_the_name_and_the_address_that_administrators_set,
    nobody_passes_while_the_gate_is_gone,
    with_the_default_public_url_nobody_is_led_in_circles,
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

/// nginx, left alone, would make a path of its own host of a `Location` that begins with what it passes to.
async fn with_the_default_public_url_nobody_is_led_in_circles(kind: ProxyKind) {
    let plan = ProxyPlan::new(kind, &["wiki.localhost"]);
    let apps =
        format!("[[apps]]\nname = 'wiki'\nhosts = ['{}']\nwho = ['ada']\n", plan.host("wiki.localhost"));
    let app = TestApp::on(Store::Memory).file(&apps).behind_a_proxy().start().await;
    account(&app, "ada", &["staff"]).await;
    let echo = EchoApp::start().await;
    let config = format!("{}public_url = '{}'\n{apps}", server(&app), app.url);
    let _proxy = plan.start(&Authority::new(), &config, echo.port);
    let browser = Browser::start("").await;
    let page = format!("http://{}/page?a=b", plan.host("wiki.localhost"));
    browser.open(&page).await;
    let there = browser.driver.current_url().await.unwrap();
    assert!(there.as_str().starts_with(&format!("{}/login?rd=", app.url)), "{there}");
    browser.fill(&[("login", "ada"), ("password", PASSWORD)]).await;
    browser.submit().await;
    assert_eq!(browser.driver.current_url().await.unwrap().as_str(), page);
    assert!(browser.text("body").await.to_lowercase().contains("remote-user: ada"));
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
    let html = "Accept: text/html\r\n";
    for script in [
        "Accept: application/json\r\n".to_owned(),
        "Accept: text/event-stream, text/html\r\n".to_owned(),
        format!("{html}X-Requested-With: XMLHttpRequest\r\n"),
        format!("{html}x-requested-with: xmlhttprequest\r\nSec-Fetch-Mode: navigate\r\n"),
        format!("{html}Sec-Fetch-Mode: cors\r\n"),
        format!("{html}Sec-Fetch-Mode: no-cors\r\n"),
        format!("{html}Upgrade: websocket\r\n"),
    ] {
        let refused = site.ask("GET /api", &script).await;
        assert_eq!(status(&refused), 401, "{script}: {refused}");
    }
    for page in [
        "",
        "Accept: */*\r\n",
        "Accept: text/*\r\n",
        "Accept: application/xhtml+xml\r\n",
        "Accept: text/html\r\nSec-Fetch-Mode: navigate\r\n",
        "Accept: text/html\r\nX-Requested-With: com.android.browser\r\n",
    ] {
        let led = site.ask("GET /api", page).await;
        assert_eq!(status(&led), 302, "{page}: {led}");
    }

    let upgrade =
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    let line =
        format!("GET /socket HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\n{upgrade}", site.wiki_host);
    let opened = site.wiki.raw(WIKI, &format!("{line}{ada}\r\n")).await;
    assert!(status(&opened) == 101 && opened.ends_with("hello over a socket"), "{opened}");
    let refused = site.wiki.raw_once(WIKI, &format!("{line}\r\n")).await;
    assert_eq!(status(&refused), 401, "{refused}");
}

/// An application that knows people by their address would take a client's for that of an administrator.
async fn an_application_is_told_the_name_and_the_address_that_administrators_set(kind: ProxyKind) {
    let site = Site::behind(kind).await;
    let ada = site.app.services.accounts.find(&Username::parse("ada").unwrap()).await.unwrap().unwrap().id;
    let cookie = site.signed_in("ada").await;
    let spoofed = "Remote-Email: eve@example.org\r\nRemote_Email: eve@example.org\r\nRemote-Name: Mallory\r\n\
        REMOTE-EMAIL: eve@example.org\r\n";
    let values = |answer: &str, name: &str| -> Vec<String> {
        let lines = shown(answer).lines().filter_map(|line| line.split_once(':'));
        let ours = lines.filter(|(header, _)| header.eq_ignore_ascii_case(name));
        ours.map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty()).collect()
    };
    for (email, name) in [
        (None, None),
        (Some("Ada+1@example.org"), Some("王小明, Ädä")),
        (Some("ada@example.org"), Some("Ada")),
    ] {
        let profile = Profile::parse(email, email.is_some(), name).unwrap();
        site.app.services.profiles.set(ada, &profile, false).await.unwrap();
        site.app.services.gate.forget(ada);
        for claims in ["", spoofed] {
            let answer = site.ask("GET /page", &format!("{cookie}{claims}")).await;
            assert_eq!(values(&answer, "remote-name"), [name.unwrap_or("ada")], "{answer}");
            assert_eq!(values(&answer, "remote-email"), email.into_iter().collect::<Vec<_>>(), "{answer}");
            assert!(!answer.contains("eve@") && !answer.contains("Mallory"), "{answer}");
        }
        let public = site.ask("GET /health", spoofed).await;
        assert!(!public.contains("eve@") && !public.contains("Mallory"), "{public}");
    }
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
