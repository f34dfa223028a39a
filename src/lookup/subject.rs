//! The subjects of limits, as people write them.

use strum::EnumDiscriminants;

use crate::accounts::{Account, AccountId, DeviceId, Realm, RealmLogin, Username, device_subject};
use crate::audit::{AuditEvent, EventSubject, SubjectKind};
use crate::config::{LimitName, LimitSubject};
use crate::login::account_subject;
use crate::sms::{Phone, ProgramKind};

/// A subject of limits.
#[derive(Debug, Clone, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(name(LookupKind), doc = "The kind of a limit's subjects.")]
pub enum LookupSubject {
    Login(Username),
    /// A device at an account.
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
    /// A dialling prefix.
    Prefix(String),
    Everyone,
    /// Any text, for a custom limit.
    Custom(String),
    /// A name at another program's login.
    RealmLogin {
        realm: Realm,
        login: RealmLogin,
    },
    /// A device there.
    RealmDevice {
        realm: Realm,
        login: RealmLogin,
        id: DeviceId,
    },
    /// An address there.
    RealmAddress {
        realm: Realm,
        address: Vec<u8>,
        network: Vec<u8>,
    },
    /// Another program that has codes sent.
    Program(NamedProgram),
    /// A number there.
    ProgramPhone {
        program: NamedProgram,
        phone: Phone,
    },
    /// An address that it states.
    ProgramAddress {
        program: NamedProgram,
        address: Vec<u8>,
        network: Vec<u8>,
    },
    /// A dialling prefix there.
    ProgramPrefix {
        program: NamedProgram,
        prefix: String,
    },
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
            LimitSubject::ProgramAddress | LimitSubject::ProgramNetwork => Self::ProgramAddress,
            LimitSubject::ProgramPrefix => Self::ProgramPrefix,
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
    pub(super) const fn program(&self) -> Option<&NamedProgram> {
        match self {
            Self::Program(program)
            | Self::ProgramPhone { program, .. }
            | Self::ProgramAddress { program, .. }
            | Self::ProgramPrefix { program, .. } => Some(program),
            _ => None,
        }
    }

    pub(super) const fn phone(&self) -> Option<&Phone> {
        match self {
            Self::Phone(phone) | Self::ProgramPhone { phone, .. } => Some(phone),
            _ => None,
        }
    }

    pub fn kind(&self) -> LookupKind {
        self.into()
    }

    /// A number is also counted by its prefix. A relay checks its codes itself, and asks nobody for a challenge.
    pub fn is_counted_by(&self, limit: &str) -> bool {
        let name = LimitName::parse(limit);
        let verifies = self.program().is_some_and(|program| program.kind == ProgramKind::Verifier);
        match (LookupKind::of(limit), self) {
            (Some(LookupKind::Prefix), _) => matches!(self, Self::Prefix(_) | Self::Phone(_)),
            (Some(LookupKind::ProgramPrefix), Self::ProgramPhone { .. }) => true,
            (Some(LookupKind::Phone), Self::ProgramPhone { .. }) => verifies,
            (_, Self::Program(_)) if verifies => name == Some(LimitName::VerifyToken),
            (_, Self::Program(_)) => name == Some(LimitName::RelayToken),
            (kind, _) => kind == Some(self.kind()),
        }
    }

