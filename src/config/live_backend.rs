//! `[live]`: where the document with the limits is kept, for all instances.

use std::path::PathBuf;
use std::time::Duration;

use super::nacos::NacosSettings;
use super::reader::{NoDefault, SectionReader, WithinSection};
use super::section::section;
use super::store::{StoreUrl, redis_url};
use super::values::{MINUTE, SECOND, duration, text, word};

/// Which kind of place it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendKind {
    /// None: nothing reloads this configuration, and nothing can save it.
    #[default]
    Fixed,
    /// The configuration file itself, which contains everything else, too.
    File,
    /// A string on Redis with the live settings only.
    Redis,
    /// A document in a Nacos-compatible config centre with the live settings only.
    Nacos,
}

impl BackendKind {
    pub const ALL: [Self; 4] = [Self::Fixed, Self::File, Self::Redis, Self::Nacos];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::File => "file",
            Self::Redis => "redis",
            Self::Nacos => "nacos",
        }
    }
}

section! {
    BackendSettings in "live" {
        /// The config centre, if the backend is [`BackendKind::Nacos`].
        nacos: Option<NacosSettings> = None, WithinSection(nacos);
        /// [`BackendKind::File`], or a service.
        backend: BackendKind = BackendKind::File, word(&BACKENDS);
        /// The Redis server; `None`: that of the store.
        url: Option<StoreUrl> = None, NoDefault(|node| redis_url(&text(node)?));
        /// The name of the document there.
        key: String = "gh:live".to_owned(), text;
        /// How often a service is read, whatever it announces.
        poll: Duration = SECOND * 5, duration(Duration::from_millis(100)..=MINUTE * 60);
    }
}

const BACKENDS: [(&str, BackendKind); 3] =
    [("file", BackendKind::File), ("redis", BackendKind::Redis), ("nacos", BackendKind::Nacos)];

fn nacos(section: &mut SectionReader<'_>, key: &'static str) -> Option<Option<NacosSettings>> {
    let chosen = section.place_of("backend").filter(|_| section.says("backend", "nacos"));
    if let (Some(reason), Some(place)) = (missing_client(cfg!(feature = "nacos")), &chosen) {
        section.refuse(place.clone(), section.path_of("backend"), reason);
    }
    let nacos = section.section(key, |inner| NacosSettings::read(inner, chosen.as_ref()));
    Some(nacos.filter(|_| chosen.is_some()))
}

impl BackendSettings {
    /// The name of the document in problems, if it is not the file.
    pub fn place(&self) -> PathBuf {
        self.nacos.as_ref().map_or_else(|| redis_place(&self.key), NacosSettings::place)
    }
}

/// The name of a string on Redis in problems.
pub(super) fn redis_place(key: &str) -> PathBuf {
    PathBuf::from(format!("redis {key}"))
}

/// What a build without the client answers.
pub(super) const fn missing_client(built_in: bool) -> Option<&'static str> {
    if built_in {
        return None;
    }
    Some(
        "is \"nacos\", but this build does not support it; build one that does: cargo build --release --features nacos",
    )
}
