//! `[[apps]]`: applications that ask who somebody is, and who may use which: behind reverse proxies, with their hosts as
//! browsers send them, their paths, and which paths are too odd to be judged by a pattern; or as clients of OpenID Connect.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use strum::IntoStaticStr;
use url::Url;
use utoipa::ToSchema;

use super::clients::{self, MOST, OidcClient};
use super::document::ValueNode;
use super::limits::is_custom_name;
use super::reader::{ParseResult, SectionReader, nearest};
use super::values::{duration, span_text, word};
use crate::unseen::is_seen_whole;

/// The applications, found by host or as a client. Clones share them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Apps {
    all: Vec<Arc<App>>,
    by_host: HashMap<String, Arc<App>>,
    by_client: HashMap<String, Arc<App>>,
}

// The comments of this and the next type are part of the API's description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[cfg_attr(test, derive(Default))]
pub struct App {
    #[schema(min_length = 1, max_length = 64)]
    pub name: String,
    /// The names as browsers send them: with the port where it is not the scheme's own. Not needed with oidc.
    #[schema(required = false)]
    pub hosts: Vec<String>,
    /// Names of accounts, `group:NAME`, or `everyone`: anyone who registers. Nobody, if left out.
    #[schema(required = false, value_type = Vec<String>)]
    pub who: Vec<Who>,
    /// Paths that GET and HEAD may ask for without signing in.
    #[schema(required = false, value_type = Vec<String>)]
    pub public: Vec<PathPattern>,
    #[schema(required = false)]
    pub parts: Vec<AppPart>,
    /// What its visitors have to prove besides.
    #[serde(skip_serializing_if = "AppFactor::is_none")]
    #[schema(required = false)]
    pub factor: AppFactor,
    /// The settings of a client of OpenID Connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcClient>,
}

/// `second`: any second factor; `passkey`: that one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, IntoStaticStr, ToSchema)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[serde(rename_all = "kebab-case")]
pub enum AppFactor {
    #[default]
    None,
    Second,
    Passkey,
}

impl AppFactor {
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// Paths that require more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[cfg_attr(test, derive(Default))]
pub struct AppPart {
    #[schema(value_type = String)]
    pub path: PathPattern,
    /// Only those of the application's who are named here, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub who: Option<Vec<Who>>,
    /// The age up to which a sign-in is enough: 1m to 30d.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_span")]
    #[schema(value_type = Option<String>)]
    pub signed_in_within: Option<Duration>,
    /// How long ago the password may have been given.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_span")]
    #[schema(value_type = Option<String>)]
    pub password_within: Option<Duration>,
    #[serde(skip_serializing_if = "AppFactor::is_none")]
    #[schema(required = false)]
    pub factor: AppFactor,
    /// How long ago the second factor may have been proved; it is asked for, too.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_span")]
    #[schema(value_type = Option<String>)]
    pub factor_within: Option<Duration>,
}

/// Writes a span as the document takes it.
pub fn as_span<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    span.map(span_text).serialize(serializer)
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Everyone,
    Group(String),
    /// An account, by the canonical form of its name.
    Name(String),
}

impl Apps {
    /// Two applications must not have a host or a client id in common.
    pub fn new(apps: Vec<App>) -> Self {
        let all: Vec<_> = apps.into_iter().map(Arc::new).collect();
        let by_host =
            all.iter().flat_map(|app| app.hosts.iter().map(|host| (host.clone(), Arc::clone(app)))).collect();
        let client = |app: &Arc<App>| Some((app.oidc.as_ref()?.client_id.clone(), Arc::clone(app)));
        let by_client = all.iter().filter_map(client).collect();
        Self { all, by_host, by_client }
    }

    pub fn all(&self) -> &[Arc<App>] {
        &self.all
    }

