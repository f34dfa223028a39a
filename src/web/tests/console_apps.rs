//! The pages of applications in every state.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::accounts::{EntryCount, NamedAccount};
use crate::clock::Micros;
use crate::config::{App, AppFactor, AppPart, OidcClient, PathPattern, Who};
use crate::gate::{
    AgeChange, ClientPreview, FactorChange, HostPreview, PathPreview, ProxyFile, ProxyFileError, UriChange,
};
use crate::tuning::DraftError;
use crate::web::console::FormProblem;
use crate::web::console::apps::form::{self, AppForm, AppFormPage};
use crate::web::console::apps::{AppCheck, AppsEditPage, AppsPage, AppsPreview, RefusedUri, ShownProxy};
use crate::web::console::document::{APPS, Act, Controls, TomlDraft, Trial};
use crate::web::http::{Layout, Moment, PageRequest};

const HOUR: Duration = Duration::from_secs(3600);

pub fn lists(visit: &PageRequest) -> Vec<(&'static str, AppsPage)> {
    let list = |checks, proxy, file| {
        let shown = ShownProxy { opened: true, proxy, app: String::new(), files: vec![file] };
        let layout = visit.layout("/admin/apps", Some("ada"));
        let refused = RefusedUri {
            at: Moment(Micros(0)),
            same: "http://localhost:3000/".into(),
            received: "<b>".into(),
            registered: "cb".into(),
        };
        let refused = HashMap::from([("grafana".to_owned(), vec![refused])]);
        let version = "0badcafe0bad".into();
        AppsPage {
            layout,
            version,
            apps: checks,
            refused,
            without_secret: BTreeSet::from(["grafana".to_owned()]),
            without_pkce: HashMap::from([("grafana".to_owned(), Moment(Micros(0)))]),
            overridden: false,
            proxy: shown,
        }
    };
    let untrusted = || Err(ProxyFileError::Untrusted("127.0.0.1/32"));
    vec![
        ("apps", list(checks(), ProxyFile::Nginx, Ok("location / <b>".into()))),
        (
            "apps-set-elsewhere",
            AppsPage { overridden: true, ..list(checks(), ProxyFile::Nginx, Ok("".into())) },
        ),
        ("apps-untrusted", list(checks(), ProxyFile::Caddy, untrusted())),
        ("apps-none", list(Vec::new(), ProxyFile::Nginx, Err(ProxyFileError::NoApps))),
    ]
}

pub fn editors(visit: &PageRequest) -> Vec<(&'static str, AppsEditPage)> {
    let shown = |toml: &str, controls, trial| {
        let page = TomlDraft { part: &APPS, toml: toml.into(), controls };
        AppsEditPage { layout: page.layout(visit, "ada"), page, trial, overridden: false }
    };
    let page = |toml: &str| shown(toml, Controls::default(), Trial::None);
    let again = |toml: &str, problem| {
        shown(toml, Controls { problem: Some(problem), ..Controls::default() }, Trial::None)
    };
    let mistake =
        |line| DraftError { field: "apps[0].who[0]".into(), message: "\"<b>\" is nobody".into(), line };
    let tried = |preview| shown("[[apps]]\n", Controls::default(), Trial::Done(preview));
    let mistakes = vec![mistake(Some(3)), mistake(None)];
    let mistaken = Controls { mistakes, ..Controls::default() };
    vec![
        ("apps-edit", page("[[apps]]\nname = \"<b>\"\n")),
        ("apps-example", page("")),
        ("apps-overridden", AppsEditPage { overridden: true, ..page("") }),
        ("apps-busy", shown("", Controls::default(), Trial::BUSY)),
        ("apps-expired", again("", FormProblem::Expired)),
        ("apps-not-saved", again("", FormProblem::NotSaved("it is full".into()))),
        ("apps-mistakes", shown("x", mistaken, Trial::None)),
        ("apps-reason", again("x", FormProblem::ReasonMissing)),
        ("apps-no-difference", tried(AppsPreview { hosts: Vec::new(), uncounted: 0, ..trial() })),
        ("apps-tried", tried(trial())),
    ]
}

pub fn forms(visit: &PageRequest) -> Vec<(&'static str, AppFormPage)> {
    let page = |name: &str, form, controls: Controls, trial| AppFormPage {
        layout: Layout { mistaken: controls.is_mistaken(), ..visit.layout(form::address(name), Some("ada")) },
        known: name.into(),
        form,
        groups: vec!["group:on-call".into(), "group:staff".into()],
        people: vec!["ada".into(), "bob".into()],
        controls,
        trial,
        overridden: false,
    };
    let of = |index: usize| serde_json::from_value(serde_json::json!(checks()[index].app)).unwrap();
    let wiki = || of(0);
    let mistake =
        |field: &str| DraftError { field: field.into(), message: "\"<b>\" is wrong".into(), line: None };
    let fields = ["apps", "apps[0].name", "apps[0].hosts[1]", "apps[0].who[0]", "apps[0].public[0]"];
    let parts = [
        "parts[0]",
        "parts[1].path",
        "parts[1].who[2]",
        "parts[2].signed_in_within",
        "parts[2].password_within",
        "oidc",
        "oidc.client_id",
        "oidc.secret",
        "oidc.redirect_uris[0]",
        "oidc.pkce",
        "oidc.groups[0]",
    ];
    let mistakes =
        fields.map(mistake).into_iter().chain(parts.map(|part| mistake(&format!("apps[0].{part}"))));
    let mistaken = Controls { mistakes: mistakes.collect(), ..Controls::default() };
    let refused = |act| Controls { act, problem: Some(FormProblem::ReasonMissing), ..Controls::default() };
    let tried = || Trial::Done(trial());
    let plain = |name: &str, form| page(name, form, Controls::default(), Trial::None);
    vec![
        ("app-new", plain("", AppForm::default())),
        ("app-form", plain("wiki", wiki())),
        ("app-open", plain("files", of(1))),
        ("app-client", plain("grafana", of(3))),
        ("app-set-elsewhere", AppFormPage { overridden: true, ..plain("wiki", wiki()) }),
        ("app-mistakes", page("wiki", wiki(), mistaken, Trial::None)),
        ("app-reason", page("wiki", wiki(), refused(Act::Save), Trial::None)),
        ("app-delete", page("wiki", wiki(), refused(Act::Delete), Trial::None)),
        ("app-tried", page("wiki", wiki(), Controls::default(), tried())),
    ]
}

