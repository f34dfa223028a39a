//! The open connections by peer, and which of them to close first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Peer;
use super::connection::{Connection, millis};

/// A head in transit arrives within this time. Younger connections do not count towards a peer's bound.
const YOUNG: Duration = Duration::from_secs(1);
/// How many connections one scan finds at most. They are closed as needed.
const FOUND: usize = 64;

#[derive(Default)]
pub(super) struct Table {
    peers: HashMap<Peer, HashMap<u64, Arc<Connection>>>,
    open: usize,
    last_id: u64,
    /// Those that had waited longest at the last scan, longest first. All others had waited less and still
    /// have, because a wait only ever starts anew.
    longest: VecDeque<Waiting>,
}

#[derive(Clone, Copy)]
struct Waiting {
    since: u64,
    id: u64,
    peer: Peer,
}

impl Waiting {
    fn order(&self) -> (u64, u64) {
        (self.since, self.id)
    }
}

impl Table {
    pub fn open(&self) -> usize {
        self.open
    }

    pub fn open_of(&self, peer: Peer) -> usize {
        self.peers.get(&peer).map_or(0, HashMap::len)
    }

    #[cfg(test)]
    pub fn holds(&self, peer: Peer, id: u64) -> bool {
        self.peers.get(&peer).is_some_and(|of_peer| of_peer.contains_key(&id))
    }

    #[cfg(test)]
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    pub fn insert(&mut self, peer: Peer, connection: Arc<Connection>) -> u64 {
        self.last_id += 1;
        self.peers.entry(peer).or_default().insert(self.last_id, connection);
        self.open += 1;
        self.last_id
    }

    pub fn remove(&mut self, peer: Peer, id: u64) -> Option<Arc<Connection>> {
        let of_peer = self.peers.get_mut(&peer)?;
        let connection = of_peer.remove(&id)?;
        if of_peer.is_empty() {
            self.peers.remove(&peer);
        }
        self.open -= 1;
        Some(connection)
    }

    /// Closes the one that has waited longest, of one peer or of all. False if none is waiting.
    pub fn close_longest(&mut self, of: Option<Peer>) -> bool {
        let longest = match of {
            Some(peer) => self.waiting_of(peer).min_by_key(Waiting::order),
            None => self.longest_of_all(),
        };
        longest.is_some_and(|waiting| self.close(waiting))
    }

    pub fn close_overdue(&mut self, now: u64) -> u64 {
        let overdue = |peer: &Peer, (id, connection): (&u64, &Arc<Connection>)| {
            connection.is_overdue(now).then_some(Waiting { since: 0, id: *id, peer: *peer })
        };
        let overdue = self
            .peers
            .iter()
            .flat_map(|(peer, of_peer)| of_peer.iter().filter_map(|entry| overdue(peer, entry)));
        let overdue: Vec<_> = overdue.collect();
        overdue.into_iter().filter(|waiting| self.close(*waiting)).count() as u64
    }

    /// Closes the connections that peers have above their bound, longest wait first.
    pub fn close_over(&mut self, bound: usize, now: u64) -> u64 {
        let over: Vec<_> = self
            .peers
            .iter()
            .filter(|(peer, of_peer)| peer.is_some() && of_peer.len() > bound)
            .map(|(peer, of_peer)| (*peer, of_peer.len() - bound))
            .collect();
        let mut closed = 0;
        for (peer, excess) in over {
            let mut waiting: Vec<_> =
                self.waiting_of(peer).filter(|waiting| waiting.since + millis(YOUNG) <= now).collect();
            waiting.sort_unstable_by_key(Waiting::order);
            closed += waiting.into_iter().take(excess).filter(|waiting| self.close(*waiting)).count();
        }
        closed as u64
    }

    fn close(&mut self, waiting: Waiting) -> bool {
        let connection = self.remove(waiting.peer, waiting.id);
        connection.is_some_and(|connection| {
            connection.close();
            true
        })
    }

    fn waiting_of(&self, peer: Peer) -> impl Iterator<Item = Waiting> {
        self.peers.get(&peer).into_iter().flatten().filter_map(move |(id, connection)| {
            connection.waits_since().map(|since| Waiting { since, id: *id, peer })
        })
    }

    fn longest_of_all(&mut self) -> Option<Waiting> {
        while let Some(waiting) = self.longest.pop_front() {
            let connection = self.peers.get(&waiting.peer).and_then(|of_peer| of_peer.get(&waiting.id));
            if connection.and_then(|connection| connection.waits_since()) == Some(waiting.since) {
                return Some(waiting);
            }
        }
        let mut all: Vec<_> = self.peers.keys().flat_map(|peer| self.waiting_of(*peer)).collect();
        if all.len() > FOUND {
            all.select_nth_unstable_by_key(FOUND, Waiting::order);
            all.truncate(FOUND);
        }
        all.sort_unstable_by_key(Waiting::order);
        self.longest = all.into();
        self.longest.pop_front()
    }
}
