//! What is worth a look about the applications: who may enter, and names and groups that nobody has.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::{App, Apps, Who};
use crate::db::DbError;
use crate::login::{Accounts, EntryRule};

/// One application, and what the accounts say about it.
pub struct AppCheck {
    pub app: Arc<App>,
    /// How many accounts may enter today.
    pub entering: u64,
    /// Names in `who` that no account has that may sign in.
    pub unknown: Vec<String>,
    /// Groups in `who` that nobody is in.
    pub empty_groups: Vec<String>,
}

impl AppCheck {
    /// Whoever registers may enter.
    pub fn is_open(&self) -> bool {
        self.app.who.contains(&Who::Everyone)
    }

    pub fn warns(&self) -> bool {
        self.is_open() || self.entering == 0 || !self.unknown.is_empty() || !self.empty_groups.is_empty()
    }
}

/// Everybody and everything that stands in a `who` of the application.
fn listed(app: &App) -> impl Iterator<Item = &Who> {
    app.who.iter().chain(app.parts.iter().filter_map(|part| part.who.as_deref()).flatten())
}

pub async fn checks(accounts: &Accounts, apps: &Apps) -> Result<Vec<AppCheck>, DbError> {
    let rules: Vec<_> =
        apps.all().iter().map(|app| EntryRule { who: vec![&app.who], needs_password: false }).collect();
    let entering = accounts.count_entering(&rules).await?;
    let (mut names, mut groups) = (BTreeSet::new(), BTreeSet::new());
    for who in apps.all().iter().flat_map(|app| listed(app)) {
        match who {
            Who::Everyone => {}
            Who::Name(name) => drop(names.insert(name.as_str())),
            Who::Group(group) => drop(groups.insert(group.as_str())),
        }
    }
    let unknown: BTreeSet<&str> = accounts.unknown_names(&names).await?.into_iter().collect();
    let empty: BTreeSet<&str> = accounts.empty_groups(&groups).await?.into_iter().collect();
    let check = |(app, entering): (&Arc<App>, u64)| {
        let of = |found: &BTreeSet<&str>, part: fn(&Who) -> Option<&str>| {
            let named: BTreeSet<&str> =
                listed(app).filter_map(part).filter(|it| found.contains(it)).collect();
            named.into_iter().map(str::to_owned).collect()
        };
        let unknown = of(&unknown, |who| match who {
            Who::Name(name) => Some(name),
            _ => None,
        });
        let empty_groups = of(&empty, |who| match who {
            Who::Group(group) => Some(group),
            _ => None,
        });
        AppCheck { app: Arc::clone(app), entering, unknown, empty_groups }
    };
    Ok(apps.all().iter().zip(entering).map(check).collect())
}
