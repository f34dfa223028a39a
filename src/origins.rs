//! Where addresses come from, by files of one's own: the autonomous system, the country, and lists of networks. It asks
//! nobody, so there is no outage of it; a file that cannot be read changes nothing, and what was read last stays in use.

mod key;
mod read;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use ipnet::{IpNet, Ipv4Net};

use crate::clock::Micros;
use crate::files::FileState;
use read::OriginTable;

pub use key::{OriginKey, OriginSource, is_list_name};
pub use read::{OriginError, read};

/// The files in use. Clones share them.
#[derive(Clone, Default)]
pub struct Origins(Arc<ArcSwap<OriginFiles>>);

impl fmt::Debug for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Origins(…)")
    }
}

/// All files as they were read at one time.
#[derive(Default)]
pub struct OriginFiles(Vec<Arc<OriginFile>>);

pub struct OriginFile {
    source: OriginSource,
    path: PathBuf,
    /// The state of the file when it was last read, or tried.
    state: Option<FileState>,
    table: Option<Arc<OriginTable>>,
    /// When the file in use was made: what a database says of itself, or when a list was changed.
    built: Micros,
    refused: Option<String>,
}

/// From then on a file is told to be old. Providers publish a new one every day, week or month.
const OLD: Duration = Duration::from_secs(45 * 24 * 60 * 60);

impl Origins {
    /// What is in use now. Nobody waits for it.
    pub fn in_use(&self) -> Guard<Arc<OriginFiles>> {
        self.0.load()
    }

    /// Reads the files that are others than before. It may take seconds: call it where blocking is allowed, and from one
    /// thread at a time.
    pub fn follow(&self, wanted: &[(OriginSource, PathBuf)]) {
        let before = self.0.load_full();
        let files: Vec<_> = wanted.iter().map(|(source, path)| before.followed(source, path)).collect();
        let up = if files.iter().all(|file| file.refused.is_none()) { 1.0 } else { 0.0 };
        metrics::gauge!("gatehouse_origin_files_up").set(up);
        self.0.store(Arc::new(OriginFiles(files)));
    }
}

impl OriginFiles {
    fn file(&self, source: &OriginSource) -> Option<&Arc<OriginFile>> {
        self.0.iter().find(|file| file.source == *source)
    }

    fn followed(&self, source: &OriginSource, path: &PathBuf) -> Arc<OriginFile> {
        let (state, before) = (FileState::of(path), self.file(source));
        if let Some(same) = before.filter(|file| file.path == *path && file.state == state) {
            return Arc::clone(same);
        }
        let (source, path) = (source.clone(), path.clone());
        Arc::new(match read(&source, &path) {
            Ok((table, built)) => {
                tracing::info!(%source, path = %path.display(), "the origins of addresses were read");
                OriginFile { source, path, state, table: Some(Arc::new(table)), built, refused: None }
            }
            Err(error) => {
                let text = error.to_string();
                if before.is_none_or(|file| file.refused.as_ref() != Some(&text)) {
                    tracing::error!(%source, %error, "origins: the file is not in use; what was read before stays");
                }
                let state = state.filter(|_| !error.may_pass());
                let (table, built) = before.map(|file| (file.table.clone(), file.built)).unwrap_or_default();
                OriginFile { source, path, state, table, built, refused: Some(text) }
            }
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|file| file.table.is_none())
    }

    /// Why files that are named are not in use.
    pub fn refused(&self) -> Vec<String> {
        let refused = |file: &Arc<OriginFile>| Some(format!("{}: {}", file.source, file.refused.as_ref()?));
        self.0.iter().filter_map(refused).collect()
    }

    /// Which files in use are old.
    pub fn old(&self, now: Micros) -> Vec<String> {
        let in_use = self.0.iter().filter(|file| file.table.is_some());
        in_use.filter(|file| now.since(file.built) >= OLD).map(|file| file.source.to_string()).collect()
    }

    /// Whether a file is in use that tells such an origin.
    pub fn knows(&self, key: &OriginKey) -> bool {
        self.file(&key.source()).is_some_and(|file| file.table.is_some())
    }

    /// Every origin of an address, one for each file at most.
    pub fn of_address(&self, ip: IpAddr) -> impl Iterator<Item = OriginKey> {
        self.0.iter().filter_map(move |file| match &**file.table.as_ref()? {
            OriginTable::Asn { numbers, .. } => numbers.get(ip).map(OriginKey::Asn),
            OriginTable::Country(countries) => countries.get(ip).map(OriginKey::Country),
            OriginTable::List(_) => file.lists(|list| list.get(ip).is_some()),
        })
    }

    /// The origins of a network: those of its first address, and the lists that have all of it.
    pub fn of_network(&self, network: IpNet) -> impl Iterator<Item = OriginKey> {
        let told = self.of_address(network.network()).filter(|key| !matches!(key, OriginKey::List(_)));
        told.chain(self.0.iter().filter_map(move |file| file.lists(|list| list.covers(network))))
    }

    /// Whether some address of a network has this origin.
    pub fn meets(&self, network: IpNet, key: &OriginKey) -> bool {
        let Some(table) = self.file(&key.source()).and_then(|file| file.table.as_deref()) else {
            return false;
        };
        match (table, key) {
            (OriginTable::Asn { numbers, .. }, OriginKey::Asn(number)) => {
                numbers.any(network, |it| it == *number)
            }
            (OriginTable::Country(countries), OriginKey::Country(code)) => {
                countries.any(network, |it| it == *code)
            }
            (OriginTable::List(list), OriginKey::List(_)) => list.any(network, |()| true),
            _ => false,
        }
    }

    /// An origin for people: `AS64496 Example Hosting`, `DE`, `list:tor`.
    pub fn name(&self, key: &OriginKey) -> String {
        match key {
            OriginKey::Asn(number) => {
                match self.file(&OriginSource::Asn).and_then(|file| file.table.as_deref()) {
                    Some(OriginTable::Asn { names, .. }) => {
                        let name = names.get(number).map_or("", |name| name);
                        format!("AS{number} {name}").trim_end().to_owned()
                    }
                    _ => format!("AS{number}"),
                }
            }
            OriginKey::Country(code) => code.as_str().to_owned(),
            OriginKey::List(_) => key.to_string(),
        }
    }

    /// The origins of a network in a line; None if no file has any.
    pub fn label(&self, network: IpNet) -> Option<String> {
        let names: Vec<_> = self.of_network(network).map(|key| self.name(&key)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

impl OriginFile {
    /// The list, if it is one that fits.
    fn lists(&self, fits: impl Fn(&table::RangeTable<()>) -> bool) -> Option<OriginKey> {
        match (self.table.as_deref()?, &self.source) {
            (OriginTable::List(list), OriginSource::List(name)) if fits(list) => {
                Some(OriginKey::List(Arc::clone(name)))
            }
            _ => None,
        }
    }
}

/// An IPv4 network that is written as IPv6 (`::ffff:10.0.0.0/104`), as IPv4: addresses are compared as such.
pub fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    v6.addr()
        .to_ipv4_mapped()
        .and_then(|v4| Ipv4Net::new(v4, v6.prefix_len().checked_sub(96)?).ok())
        .map_or(network, IpNet::V4)
}
