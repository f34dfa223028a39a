//! The hits of one log in memory, oldest first: the first few beside the key they are found by, so that
//! most decisions touch one place in memory only.

use std::collections::VecDeque;

use super::store::HitId;
use crate::clock::Micros;

/// As many as fit where the ring of a longer log would stand. Most logs never hold more.
const FEW: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    pub at: Micros,
    pub id: HitId,
}

/// Ordered by time, and by id where times are equal, as in a sorted set.
#[derive(Debug)]
pub enum Hits {
    Few { len: u8, hits: [Hit; FEW] },
    Many(Ring),
}

/// A longer log. The times of its ends are copied here: they answer nearly every question by themselves.
#[derive(Debug)]
pub struct Ring {
    hits: VecDeque<Hit>,
    first: Micros,
    last: Micros,
}

const NONE: Hit = Hit { at: Micros(0), id: HitId([0; 6]) };

impl Default for Hits {
    fn default() -> Self {
        Self::Few { len: 0, hits: [NONE; FEW] }
    }
}

impl Hits {
    pub fn len(&self) -> usize {
        match self {
            Self::Few { len, .. } => usize::from(*len),
            Self::Many(ring) => ring.hits.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the newest was.
    pub fn last(&self) -> Option<Micros> {
        match self {
            Self::Few { .. } => self.few().last().map(|hit| hit.at),
            Self::Many(ring) => Some(ring.last),
        }
    }

    /// When the n-th newest was, from 1.
    pub fn nth_newest(&self, n: usize) -> Option<Micros> {
        let index = self.len().checked_sub(n)?;
        match self {
            Self::Few { .. } => self.few().get(index).map(|hit| hit.at),
            Self::Many(ring) if index == 0 => Some(ring.first),
            Self::Many(ring) => ring.hits.get(index).map(|hit| hit.at),
        }
    }

    /// How many are newer than `start`.
    pub fn newer_than(&self, start: Micros) -> usize {
        match self {
            Self::Few { .. } => self.few().iter().filter(|hit| hit.at > start).count(),
            Self::Many(ring) if ring.first > start => ring.hits.len(),
            Self::Many(ring) if ring.last <= start => 0,
            Self::Many(Ring { hits, .. }) => {
                // Nearly always few are; they lie beside the place of the next one.
                let few = hits.iter().rev().take(8).take_while(|hit| hit.at > start).count();
                if few < 8 { few } else { hits.len() - hits.partition_point(|hit| hit.at <= start) }
            }
        }
    }

    pub fn contains(&self, id: HitId) -> bool {
        match self {
            Self::Few { .. } => self.few().iter().any(|hit| hit.id == id),
            Self::Many(ring) => ring.hits.iter().any(|hit| hit.id == id),
        }
    }

    /// Puts one in its place. `capacity` is how many the log will ever be asked for: no memory is taken
    /// for more.
    pub fn insert(&mut self, hit: Hit, capacity: usize) {
        match self {
            Self::Few { len, hits } if usize::from(*len) < FEW => {
                let end = usize::from(*len);
                let place = end - behind(hits[..end].iter().rev(), hit);
                hits.copy_within(place..end, place + 1);
                hits[place] = hit;
                *len += 1;
            }
            Self::Few { hits, .. } => {
                let [first, .., last] = hits.map(|hit| hit.at);
                let mut ring = Ring { hits: VecDeque::new(), first, last };
                ring.hits.reserve_exact((FEW + 2).min(capacity.max(FEW) + 1));
                ring.hits.extend(hits.iter());
                ring.insert(hit, capacity);
                *self = Self::Many(ring);
            }
            Self::Many(ring) => ring.insert(hit, capacity),
        }
    }

    /// Drops the oldest until no more than `capacity` are left.
    pub fn trim(&mut self, capacity: usize) {
        let excess = self.len().saturating_sub(capacity);
        if excess == 0 {
            return;
        }
        match self {
            Self::Few { len, hits } => {
                hits.copy_within(excess..usize::from(*len), 0);
                *len -= excess as u8;
            }
            Self::Many(ring) => {
                ring.hits.drain(..excess);
                self.look_at_ends();
            }
        }
    }

    /// Whether there was one of that id.
    pub fn remove(&mut self, id: HitId) -> bool {
        let before = self.len();
        self.retain(|hit| hit.id != id);
        self.len() < before
    }

    pub fn retain(&mut self, keep: impl Fn(&Hit) -> bool) {
        match self {
            Self::Few { len, hits } => {
                let mut kept = 0;
                for index in 0..usize::from(*len) {
                    if keep(&hits[index]) {
                        hits[kept] = hits[index];
                        kept += 1;
                    }
                }
                *len = kept as u8;
            }
            Self::Many(ring) => {
                ring.hits.retain(keep);
                self.look_at_ends();
            }
        }
    }

    fn few(&self) -> &[Hit] {
        match self {
            Self::Few { len, hits } => &hits[..usize::from(*len)],
            Self::Many(_) => &[],
        }
    }

    /// After hits have left: a log without any is a short one again.
    fn look_at_ends(&mut self) {
        let Self::Many(ring) = self else { return };
        match (ring.hits.front(), ring.hits.back()) {
            (Some(first), Some(last)) => (ring.first, ring.last) = (first.at, last.at),
            _ => *self = Self::default(),
        }
    }
}

impl Ring {
    fn insert(&mut self, hit: Hit, capacity: usize) {
        let Self { hits, first, last } = self;
        if hits.len() == hits.capacity() {
            // By half, for most logs stay short; but not past what the limit can ever fill.
            let wanted = (hits.len() + hits.len() / 2).clamp(2, capacity.max(1) + 1);
            hits.reserve_exact(wanted.saturating_sub(hits.len()).max(1));
        }
        if hit.at > *last {
            hits.push_back(hit);
        } else {
            let place = hits.len() - behind(hits.iter().rev(), hit);
            hits.insert(place, hit);
        }
        *first = hits.front().map_or(hit.at, |hit| hit.at);
        *last = hits.back().map_or(hit.at, |hit| hit.at);
    }
}

/// How many of those, newest first, belong behind this one.
fn behind<'h>(newest_first: impl Iterator<Item = &'h Hit>, hit: Hit) -> usize {
    newest_first.take_while(|other| (other.at, other.id.0) > (hit.at, hit.id.0)).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Keep(i64, u8),
        Remove(u8),
        Forget(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..40i64, any::<u8>()).prop_map(|(at, id)| Step::Keep(at, id)),
            1 => any::<u8>().prop_map(Step::Remove),
            1 => (0..40i64).prop_map(Step::Forget),
        ]
    }

    proptest! {
        /// Whatever happens to it, it answers as a sorted list would.
        #[test]
        fn hits_answer_as_a_sorted_list(steps in proptest::collection::vec(step(), 0..60), capacity in 1usize..9) {
            let (mut hits, mut list) = (Hits::default(), Vec::<(i64, u8)>::new());
            for step in steps {
                match step {
                    Step::Keep(at, id) => {
                        hits.insert(hit(at, id), capacity);
                        hits.trim(capacity);
                        list.push((at, id));
                        list.sort_unstable();
                        list.drain(..list.len().saturating_sub(capacity));
                    }
                    Step::Remove(id) => {
                        prop_assert_eq!(hits.remove(hit(0, id).id), list.iter().any(|(_, other)| *other == id));
                        list.retain(|(_, other)| *other != id);
                    }
                    Step::Forget(up_to) => {
                        hits.retain(|hit| hit.at.0 > up_to);
                        list.retain(|(at, _)| *at > up_to);
                    }
                }
                prop_assert_eq!(hits.len(), list.len());
                prop_assert_eq!(hits.last().map(|at| at.0), list.last().map(|(at, _)| *at));
                for n in 1..=capacity + 1 {
                    let expected = list.len().checked_sub(n).map(|index| list[index].0);
                    prop_assert_eq!(hits.nth_newest(n).map(|at| at.0), expected);
                }
                for start in 0..40 {
                    let expected = list.iter().filter(|(at, _)| *at > start).count();
                    prop_assert_eq!(hits.newer_than(Micros(start)), expected);
                }
                prop_assert!(list.iter().all(|(_, id)| hits.contains(hit(0, *id).id)));
            }
        }
    }

    fn hit(at: i64, id: u8) -> Hit {
        Hit { at: Micros(at), id: HitId([id; 6]) }
    }
}