    /// The bytes of the subject in a limit that counts it.
    pub(super) fn bytes(&self, limit: &str, account: Option<AccountId>) -> Vec<u8> {
        let counted = LimitName::parse(limit).map(LimitName::subject);
        // At a name without an account, no device is known.
        let device = |login: &str, id: DeviceId| match account {
            Some(account) => device_subject(account, id).to_vec(),
            None => account_subject(login, None),
        };
        match self {
            Self::Login(login) => account_subject(login.as_str(), account),
            Self::Device { login, id } => device(login.as_str(), *id),
            Self::Phone(phone) if counted == Some(LimitSubject::Prefix) => phone.block().as_bytes().to_vec(),
            Self::Phone(phone) => phone.as_str().as_bytes().to_vec(),
            Self::Address { network, .. } if counted == Some(LimitSubject::Network) => network.clone(),
            Self::Address { address, .. } => address.clone(),
            Self::Prefix(text) | Self::Custom(text) => text.as_bytes().to_vec(),
            Self::Everyone => b"everyone".to_vec(),
            Self::RealmLogin { login, .. } => account_subject(login.as_str(), account),
            Self::RealmDevice { login, id, .. } => device(login.as_str(), *id),
            Self::RealmAddress { realm, network, .. } if counted == Some(LimitSubject::RealmNetwork) => {
                realm.subject(network)
            }
            Self::RealmAddress { realm, address, .. } => realm.subject(address),
            Self::Program(program) => program.name.as_str().as_bytes().to_vec(),
            Self::ProgramPhone { program, phone } if counted == Some(LimitSubject::ProgramPrefix) => {
                program.subject(phone.block().as_bytes())
            }
            // Other logs of it are found by the ledger's key of the number.
            Self::ProgramPhone { phone, .. } => phone.as_str().as_bytes().to_vec(),
            Self::ProgramAddress { program, network, .. }
                if counted == Some(LimitSubject::ProgramNetwork) =>
            {
                program.subject(network)
            }
            Self::ProgramAddress { program, address, .. } => program.subject(address),
            Self::ProgramPrefix { program, prefix } => program.subject(prefix.as_bytes()),
        }
    }

    /// The subject in events that are found by it.
    pub(super) fn recorded<'a>(
        &'a self,
        account: Option<&'a Account>,
    ) -> Option<(SubjectKind, EventSubject<'a>)> {
        Some(match self {
            Self::Login(login) | Self::Device { login, .. } => {
                let unknown = EventSubject::Login(login.as_str());
                (SubjectKind::Account, account.map_or(unknown, Account::recorded))
            }
            Self::Phone(phone) | Self::ProgramPhone { phone, .. } => {
                (SubjectKind::Phone, EventSubject::Phone(phone.as_str()))
            }
            Self::Address { address, .. }
            | Self::RealmAddress { address, .. }
            | Self::ProgramAddress { address, .. } => (SubjectKind::Address, EventSubject::Address(address)),
            Self::Custom(text) => (SubjectKind::Account, EventSubject::Custom(text)),
            // A realm's names are found by their ids.
            Self::Prefix(_)
            | Self::Everyone
            | Self::RealmLogin { .. }
            | Self::RealmDevice { .. }
            | Self::Program(_)
            | Self::ProgramPrefix { .. } => return None,
        })
    }

    /// Puts it into an event about this limit, together with the key that the limit counts it by.
    pub(super) fn note<'a>(&'a self, limit: &str, account: Option<&'a Account>, event: &mut AuditEvent<'a>) {
        match (self, self.recorded(account)) {
            (Self::Prefix(prefix) | Self::ProgramPrefix { prefix, .. }, _) => {
                event.prefix = Some(EventSubject::Prefix(prefix))
            }
            (_, Some((SubjectKind::Account, named))) => event.account = Some(named),
            (_, Some((SubjectKind::Address, named))) => event.address = Some(named),
            (_, Some((SubjectKind::Phone, named))) => event.phone = Some(named),
            (_, Some((SubjectKind::Network, _)) | None) => {}
        }
        match self {
            Self::Phone(phone) | Self::ProgramPhone { phone, .. }
                if matches!(LookupKind::of(limit), Some(LookupKind::Prefix | LookupKind::ProgramPrefix)) =>
            {
                event.prefix = Some(EventSubject::Prefix(phone.block()));
            }
            Self::Address { network, .. }
            | Self::RealmAddress { network, .. }
            | Self::ProgramAddress { network, .. } => event.network = Some(EventSubject::Network(network)),
            _ => {}
        }
    }
}
