//! One subject's log in three worlds: what it holds for certain, what it holds by our best guess, what it may
//! hold. They are one log until something happens of which it is not known whether it did.

use std::time::Duration;

use crate::clock::Micros;
use crate::throttle::window;
use crate::throttle::{Hit, Hits};

/// The worlds, poorest first. In each of them the n-th newest hit is never newer than in the next.
pub const MUST: usize = 0;
pub const GUESS: usize = 1;
pub const MAY: usize = 2;

/// In which worlds something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worlds(pub [bool; 3]);

impl Worlds {
    pub const ALL: Self = Self([true; 3]);

    /// What may have happened, and by our guess did or did not.
    pub const fn open(guess: bool) -> Self {
        Self([false, guess, true])
    }

    pub fn is_certain(self) -> bool {
        self == Self::ALL
    }
}

#[derive(Debug)]
pub struct Log {
    pub subject: u32,
    hits: Trio,
    /// In flight, in each world.
    pub holds: [u32; 3],
    /// Hits that may or may not be taken back: they may have pushed one out of a full log.
    loose: u32,
    /// Up to then nothing is certain to stand: it may be forgiven, or forgotten.
    void: Micros,
    /// Until then somebody may be waiting for it: who comes waits behind them, whatever it holds.
    pub crowded_until: Micros,
    /// The same, of those that are known to wait.
    pub lined_until: Micros,
    /// The newest moment about which the worlds disagree.
    diverged: Micros,
}

#[derive(Debug)]
enum Trio {
    One(Hits),
    Split(Box<[Hits; 3]>),
}

/// A log of one world, as the arithmetic sees it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    hits: Option<&'a Hits>,
    holds: u32,
}

impl window::Log for View<'_> {
    fn nth_newest(&self, n: u32) -> Option<Micros> {
        self.hits?.nth_newest(n as usize)
    }

    fn newer_than(&self, start: Micros) -> u32 {
        self.hits.map_or(0, |hits| (hits.len() - hits.not_newer(start, 1)) as u32)
    }

    fn unforgiven(&self) -> u32 {
        self.hits.map_or(0, |hits| hits.unforgiven() as u32)
    }

    fn holds(&self) -> u32 {
        self.holds
    }
}

pub const EMPTY: View<'static> = View { hits: None, holds: 0 };

impl Log {
    pub fn new(subject: u32) -> Self {
        Self {
            subject,
            hits: Trio::One(Hits::default()),
            holds: [0; 3],
            loose: 0,
            void: Micros(i64::MIN),
            crowded_until: Micros(i64::MIN),
            lined_until: Micros(i64::MIN),
            diverged: Micros(i64::MIN),
        }
    }

    /// Whether all worlds are one.
    pub fn is_one(&self) -> bool {
        matches!(self.hits, Trio::One(_)) && self.holds[MUST] == self.holds[MAY]
    }

