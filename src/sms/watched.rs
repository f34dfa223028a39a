//! The limits on messages of one moment, and the window logs that a message counts in by them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::budgets::EVERYONE;
use super::ledger::HitRow;
use super::once;
use super::share::{self, BudgetShare};
use super::short::SendPath;
use crate::clock::Micros;
use crate::config::LiveSettings;
use crate::throttle::{AnyStore, Bucket, Limit, Limiter, SubjectKey, window};

/// The limits of one moment. The shared ones stand here with what of them is open to everybody.
#[derive(Debug)]
pub struct SmsLimits {
    pub phone: Limit,
    address: Limit,
    network: Limit,
    prefix: Limit,
    pub total: Limit,
    once: Limit,
    /// The asker's two, which in a shortage count and refuse nothing: an address is shared, and what strangers
    /// ask for there must not keep an owner out.
    asker: [Limit; 2],
    /// What is kept of the prefix' and of everyone's; none where one of them keeps nothing.
    reserve: Option<[Limit; 2]>,
    /// As they are written.
    whole: [Limit; 5],
    code_ttl: Duration,
}

/// Whom a message counts against: names of window logs, which say nothing of whom they stand for.
#[derive(Debug, Clone, Copy)]
pub struct MessageKeys {
    pub phone: SubjectKey,
    pub address: SubjectKey,
    pub network: SubjectKey,
    prefix: SubjectKey,
    total: SubjectKey,
    pub once: Option<SubjectKey>,
    /// Of what is kept.
    reserve: [SubjectKey; 2],
}

/// The limits as they were last asked for: made anew only where others are in force, so that a refusal which
/// the store remembers is known again.
#[derive(Debug, Default)]
pub struct LastSmsLimits(Mutex<Option<Arc<SmsLimits>>>);

impl LastSmsLimits {
    pub fn of(&self, live: &LiveSettings) -> Arc<SmsLimits> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(watched) if watched.is_of(live) => Arc::clone(watched),
            _ => Arc::clone(last.insert(Arc::new(SmsLimits::of(live)))),
        }
    }
}

impl SmsLimits {
    fn of(live: &LiveSettings) -> Self {
        let whole = live.limits.on_messages().map(Limit::clone);
        let [phone, address, network, prefix, total] = &whole;
        let kept = (share::reserve(prefix, "sms-prefix-reserve"), share::reserve(total, "sms-total-reserve"));
        Self {
            phone: phone.clone(),
            address: share::open(address),
            network: share::open(network),
            prefix: share::open(prefix),
            total: share::open(total),
            once: once::limit(live.sms.code_ttl),
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

    /// As they are written: of number, address, network, prefix and everyone.
    pub const fn whole(&self) -> &[Limit; 5] {
        &self.whole
    }

    pub const fn once(&self) -> &Limit {
        &self.once
    }

    /// What every message counts in before it is known whose number it is; one of the open part all at once.
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
        all.extend(keys.once.map(|key| Bucket { limit: &self.once, key }));
        all
    }

    /// What it counts in of its prefix' and of everyone's budget, by its share.
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

    /// All that a message counts in.
    pub fn all(&self, keys: &MessageKeys, share: BudgetShare) -> Vec<Bucket<'_>> {
        let mut buckets = self.buckets(keys, share);
        if share != BudgetShare::Open {
            buckets.extend(self.shared(keys, share));
        }
        buckets
    }

    /// All that it may stand in by its path, whosever its number is.
    pub fn every_log(&self, keys: &MessageKeys, path: SendPath) -> Vec<Bucket<'_>> {
        let mut buckets = self.buckets(keys, path.counted_as());
        buckets.extend(path.shares().iter().flat_map(|share| self.shared(keys, *share)));
        buckets
    }

    fn every(&self) -> impl Iterator<Item = &Limit> {
        self.whole.iter().chain([&self.once])
    }

    /// Nothing at this time or before it counts any more.
    pub fn horizon(&self, now: Micros) -> Micros {
        let rules = self.every().flat_map(Limit::rules);
        rules.map(|rule| window::start(&rule.span, now)).min().unwrap_or(now)
    }

    /// What the store's mark is for. A limit that is raised, or looks back further than before, wants
    /// more than the store has kept by then: so it is whole for limits of these sizes only.
    pub fn shape(&self) -> String {
        let size = |limit: &Limit| {
            let span = limit.rules().iter().map(|rule| rule.span.longest()).max().unwrap_or_default();
            format!(" {}x{}", limit.capacity(), span.as_secs())
        };
        self.every().map(size).collect()
    }
}

impl MessageKeys {
    /// Of number, address, network and request; what they leave out follows from the block.
    pub fn new(
        limiter: &Limiter<AnyStore>,
        watched: &SmsLimits,
        [phone, address, network]: [SubjectKey; 3],
        once: Option<SubjectKey>,
        block: &str,
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
            once,
            reserve,
        }
    }

    /// As the ledger has them.
    pub fn of_row(limiter: &Limiter<AnyStore>, watched: &SmsLimits, row: &HitRow) -> Self {
        Self::new(limiter, watched, [row.phone, row.address, row.network], row.once, &row.block)
    }
}
