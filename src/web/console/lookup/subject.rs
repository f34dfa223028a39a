//! A subject as an administrator types it, as a path of the API carries it, or by its hash in the record.

use std::net::IpAddr;

use crate::accounts::{DeviceId, Realm, RealmLogin, Username};
use crate::audit::SubjectKind;
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::lookup::{LookupKind, LookupSubject, NamedProgram, RecordedSubject};
use crate::sms::{Phone, ProgramKind};
use crate::web::console::subject_link::{hash_text, parse_hash};
use crate::web::http::{ClientAddress, Services, TrustedProxies};

pub const LONGEST: usize = 256;

/// What leads a subject of a realm, as in a token's scope: `guard:shop:ada@example.com`.
const REALM: &str = "guard:";
/// What programs that have codes sent are led by: `verify:shop`, `relay:logto`.
const PROGRAMS: [ProgramKind; 2] = [ProgramKind::Verifier, ProgramKind::Relay];

/// Parses what an administrator looks up: an address, a number, a device or a login name. No text is two of
/// them: a login name has a letter, has no @, and has no dot or colon with only digits; a number has no
/// letter.
pub fn read(text: &str, live: &LiveSettings) -> Option<LookupSubject> {
    let text = text.trim();
    let kinds: &[LookupKind] = if text.starts_with(REALM) {
        &[LookupKind::RealmAddress, LookupKind::RealmDevice, LookupKind::RealmLogin]
    } else if is_in_program(text) {
        &[LookupKind::Program, LookupKind::ProgramAddress, LookupKind::ProgramPhone]
    } else {
        &[LookupKind::Address, LookupKind::Phone, LookupKind::Device, LookupKind::Login]
    };
    kinds.iter().copied().find_map(|kind| read_as(kind, text, live))
}

/// Parses the subject of a limit that counts this kind.
pub fn read_as(kind: LookupKind, text: &str, live: &LiveSettings) -> Option<LookupSubject> {
    match kind {
        LookupKind::Login => Username::parse(text).ok().map(LookupSubject::Login),
        LookupKind::Device => device(text),
        // What counts numbers may count them in programs.
        LookupKind::Phone if is_in_program(text) => in_program(LookupKind::ProgramPhone, text, live),
        LookupKind::Program => {
            let (program, rest) = program(text)?;
            rest.is_none().then_some(LookupSubject::Program(program))
        }
        LookupKind::ProgramPhone | LookupKind::ProgramAddress | LookupKind::ProgramPrefix => {
            in_program(kind, text, live)
        }
        LookupKind::Phone => Phone::parse(text, &live.sms.default_region).ok().map(LookupSubject::Phone),
        LookupKind::Address => address(text),
        LookupKind::Prefix => prefix(text, live),
        LookupKind::Everyone => (text == "everyone").then_some(LookupSubject::Everyone),
        LookupKind::Custom => {
            (1..=LONGEST).contains(&text.len()).then(|| LookupSubject::Custom(text.to_owned()))
        }
        LookupKind::RealmLogin | LookupKind::RealmDevice | LookupKind::RealmAddress => in_realm(kind, text),
    }
}

/// `guard:`, the realm, `:`, and a name, a name with a device, or an address there.
fn in_realm(kind: LookupKind, text: &str) -> Option<LookupSubject> {
    let (realm, text) = text.strip_prefix(REALM)?.split_once(':')?;
    let realm = Realm::parse(realm)?;
    match kind {
        LookupKind::RealmAddress => match address(text)? {
            LookupSubject::Address { address, network } => {
                Some(LookupSubject::RealmAddress { realm, address, network })
            }
            _ => None,
        },
        LookupKind::RealmDevice => {
            let (login, id) = text.rsplit_once('@')?;
            let login = RealmLogin::parse(login).ok()?;
            Some(LookupSubject::RealmDevice { realm, login, id: DeviceId::parse(id)? })
        }
        _ => Some(LookupSubject::RealmLogin { realm, login: RealmLogin::parse(text).ok()? }),
    }
}

