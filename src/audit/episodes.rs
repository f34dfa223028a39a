//! Folds events into episodes, so that a flood of any size writes a bounded number of rows and takes a bounded amount of
//! memory: a refusal that repeats while nothing else changes is one row with a count, and so is, past a number a minute,
//! what one account or network does that nothing else bounds.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::event::{
    Action, AuditEvent, DEVICE_FIRST, EventEntry, FROM_DEVICE, OWN_DATA, Outcome, UNCOUNTED_REGISTRATIONS,
};
use super::writer::EventKeys;
use crate::clock::Micros;
use crate::config::{LimitName, LimitSubject, SMS_BRAKE, SMS_BUDGET};

/// A power of two. Two requests seldom meet at one shard, and searching one for what is due is quick.
const SHARDS: usize = 16;
/// Open episodes of a shard that name everyone who takes part; beyond this, only the subject that the limit
/// counts.
const DETAILED: usize = 256;
/// Open episodes of a shard; beyond this, no subject is named.
const MOST: usize = 1024;
/// Open episodes at one subject of one rule, each with a different partner (an address at an account, an
/// account from an address). As many addresses of one network are told apart.
const MOST_AT_ONE: u32 = 64;
/// How long an episode stays open before it is written.
const LIFE: Duration = Duration::from_secs(10);
/// How long an episode of challenges stays open, of which nearly everybody has some and few have many, and for what
/// is paced.
const LONG_LIFE: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);
/// Rows of their own that one account, or else one network, can cause in a minute by what is paced, of each action.
pub(super) const PACE: u32 = 60;
/// Times of one row, in some 4 kB.
const MOST_HITS: usize = 400;

pub struct EpisodeTable {
    shards: Box<[Mutex<EpisodeShard>]>,
    hashes: RandomState,
}

/// The keys are keyed hashes, which nobody outside can choose.
#[derive(Default)]
struct EpisodeShard {
    open: FxHashMap<u64, OpenEpisode>,
    at_one: FxHashMap<u64, u32>,
    paces: FxHashMap<u64, EventPace>,
}

/// The rows of a minute.
struct EventPace {
    began: Micros,
    rows: u32,
}

struct OpenEpisode {
    row: EventEntry,
    /// The time of each, if limits count each.
    hits: Vec<Micros>,
    frees_at: Micros,
    due: Micros,
    /// The key under which it is counted among those at one subject, and that of the subject's network.
    at_one: Option<(u64, Option<u64>)>,
}

/// How many of an event's subjects an episode names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamedSubjects {
    All,
    Counted,
    /// The network of the address that would be counted.
    Network,
    Unnamed,
}

impl Default for EpisodeTable {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hashes: RandomState::new() }
    }
}

/// How events of a kind are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// A row each: limits let few of them happen, or administrators and programs with a token cause them.
    Each,
    /// A row for many.
    Folded,
    /// A row each, up to so many a minute of one account or network. The rest is folded.
    Paced,
}

/// What is a hit somewhere is folded only with the time of each, because a replay tries each.
pub fn recording(event: &AuditEvent<'_>) -> Recording {
    use Outcome::{Asked, Busy, Challenged, Failed, Ok, Refused, Throttled, Unavailable, Wrong};
    // Otherwise there is nobody to pace.
    let paced = match event.account.is_some() || event.network.is_some() {
        true => Recording::Paced,
        false => Recording::Each,
    };
    let (outcome, name) = (event.outcome, event.name.unwrap_or_default());
    match event.action {
        _ if matches!(outcome, Challenged | Throttled | Busy | Asked | Unavailable) => Recording::Folded,
        // A wrong answer is a hit for its address, or else `Failed`.
        Action::Captcha if outcome != Wrong => Recording::Folded,
        // Refused for what was typed, and counted nowhere.
        Action::Register if outcome == Failed && UNCOUNTED_REGISTRATIONS.contains(&name) => Recording::Folded,
        // Strangers send what was never given out as fast as they like.
        Action::ClientCall => Recording::Folded,
        Action::Admin if outcome == Refused && name == "access" => Recording::Folded,
        // From a network that is refused.
        Action::SignIn
        | Action::Attempt
        | Action::Send
        | Action::Guess
        | Action::Mail
        | Action::MailGuess
        | Action::Register
        | Action::Request
            if outcome == Refused =>
        {
            Recording::Folded
        }
        // Others may write to the backend of the limits as often as they like.
        Action::Reload if outcome == Refused => Recording::Folded,
        // What an account's owner does as fast as they like.
        Action::FactorAdded
        | Action::FactorRemoved
        | Action::ConsentGiven
        | Action::TokenReuse
        | Action::PasswordBreached => paced,
        Action::Admin if OWN_DATA.contains(&name) => paced,
        Action::SignIn if outcome == Ok => paced,
        // Recovery codes and passkeys count at address and network alone, which ask for challenges; and of known devices, of
        // which whoever has the password makes as many as they like, each has a limit of its own.
        Action::FactorFailed => paced,
        Action::SignIn if outcome == Wrong && name == FROM_DEVICE => paced,
        Action::Attempt
            if outcome == Wrong
                && event.detail.as_deref().is_some_and(|detail| detail.starts_with(DEVICE_FIRST)) =>
        {
            paced
        }
        Action::SignIn
        | Action::Attempt
        | Action::Reset
        | Action::PasswordDisabled
        | Action::Spray
        | Action::FactorReset
        | Action::TotpDisabled
        | Action::KeyRotated
        | Action::Guess
        | Action::Send
        | Action::Mail
        | Action::MailGuess
        | Action::Frozen
        | Action::Register
        | Action::Budget
        | Action::Captcha
        | Action::Custom
        | Action::Request
        | Action::Reload
        | Action::Attack
        | Action::Admin => Recording::Each,
    }
}

