//! Keys that sign what others bring back: one signs, and during a rotation another is accepted besides.

use super::{SubKey, same};

/// Which of the keys has signed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyGeneration {
    Signing,
    /// The one before it, or the next one, which other instances may sign with already.
    Accepted,
}

#[derive(Clone)]
pub struct SigningKeys {
    signing: SubKey,
    accepted: Option<SubKey>,
}

impl SigningKeys {
    pub(super) const fn new(signing: SubKey, accepted: Option<SubKey>) -> Self {
        Self { signing, accepted }
    }

    pub const fn signing(&self) -> &SubKey {
        &self.signing
    }

    /// The key of a generation that [`SigningKeys::signer`] has found.
    pub fn of(&self, generation: KeyGeneration) -> &SubKey {
        match generation {
            KeyGeneration::Signing => &self.signing,
            KeyGeneration::Accepted => self.accepted.as_ref().unwrap_or(&self.signing),
        }
    }

    /// Which key has made `signature`; None if neither has. `sign` must have no other secret.
    pub fn signer<const LENGTH: usize>(
        &self,
        signature: &[u8],
        sign: impl Fn(&SubKey) -> [u8; LENGTH],
    ) -> Option<KeyGeneration> {
        if same(signature, &sign(&self.signing)) {
            return Some(KeyGeneration::Signing);
        }
        let accepted = self.accepted.as_ref()?;
        same(signature, &sign(accepted)).then_some(KeyGeneration::Accepted)
    }
}
