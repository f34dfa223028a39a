//! A slot that an attempt holds, and what becomes of it.

use super::Counted;
use super::path::{Path, SHARED};
use crate::clock::Micros;
use crate::throttle::{AnyStore, Hold, MemoryStore, StoreError};

/// A slot in the store that gave it, and which logs it stands in.
pub struct Slot {
    pub(super) hold: Held,
    pub(super) path: Path,
}

pub(super) enum Held {
    Store(Hold<AnyStore>),
    Insurance(Hold<MemoryStore>),
}

impl Slot {
    /// When it was taken, and what a watching limit would have refused.
    pub const fn taken(&self) -> Counted {
        match &self.hold {
            Held::Store(hold) => Counted { at: hold.at, noted: hold.noted },
            Held::Insurance(hold) => Counted { at: hold.at, noted: hold.noted },
        }
    }

    /// Which logs it stands in.
    pub const fn path(&self) -> Path {
        self.path
    }

    /// The attempt failed and counts; from when, where the store could say.
    pub async fn keep(self) -> Option<Micros> {
        settled(match self.hold {
            Held::Store(hold) => hold.keep().await,
            Held::Insurance(hold) => hold.keep().await,
        })
    }

    /// Nothing was verified: it never was.
    pub async fn refund(self) {
        let _ = settled(match self.hold {
            Held::Store(hold) => hold.refund().await,
            Held::Insurance(hold) => hold.refund().await,
        });
    }

    /// The owner signed in: rules that ask for a challenge pass over the failures from before, in the log that
    /// theirs would stand in. Of a stranger that is the account's. From a known device it is the device's alone:
    /// those at the account are somebody else's, and not in the owner's way. Rules that block count them still, or
    /// a stranger would have as many guesses again after each time that the owner comes. A log that only watches is
    /// forgiven as it would be if it did not. The address's and the network's stay, or an attacker's own account
    /// would wipe them. When that was, and whether it was asked for, where the store could say.
    pub async fn succeed(self) -> Option<(Micros, bool)> {
        settled(match self.hold {
            Held::Store(hold) => hold.succeed(is_own).await,
            Held::Insurance(hold) => hold.succeed(is_own).await,
        })
    }
}

/// Of who signs in, not of everybody at an address or in a network.
fn is_own(bucket: usize) -> bool {
    !SHARED.contains(&bucket)
}

/// A hold that could not be settled counts as a failure until it expires: the store errs towards refusing.
fn settled<T>(result: Result<T, StoreError>) -> Option<T> {
    result
        .inspect_err(|error| tracing::debug!(%error, "an attempt's outcome did not reach the window store"))
        .ok()
}
