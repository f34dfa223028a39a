//! Apache with mod_auth_openidc, in front of an application that shows what it was sent.

use std::process::{Child, Command, Stdio};

use super::*;
use crate::support::ports::free_port;
use crate::support::redis::until;
use crate::support::reverse_proxy::EchoApp;
use crate::support::steered::SteeredClock;

/// A running Apache of a test's own; ended when dropped.
pub struct Apache {
    child: Child,
    clock: SteeredClock,
    folder: tempfile::TempDir,
}

impl Apache {
    /// At this port of this machine, with what is said in `text`, where `FOLDER` is its own.
    pub fn start(app: &TestApp, port: u16, text: &str, variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().display().to_string();
        let modules: String = [
            "mpm_event",
            "authn_core",
            "authz_core",
            "authz_user",
            "proxy",
            "proxy_http",
            "ssl",
            "dir",
            "mime",
            "auth_openidc",
        ]
        .iter()
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
        let whole = format!(
            "ServerName 127.0.0.1\nServerRoot {here}\nDefaultRuntimeDir {here}\nPidFile {here}/pid\n\
             User www-data\nGroup www-data\nErrorLog {here}/log\nTypesConfig /etc/mime.types\n{modules}\
             Listen 127.0.0.1:{port}\n{}",
            text.replace("FOLDER", &here)
        );
        std::fs::write(folder.path().join("apache.conf"), whole).unwrap();
        std::fs::write(folder.path().join("oidc.passphrase"), "a passphrase of a test").unwrap();
        let mut command = Command::new("/usr/sbin/apache2");
        command.arg("-f").arg(folder.path().join("apache.conf")).arg("-DFOREGROUND");
        command.envs(variables.iter().copied());
        let clock = SteeredClock::at(app.clock.now());
        clock.steer(&mut command);
        let log = std::fs::File::create(folder.path().join("said")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut child =
            command.spawn().expect("apache2 (Debian: apt-get install libapache2-mod-auth-openidc)");
        let said = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        until("Apache listens", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("it ended ({status}): {}{}", said("said"), said("log"));
            }
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self { child, clock, folder }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn advance(&self, app: &TestApp, span: Duration) {
        app.advance(span);
        self.clock.set(app.clock.now());
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// Asks Apache as a browser does.
async fn ask(visitor: &Client, url: &str) -> Answer {
    Answer::read(visitor.http.get(url).header("accept", "text/html").send().await.unwrap()).await
}

/// The values of a header that the application was sent.
fn sent_to_app<'a>(answer: &'a Answer, name: &str) -> Vec<&'a str> {
    let lines = answer.text.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn mod_auth_openidc_signs_in_refreshes_and_signs_out() {
    for algorithm in ["RS256", "ES256"] {
        let (port, echo) = (free_port(), EchoApp::start().await);
        let site = format!("http://127.0.0.1:{port}");
        let printed = Printed::of("Apache", "apache").with("https://reports.example", &site);
        let app = printed.start(algorithm).await;
        let text = printed.there[0]
            .replace(HERE, &app.url)
            .replace("127.0.0.1:3000", &format!("127.0.0.1:{}", echo.port))
            .replace("/etc/apache2", "FOLDER");
        let apache = Apache::start(&app, port, &text, &[(&printed.variable, SECRET)]);
        let (browser, visitor) = (member(&app).await, app.client());
        let page = format!("{site}/report?of=May");

        let sign_in = async || {
            let begin = ask(&visitor, &page).await;
            assert_eq!(begin.status, 302, "{algorithm}: {}{}", begin.text, apache.log());
            let back = walk(&app, &browser, begin.header("location")).await;
            let landed = ask(&visitor, &back).await;
            assert_eq!((landed.status, landed.header("location")), (302, &*page), "{}", apache.log());
            let shown = ask(&visitor, &page).await;
            assert_eq!(shown.status, 200, "{}{}", shown.text, apache.log());
        };
        sign_in().await;
        // What a browser sends by these names is not what the application gets.
        let sent =
            visitor.http.get(&page).header("x-remote-user", "eve").header("oidc_claim_groups", "admins");
        let shown = Answer::read(sent.send().await.unwrap()).await;
        assert!(shown.text.starts_with("GET /report?of=May "), "{}", shown.text);
        for (name, value) in [
            ("X-Remote-User", "ada"),
            ("OIDC_CLAIM_groups", "staff"),
            ("OIDC_CLAIM_email", EMAIL),
            ("OIDC_CLAIM_name", "Ada Lovelace"),
        ] {
            assert_eq!(sent_to_app(&shown, name), vec![value], "{}", shown.text);
        }
        let token = |shown: &Answer| sent_to_app(shown, "OIDC_access_token").first().map(ToString::to_string);
        let first = token(&shown).expect("an access token");

        // By its hook, and by itself before the token expires.
        let hook = format!("{site}/oidc?refresh={page}&access_token={first}");
        assert_eq!(ask(&visitor, &hook).await.header("location"), page, "{}", apache.log());
        let second = token(&ask(&visitor, &page).await);
        assert_ne!(second.as_ref(), Some(&first));
        apache.advance(&app, Duration::from_secs(9 * 60 + 30));
        let third = token(&ask(&visitor, &page).await);
        assert!(third.is_some() && third != second, "{}", apache.log());
        assert_eq!(userinfo(&app.url, &third.unwrap()).await.status, 200);

        // By its own page, and back.
        let out = ask(&visitor, &format!("{site}/oidc?logout={site}/bye")).await;
        let out = browser.get(path_of(&app, out.header("location"))).await;
        assert_eq!((out.status, out.header("location")), (303, &*format!("{site}/bye")), "{}", out.text);
        assert_eq!(ask(&visitor, &page).await.status, 302);
        assert_eq!(ask(&visitor, &format!("{site}/bye")).await.status, 404, "it asks nobody to sign in");

        // By another key; and it hears of the end at Gatehouse.
        rotate(&app).await;
        apache.clock.set(app.clock.now());
        assert_eq!(browser.login("ada", PASSWORD).await.status, 200);
        sign_in().await;
        assert_eq!(browser.submit("/account", "/logout", &[]).await.status, 303);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while ask(&visitor, &page).await.status == 200 {
            assert!(tokio::time::Instant::now() < deadline, "it did not hear: {}", apache.log());
            tokio::time::sleep(Duration::from_millis(50)).await; // a task with a timer of its own posts
        }
    }
}
