//! `[[apps]]`: applications behind reverse proxies that ask who somebody is, and who may use which.

mod host;
mod path;
mod read;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use host::host_of;
pub use path::{AskedPath, PathPattern};
pub(in crate::config) use read::read;

/// The applications, found by host. Clones share them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Apps {
    all: Vec<Arc<App>>,
    by_host: HashMap<String, Arc<App>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    pub name: String,
    /// In lower case, with the port where it is not the scheme's own: `wiki.example`, `127.0.0.1:8443`.
    pub hosts: Vec<String>,
    /// Nobody, if empty.
    pub who: Vec<Who>,
    /// What everybody may read without signing in.
    pub public: Vec<PathPattern>,
    pub parts: Vec<AppPart>,
}

/// Paths for which more is required than for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppPart {
    pub path: PathPattern,
    /// Only those of the application's who are also named here; None: all of them.
    pub who: Option<Vec<Who>>,
    /// The age up to which a sign-in is enough.
    pub signed_in_within: Option<Duration>,
    /// The same of the password.
    pub password_within: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Everyone,
    Group(String),
    /// By the canonical form of the name.
    Name(String),
}

impl Apps {
    /// Two applications must not have a host in common.
    pub fn new(apps: Vec<App>) -> Self {
        let all: Vec<_> = apps.into_iter().map(Arc::new).collect();
        let by_host =
            all.iter().flat_map(|app| app.hosts.iter().map(|host| (host.clone(), Arc::clone(app)))).collect();
        Self { all, by_host }
    }

    pub fn all(&self) -> &[Arc<App>] {
        &self.all
    }

    /// The application at exactly this host. The case of ASCII letters makes no difference, as it makes none to browsers.
    pub fn at(&self, host: &str) -> Option<(&str, &Arc<App>)> {
        let found = self.by_host.get_key_value(host);
        let found = found.or_else(|| self.by_host.get_key_value(&host.to_ascii_lowercase()));
        found.map(|(host, app)| (host.as_str(), app))
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether an application or a part of one is open to somebody of this name because of it.
    pub fn names(&self, login: &str) -> bool {
        let mut listed = self.all.iter().flat_map(|app| app.listed());
        listed.any(|who| matches!(who, Who::Name(name) if name == login))
    }
}

impl App {
    /// What is in its `who`, and in that of each part.
    pub fn listed(&self) -> impl Iterator<Item = &Who> {
        self.who.iter().chain(self.parts.iter().filter_map(|part| part.who.as_deref()).flatten())
    }
}

/// As it is written.
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everyone => f.write_str("everyone"),
            Self::Group(group) => write!(f, "group:{group}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}
