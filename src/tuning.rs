//! The limits, the answers to an attack and the applications in force, as administrators read and change them: drafts,
//! saves, history, instances.

mod history;
mod instances;
pub mod replay;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::audit::Audit;
use crate::clock::{Clock, Micros};
use crate::config::{self, Limits, LiveHandle, LiveSettings, Overridden};
use crate::db::{Db, DbError};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::request_id;
use crate::stop::StopSignal;
use replay::PreviewService;

pub use crate::config::{
    BackendKind, CheckedEdit, Draft, DraftError, Edit, LiveSection, RefusedChange, SaveError, SavedEdit,
};
pub use history::{ChangeCursor, LimitsChange};
pub use instances::Instance;
pub use replay::{PreviewError, PreviewProgress, PreviewReport};

/// Clones share it.
#[derive(Clone)]
pub struct Tuning(Arc<TuningInner>);

struct TuningInner {
    live: LiveHandle,
    db: Db,
    clock: Clock,
    entropy: Entropy,
    audit: Audit,
    /// This instance's id, its name for the others, and since when it is there.
    instance: String,
    host: String,
    started_at: Micros,
    /// The newest change in the history that was in force on this instance. Locked while one is recorded.
    recorded: Mutex<history::NewestChange>,
    previews: PreviewService,
    /// Each administrator and each token has one draft read at a time.
    draft_turns: DraftTurns,
    preview_turns: DraftTurns,
}

/// What is in force in this instance.
#[derive(Debug, Clone)]
pub struct CurrentLimits {
    /// The version of the document, in 12 hexadecimal digits, which a save must name.
    pub version: String,
    pub backend: BackendKind,
    /// Why the backend does not answer; the last known document is then in force.
    pub backend_down: Option<String>,
    pub live: Arc<LiveSettings>,
    pub overridden: Overridden,
    /// A newer document that is not in force, and why.
    pub refused: Option<RefusedChange>,
    pub document: Arc<str>,
}

/// The author of a change.
pub struct ChangeAuthor {
    /// The account's id.
    pub account: String,
    pub login: String,
    pub reason: String,
}

impl Tuning {
    /// `host` is this instance's name for the others: the machine and the port.
    pub fn new(foundation: &Foundation, live: LiveHandle, audit: Audit, host: String) -> Self {
        let Foundation { db, clock, entropy, .. } = foundation.clone();
        Self(Arc::new(TuningInner {
            instance: row_id(&entropy),
            host,
            started_at: clock.now(),
            live,
            db,
            clock,
            entropy,
            audit,
            recorded: Mutex::new(None),
            previews: PreviewService::default(),
            draft_turns: DraftTurns::default(),
            preview_turns: DraftTurns::default(),
        }))
    }

    /// The version of the document in force.
    pub fn version(&self) -> String {
        version_of(&self.0.live.in_force())
    }

    pub fn current(&self) -> CurrentLimits {
        let live = &self.0.live;
        let in_force = live.in_force();
        CurrentLimits {
            version: version_of(&in_force),
            backend: live.backend(),
            backend_down: live.backend_down(),
            live: Arc::clone(&in_force.live),
            overridden: live.overridden(),
            refused: live.last_refused(),
            document: Arc::clone(&in_force.document),
        }
    }

    /// What the draft would have done to the attempts of the last `span`, beside the limits in force. One
    /// preview runs at a time: a second one waits, or is told that another is running. Of each reader, an account or a
    /// token, one at a time waits among the others.
    pub async fn preview(
        &self,
        reader: &str,
        draft: Limits,
        span: Duration,
        progress: PreviewProgress,
    ) -> Result<PreviewReport, PreviewError> {
        let TuningInner { live, db, clock, audit, previews, preview_turns, .. } = &*self.0;
        let own = tokio::time::timeout(PATIENCE, preview_turns.of(reader).lock_owned()).await;
        let _own = own.map_err(|_| PreviewError::Busy)?;
        audit.flush().await;
        let limits = live.snapshot().limits.clone();
        let since = self.changed_at().await?;
        let base = replay::PreviewBase { limits, since };
        previews.preview((db, clock), base, draft, span, progress).await
    }

