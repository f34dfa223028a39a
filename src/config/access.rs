//! `[access]`: answers to an attack. Each has an end and a reason, and has no effect from its end on; a document
//! with ended ones stays valid. It is configuration, so no outage turns any of it off.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use gatehouse_limiter::middleware::ClientAddress;
use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value};
use utoipa::ToSchema;

use super::document::ValueNode;
use super::origins::OriginList;
use super::reader::{ParseResult, SectionReader};
use super::values::{half_covered, if_any, unmapped};
use crate::clock::Micros;
use crate::origins::{OriginKey, Origins};
use crate::unseen::is_seen_whole;

/// The contents of `[access]`, with entries that have ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessSettings {
    pub deny: Vec<AccessDenial>,
    /// Networks for which the limits of addresses and networks are ten times as high.
    pub allow: Vec<AccessNetwork>,
    /// Until then nobody goes on without a solved CAPTCHA, except known devices at their own account.
    pub challenge_everyone_until: Option<Micros>,
    pub pause_sms: Vec<SmsPause>,
}

/// One entry of `deny`: a network or an origin that is refused, its end and its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccessDenial {
    #[serde(flatten)]
    pub subject: DeniedSubject,
    #[serde(serialize_with = "as_moment")]
    pub until: Micros,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeniedSubject {
    Network(IpNet),
    Origin(OriginKey),
}

// A network that is exempt, until when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AccessNetwork {
    /// A CIDR or one address. Not wider than an IPv4 /8 or an IPv6 /19, and no trusted proxy.
    #[schema(value_type = String)]
    pub network: IpNet,
    #[serde(serialize_with = "as_moment")]
    #[schema(value_type = String, format = DateTime)]
    pub until: Micros,
    #[schema(min_length = 1, max_length = 200)]
    pub reason: String,
}

// Numbers that get no message, until when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SmsPause {
    #[schema(pattern = "^\\+[0-9]{1,15}$")]
    pub prefix: String,
    #[serde(serialize_with = "as_moment")]
    #[schema(value_type = String, format = DateTime)]
    pub until: Micros,
    #[schema(min_length = 1, max_length = 200)]
    pub reason: String,
}

pub(super) const KEYS: [&str; 4] = ["deny", "allow", "challenge_everyone_until", "pause_sms"];

impl AccessSettings {
    #[must_use]
    pub fn in_force(&self, now: Micros) -> Self {
        Self {
            deny: self.deny.iter().filter(|it| now < it.until).cloned().collect(),
            allow: self.allow.iter().filter(|it| now < it.until).cloned().collect(),
            challenge_everyone_until: self.challenge_everyone_until.filter(|until| now < *until),
            pause_sms: self.pause_sms.iter().filter(|it| now < it.until).cloned().collect(),
        }
    }

    /// Whether a key of the section means the same in both.
    pub(super) fn same(&self, other: &Self, key: &str) -> bool {
        match key {
            "deny" => self.deny == other.deny,
            "allow" => self.allow == other.allow,
            "pause_sms" => self.pause_sms == other.pause_sms,
            _ => self.challenge_everyone_until == other.challenge_everyone_until,
        }
    }