/// Whether limits count each: a replay tries it.
const fn is_hit(action: Action) -> bool {
    matches!(action, Action::SignIn | Action::Attempt | Action::FactorFailed)
}

impl EpisodeTable {
    /// Counts an event in its episode, or starts one; `begin` creates its row, `ended` receives the row of an
    /// episode that this event ends, or its own. True if an open episode counts it.
    pub fn fold(
        &self,
        (event, recording): (&AuditEvent<'_>, Recording),
        keys: EventKeys,
        now: Micros,
        begin: impl Fn(EventKeys) -> EventEntry,
        ended: impl FnOnce(EventEntry),
    ) -> bool {
        let counted = counted(event, recording, keys);
        let is_paced = recording == Recording::Paced;
        if recording == Recording::Each || is_paced && self.has_row(event, counted, now) {
            ended(begin(keys));
            return false;
        }
        let at_one = self.identity(event, counted, NamedSubjects::Counted);
        let of_network = EventKeys { network: counted.network, ..EventKeys::default() };
        let is_in_network = counted.address.is_some() && counted.network.is_some();
        let network = is_in_network.then(|| self.identity(event, of_network, NamedSubjects::Network));
        let mut shard = lock(&self.shards[network.unwrap_or(at_one) as usize % SHARDS]);
        let mut place = (self.identity(event, keys, NamedSubjects::All), keys, NamedSubjects::All);
        if !shard.open.contains_key(&place.0) {
            // If it names no more than the counted subject, being one of many saves nothing.
            let bare = keys == counted && event.detail.is_none();
            let (is_told_apart, has_room) = (shard.tells_apart(at_one, network), shard.open.len() < MOST);
            place = if is_told_apart && (shard.has_room_for_all(at_one) || bare && has_room) {
                place
            } else if shard.open.contains_key(&at_one) || is_told_apart && has_room {
                (at_one, counted, NamedSubjects::Counted)
            } else if let Some(network) = network
                && (has_room || shard.open.contains_key(&network))
            {
                (network, of_network, NamedSubjects::Network)
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
            NamedSubjects::Network | NamedSubjects::Unnamed => Micros(0),
            // Numbers of codes of other programs are not known here.
            _ if counts_numbers(event) && keys.phone.is_none() => Micros(0),
            // In monitor mode each of them moves it.
            _ if is_paced || event.action == Action::ClientCall => Micros(0),
            NamedSubjects::All | NamedSubjects::Counted => event.why.map_or(Micros(0), |why| why.frees_at),
        };
        let is_one = |open: &&mut OpenEpisode| open.frees_at == frees_at && open.hits.len() < MOST_HITS;
        let hit = (is_paced && is_hit(event.action)).then_some(event.at);
        if let Some(open) = shard.open.get_mut(&identity).filter(is_one) {
            open.row.count += 1;
            open.hits.extend(hit);
            open.row.at = open.row.at.min(event.at);
            open.row.until = open.row.until.max(event.at);
            return true;
        }
        if let Some(row) = shard.take(identity) {
            ended(row);
        }
        let life = if is_paced || event.action == Action::Captcha { LONG_LIFE } else { LIFE };
        let names_one = matches!(named, NamedSubjects::All | NamedSubjects::Counted);
        let at_one = names_one.then_some((at_one, network));
        let (row, hits, due) = (begin(keys), hit.into_iter().collect(), now.plus(life));
        shard.begin(identity, OpenEpisode { row, hits, frees_at, due, at_one });
        false
    }

    /// Whether the account or the network may have another row of its own for this action.
    fn has_row(&self, event: &AuditEvent<'_>, counted: EventKeys, now: Micros) -> bool {
        let key = self.hashes.hash_one((event.action, event.outcome, counted));
        lock(&self.shards[key as usize % SHARDS]).has_row(key, now)
    }

    /// Ends the episodes that have been open long enough; all of them if no time is given.
    pub fn end(&self, now: Option<Micros>, mut ended: impl FnMut(EventEntry)) {
        // A clock that stepped back must not keep an episode open for as long as the step.
        let is_due =
            |open: &OpenEpisode| now.is_none_or(|now| open.due <= now || open.due > now.plus(LONG_LIFE));
        for shard in &self.shards {
            let mut shard = lock(shard);
            let due: Vec<u64> =
                shard.open.iter().filter(|(_, open)| is_due(open)).map(|(identity, _)| *identity).collect();
            due.into_iter().filter_map(|identity| shard.take(identity)).for_each(&mut ended);
            if let Some(now) = now {
                shard.paces.retain(|_, pace| pace.lasts(now));
            }
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

impl EventPace {
    /// A clock that stepped back must not make a minute longer.
    fn lasts(&self, now: Micros) -> bool {
        self.began <= now && now < self.began.plus(MINUTE)
    }
}

impl OpenEpisode {
    fn into_row(self) -> EventEntry {
        let (mut row, hits) = (self.row, self.hits);
        if hits.len() > 1 {
            let offsets = hits.iter().map(|at| (at.0 - row.at.0).to_string());
            row.hits = Some(offsets.collect::<Vec<_>>().join(","));
        }
        row
    }
}

impl EpisodeShard {
    /// While too many act to remember each, all have one.
    fn has_row(&mut self, key: u64, now: Micros) -> bool {
        let is_full = self.paces.len() >= MOST;
        match self.paces.get_mut(&key) {
            Some(pace) if pace.lasts(now) => {
                pace.rows = pace.rows.saturating_add(1);
                pace.rows <= PACE
            }
            None if is_full => true,
            _ => {
                self.paces.insert(key, EventPace { began: now, rows: 1 });
                true
            }
        }
    }

    fn has_room_for_all(&self, at_one: u64) -> bool {
        self.open.len() < DETAILED && self.at_one.get(&at_one).is_none_or(|count| *count < MOST_AT_ONE)
    }

    /// Whether this address may be told apart from the others of its network.
    fn tells_apart(&self, at_one: u64, network: Option<u64>) -> bool {
        let addresses = network.and_then(|network| self.at_one.get(&network));
        self.at_one.contains_key(&at_one) || addresses.is_none_or(|count| *count < MOST_AT_ONE)
    }

    fn begin(&mut self, identity: u64, open: OpenEpisode) {
        if let Some((at_one, network)) = open.at_one {
            let count = self.at_one.entry(at_one).or_default();
            *count += 1;
            if let Some(network) = network.filter(|_| *count == 1) {
                *self.at_one.entry(network).or_default() += 1;
            }
        }
        self.open.insert(identity, open);
    }

    fn take(&mut self, identity: u64) -> Option<EventEntry> {
        let open = self.open.remove(&identity)?;
        if let Some((at_one, network)) = open.at_one
            && self.is_last(at_one)
            && let Some(network) = network
        {
            self.is_last(network);
        }
        Some(open.into_row())
    }

    fn is_last(&mut self, at_one: u64) -> bool {
        let Some(count) = self.at_one.get_mut(&at_one) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.at_one.remove(&at_one);
        }
        is_last
    }
}

/// The subject that the limit counts, which follows from its name: the account for `login-account`. If no
/// limit refused, the address. An address is in one network, which may be named with it. Of what is paced, it is whoever
/// does it: the account, or if none is known the network.
fn counted(event: &AuditEvent<'_>, recording: Recording, keys: EventKeys) -> EventKeys {
    let limit = event.why.map_or("", |why| why.limit);
    let none = EventKeys::default();
    if recording == Recording::Paced {
        return match keys.account {
            Some(_) => EventKeys { account: keys.account, ..none },
            None => EventKeys { network: keys.network, ..none },
        };
    }
    // Beside a refused network nothing else is named: one row, whoever asks there.
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
        Some(LimitSubject::Phone | LimitSubject::Mailbox) => EventKeys { phone: keys.phone, ..none },
        Some(LimitSubject::Network | LimitSubject::RealmNetwork | LimitSubject::ProgramNetwork) => {
            EventKeys { network: keys.network, ..none }
        }
        Some(LimitSubject::Prefix | LimitSubject::ProgramPrefix) => EventKeys { prefix: keys.prefix, ..none },
        Some(LimitSubject::Everyone | LimitSubject::Program | LimitSubject::MailDomain) => none,
        // One row for each network that is asked.
        Some(LimitSubject::Password) => EventKeys { network: keys.network, ..none },
        None if limit.starts_with("custom.") => EventKeys { account: keys.account, ..none },
        None if limit == SMS_BRAKE => EventKeys { prefix: keys.prefix, ..none },
        None if limit == SMS_BUDGET => none,
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
