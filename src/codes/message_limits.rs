//! The limits on messages of one moment, and the window logs that a message counts in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gatehouse_limiter::middleware::RequestOrigin;
use gatehouse_limiter::{Bucket, Limit, LimitMode, OwnedBucket, Rule, RuleAction, SubjectKey, window};

use super::RequestedMessage;
use super::decide::{BudgetShare, SendPath};
use super::recipient::Channel;
use crate::clock::Micros;
use crate::config::{Limits, LiveSettings};
use crate::message::ProgramKind;
use crate::throttle::Limiter;

pub const EVERYONE: &[u8] = b"everyone";
/// The subject of the same limit that our own pages have beside it.
pub const PAGES: &[u8] = b"pages";

/// The limits of one moment; the shared ones reduced to the part that is open to everybody.
#[derive(Debug)]
pub struct MessageLimits {
    channel: Channel,
    pages: SenderLimits,
    verifiers: SenderLimits,
    relays: SenderLimits,
    /// The limit of wrong codes, whose windows are rebuilt with those of messages.
    pub guess: Limit,
    /// The reserves of the prefix and the total; None if one of them reserves nothing.
    reserve: Option<[Limit; 2]>,
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
    /// The limits of the requester's address and network.
    origin: [Limit; 2],
    /// These limits in a shortage. At our pages they count but refuse nothing: an address is shared, and requests of
    /// strangers there must not lock out an owner. At a program a brake alone makes codes short, and withheld ones must not
    /// use up its own budget.
    origin_in_shortage: [Limit; 2],
    /// The limits of the prefix, the total, and this sender alone.
    open: [Limit; 3],
    once: Limit,
}

/// The logs that one message may count in. Their keys do not reveal the subjects.
#[derive(Debug, Clone)]
pub struct MessageLogs {
    pub limits: Arc<MessageLimits>,
    pub of_program: bool,
    /// The log of the number, over everything that it gets.
    pub phone: OwnedBucket,
    phone_apart: Option<OwnedBucket>,
    /// The logs of the requester's address and network.
    pub origin: [OwnedBucket; 2],
    /// These logs with the limits of a shortage.
    origin_in_shortage: [OwnedBucket; 2],
    /// The logs of the prefix, the total, and the sender's own total.
    open: [OwnedBucket; 3],
    /// The reserves of the prefix and the total; empty if one of them reserves nothing.
    reserve: Vec<OwnedBucket>,
    /// Knows the request by its name, if it has one.
    pub once: Option<OwnedBucket>,
}

/// The limits as last used, and those of exempt clients beside them: recreated only if others are in force, so that a
/// refusal which the store remembers is recognised.
#[derive(Debug, Default)]
pub struct LastMessageLimits(Mutex<VecDeque<Arc<MessageLimits>>>);

/// The limits of everybody, and those of clients in `[access] allow`; of each channel.
const KINDS_IN_FORCE: usize = 2 * Channel::ALL.len();

impl LastMessageLimits {
    pub fn of(&self, live: &LiveSettings, channel: Channel) -> Arc<MessageLimits> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limits) = last.iter().find(|limits| limits.channel == channel && limits.is_of(live)) {
            return Arc::clone(limits);
        }
        let limits = Arc::new(MessageLimits::of(live, channel));
        last.push_front(Arc::clone(&limits));
        last.truncate(KINDS_IN_FORCE);
        limits
    }
}

impl SenderLimits {
    fn pages(limits: &Limits, code_ttl: Duration) -> Self {
        let Limits { sms_phone, sms_address, sms_network, sms_prefix, sms_total, .. } = limits;
        Self {
            phone: sms_phone.clone(),
            phone_apart: None,
            origin: [reduced(sms_address, open_part), reduced(sms_network, open_part)],
            origin_in_shortage: [counting(sms_address), counting(sms_network)],
            open: [
                reduced(sms_prefix, open_part),
                reduced(sms_total, open_part).unchallenged(),
                reduced(sms_total, pages_part),
            ],
            once: once_limit(code_ttl),
        }
    }

    fn verifiers(limits: &Limits, code_ttl: Duration) -> Self {
        let Limits { sms_phone, program_address, program_network, program_prefix, sms_total, .. } = limits;
        let origin = [program_address.clone(), program_network.clone()];
        let total = reduced(sms_total, open_part).unchallenged();
        Self {
            phone: sms_phone.unchallenged(),
            phone_apart: Some(sms_phone.clone()),
            origin_in_shortage: origin.clone(),
            origin,
            open: [program_prefix.clone(), total, limits.verify_token.clone()],
            once: once_limit(code_ttl),
        }
    }

