//! Why somebody is refused: the state of the limits for a subject, and its recent events; and how to let them
//! in again.

mod standing;
mod subject;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use gatehouse_limiter::{Bucket, Limit, MemoryStore, RuleAction, StoreError, WindowStore};
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::accounts::{Account, AccountId, Accounts, DeviceFailures, Emails};
use crate::audit::{
    Action, Audit, AuditEvent, EventEntry, EventSubject, MaskedSubject, Outcome, SubjectKind,
};
use crate::clock::Micros;
use crate::codes::{CodeService, Guesser};
use crate::config::{LimitName, LimitSubject, LimitUnit, LiveSettings};
use crate::db::DbError;
use crate::login::{FailureRecord, GuardedAttempts, all_failures, password_enabled_counter};
use crate::mail::Mailbox;
use crate::request_id;
use crate::sms::Phone;
use crate::throttle::Limiter;

pub use standing::{Hindrance, hindrances_of};
pub use subject::{
    LookupKind, LookupLogin, LookupScope, LookupSubject, LookupValue, NamedProgram, ScopeKind, ValueKind,
    kind_of,
};

/// The service. Clones share it.
#[derive(Clone)]
pub struct Lookup(Arc<LookupParts>);

pub struct LookupParts {
    pub limiter: Limiter,
    /// This process's windows, used while the store is out.
    pub local_fallback: gatehouse_limiter::Limiter<MemoryStore>,
    /// What the windows of accounts are rebuilt from.
    pub failures: Arc<FailureRecord>,
    /// Limits on challenges issued by this process.
    pub issuing: gatehouse_limiter::Limiter<MemoryStore>,
    pub accounts: Accounts,
    pub emails: Emails,
    /// Counts the names of realms.
    pub attempts: GuardedAttempts,
    pub codes: CodeService,
    pub audit: Audit,
}

#[derive(Debug, Clone)]
pub struct LimitStatus {
    pub limit: Limit,
    /// Each instance counts this for itself; these are the counts of this one.
    pub of_this_instance: bool,
    pub at: Micros,
    /// Attempts in flight.
    pub holds: u32,
    /// The times of its hits, newest first, at most 1000, including those that no rule counts any more.
    pub hits: Vec<Micros>,
    /// In the order of the limit's rules.
    pub rules: Vec<RuleStatus>,
}

