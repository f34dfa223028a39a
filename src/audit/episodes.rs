//! Folds refusals into episodes: a refusal that repeats while nothing else changes is one row with a count,
//! so that a flood of any size writes a bounded number of rows and takes a bounded amount of memory.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::event::{Action, AuditEvent, EventEntry, Outcome, UNCOUNTED_REGISTRATIONS};
use super::writer::EventKeys;
use crate::clock::Micros;
use crate::config::{LimitName, LimitSubject, SMS_BRAKE};

/// A power of two. Two requests seldom meet at one shard, and searching one for what is due is quick.
const SHARDS: usize = 16;
/// Open episodes of a shard that name everyone who takes part; beyond this, only the subject that the limit
/// counts.
const DETAILED: usize = 256;
/// Open episodes of a shard; beyond this, no subject is named.
const MOST: usize = 1024;
/// Open episodes at one subject of one rule, each with a different partner (an address at an account, an
/// account from an address).
const MOST_AT_ONE: u32 = 64;
/// How long an episode stays open before it is written.
const LIFE: Duration = Duration::from_secs(10);
/// The same for challenges: nearly everybody has some and few have many.
const CAPTCHA_LIFE: Duration = Duration::from_secs(60);

pub struct EpisodeTable {
    shards: Box<[Mutex<EpisodeShard>]>,
    hashes: RandomState,
}

/// By keyed hashes, which nobody outside can choose.
#[derive(Default)]
struct EpisodeShard {
    open: FxHashMap<u64, OpenEpisode>,
    at_one: FxHashMap<u64, u32>,
}

struct OpenEpisode {
    row: EventEntry,
    frees_at: Micros,
    due: Micros,
    /// The key under which it is counted among those at one subject.
    at_one: Option<u64>,
}

/// How many of an event's subjects an episode names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamedSubjects {
    All,
    Counted,
    Unnamed,
}

impl Default for EpisodeTable {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hashes: RandomState::new() }
    }
}

/// Whether events of this kind are folded. What is a hit somewhere never is: a replay tries each.
pub fn folds(event: &AuditEvent<'_>) -> bool {
    match (event.action, event.outcome) {
        // A wrong answer is a hit for its address, or else `Failed`.
        (Action::Captcha, outcome) => outcome != Outcome::Wrong,
        // Refused for what was typed, and counted nowhere.
        (Action::Register, Outcome::Failed) => {
            UNCOUNTED_REGISTRATIONS.contains(&event.name.unwrap_or_default())
        }
        // Strangers send what was never given out as fast as they like.
        (Action::ClientCall, _) => true,
        (Action::Admin, outcome) => outcome == Outcome::Refused && event.name == Some("access"),
        // From a network that is refused.
        (
            Action::SignIn
            | Action::Attempt
            | Action::Send
            | Action::Guess
            | Action::Register
            | Action::Request,
            Outcome::Refused,
        ) => true,
        // Others may write to the backend of the limits as often as they like.
        (Action::Reload, outcome) => outcome == Outcome::Refused,
        (_, outcome) => matches!(
            outcome,
            Outcome::Challenged | Outcome::Throttled | Outcome::Busy | Outcome::Asked | Outcome::Unavailable
        ),
    }
}

impl EpisodeTable {
    /// Counts an event in its episode, or starts one; `begin` creates its row, `ended` receives the row of an
    /// episode that this event ends. True if an open episode counts it.
    pub fn fold(
        &self,
        event: &AuditEvent<'_>,
        keys: EventKeys,
        now: Micros,
        begin: impl Fn(EventKeys) -> EventEntry,
        ended: impl FnOnce(EventEntry),
    ) -> bool {
        let counted = counted(event, keys);
        let at_one = self.identity(event, counted, NamedSubjects::Counted);
        let mut shard = lock(&self.shards[at_one as usize % SHARDS]);
        let mut place = (self.identity(event, keys, NamedSubjects::All), keys, NamedSubjects::All);
        if !shard.open.contains_key(&place.0) {
            // If it names no more than the counted subject, being one of many saves nothing.
            let bare = keys == counted && event.detail.is_none();
            place = if shard.has_room_for_all(at_one) || bare && shard.open.len() < MOST {
                place
            } else if shard.open.contains_key(&at_one) || shard.open.len() < MOST {
                (at_one, counted, NamedSubjects::Counted)
            } else {
                (
                    self.identity(event, EventKeys::default(), NamedSubjects::Unnamed),
                    EventKeys::default(),
                    NamedSubjects::Unnamed,
                )
            };
        }
        let (identity, keys, named) = place;
        // If several subjects share a row, so do the several hits that cause their waits.
        let frees_at = match named {
            NamedSubjects::Unnamed => Micros(0),
            // Of codes of other programs, whose numbers are not known here.
            _ if counts_numbers(event) && keys.phone.is_none() => Micros(0),
            // In monitor mode each of them moves it.
            _ if event.action == Action::ClientCall => Micros(0),
            NamedSubjects::All | NamedSubjects::Counted => event.why.map_or(Micros(0), |why| why.frees_at),
        };
        if let Some(open) = shard.open.get_mut(&identity).filter(|open| open.frees_at == frees_at) {
            open.row.count += 1;
            open.row.at = open.row.at.min(event.at);
            open.row.until = open.row.until.max(event.at);
            return true;
        }
        if let Some(row) = shard.take(identity) {
            ended(row);
        }
        let life = if event.action == Action::Captcha { CAPTCHA_LIFE } else { LIFE };
        let at_one = (named == NamedSubjects::All).then_some(at_one);
        shard.begin(identity, OpenEpisode { row: begin(keys), frees_at, due: now.plus(life), at_one });
        false
    }

