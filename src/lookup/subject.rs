//! The subjects of limits, as people write them.

use crate::audit::{self, AuditEvent, SubjectKind};
use crate::config::{LimitName, LimitSubject};
use crate::login::{
    Account, AccountId, DeviceId, Realm, RealmLogin, Username, account_subject, device_subject,
};
use crate::sms::{Phone, ProgramKind};

/// The kind of a limit's subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupKind {
    Login,
    /// A device at an account.
    Device,
    Phone,
    Address,
    /// A dialling prefix.
    Prefix,
    Everyone,
    /// Any text, for a custom limit.
    Custom,
    /// A name at another program's login.
    RealmLogin,
    /// A device there.
    RealmDevice,
    /// An address there.
    RealmAddress,
    /// Another program that has codes sent.
    Program,
    /// A number there.
    ProgramPhone,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupSubject {
    Login(Username),
    Device {
        login: Username,
        id: DeviceId,
    },
    Phone(Phone),
    /// As it is counted, alone and as part of its network.
    Address {
        address: Vec<u8>,
        network: Vec<u8>,
    },
    Prefix(String),
    Everyone,
    Custom(String),
    RealmLogin {
        realm: Realm,
        login: RealmLogin,
    },
    RealmDevice {
        realm: Realm,
        login: RealmLogin,
        id: DeviceId,
    },
    RealmAddress {
        realm: Realm,
        address: Vec<u8>,
        network: Vec<u8>,
    },
    Program {
        kind: ProgramKind,
        name: Realm,
    },
    ProgramPhone {
        program: Realm,
        phone: Phone,
    },
}

impl LookupKind {
    /// The kind of subject that a limit of this name counts; None if there can be no such limit.
    pub fn of(limit: &str) -> Option<Self> {
        let Some(name) = LimitName::parse(limit) else {
            return limit.starts_with("custom.").then_some(Self::Custom);
        };
        Some(match name.subject() {
            LimitSubject::Account => Self::Login,
            LimitSubject::Device => Self::Device,
            LimitSubject::Phone => Self::Phone,
            LimitSubject::Address | LimitSubject::Network => Self::Address,
            LimitSubject::Prefix => Self::Prefix,
            LimitSubject::Everyone => Self::Everyone,
            LimitSubject::RealmAccount => Self::RealmLogin,
            LimitSubject::RealmDevice => Self::RealmDevice,
            LimitSubject::RealmAddress | LimitSubject::RealmNetwork => Self::RealmAddress,
            LimitSubject::Program => Self::Program,
        })
    }
}

impl LookupSubject {
    /// The name in a realm, for those that have one.
    pub(super) const fn realm_login(&self) -> Option<(&Realm, &RealmLogin)> {
        match self {
            Self::RealmLogin { realm, login } | Self::RealmDevice { realm, login, .. } => {
                Some((realm, login))
            }
            _ => None,
        }
    }

    /// The realm that it belongs to.
    pub(super) fn realm(&self) -> Option<&Realm> {
        match self {
            Self::RealmAddress { realm, .. } => Some(realm),
            other => other.realm_login().map(|(realm, _)| realm),
        }
    }

    /// The program that it belongs to.
    pub(super) const fn program(&self) -> Option<&Realm> {
        match self {
            Self::Program { name: program, .. } | Self::ProgramPhone { program, .. } => Some(program),
            _ => None,
        }
    }

    pub(super) const fn phone(&self) -> Option<&Phone> {
        match self {
            Self::Phone(phone) | Self::ProgramPhone { phone, .. } => Some(phone),
            _ => None,
        }
    }

    pub const fn kind(&self) -> LookupKind {
        match self {
            Self::Login(_) => LookupKind::Login,
            Self::Device { .. } => LookupKind::Device,
            Self::Phone(_) => LookupKind::Phone,
            Self::Address { .. } => LookupKind::Address,
            Self::Prefix(_) => LookupKind::Prefix,
            Self::Everyone => LookupKind::Everyone,
            Self::Custom(_) => LookupKind::Custom,
            Self::RealmLogin { .. } => LookupKind::RealmLogin,
            Self::RealmDevice { .. } => LookupKind::RealmDevice,
            Self::RealmAddress { .. } => LookupKind::RealmAddress,
            Self::Program { .. } => LookupKind::Program,
            Self::ProgramPhone { .. } => LookupKind::ProgramPhone,
        }
    }