    pub fn view(&self, world: usize) -> View<'_> {
        View { hits: Some(self.hits_of(world)), holds: self.holds[world] }
    }

    fn hits_of(&self, world: usize) -> &Hits {
        match &self.hits {
            Trio::One(hits) => hits,
            Trio::Split(hits) => &hits[world],
        }
    }

    /// What the worlds disagree about is out of every rule's sight: they are one again.
    pub fn touch(&mut self, horizon: Micros) {
        if self.diverged <= horizon
            && let Trio::Split(hits) = &mut self.hits
        {
            self.hits = Trio::One(std::mem::take(&mut hits[GUESS]));
        }
    }

    /// Nothing in it is in sight of any rule, and nothing is under way.
    pub fn is_over(&self, horizon: Micros) -> bool {
        self.holds == [0; 3]
            && self.loose == 0
            && self.void <= horizon
            && self.hits_of(MAY).last().is_none_or(|last| last <= horizon)
    }

    fn split(&mut self) -> &mut [Hits; 3] {
        if let Trio::One(hits) = &mut self.hits {
            let hits = std::mem::take(hits);
            self.hits = Trio::Split(Box::new([hits.clone(), hits.clone(), hits]));
        }
        match &mut self.hits {
            Trio::Split(hits) => hits,
            Trio::One(_) => unreachable!("split above"),
        }
    }

    /// A hit at these times in the worlds that have one.
    pub fn insert(&mut self, at: [Option<Micros>; 3], id: Hit, capacity: usize) {
        let mut at = at;
        at[MUST] = at[MUST].filter(|at| *at > self.void);
        if let (Trio::One(hits), [Some(first), Some(second), Some(third)]) = (&mut self.hits, at)
            && first == second
            && second == third
            && self.loose == 0
        {
            hits.keep(Hit { at: first, ..id }, capacity);
            return;
        }
        let newest = at.iter().flatten().max();
        self.diverged = self.diverged.max(newest.copied().unwrap_or(self.diverged));
        let loose = self.loose as usize;
        let capacities = [capacity.saturating_sub(loose), capacity, capacity + loose];
        for ((hits, at), capacity) in self.split().iter_mut().zip(at).zip(capacities) {
            if let Some(at) = at {
                hits.insert(Hit { at, ..id }, capacity);
            }
            hits.trim(capacity);
        }
    }

    /// A hit that may stand, and will be taken back if it does.
    pub fn insert_loose(&mut self, worlds: Worlds, hit: Hit, capacity: usize) {
        self.loose += 1;
        self.insert(worlds.0.map(|has| has.then_some(hit.at)), hit, capacity);
    }

    pub fn take_out(&mut self, hit: Hit, was_loose: bool) {
        self.loose -= u32::from(was_loose);
        match &mut self.hits {
            Trio::One(hits) => {
                hits.take_out(hit);
            }
            Trio::Split(hits) => hits.iter_mut().for_each(|hits| {
                hits.take_out(hit);
            }),
        }
    }

    /// Forgives what is not newer, in the worlds where that happens: rules that ask for a challenge pass over it.
    /// Whether any was certain.
    pub fn forgive(&mut self, worlds: Worlds, up_to: Micros) -> bool {
        let standing = self.hits_of(MUST).unforgiven();
        let oldest = (standing > 0).then(|| self.hits_of(MUST).nth_newest(standing)).flatten();
        self.cut(worlds, up_to, |hits| hits.forgive(up_to));
        worlds.0[MUST] && oldest.is_some_and(|oldest| oldest <= up_to)
    }

    /// Somebody forgot what is not newer.
    pub fn clear(&mut self, up_to: Micros) {
        self.cut(Worlds::ALL, up_to, |hits| hits.retain(|hit| hit.at > up_to));
    }

    fn cut(&mut self, worlds: Worlds, up_to: Micros, cut: impl Fn(&mut Hits)) {
        match &mut self.hits {
            _ if worlds == Worlds([false; 3]) => {}
            Trio::One(hits) if worlds.is_certain() => cut(hits),
            Trio::One(hits) if hits.not_newer(up_to, 1) == 0 => {}
            _ => {
                if !worlds.is_certain() {
                    self.diverged = self.diverged.max(up_to);
                }
                for (hits, _) in self.split().iter_mut().zip(worlds.0).filter(|(_, does)| *does) {
                    cut(hits);
                }
            }
        }
    }

    /// Something may be forgiven, or forgotten, at any moment up to then. Whether anything was certain.
    pub fn void_up_to(&mut self, up_to: Micros) -> bool {
        if up_to <= self.void {
            return false;
        }
        self.void = up_to;
        let hits = self.hits_of(MUST);
        let lost = hits.nth_newest(hits.len()).is_some_and(|first| first <= up_to);
        self.cut(Worlds([true, false, false]), up_to, |hits| hits.retain(|hit| hit.at > up_to));
        lost
    }

    /// The fewest that a full log may have left once one that may have come in was taken back.
    pub fn spare_one(&mut self, capacity: usize) {
        if self.hits_of(MUST).len() >= capacity {
            let newest = self.hits_of(MUST).last().expect("a full log has a newest hit");
            self.diverged = self.diverged.max(newest);
            self.split()[MUST].trim(capacity.saturating_sub(1));
        }
    }
}

/// Longer than an episode of the record, which is judged by its first moment when its last has come.
const LAG: Duration = Duration::from_secs(60);

/// Nothing at this time or before it is looked at any more.
pub fn horizon(longest: Duration, now: Micros) -> Micros {
    now.minus(longest).minus(LAG)
}