    /// The limits on mail, which has no prefixes.
    fn mail(limits: &Limits) -> Self {
        let Limits { mail_mailbox, mail_address, mail_network, mail_total, .. } = limits;
        let none = || limit_of(MAIL_PREFIX, Vec::new(), LimitMode::Enforce);
        Self {
            phone: mail_mailbox.clone(),
            phone_apart: None,
            origin: [reduced(mail_address, open_part), reduced(mail_network, open_part)],
            origin_in_shortage: [counting(mail_address), counting(mail_network)],
            open: [none(), reduced(mail_total, open_part), none()],
            once: once_limit(CONFIRMATIONS_LAST),
        }
    }

    /// No challenge can be shown there.
    fn relays(limits: &Limits) -> Self {
        let Self { phone, origin, open: [prefix, total, _], .. } = Self::verifiers(limits, RELAYED);
        let origin = origin.map(|limit| limit.unchallenged());
        Self {
            phone,
            phone_apart: None,
            origin_in_shortage: origin.clone(),
            origin,
            open: [prefix.unchallenged(), total, limits.relay_token.unchallenged()],
            once: once_limit(RELAYED),
        }
    }
}

impl MessageLimits {
    fn of(live: &LiveSettings, channel: Channel) -> Self {
        let (limits, code_ttl) = (&live.limits, live.sms.code_ttl);
        if channel == Channel::Mail {
            let mail = || SenderLimits::mail(limits);
            let prefix = limit_of("mail-prefix-reserve", Vec::new(), LimitMode::Enforce);
            let total = reserve(&limits.mail_total, "mail-total-reserve");
            return Self {
                channel,
                pages: mail(),
                verifiers: mail(),
                relays: mail(),
                guess: limits.mail_guess.clone(),
                reserve: total.map(|total| [prefix, total]),
                whole: limits.on_mails().cloned().collect(),
                code_ttl,
            };
        }
        let prefix = reserve(&limits.sms_prefix, "sms-prefix-reserve");
        let total = reserve(&limits.sms_total, "sms-total-reserve");
        Self {
            channel,
            pages: SenderLimits::pages(limits, code_ttl),
            verifiers: SenderLimits::verifiers(limits, code_ttl),
            relays: SenderLimits::relays(limits),
            guess: limits.sms_guess.clone(),
            reserve: prefix.zip(total).map(<[Limit; 2]>::from),
            whole: limits.on_messages().cloned().collect(),
            code_ttl,
        }
    }

    fn is_of(&self, live: &LiveSettings) -> bool {
        let limits = &live.limits;
        let same = |whole: &mut dyn Iterator<Item = &Limit>| {
            self.whole.iter().zip(whole).all(|(limit, other)| limit.is(other))
        };
        match self.channel {
            Channel::Sms => {
                same(&mut limits.on_messages())
                    && self.guess.is(&limits.sms_guess)
                    && self.code_ttl == live.sms.code_ttl
            }
            Channel::Mail => same(&mut limits.on_mails()) && self.guess.is(&limits.mail_guess),
        }
    }

    const fn of_sender(&self, sender: Sender<'_>) -> &SenderLimits {
        match sender {
            None => &self.pages,
            Some((ProgramKind::Verifier, _)) => &self.verifiers,
            Some((ProgramKind::Relay, _)) => &self.relays,
        }
    }

    /// The logs of `sms-total`: of everything that is open, and of our own pages.
    pub fn total(&self, limiter: &Limiter) -> [Bucket<'_>; 2] {
        let [_, total, of_pages] = &self.pages.open;
        [limiter.bucket(total, EVERYONE), limiter.bucket(of_pages, PAGES)]
    }

    fn every(&self) -> impl Iterator<Item = &Limit> {
        self.whole.iter().chain([&self.pages.once, &self.relays.once, &self.guess])
    }

    /// Nothing at or before this time counts any more.
    pub fn horizon(&self, now: Micros) -> Micros {
        window::horizon(self.every().flat_map(Limit::rules), now)
    }

    /// What the store's mark is valid for. A limit that was raised or looks back further needs more than the
    /// store has kept, so the windows are complete only for limits of these sizes.
    pub fn shape(&self) -> String {
        let size = |limit: &Limit| format!(" {}x{}", limit.capacity(), limit.longest_window().as_secs());
        self.every().map(size).collect()
    }
}

/// The sender of a message: another program by its kind and name, or None for our own pages.
pub type Sender<'a> = Option<(ProgramKind, &'a str)>;

