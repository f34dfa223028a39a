//! Issues, draws and redeems challenges. Giving one out costs next to nothing and spends nothing. What is counted, in
//! this process, is images that are drawn, and proofs of work that were answered rightly: under the same limits, ten
//! proofs for an image, and each for themselves, so that neither uses up the other.
//!
//! A proof that was answered has cost its owner as much as anybody else's, so it is refused to nobody for what others at
//! the address have paid: a limit of addresses or networks that is full makes proofs dear, and refuses those only that
//! were given out before they were.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use gatehouse_limiter::{
    Bucket, HitDecision, Limit, LimitMode, Limiter, MemoryStore, Refusal, Rule, RuleAction, RulePeek,
};
use parking_lot::Mutex;
use quick_cache::sync::Cache;

use super::id::{CaptchaAnswers, ChallengeIds, CountedClient, VerifiedId};
use super::image::ChallengeImages;
use super::marks::{LocalMarks, SpentMarks};
use super::proof::{ProofAnswer, Proofs};
use super::slots::{Slot, Slots};
use super::{
    CaptchaAnswer, CaptchaClient, CaptchaForm, Challenge, Difficulty, Effort, ImageError, ImageRefusal,
    Provider, RedeemResult,
};
use crate::clock::{Clock, Micros};
use crate::config::{CaptchaTunables, LimitName, LiveSettings};
use crate::entropy::Entropy;
use crate::fair_queue::QueueOwner;
use crate::secret::{MasterKey, UniqueIds};

#[cfg(test)]
mod proof_tests;
#[cfg(test)]
mod redeem_tests;
#[cfg(test)]
mod solver_tests;
#[cfg(test)]
mod tests;

/// The subject of a total at our own forms.
const EVERYONE: &[u8] = b"everyone";

/// The limits by the index of their buckets. A network's share of the total is part of the total.
const LIMITS: [LimitName; 4] =
    [LimitName::CaptchaAddress, LimitName::CaptchaNetwork, LimitName::CaptchaTotal, LimitName::CaptchaTotal];
/// Where those begin that a limit of addresses or networks does not make dear.
const TOTALS: usize = 2;
/// So many answered proofs count as one image: an image costs a machine nothing.
const PROOFS_FOR_AN_IMAGE: u32 = 10;
/// From three quarters of what an address may have answered, proofs are the dearest, so that those given out before it
/// was that much are answered while there is room.
const DEAR_BEFORE_FULL: f64 = 4.0 / 3.0;
/// The part of a network, as for failures: strangers share a network, and must not set the highest price for each
/// other.
const MOST_OF_NETWORK: f64 = 0.5;

/// An image takes about 1.4 ms: the last one waits one and a half seconds on one core.
const MOST_WAITING: usize = 1_024;
/// An answer waits no longer than a password for its turn.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long a mark outlives its challenge: instances check expiry by their own clocks, and one that is behind
/// would otherwise accept an id whose mark has expired.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Instances with the same master key accept each other's challenges.
pub struct CaptchaService {
    ids: ChallengeIds,
    answers: CaptchaAnswers,
    pictures: ChallengeImages,
    proofs: Proofs,
    local: LocalMarks,
    shared: Option<Arc<dyn SpentMarks>>,
    clock: Clock,
    nonces: UniqueIds,
    standings: Standings,
    drawing: Limiter<MemoryStore>,
    proving: Limiter<MemoryStore>,
    /// Half of the cores draw, so that the other half answers requests.
    easels: Slots,
    /// A tenth of them derives: one in ten at any time, or fewer for a part of the time.
    derivers: Slots,
    at_work: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChallengeImage {
    pub png: Arc<[u8]>,
    pub form: CaptchaForm,
    /// It was not in the cache.
    pub drawn_now: bool,
}

impl CaptchaService {
    pub fn new(
        key: &MasterKey,
        provider: Provider,
        clock: Clock,
        entropy: &Entropy,
        drawing: Limiter<MemoryStore>,
        proving: Limiter<MemoryStore>,
    ) -> Self {
        let cores = available_parallelism().map_or(1, std::num::NonZero::get);
        let (derivers, at_work) = a_tenth(cores);
        Self {
            ids: ChallengeIds::new(key),
            answers: CaptchaAnswers::new(key, provider),
            pictures: ChallengeImages::new(key),
            proofs: Proofs::new(key),
            local: LocalMarks::new(clock.clone()),
            shared: None,
            clock,
            nonces: UniqueIds::new(entropy, "captcha.nonce"),
            standings: Standings::default(),
            drawing,
            proving,
            easels: Slots::new((cores / 2).max(1), MOST_WAITING),
            derivers: Slots::new(derivers, MOST_WAITING),
            at_work,
        }
    }