fn is_in_program(text: &str) -> bool {
    PROGRAMS.iter().any(|kind| text.starts_with(kind.lead()))
}

/// `verify:shop` or `relay:logto`, and what follows after another colon.
fn program(text: &str) -> Option<(NamedProgram, Option<&str>)> {
    let (kind, text) = PROGRAMS.iter().find_map(|kind| Some((*kind, text.strip_prefix(kind.lead())?)))?;
    let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
    Some((NamedProgram { kind, name: Realm::parse(name)? }, rest))
}

/// `verify:shop:` and a number, an address or a prefix there.
fn in_program(kind: LookupKind, text: &str, live: &LiveSettings) -> Option<LookupSubject> {
    let (program, Some(text)) = program(text)? else { return None };
    let kind = match kind {
        LookupKind::ProgramAddress => LookupKind::Address,
        LookupKind::ProgramPrefix => LookupKind::Prefix,
        _ => LookupKind::Phone,
    };
    match read_as(kind, text, live)? {
        LookupSubject::Phone(phone) => Some(LookupSubject::ProgramPhone { program, phone }),
        LookupSubject::Prefix(prefix) => Some(LookupSubject::ProgramPrefix { program, prefix }),
        LookupSubject::Address { address, network } => {
            Some(LookupSubject::ProgramAddress { program, address, network })
        }
        _ => None,
    }
}

/// `alice@` and the id of the device, as in events.
fn device(text: &str) -> Option<LookupSubject> {
    let (login, id) = text.rsplit_once('@')?;
    Some(LookupSubject::Device { login: Username::parse(login).ok()?, id: DeviceId::parse(id)? })
}

fn address(text: &str) -> Option<LookupSubject> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let ip: IpAddr = bare.parse().ok()?;
    let client = ClientAddress::told_by(ip, std::iter::empty(), &TrustedProxies::default());
    let (address, network) = (client.subject(), client.network());
    Some(LookupSubject::Address { address: address.as_ref().to_vec(), network: network.as_ref().to_vec() })
}

/// A prefix as the ledger shows it, or a number with that prefix.
fn prefix(text: &str, live: &LiveSettings) -> Option<LookupSubject> {
    if let Some(LookupSubject::Phone(phone)) = read_as(LookupKind::Phone, text, live) {
        return Some(LookupSubject::Prefix(phone.block().to_owned()));
    }
    let digits = text.strip_prefix('+').filter(|digits| (1..=15).contains(&digits.len()))?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| LookupSubject::Prefix(text.to_owned()))
}

/// What leads a subject of the record. No name, number or address begins with it.
const HASH: char = '#';
const KINDS: [SubjectKind; 3] = [SubjectKind::Account, SubjectKind::Address, SubjectKind::Phone];

/// Whom they ask for.
pub struct AskedSubject {
    /// None if it is only known by its hash.
    pub subject: Option<LookupSubject>,
    /// Of one that was asked for by its hash: that, and its mask.
    pub masked: Option<(RecordedSubject, String)>,
}

/// The text that forms carry for a subject of the record.
pub fn text_of(recorded: RecordedSubject) -> String {
    format!("{HASH}{}:{}", recorded.kind.into_str(), hash_text(recorded.key))
}

/// A subject of the record from that text.
pub fn recorded(text: &str) -> Option<RecordedSubject> {
    let (name, hash) = text.strip_prefix(HASH)?.split_once(':')?;
    let kind = KINDS.into_iter().find(|kind| kind.into_str() == name)?;
    Some(RecordedSubject { kind, key: parse_hash(hash)? })
}

/// A subject of the record from a query: `account=`, `address=` or `phone=`, and its hash.
pub fn in_query(query: &[(String, String)]) -> Option<RecordedSubject> {
    let named = |kind: SubjectKind| {
        let (_, hash) = query.iter().find(|(name, _)| name == kind.into_str())?;
        Some(RecordedSubject { kind, key: parse_hash(hash)? })
    };
    KINDS.into_iter().find_map(named)
}

