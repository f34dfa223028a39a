//! Whether a message departs, or its caller stops waiting for it.

use std::sync::{Arc, OnceLock};

use super::MessageId;

/// Whichever is first, and then for good. A provider that is told that nothing was sent forgets the code, so it must not
/// arrive later.
#[derive(Debug, Clone, Default)]
pub struct Departure(Arc<OnceLock<Option<MessageId>>>);

impl Departure {
    /// The message is about to be handed to the gateway. False if it must not be any more.
    pub fn departs(&self, id: MessageId) -> bool {
        *self.0.get_or_init(|| Some(id)) == Some(id)
    }

    /// The caller stops waiting. The message, if it has departed.
    pub fn call_off(&self) -> Option<MessageId> {
        *self.0.get_or_init(|| None)
    }

    pub fn is_called_off(&self) -> bool {
        self.0.get() == Some(&None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;

    #[test]
    fn a_message_departs_or_is_called_off_and_never_both() {
        let id = MessageId::random(&Entropy::seeded(1));
        let departed = Departure::default();
        assert!(departed.departs(id) && departed.departs(id));
        assert_eq!((departed.call_off(), departed.is_called_off()), (Some(id), false));
        let called_off = Departure::default();
        assert_eq!((called_off.call_off(), called_off.departs(id)), (None, false));
        assert!(called_off.is_called_off());
    }
}
