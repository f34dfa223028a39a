//! A document in a Nacos-compatible config centre as the backend of the limits, for any number of instances.
//!
//! A swap names the MD5 of the document that it is based on. Nacos compares it and, if there is no document
//! yet, accepts only the first; r-nacos (0.8) accepts the MD5 and ignores it. So every swap reads before it
//! writes and again when it has settled, and is overtaken if there is another document then: of two at once
//! the last one to write is in force and the other is told, as long as a read and the following write take
//! less than [`SETTLE`]. If they take longer, and the server does not compare, a change that was confirmed
//! meanwhile may be overwritten; the log warns of this. And a document that is overtaken was in force for
//! that moment, whereas Nacos would not have accepted it.

mod client;
mod sign_in;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use self::client::{NacosClient, NacosDocument};
use super::{BackendRead, LimitsBackend, SwapResult, WatchWaker};
use crate::config::live_backend::BackendKind;
use crate::config::nacos::NacosSettings;

/// How long a document must be unchanged until nobody who saw the one before can still be writing.
const SETTLE: Duration = Duration::from_millis(300);
/// How long it may take until a written document can be read: Nacos reads from a copy that follows its
/// database.
const SHOWN_WITHIN: Duration = Duration::from_millis(1200);
const BETWEEN_READS: Duration = Duration::from_millis(50);
/// The interval in which nothing must be found twice: a server that starts may not have its documents yet.
const EMPTY: Duration = Duration::from_millis(500);
/// The MD5 used when there is no document: no other document has it, and the field is required.
const MD5_OF_NOTHING: &str = "d41d8cd98f00b204e9800998ecf8427e";

pub(in crate::config) struct NacosBackend {
    client: Result<NacosClient, String>,
    server: String,
    place: PathBuf,
    poll: Duration,
    waker: WatchWaker,
    /// Whether a document was ever seen there.
    seen: bool,
}

impl NacosBackend {
    pub fn new(settings: NacosSettings, poll: Duration, waker: WatchWaker) -> Self {
        let (server, place) = (settings.server.clone(), settings.place());
        Self { client: NacosClient::new(settings), server, place, poll, waker, seen: false }
    }

    fn get(&mut self) -> Result<Option<NacosDocument>, String> {
        self.client.as_mut().map_err(|reason| reason.clone())?.get()
    }

    fn publish(&mut self, content: &str, md5: &str) -> Result<(), String> {
        self.client.as_mut().map_err(|reason| reason.clone())?.publish(content, md5)
    }

    /// Nothing must be found twice, because then the document in force here would be written.
    fn find(&mut self) -> Result<BackendRead, String> {
        match self.get()? {
            None => {
                std::thread::sleep(EMPTY);
                self.get().map(found)
            }
            document => Ok(found(document)),
        }
    }

    /// What became of a document that was sent; `refused` is set if the server said that it did not accept
    /// it.
    fn settled(
        &mut self,
        before: &BackendRead,
        next: &str,
        refused: Option<String>,
    ) -> Result<SwapResult, String> {
        std::thread::sleep(SETTLE);
        let deadline = Instant::now() + SHOWN_WITHIN;
        loop {
            let reading = self.get().map(found);
            match &reading {
                Ok(BackendRead::Bytes(bytes)) if bytes == next.as_bytes() => return Ok(SwapResult::Done),
                Ok(found) if found != before => return Ok(SwapResult::Overtaken(found.clone())),
                _ => {}
            }
            if Instant::now() > deadline {
                return Err(match (refused, reading) {
                    (Some(reason), _) | (None, Err(reason)) => reason,
                    (None, Ok(_)) => format!("{} accepted it, but does not return it", self.server),
                });
            }
            std::thread::sleep(BETWEEN_READS);
        }
    }
}

impl LimitsBackend for NacosBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Nacos
    }

    fn place(&self) -> &Path {
        &self.place
    }

    fn read(&mut self, _: Option<&BackendRead>) -> BackendRead {
        let found = self.find().unwrap_or_else(BackendRead::Down);
        if !self.seen && matches!(found, BackendRead::Bytes(_)) {
            self.seen = true;
            self.listen();
        }
        found
    }

    fn swap(&mut self, expected: &BackendRead, next: &str) -> Result<SwapResult, String> {
        let started = Instant::now();
        let stands = self.get().map_err(|reason| {
            let place = self.place.display();
            format!("{place} cannot be written: {reason}; try again once it answers")
        })?;
        let md5 = stands.as_ref().map_or_else(|| MD5_OF_NOTHING.to_owned(), |document| document.md5.clone());
        let stands = found(stands);
        if stands != *expected {
            return Ok(SwapResult::Overtaken(stands));
        }
        let refused = self.publish(next, &md5).err();
        let took = started.elapsed();
        if took > SETTLE && refused.is_none() {
            tracing::warn!(place = %self.place.display(), ?took, "the config centre is slow; if it does not compare versions, this save may have overwritten another one: see the history of the limits");
        }
        self.settled(expected, next, refused).map_err(|reason| {
            format!(
                "it is not certain that {} was written: {reason}; check whether it is in force, and save it again if it is not",
                self.place.display()
            )
        })
    }

    fn listen(&mut self) {
        if let (true, Ok(client)) = (self.seen, &mut self.client) {
            client.listen(&self.waker);
        }
    }

    fn poll(&self) -> Duration {
        self.poll
    }
}

fn found(document: Option<NacosDocument>) -> BackendRead {
    document.map_or(BackendRead::Missing, |document| BackendRead::Bytes(document.content.into_bytes()))
}
