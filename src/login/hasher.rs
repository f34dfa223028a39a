//! The bounded pool for all password hashing: argon2id, and what imported passwords were hashed with.

mod response_timing;
mod scheduler;
mod workers;

use std::convert::Infallible;
use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use argon2::{Block, Params};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{OnceCell, oneshot};
use tracing::Instrument;

use self::response_timing::ResponseTiming;
use self::workers::{HashTurn, HashWorkers};
use super::guess::{GuessKeys, GuessTag};
use super::{BreachedList, Password, PasswordError};
use crate::accounts::Username;
use crate::accounts::stored_hash::{HashCost, HashFunction, Phc, StoredHash};
use crate::clock::Clock;
use crate::config::PasswordSettings as HashSettings;
use crate::entropy::Entropy;
use crate::secret::MasterKey;
use crate::{secret, spans};

pub use scheduler::{HashCaller, HashLane};

const OUTPUT_BYTES: usize = 32;
/// The longest wait for a worker: a slot taken at the limiter must not expire meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A stranger without a solved challenge gets an answer sooner, even if only a challenge: half of the longest
/// wait.
const LONGEST_WAIT_UNSOLVED: Duration = Duration::from_millis(2500);
/// How long a caller without a solved challenge waits to be told that there is no room. A flood sends its
/// next attempt when it has its answer. Without this delay, 1,500 connections kept the worker threads so busy
/// that a sign-in, which needs about seven turns there, took more than a second.
const REFUSAL_TAKES: Duration = Duration::from_secs(1);
const MOST_WORKERS: usize = 1024;
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Hashes passwords, `workers` at a time, in the order of `HashScheduler`. Clones share the pool.
#[derive(Clone)]
pub struct PasswordHasher(Arc<HasherPool>);

