//! `[store]`: where window logs are kept, and how long an answer may take.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::document::ValueNode;
use super::reader::ParseResult;
use super::section::section;
use super::values::{SECOND, duration, path_if_any, text};
use crate::throttle::RedisUrl;

section! {
    StoreSettings in "store" {
        url: StoreUrl = StoreUrl::Memory, store_url;
        /// Certificates in PEM that may have signed those of the servers, beside Mozilla's roots.
        ca_file: Option<PathBuf> = None, path_if_any;
        /// After this time the store counts as down for the call.
        timeout: Duration = Duration::from_millis(100), duration(Duration::from_millis(10)..=SECOND * 5);
    }
}

#[derive(Clone, PartialEq, Eq, Default)]
pub enum StoreUrl {
    /// In this process: for a single instance, and lost when it ends.
    #[default]
    Memory,
    Redis(RedisUrl),
}

/// Without the password, so that a debug line does not reveal it.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Redis(url) => url.fmt(f),
        }
    }
}

fn store_url(node: ValueNode) -> ParseResult<StoreUrl> {
    let text = text(node)?;
    if text == "memory:" {
        return Ok(StoreUrl::Memory);
    }
    redis_url(&text)
}

pub(super) fn redis_url(text: &str) -> ParseResult<StoreUrl> {
    RedisUrl::parse(text).map(StoreUrl::Redis)
}