    pub fn count(&self) -> usize {
        let everyone = usize::from(self.challenge_everyone_until.is_some());
        everyone + self.deny.len() + self.allow.len() + self.pause_sms.len()
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The most entries of each list. An operator writes a few during an attack; a feed of addresses belongs into a
/// firewall.
const MOST_ENTRIES: usize = 1_000;
/// The longest reason, in characters: a sentence.
const LONGEST_REASON: usize = 200;
const MOST_DIGITS: usize = 15;

impl AccessSettings {
    /// `proxies` are the trusted ones: an entry that covers one of them would be about everybody behind it. `lists` are
    /// those of `[origins]`, if that is known.
    pub(super) fn read(
        section: &mut SectionReader<'_>,
        proxies: &[IpNet],
        lists: Option<&[OriginList]>,
    ) -> Self {
        let allow = entries(section, "allow", |inner| network(inner, proxies));
        let exempt: Vec<IpNet> = allow.iter().map(|entry: &AccessNetwork| entry.network).collect();
        if let Some(family) = half_covered(&exempt) {
            let reason =
                format!("covers half of all {family} addresses or more; name the networks that you know");
            section.refuse_key("allow", reason);
        }
        Self {
            deny: entries(section, "deny", |inner| denial(inner, proxies, lists)),
            allow,
            challenge_everyone_until: section.value("challenge_everyone_until", None, if_any(end)),
            pause_sms: entries(section, "pause_sms", pause),
        }
    }
}

fn entries<'p, T>(
    section: &mut SectionReader<'p>,
    key: &'static str,
    read: impl FnMut(&mut SectionReader<'p>) -> Option<T>,
) -> Vec<T> {
    section.tables(key, MOST_ENTRIES, read).unwrap_or_default().into_iter().flatten().collect()
}

fn denial(
    section: &mut SectionReader<'_>,
    proxies: &[IpNet],
    lists: Option<&[OriginList]>,
) -> Option<AccessDenial> {
    const MISSING: &str = "is missing; write a network: \"203.0.113.0/24\", or an origin: \"asn:64496\"";
    const BOTH: &str = "stands beside a network; write an entry for each";
    let origin = section.optional("origin", |node| parse_origin(node, lists));
    let subject = if section.has("origin") {
        if section.optional("network", |node| parse_network(node, proxies)).is_some() {
            section.refuse_key("origin", BOTH);
        }
        origin.map(DeniedSubject::Origin)
    } else {
        section.required("network", MISSING, |node| parse_network(node, proxies)).map(DeniedSubject::Network)
    };
    let (until, reason) = end_and_reason(section);
    Some(AccessDenial { subject: subject?, until: until?, reason: reason? })
}

fn parse_origin(node: ValueNode, lists: Option<&[OriginList]>) -> ParseResult<OriginKey> {
    let key: OriginKey = node.text()?.parse()?;
    match (&key, lists) {
        (OriginKey::List(name), Some(lists)) if lists.iter().all(|list| *list.name != **name) => {
            Err(format!(
                "{key} names no list of origins.lists; add it there, or write the name of one that is there"
            ))
        }
        _ => Ok(key),
    }
}

fn network(section: &mut SectionReader<'_>, proxies: &[IpNet]) -> Option<AccessNetwork> {
    const MISSING: &str = "is missing; write a network: \"203.0.113.0/24\"";
    const TOO_COARSE: &str = "is for deny alone: files of origins are not exact enough to lift limits by them; write the networks that you know";
    if section.has("origin") {
        section.skip("origin");
        section.refuse_key("origin", TOO_COARSE);
        section.optional("network", |node| parse_network(node, proxies));
        end_and_reason(section);
        return None;
    }
    // All are read before the first failure ends it, so that every mistake is reported.
    let network = section.required("network", MISSING, |node| parse_network(node, proxies));
    let (until, reason) = end_and_reason(section);
    Some(AccessNetwork { network: network?, until: until?, reason: reason? })
}

fn pause(section: &mut SectionReader<'_>) -> Option<SmsPause> {
    const MISSING: &str = "is missing; write how the numbers begin: \"+86138\"";
    let prefix = section.required("prefix", MISSING, number_prefix);
    let (until, reason) = end_and_reason(section);
    Some(SmsPause { prefix: prefix?, until: until?, reason: reason? })
}

fn end_and_reason(section: &mut SectionReader<'_>) -> (Option<Micros>, Option<String>) {
    const NO_END: &str = "is missing; write when it ends: \"2026-12-01T00:00:00Z\"";
    const NO_REASON: &str = "is missing; write why, for those who read it later";
    let until = section.required("until", NO_END, end);
    (until, section.required("reason", NO_REASON, reason))
}

/// RFC 3339. Times that have passed are valid: a restart must not fail because an hour has passed.
fn end(node: ValueNode) -> ParseResult<Micros> {
    const SUCH_AS: &str = "such as \"2026-12-01T00:00:00Z\" or \"2026-12-01T08:00:00+08:00\"";
    let text = node.text().map_err(|wrong| format!("{wrong}, {SUCH_AS}"))?;
    let time: Timestamp = text.parse().map_err(|_| {
        format!("{text:?} is not a time with its offset from UTC (RFC 3339); write one {SUCH_AS}")
    })?;
    Ok(Micros(time.as_microsecond()))
}

fn reason(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    let reason = text.trim();
    if reason.is_empty() {
        return Err("is empty; write why, for those who read it later".to_owned());
    }
    if !is_seen_whole(reason) {
        return Err("contains a line break or another character that is not seen; write one line".to_owned());
    }
    match reason.chars().count() {
        0..=LONGEST_REASON => Ok(reason.to_owned()),
        many => Err(format!("has {many} characters; at most {LONGEST_REASON} are allowed")),
    }
}

pub(super) fn number_prefix(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    let digits = text.strip_prefix('+').unwrap_or_default();
    if (1..=MOST_DIGITS).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Ok(text);
    }
    Err(format!("{text:?} is not a prefix of numbers; write + and 1 to {MOST_DIGITS} digits: \"+86138\""))
}

/// The largest blocks that registries hand to one provider are an IPv4 /8 (IANA, "IPv4 Address Space Registry") and
/// an IPv6 /19 (RIPE NCC: 2003::/19, 2a01:c000::/19). Whatever is wider covers several.
pub(super) const WIDEST_V4: u8 = 8;
pub(super) const WIDEST_V6: u8 = 19;

/// A network, or a single address; an IPv4 one that is written as IPv6 is taken as IPv4.
fn parse_network(node: ValueNode, proxies: &[IpNet]) -> ParseResult<IpNet> {
    let text = node.text()?;
    let written = text.trim();
    let parsed = written.parse::<IpNet>().or_else(|_| written.parse::<IpAddr>().map(IpNet::from));
    let network = unmapped(parsed.map_err(|_| {
        format!("{text:?} is not a network; write it as \"203.0.113.0/24\" or \"2001:db8::/32\"")
    })?);
    if network.prefix_len() == 0 {
        return Err(format!("{network} covers every address; name the networks that the attack comes from"));
    }
    let (widest, family) = match network {
        IpNet::V4(_) => (WIDEST_V4, "IPv4"),
        IpNet::V6(_) => (WIDEST_V6, "IPv6"),
    };
    if network.prefix_len() < widest {
        return Err(format!(
            "{network} is too wide; the widest {family} network is a /{widest}, which is as much as one provider gets"
        ));
    }
    if network != network.trunc() {
        let (short, one) = (network.trunc(), IpNet::from(network.addr()));
        return Err(format!(
            "{network} is an address within a network; write {short} for the network, or {one}"
        ));
    }
    let overlaps = |proxy: &&IpNet| {
        let proxy = unmapped(**proxy);
        proxy.contains(&network) || network.contains(&proxy)
    };
    match proxies.iter().find(overlaps) {
        Some(proxy) => Err(format!(
            "{network} overlaps {proxy} in server.trusted_proxies; name the clients' network, not the proxy's"
        )),
        None => Ok(network),
    }
}

/// Networks and when each ends. A look-up takes a step for each length among them, not for each network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct NetworkTable {
    v4: Vec<u8>,
    v6: Vec<u8>,
    ends: HashMap<IpNet, Micros>,
}