    /// The application of exactly this name; or which there are.
    pub fn named(&self, name: &str) -> Result<&Arc<App>, String> {
        self.all.iter().find(|app| app.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.all.iter().map(|app| app.name.as_str()).collect();
            match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("there are: {}", names.join(", ")),
            }
        })
    }

    /// The application at exactly this host. The case of ASCII letters makes no difference, as it makes none to browsers.
    pub fn at(&self, host: &str) -> Option<(&str, &Arc<App>)> {
        let found = self.by_host.get_key_value(host);
        let found = found.or_else(|| self.by_host.get_key_value(&host.to_ascii_lowercase()));
        found.map(|(host, app)| (host.as_str(), app))
    }

    /// The client of exactly this id, with its application.
    pub fn client(&self, client_id: &str) -> Option<(&Arc<App>, &OidcClient)> {
        let app = self.by_client.get(client_id)?;
        Some((app, app.oidc.as_ref()?))
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

impl Serialize for Who {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for PathPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everyone => f.write_str("everyone"),
            Self::Group(group) => write!(f, "group:{group}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// All of these together: 25 for each of 200 applications. Judging a document reads them several times.
const MOST_IN_ALL: usize = 5_000;
const LONGEST_NAME: usize = 64;
/// A session lasts no longer.
const LONGEST_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// `public_url` is our own, whose host no application can have.
pub(super) fn read(root: &mut SectionReader<'_>, public_url: &Url) -> Apps {
    let Some(place) = root.place_of("apps") else { return Apps::default() };
    let in_all = root.items_under("apps");
    if in_all > MOST_IN_ALL {
        let reason = format!(
            "has {in_all} entries with the hosts, names, paths, parts and addresses in them; at most {MOST_IN_ALL} are allowed"
        );
        root.refuse(place, "apps".to_owned(), reason);
        root.skip("apps");
        return Apps::default();
    }
    let found = root.tables("apps", MOST, |section| app(section, public_url)).unwrap_or_default();
    let (mut names, mut hosts, mut clients) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (index, app) in found.iter().enumerate().filter_map(|(index, app)| Some((index, app.as_ref()?))) {
        if !names.insert(&app.name) {
            let reason = format!("{:?} is the name of another application, too", app.name);
            root.refuse(place.clone(), format!("apps[{index}].name"), reason);
        }
        if let Some(client) = app.oidc.as_ref().filter(|client| !clients.insert(&client.client_id)) {
            let reason = format!("{:?} is the id of another application, too", client.client_id);
            root.refuse(place.clone(), format!("apps[{index}].oidc.client_id"), reason);
        }
        for host in &app.hosts {
            if !hosts.insert(name_of(host)) {
                let name = name_of(host);
                let reason = format!(
                    "{name:?} is listed twice; a name belongs to one application at one port, because browsers keep cookies for the name alone"
                );
                root.refuse(place.clone(), format!("apps[{index}].hosts"), reason);
            }
        }
    }
    Apps::new(found.into_iter().flatten().collect())
}

fn app(section: &mut SectionReader<'_>, public_url: &Url) -> Option<App> {
    let missing = "is missing; write a short name for the console: \"wiki\"";
    let name = section.required("name", missing, name);
    let hosts = section.list("hosts", MOST, |node| match host(node)? {
        host if Some(name_of(&host)) == public_url.host_str() => Err(format!(
            "{host:?} is the name of server.public_url, whose cookies browsers would send to it, whatever the port; an application needs a name of its own"
        )),
        host => Ok(host),
    });
    let hosts = hosts.unwrap_or_default();
    let is_client = section.has("oidc");
    if hosts.is_empty() && !is_client && !section.failed() {
        let missing = "is missing; name the hosts at which browsers ask for it: [\"wiki.example\"], or add [apps.oidc] for a client of OpenID Connect";
        section.refuse_key("hosts", missing);
    }
    let who = section.list("who", MOST, who).unwrap_or_default();
    let public = section.list("public", MOST, PathPattern::read).unwrap_or_default();
    let parts = section.tables("parts", MOST, part).unwrap_or_default();
    let needs_hosts = [("public", public.is_empty()), ("parts", parts.is_empty())];
    if hosts.is_empty() && is_client && !section.failed() {
        for (key, _) in needs_hosts.into_iter().filter(|(_, empty)| !empty) {
            section.refuse_key(
                key,
                "is about paths at hosts, of which the application has none; add hosts, or leave it out",
            );
        }
    }
    let factor = section.value("factor", AppFactor::None, factor);
    let oidc = section.optional_section("oidc", |section| clients::read(section, name.as_deref())).flatten();
    let parts = parts.into_iter().collect::<Option<_>>()?;
    Some(App { name: name?, hosts, who, public, parts, factor, oidc })
}

fn part(section: &mut SectionReader<'_>) -> Option<AppPart> {
    let missing = "is missing; write which paths it is about: \"/admin/*\"";
    let path = section.required("path", missing, PathPattern::read);
    let who = section.list("who", MOST, who);
    let signed_in_within = section.optional("signed_in_within", age);
    let password_within = section.optional("password_within", age);
    let factor = section.value("factor", AppFactor::None, factor);
    let factor_within = section.optional("factor_within", age);
    let ages = [signed_in_within, password_within, factor_within];
    if who.is_none() && factor.is_none() && ages.iter().all(Option::is_none) && !section.failed() {
        section.refuse_table(
            "requires nothing; add who, signed_in_within, password_within, factor or factor_within",
        );
    }
    Some(AppPart { path: path?, who, signed_in_within, password_within, factor, factor_within })
}

fn factor(node: ValueNode) -> ParseResult<AppFactor> {
    word(&[AppFactor::None, AppFactor::Second, AppFactor::Passkey].map(|factor| (factor.into_str(), factor)))(
        node,
    )
}

fn age(node: ValueNode) -> ParseResult<Duration> {
    duration(Duration::from_secs(60)..=LONGEST_AGE)(node)
}

fn name(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    let plain = text.trim() == text && is_seen_whole(&text);
    match text.chars().count() {
        1..=LONGEST_NAME if plain => Ok(text),
        _ => Err(format!(
            "{text:?} is not a name; write 1 to {LONGEST_NAME} characters on one line, all of them visible, such as \"wiki\""
        )),
    }
}

fn who(node: ValueNode) -> ParseResult<Who> {
    let text = node.text()?;
    let wanted = "write \"everyone\", \"group:staff\" or the name of an account";
    if text == "everyone" {
        return Ok(Who::Everyone);
    }
    if let Some(group) = text.strip_prefix("group:") {
        if is_custom_name(group) {
            return Ok(Who::Group(group.to_owned()));
        }
        return Err(format!("{group:?} is not a group: use 1 to 64 of a-z, 0-9 and -"));
    }
    let odd = |letter: char| {
        letter.is_whitespace() || letter.is_control() || letter.is_uppercase() || ":*".contains(letter)
    };
    if text.is_empty() || text.len() > 255 || text.chars().any(odd) {
        return Err(format!("{text:?} is nobody; {wanted}, in lower case"));
    }
    Ok(Who::Name(text))
}

/// The longest name of a host (RFC 1035, 2.3.4), and a port.
const LONGEST_HOST: usize = 253 + 6;

/// What a browser sends in `Host` for an address: with the port where it is not the scheme's own.
pub fn host_of(url: &Url) -> Option<String> {
    let name = url.host_str()?;
    Some(url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}")))
}

fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    }
}

/// A host in the one spelling that browsers send.
fn host(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    let wanted =
        "write it as \"wiki.example\", or \"wiki.example:8443\" where the port is not the scheme's own";
    let lower = text.to_ascii_lowercase();
    if lower != text {
        return Err(format!("{text:?} has capital letters; write {lower:?}"));
    }
    let sent = |scheme: &str| host_of(&Url::parse(&format!("{scheme}://{text}/")).ok()?);
    let ours =
        |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-.:[]".contains(&letter);
    if text.is_empty() || text.len() > LONGEST_HOST || !text.bytes().all(ours) || text.ends_with('.') {
        return Err(format!("{text:?} is not a host; {wanted}"));
    }
    // A port that is the own of one of the two schemes is left out there by browsers.
    match (sent("https"), sent("http")) {
        (Some(https), Some(http)) if https == text && http == text => Ok(text),
        (Some(https), Some(_)) if https != text => {
            Err(format!("{text:?} is sent by browsers as {https:?}; write that"))
        }
        (Some(_), Some(http)) => Err(format!("{text:?} is sent by browsers as {http:?}; write that")),
        _ => Err(format!("{text:?} is not a host; {wanted}")),
    }
}

const LONGEST_PATH: usize = 512;

/// `/health` is that path alone, `/static/*` everything below that folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathPattern {
    path: String,
    below: bool,
}

