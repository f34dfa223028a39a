//! The example for Django, in a browser: examples/django.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Program, start};
use crate::support::app::{ANSWER, Store, TestApp};
use crate::support::browser::Browser;
use crate::support::ports::free_port;
use crate::support::redis::until;

const WORD: &str = "seven teal lamps over quiet hills";
const CHALLENGE: &str = "Type the letters in the image, and your password once more.";

/// Django's own server, on a free port; killed when dropped.
struct Django {
    _folder: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
    port: u16,
    server: Option<Child>,
}

impl Django {
    /// With one account.
    fn start(app: &TestApp, shop: &Program) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let variables = vec![
            ("DJANGO_DATABASE", folder.path().join("shop.sqlite3").display().to_string()),
            ("DJANGO_SECRET_KEY", "of a test".to_owned()),
            ("DJANGO_SUPERUSER_PASSWORD", WORD.to_owned()),
            ("GATEHOUSE_URL", app.url.clone()),
            ("GATEHOUSE_TOKEN", shop.token.clone()),
            ("PYTHONPATH", packages().display().to_string()),
            ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
        ];
        let mut django = Self { _folder: folder, variables, port: free_port(), server: None };
        django.manage(&["migrate"]);
        django.manage(&["createsuperuser", "--noinput", "--username=ada", "--email=ada@example.com"]);
        let at = format!("127.0.0.1:{}", django.port);
        django.server = Some(django.command(&["runserver", "--noreload", &at]).spawn().unwrap());
        until("Django listens", || std::net::TcpStream::connect(("127.0.0.1", django.port)).is_ok());
        django
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("python3");
        command.arg("manage.py").args(arguments).envs(self.variables.iter().cloned());
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/django"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn manage(&self, arguments: &[&str]) {
        let done = self.command(arguments).stderr(Stdio::piped()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Django {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Where scripts/test has installed examples/django/requirements.txt.
fn packages() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/django-5.2.19");
    let missing = "pip install --no-deps -r examples/django/requirements.txt --target";
    assert!(folder.is_dir(), "{missing} {}", folder.display());
    folder
}

async fn sign_in(browser: &Browser, login: &str, password: &str) {
    browser.fill(&[("id_username", login), ("id_password", password)]).await;
    browser.submit().await;
}

async fn says(browser: &Browser) -> String {
    browser.text("[role=alert]").await
}

#[tokio::test]
async fn people_of_another_program_are_challenged_and_get_in() {
    let (app, _, shop) = start(Store::Memory).await;
    let django = Django::start(&app, &shop);
    let browser = Browser::start(&django.url()).await;

    browser.open("/accounts/login/").await;
    for _ in 0..3 {
        sign_in(&browser, "ada", "a wrong password").await;
        assert!(says(&browser).await.starts_with("Please enter a correct username and password"));
    }
    sign_in(&browser, "ada", WORD).await;
    assert_eq!(says(&browser).await, CHALLENGE);
    let drawn =
        "const image = document.querySelector('img'); return image.complete && image.naturalWidth > 0";
    browser.until("image", drawn).await;
    browser.picture("django-challenge").await;
    browser.fill(&[("captcha_answer", "wrong")]).await;
    sign_in(&browser, "ada", WORD).await;
    assert_eq!(says(&browser).await, CHALLENGE);
    browser.fill(&[("captcha_answer", ANSWER)]).await;
    sign_in(&browser, "ada", WORD).await;
    assert_eq!(browser.text("[role=status]").await, "Signed in as ada.");

    // It is a known device from now on.
    let device = browser.driver.get_named_cookie("guard_device").await.unwrap();
    assert_eq!((device.http_only, device.value.is_empty()), (Some(true), false));
    for _ in 0..3 {
        shop.fail("ada").await;
    }
    assert_eq!(shop.ask("ada").await["decision"], "challenge", "a stranger");
    browser.submit().await; // signs out
    sign_in(&browser, "ada", WORD).await;
    assert_eq!(browser.text("[role=status]").await, "Signed in as ada.", "without a challenge");

    // A new password ends the failures.
    let change = "from django.contrib.auth.models import User; ada = User.objects.get(); \
                  ada.set_password('another word entirely'); ada.save()";
    assert_eq!(shop.ask("ada").await["decision"], "challenge");
    django.manage(&["shell", "--no-imports", "-c", change]);
    let _ = shop.go("ada").await;
}

#[tokio::test]
async fn nobody_signs_in_while_the_guard_does_not_decide() {
    let (app, _, mut shop) = start(Store::Memory).await;
    shop.token = "ght_not-a-token".to_owned();
    let django = Django::start(&app, &shop);
    let browser = Browser::start(&django.url()).await;
    browser.open("/accounts/login/").await;
    sign_in(&browser, "ada", WORD).await;
    assert_eq!(says(&browser).await, "Signing in is not possible at the moment. Try again in a few minutes.");
}