impl NetworkTable {
    fn of(networks: impl Iterator<Item = (IpNet, Micros)>) -> Self {
        let mut table = Self::default();
        for (network, until) in networks {
            let lengths = if network.addr().is_ipv4() { &mut table.v4 } else { &mut table.v6 };
            if !lengths.contains(&network.prefix_len()) {
                lengths.push(network.prefix_len());
            }
            let end = table.ends.entry(network).or_insert(until);
            *end = (*end).max(until);
        }
        table
    }

    pub fn contains(&self, address: IpAddr, now: Micros) -> bool {
        let lengths = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        lengths.iter().any(|length| {
            let network = IpNet::new_assert(address, *length).trunc();
            self.ends.get(&network).is_some_and(|until| now < *until)
        })
    }
}

/// Origins that are refused, and when each entry ends.
#[derive(Debug, Clone, Default)]
struct DeniedOrigins {
    ends: HashMap<OriginKey, Micros>,
    /// When all have ended.
    last: Micros,
    origins: Origins,
}

impl DeniedOrigins {
    fn of(entries: impl Iterator<Item = (OriginKey, Micros)>) -> Self {
        let mut table = Self { last: Micros(i64::MIN), ..Self::default() };
        for (key, until) in entries {
            table.last = table.last.max(until);
            let end = table.ends.entry(key).or_insert(until);
            *end = (*end).max(until);
        }
        table
    }

