//! The hits of one log in memory, oldest first: a ring buffer that also stores the times of its two ends.

use crate::clock::Micros;
use crate::store::{HitId, KeptHit};

/// The most hits that one success forgives: as many as one script can move at once. The oldest are forgiven
/// first, so that a longer log errs towards a challenge.
pub const MOST_FORGIVEN: usize = 1000;

/// The time of a hit, negative if a success has forgiven the hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HitStamp(i64);

impl HitStamp {
    const fn new(at: Micros) -> Self {
        Self(at.0)
    }

    const fn forgiven(at: Micros) -> Self {
        Self(!at.0)
    }

    const fn is_forgiven(self) -> bool {
        self.0 < 0
    }

    const fn time(self) -> Micros {
        Micros(if self.0 < 0 { !self.0 } else { self.0 })
    }
}

/// A hit as the ring stores it, without padding: the fewer cache lines a log spans, the better.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(2))]
struct HitSlot {
    at: HitStamp,
    id: [u8; 6],
}

/// Ordered by time; forgiven hits are the oldest. The times of the two ends answer almost every question
/// alone.
#[derive(Debug, Clone)]
pub struct HitRing {
    ring: Box<[HitSlot]>,
    first: HitStamp,
    last: HitStamp,
    head: u32,
    len: u32,
}

const NONE: HitSlot = HitSlot { at: HitStamp(0), id: [0; 6] };

impl Default for HitRing {
    fn default() -> Self {
        Self { ring: Box::default(), first: HitStamp(0), last: HitStamp(0), head: 0, len: 0 }
    }
}

impl HitRing {
    /// How many hits it holds.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The time of the newest hit.
    pub fn last(&self) -> Option<Micros> {
        (self.len > 0).then_some(self.last.time())
    }

    /// The time of the n-th newest hit, counted from 1.
    pub fn nth_newest(&self, n: usize) -> Option<Micros> {
        let index = self.len().checked_sub(n)?;
        Some(if index == 0 { self.first.time() } else { self.get(index).at })
    }

    /// The times of the newest hits, newest first, at most `most`.
    pub fn newest(&self, most: usize) -> Vec<Micros> {
        self.iter().rev().take(most).map(|hit| hit.at).collect()
    }