impl MessageLogs {
    pub fn of(limiter: &Limiter, limits: &Arc<MessageLimits>, message: &RequestedMessage) -> Self {
        let RequestedMessage { to, purpose, origin, once, .. } = message;
        let (bound, subject_of_limits, sender) = (to.bound(purpose), to.subject(), purpose.program());
        let number = bound.as_bytes();
        let own = limits.of_sender(sender);
        let named = once.as_ref().map(|name| {
            let mut named = Vec::new();
            for part in [number, purpose.stored().as_bytes(), name.as_bytes()] {
                named.extend((part.len() as u64).to_le_bytes());
                named.extend(part);
            }
            limiter.bucket(&limits.pages.once, &named).key
        });
        // The requester is unknown, so the request has an address of its own.
        let nobody = || [b"nobody ", once.as_deref().unwrap_or_default().as_bytes()].concat();
        let of_nobody = || RequestOrigin { address: nobody(), network: nobody() };
        let RequestOrigin { address, network } = origin.clone().unwrap_or_else(of_nobody);
        let keys = [
            limiter.bucket(&limits.pages.phone, subject_of_limits.as_bytes()).key,
            limiter.bucket(&own.origin[0], &subject(sender, &address)).key,
            limiter.bucket(&own.origin[1], &subject(sender, &network)).key,
        ];
        Self::new(limiter, limits, keys, named, &to.block(), sender)
    }

    /// Makes the logs from the keys of number, address, network and request; the others follow from these, the block
    /// and the sender.
    pub fn new(
        limiter: &Limiter,
        limits: &Arc<MessageLimits>,
        [phone, address, network]: [SubjectKey; 3],
        once: Option<SubjectKey>,
        block: &str,
        sender: Sender<'_>,
    ) -> Self {
        let own = limits.of_sender(sender);
        let log = |limit: &Limit, key| OwnedBucket { limit: limit.clone(), key };
        let counted = |limit: &Limit, subject: &[u8]| limiter.bucket(limit, subject).to_owned();
        let of_origin =
            |[of_address, of_network]: &[Limit; 2]| [log(of_address, address), log(of_network, network)];
        let [prefix, total, of_sender] = &own.open;
        let reserve = limits.reserve.iter().flatten().zip([block.as_bytes(), EVERYONE]);
        Self {
            of_program: sender.is_some(),
            phone: log(&own.phone, phone),
            phone_apart: own.phone_apart.as_ref().map(|limit| counted(limit, &subject(sender, &phone.0))),
            origin: of_origin(&own.origin),
            origin_in_shortage: of_origin(&own.origin_in_shortage),
            open: [
                counted(prefix, &subject(sender, block.as_bytes())),
                counted(total, EVERYONE),
                counted(of_sender, sender.map_or(PAGES, |(_, name)| name.as_bytes())),
            ],
            reserve: reserve.map(|(limit, subject)| counted(limit, subject)).collect(),
            once: once.map(|key| log(&own.once, key)),
            limits: Arc::clone(limits),
        }
    }

    /// What it counts in before its share is known; on the open path, in everything at once.
    pub fn at_once(&self, path: SendPath) -> Vec<Bucket<'_>> {
        match path {
            SendPath::Open => self.all(BudgetShare::Open),
            SendPath::Accounts | SendPath::SpentAsker | SendPath::Short { .. } => {
                self.counted(path.counts_asker(), &[])
            }
        }
    }

    /// Everything that it may count in on its path, whoever owns the number.
    pub fn every_log(&self, path: SendPath) -> Vec<Bucket<'_>> {
        self.counted(path.counts_asker(), path.shares(self.of_program))
    }

    /// Everything that it counts in with its share.
    pub fn all(&self, share: BudgetShare) -> Vec<Bucket<'_>> {
        self.counted(share == BudgetShare::Open, &[share])
    }

    fn counted(&self, open: bool, shares: &[BudgetShare]) -> Vec<Bucket<'_>> {
        let origin = if open { &self.origin } else { &self.origin_in_shortage };
        let own = [&self.phone].into_iter().chain(origin).chain(&self.phone_apart);
        let shared = shares.iter().flat_map(|share| self.shared(*share));
        own.chain(shared).chain(&self.once).map(OwnedBucket::borrow).collect()
    }

    /// What it counts in of the prefix and total budgets, by its share.
    pub fn shared(&self, share: BudgetShare) -> &[OwnedBucket] {
        match share {
            BudgetShare::Open | BudgetShare::SpentAsker => &self.open,
            BudgetShare::Reserve => &self.reserve,
            BudgetShare::Withheld => &[],
        }
    }
}

fn subject(sender: Sender<'_>, bytes: &[u8]) -> Vec<u8> {
    sender.map_or_else(|| bytes.to_vec(), |(kind, name)| kind.subject(name, bytes))
}

/// One of every five messages of a shared budget is reserved: enough for the account owners of a small
/// service through the worst day, and so little that others notice it late. Of the total, as many again are
/// left for programs.
const KEPT_ONE_OF: u32 = 5;