/// The path of a request to an application, without its query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedPath<'a> {
    /// Servers read it in one way only.
    Plain(&'a str),
    /// Servers differ in what they make of it: escapes, dot segments, empty segments, parameters, backslashes, and
    /// short names as Windows makes them (`ADMINI~1`).
    Odd,
}

impl<'a> AskedPath<'a> {
    /// `target` is the path and query of a request, as they were sent.
    pub fn of(target: &'a str) -> Self {
        let path = target.split('?').next().unwrap_or_default();
        if is_plain(path) { Self::Plain(path) } else { Self::Odd }
    }
}

/// Visible ASCII, from a slash on, without anything that is decoded, resolved, collapsed or cut off by some servers.
fn is_plain(path: &str) -> bool {
    // Windows drops dots at the end of a name, and what follows a colon (`::$INDEX_ALLOCATION` is the folder itself).
    let dots = |segment: &str| {
        let name = segment.split(':').next().unwrap_or_default();
        !segment.is_empty() && name.bytes().all(|byte| byte == b'.')
    };
    let short_name = |name: &[u8]| name[0] != b'/' && name[1] == b'~' && name[2].is_ascii_digit();
    path.starts_with('/')
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"%\\;#\"<>^`{|}".contains(&byte))
        && !path.contains("//")
        && !path.split('/').any(dots)
        && !path.as_bytes().windows(3).any(short_name)
}