    /// How many hits are not newer than `start`. The search begins at `near`, because the answer changes
    /// little from one decision to the next.
    pub fn not_newer(&self, start: Micros, near: usize) -> usize {
        let len = self.len();
        if len == 0 || self.first.time() > start {
            return 0;
        } else if self.last.time() <= start {
            return len;
        }
        let mut found = near.clamp(1, len);
        for _ in 0..8 {
            if found < len && self.get(found).at <= start {
                found += 1;
            } else if self.get(found - 1).at > start {
                found -= 1;
            } else {
                return found;
            }
        }
        let (mut low, mut high) = (1, len);
        while low < high {
            let middle = (low + high) / 2;
            if self.get(middle).at <= start { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// How many of the newest hits are not forgiven; all older ones are.
    #[inline]
    pub fn unforgiven(&self) -> usize {
        if self.len == 0 || !self.first.is_forgiven() { self.len() } else { self.look_for_unforgiven() }
    }

    #[cold]
    fn look_for_unforgiven(&self) -> usize {
        let (mut low, mut high) = (1, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.stamp(middle).is_forgiven() { low = middle + 1 } else { high = middle }
        }
        self.len() - low
    }

    /// Forgives the hits that are not newer than `up_to`, at most [`MOST_FORGIVEN`].
    pub fn forgive(&mut self, up_to: Micros) {
        let from = self.len() - self.unforgiven();
        let to = self.not_newer(up_to, from).min(from + MOST_FORGIVEN);
        for index in from..to {
            let slot = self.slot(index);
            self.put(index, HitSlot { at: HitStamp::forgiven(slot.at.time()), ..slot });
        }
        self.refresh_ends();
    }

    /// When that hit counts from, if it is in the log.
    pub fn time_of(&self, id: HitId) -> Option<Micros> {
        self.iter().find(|hit| hit.id == id).map(|hit| hit.at)
    }

    /// Inserts a hit in order and drops the oldest beyond `capacity`.
    #[inline]
    pub fn keep(&mut self, hit: KeptHit, capacity: usize) {
        let len = self.len();
        let newest = len > 0 && hit.at >= self.last.time();
        if newest && len < self.ring.len().min(capacity) {
            self.append(hit);
        } else if newest && len == capacity && hit.at > self.first.time() {
            self.drop_oldest();
            self.append(hit);
        } else {
            self.keep_anywhere(hit, capacity);
        }
    }

    #[cold]
    fn keep_anywhere(&mut self, hit: KeptHit, capacity: usize) {
        self.insert(hit, capacity);
        if self.len() > capacity {
            (capacity..self.len()).for_each(|_| self.drop_oldest());
            self.refresh_ends();
        }
    }

    /// Appends the newest hit, if there is room.
    fn append(&mut self, hit: KeptHit) {
        let at = HitStamp::new(hit.at);
        self.put(self.len(), HitSlot { at, id: hit.id.0 });
        self.first = if self.len == 0 { at } else { self.first };
        self.last = at;
        self.len += 1;
    }

    /// If several hits are the oldest, drops the one with the lowest id, as a sorted set would. Their order
    /// matters nowhere else, so it is found only here.
    fn drop_oldest(&mut self) {
        if self.len > 1 && self.stamp(1) == self.first {
            self.bring_lowest_first();
        }
        self.head = self.place(1) as u32;
        self.len -= 1;
        self.first = self.stamp(0);
    }

    fn bring_lowest_first(&mut self) {
        let oldest = self.slot(0);
        let (mut found, mut lowest) = (0, rank(oldest.id));
        for index in 1..self.len() {
            let twin = self.slot(index);
            if self.stamp(index) != self.first {
                break;
            }
            (found, lowest) = if rank(twin.id) < lowest { (index, rank(twin.id)) } else { (found, lowest) };
        }
        self.put(0, self.slot(found));
        self.put(found, oldest);
    }

    /// Inserts a hit in order. A hit that is older than a forgiven one is forgiven, too. `capacity` is the
    /// most the log will ever hold; no memory is allocated for more.
    pub fn insert(&mut self, hit: KeptHit, capacity: usize) {
        if self.len() == self.ring.len() {
            self.grow(capacity);
        }
        let newer = match self.len() {
            // The usual case when a log is written back, newest first.
            len if len > 0 && hit.at < self.first.time() => len,
            _ => self.iter().rev().take_while(|other| other.at > hit.at).count(),
        };
        let index = self.len() - newer;
        let forgiven = newer > 0 && self.stamp(index).is_forgiven();
        let at = if forgiven { HitStamp::forgiven(hit.at) } else { HitStamp::new(hit.at) };
        self.open(index);
        self.put(index, HitSlot { at, id: hit.id.0 });
        self.first = if index == 0 { at } else { self.first };
        self.last = if newer == 0 { at } else { self.last };
    }

    /// Whether a hit with this id was there.
    pub fn remove(&mut self, id: HitId) -> bool {
        let (before, mut kept) = (self.len, 0);
        for index in 0..self.len() {
            let slot = self.slot(index);
            if slot.id != id.0 {
                self.put(kept, slot);
                kept += 1;
            }
        }
        self.len = kept as u32;
        self.refresh_ends();
        self.len < before
    }

    /// Takes out a hit whose time is known: only hits of that time are searched.
    pub fn take_out(&mut self, hit: KeptHit) -> bool {
        let mut index = self.not_newer(hit.at, self.len());
        while index > 0 && self.get(index - 1).at == hit.at {
            index -= 1;
            if self.get(index).id == hit.id {
                for behind in index + 1..self.len() {
                    self.put(behind - 1, self.slot(behind));
                }
                self.len -= 1;
                self.refresh_ends();
                return true;
            }
        }
        false
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = KeptHit> {
        (0..self.len()).map(|index| self.get(index))
    }

    fn get(&self, index: usize) -> KeptHit {
        let HitSlot { at, id } = self.slot(index);
        KeptHit { at: at.time(), id: HitId(id) }
    }

    fn slot(&self, index: usize) -> HitSlot {
        self.ring[self.place(index)]
    }

    fn stamp(&self, index: usize) -> HitStamp {
        self.slot(index).at
    }

    fn put(&mut self, index: usize, slot: HitSlot) {
        let place = self.place(index);
        self.ring[place] = slot;
    }

    fn place(&self, index: usize) -> usize {
        let place = self.head as usize + index;
        if place < self.ring.len() { place } else { place - self.ring.len() }
    }

    /// Grows by half, because most logs stay short, but not beyond what the limit can fill.
    fn grow(&mut self, capacity: usize) {
        let len = self.len();
        let wanted = (len + len / 2).min(capacity).max(2).max(len + 1);
        let mut ring = vec![NONE; wanted].into_boxed_slice();
        let (behind, before) = self.ring.split_at(self.head as usize);
        ring[..before.len()].copy_from_slice(before);
        ring[before.len()..len].copy_from_slice(behind);
        (self.ring, self.head) = (ring, 0);
    }

    /// Makes room at `index` by moving the shorter side.
    fn open(&mut self, index: usize) {
        let len = self.len();
        self.len += 1;
        if index > len / 2 || index == len {
            for behind in (index..len).rev() {
                self.put(behind + 1, self.slot(behind));
            }
        } else {
            self.head = self.place(self.ring.len() - 1) as u32;
            for before in 0..index {
                self.put(before, self.slot(before + 1));
            }
        }
    }

    /// Updates the ends after hits were removed. An empty log frees its memory.
    fn refresh_ends(&mut self) {
        match self.len() {
            0 => *self = Self::default(),
            len => (self.first, self.last) = (self.stamp(0), self.stamp(len - 1)),
        }
    }
}

/// The order of members with equal scores in a sorted set.
fn rank([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

#[cfg(test)]
#[path = "hits_tests.rs"]
mod tests;
