//! A private Chromium without a window, controlled by WebDriver, and ended when dropped.
//!
//! It saves pictures in the folder that the environment variable `GATEHOUSE_PICTURES` names; without it none
//! are taken.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use thirtyfour::common::capabilities::chromium::ChromiumLikeCapabilities;
use thirtyfour::{By, CapabilitiesHelper, DesiredCapabilities, LoggingPrefsLogLevel, WebDriver, WebElement};

/// A screen: its size in CSS pixels, and whether it is a phone. Windows are at least 500 pixels wide even
/// without a head, so the width is set by emulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    pub width: u32,
    pub height: u32,
    pub phone: bool,
}

pub const DESKTOP: Screen = Screen { width: 1280, height: 860, phone: false };
pub const PHONE: Screen = Screen { width: 360, height: 780, phone: true };
/// WCAG 2.2 §1.4.10: content reflows at 320 CSS pixels.
pub const NARROWEST: Screen = Screen { width: 320, height: 640, phone: true };

const SWITCHES: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    // Applications of tests have names, and certificates of an authority of their own.
    "--host-resolver-rules=MAP *.example 127.0.0.1, MAP *.test 127.0.0.1",
    "--ignore-certificate-errors",
];

pub struct Browser {
    pub driver: WebDriver,
    app: String,
    session: String,
    service: Chromedriver,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// In English, at a desktop.
    pub async fn start(app: &str) -> Self {
        Self::speaking(app, "en-GB").await
    }

    /// `language` is what it sends as `Accept-Language`.
    pub async fn speaking(app: &str, language: &str) -> Self {
        let service = Chromedriver::start();
        let profile = tempfile::tempdir().unwrap();
        let mut wishes = DesiredCapabilities::chrome();
        // The engine without the desktop's browser around it: it starts, and changes screens, in a sixth of the time.
        wishes.set("browserName", "chrome-headless-shell").unwrap();
        wishes.set_binary(&headless_shell()).unwrap();
        for switch in SWITCHES {
            wishes.add_arg(switch).unwrap();
        }
        wishes.add_arg(&format!("--user-data-dir={}", profile.path().display())).unwrap();
        wishes.add_arg(&format!("--accept-lang={language}")).unwrap();
        wishes.add_arg(&format!("--window-size={},{}", DESKTOP.width, DESKTOP.height)).unwrap();
        wishes.set_browser_log_level(LoggingPrefsLogLevel::All).unwrap();
        let connecting = WebDriver::builder(service.url(), wishes).client(plain_client());
        let driver = connecting.connect().await.expect("a session with Chromium");
        let session = driver.session_id().to_string();
        // Dropping ends the session here, whether a test passed or panicked.
        driver.clone().leak().unwrap();
        let browser = Self { driver, app: app.to_owned(), session, service, _profile: profile };
        browser.screen(DESKTOP).await;
        browser
    }

    // What it shows

    pub async fn cdp(&self, method: &str, parameters: Value) -> Value {
        self.driver.cdp().send_raw(method, parameters).await.unwrap()
    }