    /// Uses marks that other instances see, too. Without them a challenge can be redeemed once on each
    /// instance, and once more after a restart within its lifetime, so every setup with more than one
    /// instance needs them.
    #[must_use]
    pub fn with_shared_marks(self, shared: Arc<dyn SpentMarks>) -> Self {
        Self { shared: Some(shared), ..self }
    }

    /// A challenge. Without a proof of work, only if its image would be drawn now. Writes and counts nothing. `used`
    /// says how much of what it may fail the client has used up.
    pub async fn issue(
        &self,
        live: &LiveSettings,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        used: impl AsyncFnOnce() -> Option<f64>,
    ) -> Result<Challenge, ImageRefusal> {
        let CaptchaTunables { difficulty, ttl, proof_of_work, .. } = live.captcha;
        let (proof, refused) = if proof_of_work {
            let Standing { failed, refused } = self.standing(live, form, client, used).await;
            (Some(self.answered(live, client).await.max(failed)), refused)
        } else if let Some(refusal) = self.image_refused(live, client).await {
            return Err(later(form, refusal));
        } else {
            (None, None)
        };
        let image_after = refused.map(|refusal| refusal.retry_after);
        Ok(Challenge { image_after, ..self.fresh(form, client, difficulty, ttl, proof) })
    }

    /// A fresh challenge, which the image and the proof of work share.
    fn fresh(
        &self,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        difficulty: Difficulty,
        ttl: Duration,
        proof: Option<Effort>,
    ) -> Challenge {
        let nonce = *self.nonces.make().first_chunk().expect("16 bytes hold 12");
        let expires = self.clock.now().plus(ttl);
        let (id, body) = self.ids.sign(nonce, expires, form, difficulty, client);
        let proof = proof.map(|effort| Box::new(self.proofs.challenge(&id, &body, effort)));
        Challenge { id, expires_in: ttl, image_after: None, proof }
    }

    /// The image of a challenge: the same bytes at any time and on any instance. If it has to be drawn, that counts and
    /// waits for its turn: on who fetches it, or on the client of a program that it was given out for.
    pub async fn image(
        &self,
        live: &LiveSettings,
        by: &CaptchaClient<'_>,
        id: &str,
    ) -> Result<ChallengeImage, ImageError> {
        let body = self.ids.parse(id).filter(|body| !body.expired(self.clock.now()));
        let body = body.ok_or(ImageError::Unknown)?;
        let (form, counted) = (body.form(), self.ids.counted_by(&body));
        let by = counted.as_ref().map_or(*by, CountedClient::client);
        let mut drawn_now = false;
        let turn = async {
            drawn_now = true;
            self.turn(live, &by, form).await
        };
        let png = self.pictures.of(&body, self.answers.text(&body), turn).await?;
        Ok(ChallengeImage { png, form, drawn_now })
    }

    /// Redeems an answer once: the challenge is marked as spent before the verdict is known, so of any number of
    /// parallel redemptions at most one is `Solved`.
    ///
    /// In an outage of the shared marks this instance's own marks decide: with N instances one solved
    /// challenge is then valid at most N times, but never twice on one instance.
    pub async fn redeem(
        &self,
        live: &LiveSettings,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        answer: CaptchaAnswer<'_>,
    ) -> RedeemResult {
        let redeemed = match answer {
            CaptchaAnswer::Letters { id, typed } => self.redeem_letters(form, client, id, typed).await,
            // Boxed, because few requests have one, and it would make the future of each larger.
            CaptchaAnswer::Proof(text) => Box::pin(self.redeem_proof(live, form, client, text)).await,
        };
        redeemed.err().unwrap_or(RedeemResult::Solved)
    }

    /// Drops counts that no rule uses any more.
    pub fn sweep(&self) {
        self.drawing.store().sweep();
        self.proving.store().sweep();
    }

    async fn redeem_letters(
        &self,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        id: &str,
        typed: &str,
    ) -> Result<(), RedeemResult> {
        let body = self.answerable(form, client, id)?;
        if !self.mark_here(&body) {
            return Err(RedeemResult::Spent);
        }
        self.judged(&body, self.answers.accepts(&body, typed)).await
    }

