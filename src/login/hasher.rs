//! The bounded pool that all password hashing goes through (argon2id).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::phc::{Phc, Stored};
use super::{Password, PasswordError, Username};
use crate::entropy::Entropy;
use crate::secret;

const OUTPUT_BYTES: usize = 32;
/// Nobody waits longer for a worker: a slot taken at the limiter is not to die meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const PERMITS_A_WORKER: usize = 2;
const MOST_WORKERS: usize = 1024;
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// What a hash costs, and how many run and wait at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashSettings {
    pub memory_kib: u32,
    pub iterations: u32,
    pub parallelism: u32,
    /// Hashes computed at once; each keeps `memory_kib` of memory for good.
    pub workers: usize,
    /// Callers that wait for a worker; any more are refused.
    pub queue: usize,
}

impl Default for HashSettings {
    /// The OWASP password storage cheat sheet's first choice of argon2id, on every core.
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { memory_kib: 19_456, iterations: 2, parallelism: 1, workers, queue: 256 }
    }
}

/// Hashes passwords, `workers` at a time, first come first served. Clones share the pool.
#[derive(Clone)]
pub struct Hasher(Arc<Pool>);

struct Pool {
    params: Params,
    /// In the shape of a hash with these parameters, but of nothing: its output is random.
    decoy: Stored,
    entropy: Entropy,
    /// For each worker the job that it does and the one that it has at hand.
    permits: Arc<Semaphore>,
    jobs: mpsc::Sender<Job>,
    workers: usize,
    queue: usize,
    waiting: AtomicUsize,
    /// Memory of finished hashes, at most one a worker: under load its use stays level, and no hash first
    /// faults in 19 MiB (that took 0.2 to 0.9 ms of 17).
    arenas: Mutex<Vec<Vec<Block>>>,
    computed: AtomicU64,
    decoys: AtomicU64,
    mean_micros: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    pub ok: bool,
    /// Right, but hashed with other parameters than today's: hash it again while it is at hand.
    pub rehash: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// Workers and queue are full; nothing was computed.
    #[error("password hashing is busy")]
    Busy { retry_after: Duration },
    /// The process is ending.
    #[error("password hashing has stopped")]
    Stopped,
}

impl Hasher {
    /// # Errors
    /// Where argon2 has no such parameters (less than 8 KiB of memory a lane, no pass, no lane).
    pub fn new(settings: HashSettings, entropy: Entropy) -> Result<Self, argon2::Error> {
        let HashSettings { memory_kib, iterations, parallelism, workers, queue } = settings;
        let params = Params::new(memory_kib, iterations, parallelism, Some(OUTPUT_BYTES))?;
        let workers = workers.clamp(1, MOST_WORKERS);
        let salt = entropy.bytes::<{ argon2::RECOMMENDED_SALT_LEN }>().to_vec();
        let output = entropy.bytes::<OUTPUT_BYTES>().to_vec();
        Ok(Self(Arc::new(Pool {
            decoy: Stored { params: params.clone(), salt, output },
            params,
            entropy,
            permits: Arc::new(Semaphore::new(workers * PERMITS_A_WORKER)),
            jobs: start_workers(workers),
            workers,
            queue,
            waiting: AtomicUsize::new(0),
            arenas: Mutex::default(),
            computed: AtomicU64::new(0),
            decoys: AtomicU64::new(0),
            mean_micros: AtomicU64::new(50_000),
        })))
    }

    /// The hash to store for a password that is being chosen, if it will do. Whether it is guessable takes
    /// up to 30 ms to estimate where the input is made to be slow, so that is a worker's business too.
    pub async fn hash_new(
        &self,
        input: &str,
        login: &Username,
    ) -> Result<Result<Phc, PasswordError>, HashError> {
        self.hash_beside(input, login.as_str()).await
    }

    /// The same for an account of which only something else is known: `own` is what it must not be made of.
    pub async fn hash_beside(&self, input: &str, own: &str) -> Result<Result<Phc, PasswordError>, HashError> {
        let password = match Password::choose(input) {
            Ok(password) => password,
            Err(refused) => return Ok(Err(refused)),
        };
        let own = own.to_owned();
        self.work(move |pool| match password.guessable(&own) {
            true => Err(PasswordError::Guessable),
            false => Ok(pool.hash(&password)),
        })
        .await
    }

    /// The hash to store for a password that was judged already, with a salt of its own.
    pub async fn hash(&self, password: &Password) -> Result<Phc, HashError> {
        let password = password.clone();
        self.work(move |pool| pool.hash(&password)).await
    }

    /// Whether the password is the one that was hashed. With no hash (no such account, or none that a
    /// password opens) a decoy is computed, so that the answer `false` takes as long; the same where
    /// the stored hash is damaged or its parameters are out of bounds, which is logged.
    ///
    /// A hash stored with other parameters takes the time that those take, until it is hashed again:
    /// after the parameters have been changed, such an account can be told by a stopwatch from none.
    pub async fn verify(&self, password: &Password, phc: Option<&Phc>) -> Result<Verified, HashError> {
        let real = phc.and_then(|phc| {
            let stored = Stored::parse(phc.as_str(), &self.0.params);
            if stored.is_none() {
                tracing::error!(
                    "a stored password hash is damaged or beyond bounds; its account cannot sign in"
                );
            }
            stored
        });
        let known = real.is_some();
        let Stored { params, salt, output } = real.unwrap_or_else(|| self.0.decoy.clone());
        let stale = params != self.0.params;
        let password = password.clone();
        let same = self.work(move |pool| {
            let computed = pool.compute(&password, params, &salt, output.len());
            secret::same(&computed, &output)
        });
        let ok = same.await? & known;
        if !known {
            self.0.decoys.fetch_add(1, Ordering::SeqCst);
        }
        Ok(Verified { ok, rehash: ok && stale })
    }

