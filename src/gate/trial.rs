//! What other applications in `[[apps]]` would change: who could get in today and could not then, and the other way
//! round, counted by the database, and where clients of OpenID Connect get their answers. It asks the same questions as
//! `authorize`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::accounts::{Accounts, EntryChange, EntryCount, EntryRule, MOST_IN_A_STATEMENT};
use crate::config::{
    App, AppFactor, AppPart, Apps, AskedPath, OidcClient, PathPattern, RedirectUri, as_span,
};
use crate::db::DbError;
use crate::gate::authorize::{factor_of, is_public, parts_at};

/// Comparisons of one trial: one with a rule for everybody, or for a large group, reads most accounts, which takes a second
/// for 100,000 of them in SQLite.
const MOST_COMPARED: usize = 20;

/// How long to wait for another trial.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppsComparison {
    /// Hosts and clients for which something changes.
    pub hosts: Vec<HostPreview>,
    /// Paths that were not counted, because there are too many differences.
    pub uncounted: usize,
}

// Hosts, or the client, of one application before and after; as it is in the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct HostPreview {
    /// The hosts; empty if it is about a client.
    pub hosts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientPreview>,
    /// The application today; left out if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Paths that everybody may read from then on.
    pub opens: Vec<String>,
    /// Paths that need a sign-in from then on.
    pub closes: Vec<String>,
    /// Each is about all paths for which the same changes.
    pub changes: Vec<PathPreview>,
}

// What changes for a client of OpenID Connect; as it is in the API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct ClientPreview {
    pub client_id: String,
    pub redirect_uris: UriChange,
    pub post_logout_redirect_uris: UriChange,
    /// Other keys of `[apps.oidc]` that change.
    #[schema(value_type = Vec<String>)]
    pub settings: Vec<&'static str>,
}

/// Addresses that come and go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct UriChange {
    pub added: Vec<String>,
    pub removed: Vec<String>,
}

impl UriChange {
    fn of(before: &[RedirectUri], after: &[RedirectUri]) -> Self {
        let but = |all: &[RedirectUri], others: &[RedirectUri]| {
            let new = all.iter().filter(|uri| !others.contains(uri));
            new.map(|uri| uri.as_str().to_owned()).collect()
        };
        Self { added: but(after, before), removed: but(before, after) }
    }

    pub const fn is_unchanged(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

impl ClientPreview {
    fn new(client_id: &str, before: Option<&OidcClient>, after: Option<&OidcClient>) -> Self {
        let uris = |of: fn(&OidcClient) -> &[RedirectUri]| {
            UriChange::of(before.map_or(&[], of), after.map_or(&[], of))
        };
        let mut settings = Vec::new();
        if let (Some(before), Some(after)) = (before, after) {
            let logout = |client: &OidcClient| client.backchannel_logout_uri.clone();
            let differ = [
                ("secret", before.secret != after.secret),
                ("pkce", before.pkce != after.pkce),
                ("signing", before.signing != after.signing),
                ("consent", before.consent != after.consent),
                ("groups", before.groups != after.groups),
                ("backchannel_logout_uri", logout(before) != logout(after)),
                ("allow_private", before.allow_private != after.allow_private),
            ];
            settings.extend(differ.into_iter().filter_map(|(key, differs)| differs.then_some(key)));
        }
        Self {
            client_id: client_id.to_owned(),
            redirect_uris: uris(|client| &client.redirect_uris),
            post_logout_redirect_uris: uris(|client| &client.post_logout_redirect_uris),
            settings,
        }
    }

    fn changes(&self) -> bool {
        let uris = [&self.redirect_uris, &self.post_logout_redirect_uris];
        !self.settings.is_empty() || !uris.into_iter().all(UriChange::is_unchanged)
    }
}

// What changes for paths of an application, said once for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct PathPreview {
    /// The paths of parts.
    pub paths: Vec<String>,
    /// Whether it is also about paths with `%`, `;`, `\` or `//`, to which every part applies.
    pub odd: bool,
    /// Whether it is also about paths that no part is about, or about the client.
    pub others: bool,
    /// Can get in today, and could not then.
    pub loses: EntryCount,
    /// Could get in then, and cannot today.
    pub gains: EntryCount,
    #[serde(skip_serializing_if = "AgeChange::is_unchanged")]
    #[schema(value_type = Option<AgeChange>)]
    pub signed_in_within: AgeChange,
    #[serde(skip_serializing_if = "AgeChange::is_unchanged")]
    #[schema(value_type = Option<AgeChange>)]
    pub password_within: AgeChange,
    #[serde(skip_serializing_if = "FactorChange::is_unchanged")]
    #[schema(value_type = Option<FactorChange>)]
    pub factor: FactorChange,
    #[serde(skip_serializing_if = "AgeChange::is_unchanged")]
    #[schema(value_type = Option<AgeChange>)]
    pub factor_within: AgeChange,
}

/// Which second factor visitors are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[schema(as = FactorPreview)]
pub struct FactorChange {
    pub before: AppFactor,
    pub after: AppFactor,
}

impl FactorChange {
    pub fn is_unchanged(&self) -> bool {
        self.before == self.after
    }
}

/// Left out where any age is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[schema(as = AgePreview)]
pub struct AgeChange {
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_span")]
    #[schema(value_type = Option<String>)]
    pub before: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_span")]
    #[schema(value_type = Option<String>)]
    pub after: Option<Duration>,
}

impl AgeChange {
    pub fn is_unchanged(&self) -> bool {
        self.before == self.after
    }
}

impl PathPreview {
    fn changes(&self) -> bool {
        let ages = [self.signed_in_within, self.password_within, self.factor_within];
        let recent = ages.iter().all(AgeChange::is_unchanged) && self.factor.is_unchanged();
        self.loses.count > 0 || self.gains.count > 0 || !recent
    }

