//! Derivations made ahead, so that issuing a challenge costs no request one. Each is used once.

use altcha::ChallengeParameters;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Effort;

/// The parameters of a challenge that nobody has yet: nonce, salt, prefix, and the signature of the key.
pub struct ReadyProof {
    pub(super) parameters: ChallengeParameters,
    pub(super) effort: Effort,
}

/// How many are kept ready: at first sight of a client the least effort is asked for, so most of those.
const fn kept(effort: Effort) -> usize {
    match effort {
        Effort::Low => 256,
        Effort::Raised | Effort::High | Effort::Highest => 64,
    }
}

#[derive(Default)]
pub struct ReadyProofs {
    shelves: Mutex<[Vec<ReadyProof>; Effort::ALL.len()]>,
    taken: Notify,
}

impl ReadyProofs {
    pub fn take(&self, effort: Effort) -> Option<ReadyProof> {
        let taken = self.shelves.lock()[effort as usize].pop();
        self.taken.notify_one();
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.shelves.lock().iter().all(Vec::is_empty)
    }

    pub(super) fn put(&self, proof: ReadyProof) {
        self.shelves.lock()[proof.effort as usize].push(proof);
    }

    /// What to make next: what is shortest of what it should be.
    pub(super) fn lacking(&self) -> Option<Effort> {
        let shelves = self.shelves.lock();
        let missing = |effort: &Effort| kept(*effort).saturating_sub(shelves[*effort as usize].len());
        let lacking = Effort::ALL.into_iter().filter(|effort| missing(effort) > 0);
        lacking.max_by_key(|effort| missing(effort) * 1_000 / kept(*effort))
    }

    /// Returns when one has been taken since the last call, or is.
    pub async fn taken(&self) {
        self.taken.notified().await;
    }
}
