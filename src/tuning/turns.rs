//! Drafts are read on threads of their own: of each administrator and each token one at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Tuning;

/// How long to wait for other drafts of the same reader.
const PATIENCE: Duration = Duration::from_secs(5);

/// Those who have a draft read.
#[derive(Default)]
pub(super) struct DraftTurns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl DraftTurns {
    fn of(&self, reader: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(reader.to_owned()).or_default())
    }

    /// None if it is not the reader's turn within the patience. A caller who hangs up keeps the turn to the end.
    async fn read<T: Send + 'static>(
        &self,
        reader: &str,
        patience: Duration,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = tokio::time::timeout(patience, self.of(reader).lock_owned()).await.ok()?;
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            read()
        });
        Some(reading.await.expect("reading a draft does not panic"))
    }
}

impl Tuning {
    /// Reads a draft of `reader`, an account or a token, off the caller's thread. None if others of the same reader
    /// take too long.
    pub async fn read_draft<T: Send + 'static>(
        &self,
        reader: &str,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.0.draft_turns.read(reader, PATIENCE, read).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_draft_of_a_reader_is_read_at_a_time_and_off_its_thread() {
        let turns = DraftTurns::default();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let caller = std::thread::current().id();
        let first = turns.read("alice", PATIENCE, move || {
            wait.recv().unwrap();
            std::thread::current().id() != caller
        });
        let others = async {
            // The first one has its turn: it was polled before.
            let second = turns.read("alice", Duration::ZERO, || ()).await;
            let program = turns.read("monitor (t1)", Duration::ZERO, || ()).await;
            done.send(()).unwrap();
            (second, program)
        };
        assert_eq!(tokio::join!(first, others), (Some(true), (None, Some(()))));
        assert_eq!(turns.read("alice", Duration::ZERO, || 2).await, Some(2), "her turn has come back");
        assert_eq!(turns.0.lock().unwrap().len(), 1, "nobody is remembered for longer");
    }
}
