//! The limits on messages of one moment, and the window logs that a message counts in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::ProgramKind;
use super::once;
use super::path::SendPath;
use super::share::{self, BudgetShare, open_part, pages_part};
use crate::clock::Micros;
use crate::config::{Limits, LiveSettings};
use crate::throttle::{AnyStore, Bucket, Limit, Limiter, SubjectKey, window};

/// The subject of the budget that everyone shares.
pub const EVERYONE: &[u8] = b"everyone";
/// The subject of the same limit that our own pages have beside it.
pub const PAGES: &[u8] = b"pages";

/// The limits of one moment; the shared ones reduced to the part that is open to everybody.
#[derive(Debug)]
pub struct SmsLimits {
    pages: SenderLimits,
    verifiers: SenderLimits,
    relays: SenderLimits,
    /// Of wrong codes, which are rebuilt with the messages.
    pub guess: Limit,
    /// The requester's two limits, which in a shortage count but refuse nothing: an address is shared, and
    /// requests of strangers there must not lock out an owner.
    asker: [Limit; 2],
    /// The reserves of the prefix and the total; None if one of them reserves nothing.
    reserve: Option<[Limit; 2]>,
    /// The limits as configured.
    whole: Vec<Limit>,
    code_ttl: Duration,
}

/// The limits as one kind of sender meets them. Only a caller that can show a challenge is asked for one, and only
/// for what the same sender has sent; all messages together count for `block` rules of the number and the total.
#[derive(Debug)]
struct SenderLimits {
    phone: Limit,
    /// Counts what one program sent to the number. Our own pages are challenged for all that it gets.
    phone_apart: Option<Limit>,
    address: Limit,
    network: Limit,
    prefix: Limit,
    total: Limit,
    /// Of this sender alone.
    own_total: Limit,
    once: Limit,
}

/// What a message counts against: keys of window logs, which do not reveal the subjects.
#[derive(Debug, Clone, Copy)]
pub struct MessageKeys {
    /// None: our own pages.
    program: Option<ProgramKind>,
    pub phone: SubjectKey,
    phone_apart: SubjectKey,
    pub address: SubjectKey,
    pub network: SubjectKey,
    prefix: SubjectKey,
    total: SubjectKey,
    own_total: SubjectKey,
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

impl SenderLimits {
    fn pages(limits: &Limits, code_ttl: Duration) -> Self {
        let Limits { sms_phone, sms_address, sms_network, sms_prefix, sms_total, .. } = limits;
        Self {
            phone: sms_phone.clone(),
            phone_apart: None,
            address: share::reduced(sms_address, open_part),
            network: share::reduced(sms_network, open_part),
            prefix: share::reduced(sms_prefix, open_part),
            total: share::reduced(sms_total, open_part).unchallenged(),
            own_total: share::reduced(sms_total, pages_part),
            once: once::limit(code_ttl),
        }
    }

    fn verifiers(limits: &Limits, code_ttl: Duration) -> Self {
        let Limits { sms_phone, program_address, program_network, program_prefix, sms_total, .. } = limits;
        Self {
            phone: sms_phone.unchallenged(),
            phone_apart: Some(sms_phone.clone()),
            address: program_address.clone(),
            network: program_network.clone(),
            prefix: program_prefix.clone(),
            total: share::reduced(sms_total, open_part).unchallenged(),
            own_total: limits.verify_token.clone(),
            once: once::limit(code_ttl),
        }
    }

    fn relays(limits: &Limits) -> Self {
        let Self { phone, address, network, prefix, total, .. } = Self::verifiers(limits, once::RELAYED);
        Self {
            phone,
            phone_apart: None,
            address: address.unchallenged(),
            network: network.unchallenged(),
            prefix: prefix.unchallenged(),
            total,
            own_total: limits.relay_token.unchallenged(),
            once: once::limit(once::RELAYED),
        }
    }
}

impl SmsLimits {
    fn of(live: &LiveSettings) -> Self {
        let (limits, code_ttl) = (&live.limits, live.sms.code_ttl);
        let prefix = share::reserve(&limits.sms_prefix, "sms-prefix-reserve");
        let total = share::reserve(&limits.sms_total, "sms-total-reserve");
        Self {
            pages: SenderLimits::pages(limits, code_ttl),
            verifiers: SenderLimits::verifiers(limits, code_ttl),
            relays: SenderLimits::relays(limits),
            guess: limits.sms_guess.clone(),
            asker: [share::counting(&limits.sms_address), share::counting(&limits.sms_network)],
            reserve: prefix.zip(total).map(<[Limit; 2]>::from),
            whole: limits.on_messages().cloned().collect(),
            code_ttl,
        }
    }

    fn is_of(&self, live: &LiveSettings) -> bool {
        let same = self.whole.iter().zip(live.limits.on_messages()).all(|(limit, other)| limit.is(other));
        same && self.guess.is(&live.limits.sms_guess) && self.code_ttl == live.sms.code_ttl
    }

    const fn of_sender(&self, program: Option<ProgramKind>) -> &SenderLimits {
        match program {
            None => &self.pages,
            Some(ProgramKind::Verifier) => &self.verifiers,
            Some(ProgramKind::Relay) => &self.relays,
        }
    }

