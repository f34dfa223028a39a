//! The backends that keep the document with the limits, and what each of them must do.

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

/// Far larger than any real document: a wrong path (a log, a device) must not fill the memory.
pub(super) const LARGEST: u64 = 1024 * 1024;

/// What was found there. An equal result need not be judged again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendRead {
    Bytes(Vec<u8>),
    Missing,
    /// There is something that cannot be a document.
    Unreadable(String),
    /// Unknown, because the backend does not answer.
    Down(String),
}

impl BackendRead {
    /// The document; empty if there is none.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Missing => Some(&[]),
            Self::Unreadable(_) | Self::Down(_) => None,
        }
    }
}

/// The result of writing a document.
#[derive(Debug, PartialEq, Eq)]
pub enum SwapResult {
    Done,
    /// There is another document than the caller expected; nothing was written.
    Overtaken(BackendRead),
}

/// A place where the document is kept. One thread of an instance calls it, and may block; any number of
/// instances may use the same place.
///
/// A place gets a `WatchWaker` when it is created, and calls its `changed` whenever the document may have
/// changed: too often does no harm, and too seldom is made up for by polling. Everything else is done for it:
/// its documents are judged and put in force or refused. If it is a service without a document, the one in
/// force is written to it.
pub trait LimitsBackend: Send {
    fn kind(&self) -> BackendKind;

    /// The name of the place in problems: the path of the file, or the name of the key.
    fn place(&self) -> &Path;

    /// The current document. May block for at most two seconds. `known` is what was judged last: a place
    /// whose documents can be seen half-written reads again until the document has settled, unless it finds
    /// that one.
    fn read(&mut self, known: Option<&BackendRead>) -> BackendRead;

    /// Replaces the document with `next` if it is still `expected`, in one step: of several callers that
    /// expect the same one succeeds. `Err` says why it cannot be done and what to do about it; then nothing
    /// was written. May block for at most five seconds.
    fn swap(&mut self, expected: &BackendRead, next: &str) -> Result<SwapResult, String>;

    /// Called before every wait: makes sure that changes are announced.
    fn listen(&mut self);

    /// How long to wait at most before reading again, without an announcement.
    fn poll(&self) -> Duration;
}

/// The service that keeps the limits, if one does.
pub(super) fn service(running: &Settings, waker: &WatchWaker) -> Option<Box<dyn LimitsBackend>> {
    let BackendSettings { backend, url, key, poll, .. } = &running.backend;
    match backend {
        BackendKind::Fixed | BackendKind::File => None,
        BackendKind::Redis => {
            let url = match (url, &running.store.url) {
                (Some(StoreUrl::Redis(url)), _) | (None, StoreUrl::Redis(url)) => url.clone(),
                _ => return None,
            };
            let ca_file = running.store.ca_file.clone();
            Some(Box::new(RedisBackend::new(url, ca_file, key.clone(), *poll, waker.clone())))
        }
        #[cfg(feature = "nacos")]
        BackendKind::Nacos => {
            let nacos = running.backend.nacos.clone()?;
            Some(Box::new(nacos::NacosBackend::new(nacos, *poll, waker.clone())))
        }
        // This build refuses a configuration that asks for it.
        #[cfg(not(feature = "nacos"))]
        BackendKind::Nacos => None,
    }
}
