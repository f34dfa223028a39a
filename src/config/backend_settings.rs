//! `[live]` and `[live.nacos]`: where the document with the limits is kept, for all instances.

use std::path::PathBuf;
use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

use super::document::ValueNode;
use super::error::ConfigLocation;
use super::reader::{ParseResult, SectionReader, WithinSection, section};
use super::sections::{StoreUrl, redis_url};
use super::values::{MINUTE, SECOND, SecretRef, duration, secret, text, word};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoStaticStr, VariantArray)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum BackendKind {
    /// The configuration file itself, which contains everything else, too.
    #[default]
    File,
    /// A string on Redis with the live settings only.
    Redis,
    /// A document in a Nacos-compatible config centre with the live settings only.
    Nacos,
}

section! {
    BackendSettings in "live" {
        /// The config centre, if the backend is [`BackendKind::Nacos`].
        nacos: Option<NacosSettings> = None, WithinSection(nacos);
        backend: BackendKind = BackendKind::File, word(&BACKENDS);
        /// The Redis server; `None`: that of the store.
        url: Option<StoreUrl> = None, |node| redis_url(&text(node)?).map(Some);
        key: String = "gh:live".to_owned(), text;
        /// How often a service is read, whatever it announces.
        poll: Duration = SECOND * 5, duration(Duration::from_millis(100)..=MINUTE * 60);
    }
}

const BACKENDS: [(&str, BackendKind); 3] =
    [("file", BackendKind::File), ("redis", BackendKind::Redis), ("nacos", BackendKind::Nacos)];

fn nacos(section: &mut SectionReader<'_>, key: &'static str) -> Option<Option<NacosSettings>> {
    let chosen = section.place_of("backend").filter(|_| section.says("backend", "nacos"));
    if let (Some(reason), Some(_)) = (missing_client(cfg!(feature = "nacos")), &chosen) {
        section.refuse_key("backend", reason);
    }
    let nacos = section.section(key, |inner| NacosSettings::read(inner, chosen.as_ref()));
    Some(nacos.filter(|_| chosen.is_some()))
}

impl BackendSettings {
    /// The name of the document in problems, if it is not the file.
    pub fn place(&self) -> PathBuf {
        let redis = || PathBuf::from(format!("redis {}", self.key));
        self.nacos.as_ref().map_or_else(redis, NacosSettings::place)
    }
}

/// What a build without the client answers.
pub(super) fn missing_client(built_in: bool) -> Option<&'static str> {
    (!built_in).then_some(
        "is \"nacos\", but this build does not support it; build one that does: cargo build --release --features nacos",
    )
}

const GROUP: &str = "DEFAULT_GROUP";
const DATA_ID: &str = "gatehouse.toml";
/// Its clients also use a port this far above the configured one.
const ABOVE: u16 = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NacosSettings {
    /// `host:port` of its HTTP server.
    pub server: String,
    /// The id of a namespace; empty for the public one.
    pub namespace: String,
    pub group: String,
    pub data_id: String,
    pub account: Option<NacosAccount>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NacosAccount {
    pub username: SecretRef,
    pub password: SecretRef,
}

impl NacosSettings {
    /// `chosen` is the place where this backend is selected, and `None` if another one is: then keys may be
    /// missing.
    pub(super) fn read(section: &mut SectionReader<'_>, chosen: Option<&ConfigLocation>) -> Option<Self> {
        let place = chosen.map(|chosen| section.place().unwrap_or(chosen).clone());
        let missing = "is missing; live.backend = \"nacos\" requires it: \"host:8848\"";
        let server = section.required_at(place, "server", missing, server);
        let namespace = section.value("namespace", String::new(), |node| name(node, true));
        let group = section.value("group", GROUP.to_owned(), |node| name(node, false));
        let data_id = section.value("data_id", DATA_ID.to_owned(), |node| name(node, false));
        let username = section.optional("username", |node| SecretRef::parse(text(node)?));
        let password = section.optional("password", secret);
        for (one, other) in [("username", "password"), ("password", "username")] {
            if let (true, false, Some(place)) = (section.has(one), section.has(other), section.place_of(one))
            {
                section.refuse(place, section.path_of(other), "is missing; set both or neither");
            }
        }
        let account = username.zip(password).map(|(username, password)| NacosAccount { username, password });
        Some(Self { server: server?, namespace, group, data_id, account })
    }

    /// The name of the document in problems.
    pub fn place(&self) -> PathBuf {
        let Self { namespace, group, data_id, .. } = self;
        let before = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        PathBuf::from(format!("nacos {before}{group}/{data_id}"))
    }
}

fn server(node: ValueNode) -> ParseResult<String> {
    let text = text(node)?;
    let wanted = "is not a server address; write host and port: \"nacos.internal:8848\"";
    let (host, port) = text.rsplit_once(':').ok_or(wanted)?;
    let port: u16 = port.parse().map_err(|_| wanted)?;
    url::Host::parse(host).map_err(|_| wanted)?;
    if port == 0 || port.checked_add(ABOVE).is_none() {
        return Err(format!("has a port that is not possible: calls use the port {ABOVE} above it"));
    }
    Ok(text)
}

fn name(node: ValueNode, may_be_empty: bool) -> ParseResult<String> {
    let text = node.text()?;
    let fits = |letter: char| letter.is_ascii_alphanumeric() || ".:-_".contains(letter);
    if text.len() > 128 || !text.chars().all(fits) || (text.is_empty() && !may_be_empty) {
        return Err("is not a valid name; use at most 128 letters, digits and . : - _".to_owned());
    }
    Ok(text)
}