    /// What a look at the proof shows is checked first; then it waits for its slot, is marked, and its key is derived,
    /// once.
    async fn redeem_proof(
        &self,
        live: &LiveSettings,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        text: &str,
    ) -> Result<(), RedeemResult> {
        let answer = ProofAnswer::read(text).ok_or(RedeemResult::Malformed)?;
        let body = self.answerable(form, client, answer.id())?;
        let proof = self.proofs.signed(answer, &body).ok_or(RedeemResult::Malformed)?;
        let effort = proof.effort;
        let limits = limits(&self.proving, proofs(live), client).await;
        let buckets = buckets(&self.proving, &limits, client);
        // A wrong answer that shows itself costs nobody a turn.
        let slot = if proof.is_likely() {
            if let Some(refused) = full(&self.proving, passed(&buckets, effort)).await {
                return Err(too_many(&refused, effort));
            }
            Some(self.deriver(&buckets[0], client).await.ok_or(RedeemResult::Busy)?)
        } else {
            None
        };
        // The other instances' marks are asked afterwards: no slot waits for them.
        if !self.mark_here(&body) {
            return Err(RedeemResult::Spent);
        }
        let right = match slot {
            Some(slot) => slot.derive(self.at_work, move || proof.is_right()).await,
            None => false,
        };
        self.judged(&body, right).await?;
        self.count(&buckets, effort).await
    }

    /// The challenge with this id, if it may still be answered by this client for this form.
    fn answerable(
        &self,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        id: &str,
    ) -> Result<VerifiedId, RedeemResult> {
        let body = self.ids.parse(id).ok_or(RedeemResult::Malformed)?;
        if body.expired(self.clock.now()) {
            return Err(RedeemResult::Expired);
        }
        if self.ids.belongs(&body, form, client) { Ok(body) } else { Err(RedeemResult::Foreign) }
    }

    /// Marks a challenge as answered in this process; false if it was.
    fn mark_here(&self, body: &VerifiedId) -> bool {
        self.local.spend(self.ids.mark(body), self.marked_for(body))
    }

    /// Marks it as spent for all instances.
    async fn mark_everywhere(&self, body: &VerifiedId) -> bool {
        let Some(shared) = &self.shared else { return true };
        shared.spend(self.ids.mark(body), self.marked_for(body)).await.unwrap_or_else(|error| {
            // The link logs the outage once; with a line per answer, clients could fill the log.
            metrics::counter!("gatehouse_store_errors_total").increment(1);
            tracing::debug!(%error, "captcha: the shared record of used challenges failed; this instance uses its own");
            true
        })
    }

    /// The verdict on an answer that this process has marked. A flood of wrong ones fills neither its memory nor the
    /// store.
    async fn judged(&self, body: &VerifiedId, right: bool) -> Result<(), RedeemResult> {
        if !right && !self.local.was_wrong(self.ids.mark(body)) {
            return Err(RedeemResult::Wrong);
        }
        match (self.mark_everywhere(body).await, right) {
            (false, _) => Err(RedeemResult::Spent),
            (true, false) => Err(RedeemResult::Wrong),
            (true, true) => Ok(()),
        }
    }

    fn marked_for(&self, body: &VerifiedId) -> Duration {
        body.expires().since(self.clock.now()) + CLOCK_SKEW
    }

    /// A slot to derive in. Networks take turns; in one the address that has answered least is next, and at one address
    /// the browser.
    async fn deriver(&self, address: &Bucket<'_>, client: &CaptchaClient<'_>) -> Option<Slot> {
        let mut rank = 0;
        for (kind, cookie) in [(0, &[][..]), (1, client.cookie.unwrap_or_default())] {
            // No address begins with a zero, and no realm.
            let who = [&[0_u8, kind][..], client.address, cookie].concat();
            let who = self.proving.bucket(address.limit, &who);
            let answered = self.proving.peek(who).await.map(|peek| peek.rules).unwrap_or_default();
            // The in-process store does not fail, and who has too many is last.
            let _ = self.proving.reserve(&[who], false).await;
            let most = answered.iter().map(|rule| rule.count).max().unwrap_or(0);
            rank = rank << 16 | most.min(0xFFFF);
        }
        let owner = QueueOwner::of(&self.ids.short("owner", client.network));
        let turn = self.derivers.take(owner, rank);
        tokio::time::timeout(LONGEST_WAIT, turn).await.ok().flatten()
    }