    fn contains(&self, address: IpAddr, now: Micros) -> bool {
        // Nothing is looked up unless an entry is in force.
        let in_force = |key| self.ends.get(&key).is_some_and(|until| now < *until);
        now < self.last && self.origins.in_use().of_address(address).any(in_force)
    }
}

#[derive(Debug, Clone, Default)]
pub struct AccessRules {
    settings: AccessSettings,
    denied: NetworkTable,
    denied_origins: DeniedOrigins,
    allowed: NetworkTable,
}

/// The rest follows from the settings.
impl PartialEq for AccessRules {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl From<AccessSettings> for AccessRules {
    fn from(settings: AccessSettings) -> Self {
        let networks = settings.deny.iter().filter_map(|it| Some((it.network()?, it.until)));
        let origins = settings.deny.iter().filter_map(|it| Some((it.origin()?.clone(), it.until)));
        let allowed = settings.allow.iter().map(|it| (it.network, it.until));
        let (denied, denied_origins) = (NetworkTable::of(networks), DeniedOrigins::of(origins));
        Self { denied, denied_origins, allowed: NetworkTable::of(allowed), settings }
    }
}

impl AccessRules {
    /// The answers as they are written, with those that have ended.
    pub const fn settings(&self) -> &AccessSettings {
        &self.settings
    }

    /// With the files that tell origins. Until then, nobody is refused by origin.
    pub(super) fn telling(mut self, origins: Origins) -> Self {
        self.denied_origins.origins = origins;
        self
    }

    /// Whether a client is refused: by its address or the origin of that, or by the IPv4 address inside.
    pub fn is_denied(&self, client: ClientAddress, now: Micros) -> bool {
        let is_denied = |ip| self.denied.contains(ip, now) || self.denied_origins.contains(ip, now);
        let (sent, counted) = (client.ip(), client.counted_ip());
        is_denied(sent) || (counted != sent && is_denied(counted))
    }

    /// Entries in force that refuse nobody, because no file in use tells them.
    pub fn idle_origins(&self, now: Micros) -> Vec<String> {
        let (files, table) = (self.denied_origins.origins.in_use(), &self.denied_origins.ends);
        let idle = table.iter().filter(|(key, until)| now < **until && !files.knows(key));
        let mut idle: Vec<_> = idle.map(|(key, _)| key.to_string()).collect();
        idle.sort();
        idle
    }

    /// Whether the limits of addresses and networks are lifted for it, as it was sent. An address that is refused, too, stays
    /// refused.
    pub fn is_allowed(&self, address: IpAddr, now: Micros) -> bool {
        self.allowed.contains(address, now)
    }

    /// How long everybody is still challenged; None if nobody is because of this.
    pub fn challenges_everyone(&self, now: Micros) -> Option<Duration> {
        self.settings.challenge_everyone_until.filter(|until| now < *until).map(|until| until.since(now))
    }

    /// How long a number, in E.164, still gets no message; None if it gets one.
    pub fn paused(&self, number: &str, now: Micros) -> Option<Duration> {
        let covers = |pause: &&SmsPause| now < pause.until && number.starts_with(&pause.prefix);
        self.settings.pause_sms.iter().filter(covers).map(|pause| pause.until.since(now)).max()
    }
}

/// RFC 3339 in UTC, as exact as it is.
pub fn moment_text(at: Micros) -> String {
    Timestamp::from_microsecond(at.0).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

fn as_moment<S: Serializer>(at: &Micros, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&moment_text(*at))
}

impl AccessDenial {
    pub const fn network(&self) -> Option<IpNet> {
        if let DeniedSubject::Network(network) = &self.subject { Some(*network) } else { None }
    }

