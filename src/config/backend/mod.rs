//! Where the document with the limits is kept: what every such place has to do, and which there are.

mod file;
mod folder;
#[cfg(feature = "nacos")]
mod nacos;
mod redis;
mod waker;

use std::path::Path;
use std::time::Duration;

pub(super) use file::{FileBackend, find};
pub(super) use waker::WatchWaker;

use self::redis::RedisBackend;
use super::live_backend::{BackendKind, BackendSettings};
use super::settings::Settings;
use super::store::StoreUrl;

/// Far beyond any real document: a wrong path (a log, a device) must not fill the memory.
pub(super) const LARGEST: u64 = 1024 * 1024;

/// What was found there. Two that are equal need no second look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendRead {
    Bytes(Vec<u8>),
    Missing,
    /// Something stands there that cannot be taken for a document.
    Unreadable(String),
    /// Nobody knows what stands there: what keeps it does not answer.
    Down(String),
}

impl BackendRead {
    /// The document; of nothing it is the empty one.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Missing => Some(&[]),
            Self::Unreadable(_) | Self::Down(_) => None,
        }
    }
}

/// What came of putting a document there.
#[derive(Debug, PartialEq, Eq)]
pub enum SwapResult {
    Done,
    /// Another one stands there than the caller expected; nothing was written.
    Overtaken(BackendRead),
}

/// A place where the document is kept. One thread of an instance calls it, and may be kept waiting; any
/// number of instances may use the same place.
///
/// A place is given a `Waker` when it is made, and calls its `changed` whenever the document may have
/// changed: too often does no harm, and too seldom is mended by polling. Everything else is done for it: its
/// documents are judged, put in force or refused, and, where it is a service that has none, the one in force
/// is put there.
pub trait LimitsBackend: Send {
    fn kind(&self) -> BackendKind;

    /// What problems are told with: the path of the file, the name of the key.
    fn place(&self) -> &Path;

    /// What stands there now. May wait two seconds at most. `known` is what was judged last: a place whose
    /// documents can be seen half-written looks again until it has settled, unless it finds that one.
    fn read(&mut self, known: Option<&BackendRead>) -> BackendRead;

    /// Puts `next` there if what stands there is still `expected`, in one step: of several callers that
    /// expect the same one succeeds. `Err` says why it cannot be done, and what to do about it; then
    /// nothing was written. May wait five seconds at most.
    fn swap(&mut self, expected: &BackendRead, next: &str) -> Result<SwapResult, String>;

    /// Called before every wait: sees to it that changes are told.
    fn listen(&mut self);

    /// How long to wait at the most before looking again, whatever was told.
    fn poll(&self) -> Duration;
}

/// The program that keeps the limits, if one does.
pub(super) fn service(running: &Settings, waker: &WatchWaker) -> Option<Box<dyn LimitsBackend>> {
    let BackendSettings { backend, url, key, poll, .. } = &running.backend;
    match backend {
        BackendKind::Fixed | BackendKind::File => None,
        BackendKind::Redis => {
            let url = match (url, &running.store.url) {
                (Some(StoreUrl::Redis(url)), _) | (None, StoreUrl::Redis(url)) => url.clone(),
                _ => return None,
            };
            Some(Box::new(RedisBackend::new(url, key.clone(), *poll, waker.clone())))
        }
        #[cfg(feature = "nacos")]
        BackendKind::Nacos => {
            let nacos = running.backend.nacos.clone()?;
            Some(Box::new(nacos::NacosBackend::new(nacos, *poll, waker.clone())))
        }
        // A configuration that asks for it is refused by this build.
        #[cfg(not(feature = "nacos"))]
        BackendKind::Nacos => None,
    }
}
