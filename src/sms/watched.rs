//! The limits on messages of one moment, and the window logs that a message counts in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::ProgramKind;
use super::once;
use super::path::SendPath;
use super::share::{self, BudgetShare};
use crate::clock::Micros;
use crate::config::LiveSettings;
use crate::throttle::{AnyStore, Bucket, Limit, Limiter, SubjectKey, window};

/// The subject of the budget that everyone shares.
pub const EVERYONE: &[u8] = b"everyone";

/// The limits of one moment; the shared ones reduced to the part that is open to everybody.
#[derive(Debug)]
pub struct SmsLimits {
    pub phone: Limit,
    address: Limit,
    network: Limit,
    prefix: Limit,
    pub total: Limit,
    /// Of one program, by its kind.
    programs: [Limit; 2],
    once: Limit,
    relay_once: Limit,
    /// The requester's two limits, which in a shortage count but refuse nothing: an address is shared, and
    /// requests of strangers there must not lock out an owner.
    asker: [Limit; 2],
    /// The reserves of the prefix and the total; None if one of them reserves nothing.
    reserve: Option<[Limit; 2]>,
    /// The limits as configured.
    whole: [Limit; 7],
    code_ttl: Duration,
}

/// What a message counts against: keys of window logs, which do not reveal the subjects.
#[derive(Debug, Clone, Copy)]
pub struct MessageKeys {
    pub phone: SubjectKey,
    pub address: SubjectKey,
    pub network: SubjectKey,
    prefix: SubjectKey,
    total: SubjectKey,
    program: Option<(ProgramKind, SubjectKey)>,
    pub once: Option<SubjectKey>,
    /// Of the reserves.
    reserve: [SubjectKey; 2],
}

/// The limits as last used, and those of exempt clients beside them: recreated only if others are in force, so that a
/// refusal which the store remembers is recognised.
#[derive(Debug, Default)]
pub struct LastSmsLimits(Mutex<VecDeque<Arc<SmsLimits>>>);

/// The limits of everybody, and those of clients in `[access] allow`.
const KINDS_IN_FORCE: usize = 2;

impl LastSmsLimits {
    pub fn of(&self, live: &LiveSettings) -> Arc<SmsLimits> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = last.iter().find(|watched| watched.is_of(live)) {
            return Arc::clone(watched);
        }
        let watched = Arc::new(SmsLimits::of(live));
        last.push_front(Arc::clone(&watched));
        last.truncate(KINDS_IN_FORCE);
        watched
    }
}

impl SmsLimits {
    fn of(live: &LiveSettings) -> Self {
        let whole = live.limits.on_messages().map(Limit::clone);
        let [phone, address, network, prefix, total, verifier, relay] = &whole;
        let kept = (share::reserve(prefix, "sms-prefix-reserve"), share::reserve(total, "sms-total-reserve"));
        Self {
            phone: phone.clone(),
            address: share::open(address),
            network: share::open(network),
            prefix: share::open(prefix),
            total: share::open(total),
            programs: [verifier.clone(), relay.clone()],
            once: once::limit(live.sms.code_ttl),
            relay_once: once::limit(once::RELAYED),
            asker: [share::counting(address), share::counting(network)],
            reserve: match kept {
                (Some(prefix), Some(total)) => Some([prefix, total]),
                _ => None,
            },
            whole,
            code_ttl: live.sms.code_ttl,
        }
    }

    fn is_of(&self, live: &LiveSettings) -> bool {
        let same = self.whole.iter().zip(live.limits.on_messages()).all(|(limit, other)| limit.is(other));
        same && self.code_ttl == live.sms.code_ttl
    }

    /// As configured: number, address, network, prefix, total, programs and relays.
    pub const fn whole(&self) -> &[Limit; 7] {
        &self.whole
    }

    const fn program(&self, kind: ProgramKind) -> &Limit {
        let [verifier, relay] = &self.programs;
        match kind {
            ProgramKind::Verifier => verifier,
            ProgramKind::Relay => relay,
        }
    }

