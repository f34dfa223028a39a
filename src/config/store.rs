//! `[store]`: where window logs are kept, and how long an answer may take.

use std::fmt;
use std::time::Duration;

use url::Url;

use super::document::ValueNode;
use super::reader::ParseResult;
use super::section::section;
use super::values::{SECOND, duration, text, without_password};

section! {
    StoreSettings in "store" {
        url: StoreUrl = StoreUrl::Memory, store_url;
        /// After this time the store counts as down for the call.
        timeout: Duration = Duration::from_millis(100), duration(Duration::from_millis(10)..=SECOND * 5);
    }
}

#[derive(Clone, PartialEq, Eq, Default)]
pub enum StoreUrl {
    /// In this process: for a single instance, and lost when it ends.
    #[default]
    Memory,
    /// `redis://` or `rediss://`
    Redis(Url),
}

/// Without the password, so that a debug line does not reveal it.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Redis(url) => f.write_str(&without_password(url)),
        }
    }
}

fn store_url(node: ValueNode) -> ParseResult<StoreUrl> {
    const SPOKEN: &str = "use memory:, redis:// or rediss://";
    let text = text(node)?;
    if text == "memory:" {
        return Ok(StoreUrl::Memory);
    }
    match text.split_once("://") {
        Some(("redis" | "rediss", _)) => redis_url(&text),
        Some((scheme, _)) => Err(format!("has the scheme {scheme:?}; {SPOKEN}")),
        None => Err(format!("is not a URL; {SPOKEN}")),
    }
}

pub(super) fn redis_url(text: &str) -> ParseResult<StoreUrl> {
    const WANTED: &str = "write it as \"redis://user:password@host:6379/0\"";
    let url = Url::parse(text).map_err(|wrong| format!("is not a URL ({wrong}); {WANTED}"))?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err(format!("names no host; {WANTED}"));
    }
    let database = url.path().trim_start_matches('/');
    if !database.is_empty() && database.parse::<u16>().is_err() {
        return Err(format!("has a path that is not a database number; {WANTED}"));
    }
    Ok(StoreUrl::Redis(url))
}
