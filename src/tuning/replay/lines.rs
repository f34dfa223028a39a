//! Who waits for others in flight, in the order they came: one line a log, as the limiter has them.

use std::collections::{HashMap, VecDeque};

use super::book::{Lane, Lanes};
use crate::clock::Micros;

#[derive(Debug, Clone, Copy)]
pub struct Waiter {
    pub row: u32,
    pub came: Micros,
}

#[derive(Debug, Default)]
pub struct Lines(HashMap<(usize, u32), VecDeque<Waiter>>);

impl Lines {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first of these logs that somebody waits for: who comes later must not pass them by.
    pub fn standing_at(&self, lanes: &Lanes) -> Option<Lane> {
        if self.0.is_empty() {
            return None;
        }
        lanes.iter().copied().find(|lane| self.0.contains_key(&key(*lane)))
    }

    pub fn join(&mut self, lane: Lane, waiter: Waiter) {
        self.0.entry(key(lane)).or_default().push_back(waiter);
    }

    /// Takes out whoever is first.
    pub fn first(&mut self, lane: Lane) -> Option<Waiter> {
        let line = self.0.get_mut(&key(lane))?;
        let first = line.pop_front();
        if line.is_empty() {
            self.0.remove(&key(lane));
        }
        first
    }

    /// Puts back who was first, and has to go on waiting. Whether it is in the same line.
    pub fn stay(&mut self, lane: Lane, wanted: Lane, waiter: Waiter) -> bool {
        let same = key(lane) == key(wanted);
        let line = self.0.entry(key(wanted)).or_default();
        if same {
            line.push_front(waiter)
        } else {
            line.push_back(waiter)
        }
        same
    }
}

fn key(lane: Lane) -> (usize, u32) {
    (lane.limit, lane.subject)
}
