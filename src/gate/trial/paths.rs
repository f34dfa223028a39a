//! The hosts and paths at which two sets of applications may differ.

use std::collections::BTreeMap;

use super::{AgeChange, PathScope, PathTrial};
use crate::config::{App, AppPart, Apps, AskedPath, PathPattern};
use crate::gate::judge::{is_public, parts_at};
use crate::login::{EntryChange, EntryRule};

/// Hosts that have the same application before, and the same after.
pub struct HostGroup<'a> {
    pub hosts: Vec<&'a str>,
    pub before: Option<&'a App>,
    pub after: Option<&'a App>,
}

/// Paths of a host to which the same parts apply.
pub struct PathRules<'a> {
    /// Before and after; None: nobody gets in.
    pub rules: [Option<EntryRule<'a>>; 2],
    /// Nobody is counted yet.
    pub trial: PathTrial,
}

/// All hosts, in alphabetical order of their first, without those that keep an application that stays as it is.
pub fn groups<'a>(before: &'a Apps, after: &'a Apps) -> Vec<HostGroup<'a>> {
    let mut groups: BTreeMap<[Option<&str>; 2], HostGroup<'a>> = BTreeMap::new();
    let hosts = |apps: &'a Apps| apps.all().iter().flat_map(|app| app.hosts.iter().map(String::as_str));
    let mut all: Vec<&str> = hosts(before).chain(hosts(after)).collect();
    all.sort_unstable();
    all.dedup();
    for host in all {
        let at = |apps: &'a Apps| apps.at(host).map(|(_, app)| app.as_ref());
        let (before, after) = (at(before), at(after));
        let key = [before, after].map(|app| app.map(|app| app.name.as_str()));
        let group = groups.entry(key).or_insert_with(|| HostGroup { hosts: Vec::new(), before, after });
        group.hosts.push(host);
    }
    let mut groups: Vec<_> = groups.into_values().filter(HostGroup::differs).collect();
    groups.sort_by(|one, other| one.hosts.cmp(&other.hosts));
    groups
}

impl<'a> HostGroup<'a> {
    fn differs(&self) -> bool {
        let rules = |app: &'a App| (&app.who, &app.public, &app.parts);
        self.before.map(rules) != self.after.map(rules)
    }

    fn apps(&self) -> [Option<&'a App>; 2] {
        [self.before, self.after]
    }

    /// Every pattern of either application, each once; `None` for the other paths.
    fn patterns(&self, of: impl Fn(&'a App) -> Vec<&'a PathPattern>) -> Vec<Option<&'a PathPattern>> {
        let mut patterns = vec![None];
        for pattern in self.apps().into_iter().flatten().flat_map(of) {
            if !patterns.contains(&Some(pattern)) {
                patterns.push(Some(pattern));
            }
        }
        patterns
    }

    /// The other paths, each path of a part, and odd paths, which differ from the others if there are parts.
    pub fn paths(&self) -> impl Iterator<Item = PathRules<'a>> {
        let parts = self.patterns(|app| app.parts.iter().map(|part| &part.path).collect());
        let apps = self.apps();
        let odd = (parts.len() > 1).then(|| PathRules::new(PathScope::Odd, AskedPath::Odd, apps));
        parts.into_iter().map(move |pattern| PathRules::plain(pattern, apps)).chain(odd)
    }

    /// Paths that everybody may read from then on, and those that need a sign-in. An application that goes closes
    /// nothing: its host is then refused to everybody, signed in or not.
    pub fn public(&self) -> [Vec<String>; 2] {
        let patterns =
            self.patterns(|app| app.public.iter().chain(app.parts.iter().map(|part| &part.path)).collect());
        let mut changes = [Vec::new(), Vec::new()];
        for pattern in patterns.into_iter().flatten() {
            let example = pattern.example();
            let public = |app: Option<&App>| app.is_some_and(|app| is_public(app, AskedPath::of(&example)));
            match (public(self.before), public(self.after)) {
                (false, true) => changes[0].push(pattern.to_string()),
                (true, false) if self.after.is_some() => changes[1].push(pattern.to_string()),
                _ => {}
            }
        }
        changes
    }
}

impl<'a> PathRules<'a> {
    fn plain(pattern: Option<&PathPattern>, apps: [Option<&'a App>; 2]) -> Self {
        let (scope, example) = match pattern {
            Some(pattern) => (PathScope::Pattern(pattern.to_string()), pattern.example()),
            None => (PathScope::Others, PathPattern::unmatched_example()),
        };
        Self::new(scope, AskedPath::of(&example), apps)
    }

    fn new(scope: PathScope, path: AskedPath<'_>, apps: [Option<&'a App>; 2]) -> Self {
        let parts = apps.map(|app| app.map(|app| parts_at(app, path).collect::<Vec<_>>()));
        let [before, after] = &parts;
        let age = |of: fn(&AppPart) -> Option<std::time::Duration>| {
            // Without an application nobody gets in, at whatever age.
            let (Some(before), Some(after)) = (before, after) else { return AgeChange::default() };
            let least = |parts: &[&AppPart]| parts.iter().filter_map(|part| of(part)).min();
            AgeChange { before: least(before), after: least(after) }
        };
        let (signed_in, password) = (age(|part| part.signed_in_within), age(|part| part.password_within));
        let rule = |app: Option<&'a App>, parts: &Option<Vec<&'a AppPart>>| {
            let (app, parts) = (app?, parts.as_ref()?);
            let mut who = vec![app.who.as_slice()];
            for list in parts.iter().filter_map(|part| part.who.as_deref()) {
                // Many parts may name the same.
                if !who.contains(&list) {
                    who.push(list);
                }
            }
            let needs_password = parts.iter().any(|part| part.password_within.is_some());
            Some(EntryRule { who, needs_password })
        };
        let rules = [rule(apps[0], before), rule(apps[1], after)];
        let entry = EntryChange::default();
        Self { rules, trial: PathTrial { scopes: vec![scope], entry, signed_in, password } }
    }
}
