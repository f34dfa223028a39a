//! The gate: applications behind proxies.

mod authz;
mod client;
mod compose;
mod console;
mod form;
mod proxies;
mod spoofed;
mod way_in;

use std::collections::BTreeMap;

use gatehouse::accounts::{AccountId, Groups, Roles, Username};

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, http};
use crate::support::setup::Setup;

/// Two applications at different domains; the proxy is this machine.
pub const APPS: &str = "
[[apps]]
name = 'wiki'
hosts = ['wiki.example']
who = ['group:staff', 'ada']
public = ['/health', '/static/*']
parts = [
    { path = '/admin/*', who = ['group:on-call'] },
    { path = '/keys/*', password_within = '15m' },
    { path = '/recent/*', signed_in_within = '15m' },
]

[[apps]]
name = 'files'
hosts = ['files.test:8443']
who = ['everyone']
parts = [{ path = '/keys/*', password_within = '15m' }]
";

pub fn behind(setup: Setup) -> Setup {
    setup.file(APPS).behind_a_proxy()
}

/// Both applications, and an administrator.
async fn start(store: Store) -> (TestApp, Client) {
    let app = behind(TestApp::on(store)).start().await;
    let boss = app.sign_in_admin_at("boss", "198.51.100.7").await;
    (app, boss)
}

/// The configuration file as it is now.
fn written(app: &TestApp) -> String {
    std::fs::read_to_string(app.file()).unwrap()
}

/// A browser behind a proxy: its cookies at each host, and what the proxy says for it.
pub struct Visitor {
    http: reqwest::Client,
    gatehouse: String,
    /// By host and name. Gatehouse's own host is the empty one.
    cookies: BTreeMap<(String, String), String>,
}

impl Visitor {
    pub fn of(app: &TestApp) -> Self {
        let http = http().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { http, gatehouse: app.url.clone(), cookies: BTreeMap::new() }
    }

    /// The same browser with its cookies, whose proxies ask another instance.
    pub fn at(&self, instance: &TestApp) -> Self {
        Self { gatehouse: instance.url.clone(), http: self.http.clone(), cookies: self.cookies.clone() }
    }

    /// Asks as Caddy does for a request of this browser.
    pub async fn ask(&self, method: &str, url: &str) -> Answer {
        self.ask_with(method, url, &[("accept", "text/html")]).await
    }

    pub async fn ask_with(&self, method: &str, url: &str, headers: &[(&str, &str)]) -> Answer {
        let (scheme, host, target) = parts(url);
        let forwarded = [
            ("x-forwarded-method", method),
            ("x-forwarded-proto", scheme),
            ("x-forwarded-host", host),
            ("x-forwarded-uri", target),
        ];
        self.send("GET", "/api/authz/forward-auth", host, &[&forwarded, headers].concat(), None).await
    }

    /// The same as nginx does.
    pub async fn ask_nginx(&self, method: &str, url: &str) -> Answer {
        self.ask_nginx_with(method, url, &[]).await
    }

    pub async fn ask_nginx_with(&self, method: &str, url: &str, headers: &[(&str, &str)]) -> Answer {
        let (_, host, _) = parts(url);
        let original = [("x-original-url", url), ("x-original-method", method)];
        self.send("GET", "/api/authz/auth-request", host, &[&original, headers].concat(), None).await
    }

    /// Opens an address at an application's host that its proxy passes on, or one of Gatehouse's own.
    pub async fn open(&mut self, url: &str) -> Answer {
        self.visit("GET", url, &[], None).await
    }

    pub async fn visit(
        &mut self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        form: Option<&[(&str, &str)]>,
    ) -> Answer {
        let own = url.strip_prefix(&self.gatehouse).map(str::to_owned);
        let answer = match &own {
            Some(path) => self.send(method, path, "", headers, form).await,
            None => {
                let (scheme, host, target) = parts(url);
                let forwarded = [("x-forwarded-proto", scheme), ("x-forwarded-host", host)];
                self.send(method, target, host, &[&forwarded, headers].concat(), form).await
            }
        };
        let host = if own.is_some() { "" } else { parts(url).1 };
        for line in answer.headers.get_all("set-cookie") {
            let (pair, attributes) = line.to_str().unwrap().split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            let key = (host.to_owned(), name.to_owned());
            if attributes.contains("Max-Age=0") {
                self.cookies.remove(&key);
            } else {
                self.cookies.insert(key, value.to_owned());
            }
        }
        answer
    }

