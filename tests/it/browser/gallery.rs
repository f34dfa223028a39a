//! A house with forty accounts, a dozen applications, thirty limits and a day of traffic: no page is too high for a reader,
//! and none scrolls sideways. scripts/gallery also makes the pictures of docs/gallery.md from it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gatehouse::audit::{Action, AuditEvent, EventRule, EventSubject, Outcome};
use gatehouse::clock::Clock;
use gatehouse::web::http::{ClientAddress, TrustedProxies};
use serde_json::{Value, json};

use super::WRONG;
use crate::gate::account;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::{Browser, Screen};

const DESK: Screen = Screen { width: 1440, height: 900, phone: false };
const PHONE: Screen = Screen { width: 360, height: 800, phone: true };
/// In CSS pixels. A page that is higher is not read.
const HIGHEST: [(Screen, u64); 2] = [(DESK, 2_500), (PHONE, 5_000)];
/// Of pages that are read row by row.
const HIGHEST_LISTS: [(&str, Screen, u64); 2] = [("limits", DESK, 1_430), ("accounts", PHONE, 4_000)];
/// Also alone.
const OF_THE_README: [&str; 2] = ["challenge", "overview"];
const EVENTS: u32 = 10_000;
const PEOPLE: [&str; 40] = [
    "ada",
    "alan",
    "amelia",
    "barbara",
    "bjarne",
    "brian",
    "claude",
    "dennis",
    "donald",
    "dorothy",
    "edsger",
    "emmy",
    "ernest",
    "evelyn",
    "fei",
    "frances",
    "grace",
    "guido",
    "hedy",
    "hopper",
    "jean",
    "john",
    "joan",
    "katherine",
    "ken",
    "kim",
    "leslie",
    "lin",
    "linus",
    "margaret",
    "marie",
    "mary",
    "niklaus",
    "radia",
    "rosalind",
    "rob",
    "sophie",
    "stephanie",
    "tim",
    "wei",
];
const GROUPS: [&[&str]; 5] = [&["staff"], &["staff", "ops"], &["finance"], &["staff", "design"], &[]];
const APPS: [(&str, &str); 12] = [
    ("wiki", "everyone"),
    ("grafana", "group:ops"),
    ("files", "group:staff"),
    ("invoices", "group:finance"),
    ("tickets", "group:staff"),
    ("mail", "group:staff"),
    ("calendar", "group:staff"),
    ("builds", "group:ops"),
    ("registry", "group:ops"),
    ("sketches", "group:design"),
    ("payroll", "group:finance"),
    ("status", "everyone"),
];
const CUSTOM: [&str; 8] =
    ["comment", "upload", "invite", "export", "report-abuse", "search", "feedback", "gift-card"];