    /// Reads a draft of `reader`, an account or a token, off the caller's thread. None if others of the same reader
    /// take too long.
    pub async fn read_draft<T: Send + 'static>(
        &self,
        reader: &str,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        request_id::in_turn(&self.0.draft_turns.of(reader), PATIENCE, async move { read() }).await
    }

    /// Puts an edit in force, if `if_match` is the current version of the document. After `Ok` it is in force
    /// in this instance; the others follow within a second, or within `live.poll` if the news of it is lost.
    pub async fn save(
        &self,
        edit: CheckedEdit,
        if_match: &str,
        author: ChangeAuthor,
    ) -> Result<SavedEdit, SaveError> {
        let Some(control) = self.0.live.control() else {
            const WHY: &str =
                "the configuration of this server is not watched; start it with a configuration file";
            return Err(SaveError::Backend(WHY.to_owned()));
        };
        let (this, control, seen) = (self.clone(), control.clone(), if_match.to_owned());
        // On its own task: the caller may hang up, and the change is still recorded.
        let saving =
            request_id::spawn(async move { this.put_and_record(&control, edit, &seen, &author).await });
        let gone = |_| SaveError::Backend("the save did not finish; check what is in force".to_owned());
        saving.await.map_err(gone)?
    }

    async fn put_and_record(
        &self,
        control: &config::WatchControl,
        edit: CheckedEdit,
        seen: &str,
        author: &ChangeAuthor,
    ) -> Result<SavedEdit, SaveError> {
        // Locked over both, so that the history is in the order of the saves.
        let mut recorded = self.0.recorded.lock().await;
        let saved = control.save(edit, seen).await?;
        // A document that was there already keeps its author.
        if saved.version != seen
            && let Err(error) = self.write(&mut recorded, &saved.version, &saved.texts, Some(author)).await
        {
            // It is in force even if the history could not be written; it will be recorded later without its
            // author.
            tracing::error!(%error, "a change of the document could not be written to the history yet");
        }
        Ok(saved)
    }

    /// Keeps the history and the list of instances up to date until it is stopped: at every change, and every
    /// few seconds. It ends between two rounds, so that none of its writes comes after [`Self::leave`].
    pub async fn run(&self, mut stop: StopSignal) {
        let mut changes = self.0.live.changes();
        loop {
            self.sync_once().await;
            self.0.previews.tidy(&self.0.clock);
            tokio::select! {
                () = stop.told() => return,
                () = tokio::time::sleep(instances::EVERY) => {}
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    /// One round of [`Self::run`].
    pub async fn sync_once(&self) {
        for failed in [self.record().await.err(), self.heartbeat().await.err()].into_iter().flatten() {
            tracing::warn!(error = %failed, "the history of the document and the list of instances are not up to date");
        }
    }
}

/// Twelve hexadecimal digits; `none` if there is no document.
fn version_of(in_force: &config::InForceConfig) -> String {
    in_force.fingerprint.map_or_else(|| "none".to_owned(), |version| version.to_string())
}

/// Makes the id of a change or an instance.
fn row_id(entropy: &Entropy) -> String {
    format!("{:016x}", u64::from_be_bytes(entropy.bytes()))
}

impl TuningInner {
    async fn now(&self) -> Result<Micros, DbError> {
        self.db.now(&self.clock).await
    }
}

/// How many changes back the author of an entry is looked for.
const LOOKED_AT: u32 = 100;

/// The change that put an entry of `[access]` in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessOrigin {
    pub at: Micros,
    /// The name of the author; None if the document was edited by hand.
    pub login: Option<String>,
    pub reason: Option<String>,
}

impl Tuning {
    /// Returns who put each of these lines of `[access]` in force: the oldest of the changes that have had it without
    /// a break. None if that is not recorded yet.
    pub async fn access_origins(&self, lines: &[String]) -> Result<Vec<Option<AccessOrigin>>, DbError> {
        if lines.is_empty() {
            return Ok(Vec::new());
        }
        let changes = self.access_history(LOOKED_AT).await?;
        let mut origins = vec![None; lines.len()];
        let mut followed: Vec<usize> = (0..lines.len()).collect();
        for (access, origin) in &changes {
            let had: HashSet<&str> = access.lines().map(|line| line.trim().trim_end_matches(',')).collect();
            followed.retain(|&index| had.contains(lines[index].as_str()));
            followed.iter().for_each(|&index| origins[index] = Some(origin.clone()));
        }
        Ok(origins)
    }
}

/// How long to wait for other drafts of the same reader.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct DraftTurns(parking_lot::Mutex<HashMap<String, Arc<Mutex<()>>>>);

impl DraftTurns {
    fn of(&self, reader: &str) -> Arc<Mutex<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(reader.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_draft_of_a_reader_is_read_at_a_time_and_off_its_thread() {
        let turns = DraftTurns::default();
        let in_turn = async |reader, patience, read: Box<dyn FnOnce() -> bool + Send>| {
            request_id::in_turn(&turns.of(reader), patience, async move { read() }).await
        };
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let caller = std::thread::current().id();
        let first = in_turn(
            "alice",
            PATIENCE,
            Box::new(move || {
                wait.recv().unwrap();
                std::thread::current().id() != caller
            }),
        );
        let others = async {
            // The first one has its turn: it was polled before.
            let second = in_turn("alice", Duration::ZERO, Box::new(|| true)).await;
            let program = in_turn("monitor (t1)", Duration::ZERO, Box::new(|| true)).await;
            done.send(()).unwrap();
            (second, program)
        };
        assert_eq!(tokio::join!(first, others), (Some(true), (None, Some(true))));
        assert_eq!(
            in_turn("alice", Duration::ZERO, Box::new(|| true)).await,
            Some(true),
            "her turn has come back"
        );
        assert_eq!(turns.0.lock().len(), 1, "nobody is remembered for longer");
    }
}