    /// Follows redirects to the first answer that is none, as far as the gate's own pages lead; the last address, too.
    pub async fn follow(&mut self, url: &str) -> (String, Answer) {
        let mut url = url.to_owned();
        for _ in 0..8 {
            let answer = self.open(&url).await;
            if !(300..400).contains(&answer.status) {
                return (url, answer);
            }
            let to = answer.header("location");
            url = if to.starts_with('/') { format!("{}{to}", self.gatehouse) } else { to.to_owned() };
            if !url.starts_with(&self.gatehouse) && !url.contains("/.gatehouse/") {
                return (url, answer);
            }
        }
        panic!("redirected without end, at last to {url}");
    }

    /// Signs in with the form at this address, and follows where that leads.
    pub async fn sign_in(&mut self, at: &str, login: &str) -> (String, Answer) {
        let page = self.open(at).await;
        assert_eq!(page.status, 200, "{}", page.text);
        let (to, answer) =
            self.fill_in(at, &page, "/login", &[("login", login), ("password", PASSWORD)]).await;
        assert_ne!(to, at, "{}", answer.text);
        (to, answer)
    }

    /// Sends a form of ours that is on a page, with what is hidden in it, and follows where that leads.
    pub async fn fill_in(
        &mut self,
        at: &str,
        page: &Answer,
        action: &str,
        typed: &[(&str, &str)],
    ) -> (String, Answer) {
        let names = ["next", "rd", "state", "csrf_token"];
        let hidden: Vec<_> =
            names.iter().filter_map(|name| Some((*name, unescaped(&page.hidden(name)?)))).collect();
        let hidden = hidden.iter().map(|(name, value)| (*name, value.as_str()));
        let fields: Vec<_> = typed.iter().copied().chain(hidden).collect();
        let (action, origin) = (format!("{}{action}", self.gatehouse), self.gatehouse.clone());
        let answer = self.visit("POST", &action, &[("origin", &origin)], Some(&fields)).await;
        if answer.status != 303 {
            return (at.to_owned(), answer);
        }
        let to = format!("{}{}", self.gatehouse, answer.header("location"));
        self.follow(&to).await
    }

    pub fn cookie(&self, host: &str, name: &str) -> Option<&str> {
        self.cookies.get(&(host.to_owned(), name.to_owned())).map(String::as_str)
    }

    pub fn set_cookie(&mut self, host: &str, name: &str, value: &str) {
        self.cookies.insert((host.to_owned(), name.to_owned()), value.to_owned());
    }

    /// Asks for a path of Gatehouse as the browser's proxy at a host.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        host: &str,
        headers: &[(&str, &str)],
        form: Option<&[(&str, &str)]>,
    ) -> Answer {
        let mut request = self.http.request(method.parse().unwrap(), format!("{}{path}", self.gatehouse));
        let cookies = self.cookies.iter().filter(|((at, _), _)| at == host);
        let cookies: Vec<_> = cookies.map(|((_, name), value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            request = request.header("cookie", cookies.join("; "));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(form) = form {
            request = request.form(form);
        }
        Answer::read(request.send().await.unwrap()).await
    }
}

/// Scheme, host, and path with query.
fn parts(url: &str) -> (&str, &str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (host, target) = rest.split_at(rest.find('/').unwrap());
    (scheme, host, target)
}

/// The text of an attribute.
fn unescaped(html: &str) -> String {
    html.replace("&#38;", "&").replace("&amp;", "&").replace("&#61;", "=")
}

/// A browser that is signed in at an application.
pub async fn inside(app: &TestApp, page: &str, login: &str) -> Visitor {
    let mut visitor = Visitor::of(app);
    let begin = visitor.ask("GET", page).await.header("location").to_owned();
    let sign_in = visitor.open(&begin).await.header("location").to_owned();
    visitor.sign_in(&sign_in, login).await;
    visitor
}

/// An account in these groups.
pub async fn account(app: &TestApp, login: &str, groups: &[&str]) -> AccountId {
    let (login, services) = (Username::parse(login).unwrap(), &app.services);
    let hash = services.hasher.hash_new(PASSWORD, &login).await.unwrap().unwrap();
    let account = services.accounts.create(&login, &hash, Roles::default()).await.unwrap();
    let groups = Groups::parse(groups.iter().copied()).unwrap();
    services.accounts.change_groups(account.id, false, |_| groups.clone()).await.unwrap();
    account.id
}
