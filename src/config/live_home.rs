//! `[live]`: where the document with the limits is kept, for all instances.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::home::{HomeKind, RedisHome};
use super::nacos::NacosSettings;
use super::reader::Section;
use super::store::redis_url;
use super::values::{duration, text, without_password, word};

/// What the string on Redis is called where nothing else is said.
const KEY: &str = "gh:live";

#[derive(Clone, PartialEq, Eq)]
pub struct HomeSettings {
    /// [`HomeKind::File`], or a service.
    pub home: HomeKind,
    /// Of Redis; `None`: that of the store.
    pub url: Option<Url>,
    /// What the document is called there.
    pub key: String,
    /// How often a service is looked at, whatever it announces.
    pub poll: Duration,
    /// Where it is that: [`HomeKind::Nacos`].
    pub nacos: Option<NacosSettings>,
}

impl Default for HomeSettings {
    fn default() -> Self {
        Self {
            home: HomeKind::File,
            url: None,
            key: KEY.to_owned(),
            poll: Duration::from_secs(5),
            nacos: None,
        }
    }
}

/// Without the password, so that a debug line tells nobody.
impl fmt::Debug for HomeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { home, url, key, poll, nacos } = self;
        let url = url.as_ref().map(without_password);
        write!(f, "{} {url:?} {key:?} {poll:?} {nacos:?}", home.as_str())
    }
}

impl HomeSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        let bounds = Duration::from_millis(100)..=Duration::from_secs(60 * 60);
        let homes = [("file", HomeKind::File), ("redis", HomeKind::Redis), ("nacos", HomeKind::Nacos)];
        let home_at = section.place_of("home");
        let home = section.value("home", default.home, word(&homes));
        let chosen = home_at.filter(|_| home == HomeKind::Nacos);
        if let (Some(reason), Some(place)) = (missing_client(cfg!(feature = "nacos")), &chosen) {
            section.refuse(place.clone(), section.path_of("home"), reason);
        }
        let nacos = section.section("nacos", |inner| NacosSettings::read(inner, chosen.as_ref()));
        Self {
            home,
            url: section.optional("url", |node| redis_url(&text(node)?)),
            key: section.value("key", default.key, text),
            poll: section.value("poll", default.poll, duration(bounds)),
            nacos: nacos.filter(|_| home == HomeKind::Nacos),
        }
    }

    /// What the document is called where something is wrong with it, where it is not in the file.
    pub fn place(&self) -> PathBuf {
        self.nacos.as_ref().map_or_else(|| RedisHome::place(&self.key), NacosSettings::place)
    }
}

/// What a build is told that cannot speak to a config centre.
pub(super) const fn missing_client(built_in: bool) -> Option<&'static str> {
    if built_in {
        return None;
    }
    Some(
        "is \"nacos\", and this build has no client for it; build one that has: cargo build --release --features nacos",
    )
}