#[tokio::test]
async fn no_page_of_a_busy_house_is_too_high_or_too_wide() {
    let app = busy_house().await;
    let gallery = Gallery { browser: Browser::start(&app.url).await, faults: Default::default() };
    let browser = &gallery.browser;
    for (name, path) in [
        ("sign-in", "/login"),
        ("sign-in-by-code", "/login/code"),
        ("register", "/register"),
        ("new-password", "/password/reset"),
        ("freeze", "/freeze"),
    ] {
        gallery.at(name, path).await;
    }
    browser.fail(3, "ada").await;
    gallery.shot("challenge").await;
    browser.sign_in("watchman").await;
    for (name, path) in [
        ("account", "/account"),
        ("address", "/account/email"),
        ("overview", "/admin"),
        ("events", "/admin/events"),
        ("limits", "/admin/limits"),
        ("limit", "/admin/limits/edit/login-account"),
        ("limits-as-text", "/admin/limits/toml"),
        ("limits-history", "/admin/limits/history"),
        ("access", "/admin/access"),
        ("second-factors", "/admin/factors"),
        ("application", "/admin/apps/form"),
        ("accounts", "/admin/accounts"),
        ("applications", "/admin/apps"),
        ("applications-as-text", "/admin/apps/edit"),
        ("messages", "/admin/messages"),
        ("tokens", "/admin/tokens"),
    ] {
        gallery.at(name, path).await;
    }
    browser.open("/admin/accounts").await;
    browser.follow("main a[href^='/admin/accounts/']").await;
    gallery.shot("one-account").await;
    browser.open("/admin/lookup").await;
    browser.fill(&[("asked", "kim")]).await;
    browser.follow("main form [class~=main]").await;
    gallery.shot("look-up").await;
    let faults = gallery.faults.into_inner();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

struct Gallery {
    browser: Browser,
    faults: std::cell::RefCell<Vec<String>>,
}

impl Gallery {
    async fn at(&self, name: &str, path: &str) {
        self.browser.open(path).await;
        self.shot(name).await;
    }

    /// Measures the page as it is, and keeps its picture if that is wanted.
    async fn shot(&self, name: &str) {
        self.browser.cdp("Emulation.setScrollbarsHidden", json!({ "hidden": true })).await;
        let (folder, mut shots) = (folder(), Vec::new());
        let mut heights = Vec::new();
        for (screen, highest) in HIGHEST {
            self.browser.screen(screen).await;
            let list = HIGHEST_LISTS.iter().find(|(list, of, _)| *list == name && *of == screen);
            let highest = list.map_or(highest, |(_, _, highest)| *highest);
            let size = "const e = document.scrollingElement; return [e.scrollWidth, e.scrollHeight]";
            let size = self.browser.js(size).await;
            let (width, height) = (size[0].as_u64().unwrap(), size[1].as_u64().unwrap());
            heights.push(height);
            let fault = |what: String| {
                self.faults.borrow_mut().push(format!("{name} at {} px: {what}", screen.width));
            };
            if height > highest {
                fault(format!("{height} px high, more than {highest}"));
            }
            if width > u64::from(screen.width) {
                fault(format!("{width} px wide"));
            }
            if folder.is_some() {
                for dark in [false, true] {
                    self.browser.dark(dark).await;
                    let shot = self.browser.cdp("Page.captureScreenshot", json!({ "format": "png" })).await;
                    shots.push(shot["data"].clone());
                }
            }
        }
        println!("{name:22} {:5} {:5}", heights[0], heights[1]);
        self.browser.dark(false).await;
        self.browser.screen(DESK).await;
        if let Some(folder) = folder {
            std::fs::create_dir_all(&folder).unwrap();
            if OF_THE_README.contains(&name) {
                self.save(&folder.join(format!("{name}-large.webp"))).await;
            }
            self.keep(&folder.join(format!("{name}.webp")), shots).await;
        }
    }

    /// The four pictures of a page beside each other.
    async fn keep(&self, file: &Path, shots: Vec<Value>) {
        let here = self.browser.path().await;
        let (width, height) = (1876, 450);
        self.browser.open("about:blank").await;
        self.browser.screen(Screen { width, height, phone: false }).await;
        let draw = format!(
            "const shots = {};
            document.body.style = 'margin: 0; display: flex; gap: 10px; background: #888; overflow: hidden';
            return Promise.all(shots.map((data) => {{
                const image = new Image();
                image.src = `data:image/png;base64,${{data}}`;
                image.height = {height};
                document.body.append(image);
                return image.decode();
            }})).then(() => true)",
            json!(shots)
        );
        self.browser.js(&draw).await;
        self.save(file).await;
        self.browser.screen(DESK).await;
        self.browser.open(&here).await;
    }

    /// The screen as it is.
    async fn save(&self, file: &Path) {
        let asked = json!({ "format": "webp", "quality": 55 });
        let shot = self.browser.cdp("Page.captureScreenshot", asked).await;
        std::fs::write(file, STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()).unwrap();
    }
}

/// Where pictures go, if they are wanted.
fn folder() -> Option<PathBuf> {
    std::env::var_os("GATEHOUSE_GALLERY").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

async fn busy_house() -> TestApp {
    let mut file = String::new();
    for name in CUSTOM {
        file += &format!("[limits.custom.{name}]\nrules = [{{ max = 20, window = \"1h\" }}]\n");
    }
    for (name, who) in APPS {
        file += &format!("[[apps]]\nname = \"{name}\"\nhosts = [\"{name}.example\"]\nwho = [\"{who}\"]\n");
    }
    let app = TestApp::on(Store::Memory)
        .behind_a_proxy()
        .set("captcha.proof_of_work", true)
        .file(&file)
        .start()
        .await;
    // Pages show times by the browser's clock, which tests do not move.
    let now = Clock::System.now();
    app.clock.set(now.minus(Duration::from_secs(24 * 60 * 60)));
    app.administrator("watchman").await;
    for (at, name) in PEOPLE.into_iter().enumerate() {
        account(&app, name, GROUPS[at % GROUPS.len()]).await;
    }
    traffic(&app).await;
    app.clock.set(now.minus(Duration::from_secs(50 * 60)));
    for number in 0..60 {
        let sender = app.client_at(&format!("198.51.{}.7", number % 20));
        sender.ask_code(&format!("+861380013{:04}", 8000 + number % 40), "login").await;
        app.advance(Duration::from_secs(45));
    }
    for login in &PEOPLE[..4] {
        app.client_at("203.0.113.66").login("kim", WRONG).await;
        app.client_at("203.0.113.7").login(login, PASSWORD).await;
    }
    app.clock.set(now);
    app.services.audit.flush().await;
    app.services.tuning.sync_once().await;
    app
}

/// A day of attempts, most of them right.
async fn traffic(app: &TestApp) {
    for number in 0..EVENTS {
        let turn = number.wrapping_mul(2_654_435_761) >> 16;
        let login = PEOPLE[turn as usize % PEOPLE.len()];
        let ip: IpAddr = format!("203.0.{}.{}", turn % 113, turn % 200).parse().unwrap();
        let client = ClientAddress::told_by(ip, std::iter::empty(), &TrustedProxies::default());
        let (address, network) = (client.subject(), client.network());
        let outcome = match turn % 10 {
            0..=5 => Outcome::Ok,
            6 | 7 => Outcome::Wrong,
            8 => Outcome::Challenged,
            _ => Outcome::Throttled,
        };
        let why = (outcome == Outcome::Throttled).then(|| EventRule {
            limit: "login-address",
            rule: 0,
            frees_at: app.clock.now(),
            noted: false,
        });
        app.services.audit.record(AuditEvent {
            why,
            account: Some(EventSubject::Login(login)),
            address: Some(EventSubject::Address(address.as_ref())),
            network: Some(EventSubject::Network(network.as_ref())),
            ..AuditEvent::new(app.clock.now(), Action::SignIn, outcome)
        });
        app.advance(Duration::from_millis(8_000));
        if number % 500 == 0 {
            app.services.audit.flush().await;
        }
    }
    app.services.audit.flush().await;
}
