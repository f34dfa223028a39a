//! Applications and their trial, as calls take and answer them.

use serde::Serialize;
use utoipa::ToSchema;

use super::{AppCheck, TriedApps};
use crate::config::{App, AppPart, PathPattern, Who, span_text};
use crate::gate::{AgeChange, AppsTrial, HostTrial, PathScope, PathTrial};
use crate::login::{EntryChange, EntryCount, NamedAccount};

#[derive(Serialize, ToSchema)]
#[schema(as = App)]
pub struct AppBody {
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// As browsers send them: with the port where it is not the scheme's own.
    hosts: Vec<String>,
    /// Names of accounts, `group:NAME`, or `everyone`: anyone who registers. Nobody, if left out.
    #[schema(required = false)]
    who: Vec<String>,
    /// Paths that GET and HEAD may ask for without signing in.
    #[schema(required = false)]
    public: Vec<String>,
    #[schema(required = false)]
    parts: Vec<PartBody>,
}

/// Paths that require more.
#[derive(Serialize, ToSchema)]
#[schema(as = AppPart)]
struct PartBody {
    path: String,
    /// Only those of the application's who are named here, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    who: Option<Vec<String>>,
    /// The age up to which a sign-in is enough: 1m to 30d.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_in_within: Option<String>,
    /// The same of the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    password_within: Option<String>,
}

impl AppBody {
    pub fn example() -> Self {
        let text = str::to_owned;
        Self {
            name: text("wiki"),
            hosts: vec![text("wiki.example")],
            who: vec![text("group:staff"), text("alice")],
            public: vec![text("/health")],
            parts: vec![PartBody {
                path: text("/admin/*"),
                who: Some(vec![text("group:on-call")]),
                signed_in_within: Some(text("1h")),
                password_within: None,
            }],
        }
    }
}

fn written(who: &[Who]) -> Vec<String> {
    who.iter().map(ToString::to_string).collect()
}

impl From<&App> for AppBody {
    fn from(app: &App) -> Self {
        let App { name, hosts, who, public, parts } = app;
        Self {
            name: name.clone(),
            hosts: hosts.clone(),
            who: written(who),
            public: public.iter().map(PathPattern::to_string).collect(),
            parts: parts.iter().map(PartBody::from).collect(),
        }
    }
}

impl From<&AppPart> for PartBody {
    fn from(part: &AppPart) -> Self {
        Self {
            path: part.path.to_string(),
            who: part.who.as_deref().map(written),
            signed_in_within: part.signed_in_within.map(span_text),
            password_within: part.password_within.map(span_text),
        }
    }
}

/// What would change.
#[derive(Serialize, ToSchema)]
pub struct AppsPreview {
    /// Those for which something changes.
    hosts: Vec<HostPreview>,
    /// Paths that were not counted, because too much differs.
    uncounted: usize,
    /// About the applications of the draft.
    warnings: Vec<AppWarnings>,
}

#[derive(Serialize, ToSchema)]
struct HostPreview {
    hosts: Vec<String>,
    /// The application today; left out if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    /// Paths that everybody may read from then on.
    opens: Vec<String>,
    /// Paths that need a sign-in from then on.
    closes: Vec<String>,
    /// Each is about all paths for which the same changes.
    changes: Vec<PathPreview>,
}

#[derive(Serialize, ToSchema)]
struct PathPreview {
    /// Of parts.
    paths: Vec<String>,
    /// Whether it is also about paths with `%`, `;`, `\` or `//`, to which every part applies.
    odd: bool,
    /// Whether it is also about paths that no part is about.
    others: bool,
    /// Can get in today, and could not then.
    loses: AccountsPreview,
    /// Could get in then, and cannot today.
    gains: AccountsPreview,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_in_within: Option<AgePreview>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password_within: Option<AgePreview>,
}

#[derive(Serialize, ToSchema)]
struct AccountsPreview {
    count: u64,
    /// The first in alphabetical order.
    #[schema(max_items = 20)]
    first: Vec<AccountName>,
}

#[derive(Serialize, ToSchema)]
struct AccountName {
    id: String,
    login: String,
}

/// Left out where any age is enough.
#[derive(Serialize, ToSchema)]
struct AgePreview {
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct AppWarnings {
    app: String,
    /// Accounts that may enter. Nobody, if 0.
    entering: u64,
    /// Anyone who registers may enter.
    everyone: bool,
    /// No account that may sign in has them.
    unknown_names: Vec<String>,
    /// Nobody is in them who may sign in.
    empty_groups: Vec<String>,
}

impl From<TriedApps> for AppsPreview {
    fn from(TriedApps { trial: AppsTrial { hosts, uncounted }, checks }: TriedApps) -> Self {
        let warnings = checks.into_iter().filter(AppCheck::warns).map(AppWarnings::from).collect();
        Self { hosts: hosts.into_iter().map(HostPreview::from).collect(), uncounted, warnings }
    }
}

impl From<HostTrial> for HostPreview {
    fn from(host: HostTrial) -> Self {
        let HostTrial { hosts, before, after, opens, closes, paths } = host;
        let changes = paths.into_iter().map(PathPreview::from).collect();
        Self { hosts, before, after, opens, closes, changes }
    }
}

impl From<PathTrial> for PathPreview {
    fn from(path: PathTrial) -> Self {
        let PathTrial { scopes, entry: EntryChange { loses, gains }, signed_in, password } = path;
        let age = |change: AgeChange| {
            let AgeChange { before, after } = change;
            (!change.is_unchanged())
                .then(|| AgePreview { before: before.map(span_text), after: after.map(span_text) })
        };
        let (signed_in_within, password_within) = (age(signed_in), age(password));
        let (odd, others) = (scopes.contains(&PathScope::Odd), scopes.contains(&PathScope::Others));
        let pattern = |scope| match scope {
            PathScope::Pattern(path) => Some(path),
            PathScope::Odd | PathScope::Others => None,
        };
        let paths = scopes.into_iter().filter_map(pattern).collect();
        let (loses, gains) = (loses.into(), gains.into());
        Self { paths, odd, others, loses, gains, signed_in_within, password_within }
    }
}

impl From<EntryCount> for AccountsPreview {
    fn from(EntryCount { count, first }: EntryCount) -> Self {
        let name = |NamedAccount { id, login }| AccountName { id, login };
        Self { count, first: first.into_iter().map(name).collect() }
    }
}

impl From<AppCheck> for AppWarnings {
    fn from(check: AppCheck) -> Self {
        let everyone = check.is_open();
        let AppCheck { app, entering, missing } = check;
        let (mut unknown_names, mut empty_groups) = (Vec::new(), Vec::new());
        for who in missing {
            match who {
                Who::Everyone => {}
                Who::Group(group) => empty_groups.push(group),
                Who::Name(name) => unknown_names.push(name),
            }
        }
        Self { app: app.name.clone(), entering, everyone, unknown_names, empty_groups }
    }
}