/// The part of a `block` rule's `max` that everybody may spend: four fifths, and at least one.
pub const fn open_part(max: u32) -> u32 {
    let open = max - max.div_ceil(KEPT_ONE_OF);
    if open == 0 { 1 } else { open }
}

/// The part of it that strangers at our own pages may spend: three fifths, and at least one.
pub const fn pages_part(max: u32) -> u32 {
    let pages = max.saturating_sub(2 * max.div_ceil(KEPT_ONE_OF));
    if pages == 0 { 1 } else { pages }
}

/// Returns the limit with its `block` rules reduced to a part. A limit in monitor mode refuses nobody and stays
/// whole. Same rules in the same order, and the same log.
pub fn reduced(limit: &Limit, part: fn(u32) -> u32) -> Limit {
    let part = |rule: &Rule| match (limit.mode(), rule.then) {
        (LimitMode::Enforce, RuleAction::Block) => Rule { max: part(rule.max), ..rule.clone() },
        _ => rule.clone(),
    };
    limit_of(limit.name(), limit.rules().iter().map(part).collect(), limit.mode()).keeping(limit.capacity())
}

/// The rest, which has a log of its own: other people's waits must not show what is in it. None if nothing is
/// reserved.
pub fn reserve(limit: &Limit, name: &str) -> Option<Limit> {
    let enforced = limit.rules().iter().filter(|_| limit.mode() == LimitMode::Enforce);
    let kept = enforced.filter(|rule| rule.then == RuleAction::Block).map(|rule| {
        let max = rule.max - open_part(rule.max);
        (max > 0).then(|| Rule { max, ..rule.clone() })
    });
    Some(limit_of(name, kept.collect::<Option<_>>()?, LimitMode::Enforce))
}

pub fn counting(limit: &Limit) -> Limit {
    limit_of(limit.name(), limit.rules().to_vec(), LimitMode::Monitor).keeping(limit.capacity())
}

fn limit_of(name: &str, rules: Vec<Rule>, mode: LimitMode) -> Limit {
    Limit::new(name, rules, mode).expect("no more than a valid limit has, and within its bounds")
}

/// The place of the prefix among the limits on mail, which has none.
const MAIL_PREFIX: &str = "mail-prefix";

/// The longest that a code by mail is valid: one for a new password. Mail may be delayed on its way.
pub const MAIL_CODES_LAST: Duration = Duration::from_secs(30 * 60);
/// The others: NIST SP 800-63B-4 allows ten minutes.
pub const CONFIRMATIONS_LAST: Duration = Duration::from_secs(10 * 60);

pub const ONCE: &str = "sms-once";

/// How long a request of a relay is recognised: longer than its signature is accepted.
pub const RELAYED: Duration = Duration::from_secs(10 * 60);

/// A repetition is recognised as long as the code is valid: after that, the earlier answer is of no use.
fn once_limit(code_ttl: Duration) -> Limit {
    let rules = vec![Rule::sliding(1, code_ttl, RuleAction::Block)];
    Limit::new(ONCE, rules, LimitMode::Enforce).expect("one rule, within bounds")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3600);

    fn limit(max: u32, mode: LimitMode) -> Limit {
        let rules =
            vec![Rule::sliding(3, HOUR, RuleAction::Captcha), Rule::sliding(max, HOUR, RuleAction::Block)];
        Limit::new("sms-total", rules, mode).unwrap()
    }

    #[test]
    fn the_two_parts_are_never_more_than_the_whole() {
        for max in 1..1000 {
            let whole = limit(max, LimitMode::Enforce);
            let open = reduced(&whole, open_part).rules()[1].max;
            let kept = reserve(&whole, "kept").map_or(0, |kept| kept.rules()[0].max);
            assert_eq!((open + kept, open), (max, open_part(max)), "{max}");
            assert!((1..=open).contains(&pages_part(max)), "{max}");
        }
        assert_eq!([5, 10, 200, 10_000].map(pages_part), [3, 6, 120, 6_000]);
        assert_eq!([1, 2, 3, 4].map(pages_part), [1, 1, 1, 2]);
        assert_eq!([20, 100, 200, 10_000].map(open_part), [16, 80, 160, 8_000]);
        assert_eq!([1, 2, 3, 4].map(open_part), [1, 1, 2, 3]);
    }

    #[test]
    fn challenges_stay_where_they_were_and_what_only_watches_is_whole() {
        assert_eq!(reduced(&limit(20, LimitMode::Enforce), open_part).rules()[0].max, 3);
        assert_eq!(reduced(&limit(20, LimitMode::Monitor), open_part), limit(20, LimitMode::Monitor));
        assert!(reserve(&limit(20, LimitMode::Monitor), "kept").unwrap().rules().is_empty());
        assert_eq!(reserve(&limit(1, LimitMode::Enforce), "kept"), None);
    }
}