    pub const fn origin(&self) -> Option<&OriginKey> {
        if let DeniedSubject::Origin(key) = &self.subject { Some(key) } else { None }
    }

    /// The entry as it stands in a line of [`AccessSettings::toml`].
    pub fn line(&self) -> String {
        self.table().to_string()
    }

    fn table(&self) -> InlineTable {
        line(&self.subject.to_string(), self.subject.key(), self.until, &self.reason)
    }
}

impl DeniedSubject {
    /// The key of an entry under which it stands: `network` or `origin`.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Network(_) => "network",
            Self::Origin(_) => "origin",
        }
    }
}

impl fmt::Display for DeniedSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Origin(key) => key.fmt(f),
        }
    }
}

impl AccessNetwork {
    /// The entry as it stands in a line of [`AccessSettings::toml`].
    pub fn line(&self) -> String {
        self.table().to_string()
    }

    fn table(&self) -> InlineTable {
        line(&self.network.to_string(), "network", self.until, &self.reason)
    }
}

impl SmsPause {
    /// The entry as it stands in a line of [`AccessSettings::toml`].
    pub fn line(&self) -> String {
        self.table().to_string()
    }

    fn table(&self) -> InlineTable {
        line(&self.prefix, "prefix", self.until, &self.reason)
    }
}

impl AccessSettings {
    /// The section alone; empty if nothing is set.
    pub fn toml(&self) -> String {
        let mut table = Table::new();
        for key in KEYS {
            if let Some(value) = self.value(key) {
                table.insert(key, Item::Value(value));
            }
        }
        if table.is_empty() {
            return String::new();
        }
        let mut document = DocumentMut::new();
        document.insert("access", Item::Table(table));
        document.to_string()
    }

    /// The answers as the API takes and tells them.
    pub fn json(&self) -> Json {
        json!({
            "deny": self.deny,
            "allow": self.allow,
            "challenge_everyone_until": self.challenge_everyone_until.map(moment_text).unwrap_or_default(),
            "pause_sms": self.pause_sms,
        })
    }

    /// What a key of the section is set to; None if to nothing.
    pub(super) fn value(&self, key: &str) -> Option<Value> {
        match key {
            "deny" => list(self.deny.iter().map(AccessDenial::table)),
            "allow" => list(self.allow.iter().map(AccessNetwork::table)),
            "pause_sms" => list(self.pause_sms.iter().map(SmsPause::table)),
            _ => self.challenge_everyone_until.map(|until| moment_text(until).into()),
        }
    }
}

fn line(of: &str, key: &str, until: Micros, reason: &str) -> InlineTable {
    let mut table = InlineTable::new();
    table.insert(key, of.into());
    table.insert("until", moment_text(until).into());
    table.insert("reason", reason.into());
    table
}

/// An entry a line.
fn list(entries: impl Iterator<Item = InlineTable>) -> Option<Value> {
    let mut list: Array = entries.collect();
    list.iter_mut().for_each(|entry| entry.decor_mut().set_prefix("\n    "));
    list.set_trailing_comma(true);
    list.set_trailing("\n");
    (!list.is_empty()).then(|| list.into())
}

#[cfg(test)]
mod tests {
    use gatehouse_limiter::middleware::TrustedProxies;

    use super::*;