    /// Counts a right answer, or refuses it where others were counted meanwhile.
    async fn count(&self, buckets: &[Bucket<'_>; 4], effort: Effort) -> Result<(), RedeemResult> {
        let mut decided = self.proving.reserve(buckets, false).await;
        if let Ok(HitDecision::Refused(refused)) = &decided
            && refused.bucket < TOTALS
            && effort == Effort::Highest
        {
            decided = self.proving.reserve(&buckets[TOTALS..], false).await;
        }
        match decided {
            Ok(HitDecision::Admitted(_)) => Ok(()),
            Ok(HitDecision::Refused(refused)) => Err(too_many(&refused, effort)),
            // The in-process store does not fail.
            Err(_) => Err(RedeemResult::Busy),
        }
    }

    /// The standing of a client that may answer by a proof of work; worked out once a second, for each refusal
    /// carries a challenge.
    async fn standing(
        &self,
        live: &LiveSettings,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        used: impl AsyncFnOnce() -> Option<f64>,
    ) -> Standing {
        let (key, now) = (self.ids.short(form.as_str(), client.address), self.clock.now());
        if let Some((at, standing)) = self.standings.known.get(&key)
            && now.since(at) < STANDING_KEPT
        {
            return standing;
        }
        // Boxed, because few get this far, and it would make the future of every refusal larger.
        let standing = Box::pin(async {
            let refused = self.image_refused(live, client).await;
            let used = if self.standings.may_ask(now) { used().await } else { None };
            Standing { failed: Effort::after(used), refused }
        });
        let standing = standing.await;
        self.standings.known.insert(key, (now, standing));
        standing
    }

    /// Why no image would be drawn for the client now, if none would be.
    async fn image_refused(&self, live: &LiveSettings, client: &CaptchaClient<'_>) -> Option<Refusal> {
        let counted = self.ids.counted(client);
        let by = counted.as_ref().map_or(*client, CountedClient::client);
        let limits = limits(&self.drawing, images(live), &by).await;
        full(&self.drawing, &buckets(&self.drawing, &limits, &by)).await
    }

    /// The price by what was answered at the client's address and network.
    async fn answered(&self, live: &LiveSettings, client: &CaptchaClient<'_>) -> Effort {
        let [address, network, _] = proofs(live);
        let answered = async |limit: &Limit, subject: &[u8]| {
            let peek = self.proving.peek(self.proving.bucket(limit, subject)).await;
            let counted = peek.map(|peek| peek.rules).unwrap_or_default();
            let rules = limit.rules().iter().zip(counted);
            let used = rules.map(|(rule, counted)| f64::from(counted.count) / f64::from(rule.max));
            if limit.mode() == LimitMode::Enforce { used.fold(0.0, f64::max) * DEAR_BEFORE_FULL } else { 0.0 }
        };
        let network = answered(&network, client.network).await.min(MOST_OF_NETWORK);
        Effort::after(Some(answered(&address, client.address).await.max(network)))
    }

    /// A hit on every limit, and a turn to draw: networks take turns, and so do programs.
    async fn turn(
        &self,
        live: &LiveSettings,
        by: &CaptchaClient<'_>,
        form: CaptchaForm,
    ) -> Result<Slot, ImageError> {
        let limits = limits(&self.drawing, images(live), by).await;
        let buckets = buckets(&self.drawing, &limits, by);
        // A client that has drawn its last image is told so at once.
        self.standings.known.remove(&self.ids.short(form.as_str(), by.address));
        match self.drawing.reserve(&buckets, false).await {
            Ok(HitDecision::Refused(refusal)) => Err(ImageError::Refused(later(form, refusal))),
            Ok(HitDecision::Admitted(admission)) => {
                match self.easels.take(QueueOwner::of(by.realm.unwrap_or(by.network)), 0).await {
                    Some(turn) => Ok(turn),
                    None => {
                        // The in-process store does not fail.
                        let _ = self.drawing.refund(&buckets, admission.id).await;
                        Err(ImageError::Busy)
                    }
                }
            }
            // These limits have no holds.
            Err(_) => Err(ImageError::Busy),
        }
    }
}

/// How many derive at once, and for which part of the time: together at most a tenth of the cores.
fn a_tenth(cores: usize) -> (usize, f64) {
    let at_once = (cores / 10).max(1);
    (at_once, (cores as f64 / 10.0 / at_once as f64).min(1.0))
}

/// The limits of images: of addresses, networks and all.
fn images(live: &LiveSettings) -> [Limit; 3] {
    let limits = &live.limits;
    [&limits.captcha_address, &limits.captcha_network, &limits.captcha_total].map(Limit::clone)
}

/// The limits of answered proofs of work.
fn proofs(live: &LiveSettings) -> [Limit; 3] {
    images(live).map(|limit| limit.times(PROOFS_FOR_AN_IMAGE))
}

/// Adds the part of the total that is open to one network; counted under the total's name, by its rules.
async fn limits(
    counted: &Limiter<MemoryStore>,
    [address, network, total]: [Limit; 3],
    by: &CaptchaClient<'_>,
) -> [Limit; 4] {
    let spent = counted.peek(counted.bucket(&total, by.everyone())).await;
    let share = share_of(&total, &spent.map(|peek| peek.rules).unwrap_or_default());
    [address, network, total, share]
}

fn buckets<'a>(
    counted: &Limiter<MemoryStore>,
    [address, network, total, share]: &'a [Limit; 4],
    by: &CaptchaClient<'_>,
) -> [Bucket<'a>; 4] {
    [
        counted.bucket(address, by.address),
        counted.bucket(network, by.network),
        counted.bucket(total, by.everyone()),
        counted.bucket(share, by.network),
    ]
}

/// The limits that may refuse a proof of that price.
fn passed<'a, 'b>(buckets: &'b [Bucket<'a>; 4], effort: Effort) -> &'b [Bucket<'a>] {
    if effort == Effort::Highest { &buckets[TOTALS..] } else { buckets }
}

