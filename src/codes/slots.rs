//! Messages in flight at the gateway: who may have how many at once. A slow gateway holds each for seconds, so a crowd
//! could otherwise have them all. In this process only: each instance waits for its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gatehouse_limiter::SubjectKey;
use tokio::sync::Notify;

/// What each sender may have in flight: our own pages, or one program. Beyond this, something that messages depend on is
/// stuck or slow: a gateway that takes four seconds sends 48 messages a second to strangers, and 16 to numbers of accounts.
const OPEN: u32 = 192;
/// The slots for numbers that are proven, while codes are short: what strangers ask for takes none of them. How many
/// are taken shows in no answer.
const KEPT: u32 = 64;
/// The slots of one sender, while it is looked up in a shortage who gets a message: some statements each.
const MOST_UNDECIDED: u32 = 256;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SlotHolder {
    /// A sender by its scope: what is open there.
    Open(String),
    /// An address or a network of those who ask that sender.
    Asker(SubjectKey),
    Undecided(String),
    Kept(String),
    /// Messages of which only the outcome has to be written.
    Withheld,
}

/// The slots that are taken, by holder. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MessageSlots(Arc<SlotCounts>);

#[derive(Debug, Default)]
struct SlotCounts {
    taken: Mutex<HashMap<SlotHolder, u32>>,
    all_free: Notify,
}

/// A message in flight. Free again when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct MessageSlot {
    slots: MessageSlots,
    holders: Vec<SlotHolder>,
}

impl MessageSlots {
    /// One of those that are open to everybody. A network may have as many as are left, and an address in it half as
    /// many, so that the last ones go to those who have few. `asker` is its address and its network, if they are known.
    pub fn open(&self, scope: &str, asker: Option<[SubjectKey; 2]>) -> Option<MessageSlot> {
        let (holder, mut taken) = (SlotHolder::Open(scope.to_owned()), self.taken());
        let count = |holder: &SlotHolder| taken.get(holder).copied().unwrap_or(0);
        let left = OPEN.saturating_sub(count(&holder));
        let askers = asker.map(|keys| keys.map(SlotHolder::Asker));
        let has_room = askers
            .as_ref()
            .is_none_or(|[address, network]| count(address) < left.div_ceil(2) && count(network) < left);
        let holders = [holder].into_iter().chain(askers.into_iter().flatten()).collect();
        (left > 0 && has_room).then(|| self.take(&mut taken, holders))
    }

    /// For a message of which it is not known yet whether it is sent.
    pub fn undecided(&self, scope: &str) -> Option<MessageSlot> {
        self.below(MOST_UNDECIDED, SlotHolder::Undecided(scope.to_owned()))
    }

    /// One of those that are kept for proven numbers.
    pub fn kept(&self, scope: &str) -> Option<MessageSlot> {
        self.below(KEPT, SlotHolder::Kept(scope.to_owned()))
    }

    /// For a message that is not sent: there is always one.
    pub fn withheld(&self) -> MessageSlot {
        self.take(&mut self.taken(), vec![SlotHolder::Withheld])
    }

    /// Waits until no message is in flight.
    pub async fn all_free(&self) {
        loop {
            let free = self.0.all_free.notified();
            if self.taken().is_empty() {
                return;
            }
            free.await;
        }
    }

    fn below(&self, most: u32, holder: SlotHolder) -> Option<MessageSlot> {
        let mut taken = self.taken();
        let room = taken.get(&holder).is_none_or(|count| *count < most);
        room.then(|| self.take(&mut taken, vec![holder]))
    }

    fn take(&self, taken: &mut HashMap<SlotHolder, u32>, holders: Vec<SlotHolder>) -> MessageSlot {
        for holder in &holders {
            *taken.entry(holder.clone()).or_default() += 1;
        }
        MessageSlot { slots: self.clone(), holders }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<SlotHolder, u32>> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MessageSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        for holder in &self.holders {
            if let Some(count) = taken.get_mut(holder) {
                *count -= 1;
                if *count == 0 {
                    taken.remove(holder);
                }
            }
        }
        if taken.is_empty() {
            self.slots.0.all_free.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "";

    /// An address and its network.
    fn asker(network: u8, address: u8) -> Option<[SubjectKey; 2]> {
        let mut keys = [SubjectKey([1; 16]), SubjectKey([2; 16])];
        (keys[0].0[0], keys[0].0[1], keys[1].0[0]) = (network, address, network);
        Some(keys)
    }

    /// Takes as many as it gets.
    fn all_of(slots: &MessageSlots, scope: &str, asker: Option<[SubjectKey; 2]>) -> Vec<MessageSlot> {
        std::iter::from_fn(|| slots.open(scope, asker)).collect()
    }

    #[test]
    fn alone_an_address_has_a_third_and_a_network_half() {
        let slots = MessageSlots::default();
        let one = all_of(&slots, OURS, asker(1, 1));
        assert_eq!(one.len(), 64);
        let more: Vec<_> = (2..=255).flat_map(|address| all_of(&slots, OURS, asker(1, address))).collect();
        assert_eq!(one.len() + more.len(), 96);
    }

    #[test]
    fn the_more_networks_there_are_the_less_each_has_and_a_new_one_finds_room() {
        let slots = MessageSlots::default();
        let mut held: Vec<_> = (1..=26).map(|network| (network, Vec::new())).collect();
        // All at once, each for as long as it gets one.
        loop {
            let before = held.iter().map(|(_, slots)| slots.len()).sum::<usize>();
            for (network, own) in &mut held {
                own.extend(slots.open(OURS, asker(*network, 1)));
            }
            if held.iter().map(|(_, slots)| slots.len()).sum::<usize>() == before {
                break;
            }
        }
        assert!(held.iter().all(|(_, own)| own.len() <= 7), "{held:?}");
        assert!(slots.open(OURS, asker(99, 1)).is_some());
    }

    #[test]
    fn whatever_one_sender_has_others_and_what_is_kept_are_untouched() {
        let (slots, shop) = (MessageSlots::default(), "verify:shop");
        let pages = all_of(&slots, OURS, None);
        assert_eq!((pages.len(), slots.open(OURS, asker(1, 1)).is_none()), (192, true));
        let kept: Vec<_> = std::iter::from_fn(|| slots.kept(OURS)).collect();
        let shops = all_of(&slots, shop, None);
        let proven: Vec<_> = std::iter::from_fn(|| slots.kept(shop)).collect();
        assert_eq!([kept.len(), shops.len(), proven.len()], [64, 192, 64]);
        assert_eq!(all_of(&slots, "relay:shop", None).len(), 192);
        let _always = slots.withheld();
        drop(pages);
        assert_eq!(all_of(&slots, OURS, None).len(), 192);
    }

    #[tokio::test]
    async fn whoever_waits_for_the_last_is_told() {
        let slots = MessageSlots::default();
        slots.all_free().await;
        let (one, other) = (slots.withheld(), slots.kept(OURS).unwrap());
        let waiting = tokio::spawn({
            let slots = slots.clone();
            async move { slots.all_free().await }
        });
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(other);
        waiting.await.unwrap();
        assert!(slots.taken().is_empty(), "nothing is kept of those who are gone");
    }
}