    fn says_the_same_as(&self, other: &Self) -> bool {
        let recent = |it: &Self| (it.signed_in_within, it.password_within, it.factor, it.factor_within);
        (&self.loses, &self.gains) == (&other.loses, &other.gains) && recent(self) == recent(other)
    }

    fn join(&mut self, other: Self) {
        self.paths.extend(other.paths);
        self.odd |= other.odd;
        self.others |= other.others;
    }
}

impl HostPreview {
    /// Whether no application has the hosts any more, or none had them.
    pub const fn is_added_or_removed(&self) -> bool {
        self.before.is_some() != self.after.is_some()
    }

    fn changes(&self) -> bool {
        let public = !self.opens.is_empty() || !self.closes.is_empty();
        let client = self.client.as_ref().is_some_and(ClientPreview::changes);
        self.is_added_or_removed() || public || client || !self.changes.is_empty()
    }
}

/// What changes if `after` is in force instead of `before`: for whom, and where.
pub async fn compare_apps(
    accounts: &Accounts,
    before: &Apps,
    after: &Apps,
) -> Result<AppsComparison, DbError> {
    let (mut compared, mut counted) = (AppsComparison::default(), CountedPairs::default());
    for group in groups(before, after) {
        let mut paths: Vec<PathPreview> = Vec::new();
        for rules in group.paths() {
            let Some(entry) = counted.compare(accounts, &rules).await? else {
                compared.uncounted += 1;
                continue;
            };
            let EntryChange { loses, gains } = entry;
            let path = PathPreview { loses, gains, ..rules.preview };
            match paths.iter_mut().find(|known| known.says_the_same_as(&path)) {
                Some(known) => known.join(path),
                None if path.changes() => paths.push(path),
                None => {}
            }
        }
        compared.hosts.extend(Some(group.into_preview(paths)).filter(HostPreview::changes));
    }
    Ok(compared)
}

/// What was counted already: many paths have the same rules.
#[derive(Default)]
struct CountedPairs<'a>(Vec<([Option<EntryRule<'a>>; 2], EntryChange)>);

impl<'a> CountedPairs<'a> {
    /// Compares one path; None if it would take too much.
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
    fn into_preview(self, changes: Vec<PathPreview>) -> HostPreview {
        let name = |app: Option<&App>| app.map(|app| app.name.clone());
        let [opens, closes] = self.public();
        let hosts = self.hosts.into_iter().map(str::to_owned).collect();
        let client = self.client.map(|id| {
            let [before, after] = [self.before, self.after].map(|app| app.and_then(|app| app.oidc.as_ref()));
            ClientPreview::new(id, before, after)
        });
        HostPreview {
            hosts,
            client,
            before: name(self.before),
            after: name(self.after),
            opens,
            closes,
            changes,
        }
    }
}

/// Hosts that have the same application before, and the same after; or a client.
struct HostGroup<'a> {
    pub hosts: Vec<&'a str>,
    /// Its id. An application has one client at most, to which no part applies.
    pub client: Option<&'a str>,
    pub before: Option<&'a App>,
    pub after: Option<&'a App>,
}

/// Paths of a host to which the same parts apply.
struct PathRules<'a> {
    /// Before and after; None: nobody gets in.
    pub rules: [Option<EntryRule<'a>>; 2],
    /// The change of a path, in which nobody is counted yet.
    pub preview: PathPreview,
}

/// All hosts, in alphabetical order of their first, and then all clients, without those that keep an application that stays
/// as it is.
fn groups<'a>(before: &'a Apps, after: &'a Apps) -> Vec<HostGroup<'a>> {
    let mut groups: BTreeMap<[Option<&str>; 2], HostGroup<'a>> = BTreeMap::new();
    let hosts = |apps: &'a Apps| apps.all().iter().flat_map(|app| app.hosts.iter().map(String::as_str));
    let mut all: Vec<&str> = hosts(before).chain(hosts(after)).collect();
    all.sort_unstable();
    all.dedup();
    for host in all {
        let at = |apps: &'a Apps| apps.at(host).map(|(_, app)| app.as_ref());
        let (before, after) = (at(before), at(after));
        let key = [before, after].map(|app| app.map(|app| app.name.as_str()));
        let new = || HostGroup { hosts: Vec::new(), client: None, before, after };
        let group = groups.entry(key).or_insert_with(new);
        group.hosts.push(host);
    }
    let mut groups: Vec<_> = groups.into_values().filter(HostGroup::differs).collect();
    groups.sort_by(|one, other| one.hosts.cmp(&other.hosts));
    let ids =
        |apps: &'a Apps| apps.all().iter().filter_map(|app| Some(app.oidc.as_ref()?.client_id.as_str()));
    let clients: BTreeSet<&str> = ids(before).chain(ids(after)).collect();
    let clients = clients.into_iter().map(|id| {
        let of = |apps: &'a Apps| apps.client(id).map(|(app, _)| app.as_ref());
        HostGroup { hosts: Vec::new(), client: Some(id), before: of(before), after: of(after) }
    });
    groups.extend(clients.filter(HostGroup::differs));
    groups
}

