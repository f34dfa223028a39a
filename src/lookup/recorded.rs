//! Subjects by their keyed hash in the record of events: nobody has to type whom they do not know.
//!
//! The record holds a hash and a mask. Few subjects fit a mask (256 addresses, 10,000 numbers, the accounts
//! whose names begin so), so that the one with this hash is found by trying them all. A name without an
//! account is not found: anybody may have typed it.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::{Lookup, LookupSubject};
use crate::audit::{EventEntry, EventSubject, SubjectKind};
use crate::clock::Micros;
use crate::db::DbError;
use crate::sms::Phone;

/// A subject of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedSubject {
    pub kind: SubjectKind,
    pub key: i64,
}

/// What its hash stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSubject {
    pub mask: String,
    /// None for a name that no account has.
    pub subject: Option<LookupSubject>,
}

impl Lookup {
    /// None if no event names it.
    pub async fn find(&self, recorded: RecordedSubject) -> Result<Option<FoundSubject>, DbError> {
        self.0.audit.flush().await;
        let newest = self.0.audit.log().by_subject(recorded.kind, recorded.key, Micros(0), 1).await?;
        let shown = newest.into_iter().next().and_then(|entry| match recorded.kind {
            SubjectKind::Account => entry.account,
            SubjectKind::Address => entry.address,
            SubjectKind::Network => entry.network,
            SubjectKind::Phone => entry.phone,
        });
        let Some(shown) = shown else { return Ok(None) };
        let subject = match recorded.kind {
            SubjectKind::Account => self.account_behind(&shown.mask, recorded.key).await?,
            SubjectKind::Address => self.address_behind(&shown.mask, recorded.key),
            SubjectKind::Phone => self.number_behind(&shown.mask, recorded.key),
            // Limits are looked up for its addresses.
            SubjectKind::Network => None,
        };
        Ok(Some(FoundSubject { mask: shown.mask, subject }))
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

    async fn account_behind(&self, mask: &str, key: i64) -> Result<Option<LookupSubject>, DbError> {
        let names = self.0.accounts.masked_as(mask.trim_end_matches('…')).await?;
        let is_it = |id: &[u8; 16]| self.0.audit.subject(&EventSubject::Account { id, login: "" }) == key;
        let found = names.into_iter().find(|(id, _)| is_it(id.as_bytes()));
        Ok(found.map(|(_, login)| LookupSubject::Login(login)))
    }

    fn number_behind(&self, mask: &str, key: i64) -> Option<LookupSubject> {
        let known = mask.strip_suffix("****")?;
        let numbers = (0..10_000).map(|last| format!("{known}{last:04}"));
        let found =
            numbers.into_iter().find(|number| self.0.audit.subject(&EventSubject::Phone(number)) == key);
        Some(LookupSubject::Phone(Phone::stored(found?)))
    }

    /// As limits count it: an IPv4 address in its /24, or a /64 in its /48.
    fn address_behind(&self, mask: &str, key: i64) -> Option<LookupSubject> {
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
        Some(LookupSubject::Address { address, network })
    }
}