struct HasherPool {
    params: Params,
    function: HashFunction,
    breached: BreachedList,
    guesses: GuessKeys,
    /// Shaped like a hash with these parameters, but its output is random. Each name has a salt of its own.
    decoy: StoredHash,
    entropy: Entropy,
    workers: HashWorkers,
    worker_count: usize,
    /// Memory of finished hashes, at most one for each worker, kept for the next. Under load memory use stays level, and
    /// no hash has to fault in 19 MiB first (which took 0.2 to 0.9 ms of 17). It is not wiped (which takes 1 ms):
    /// somebody who can read this memory can read passwords as they arrive, too.
    arenas: Mutex<Vec<Vec<Block>>>,
    computed: AtomicU64,
    decoys: AtomicU64,
    mean_micros: AtomicU64,
    /// While there are imported passwords.
    timing: RwLock<Option<ResponseTiming>>,
    /// See [`response_timing::measure_slowness`].
    slowness: OnceCell<f64>,
    patient: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyResult {
    pub ok: bool,
    /// Not before that time: all answers share a deadline while there are imported passwords.
    answer_at: Option<Instant>,
    /// Right, but imported, or hashed with other parameters than today's: should be hashed again now.
    pub rehash: bool,
    /// Whether the right password is a lost one; None if it was wrong, or nobody can tell.
    pub breached: Option<bool>,
    /// A few bits by which a wrong password is known again at the same name. A right one never has any.
    pub tag: Option<GuessTag>,
}

impl VerifyResult {
    /// An answer before its time tells imported passwords from others.
    pub async fn wait_for_answer(self) {
        if let Some(at) = self.answer_at {
            tokio::time::sleep_until(at.into()).await;
        }
    }
}

/// What a password is compared with.
#[derive(Debug, Clone, Copy)]
pub enum ComparedHash<'a> {
    Open(&'a Phc),
    /// The hash of a password that is disabled for this client: it is computed, and nothing matches it.
    Shut(&'a Phc),
    /// There is no password: a hash with a salt of this name, which nothing matches.
    Decoy(&'a Username),
}

/// There was no room to wait, another caller had priority, or it took too long. Nothing was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("password hashing is busy")]
pub struct HasherBusy {
    pub retry_after: Duration,
}

impl PasswordHasher {
    /// # Errors
    /// Where argon2 has no such parameters (less than 8 KiB of memory a lane, no pass, no lane).
    pub fn new(
        settings: HashSettings,
        breached: BreachedList,
        secrets: &MasterKey,
        clock: Clock,
        entropy: Entropy,
    ) -> Result<Self, argon2::Error> {
        let HashSettings { memory_kib, iterations, parallelism, workers, queue } = settings;
        let params = Params::new(memory_kib, iterations, parallelism, Some(OUTPUT_BYTES))?;
        let workers = workers.clamp(1, MOST_WORKERS);
        let salt = Vec::new();
        let output = entropy.bytes::<OUTPUT_BYTES>().to_vec();
        let function = HashFunction::own(params.clone());
        response_timing::note_deadline(None);
        Ok(Self(Arc::new(HasherPool {
            decoy: StoredHash { function: function.clone(), salt, output, imported: false },
            function,
            breached,
            guesses: GuessKeys::new(secrets),
            params,
            entropy,
            workers: HashWorkers::start(workers, queue, clock),
            worker_count: workers,
            arenas: Mutex::default(),
            computed: AtomicU64::new(0),
            decoys: AtomicU64::new(0),
            mean_micros: AtomicU64::new(50_000),
            timing: RwLock::new(None),
            slowness: OnceCell::new(),
            patient: AtomicBool::new(false),
        })))
    }

    /// Whether there is room for this caller now. Check it before anything else is taken for the caller;
    /// hashing checks again. A refusal takes a second.
    pub async fn has_room(&self, caller: &HashCaller) -> Result<(), HasherBusy> {
        if self.0.workers.has_room(caller) {
            return Ok(());
        }
        if !caller.solved() && !self.0.patient.load(Ordering::SeqCst) {
            tokio::time::sleep(REFUSAL_TAKES).await;
        }
        Err(self.0.busy())
    }

    /// The hash to store for a new password, if it is acceptable: it must not consist of `own`, a name or a number, and must
    /// not be a lost one.
    /// Estimating whether it is guessable takes up to 30 ms for an adversarial input, so a worker does that, too.
    pub async fn hash_new_for(
        &self,
        caller: &HashCaller,
        input: &str,
        own: &str,
    ) -> Result<Result<Phc, PasswordError>, HasherBusy> {
        let password = match Password::choose(input) {
            Ok(password) => password,
            Err(refused) => return Ok(Err(refused)),
        };
        let own = own.to_owned();
        self.work(caller, pending(), move |pool, _| {
            if password.guessable(&own) {
                return Err(PasswordError::Guessable);
            }
            match pool.breached.contains(&password) {
                Some(true) => Err(PasswordError::Breached),
                Some(false) | None => Ok(pool.hash(&password)),
            }
        })
        .await
    }

    /// Hashes a password for somebody at the machine itself.
    pub async fn hash_new(
        &self,
        input: &str,
        login: &Username,
    ) -> Result<Result<Phc, PasswordError>, HasherBusy> {
        self.hash_new_for(&HashCaller::OPERATOR, input, login.as_str()).await
    }

    /// The hash to store for a password that was checked already, with its own salt.
    pub async fn hash(&self, caller: &HashCaller, password: &Password) -> Result<Phc, HasherBusy> {
        let password = password.clone();
        self.work(caller, pending(), move |pool, _| pool.hash(&password)).await
    }

    /// Whether the password matches the hash. Without an open hash a decoy is
    /// computed, so that the answer `false` takes as long. The same happens if the stored hash is damaged or
    /// its parameters are out of bounds, which is logged.
    ///
    /// While there are imported passwords, each answer takes the same time from the start of its turn; see
    /// `response_timing.rs`. This returns at the end of the turn, which is the same for all, too, so that slots are not held
    /// until the answer. Otherwise a hash that was stored with other parameters takes the time of those until it is hashed
    /// again: after a change of the parameters, the response time tells such an account from none.
    ///
    /// If `hung_up` resolves first, the caller stops waiting; a hash that has begun runs to its end.
    pub async fn verify(
        &self,
        caller: &HashCaller,
        hung_up: impl Future<Output = ()>,
        password: &Password,
        with: ComparedHash<'_>,
    ) -> Result<VerifyResult, HasherBusy> {
        let phc = match with {
            ComparedHash::Open(phc) | ComparedHash::Shut(phc) => Some(phc),
            ComparedHash::Decoy(_) => None,
        };
        let real = phc.and_then(|phc| {
            let stored = StoredHash::parse(phc.as_str(), &self.0.params);
            if stored.is_none() {
                tracing::error!(
                    "a stored password hash is damaged or out of bounds; its account cannot sign in"
                );
            }
            stored
        });
        let known = real.is_some() && matches!(with, ComparedHash::Open(_));
        let salt = match with {
            ComparedHash::Decoy(login) => self.0.guesses.decoy_salt(login),
            // Only where what is stored is damaged.
            ComparedHash::Open(phc) | ComparedHash::Shut(phc) => {
                self.0.guesses.salt_of(phc.as_str().as_bytes())
            }
        };
        let mut stored = real.unwrap_or_else(|| StoredHash { salt, ..self.0.decoy.clone() });
        if matches!(with, ComparedHash::Shut(_)) {
            stored.output = self.0.decoy.output.iter().copied().cycle().take(stored.output.len()).collect();
        }
        let imported = stored.imported;
        let stale = imported || stored.function != self.0.function;
        if imported && self.timing().is_none() {
            // It was imported a moment ago.
            self.update_timing(Some(stored.cost())).await;
        }
        let timing = self.timing();
        // Its weight is that of a stranger's turn.
        let caller = if imported { caller.as_stranger() } else { *caller };
        let compared = password.clone();
        let same = self.work(&caller, hung_up, move |pool, turn| {
            let typed = if imported { compared.bytes_as_typed() } else { compared.bytes() };
            let StoredHash { function, salt, output, .. } = &stored;
            let computed = pool.compute(typed, function, salt, output.len());
            let same = secret::same(&computed, output);
            let tag = (!same).then(|| pool.guesses.tag(&computed));
            (same, tag, timing.map(|timing| (timing, turn)))
        });
        let (same, tag, timed) = same.await?;
        let answer_at = match timed {
            Some((timing, turn)) => Some(finish(timing, turn).await),
            None => None,
        };
        let ok = same & known;
        if !known {
            self.0.decoys.fetch_add(1, Ordering::SeqCst);
        }
        let breached = if ok { self.0.breached.contains(password) } else { None };
        Ok(VerifyResult { ok, answer_at, rehash: ok && stale, breached, tag })
    }

    /// Follows the slowest of the imported passwords; None if there are none. Clones follow, too.
    pub(super) async fn update_timing(&self, slowest_hash: Option<HashCost>) {
        if self.timing().map(|timing| timing.slowest_hash) == slowest_hash {
            return;
        }
        let timing = match slowest_hash {
            None => None,
            Some(slowest_hash) => {
                let measured =
                    || async { tokio::task::spawn_blocking(response_timing::measure_slowness).await };
                let slowness = self.0.slowness.get_or_try_init(measured).await.copied().unwrap_or(1.0);
                let own = self.0.function.cost(OUTPUT_BYTES);
                Some(ResponseTiming::of(slowest_hash, own, slowness, self.0.worker_count))
            }
        };
        self.0.workers.set_most_strangers(timing.map_or(usize::MAX, |timing| timing.strangers));
        match timing {
            Some(timing) => {
                tracing::info!(
                    answer = ?timing.answer,
                    "there are imported passwords: sign-ins are answered at one deadline"
                );
                if timing.is_too_slow() {
                    tracing::warn!(
                        expected = ?timing.expected,
                        "the dearest imported password takes longer than the deadline: its answers tell it from others"
                    );
                }
            }
            None => tracing::info!("no imported password is left: sign-ins are answered at once"),
        }
        response_timing::note_deadline(timing);
        *self.0.timing.write() = timing;
    }

    pub fn guesses(&self) -> &GuessKeys {
        &self.0.guesses
    }

    /// The lost passwords that none may be.
    pub fn breached(&self) -> &BreachedList {
        &self.0.breached
    }

    fn timing(&self) -> Option<ResponseTiming> {
        *self.0.timing.read()
    }

    /// Within this time, 95 of 100 passwords were taken up in the last five minutes, in the lane where it took longest; None
    /// if there were none.
    pub fn waited(&self) -> Option<Duration> {
        self.0.workers.waited()
    }

    pub fn waiting(&self, lane: HashLane) -> usize {
        self.0.workers.waiting(lane)
    }

    /// Keeps every worker busy until the returned value is dropped, for tests of what happens meanwhile.
    /// `patient`: callers wait as long as it takes, however slow the test machine is, and refusals are
    /// immediate.
    #[doc(hidden)]
    pub async fn keep_busy(&self, patient: bool) -> Vec<mpsc::Sender<Infallible>> {
        self.0.patient.store(patient, Ordering::SeqCst);
        let mut kept = Vec::new();
        for _ in 0..self.0.worker_count {
            let (release, released) = mpsc::channel::<Infallible>();
            let (tell, begun) = oneshot::channel();
            let work = Box::new(move |_turn| {
                let _ = tell.send(());
                let _ = released.recv();
            });
            let waiting = self.0.workers.push(&HashCaller::OPERATOR, work);
            begun.await.expect("a worker");
            drop(waiting);
            kept.push(release);
        }
        kept
    }

    /// How many hashes were computed so far, for any reason.
    pub fn verifications(&self) -> u64 {
        self.0.computed.load(Ordering::SeqCst)
    }

    /// How many of them were decoys, which no password matches.
    pub fn decoys(&self) -> u64 {
        self.0.decoys.load(Ordering::SeqCst)
    }

    async fn work<T: Send + 'static>(
        &self,
        caller: &HashCaller,
        hung_up: impl Future<Output = ()>,
        job: impl FnOnce(&HasherPool, HashTurn) -> T + Send + 'static,
    ) -> Result<T, HasherBusy> {
        let (tell, mut told) = oneshot::channel();
        let pool = Arc::clone(&self.0);
        let work = Box::new(move |turn| {
            // The receiver may be gone.
            let _ = tell.send(job(&pool, turn));
        });
        let busy = || self.0.busy();
        let waiting = self.0.workers.push(caller, work).ok_or_else(busy)?;
        let answer = async {
            tokio::select! {
                biased;
                done = &mut told => return done.map_err(|_| busy()),
                () = self.0.lose_patience(caller) => {}
                () = hung_up => {}
            }
            // A hash that has begun is waited for, because its outcome counts.
            if waiting.withdraw() { Err(busy()) } else { told.await.map_err(|_| busy()) }
        };
        answer.instrument(spans::hash()).await
    }
}

impl HasherPool {
    async fn lose_patience(&self, caller: &HashCaller) {
        if self.patient.load(Ordering::SeqCst) {
            return pending().await;
        }
        let unsolved = !caller.solved() && !caller.is_known();
        tokio::time::sleep(if unsolved { LONGEST_WAIT_UNSOLVED } else { LONGEST_WAIT }).await;
    }

    /// The time in which all who wait now will have been served, in whole seconds for Retry-After.
    fn busy(&self) -> HasherBusy {
        let waiting: usize = HashLane::ALL.iter().map(|lane| self.workers.waiting(*lane)).sum();
        let mean = Duration::from_micros(self.mean_micros.load(Ordering::Relaxed));
        let (at_once, each) =
            self.timing.read().map_or((self.worker_count, mean), |timing| (timing.strangers, timing.turn));
        let rounds = u32::try_from((waiting + at_once).div_ceil(at_once)).unwrap_or(u32::MAX);
        let retry_after =
            Duration::from_secs(each.saturating_mul(rounds).as_micros().div_ceil(1_000_000) as u64);
        HasherBusy { retry_after: retry_after.clamp(Duration::from_secs(1), LONGEST_RETRY) }
    }

    fn hash(&self, password: &Password) -> Phc {
        let salt = self.entropy.bytes::<{ argon2::RECOMMENDED_SALT_LEN }>();
        let output = self.compute(password.bytes(), &self.function, &salt, OUTPUT_BYTES);
        Phc::encode(&self.params, &salt, &output)
    }

    #[expect(clippy::disallowed_methods, reason = "measures how long a hash takes, for retry_after")]
    fn compute(&self, password: &[u8], function: &HashFunction, salt: &[u8], length: usize) -> Vec<u8> {
        let start = Instant::now();
        let blocks = function.blocks();
        let kept = self.arenas.lock().pop().filter(|arena| arena.len() >= blocks);
        let mut arena = kept.unwrap_or_else(|| arena_of(blocks));
        let output = function.compute(password, salt, length, &mut arena[..blocks]);
        // The extra memory of an expensive stored hash is freed.
        if arena.len() <= self.params.block_count() {
            self.arenas.lock().push(arena);
        }
        self.computed.fetch_add(1, Ordering::SeqCst);
        metrics::counter!("gatehouse_password_hashes_total").increment(1);
        let mean = self.mean_micros.load(Ordering::Relaxed);
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.mean_micros.store((mean / 8 * 7).saturating_add(micros / 8), Ordering::Relaxed);
        output
    }
}

/// Ends a turn, and returns when it may be answered.
async fn finish(timing: ResponseTiming, turn: HashTurn) -> Instant {
    let started = turn.started;
    tokio::time::sleep(timing.turn.saturating_sub(started.elapsed())).await;
    drop(turn);
    started + timing.answer_after(started.elapsed())
}

/// Memory for a hash, in huge pages if the system has them: a hash reads all over its 19 MiB, and looking up
/// 4,864 small pages takes a good part of its time.
fn arena_of(blocks: usize) -> Vec<Block> {
    let mut arena = Vec::with_capacity(blocks);
    #[cfg(target_os = "linux")]
    advise_huge_pages(&mut arena);
    arena.resize(blocks, Block::new());
    arena
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "there is no safe call for advice on memory that Rust allocated")]
fn advise_huge_pages(arena: &mut Vec<Block>) {
    // The advice applies to whole pages, of at most 64 KiB on any processor that Linux supports.
    const PAGE: usize = 64 * 1024;
    let room = arena.spare_capacity_mut().as_mut_ptr_range();
    let start = (room.start as usize).next_multiple_of(PAGE);
    let length = (room.end as usize).saturating_sub(start) / PAGE * PAGE;
    if length > 0 {
        // SAFETY: the pages are inside memory that this vector owns, and the advice changes how they are
        // backed, not what they contain. If it is refused nothing changes.
        unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests;
