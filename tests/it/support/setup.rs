//! How a test app is configured: by limits and keys rather than by text.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::app::{Store, TestApp};

#[derive(Clone)]
pub struct Setup {
    pub(super) store: Store,
    /// A server that the test may stop.
    pub(super) own_postgres: bool,
    /// Instead of one that a test moves. That of Redis stands still until it is moved.
    pub(super) real_clocks: bool,
    /// The host in its URL.
    pub(super) host: &'static str,
    /// The text of the configuration file.
    pub(super) file: String,
    /// Over the file: `captcha.provider` and the like.
    pub(super) keys: BTreeMap<String, String>,
}

impl TestApp {
    pub fn on(store: Store) -> Setup {
        Setup {
            store,
            own_postgres: false,
            real_clocks: false,
            host: "127.0.0.1",
            file: String::new(),
            keys: BTreeMap::new(),
        }
    }
}

impl Setup {
    /// Over a PostgreSQL of its own, whatever the store.
    pub fn own_postgres(self) -> Self {
        Self { own_postgres: true, ..self }
    }

    /// With the machine's clock, and the database's; a test moves that of Redis.
    pub fn by_real_clocks(self) -> Self {
        Self { real_clocks: true, ..self }
    }

    /// At a domain instead of an address, as passkeys need it.
    pub fn at_localhost(self) -> Self {
        Self { host: "localhost", ..self }
    }

    /// The file so far, as its owner has written it.
    pub fn file(self, toml: &str) -> Self {
        Self { file: toml.to_owned(), ..self }
    }

    /// More of the file.
    pub fn file_more(mut self, toml: &str) -> Self {
        self.file += toml;
        self
    }

    /// A key outside the limits: `set("sms.brake.enabled", false)`.
    pub fn set(mut self, key: &str, value: impl Display) -> Self {
        self.keys.insert(key.to_owned(), value.to_string());
        self
    }

    /// Clients are told apart by what they say they were forwarded for.
    pub fn behind_a_proxy(self) -> Self {
        self.set("server.trusted_proxies", "['127.0.0.0/8']")
    }

    pub fn limit(mut self, name: &str, rules: &[Rule]) -> Self {
        let rules: Vec<_> = rules.iter().map(|rule| format!("{{ {} }}", rule.0)).collect();
        self.file += &format!("[limits.{name}]\nrules = [{}]\n", rules.join(", "));
        self
    }

    /// Without the rules of these limits.
    pub fn without(self, limits: &[&str]) -> Self {
        limits.iter().fold(self, |setup, name| setup.limit(name, &[]))
    }

    /// Whether a key under this one is set.
    pub(super) fn sets(&self, under: &str) -> bool {
        self.keys.keys().any(|key| key.starts_with(under))
    }

    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let name =
            |key: &str| format!("GATEHOUSE__{}", key.to_uppercase().replace('.', "__").replace('-', "_"));
        self.keys.iter().map(|(key, value)| (name(key), value.clone())).collect()
    }
}

/// A rule as a configuration writes it: `max(3).per("1m").captcha()`. Without the last it blocks.
pub struct Rule(String);

pub struct Max(u32);

pub fn max(max: u32) -> Max {
    Max(max)
}

impl Max {
    pub fn per(self, window: &str) -> Rule {
        Rule(format!("max = {}, window = '{window}'", self.0))
    }
}

impl Rule {
    pub fn captcha(self) -> Self {
        Self(self.0 + ", then = 'captcha'")
    }
}
