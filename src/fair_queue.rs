//! A bounded queue that many owners share. The owner served least recently goes first, so that a crowd of
//! busy owners cannot make a quiet one wait a whole round (like new flows in fq_codel, RFC 8290). In a full
//! queue the owner with the most jobs gives way. An owner that is turned away before its first service counts
//! as served then, so that a crowd of new owners is new only once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The number of owners whose last service is remembered, about 2 MB; any other was served longer ago.
const MOST_REMEMBERED: usize = 16_384;

/// An owner of jobs in the queue: an account, an address or a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueOwner(u128);

impl QueueOwner {
    /// Other than any that [`QueueOwner::of`] makes of some bytes that are not all zero.
    pub const NOBODY: Self = Self(0);

    /// `bytes` are at most 16, and no two owners of the same length share them.
    pub fn of(bytes: &[u8]) -> Self {
        let mut padded = [0; 16];
        padded[..bytes.len()].copy_from_slice(bytes);
        Self(u128::from_le_bytes(padded))
    }
}

/// The number of a job. Of an owner's jobs the one with the smallest goes first: most number them in the order in
/// which they came.
pub type JobId = u64;
/// Jobs of one source run one at a time.
pub type QueueSource = u128;

pub struct FairQueue<J> {
    capacity: usize,
    length: usize,
    owners: HashMap<QueueOwner, OwnerJobs<J>>,
    /// Owners with a job that may start; the next one first.
    turns: BTreeSet<StartOrder>,
    /// Owners by their share of the queue; the one that gives way is last.
    shares: BTreeSet<ShareOrder>,
    running: HashSet<QueueSource>,
    served: LastServed,
}

/// When the owner was last served, and its oldest job that may start.
type StartOrder = (u64, JobId, QueueOwner);
/// How many jobs, when the owner was last served, and its youngest job.
type ShareOrder = (usize, u64, JobId, QueueOwner);

struct OwnerJobs<J> {
    jobs: BTreeMap<JobId, (Option<QueueSource>, J)>,
    turn: Option<StartOrder>,
    share: Option<ShareOrder>,
}

/// A job that was taken out to be done.
pub struct TakenJob<J> {
    pub job: J,
    pub owner: QueueOwner,
    pub source: Option<QueueSource>,
}

impl<J> FairQueue<J> {
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            length: 0,
            owners: HashMap::new(),
            turns: BTreeSet::new(),
            shares: BTreeSet::new(),
            running: HashSet::new(),
            served: LastServed::default(),
        }
    }

    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether a job of this owner would get a position, possibly another's.
    pub fn has_room(&mut self, owner: QueueOwner) -> bool {
        let room = self.length < self.capacity || self.gives_way_to(owner).is_some();
        if !room {
            self.served.note_first(owner);
        }
        room
    }

    /// Adds a job after the others of its owner. In a full queue it displaces the youngest job of the owner
    /// with the most jobs, which is returned. If no owner has more jobs than its own would have, it displaces its own
    /// owner's last one if that would run after it, and is refused otherwise.
    pub fn push(
        &mut self,
        owner: QueueOwner,
        id: JobId,
        source: Option<QueueSource>,
        job: J,
    ) -> Result<Option<J>, J> {
        let displaced = match (self.length < self.capacity, self.gives_way_to(owner)) {
            (true, _) => None,
            (false, Some((other, youngest))) => self.remove(other, youngest),
            (false, None) => match self.last_of(owner).filter(|last| *last > id) {
                Some(last) => self.remove(owner, last),
                None => {
                    self.served.note_first(owner);
                    return Err(job);
                }
            },
        };
        let entry =
            self.owners.entry(owner).or_insert(OwnerJobs { jobs: BTreeMap::new(), turn: None, share: None });
        entry.jobs.insert(id, (source, job));
        self.length += 1;
        self.reindex(owner);
        Ok(displaced)
    }

    /// The next job; report its end with [`FairQueue::finished`].
    pub fn take(&mut self) -> Option<TakenJob<J>> {
        let &(_, id, owner) = self.turns.first()?;
        let (source, job) = self.owners.get_mut(&owner)?.jobs.remove(&id)?;
        self.length -= 1;
        self.running.extend(source);
        self.served.note(owner);
        self.reindex(owner);
        Some(TakenJob { job, owner, source })
    }

    pub fn finished(&mut self, owner: QueueOwner, source: Option<QueueSource>) {
        if source.is_some_and(|source| self.running.remove(&source)) {
            self.reindex(owner);
        }
    }

    /// Removes a job that should not run; None if it has started or was displaced.
    pub fn remove(&mut self, owner: QueueOwner, id: JobId) -> Option<J> {
        let (_, job) = self.owners.get_mut(&owner)?.jobs.remove(&id)?;
        self.length -= 1;
        self.served.note_first(owner);
        self.reindex(owner);
        Some(job)
    }

    fn last_of(&self, owner: QueueOwner) -> Option<JobId> {
        Some(*self.owners.get(&owner)?.jobs.last_key_value()?.0)
    }

    /// Among owners with equally many jobs, the one served last gives way.
    fn gives_way_to(&self, newcomer: QueueOwner) -> Option<(QueueOwner, JobId)> {
        let &(most, served, youngest, owner) = self.shares.last()?;
        let own = self.owners.get(&newcomer).map_or(0, |owner| owner.jobs.len());
        ((own + 1, self.served.at(newcomer)) < (most, served)).then_some((owner, youngest))
    }

    fn reindex(&mut self, owner: QueueOwner) {
        let Some(entry) = self.owners.get_mut(&owner) else { return };
        entry.turn.take().map(|turn| self.turns.remove(&turn));
        entry.share.take().map(|share| self.shares.remove(&share));
        let Some((&youngest, _)) = entry.jobs.last_key_value() else {
            self.owners.remove(&owner);
            return;
        };
        let served = self.served.at(owner);
        let may_start =
            |source: &Option<QueueSource>| source.is_none_or(|source| !self.running.contains(&source));
        let next = entry.jobs.iter().find(|(_, (source, _))| may_start(source));
        entry.turn = next.map(|(&id, _)| (served, id, owner));
        entry.share = Some((entry.jobs.len(), served, youngest, owner));
        self.turns.extend(entry.turn);
        self.shares.extend(entry.share);
    }
}

/// When each owner was last served, by a count of services. Forgets the one served longest ago.
#[derive(Default)]
struct LastServed {
    services: u64,
    times: HashMap<QueueOwner, u64>,
    order: BTreeMap<u64, QueueOwner>,
}

impl LastServed {
    /// 0 if never, or too long ago to know.
    fn at(&self, owner: QueueOwner) -> u64 {
        self.times.get(&owner).copied().unwrap_or(0)
    }

    /// Notes the first job of an owner that was turned away, if it is not known yet.
    fn note_first(&mut self, owner: QueueOwner) {
        if !self.times.contains_key(&owner) {
            self.note(owner);
        }
    }

    fn note(&mut self, owner: QueueOwner) {
        self.services += 1;
        if let Some(before) = self.times.insert(owner, self.services) {
            self.order.remove(&before);
        }
        self.order.insert(self.services, owner);
        if self.order.len() > MOST_REMEMBERED
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.times.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