impl<'a> HostGroup<'a> {
    fn differs(&self) -> bool {
        let rules = |app: &'a App| {
            let client = self.client.and(app.oidc.as_ref());
            (&app.who, &app.public, &app.parts, app.factor, client)
        };
        self.before.map(rules) != self.after.map(rules)
    }

    fn apps(&self) -> [Option<&'a App>; 2] {
        [self.before, self.after]
    }

    /// Every pattern of either application, each once; `None` for the other paths.
    fn patterns(&self, of: impl Fn(&'a App) -> Vec<&'a PathPattern>) -> Vec<Option<&'a PathPattern>> {
        let mut seen = HashSet::new();
        let all = self.apps().into_iter().flatten().filter(|_| self.client.is_none()).flat_map(of);
        std::iter::once(None).chain(all.filter(|pattern| seen.insert(*pattern)).map(Some)).collect()
    }

    /// The other paths, each path of a part, and odd paths, which differ from the others if there are parts.
    pub fn paths(&self) -> impl Iterator<Item = PathRules<'a>> {
        let parts = self.patterns(|app| app.parts.iter().map(|part| &part.path).collect());
        let apps = self.apps();
        let odd = (parts.len() > 1).then(|| {
            let odd = PathPreview { odd: true, ..PathPreview::default() };
            PathRules::new(odd, AskedPath::Odd, apps)
        });
        let is_client = self.client.is_some();
        let plain = move |pattern| match is_client {
            true => {
                PathRules::of(PathPreview { others: true, ..PathPreview::default() }, apps, |_| Vec::new())
            }
            false => PathRules::plain(pattern, apps),
        };
        parts.into_iter().map(plain).chain(odd)
    }

    /// Paths that everybody may read from then on, and those that need a sign-in. An application that goes closes
    /// nothing: its host is then refused to everybody, signed in or not.
    pub fn public(&self) -> [Vec<String>; 2] {
        let patterns =
            self.patterns(|app| app.public.iter().chain(app.parts.iter().map(|part| &part.path)).collect());
        let mut changes = [Vec::new(), Vec::new()];
        for pattern in patterns.into_iter().flatten() {
            let example = pattern.example();
            let public =
                |app: Option<&App>| app.is_some_and(|app| is_public(app, AskedPath::Plain(&example)));
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
        let paths = pattern.iter().map(ToString::to_string).collect();
        let about = PathPreview { paths, others: pattern.is_none(), ..PathPreview::default() };
        let example = pattern.map_or_else(PathPattern::unmatched_example, PathPattern::example);
        Self::new(about, AskedPath::Plain(&example), apps)
    }

    fn new(about: PathPreview, path: AskedPath<'_>, apps: [Option<&'a App>; 2]) -> Self {
        Self::of(about, apps, |app| parts_at(app, path).collect())
    }

    fn of(
        about: PathPreview,
        apps: [Option<&'a App>; 2],
        applying: impl Fn(&'a App) -> Vec<&'a AppPart>,
    ) -> Self {
        let parts = apps.map(|app| app.map(&applying));
        let [before, after] = &parts;
        let age = |of: fn(&AppPart) -> Option<std::time::Duration>| {
            // Without an application nobody gets in, at whatever age.
            let (Some(before), Some(after)) = (before, after) else { return AgeChange::default() };
            let least = |parts: &[&AppPart]| parts.iter().filter_map(|part| of(part)).min();
            AgeChange { before: least(before), after: least(after) }
        };
        let signed_in_within = age(|part| part.signed_in_within);
        let password_within = age(|part| part.password_within);
        let factors = [(apps[0], before), (apps[1], after)].map(|(app, parts)| {
            let (app, parts) = (app?, parts.as_ref()?);
            Some(factor_of(app, parts.iter().copied()))
        });
        let (factor, factor_within) = match factors {
            [Some((before, youngest)), Some((after, least))] => {
                (FactorChange { before, after }, AgeChange { before: youngest, after: least })
            }
            // Where there was no application, what it asks for is news.
            [None, Some((after, least))] => {
                (FactorChange { before: AppFactor::None, after }, AgeChange { before: None, after: least })
            }
            _ => <(FactorChange, AgeChange)>::default(),
        };
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
        let preview = PathPreview { signed_in_within, password_within, factor, factor_within, ..about };
        Self { rules, preview }
    }
}

#[cfg(test)]
mod tests;