    /// The limit of the number, over everything that it gets.
    pub const fn phone(&self, keys: &MessageKeys) -> &Limit {
        &self.of_sender(keys.program).phone
    }

    pub fn phone_key(&self, limiter: &Limiter<AnyStore>, number: &str) -> SubjectKey {
        limiter.bucket(&self.pages.phone, number.as_bytes()).key
    }

    /// The logs of `sms-total`: of everything that is open, and of our own pages.
    pub fn total(&self, limiter: &Limiter<AnyStore>) -> [Bucket<'_>; 2] {
        let SenderLimits { total, own_total, .. } = &self.pages;
        [limiter.bucket(total, EVERYONE), limiter.bucket(own_total, PAGES)]
    }

    /// The log that knows the request by its name, if it has one.
    pub fn once(&self, keys: &MessageKeys) -> Option<Bucket<'_>> {
        let limit = &self.of_sender(keys.program).once;
        keys.once.map(|key| Bucket { limit, key })
    }

    /// The key of a request's name, which is the same for all kinds.
    pub fn once_key(&self, limiter: &Limiter<AnyStore>, parts: &[&[u8]]) -> SubjectKey {
        once::key(limiter, &self.pages.once, parts)
    }

    /// What every message counts in before it is known who owns the number; one in the open part counts in
    /// all at once.
    pub fn buckets(&self, keys: &MessageKeys, share: BudgetShare) -> Vec<Bucket<'_>> {
        let sender = self.of_sender(keys.program);
        let [address, network] = match share {
            BudgetShare::Open => [&sender.address, &sender.network],
            // A brake alone makes codes short there, and withheld ones must not use up the program's own budget.
            _ if keys.program.is_some() => [&sender.address, &sender.network],
            BudgetShare::SpentAsker | BudgetShare::Reserve | BudgetShare::Withheld => {
                [&self.asker[0], &self.asker[1]]
            }
        };
        let own = [(&sender.phone, keys.phone), (address, keys.address), (network, keys.network)];
        let mut all: Vec<_> = own.map(|(limit, key)| Bucket { limit, key }).into();
        all.extend(sender.phone_apart.as_ref().map(|limit| Bucket { limit, key: keys.phone_apart }));
        if share == BudgetShare::Open {
            all.extend(self.shared(keys, share));
        }
        all.extend(self.once(keys));
        all
    }

    /// What it counts in of the prefix and total budgets, by its share.
    pub fn shared(&self, keys: &MessageKeys, share: BudgetShare) -> Vec<Bucket<'_>> {
        let SenderLimits { prefix, total, own_total, .. } = self.of_sender(keys.program);
        let logs: Vec<_> = match share {
            BudgetShare::Open | BudgetShare::SpentAsker => {
                vec![(prefix, keys.prefix), (total, keys.total), (own_total, keys.own_total)]
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
        buckets
            .extend(path.shares(keys.program.is_some()).iter().flat_map(|share| self.shared(keys, *share)));
        buckets
    }

    fn every(&self) -> impl Iterator<Item = &Limit> {
        self.whole.iter().chain([&self.pages.once, &self.relays.once, &self.guess])
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

/// Who has a message sent: another program by its kind and name, or None for our own pages.
pub type Sender<'a> = Option<(ProgramKind, &'a str)>;

impl MessageKeys {
    /// Of number, address, network and request; the others follow from these, the block and the sender.
    pub fn new(
        limiter: &Limiter<AnyStore>,
        watched: &SmsLimits,
        [phone, address, network]: [SubjectKey; 3],
        once: Option<SubjectKey>,
        block: &str,
        sender: Sender<'_>,
    ) -> Self {
        let mut reserve = [SubjectKey([0; 16]); 2];
        let subjects = [block.as_bytes(), EVERYONE];
        for ((key, limit), subject) in reserve.iter_mut().zip(watched.reserve.iter().flatten()).zip(subjects)
        {
            *key = limiter.bucket(limit, subject).key;
        }
        let limits = watched.of_sender(sender.map(|(kind, _)| kind));
        let own_total = sender.map_or(PAGES, |(_, name)| name.as_bytes());
        Self {
            program: sender.map(|(kind, _)| kind),
            phone,
            phone_apart: limiter.bucket(&limits.phone, &subject(sender, &phone.0)).key,
            address,
            network,
            prefix: limiter.bucket(&limits.prefix, &subject(sender, block.as_bytes())).key,
            total: limiter.bucket(&limits.total, EVERYONE).key,
            own_total: limiter.bucket(&limits.own_total, own_total).key,
            once,
            reserve,
        }
    }

    /// The keys of the requester's address and network.
    pub fn of_origin(
        limiter: &Limiter<AnyStore>,
        watched: &SmsLimits,
        sender: Sender<'_>,
        [address, network]: [&[u8]; 2],
    ) -> [SubjectKey; 2] {
        let limits = watched.of_sender(sender.map(|(kind, _)| kind));
        let key = |limit, bytes| limiter.bucket(limit, &subject(sender, bytes)).key;
        [key(&limits.address, address), key(&limits.network, network)]
    }
}

/// As it is counted for the sender.
fn subject(sender: Sender<'_>, bytes: &[u8]) -> Vec<u8> {
    sender.map_or_else(|| bytes.to_vec(), |(kind, name)| kind.subject(name, bytes))
}