fn too_many(refused: &Refusal, effort: Effort) -> RedeemResult {
    if effort == Effort::Highest || refused.bucket >= TOTALS {
        RedeemResult::Busy
    } else {
        RedeemResult::Cheap
    }
}

/// The refusal that one would get now, the longest of several.
async fn full(counted: &Limiter<MemoryStore>, buckets: &[Bucket<'_>]) -> Option<Refusal> {
    let mut longest: Option<Refusal> = None;
    let states = counted.peek_all(buckets).await.ok()?;
    for (index, (bucket, peek)) in buckets.iter().zip(states).enumerate() {
        if bucket.limit.mode() == LimitMode::Monitor {
            continue;
        }
        for (rule, standing) in peek.rules.iter().enumerate() {
            let retry_after = standing.retry_after;
            if retry_after > longest.map_or(Duration::ZERO, |refusal| refusal.retry_after) {
                let frees_at = peek.at.plus(retry_after);
                longest =
                    Some(Refusal { bucket: index, rule, then: RuleAction::Block, retry_after, frees_at });
            }
        }
    }
    longest
}

const fn later(form: CaptchaForm, refusal: Refusal) -> ImageRefusal {
    ImageRefusal { form, limit: LIMITS[refusal.bucket].as_str(), refusal }
}

impl<'a> CaptchaClient<'a> {
    fn everyone(&self) -> &'a [u8] {
        self.realm.unwrap_or(EVERYONE)
    }
}

/// Their threshold is linear. With the fifth power, one network alone gets a quarter of the total, ten that
/// ask for all they can get have 275 of 6,000 each, and a thousand have four each, with a quarter still left
/// for new ones.
const POWER: i32 = 5;

/// The total's rules as they apply to one network.
///
/// The share shrinks with what is left, as the buffers of switches are shared (Choudhury and Hahne, "Dynamic
/// Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM ToN 6(2), 1998): a network that has
/// that much already waits, one that has less does not. The number of networks need not be known, and
/// something is left for one that comes late.
///
/// One image is always allowed: the total itself decides
/// whether any is left.
fn share_of(total: &Limit, spent: &[RulePeek]) -> Limit {
    let shared = |(rule, spent): (&Rule, &RulePeek)| {
        let left = f64::from(rule.max.saturating_sub(spent.count)) / f64::from(rule.max);
        let max = (f64::from(rule.max) * left.powi(POWER)) as u32;
        Rule { max: max.max(1), ..rule.clone() }
    };
    let rules = total.rules().iter().zip(spent).map(shared).collect();
    Limit::new(total.name(), rules, total.mode()).expect("its rules are the total's, but for a smaller max")
}

/// The price of a proof of work by what the client has failed, and why no image would be drawn for it, if none would be.
#[derive(Clone, Copy)]
struct Standing {
    failed: Effort,
    refused: Option<Refusal>,
}

/// A hash of the form and the address.
type ClientKey = [u8; 16];

const STANDING_KEPT: Duration = Duration::from_secs(1);
const CLIENTS: usize = 4_096;
/// How often the store is asked in [`STANDING_KEPT`], whoever the clients are. Beyond it the price is that of an outage.
const MOST_ASKED: u32 = 500;

struct Standings {
    known: Cache<ClientKey, (Micros, Standing)>,
    /// Since when, and how often, the store was asked.
    asked: Mutex<(Micros, u32)>,
}

impl Default for Standings {
    fn default() -> Self {
        Self { known: Cache::new(CLIENTS), asked: Mutex::new((Micros(0), 0)) }
    }
}

impl Standings {
    fn may_ask(&self, now: Micros) -> bool {
        let mut asked = self.asked.lock();
        if now.since(asked.0) >= STANDING_KEPT {
            *asked = (now, 0);
        }
        asked.1 += 1;
        asked.1 <= MOST_ASKED
    }
}
