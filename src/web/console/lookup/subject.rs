//! A subject as an administrator types it, as a path of the API carries it, or by its hash in the record.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::accounts::{DeviceId, Realm, RealmLogin, Username};
use crate::audit::SubjectKind;
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::lookup::{
    LookupKind, LookupLogin, LookupScope, LookupSubject, LookupValue, NamedProgram, RecordedSubject,
    ScopeKind, ValueKind,
};
use crate::mail::Mailbox;
use crate::message::ProgramKind;
use crate::sms::Phone;
use crate::web::console::subject_link::{hash_text, parse_hash};
use crate::web::http::{ClientAddress, Services, TrustedProxies};

pub const LONGEST: usize = 256;

/// What leads a subject of a realm, as in a token's scope: `guard:shop:ada@example.com`.
const REALM: &str = "guard:";
/// What programs that have codes sent are led by: `verify:shop`, `relay:logto`.
const PROGRAMS: [ProgramKind; 2] = [ProgramKind::Verifier, ProgramKind::Relay];

/// Parses what an administrator looks up: an address, a number, a device, an e-mail address or a login name. Only an e-mail
/// address may also be a name, its [twin](LookupSubject::twin): otherwise a login name has a letter, has no @, and has
/// no dot or colon with only digits; a number has no letter.
pub fn read(text: &str, live: &LiveSettings) -> Option<LookupSubject> {
    let (scope, text) = scoped(text.trim())?;
    let kinds: &[ValueKind] = match scope {
        LookupScope::Realm(_) => &[ValueKind::Address, ValueKind::Device, ValueKind::Login],
        LookupScope::Program(_) => &[ValueKind::Everyone, ValueKind::Address, ValueKind::Phone],
        LookupScope::Pages => {
            &[ValueKind::Address, ValueKind::Phone, ValueKind::Device, ValueKind::Mailbox, ValueKind::Login]
        }
    };
    let value = kinds.iter().find_map(|kind| value(*kind, &scope, text, live))?;
    Some(LookupSubject { scope, value })
}

/// Parses the subject of a limit that counts this kind.
pub fn read_as((scope, kind): LookupKind, text: &str, live: &LiveSettings) -> Option<LookupSubject> {
    let found = scoped(text);
    let (scope, text) = match scope {
        ScopeKind::Pages => match found {
            // What counts numbers may count them in programs.
            Some((LookupScope::Program(program), rest)) if kind == ValueKind::Phone => {
                (LookupScope::Program(program), rest)
            }
            _ => (LookupScope::Pages, Some(text)),
        },
        scope => found.filter(|(found, _)| ScopeKind::from(found) == scope)?,
    };
    let value = value(kind, &scope, text, live)?;
    Some(LookupSubject { scope, value })
}

/// `guard:shop:`, `verify:shop:` or `relay:logto:` and what is counted there. Without that, it is the program itself.
fn scoped(text: &str) -> Option<(LookupScope, Option<&str>)> {
    if let Some(text) = text.strip_prefix(REALM) {
        let (realm, text) = text.split_once(':')?;
        return Some((LookupScope::Realm(Realm::parse(realm)?), Some(text)));
    }
    let program = PROGRAMS.iter().find_map(|kind| Some((*kind, text.strip_prefix(kind.lead())?)));
    let Some((kind, text)) = program else { return Some((LookupScope::Pages, Some(text))) };
    let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
    Some((LookupScope::Program(NamedProgram { kind, name: Realm::parse(name)? }), rest))
}

fn value(
    kind: ValueKind,
    scope: &LookupScope,
    text: Option<&str>,
    live: &LiveSettings,
) -> Option<LookupValue> {
    let Some(text) = text else { return (kind == ValueKind::Everyone).then_some(LookupValue::Everyone) };
    let login = |text: &str| match scope {
        LookupScope::Realm(_) => RealmLogin::parse(text).ok().map(LookupLogin::Realm),
        _ => Username::parse(text).ok().map(LookupLogin::Account),
    };
    let phone = || Phone::parse(text, &live.sms.default_region).ok();
    match kind {
        ValueKind::Login => login(text).map(LookupValue::Login),
        // `alice@` and the id of the device, as in events.
        ValueKind::Device => {
            let (name, id) = text.rsplit_once('@')?;
            Some(LookupValue::Device(login(name)?, DeviceId::parse(id)?))
        }
        ValueKind::Phone => phone().map(LookupValue::Phone),
        ValueKind::Mailbox => Mailbox::parse(text).ok().map(LookupValue::Mailbox),
        ValueKind::Address => {
            let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
            let ip: IpAddr = bare.parse().ok()?;
            let client = ClientAddress::at(ip, &TrustedProxies::default());
            let (address, network) = (client.subject().as_ref().to_vec(), client.network().as_ref().to_vec());
            Some(LookupValue::Address { address, network })
        }
        // A prefix as the ledger shows it, or that of a number.
        ValueKind::Prefix => {
            if let Some(phone) = phone() {
                return Some(LookupValue::Prefix(phone.block().to_owned()));
            }
            let digits = text.strip_prefix('+').filter(|digits| (1..=15).contains(&digits.len()))?;
            digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| LookupValue::Prefix(text.to_owned()))
        }
        ValueKind::Everyone => {
            (text == "everyone" && *scope == LookupScope::Pages).then_some(LookupValue::Everyone)
        }
        ValueKind::Custom => {
            (1..=LONGEST).contains(&text.len()).then(|| LookupValue::Custom(text.to_owned()))
        }
    }
}

