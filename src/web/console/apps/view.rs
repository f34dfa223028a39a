//! `/admin/apps`: the applications, the editor, and what trying a draft says.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::HttpResponse;
use askama::Template;
use rust_i18n::t;

use super::check::AppCheck;
use super::trial::TriedApps;
use crate::config::{AppPart, Who};
use crate::gate::{AgeChange, HostTrial, PathScope, PathTrial, ProxyFile, ProxyFileError};
use crate::login::EntryCount;
use crate::web::console::document::view::{EditorNotice, TomlDraft};
use crate::web::console::words::{exactly, grouped};
use crate::web::kit::layout::Layout;
use crate::web::kit::locale::Locale;
use crate::web::kit::visit::Visit;

/// Hosts that are named of an application; it may have 200.
const MOST_HOSTS: usize = 8;
/// To start from, where there is none yet.
const EXAMPLE: &str = "[[apps]]
name = \"wiki\"
hosts = [\"wiki.example\"]
who = [\"group:staff\", \"alice\"]
public = [\"/health\", \"/static/*\"]

[[apps.parts]]
path = \"/admin/*\"
who = [\"group:on-call\"]
signed_in_within = \"1h\"
";

#[derive(Template)]
#[template(path = "pages/admin/apps.html")]
pub struct AppsPage {
    layout: Layout,
    version: String,
    apps: Vec<AppCheck>,
    proxy: ShownProxy,
}

/// The file of a proxy, and what else it needs.
pub struct ShownProxy {
    pub proxy: ProxyFile,
    /// The name of an application, or all of them.
    pub app: String,
    pub files: Vec<Result<String, ProxyFileError>>,
}

impl AppsPage {
    pub fn new(visit: &Visit, user: &str, version: String, apps: Vec<AppCheck>, proxy: ShownProxy) -> Self {
        Self { layout: visit.layout("/admin/apps", Some(user)), version, apps, proxy }
    }

    /// Those for which there is a file of their own.
    fn proxies(&self) -> impl Iterator<Item = ProxyFile> {
        ProxyFile::ALL.into_iter().filter(|file| *file != ProxyFile::HaproxyLua)
    }

    const fn example(&self) -> &'static str {
        EXAMPLE
    }

    fn requires(&self, part: &AppPart) -> String {
        let locale = self.layout.locale;
        let age =
            |key, age: Duration| t!(key, locale = locale.code(), it = exactly(age, locale)).into_owned();
        let who = part.who.as_ref().map(|who| match who.as_slice() {
            [] => locale.t("apps-page.nobody").into_owned(),
            who => t!("apps-page.only", locale = locale.code(), it = comma(who)).into_owned(),
        });
        let signed_in = part.signed_in_within.map(|it| age("apps-page.signed-in-within", it));
        let password = part.password_within.map(|it| age("apps-page.password-within", it));
        [who, signed_in, password].into_iter().flatten().collect::<Vec<_>>().join(" · ")
    }
}

fn comma(who: &[Who]) -> String {
    who.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl AppCheck {
    fn count(&self) -> String {
        grouped(self.entering)
    }

    fn who(&self) -> String {
        comma(&self.app.who)
    }

    /// What nobody has, with the key of the words for it.
    fn missing(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.missing.iter().filter_map(|who| match who {
            Who::Everyone => None,
            Who::Group(group) => Some(("apps-page.warn-group", group.as_str())),
            Who::Name(name) => Some(("apps-page.warn-unknown", name.as_str())),
        })
    }

    fn public(&self) -> String {
        self.app.public.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// All applications as TOML, as in the file.
#[derive(Template)]
#[template(path = "pages/admin/apps_edit.html")]
pub struct AppsEditPage {
    layout: Layout,
    page: TomlDraft,
    trial: Option<TriedApps>,
    /// Another draft is being tried.
    busy: bool,
    /// An environment variable sets them.
    overridden: bool,
}

impl AppsEditPage {
    pub fn new(visit: &Visit, user: &str, page: TomlDraft, overridden: bool) -> Self {
        let mut layout = visit.layout(page.part.editor(), Some(user));
        layout.mistaken = page.is_mistaken();
        Self { layout, page, trial: None, busy: false, overridden }
    }

    pub fn trial(mut self, trial: TriedApps) -> Self {
        self.trial = Some(trial);
        self
    }

    pub fn busy(mut self) -> Self {
        self.busy = true;
        self
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        visit.page(self.page.status(), self)
    }

    /// Only while there is nothing to go by.
    fn example(&self) -> Option<&'static str> {
        self.page.toml.trim().is_empty().then_some(EXAMPLE)
    }
}

impl TriedApps {
    fn changes_nothing(&self) -> bool {
        self.trial.hosts.is_empty() && self.trial.uncounted == 0
    }

    fn warned(&self) -> impl Iterator<Item = &AppCheck> {
        self.checks.iter().filter(|check| check.warns())
    }

    fn uncounted(&self) -> Option<String> {
        (self.trial.uncounted > 0).then(|| grouped(self.trial.uncounted as u64))
    }
}

impl HostTrial {
    fn named(&self) -> String {
        self.hosts.iter().take(MOST_HOSTS).map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// How many more hosts it is about.
    fn more(&self) -> Option<String> {
        let more = self.hosts.len().saturating_sub(MOST_HOSTS);
        (more > 0).then(|| grouped(more as u64))
    }

    /// The application after, or before if there is none any more.
    fn app(&self) -> &str {
        self.after.as_deref().or(self.before.as_deref()).unwrap_or_default()
    }
}

impl PathTrial {
    /// Those that the change is about, with the key of what happens to them.
    fn affected(&self) -> impl Iterator<Item = (&'static str, &EntryCount)> {
        let both = [("apps-page.loses", &self.entry.loses), ("apps-page.gains", &self.entry.gains)];
        both.into_iter().filter(|(_, it)| it.count > 0)
    }

    fn ages(&self) -> impl Iterator<Item = (&'static str, AgeChange)> {
        let both = [("apps-page.age-signed-in", self.signed_in), ("apps-page.age-password", self.password)];
        both.into_iter().filter(|(_, age)| !age.is_unchanged())
    }
}

impl EntryCount {
    fn figure(&self) -> String {
        grouped(self.count)
    }

    /// How many are not named.
    fn more(&self) -> Option<String> {
        let more = self.count.saturating_sub(self.first.len() as u64);
        (more > 0).then(|| grouped(more))
    }
}

/// From the age that was enough to the one that is.
fn ages(change: &AgeChange, locale: &Locale) -> String {
    let shown = |age: Option<Duration>| match age {
        Some(age) => Cow::Owned(exactly(age, *locale)),
        None => locale.t("apps-page.any-age"),
    };
    format!("{} → {}", shown(change.before), shown(change.after))
}
