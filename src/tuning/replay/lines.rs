//! Who waits for others in flight, in the order they came: two lines a log, as the limiter has them. Those with a
//! solved challenge have one of their own.

use std::collections::{HashMap, VecDeque};

use super::book::{Lane, Lanes};
use crate::clock::Micros;

#[derive(Debug, Clone, Copy)]
pub struct Waiter {
    pub row: u32,
    pub solved: bool,
    pub came: Micros,
}

#[derive(Debug, Default)]
pub struct Lines(HashMap<(usize, u32, bool), VecDeque<Waiter>>);

impl Lines {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first of these logs that somebody waits for: who comes later must not pass them by.
    pub fn standing_at(&self, lanes: &Lanes, solved: bool) -> Option<Lane> {
        if self.0.is_empty() {
            return None;
        }
        lanes.iter().copied().find(|lane| self.0.contains_key(&key(*lane, solved)))
    }

    pub fn join(&mut self, lane: Lane, waiter: Waiter) {
        self.0.entry(key(lane, waiter.solved)).or_default().push_back(waiter);
    }

    /// Takes out whoever is first.
    pub fn first(&mut self, lane: Lane, solved: bool) -> Option<Waiter> {
        let line = self.0.get_mut(&key(lane, solved))?;
        let first = line.pop_front();
        if line.is_empty() {
            self.0.remove(&key(lane, solved));
        }
        first
    }

    /// Puts back who was first, and has to go on waiting. Whether it is in the same line.
    pub fn stay(&mut self, lane: Lane, wanted: Lane, waiter: Waiter) -> bool {
        let wanted = key(wanted, waiter.solved);
        let same = key(lane, waiter.solved) == wanted;
        let line = self.0.entry(wanted).or_default();
        if same {
            line.push_front(waiter)
        } else {
            line.push_back(waiter)
        }
        same
    }
}

fn key(lane: Lane, solved: bool) -> (usize, u32, bool) {
    (lane.limit, lane.subject, solved)
}