#[cfg(test)]
impl Default for PathPattern {
    fn default() -> Self {
        Self { path: "/".to_owned(), below: true }
    }
}

impl PathPattern {
    pub fn parse(text: &str) -> Result<Self, String> {
        let (path, below) = match text.strip_suffix("/*") {
            Some(folder) => (format!("{folder}/"), true),
            None => (text.to_owned(), false),
        };
        if path.is_empty() || path.len() > LONGEST_PATH || path.contains(['*', '?']) || !is_plain(&path) {
            return Err(format!(
                "{text:?} is not a path; write \"/health\" for one path or \"/static/*\" for all below a folder, without %, \\, ;, //, dot segments or a query"
            ));
        }
        Ok(Self { path, below })
    }

    fn read(node: ValueNode) -> ParseResult<Self> {
        Self::parse(&node.text()?)
    }

    /// A path that the pattern covers, and no longer pattern does. It is plain, as the pattern is.
    pub fn example(&self) -> String {
        if self.below { format!("{}{}", self.path, unmatched_segment()) } else { self.path.clone() }
    }

    /// A path that only patterns for everything cover.
    pub fn unmatched_example() -> String {
        format!("/{}", unmatched_segment())
    }

    /// Whether it is certain that the pattern covers the path. For what opens.
    pub fn covers(&self, asked: AskedPath<'_>) -> bool {
        let AskedPath::Plain(path) = asked else { return false };
        if self.below { path.starts_with(&self.path) } else { path == self.path }
    }

    /// Whether some server might take the path for one that the pattern covers: in other letters' case, with a slash
    /// more or less at its end, with what Windows drops at the end of a name, or if it is odd. For what closes.
    pub fn may_cover(&self, asked: AskedPath<'_>) -> bool {
        let AskedPath::Plain(path) = asked else { return true };
        let mut asked = path.trim_end_matches('/').split('/');
        let mut own = self.path.trim_end_matches('/').split('/');
        own.all(|own| asked.next().is_some_and(|asked| may_name(own, asked)))
            && (self.below || asked.next().is_none())
    }
}

/// Whether some server might take one name in a path for another: `admin.` and `ADMIN::$DATA` for `admin`.
fn may_name(own: &str, asked: &str) -> bool {
    let own = own.trim_end_matches('.');
    let Some((begin, rest)) = asked.as_bytes().split_at_checked(own.len()) else { return false };
    let first = rest.iter().find(|byte| **byte != b'.');
    begin.eq_ignore_ascii_case(own.as_bytes()) && first.is_none_or(|byte| *byte == b':')
}

/// Longer than what is in any pattern.
fn unmatched_segment() -> String {
    "x".repeat(LONGEST_PATH + 1)
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, if self.below { "*" } else { "" })
    }
}