impl LimitStatus {
    /// The states of its `captcha` rules.
    fn challenges(self) -> Vec<RuleStatus> {
        let rules = self.limit.rules().iter().zip(self.rules);
        rules.filter(|(rule, _)| rule.then == RuleAction::Captcha).map(|(_, state)| state).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleStatus {
    pub count: u32,
    /// If it is full: when the next slot frees.
    pub frees_at: Option<Micros>,
}

/// The administrator who lets somebody in again, and the reason.
#[derive(Clone)]
pub struct LookupActor {
    pub actor: String,
    pub account: Account,
    /// The name of the program's token that they made, if it is one that acts.
    pub token: Option<String>,
    /// Their address in the form that limits count.
    pub address: Vec<u8>,
    pub reason: String,
}

impl LookupActor {
    /// For the record.
    fn detail(&self) -> Value {
        let mut detail = json!({ "reason": self.reason });
        if let Some(token) = &self.token {
            detail["token"] = token.as_str().into();
        }
        detail
    }

    /// What they did.
    fn event<'a>(&'a self, audit: &Audit, name: &'a str) -> AuditEvent<'a> {
        AuditEvent {
            name: Some(name),
            actor: Some(&self.actor),
            address: Some(EventSubject::Address(&self.address)),
            detail: Some(self.detail().to_string()),
            ..AuditEvent::new(audit.now(), Action::Admin, Outcome::Ok)
        }
    }
}

/// A subject of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedSubject {
    pub kind: SubjectKind,
    pub key: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSubject {
    pub mask: String,
    /// The subject; None for a name that no account has.
    pub subject: Option<LookupSubject>,
}

/// The subjects of `sms-guess` or `mail-guess` that count wrong codes for a number or a mailbox.
struct GuessLogs {
    counted: Vec<Vec<u8>>,
    /// The logs of guesses when there was no code, which use up nothing of a later one.
    without_code: Vec<Vec<u8>>,
}

impl GuessLogs {
    fn all(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.counted.iter().chain(&self.without_code)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Lookup {
    pub fn new(parts: LookupParts) -> Self {
        Self(Arc::new(parts))
    }

    /// The account of a name, of a number, or of the e-mail address that its owner has confirmed. Only for
    /// administrators, because nobody else may learn which accounts exist.
    pub async fn account(&self, subject: &LookupSubject) -> Result<Option<Account>, DbError> {
        if let Some(login) = subject.username() {
            return self.0.accounts.find(login).await;
        }
        match subject.recipient().filter(|_| subject.scope == LookupScope::Pages) {
            Some(recipient) => self.0.emails.find(&recipient).await,
            None => Ok(None),
        }
    }

    /// The address that its account has confirmed, in the spelling that mail goes to; otherwise the one that it is.
    pub async fn mailbox(&self, subject: &LookupSubject) -> Result<Option<Mailbox>, DbError> {
        if let Some(account) = self.account(subject).await?
            && let Some(mailbox) = self.0.emails.of(account.id).await?
        {
            return Ok(Some(mailbox));
        }
        let twin = subject.twin();
        Ok(subject.mailbox().or_else(|| twin.as_ref()?.mailbox()).cloned())
    }

    /// What a text names that is both an e-mail address and a name: the name, if an account has it.
    pub async fn named(&self, subject: LookupSubject) -> Result<LookupSubject, DbError> {
        let twin = subject.twin().filter(|_| subject.mailbox().is_some());
        let Some(name) = twin else { return Ok(subject) };
        Ok(if self.account(&name).await?.is_some() { name } else { subject })
    }

    /// The failures of a known device of an account.
    pub async fn device_failures(&self, subject: &LookupSubject) -> Result<Option<DeviceFailures>, DbError> {
        let LookupValue::Device(LookupLogin::Account(login), id) = &subject.value else { return Ok(None) };
        Ok(self.0.accounts.find_from(login, *id).await?.map(|(_, failures)| failures))
    }

    /// The state of every limit that counts such subjects, in the order of the documentation. Custom limits
    /// are left out: their subjects can be anything.
    pub async fn all(
        &self,
        live: &LiveSettings,
        subject: &LookupSubject,
    ) -> Result<Vec<LimitStatus>, LookupError> {
        let mut all = Vec::new();
        for limit in live.limits.iter().filter(|limit| subject.is_counted_by(limit.name())) {
            all.extend(self.standing(live, limit.name(), subject).await?);
        }
        Ok(all)
    }

    /// The state of one limit for a subject; None if there is no such limit, or it does not count such
    /// subjects.
    pub async fn standing(
        &self,
        live: &LiveSettings,
        limit: &str,
        subject: &LookupSubject,
    ) -> Result<Option<LimitStatus>, LookupError> {
        let Some((limit, bytes)) = self.counted(live, limit, subject).await? else { return Ok(None) };
        let LookupParts { limiter, issuing, codes, .. } = &*self.0;
        let name = LimitName::parse(limit.name());
        let of_this_instance = name.is_some_and(LimitName::is_of_one_instance);
        let standing = if of_this_instance {
            read(issuing, limit, &bytes, true).await?
        } else if let Some(logs) = self.logs_of_guesses(live, name, subject) {
            self.fullest(limit, logs.counted).await?
        } else {
            let mut standing = read(limiter, limit.clone(), &bytes, false).await?;
            // Its challenges are for what our own pages have sent, or for failures that were no new guess, too.
            let asks = match (codes.beside(name), name.filter(|name| has_guesses(*name))) {
                (Some(pages), _) => read(limiter, limit, pages, false).await?.challenges(),
                (None, Some(_)) => match all_failures(limiter, &limit, &bytes) {
                    Some(all) => read_log(limiter, all, false).await?.rules,
                    None => Vec::new(),
                },
                (None, None) => Vec::new(),
            };
            let rules = standing.limit.rules().iter().zip(standing.rules.iter_mut());
            let challenges = rules.filter(|(rule, _)| rule.then == RuleAction::Captcha);
            challenges.zip(asks).for_each(|((_, shown), asks)| *shown = asks);
            standing
        };
        Ok(Some(standing))
    }

    /// A number and a mailbox have several logs of wrong codes here, and a number has several in each program. None for
    /// other limits.
    fn logs_of_guesses(
        &self,
        live: &LiveSettings,
        name: Option<LimitName>,
        subject: &LookupSubject,
    ) -> Option<GuessLogs> {
        let counts = matches!(name, Some(LimitName::SmsGuess | LimitName::MailGuess));
        let recipient = subject.recipient().filter(|_| counts)?;
        let of = |guessers: &[Guesser], log: &dyn Fn(Guesser) -> Vec<u8>| {
            guessers.iter().map(|it| log(*it)).collect()
        };
        Some(match subject.program() {
            Some(program) => {
                let number = self.0.codes.recipient_key(live, &recipient);
                let log = |guesser: Guesser| guesser.subject_in(program.name.as_str(), number);
                GuessLogs { counted: of(&Guesser::IN_PROGRAMS, &log), without_code: Vec::new() }
            }
            None => {
                let guessed = recipient.subject_of_guesses();
                GuessLogs {
                    counted: of(&Guesser::ALL, &|guesser| guesser.subject(&guessed, true)),
                    without_code: of(&Guesser::ALL, &|guesser| guesser.subject(&guessed, false)),
                }
            }
        })
    }

    /// The log that is closest to refusing.
    async fn fullest(&self, limit: Limit, logs: Vec<Vec<u8>>) -> Result<LimitStatus, StoreError> {
        let mut fullest: Option<LimitStatus> = None;
        for log in logs {
            let standing = read(&self.0.limiter, limit.clone(), &log, false).await?;
            let counted = |standing: &LimitStatus| standing.rules.iter().map(|rule| rule.count).max();
            if fullest.as_ref().is_none_or(|other| counted(other) < counted(&standing)) {
                fullest = Some(standing);
            }
        }
        Ok(fullest.expect("there are guessers"))
    }

    /// Clears what a limit has counted for a subject: in the store, in this process's own windows, and for
    /// messages in the ledger, which would still refuse the number. False if there is no such limit, or it
    /// does not count such subjects. Runs to its end and is recorded even if the client hangs up; a partial
    /// failure is recorded, too, because the first part took effect.
    pub async fn clear(
        &self,
        live: &Arc<LiveSettings>,
        limit: &str,
        subject: &LookupSubject,
        by: LookupActor,
    ) -> Result<bool, LookupError> {
        let (this, live, limit, subject) = (self.clone(), live.clone(), limit.to_owned(), subject.clone());
        let clearing = request_id::spawn(async move {
            let Some((limit, bytes)) = this.counted(&live, &limit, &subject).await? else { return Ok(false) };
            let account = this.account(&subject).await?;
            let forgotten = this.forget(&live, &limit, &subject, &bytes).await;
            let outcome = if forgotten.is_ok() { Outcome::Ok } else { Outcome::Refused };
            this.record(&limit, &subject, account.as_ref(), &by, outcome);
            forgotten.map(|()| true)
        });
        clearing.await.expect("a clearing does not panic, nor is it cancelled")
    }

    /// Re-enables the disabled password of the account with this name or number. False if there is none. Runs
    /// to its end and is recorded, even if the client hangs up.
    pub async fn enable_password(&self, subject: &LookupSubject, by: LookupActor) -> Result<bool, DbError> {
        let (this, subject) = (self.clone(), subject.clone());
        let enabling = request_id::spawn(async move {
            let Some(account) = this.account(&subject).await? else { return Ok(false) };
            if !this.0.accounts.enable_password(account.id).await? {
                return Ok(false);
            }
            password_enabled_counter().increment(1);
            let audit = &this.0.audit;
            // Found again by what it was looked up by.
            let recorded = subject.recorded(None).filter(|(kind, _)| *kind == SubjectKind::Phone);
            audit.record(AuditEvent {
                phone: recorded.map(|(_, named)| named),
                account: Some(account.recorded()),
                ..by.event(audit, "password.enable")
            });
            Ok(true)
        });
        enabling.await.expect("enabling does not panic, nor is it cancelled")
    }

    /// Lifts the freeze of an account, and takes away what it got since. False if it is not frozen. Runs to its end and is
    /// recorded, even if the client hangs up.
    pub async fn unfreeze(&self, account: &Account, by: LookupActor) -> Result<bool, DbError> {
        let (this, account) = (self.clone(), account.clone());
        let lifting = request_id::spawn(async move {
            let lifted = this.0.accounts.unfreeze(account.id).await?;
            if lifted {
                let audit = &this.0.audit;
                audit.record(AuditEvent {
                    account: Some(account.recorded()),
                    ..by.event(audit, "account.unfreeze")
                });
            }
            Ok(lifted)
        });
        lifting.await.expect("lifting does not panic, nor is it cancelled")
    }

    /// Sends mail again to a mailbox that has refused it. False if it gets mail. Runs to its end and is recorded, even if
    /// the client hangs up.
    pub async fn allow_mail(&self, mailbox: &Mailbox, by: LookupActor) -> Result<bool, DbError> {
        let (this, mailbox) = (self.clone(), mailbox.clone());
        let allowing = request_id::spawn(async move {
            // Read first: what is done is recorded.
            let account = this.0.emails.find(&mailbox.clone().into()).await?;
            if !this.0.codes.allow_mail(&mailbox).await? {
                return Ok(false);
            }
            let audit = &this.0.audit;
            audit.record(AuditEvent {
                phone: Some(EventSubject::Mailbox(mailbox.counted())),
                account: Some(account.as_ref().unwrap_or(&by.account).recorded()),
                ..by.event(audit, "mailbox.allow")
            });
            Ok(true)
        });
        allowing.await.expect("it does not panic, nor is it cancelled")
    }

    async fn forget(
        &self,
        live: &LiveSettings,
        limit: &Limit,
        subject: &LookupSubject,
        bytes: &[u8],
    ) -> Result<(), LookupError> {
        let LookupParts { limiter, local_fallback, failures, issuing, codes, .. } = &*self.0;
        // The records first: a rebuild of the store must not bring back what was cleared.
        let name = LimitName::parse(limit.name());
        match name.map(|name| (name.unit(), name.subject())) {
            Some((LimitUnit::Message | LimitUnit::Mail, _)) => {
                codes.forgive(limit, bytes).await?;
                if let Some(pages) = codes.beside(name) {
                    codes.forgive(limit, pages).await?;
                    limiter.clear(limiter.bucket(limit, pages)).await?;
                }
            }
            Some((
                LimitUnit::SignIn | LimitUnit::Factor | LimitUnit::Attempt,
                LimitSubject::Account
                | LimitSubject::Device
                | LimitSubject::RealmAccount
                | LimitSubject::RealmDevice,
            )) => failures.forget(limiter.bucket(limit, bytes).key).await?,
            // These are logs of addresses and networks.
            Some((LimitUnit::SignIn | LimitUnit::Attempt, _)) => {
                failures.forget_shared(limit.name(), limiter.bucket(limit, bytes).key).await?
            }
            _ => {}
        }
        let logs = self.logs_of_guesses(live, name, subject);
        let keys: Vec<_> =
            logs.iter().flat_map(GuessLogs::all).map(|log| limiter.bucket(limit, log).key).collect();
        if let Some(recipient) = subject.recipient().filter(|_| logs.is_some()) {
            let program = subject.program().map(|program| program.name.as_str());
            let to = codes.recipient_key(live, &recipient);
            codes.ledger().forget_guesses(to, program, &keys).await?;
        }
        for key in keys {
            limiter.clear(Bucket { limit, key }).await?;
        }
        if name.is_some_and(LimitName::is_of_one_instance) {
            issuing.clear(issuing.bucket(limit, bytes)).await?;
        } else {
            local_fallback.clear(local_fallback.bucket(limit, bytes)).await?;
            if let Some(all) = name.and_then(|_| all_failures(limiter, limit, bytes)) {
                limiter.clear(all).await?;
            }
            limiter.clear(limiter.bucket(limit, bytes)).await?;
        }
        Ok(())
    }

    /// What a name in a realm is counted as.
    fn realm_name(&self, subject: &LookupSubject) -> Option<AccountId> {
        let (realm, login) = subject.realm_login()?;
        Some(self.0.attempts.account(realm, login))
    }

    /// The limit, and the key of the subject in it.
    async fn counted(
        &self,
        live: &LiveSettings,
        limit: &str,
        subject: &LookupSubject,
    ) -> Result<Option<(Limit, Vec<u8>)>, DbError> {
        let limit = live.limits.get(limit).filter(|limit| subject.is_counted_by(limit.name()));
        let Some(limit) = limit else { return Ok(None) };
        let account = match subject.username() {
            Some(login) => self.0.accounts.find(login).await?.map(|account| account.id),
            None => self.realm_name(subject),
        };
        let bytes = match (subject.program(), subject.phone()) {
            // This is how the ledger knows the number.
            (Some(program), Some(phone)) if limit.name() == LimitName::SmsPhone.as_str() => {
                program.subject(&self.0.codes.phone_key(live, phone).0)
            }
            _ => subject.bytes(limit.name(), account),
        };
        Ok(Some((limit.clone(), bytes)))
    }

    /// An event of the subject, so that whoever looks it up sees who let it in; and of the limit with its
    /// key, so that a replay clears the same log. If the subject is not an account, the event also names the
    /// administrator's; if it is not an address, theirs.
    fn record(
        &self,
        limit: &Limit,
        subject: &LookupSubject,
        account: Option<&Account>,
        by: &LookupActor,
        outcome: Outcome,
    ) {
        let audit = &self.0.audit;
        let mut detail = by.detail();
        if let Some(realm) = subject.realm() {
            detail["realm"] = realm.as_str().into();
        }
        // A replay of logs of programs knows those that only programs have.
        let replayed = subject.program().is_none() || limit.name().starts_with("program-");
        if let Some(program) = subject.program() {
            detail["name"] = format!("{}{}", program.kind.lead(), program.name.as_str()).into();
            detail["limit"] = limit.name().into();
        }
        if outcome != Outcome::Ok {
            detail["why"] = "failed".into();
        }
        let mut event = AuditEvent {
            name: Some("subject.clear"),
            limit: replayed.then(|| limit.name()),
            actor: Some(&by.actor),
            account: Some(by.account.recorded()),
            address: Some(EventSubject::Address(&by.address)),
            detail: Some(detail.to_string()),
            ..AuditEvent::new(audit.now(), Action::Admin, outcome)
        };
        subject.note(limit.name(), account, &mut event);
        let named = self.realm_name(subject);
        if let (Some(id), Some((_, login))) = (&named, subject.realm_login()) {
            event.account = Some(EventSubject::Realm { id: id.as_bytes(), login: login.as_str() });
        }
        audit.record(event);
    }
}

/// Subjects by their keyed hash in the record of events: nobody has to type whom they do not know.
///
/// The record holds a hash and a mask. Few subjects fit a mask (256 addresses, 10,000 numbers, the accounts
/// whose names begin so), so that the one with this hash is found by trying them all. A name without an
/// account is not found: anybody may have typed it.
impl Lookup {
    /// Finds a subject by its key; None if no event names it.
    pub async fn find(&self, recorded: RecordedSubject) -> Result<Option<FoundSubject>, DbError> {
        self.0.audit.flush().await;
        let newest = self.0.audit.log().by_subject(recorded.kind, recorded.key, Micros(0), 1).await?;
        let shown = newest.first().and_then(|entry| entry.subject(recorded.kind));
        let Some(MaskedSubject { mask, .. }) = shown else { return Ok(None) };
        let subject = match recorded.kind {
            SubjectKind::Account => self.account_behind(mask, recorded.key).await?,
            SubjectKind::Address => self.address_behind(mask, recorded.key),
            SubjectKind::Phone => self.number_behind(mask, recorded.key),
            // Limits are looked up for its addresses.
            SubjectKind::Network => None,
        };
        let subject = subject.map(|value| LookupSubject { scope: LookupScope::Pages, value });
        Ok(Some(FoundSubject { mask: mask.clone(), subject }))
    }

    /// The subject in the record; None if events are not found by its kind.
    pub async fn recorded(&self, subject: &LookupSubject) -> Result<Option<RecordedSubject>, DbError> {
        if let Some(id) = self.realm_name(subject) {
            let named = EventSubject::Realm { id: id.as_bytes(), login: "" };
            return Ok(Some(RecordedSubject {
                kind: SubjectKind::Account,
                key: self.0.audit.subject(&named),
            }));
        }
        let account = self.account(subject).await?;
        let recorded = subject.recorded(account.as_ref());
        Ok(recorded.map(|(kind, named)| RecordedSubject { kind, key: self.0.audit.subject(&named) }))
    }

    /// Its newest events.
    pub async fn events_of(
        &self,
        recorded: RecordedSubject,
        since: Micros,
        most: u32,
    ) -> Result<Vec<EventEntry>, DbError> {
        self.0.audit.flush().await;
        self.0.audit.log().by_subject(recorded.kind, recorded.key, since, most).await
    }

    async fn account_behind(&self, mask: &str, key: i64) -> Result<Option<LookupValue>, DbError> {
        let is_it = |id: AccountId| {
            self.0.audit.subject(&EventSubject::Account { id: id.as_bytes(), login: "" }) == key
        };
        let found = self.0.accounts.find_masked(mask.trim_end_matches('…'), is_it).await?;
        Ok(found.map(|login| LookupValue::Login(LookupLogin::Account(login))))
    }

    fn number_behind(&self, mask: &str, key: i64) -> Option<LookupValue> {
        let known = mask.strip_suffix("****")?;
        let numbers = (0..10_000).map(|last| format!("{known}{last:04}"));
        let found =
            numbers.into_iter().find(|number| self.0.audit.subject(&EventSubject::Phone(number)) == key);
        Some(LookupValue::Phone(Phone::stored(found?)))
    }

    /// The address as limits count it: an IPv4 address in its /24, or a /64 in its /48.
    fn address_behind(&self, mask: &str, key: i64) -> Option<LookupValue> {
        let addresses: Vec<Vec<u8>> = match mask.parse().ok()? {
            IpNet::V4(network) => {
                let [a, b, c, _] = Ipv4Addr::octets(&network.network());
                (0..=u8::MAX).map(|d| vec![4, a, b, c, d]).collect()
            }
            IpNet::V6(network) => {
                let [a, b, c, d, e, f, ..] = Ipv6Addr::octets(&network.network());
                (0..=u16::MAX)
                    .map(|rest| [&[6, a, b, c, d, e, f][..], &rest.to_be_bytes()].concat())
                    .collect()
            }
        };
        let is_it = |address: &[u8]| self.0.audit.subject(&EventSubject::Address(address)) == key;
        let address = addresses.into_iter().find(|address| is_it(address))?;
        let network = address[..if address[0] == 4 { 4 } else { 7 }].to_vec();
        Some(LookupValue::Address { address, network })
    }
}

/// Whether it counts wrong passwords of one account or device, which has a log of all failures besides that of new guesses.
fn has_guesses(name: LimitName) -> bool {
    use LimitName::{GuardAccount, GuardDevice, LoginAccount, LoginDevice};
    matches!(name, LoginAccount | LoginDevice | GuardAccount | GuardDevice)
}

async fn read<S: WindowStore + 'static>(
    limiter: &gatehouse_limiter::Limiter<S>,
    limit: Limit,
    subject: &[u8],
    of_this_instance: bool,
) -> Result<LimitStatus, StoreError> {
    read_log(limiter, limiter.bucket(&limit, subject), of_this_instance).await
}

async fn read_log<S: WindowStore + 'static>(
    limiter: &gatehouse_limiter::Limiter<S>,
    bucket: Bucket<'_>,
    of_this_instance: bool,
) -> Result<LimitStatus, StoreError> {
    let (reading, peek, limit) =
        (limiter.read(bucket).await?, limiter.peek(bucket).await?, bucket.limit.clone());
    let rules = peek.rules.iter().map(|rule| RuleStatus {
        count: rule.count,
        frees_at: (!rule.retry_after.is_zero()).then(|| peek.at.plus(rule.retry_after)),
    });
    let rules = rules.collect();
    Ok(LimitStatus { of_this_instance, at: peek.at, holds: peek.holds, hits: reading.hits, rules, limit })
}
