//! The subjects of limits, as people write them.

use strum::EnumDiscriminants;

use crate::accounts::{Account, AccountId, DeviceId, Realm, RealmLogin, Username, device_subject};
use crate::audit::{AuditEvent, EventSubject, SubjectKind};
use crate::codes::Recipient;
use crate::config::{LimitName, LimitSubject};
use crate::login::account_subject;
use crate::mail::Mailbox;
use crate::message::ProgramKind;
use crate::sms::Phone;

/// A subject of limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupSubject {
    pub scope: LookupScope,
    pub value: LookupValue,
}

/// Where it is counted.
#[derive(Debug, Clone, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(name(ScopeKind))]
pub enum LookupScope {
    Pages,
    /// At another program's login.
    Realm(Realm),
    /// At another program that has codes sent.
    Program(NamedProgram),
}

#[derive(Debug, Clone, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(name(ValueKind))]
pub enum LookupValue {
    Login(LookupLogin),
    /// A device at an account.
    Device(LookupLogin, DeviceId),
    Phone(Phone),
    Mailbox(Mailbox),
    /// An address as it is counted, alone and as part of its network.
    Address {
        address: Vec<u8>,
        network: Vec<u8>,
    },
    /// A dialling prefix.
    Prefix(String),
    /// In a program: the program itself.
    Everyone,
    /// Any text, for a custom limit.
    Custom(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupLogin {
    Account(Username),
    Realm(RealmLogin),
}

impl LookupLogin {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Account(login) => login.as_str(),
            Self::Realm(login) => login.as_str(),
        }
    }
}

/// A program that has messages sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedProgram {
    pub kind: ProgramKind,
    pub name: Realm,
}

impl NamedProgram {
    pub(super) fn subject(&self, bytes: &[u8]) -> Vec<u8> {
        self.kind.subject(self.name.as_str(), bytes)
    }
}

pub type LookupKind = (ScopeKind, ValueKind);

/// The kind of subject that a limit of this name counts; None if there can be no such limit, or nobody can name one.
pub fn kind_of(limit: &str) -> Option<LookupKind> {
    use ScopeKind::{Pages, Program, Realm};
    let Some(name) = LimitName::parse(limit) else {
        return limit.starts_with("custom.").then_some((Pages, ValueKind::Custom));
    };
    Some(match name.subject() {
        LimitSubject::Account => (Pages, ValueKind::Login),
        LimitSubject::Device => (Pages, ValueKind::Device),
        LimitSubject::Phone => (Pages, ValueKind::Phone),
        // Notices are counted in their queue, by account.
        LimitSubject::Mailbox if name == LimitName::MailNotice => return None,
        LimitSubject::Mailbox => (Pages, ValueKind::Mailbox),
        LimitSubject::Address | LimitSubject::Network => (Pages, ValueKind::Address),
        LimitSubject::Prefix => (Pages, ValueKind::Prefix),
        LimitSubject::Everyone => (Pages, ValueKind::Everyone),
        LimitSubject::RealmAccount => (Realm, ValueKind::Login),
        LimitSubject::RealmDevice => (Realm, ValueKind::Device),
        LimitSubject::RealmAddress | LimitSubject::RealmNetwork => (Realm, ValueKind::Address),
        LimitSubject::Program => (Program, ValueKind::Everyone),
        LimitSubject::ProgramAddress | LimitSubject::ProgramNetwork => (Program, ValueKind::Address),
        LimitSubject::ProgramPrefix => (Program, ValueKind::Prefix),
        LimitSubject::Grant | LimitSubject::Password | LimitSubject::MailDomain => return None,
    })
}

impl LookupSubject {
    pub fn kind(&self) -> LookupKind {
        ((&self.scope).into(), (&self.value).into())
    }

    /// The name of one of our own accounts, for those that have one.
    pub const fn username(&self) -> Option<&Username> {
        match &self.value {
            LookupValue::Login(LookupLogin::Account(login))
            | LookupValue::Device(LookupLogin::Account(login), _) => Some(login),
            _ => None,
        }
    }

    /// The name in a realm, for those that have one.
    pub(super) const fn realm_login(&self) -> Option<(&Realm, &RealmLogin)> {
        match (&self.scope, &self.value) {
            (
                LookupScope::Realm(realm),
                LookupValue::Login(LookupLogin::Realm(login))
                | LookupValue::Device(LookupLogin::Realm(login), _),
            ) => Some((realm, login)),
            _ => None,
        }
    }

    /// The realm that it belongs to.
    pub(super) const fn realm(&self) -> Option<&Realm> {
        if let LookupScope::Realm(realm) = &self.scope { Some(realm) } else { None }
    }

    /// The program that it belongs to.
    pub(super) const fn program(&self) -> Option<&NamedProgram> {
        if let LookupScope::Program(program) = &self.scope { Some(program) } else { None }
    }

    pub(super) const fn phone(&self) -> Option<&Phone> {
        if let LookupValue::Phone(phone) = &self.value { Some(phone) } else { None }
    }

    /// The e-mail address.
    pub const fn mailbox(&self) -> Option<&Mailbox> {
        if let LookupValue::Mailbox(mailbox) = &self.value { Some(mailbox) } else { None }
    }

    /// Where codes go: a number, or an e-mail address.
    pub(super) fn recipient(&self) -> Option<Recipient> {
        let phone = self.phone().cloned().map(Recipient::from);
        phone.or_else(|| self.mailbox().cloned().map(Recipient::from))
    }

