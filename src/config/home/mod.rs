//! Where the document with the limits is kept: what every such place has to do, and which there are.

mod file;
#[cfg(feature = "nacos")]
mod nacos;
mod redis;

use std::path::Path;
use std::time::Duration;

pub(super) use file::FileHome;
#[cfg(feature = "nacos")]
pub(super) use nacos::NacosHome;
pub(super) use redis::RedisHome;

/// Which kind of place it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HomeKind {
    /// None: nothing reloads this configuration, and nothing can save it.
    #[default]
    Fixed,
    /// The configuration file itself, which holds everything else, too.
    File,
    /// A string on Redis, with what is live alone.
    Redis,
    /// A document in a Nacos-compatible config centre, with what is live alone.
    Nacos,
}

impl HomeKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::File => "file",
            Self::Redis => "redis",
            Self::Nacos => "nacos",
        }
    }
}

/// What was found there. Two that are equal need no second look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Bytes(Vec<u8>),
    Missing,
    /// Something stands there that cannot be taken for a document.
    Unreadable(String),
    /// Nobody knows what stands there: what keeps it does not answer.
    Down(String),
}

impl Found {
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
pub enum Swapped {
    Done,
    /// Another one stands there than the caller expected; nothing was written.
    Overtaken(Found),
}

/// A place where the document is kept. One thread of an instance calls it, and may be kept waiting; any
/// number of instances may use the same place.
///
/// A place is given a `Waker` when it is made, and calls its `changed` whenever the document may have
/// changed: too often does no harm, and too seldom is mended by polling. Everything else is done for it: its
/// documents are judged, put in force or refused, and, where it is a service that has none, the one in force
/// is put there.
pub trait Home: Send {
    fn kind(&self) -> HomeKind;

    /// What problems are told with: the path of the file, the name of the key.
    fn place(&self) -> &Path;

    /// What stands there now. May wait two seconds at most. `known` is what was judged last: a place whose
    /// documents can be seen half-written looks again until it has settled, unless it finds that one.
    fn read(&mut self, known: Option<&Found>) -> Found;

    /// Puts `next` there if what stands there is still `expected`, in one step: of several callers that
    /// expect the same one succeeds. `Err` says why it cannot be done, and what to do about it; then
    /// nothing was written. May wait five seconds at most.
    fn swap(&mut self, expected: &Found, next: &str) -> Result<Swapped, String>;

    /// Called before every wait: sees to it that changes are told.
    fn listen(&mut self);

    /// How long to wait at the most before looking again, whatever was told.
    fn poll(&self) -> Duration;
}
