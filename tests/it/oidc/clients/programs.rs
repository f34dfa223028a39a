//! Clients that are libraries, each in a program that tells a test what it learns: tests/clients/oidc.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::json;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::*;
use crate::support::steered::SteeredClock;

struct Library {
    /// Of the page.
    section: &'static str,
    language: &'static str,
    /// Which blocks of the section it reads.
    blocks: &'static [usize],
    program: &'static str,
    /// What a test changes in the settings, here and there.
    changes: &'static [(&'static str, &'static str)],
    /// Checks what it is told when a session ends.
    listens: bool,
    /// Checks signatures of ID tokens.
    verifies: bool,
    /// What it says once its user has signed out.
    refused: &'static str,
}

const PLAIN: Library = Library {
    section: "Node.js",
    language: "js",
    blocks: &[0],
    program: "openid-client.mjs",
    changes: &[],
    listens: false,
    verifies: true,
    refused: "invalid_grant",
};

/// There is no TLS between the processes of a test.
const INSECURE: (&str, &str) = ("execute: [", "execute: [client.allowInsecureRequests, ");

const OPENID_CLIENT: Library = Library { changes: &[INSECURE], ..PLAIN };

#[tokio::test(flavor = "multi_thread")]
async fn openid_client_signs_in_refreshes_and_signs_out() {
    prove(OPENID_CLIENT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openid_client_with_the_secret_in_a_form_signs_in_refreshes_and_signs_out() {
    prove(Library { changes: &[INSECURE, ("ClientSecretBasic", "ClientSecretPost")], ..PLAIN }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openid_client_without_a_secret_signs_in_refreshes_and_signs_out() {
    let changes = &[
        INSECURE,
        ("client.ClientSecretBasic(process.env.BOARD_SECRET)", "client.None()"),
        ("secret = ", "consent = \"once\" # "),
    ];
    prove(Library { changes, ..PLAIN }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oauth4webapi_signs_in_refreshes_and_signs_out() {
    prove(Library { blocks: &[1], program: "oauth4webapi.mjs", ..PLAIN }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn auth_js_signs_in_refreshes_and_signs_out() {
    let client = Library { section: "Auth.js", program: "auth-js.mjs", verifies: false, ..PLAIN };
    prove(Library { refused: "signed out", ..client }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn authlib_signs_in_refreshes_and_signs_out() {
    prove(Library { section: "Python", language: "python", program: "authlib_client.py", ..PLAIN }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idpyoidc_signs_in_refreshes_and_signs_out() {
    let client = Library { section: "Python", language: "python", program: "idpyoidc_client.py", ..PLAIN };
    prove(Library { blocks: &[1], listens: true, ..client }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mozilla_django_oidc_signs_in_refreshes_and_signs_out() {
    let client = Library { section: "Django", language: "python", program: "django_client.py", ..PLAIN };
    prove(Library { blocks: &[0, 1], refused: "signed out", ..client }).await;
}

/// The library in Proxmox, with the application of a Proxmox, which sends nobody to sign out.
#[tokio::test(flavor = "multi_thread")]
async fn openidconnect_signs_in_and_refreshes() {
    let changes = &[("group:operators", "group:staff"), ("factor = \"second\"\n", "")];
    let client = Library { section: "Proxmox", language: "rust", program: "openidconnect-client", ..PLAIN };
    prove(Library { blocks: &[], changes, ..client }).await;
}

/// A running client.
struct Program {
    child: Child,
    answers: BufReader<ChildStdout>,
    clock: SteeredClock,
    _folder: tempfile::TempDir,
}

impl Program {
    fn start(app: &TestApp, client: &Library, printed: &Printed) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let (mut command, ending) = match client.language {
            "js" => (Command::new("node"), "mjs"),
            "python" => (Command::new("python3"), "py"),
            _ => (Command::new(tools("openidconnect-4.1.0").join("bin").join(client.program)), ""),
        };
        let mut settings = Vec::new();
        for (number, block) in client.blocks.iter().enumerate() {
            let name = if number == 0 { "settings".to_owned() } else { format!("settings_{number}") };
            let file = at.join(format!("{name}.{ending}"));
            std::fs::write(&file, printed.there[*block].replace(HERE, &app.url)).unwrap();
            settings.push(file);
        }
        for file in std::fs::read_dir(documents::root().join("tests/clients/oidc")).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_some_and(|extension| extension == ending) {
                std::fs::copy(&file, at.join(file.file_name().unwrap())).unwrap();
            }
        }
        // A module looks for packages beside itself.
        let packages = tools("oidc-1").join("node_modules");
        std::os::unix::fs::symlink(packages, at.join("node_modules")).unwrap();
        let paths = [tools("oidc-python-1"), tools("django-5.2.19")];
        match settings.is_empty() {
            true => command.args([&app.url, "proxmox", "https://pve1.example:8006"]),
            false => command.arg(at.join(client.program)).args(settings),
        };
        command.env(&printed.variable, SECRET).env("PYTHONPATH", std::env::join_paths(paths).unwrap());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        // Or Authlib refuses an address without TLS.
        command.env("AUTHLIB_INSECURE_TRANSPORT", "1");
        let clock = SteeredClock::at(app.clock.now());
        clock.steer(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers, clock, _folder: folder }
    }

    async fn hear(&mut self) -> Value {
        let mut line = String::new();
        tokio::task::block_in_place(|| self.answers.read_line(&mut line).unwrap());
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not a line of JSON: {line:?}"))
    }

    /// Its clock is the app's.
    async fn ask(&mut self, app: &TestApp, line: &str) -> Value {
        self.clock.set(app.clock.now());
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.hear().await
    }

    /// A browser is sent to Gatehouse and comes back.
    async fn come_back(&mut self, app: &TestApp, browser: &Client, sent: &Value) -> Value {
        let to = sent["to"].as_str().unwrap_or_else(|| panic!("{sent}"));
        let back = walk(app, browser, to).await;
        self.ask(app, &format!("back {back}")).await
    }

    /// By a refresh token, or by a browser that is asked nothing.
    async fn refresh(&mut self, app: &TestApp, browser: &Client) -> Value {
        let told = self.ask(app, "refresh").await;
        if told["to"].is_null() { told } else { self.come_back(app, browser, &told).await }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn prove(client: Library) {
    for algorithm in ["RS256", "ES256"] {
        let receiver = MockServer::start().await;
        Mock::given(method("POST")).respond_with(ResponseTemplate::new(200)).mount(&receiver).await;
        let printed = Printed::of(client.section, client.language).with("RS256", algorithm);
        let changes = client.changes.iter();
        let mut printed = changes.fold(printed, |printed, (from, to)| printed.with(from, to));
        let back = printed.here.split("post_logout_redirect_uris = [\"").nth(1);
        let back = back.map(|rest| rest.split('"').next().unwrap().to_owned());
        printed.here = listening(&printed.here, &receiver);
        let app = printed.start(algorithm).await;
        let browser = member(&app).await;
        let mut program = Program::start(&app, &client, &printed);

        let sent = program.hear().await;
        let told = program.come_back(&app, &browser, &sent).await;
        assert_eq!(told["claims"]["preferred_username"], "ada", "{algorithm}: {told}");
        assert_eq!(told["claims"]["groups"], json!(["staff"]), "{told}");
        let user = &told["user"];
        assert_eq!(user["groups"], json!(["staff"]), "{told}");
        assert_eq!(user["email"].as_str().or(user["user"]["email"].as_str()), Some(EMAIL), "{told}");

        let has_secret = printed.here.contains("\nsecret = ");
        let active = if has_secret { json!(true) } else { json!("invalid_client") };
        assert!(told["active"].is_null() || told["active"] == active, "{told}");

        app.advance(Duration::from_secs(11 * 60));
        let refreshed = program.refresh(&app, &browser).await;
        assert_eq!(refreshed["claims"]["sub"], told["claims"]["sub"], "{algorithm}: {refreshed}");
        assert_eq!(refreshed["kid"], told["kid"]);

        rotate(&app).await;
        let by_next_key = program.refresh(&app, &browser).await;
        assert_eq!(by_next_key["claims"]["sub"], told["claims"]["sub"], "{algorithm}: {by_next_key}");
        assert_eq!(client.verifies, by_next_key["kid"].is_string(), "{by_next_key}");
        assert!(!client.verifies || by_next_key["kid"] != told["kid"], "{by_next_key}");

        if let Some(back) = &back {
            let end = program.ask(&app, &format!("end {back}")).await;
            let end = end["end"].as_str().unwrap_or_else(|| panic!("{end}"));
            let out = browser.get(path_of(&app, end)).await;
            let leads = out.header("location").starts_with(back);
            assert!(out.status == 303 && leads, "{algorithm}: {}", out.text);
            if client.listens {
                notice(&receiver, 0).await;
            }
            app.advance(Duration::from_secs(16 * 60));
            let refused = program.refresh(&app, &browser).await;
            assert_eq!(refused["refused"], client.refused, "{algorithm}: {refused}");
        }

        // Once more, and out at Gatehouse.
        assert_eq!(browser.login("ada", PASSWORD).await.status, 200);
        let sent = program.ask(&app, "again").await;
        let told = program.come_back(&app, &browser, &sent).await;
        assert_eq!(told["claims"]["preferred_username"], "ada", "{algorithm}: {told}");
        assert_eq!(browser.submit("/account", "/logout", &[]).await.status, 303);
        if client.listens {
            let notice = notice(&receiver, 1).await;
            let ended = program.ask(&app, &format!("notice {notice}")).await;
            assert_eq!(ended["ended"], told["claims"]["sub"], "{algorithm}: {ended}");
        }
        app.advance(Duration::from_secs(16 * 60));
        let refused = program.refresh(&app, &browser).await;
        assert_eq!(refused["refused"], client.refused, "{algorithm}: {refused}");
    }
}

/// With the receiver as the address that is told when a session ends.
fn listening(here: &str, receiver: &MockServer) -> String {
    let line = here.lines().find(|line| line.starts_with("backchannel_logout_uri"));
    match line {
        Some(line) => here.replace(line, &format!("backchannel_logout_uri = '{}'", receiver.uri())),
        None => here.to_owned(),
    }
}

/// The body of a notice, once it has come.
async fn notice(receiver: &MockServer, number: usize) -> String {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let posted = receiver.received_requests().await.unwrap();
        if let Some(request) = posted.get(number) {
            return String::from_utf8(request.body.clone()).unwrap();
        }
        assert!(tokio::time::Instant::now() < deadline, "no notice");
        tokio::time::sleep(Duration::from_millis(20)).await; // a task with a timer of its own posts
    }
}