/// What leads a subject of the record. No name, number or address begins with it.
const HASH: char = '#';
const KINDS: [SubjectKind; 3] = [SubjectKind::Account, SubjectKind::Address, SubjectKind::Phone];

/// Whom they ask for.
pub struct AskedSubject {
    /// The subject; None if it is only known by its hash.
    pub subject: Option<LookupSubject>,
    /// The hash of one that was asked for by it, and its mask.
    pub masked: Option<(RecordedSubject, String)>,
}

impl AskedSubject {
    /// The network that its mask shows, or the one that counts as its address; None of anything but an address.
    pub fn network(&self) -> Option<IpNet> {
        if let Some((_, mask)) = &self.masked {
            return mask.parse().ok();
        }
        let LookupValue::Address { address, .. } = &self.subject.as_ref()?.value else { return None };
        match *address.as_slice() {
            [4, a, b, c, d] => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)).into()),
            [6, ref first @ ..] => {
                let mut octets = [0; 16];
                octets.get_mut(..first.len())?.copy_from_slice(first);
                IpNet::new(Ipv6Addr::from(octets).into(), 64).ok()
            }
            _ => None,
        }
    }
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

/// Finds a subject; None if it is nobody that limits can count, or that an event names.
pub async fn resolve(
    services: &Services,
    live: &LiveSettings,
    asked: &str,
) -> Result<Option<AskedSubject>, DbError> {
    let Some(recorded) = recorded(asked) else {
        let Some(subject) = read(asked, live) else { return Ok(None) };
        let subject = Some(services.lookup.named(subject).await?);
        return Ok(Some(AskedSubject { subject, masked: None }));
    };
    let found = services.lookup.find(recorded).await?;
    Ok(found.map(|found| AskedSubject { subject: found.subject, masked: Some((recorded, found.mask)) }))
}

#[cfg(test)]
mod tests {
    use ScopeKind::{Pages, Program, Realm};

    use super::*;

    #[test]
    fn what_is_typed_is_an_address_a_number_a_mailbox_or_a_name() {
        let live = LiveSettings::default();
        let kind = |text: &str| read(text, &live).map(|subject| subject.kind());
        for (text, expected) in [
            ("203.0.113.7", Some((Pages, ValueKind::Address))),
            (" [2001:db8::7] ", Some((Pages, ValueKind::Address))),
            ("2001:db8::7", Some((Pages, ValueKind::Address))),
            ("138 0013 8000", Some((Pages, ValueKind::Phone))),
            ("+8613800138000", Some((Pages, ValueKind::Phone))),
            ("alice", Some((Pages, ValueKind::Login))),
            ("alice@00112233445566778899aabbccddeeff", Some((Pages, ValueKind::Device))),
            ("alice@example.com", Some((Pages, ValueKind::Mailbox))),
            ("Alice+x@Example.COM", Some((Pages, ValueKind::Mailbox))),
            ("alice@localhost", Some((Pages, ValueKind::Login))),
            ("alice@example.com@00112233445566778899aabbccddeeff", Some((Pages, ValueKind::Device))),
            ("alice@b@example.com", None),
            ("guard:shop:alice@example.com", Some((Realm, ValueKind::Login))),
            ("guard:shop:+8613800138000", Some((Realm, ValueKind::Login))),
            ("guard:shop:2001:db8::7", Some((Realm, ValueKind::Address))),
            ("guard:shop:203.0.113.7", Some((Realm, ValueKind::Address))),
            ("guard:shop:alice@00112233445566778899aabbccddeeff", Some((Realm, ValueKind::Device))),
            ("verify:shop", Some((Program, ValueKind::Everyone))),
            ("relay:logto", Some((Program, ValueKind::Everyone))),
            ("verify:shop:138 0013 8000", Some((Program, ValueKind::Phone))),
            ("relay:logto:+8613800138000", Some((Program, ValueKind::Phone))),
            ("verify:shop:203.0.113.7", Some((Program, ValueKind::Address))),
            ("relay:logto:2001:db8::7", Some((Program, ValueKind::Address))),
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
    fn a_name_may_be_an_e_mail_address_and_each_is_the_twin_of_the_other() {
        let live = LiveSettings::default();
        let mailbox = read("Alice@example.com", &live).unwrap();
        let name = mailbox.twin().unwrap();
        assert_eq!(Some(&name), read_as((Pages, ValueKind::Login), "alice@example.com", &live).as_ref());
        assert_eq!(name.twin().unwrap().kind(), (Pages, ValueKind::Mailbox));
        for alone in ["alice", "alice@localhost", "guard:shop:alice@example.com", "+8613800138000"] {
            assert_eq!(read(alone, &live).unwrap().twin(), None, "{alone}");
        }
    }

    #[test]
    fn a_prefix_is_one_or_that_of_a_number() {
        let live = LiveSettings::default();
        let prefix = |text: &str| read_as((Pages, ValueKind::Prefix), text, &live);
        assert_eq!(prefix("+861380013"), prefix("+8613800138000"));
        assert_eq!(prefix("alice"), None);
        let there = |text: &str| read_as((Program, ValueKind::Prefix), text, &live);
        assert_eq!(there("verify:shop:+861380013"), there("verify:shop:+8613800138000"));
        assert_ne!(there("verify:shop:+861380013"), there("relay:shop:+861380013"));
    }
}