    /// The log that knows the request by its name, if it has one.
    pub fn once(&self, keys: &MessageKeys) -> Option<Bucket<'_>> {
        let limit = match keys.program {
            Some((ProgramKind::Relay, _)) => &self.relay_once,
            Some((ProgramKind::Verifier, _)) | None => &self.once,
        };
        keys.once.map(|key| Bucket { limit, key })
    }

    /// The key of a request's name, which is the same for all kinds.
    pub fn once_key(&self, limiter: &Limiter<AnyStore>, parts: &[&[u8]]) -> SubjectKey {
        once::key(limiter, &self.once, parts)
    }

    /// What every message counts in before it is known who owns the number; one in the open part counts in
    /// all at once.
    pub fn buckets(&self, keys: &MessageKeys, share: BudgetShare) -> Vec<Bucket<'_>> {
        let [address, network] = match share {
            BudgetShare::Open => [&self.address, &self.network],
            BudgetShare::SpentAsker | BudgetShare::Reserve | BudgetShare::Withheld => {
                [&self.asker[0], &self.asker[1]]
            }
        };
        let own = [(&self.phone, keys.phone), (address, keys.address), (network, keys.network)];
        let mut all: Vec<_> = own.map(|(limit, key)| Bucket { limit, key }).into();
        if share == BudgetShare::Open {
            all.extend(self.shared(keys, share));
        }
        all.extend(keys.program.map(|(kind, key)| Bucket { limit: self.program(kind), key }));
        all.extend(self.once(keys));
        all
    }

    /// What it counts in of the prefix and total budgets, by its share.
    pub fn shared(&self, keys: &MessageKeys, share: BudgetShare) -> Vec<Bucket<'_>> {
        let logs: Vec<_> = match share {
            BudgetShare::Open | BudgetShare::SpentAsker => {
                vec![(&self.prefix, keys.prefix), (&self.total, keys.total)]
            }
            BudgetShare::Reserve => self.reserve.iter().flatten().zip(keys.reserve).collect(),
            BudgetShare::Withheld => Vec::new(),
        };
        logs.into_iter().map(|(limit, key)| Bucket { limit, key }).collect()
    }

    /// Everything that a message counts in.
    pub fn all(&self, keys: &MessageKeys, share: BudgetShare) -> Vec<Bucket<'_>> {
        let mut buckets = self.buckets(keys, share);
        if share != BudgetShare::Open {
            buckets.extend(self.shared(keys, share));
        }
        buckets
    }

    /// Everything that it may count in on its path, whoever owns the number.
    pub fn every_log(&self, keys: &MessageKeys, path: SendPath) -> Vec<Bucket<'_>> {
        let mut buckets = self.buckets(keys, path.counted_as());
        buckets.extend(path.shares().iter().flat_map(|share| self.shared(keys, *share)));
        buckets
    }

    fn every(&self) -> impl Iterator<Item = &Limit> {
        self.whole.iter().chain([&self.once, &self.relay_once])
    }

    /// Nothing at or before this time counts any more.
    pub fn horizon(&self, now: Micros) -> Micros {
        let rules = self.every().flat_map(Limit::rules);
        rules.map(|rule| window::start(&rule.span, now)).min().unwrap_or(now)
    }

    /// What the store's mark is valid for. A limit that was raised or looks back further needs more than the
    /// store has kept, so the windows are complete only for limits of these sizes.
    pub fn shape(&self) -> String {
        let size = |limit: &Limit| format!(" {}x{}", limit.capacity(), limit.longest_window().as_secs());
        self.every().map(size).collect()
    }
}

impl MessageKeys {
    /// Of number, address, network and request; the others follow from the block and from the program's name.
    pub fn new(
        limiter: &Limiter<AnyStore>,
        watched: &SmsLimits,
        [phone, address, network]: [SubjectKey; 3],
        once: Option<SubjectKey>,
        block: &str,
        program: Option<(ProgramKind, &str)>,
    ) -> Self {
        let mut reserve = [SubjectKey([0; 16]); 2];
        let subjects = [block.as_bytes(), EVERYONE];
        for ((key, limit), subject) in reserve.iter_mut().zip(watched.reserve.iter().flatten()).zip(subjects)
        {
            *key = limiter.bucket(limit, subject).key;
        }
        Self {
            phone,
            address,
            network,
            prefix: limiter.bucket(&watched.prefix, block.as_bytes()).key,
            total: limiter.bucket(&watched.total, EVERYONE).key,
            program: program
                .map(|(kind, name)| (kind, limiter.bucket(watched.program(kind), name.as_bytes()).key)),
            once,
            reserve,
        }
    }
}