    pub async fn screen(&self, screen: Screen) {
        let Screen { width, height, phone } = screen;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone });
        self.cdp("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    pub async fn dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        // Without motion, so that no colour is measured during a transition.
        let features = json!([
            { "name": "prefers-color-scheme", "value": value },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.cdp("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Pages run no script from here on.
    pub async fn without_script(&self) {
        self.cdp("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    }

    /// The complaints since the last call, except for pages that are refusals themselves.
    pub async fn complaints(&self) -> Vec<String> {
        let said = self.driver.browser_log().await.unwrap().into_iter().map(|entry| entry.message);
        said.filter(|message| {
            let refused = message.contains("Failed to load resource: the server responded with a status of");
            // A test types into a page before it was first drawn, where a machine is slow.
            let typed = message.contains("Autofocus processing was blocked");
            !typed && (!refused || message.contains("/static/") || message.contains("/captcha/"))
        })
        .collect()
    }

    // Where it is

    /// A path of the app, or a whole URL.
    pub async fn open(&self, path: &str) {
        let url = if path.starts_with('/') { format!("{}{path}", self.app) } else { path.to_owned() };
        self.driver.goto(url).await.unwrap();
    }

    /// Path and query of the page.
    pub async fn path(&self) -> String {
        let url = self.driver.current_url().await.unwrap();
        url.as_str().strip_prefix(&self.app).unwrap_or(url.as_str()).to_owned()
    }

    // What stands on the page

    pub async fn js(&self, script: &str) -> Value {
        self.driver.execute(script, Vec::new()).await.unwrap().json().clone()
    }

    pub async fn find(&self, css: &str) -> WebElement {
        match self.driver.find(By::Css(css)).await {
            Ok(found) => found,
            Err(error) => panic!("{css}: {error}\n{}", self.text("body").await),
        }
    }

    pub async fn has(&self, css: &str) -> bool {
        !self.driver.find_all(By::Css(css)).await.unwrap().is_empty()
    }

    /// The visible text.
    pub async fn text(&self, css: &str) -> String {
        let script = format!("return document.querySelector({css:?})?.innerText ?? ''");
        self.js(&script).await.as_str().unwrap_or_default().to_owned()
    }

    pub async fn value(&self, css: &str) -> String {
        self.find(css).await.prop("value").await.unwrap().unwrap_or_default()
    }

    /// The id of the focused element.
    pub async fn focused(&self) -> String {
        self.js("return document.activeElement.id").await.as_str().unwrap_or_default().to_owned()
    }

    // What is done on it

    /// Puts text into fields by their ids, replacing what is there; by pasting, which takes a tenth of the
    /// time of typing.
    pub async fn fill(&self, fields: &[(&str, &str)]) {
        for (id, text) in fields {
            self.find(&format!("#{id}")).await;
            let paste = format!(
                "const field = document.getElementById({});
                 field.focus(); field.select();
                 document.execCommand({:?}, false, {})",
                json!(id),
                if text.is_empty() { "delete" } else { "insertText" },
                json!(text)
            );
            self.js(&paste).await;
        }
    }

    /// Runs an action that leads to another page, and waits for that page.
    pub async fn leave_by(&self, action: impl Future<Output = ()>) {
        self.js("document.leaving = true").await;
        action.await;
        let arrived = "return !document.leaving && document.readyState === 'complete'";
        self.until("another page", arrived).await;
    }

    /// Clicks an element that leads to another page.
    pub async fn follow(&self, css: &str) {
        let target = self.find(css).await;
        self.leave_by(async { target.click().await.unwrap() }).await;
    }

    /// Submits the form of the page.
    pub async fn submit(&self) {
        self.follow("button.main").await;
    }

    /// Waits until a script returns true, for what the browser does in its own time.
    pub async fn until(&self, what: &str, script: &str) {
        self.until_within(400, what, script).await;
    }

    /// The same for what a page does every few seconds.
    pub async fn slowly_until(&self, what: &str, script: &str) {
        self.until_within(3_000, what, script).await;
    }

    async fn until_within(&self, looks: u32, what: &str, script: &str) {
        for _ in 0..looks {
            // Between two pages there is nothing to run it in.
            if let Ok(answer) = self.driver.execute(script, Vec::new()).await
                && *answer.json() == Value::Bool(true)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // another process: no clock to advance
        }
        panic!("no {what} at {}:\n{}", self.path().await, self.text("body").await);
    }

    // Pictures

    /// The whole page as it is, as `NAME.png`.
    pub async fn picture(&self, name: &str) {
        let Some(folder) = pictures() else { return };
        self.picture_at(&folder.join(format!("{name}.png"))).await;
    }

    pub async fn picture_at(&self, file: &Path) {
        let size = self
            .js("const e = document.documentElement; return [innerWidth, Math.max(e.scrollHeight, innerHeight)]")
            .await;
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let asked = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let shot = self.cdp("Page.captureScreenshot", asked).await;
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()).unwrap();
    }
}

/// Where pictures go, if they are wanted.
pub fn pictures() -> Option<PathBuf> {
    std::env::var_os("GATEHOUSE_PICTURES").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

fn headless_shell() -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("chromium-headless-shell"))
        .find(|file| file.exists());
    let found = found.expect("chromium-headless-shell (Debian: apt-get install chromium-headless-shell)");
    found.display().to_string()
}

fn plain_client() -> reqwest::Client {
    super::app::http().timeout(Duration::from_secs(60)).build().unwrap()
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium ends with its session. If it does not answer, its driver ends it.
        let _ = self.service.end(&self.session);
    }
}

/// A private chromedriver on a port of its own choice, killed when dropped.
struct Chromedriver {
    process: Child,
    port: u16,
    /// Kept open, so that its further output can be written.
    _output: BufReader<ChildStdout>,
}

impl Chromedriver {
    fn start() -> Self {
        (0..20).find_map(|_| Self::unless_taken()).expect("chromedriver says on which port it is")
    }

    /// It takes a free port of `::1`, then the same one of `127.0.0.1`, and ends if that is somebody else's.
    fn unless_taken() -> Option<Self> {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("chromedriver (Debian: apt-get install chromium-driver)");
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let port =
            output.by_ref().lines().map_while(Result::ok).find_map(|line| {
                line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
            });
        if port.is_none() {
            process.wait().unwrap();
        }
        Some(Self { process, port: port?, _output: output })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Without a runtime, which a test that panicked may no longer have.
    fn end(&self, session: &str) -> std::io::Result<()> {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port))?;
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(
            connection,
            "DELETE /session/{session} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        )?;
        connection.read_exact(&mut [0; 12])
    }
}

impl Drop for Chromedriver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