fn app(name: &str, who: Vec<Who>, parts: Vec<AppPart>) -> Arc<App> {
    let public = vec![PathPattern::parse("/health").unwrap()];
    let (hosts, factor) = (vec![format!("{name}.example")], AppFactor::None);
    Arc::new(App { name: name.into(), hosts, who, public, parts, factor, oidc: None })
}

/// An application without a host, and one with an odd address.
fn client() -> OidcClient {
    let text = "[[apps]]\nname = 'grafana'\n[apps.oidc]\nredirect_uris = ['http://localhost:3000/cb', 'com.example.app:/cb']\n\
        post_logout_redirect_uris = ['https://grafana.example/']\nbackchannel_logout_uri = 'https://10.0.0.1/'\n\
        allow_private = true\nconsent = 'once'\ngroups = ['staff-*']\n";
    let config = crate::config::parse("t.toml".as_ref(), text, &[]).unwrap();
    config.live.apps.client("grafana").unwrap().1.clone()
}

fn checks() -> Vec<AppCheck> {
    let part = |path, who, age| AppPart {
        path: PathPattern::parse(path).unwrap(),
        who,
        signed_in_within: age,
        password_within: age,
        factor: AppFactor::None,
        factor_within: age,
    };
    let group = Who::Group("staff".into());
    let parts = vec![
        part("/admin/*", Some(vec![group.clone()]), Some(HOUR)),
        part("/none", Some(Vec::new()), None),
        part("/keys", None, Some(HOUR)),
    ];
    let check = |app: Arc<App>, entering, unknown: &[&str], empty: &[&str]| {
        let [unknown_names, empty_groups] =
            [unknown, empty].map(|all| all.iter().map(ToString::to_string).collect());
        let (everyone, is_client) = (app.who.contains(&Who::Everyone), app.oidc.is_some());
        let (http_redirect, secret_missing) = (is_client, is_client);
        AppCheck { everyone, app, entering, unknown_names, empty_groups, http_redirect, secret_missing }
    };
    let wiki = vec![group, Who::Name("ada".into())];
    let shut = App::clone(&app("grafana", Vec::new(), Vec::new()));
    let grafana = App { hosts: Vec::new(), public: Vec::new(), oidc: Some(client()), ..shut };
    vec![
        check(app("wiki", wiki, parts), 12_345, &["ada"], &["staff"]),
        check(app("files", vec![Who::Everyone], Vec::new()), 99, &[], &[]),
        check(app("shut", Vec::new(), Vec::new()), 0, &[], &[]),
        check(Arc::new(grafana), 0, &[], &[]),
    ]
}

fn trial() -> AppsPreview {
    let count = |count, names: &[&str]| EntryCount {
        count,
        first: names.iter().map(|name| NamedAccount { id: "0f".into(), login: (*name).into() }).collect(),
    };
    let age = AgeChange { before: None, after: Some(HOUR) };
    let path = |others, paths: &[&str], odd| PathPreview {
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        odd,
        others,
        loses: count(1, &["ada"]),
        gains: count(54_321, &["bob", "eve"]),
        signed_in_within: age,
        password_within: AgeChange { before: Some(HOUR), after: None },
        factor: FactorChange { before: AppFactor::None, after: AppFactor::Passkey },
        factor_within: age,
    };
    let host = |before: Option<&str>, after: Option<&str>, hosts: usize| HostPreview {
        hosts: (0..hosts).map(|number| format!("h{number}.example")).collect(),
        client: None,
        before: before.map(str::to_owned),
        after: after.map(str::to_owned),
        opens: vec!["/static/*".into()],
        closes: vec!["/health".into()],
        changes: vec![path(true, &["/admin/*"], false), path(false, &[], true)],
    };
    let uris = |text: &str| UriChange { added: vec![format!("{text}/<b>")], removed: vec![text.into()] };
    let of_client = |before, after| {
        let client = ClientPreview {
            client_id: "<b>".into(),
            redirect_uris: uris("https://a.example"),
            post_logout_redirect_uris: uris("https://b.example"),
            settings: vec!["secret", "pkce"],
        };
        HostPreview { client: Some(client), changes: vec![path(true, &[], false)], ..host(before, after, 0) }
    };
    let hosts = vec![
        host(Some("wiki"), Some("wiki"), 1),
        host(None, Some("files"), 30),
        host(Some("shut"), None, 2),
        of_client(Some("grafana"), Some("grafana")),
        of_client(None, Some("grafana")),
        of_client(Some("grafana"), None),
    ];
    AppsPreview { hosts, uncounted: 7, warnings: checks() }
}