    /// Ends the episodes that have been open long enough; all of them if no time is given.
    pub fn end(&self, now: Option<Micros>, mut ended: impl FnMut(EventEntry)) {
        // A clock that stepped back must not keep an episode open for as long as the step.
        let is_due =
            |open: &OpenEpisode| now.is_none_or(|now| open.due <= now || open.due > now.plus(CAPTCHA_LIFE));
        for shard in &self.shards {
            let mut shard = lock(shard);
            let due: Vec<u64> =
                shard.open.iter().filter(|(_, open)| is_due(open)).map(|(identity, _)| *identity).collect();
            due.into_iter().filter_map(|identity| shard.take(identity)).for_each(&mut ended);
        }
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).open.len()).sum()
    }

    fn identity(&self, event: &AuditEvent<'_>, keys: EventKeys, named: NamedSubjects) -> u64 {
        let why = event.why.map(|why| (why.limit, why.rule, why.noted));
        // Without any subject named, who takes part no longer separates episodes.
        let unnamed = named == NamedSubjects::Unnamed;
        let detail = (event.actor, event.detail.as_deref());
        let detail = if named == NamedSubjects::All { detail } else { (None, None) };
        let what = (event.action, event.outcome, event.name, event.solved, why, detail);
        self.hashes.hash_one((what, keys, unnamed))
    }
}

impl EpisodeShard {
    fn has_room_for_all(&self, at_one: u64) -> bool {
        self.open.len() < DETAILED && self.at_one.get(&at_one).is_none_or(|count| *count < MOST_AT_ONE)
    }

    fn begin(&mut self, identity: u64, open: OpenEpisode) {
        if let Some(at_one) = open.at_one {
            *self.at_one.entry(at_one).or_default() += 1;
        }
        self.open.insert(identity, open);
    }

    fn take(&mut self, identity: u64) -> Option<EventEntry> {
        let open = self.open.remove(&identity)?;
        if let Some(at_one) = open.at_one
            && let Some(count) = self.at_one.get_mut(&at_one)
        {
            *count -= 1;
            if *count == 0 {
                self.at_one.remove(&at_one);
            }
        }
        Some(open.row)
    }
}

/// The subject that the limit counts, which follows from its name: the account for `login-account`. If no
/// limit refused, the address. An address is in one network, which may be named with it.
fn counted(event: &AuditEvent<'_>, keys: EventKeys) -> EventKeys {
    let limit = event.why.map_or("", |why| why.limit);
    let none = EventKeys::default();
    // Of a refused network, nobody beside it is named: one row, whoever asks there.
    if event.address.is_none() && event.network.is_some() {
        return EventKeys { network: keys.network, ..none };
    }
    if event.action == Action::Admin && event.actor.is_none() {
        return none;
    }
    match LimitName::parse(limit).map(LimitName::subject) {
        Some(
            LimitSubject::Account
            | LimitSubject::Device
            | LimitSubject::RealmAccount
            | LimitSubject::RealmDevice
            | LimitSubject::Grant,
        ) => EventKeys { account: keys.account, ..none },
        Some(LimitSubject::Phone) => EventKeys { phone: keys.phone, ..none },
        Some(LimitSubject::Network | LimitSubject::RealmNetwork | LimitSubject::ProgramNetwork) => {
            EventKeys { network: keys.network, ..none }
        }
        Some(LimitSubject::Prefix | LimitSubject::ProgramPrefix) => EventKeys { prefix: keys.prefix, ..none },
        Some(LimitSubject::Everyone | LimitSubject::Program) => none,
        None if limit.starts_with("custom.") => EventKeys { account: keys.account, ..none },
        None if limit == SMS_BRAKE => EventKeys { prefix: keys.prefix, ..none },
        Some(LimitSubject::Address | LimitSubject::RealmAddress | LimitSubject::ProgramAddress) | None => {
            EventKeys { address: keys.address, network: keys.network, ..none }
        }
    }
}

fn counts_numbers(event: &AuditEvent<'_>) -> bool {
    let limit = event.why.and_then(|why| LimitName::parse(why.limit));
    limit.is_some_and(|limit| limit.subject() == LimitSubject::Phone)
}

fn lock(shard: &Mutex<EpisodeShard>) -> MutexGuard<'_, EpisodeShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