    /// What the same text names, too: a name of ours may be an e-mail address.
    pub fn twin(&self) -> Option<Self> {
        let value = match (&self.scope, &self.value) {
            (LookupScope::Pages, LookupValue::Login(LookupLogin::Account(login))) => {
                LookupValue::Mailbox(Mailbox::parse(login.as_str()).ok()?)
            }
            (LookupScope::Pages, LookupValue::Mailbox(mailbox)) => {
                LookupValue::Login(LookupLogin::Account(Username::parse(mailbox.as_str()).ok()?))
            }
            _ => return None,
        };
        Some(Self { scope: LookupScope::Pages, value })
    }

    /// A number is also counted by its prefix. A relay checks its codes itself, and asks nobody for a challenge.
    pub fn is_counted_by(&self, limit: &str) -> bool {
        let verifies = self.program().is_some_and(|program| program.kind == ProgramKind::Verifier);
        let (scope, value) = self.kind();
        match (kind_of(limit), value) {
            (Some((of, ValueKind::Prefix)), ValueKind::Phone) => of == scope,
            (Some((ScopeKind::Pages, ValueKind::Phone)), ValueKind::Phone) if scope == ScopeKind::Program => {
                verifies
            }
            (Some((ScopeKind::Program, ValueKind::Everyone)), ValueKind::Everyone)
                if scope == ScopeKind::Program =>
            {
                let name = if verifies { LimitName::VerifyToken } else { LimitName::RelayToken };
                limit == name.as_str()
            }
            (kind, _) => kind == Some((scope, value)),
        }
    }

    /// The bytes of the subject in a limit that counts it.
    pub(super) fn bytes(&self, limit: &str, account: Option<AccountId>) -> Vec<u8> {
        let counted = LimitName::parse(limit).map(LimitName::subject);
        let in_scope = |bytes: &[u8]| match &self.scope {
            LookupScope::Pages => bytes.to_vec(),
            LookupScope::Realm(realm) => realm.subject(bytes),
            LookupScope::Program(program) => program.subject(bytes),
        };
        match &self.value {
            LookupValue::Login(login) => account_subject(login.as_str(), account),
            LookupValue::Device(login, id) => match account {
                Some(account) => device_subject(account, *id).to_vec(),
                // At a name without an account, no device is known.
                None => account_subject(login.as_str(), None),
            },
            LookupValue::Phone(phone)
                if matches!(counted, Some(LimitSubject::Prefix | LimitSubject::ProgramPrefix)) =>
            {
                in_scope(phone.block().as_bytes())
            }
            // Other logs of it in a program are found by the ledger's key of the number.
            LookupValue::Phone(phone) => phone.subject().as_bytes().to_vec(),
            LookupValue::Mailbox(mailbox) => mailbox.counted().as_bytes().to_vec(),
            LookupValue::Address { address, network } => match counted {
                Some(LimitSubject::Network | LimitSubject::RealmNetwork | LimitSubject::ProgramNetwork) => {
                    in_scope(network)
                }
                _ => in_scope(address),
            },
            LookupValue::Prefix(text) | LookupValue::Custom(text) => in_scope(text.as_bytes()),
            LookupValue::Everyone => {
                self.program().map_or("everyone", |program| program.name.as_str()).as_bytes().to_vec()
            }
        }
    }

    /// The subject in events that are found by it.
    pub(super) fn recorded<'a>(
        &'a self,
        account: Option<&'a Account>,
    ) -> Option<(SubjectKind, EventSubject<'a>)> {
        match &self.value {
            // A realm's names are found by their ids.
            LookupValue::Login(_) | LookupValue::Device(..) => self.username().map(|login| {
                let unknown = EventSubject::Login(login.as_str());
                (SubjectKind::Account, account.map_or(unknown, Account::recorded))
            }),
            LookupValue::Phone(phone) => Some((SubjectKind::Phone, EventSubject::Phone(phone.as_str()))),
            LookupValue::Mailbox(mailbox) => {
                Some((SubjectKind::Phone, EventSubject::Mailbox(mailbox.counted())))
            }
            LookupValue::Address { address, .. } => {
                Some((SubjectKind::Address, EventSubject::Address(address)))
            }
            LookupValue::Custom(text) => Some((SubjectKind::Account, EventSubject::Custom(text))),
            LookupValue::Prefix(_) | LookupValue::Everyone => None,
        }
    }

    /// Puts it into an event about this limit, together with the key that the limit counts it by.
    pub(super) fn note<'a>(&'a self, limit: &str, account: Option<&'a Account>, event: &mut AuditEvent<'a>) {
        match self.recorded(account) {
            Some((SubjectKind::Account, named)) => event.account = Some(named),
            Some((SubjectKind::Address, named)) => event.address = Some(named),
            Some((SubjectKind::Phone, named)) => event.phone = Some(named),
            Some((SubjectKind::Network, _)) | None => {}
        }
        match &self.value {
            LookupValue::Prefix(prefix) => event.prefix = Some(EventSubject::Prefix(prefix)),
            LookupValue::Phone(phone) if matches!(kind_of(limit), Some((_, ValueKind::Prefix))) => {
                event.prefix = Some(EventSubject::Prefix(phone.block()));
            }
            LookupValue::Address { network, .. } => event.network = Some(EventSubject::Network(network)),
            _ => {}
        }
    }
}