    /// A number is also counted by its prefix; in a program, only wrong codes are.
    pub fn is_counted_by(&self, limit: &str) -> bool {
        let name = LimitName::parse(limit);
        match (LookupKind::of(limit), self) {
            (Some(LookupKind::Prefix), _) => matches!(self, Self::Prefix(_) | Self::Phone(_)),
            (_, Self::ProgramPhone { .. }) => name == Some(LimitName::SmsGuess),
            (_, Self::Program { kind: ProgramKind::Verifier, .. }) => name == Some(LimitName::VerifyToken),
            (_, Self::Program { kind: ProgramKind::Relay, .. }) => name == Some(LimitName::RelayToken),
            (kind, _) => kind == Some(self.kind()),
        }
    }

    /// The bytes of the subject in a limit that counts it.
    pub(super) fn bytes(&self, limit: &str, account: Option<AccountId>) -> Vec<u8> {
        let counted = LimitName::parse(limit).map(LimitName::subject);
        match self {
            Self::Login(login) => account_subject(login.as_str(), account),
            // At a name without an account, no device is known.
            Self::Device { login, id } => account.map_or_else(
                || account_subject(login.as_str(), None),
                |account| device_subject(account, *id).to_vec(),
            ),
            Self::Phone(phone) if counted == Some(LimitSubject::Prefix) => phone.block().as_bytes().to_vec(),
            Self::Phone(phone) => phone.as_str().as_bytes().to_vec(),
            Self::Address { network, .. } if counted == Some(LimitSubject::Network) => network.clone(),
            Self::Address { address, .. } => address.clone(),
            Self::Prefix(text) | Self::Custom(text) => text.as_bytes().to_vec(),
            Self::Everyone => b"everyone".to_vec(),
            Self::RealmLogin { login, .. } => account_subject(login.as_str(), account),
            Self::RealmDevice { login, id, .. } => account.map_or_else(
                || account_subject(login.as_str(), None),
                |account| device_subject(account, *id).to_vec(),
            ),
            Self::RealmAddress { realm, network, .. } if counted == Some(LimitSubject::RealmNetwork) => {
                realm.subject(network)
            }
            Self::RealmAddress { realm, address, .. } => realm.subject(address),
            Self::Program { name, .. } => name.as_str().as_bytes().to_vec(),
            // Its logs are found by the ledger's key of the number.
            Self::ProgramPhone { phone, .. } => phone.as_str().as_bytes().to_vec(),
        }
    }

    /// The subject in events that are found by it.
    pub(super) fn recorded<'a>(
        &'a self,
        account: Option<&'a Account>,
    ) -> Option<(SubjectKind, audit::EventSubject<'a>)> {
        Some(match self {
            Self::Login(login) | Self::Device { login, .. } => {
                let unknown = audit::EventSubject::Login(login.as_str());
                (SubjectKind::Account, account.map_or(unknown, Account::recorded))
            }
            Self::Phone(phone) | Self::ProgramPhone { phone, .. } => {
                (SubjectKind::Phone, audit::EventSubject::Phone(phone.as_str()))
            }
            Self::Address { address, .. } | Self::RealmAddress { address, .. } => {
                (SubjectKind::Address, audit::EventSubject::Address(address))
            }
            Self::Custom(text) => (SubjectKind::Account, audit::EventSubject::Custom(text)),
            // A realm's names are found by their ids.
            Self::Prefix(_)
            | Self::Everyone
            | Self::RealmLogin { .. }
            | Self::RealmDevice { .. }
            | Self::Program { .. } => return None,
        })
    }

    /// Puts it into an event about this limit, together with the key that the limit counts it by.
    pub(super) fn note<'a>(&'a self, limit: &str, account: Option<&'a Account>, event: &mut AuditEvent<'a>) {
        match (self, self.recorded(account)) {
            (Self::Prefix(prefix), _) => event.prefix = Some(audit::EventSubject::Prefix(prefix)),
            (_, Some((SubjectKind::Account, named))) => event.account = Some(named),
            (_, Some((SubjectKind::Address, named))) => event.address = Some(named),
            (_, Some((SubjectKind::Phone, named))) => event.phone = Some(named),
            (_, None) => {}
        }
        match self {
            Self::Phone(phone) if LookupKind::of(limit) == Some(LookupKind::Prefix) => {
                event.prefix = Some(audit::EventSubject::Prefix(phone.block()));
            }
            Self::Address { network, .. } | Self::RealmAddress { network, .. } => {
                event.network = Some(audit::EventSubject::Network(network))
            }
            _ => {}
        }
    }
}
