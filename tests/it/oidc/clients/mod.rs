//! Clients that others have written sign in, refresh and sign out, by the settings that docs/clients.md prints.

mod apache;
mod programs;
mod spa;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gatehouse::accounts::Profile;

use super::*;
use crate::documents;
use crate::gate::account;

/// Where the page has Gatehouse.
const HERE: &str = "https://id.example";
const EMAIL: &str = "ada@example.org";

/// What the page prints for an application: what is configured here, and there.
struct Printed {
    here: String,
    there: Vec<String>,
    /// The variable with the secret, if the client has one.
    variable: String,
}

impl Printed {
    fn of(heading: &str, language: &str) -> Self {
        let page = documents::read(&documents::root().join("docs/clients.md"));
        let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect(heading);
        let section = section.split("\n## ").next().unwrap();
        let here = documents::blocks(section, "toml").remove(0);
        let variable = here.split("\"env:").nth(1).and_then(|rest| rest.split('"').next());
        let variable = variable.unwrap_or_default().to_owned();
        let here = here.replace(&format!("env:{variable}"), &format!("file:{}", secret_file()));
        Self { here, there: documents::blocks(section, language), variable }
    }

    /// With something else for what the page says.
    fn with(mut self, from: &str, to: &str) -> Self {
        self.here = self.here.replace(from, to);
        for text in &mut self.there {
            *text = text.replace(from, to);
        }
        self
    }

    /// Gatehouse, told of the application.
    async fn start(&self, algorithm: &str) -> TestApp {
        let here =
            self.here.replace("backchannel_logout_uri", "allow_private = true\nbackchannel_logout_uri");
        let setup = TestApp::on(Store::Memory).file(&here);
        start(setup.set("oidc.signing", algorithm).set("oidc.key_rotation", "7d")).await
    }
}

/// Somebody's browser, who is one of the staff.
async fn member(app: &TestApp) -> Client {
    let id = account(app, "ada", &["staff"]).await;
    let profile = Profile::parse(Some(EMAIL), true, Some("Ada Lovelace")).unwrap();
    app.services.profiles.set(id, &profile, false).await.unwrap();
    let browser = app.client();
    assert_eq!(browser.login("ada", PASSWORD).await.status, 200);
    browser
}

/// The path of an address at Gatehouse.
fn path_of<'a>(app: &TestApp, to: &'a str) -> &'a str {
    to.strip_prefix(&app.url).unwrap_or_else(|| panic!("not at Gatehouse: {to}"))
}

/// A client sends the browser here; it agrees if it is asked, and is sent back.
async fn walk(app: &TestApp, browser: &Client, to: &str) -> String {
    let to = path_of(app, to);
    let mut answer = browser.get(to).await;
    if let Some(account) = answer.hidden("account") {
        let (_, query) = to.split_once('?').unwrap();
        let fields = [("request", query), ("account", &*account), ("agree", "yes")];
        browser.submit(to, "/oauth/consent", &fields).await;
        answer = browser.get(to).await;
    }
    assert_eq!(answer.status, 303, "{}", answer.text);
    answer.header("location").to_owned()
}

/// Another key signs, which was published after the client had read the first.
async fn rotate(app: &TestApp) {
    for days in [6, 1] {
        app.advance(Duration::from_secs(days * 24 * 60 * 60 + 60));
        app.services.token_keys.follow().await.unwrap();
    }
}

/// Where scripts/test has installed packages.
fn tools(folder: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools").join(folder);
    assert!(folder.is_dir(), "scripts/test installs {}", folder.display());
    folder
}