/// What somebody typed; nothing of a subject that they did not type.
pub fn typed(asked: &str) -> &str {
    if recorded(asked).is_some() { "" } else { asked }
}

/// None if it is nobody that limits can count, or that an event names.
pub async fn resolve(
    services: &Services,
    live: &LiveSettings,
    asked: &str,
) -> Result<Option<AskedSubject>, DbError> {
    let Some(recorded) = recorded(asked) else {
        let subject = read(asked, live);
        return Ok(subject.map(|subject| AskedSubject { subject: Some(subject), masked: None }));
    };
    let found = services.lookup.find(recorded).await?;
    Ok(found.map(|found| AskedSubject { subject: found.subject, masked: Some((recorded, found.mask)) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_an_address_a_number_or_a_name() {
        let live = LiveSettings::default();
        let kind = |text: &str| read(text, &live).map(|subject| subject.kind());
        for (text, expected) in [
            ("203.0.113.7", Some(LookupKind::Address)),
            (" [2001:db8::7] ", Some(LookupKind::Address)),
            ("2001:db8::7", Some(LookupKind::Address)),
            ("138 0013 8000", Some(LookupKind::Phone)),
            ("+8613800138000", Some(LookupKind::Phone)),
            ("alice", Some(LookupKind::Login)),
            ("alice@00112233445566778899aabbccddeeff", Some(LookupKind::Device)),
            ("alice@example.com", None),
            ("guard:shop:alice@example.com", Some(LookupKind::RealmLogin)),
            ("guard:shop:+8613800138000", Some(LookupKind::RealmLogin)),
            ("guard:shop:2001:db8::7", Some(LookupKind::RealmAddress)),
            ("guard:shop:203.0.113.7", Some(LookupKind::RealmAddress)),
            ("guard:shop:alice@00112233445566778899aabbccddeeff", Some(LookupKind::RealmDevice)),
            ("verify:shop", Some(LookupKind::Program)),
            ("relay:logto", Some(LookupKind::Program)),
            ("verify:shop:138 0013 8000", Some(LookupKind::ProgramPhone)),
            ("relay:logto:+8613800138000", Some(LookupKind::ProgramPhone)),
            ("verify:shop:203.0.113.7", Some(LookupKind::ProgramAddress)),
            ("relay:logto:2001:db8::7", Some(LookupKind::ProgramAddress)),
            ("verify:shop:alice", None),
            ("verify:shop:", None),
            ("verify:shop:verify:mail:138 0013 8000", None),
            ("verify:Shop", None),
            ("guard:Shop:alice", None),
            ("guard:shop:", None),
            ("", None),
            ("12", None),
            ("203.0.113.300", None),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[test]
    fn an_address_is_looked_up_as_it_is_counted() {
        let live = LiveSettings::default();
        let of = |text: &str| read(text, &live);
        assert_eq!(of("2001:db8:0:42::1"), of("2001:db8:0:42:ffff::2"), "by its /64");
        assert_ne!(of("2001:db8:0:42::1"), of("2001:db8:0:43::1"));
        assert_eq!(of("::ffff:203.0.113.7"), of("203.0.113.7"));
    }

    #[test]
    fn a_prefix_is_one_or_that_of_a_number() {
        let live = LiveSettings::default();
        let prefix = |text: &str| read_as(LookupKind::Prefix, text, &live);
        assert_eq!(prefix("+861380013"), prefix("+8613800138000"));
        assert_eq!(prefix("alice"), None);
        let there = |text: &str| read_as(LookupKind::ProgramPrefix, text, &live);
        assert_eq!(there("verify:shop:+861380013"), there("verify:shop:+8613800138000"));
        assert_ne!(there("verify:shop:+861380013"), there("relay:shop:+861380013"));
    }
}
