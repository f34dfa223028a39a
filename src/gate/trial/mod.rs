//! What other applications in `[[apps]]` would change: who could get in today and could not then, and the other way
//! round, counted by the database. It asks the same questions as the judge.

mod paths;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::config::{App, Apps};
use crate::db::DbError;
use crate::login::{Accounts, EntryChange, EntryRule, MOST_IN_A_STATEMENT};
use crate::request_id;
use paths::{HostGroup, PathRules, groups};

/// Comparisons of one trial: each reads all accounts, which takes a quarter of a second for 100,000 of them in SQLite,
/// and again for each list of names that is short.
const MOST_COMPARED: usize = 20;

/// How long to wait for another trial.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppsTrial {
    /// Hosts for which something changes.
    pub hosts: Vec<HostTrial>,
    /// Paths that were not counted, because there are too many differences.
    pub uncounted: usize,
}

/// Hosts of one application before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTrial {
    pub hosts: Vec<String>,
    /// None: no application has these hosts.
    pub before: Option<String>,
    pub after: Option<String>,
    /// Paths that everybody may read from then on.
    pub opens: Vec<String>,
    /// Paths that need a sign-in from then on.
    pub closes: Vec<String>,
    pub paths: Vec<PathTrial>,
}

/// What changes for paths of an application, said once for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTrial {
    pub scopes: Vec<PathScope>,
    pub entry: EntryChange,
    pub signed_in: AgeChange,
    pub password: AgeChange,
}

/// The paths of an application to which the same parts apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathScope {
    /// As a part names them.
    Pattern(String),
    /// Those that servers read differently ([`AskedPath::Odd`](crate::config::AskedPath)): every part applies.
    Odd,
    /// Those that no part is about.
    Others,
}

/// The age up to which a sign-in, or a password, is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AgeChange {
    pub before: Option<Duration>,
    pub after: Option<Duration>,
}

impl AgeChange {
    pub fn is_unchanged(self) -> bool {
        self.before == self.after
    }
}

impl PathTrial {
    fn changes(&self) -> bool {
        let EntryChange { loses, gains } = &self.entry;
        loses.count > 0 || gains.count > 0 || !self.signed_in.is_unchanged() || !self.password.is_unchanged()
    }

    fn says_the_same_as(&self, other: &Self) -> bool {
        self.entry == other.entry && (self.signed_in, self.password) == (other.signed_in, other.password)
    }
}

impl HostTrial {
    /// Whether no application has the hosts any more, or none had them.
    pub const fn is_added_or_removed(&self) -> bool {
        self.before.is_some() != self.after.is_some()
    }

    fn changes(&self) -> bool {
        let public = !self.opens.is_empty() || !self.closes.is_empty();
        self.is_added_or_removed() || public || !self.paths.is_empty()
    }
}

/// Does the work when it is its turn, on a task of its own that keeps the turn to the end. None if it is not its turn
/// within the patience.
pub(super) async fn in_turn<T>(
    turn: &Arc<Mutex<()>>,
    patience: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T>
where
    T: Send + 'static,
{
    let turn = tokio::time::timeout(patience, Arc::clone(turn).lock_owned()).await.ok()?;
    let working = request_id::spawn(async move {
        let _turn = turn;
        work.await
    });
    Some(working.await.expect("a trial does not panic"))
}

/// What changes if `after` is in force instead of `before`: for whom, and where.
pub async fn compare_apps(accounts: &Accounts, before: &Apps, after: &Apps) -> Result<AppsTrial, DbError> {
    let (mut trial, mut counted) = (AppsTrial::default(), CountedPairs::default());
    for group in groups(before, after) {
        let mut paths: Vec<PathTrial> = Vec::new();
        for rules in group.paths() {
            let Some(entry) = counted.compare(accounts, &rules).await? else {
                trial.uncounted += 1;
                continue;
            };
            let path = PathTrial { entry, ..rules.trial };
            match paths.iter_mut().find(|known| known.says_the_same_as(&path)) {
                Some(known) => known.scopes.extend(path.scopes),
                None if path.changes() => paths.push(path),
                None => {}
            }
        }
        trial.hosts.extend(Some(group.into_trial(paths)).filter(HostTrial::changes));
    }
    Ok(trial)
}

/// What was counted already: many paths have the same rules.
#[derive(Default)]
struct CountedPairs<'a>(Vec<([Option<EntryRule<'a>>; 2], EntryChange)>);

impl<'a> CountedPairs<'a> {
    /// None if it would take too much.
    async fn compare(
        &mut self,
        accounts: &Accounts,
        path: &PathRules<'a>,
    ) -> Result<Option<EntryChange>, DbError> {
        let [before, after] = &path.rules;
        if before == after {
            return Ok(Some(EntryChange::default()));
        }
        if let Some((_, known)) = self.0.iter().find(|(rules, _)| *rules == path.rules) {
            return Ok(Some(known.clone()));
        }
        let size: usize = path.rules.iter().flatten().map(EntryRule::size).sum();
        if self.0.len() == MOST_COMPARED || size > MOST_IN_A_STATEMENT {
            return Ok(None);
        }
        let entry = accounts.compare_entering(before.as_ref(), after.as_ref()).await?;
        self.0.push((path.rules.clone(), entry.clone()));
        Ok(Some(entry))
    }
}

impl HostGroup<'_> {
    fn into_trial(self, paths: Vec<PathTrial>) -> HostTrial {
        let name = |app: Option<&App>| app.map(|app| app.name.clone());
        let [opens, closes] = self.public();
        let hosts = self.hosts.into_iter().map(str::to_owned).collect();
        HostTrial { hosts, before: name(self.before), after: name(self.after), opens, closes, paths }
    }
}