    const NOW: Micros = Micros(1_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn entry(network: &str, until: Micros) -> AccessDenial {
        let subject = DeniedSubject::Network(network.parse().unwrap());
        AccessDenial { subject, until, reason: "an attack".to_owned() }
    }

    fn rules(deny: Vec<AccessDenial>) -> AccessRules {
        AccessSettings { deny, ..AccessSettings::default() }.into()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn client(address: IpAddr) -> ClientAddress {
        ClientAddress::at(address, &TrustedProxies::default())
    }

    #[test]
    fn an_address_is_found_in_networks_of_every_length() {
        let end = NOW.plus(HOUR);
        let rules = rules(vec![
            entry("203.0.113.0/24", end),
            entry("198.51.100.7/32", end),
            entry("2001:db8::/32", end),
            entry("2001:db9::1/128", end),
        ]);
        for denied in ["203.0.113.0", "203.0.113.255", "198.51.100.7", "2001:db8:ffff::1", "2001:db9::1"] {
            assert!(rules.is_denied(client(ip(denied)), NOW), "{denied}");
            assert!(!rules.is_allowed(ip(denied), NOW), "{denied}");
        }
        for free in ["203.0.114.0", "198.51.100.8", "2001:db9::2", "::", "0.0.0.0"] {
            assert!(!rules.is_denied(client(ip(free)), NOW), "{free}");
        }
    }

    proptest::proptest! {
        /// The table finds what a look at each network finds.
        #[test]
        fn a_look_up_is_as_good_as_a_look_at_every_network(
            networks in proptest::collection::vec((0u32..64, 8u8..=32, 0i64..3), 0..40),
            wide in proptest::collection::vec((0u128..64, 19u8..=128, 0i64..3), 0..40),
            address in 0u32..64,
        ) {
            let v4 = |bits: u32| IpAddr::from((0xCB00_7100 | bits << 3).to_be_bytes());
            let v6 = |bits: u128| IpAddr::from((0x2001_0db8_u128 << 96 | bits << 60).to_be_bytes());
            let narrow = networks.iter().map(|(bits, length, end)| (v4(*bits), *length, *end));
            let wide = wide.iter().map(|(bits, length, end)| (v6(*bits), *length, *end));
            let of = |(address, length, end): (IpAddr, u8, i64)| AccessDenial {
                subject: DeniedSubject::Network(IpNet::new(address, length).unwrap().trunc()),
                until: Micros(end),
                reason: "r".to_owned(),
            };
            let all: Vec<_> = narrow.chain(wide).map(of).collect();
            let rules = rules(all.clone());
            for address in [v4(address), v6(u128::from(address))] {
                for now in 0..3 {
                    let naive = all.iter().any(|it| it.network().unwrap().contains(&address) && now < it.until.0);
                    proptest::prop_assert_eq!(rules.is_denied(client(address), Micros(now)), naive);
                }
            }
        }
    }

    #[test]
    fn each_ends_at_its_time_and_of_two_for_one_network_the_later_counts() {
        let short = entry("203.0.113.0/24", NOW.plus(HOUR));
        let long = entry("203.0.113.0/24", NOW.plus(2 * HOUR));
        let rules = rules(vec![long, short]);
        let address = ip("203.0.113.9");
        assert!(rules.is_denied(client(address), NOW.plus(2 * HOUR - Duration::from_micros(1))));
        assert!(!rules.is_denied(client(address), NOW.plus(2 * HOUR)));
        assert!(rules.settings().in_force(NOW.plus(2 * HOUR)).is_empty());
        assert_eq!(rules.settings().in_force(NOW.plus(HOUR)).deny.len(), 1);
    }

    #[test]
    fn everybody_is_challenged_until_the_end_alone() {
        let settings =
            AccessSettings { challenge_everyone_until: Some(NOW.plus(HOUR)), ..AccessSettings::default() };
        let rules = AccessRules::from(settings);
        assert_eq!(rules.challenges_everyone(NOW), Some(HOUR));
        assert_eq!(rules.challenges_everyone(NOW.plus(HOUR)), None);
        assert_eq!(AccessRules::default().challenges_everyone(NOW), None);
    }

    #[test]
    fn a_pause_covers_every_number_that_begins_so_and_the_longest_counts() {
        let pause = |prefix: &str, hours: u32| SmsPause {
            prefix: prefix.to_owned(),
            until: NOW.plus(HOUR * hours),
            reason: "pumping".to_owned(),
        };
        let pauses = vec![pause("+86138", 1), pause("+861380", 2), pause("+7", 0)];
        let rules = AccessRules::from(AccessSettings { pause_sms: pauses, ..AccessSettings::default() });
        assert_eq!(rules.paused("+8613800138000", NOW), Some(HOUR * 2));
        assert_eq!(rules.paused("+8613900138000", NOW), None);
        assert_eq!(rules.paused("+8613811111111", NOW), Some(HOUR));
        assert_eq!(rules.paused("+79161234567", NOW), None, "it has ended");
    }
}