    /// How many hashes were computed so far, for whatever reason.
    pub fn verifications(&self) -> u64 {
        self.0.computed.load(Ordering::SeqCst)
    }

    /// How many of them were decoys: whatever the password, it was not right.
    pub fn decoys(&self) -> u64 {
        self.0.decoys.load(Ordering::SeqCst)
    }

    async fn work<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Pool) -> T + Send + 'static,
    ) -> Result<T, HashError> {
        let permit = self.0.admit().await?;
        let (pool, (tell, told)) = (Arc::clone(&self.0), oneshot::channel());
        // The permit goes with the work, not with the caller: one that hangs up frees no worker early.
        let work = Box::new(move || {
            let _permit = permit;
            // Nobody may be listening any more.
            let _ = tell.send(job(&pool));
        });
        self.0.jobs.send(work).map_err(|_| HashError::Stopped)?;
        told.await.map_err(|_| HashError::Stopped)
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads of their own, which take the next job without having slept: where each hash had its thread
/// woken first, a seventh of two cores stood idle. They end with the pool.
fn start_workers(workers: usize) -> mpsc::Sender<Job> {
    let (jobs, queue) = mpsc::channel::<Job>();
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..workers {
        let queue = Arc::clone(&queue);
        let take = move || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let run = move || {
            while let Ok(job) = take() {
                // One that panics answers nobody, and takes no worker with it.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        };
        std::thread::Builder::new().name("password-hash".into()).spawn(run).expect("a thread");
    }
    jobs
}

impl Pool {
    /// A worker, at once or after those who came before.
    async fn admit(&self) -> Result<OwnedSemaphorePermit, HashError> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let _place = self.place()?;
        let permit = Arc::clone(&self.permits).acquire_owned();
        match tokio::time::timeout(LONGEST_WAIT, permit).await {
            Ok(permit) => permit.map_err(|_| HashError::Stopped),
            Err(_) => {
                Err(HashError::Busy { retry_after: self.drained_in(self.waiting.load(Ordering::Relaxed)) })
            }
        }
    }

    fn place(&self) -> Result<Place<'_>, HashError> {
        let taken = self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |waiting| {
            (waiting < self.queue).then_some(waiting + 1)
        });
        match taken {
            Ok(_) => Ok(Place(&self.waiting)),
            Err(waiting) => Err(HashError::Busy { retry_after: self.drained_in(waiting) }),
        }
    }

    /// When those who wait now will have been served; whole seconds, as Retry-After counts.
    fn drained_in(&self, waiting: usize) -> Duration {
        let rounds = (waiting + self.workers).div_ceil(self.workers) as u64;
        let micros = self.mean_micros.load(Ordering::Relaxed).saturating_mul(rounds);
        Duration::from_secs(micros.div_ceil(1_000_000)).clamp(Duration::from_secs(1), LONGEST_RETRY)
    }

    fn hash(&self, password: &Password) -> Phc {
        let salt = self.entropy.bytes::<{ argon2::RECOMMENDED_SALT_LEN }>();
        let output = self.compute(password, self.params.clone(), &salt, OUTPUT_BYTES);
        Phc::encode(&self.params, &salt, &output)
    }

    #[expect(clippy::disallowed_methods, reason = "measures how long a hash takes, for retry_after")]
    fn compute(&self, password: &Password, params: Params, salt: &[u8], length: usize) -> Vec<u8> {
        let start = std::time::Instant::now();
        let blocks = params.block_count();
        let mut arena = self.arenas.lock().expect("never held in a panic").pop().unwrap_or_default();
        if arena.len() < blocks {
            arena = arena_of(blocks);
        }
        let mut output = vec![0; length];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into_with_memory(password.bytes(), salt, &mut output, &mut arena[..blocks])
            .expect("parameters and lengths were checked");
        // Not wiped (1 ms more): whoever reads this memory reads passwords as they arrive as well.
        // What a dearer stored hash needed is given back.
        if arena.len() <= self.params.block_count() {
            self.arenas.lock().expect("never held in a panic").push(arena);
        }
        self.computed.fetch_add(1, Ordering::SeqCst);
        metrics::counter!("gatehouse_password_hashes_total").increment(1);
        let mean = self.mean_micros.load(Ordering::Relaxed);
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.mean_micros.store((mean / 8 * 7).saturating_add(micros / 8), Ordering::Relaxed);
        output
    }
}

/// Memory for a hash, in huge pages where the system has them to give: a hash reads its 19 MiB all over,
/// and looking up 4,864 small pages is a good part of its time.
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
    // Advice is for whole pages, of at most 64 KiB on any processor that Linux runs on.
    const PAGE: usize = 64 * 1024;
    let room = arena.spare_capacity_mut().as_mut_ptr_range();
    let start = (room.start as usize).next_multiple_of(PAGE);
    let length = (room.end as usize).saturating_sub(start) / PAGE * PAGE;
    if length > 0 {
        // SAFETY: the pages lie whole within memory that this vector owns, and this advice changes how
        // they are backed, not what they hold. Where it is refused everything stays as it was.
        unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_HUGEPAGE) };
    }
}

/// A place in the queue, given back by whoever stops waiting for whatever reason.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
