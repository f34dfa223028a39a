//! Masked subjects on pages: the link to what is known about one, and what tells two with the same mask
//! apart.

use std::collections::{HashMap, HashSet};

use url::form_urlencoded;

use crate::audit::{MaskedSubject, SubjectKind};
use crate::origins::OriginFiles;

/// Hexadecimal digits of a tag: two subjects of one page share one with a chance of 1 in 65,536.
const TAG: usize = 4;

/// A masked subject, with a link to its look-up; of a network, which no limit is looked up for, to its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectLink {
    pub key: &'static str,
    pub mask: String,
    /// The beginning of its hash, if another subject of the page has the same mask.
    pub tag: Option<String>,
    pub href: String,
    /// Its hash, and all of its events.
    pub hash: String,
    pub events: String,
    /// Whose the network is, if a file tells it.
    pub origin: Option<String>,
    id: i64,
}

impl SubjectLink {
    pub fn new(kind: SubjectKind, MaskedSubject { key, mask }: &MaskedSubject) -> Self {
        Self {
            key: shown_key(kind, mask),
            mask: mask.clone(),
            tag: None,
            href: match kind {
                SubjectKind::Network => events_of(kind, *key, None),
                _ => format!("/admin/lookup?{}={}", kind.into_str(), hash_text(*key)),
            },
            hash: hash_text(*key),
            events: events_of(kind, *key, None),
            origin: None,
            id: *key,
        }
    }

    /// A reader's own name is not hidden from them.
    pub fn name_own(&mut self, own: i64, login: &str) {
        if self.key == kind_key(SubjectKind::Account) && self.id == own {
            login.clone_into(&mut self.mask);
            self.tag = None;
        }
    }

    pub fn is_address(&self) -> bool {
        self.key == kind_key(SubjectKind::Address)
    }

    /// Where somebody came from, not who they are.
    pub fn is_origin(&self) -> bool {
        self.is_address() || self.key == kind_key(SubjectKind::Network)
    }
}

/// Says of each network whose it is.
pub fn tell_origins<'a>(links: impl IntoIterator<Item = &'a mut SubjectLink>, files: &OriginFiles) {
    for link in links.into_iter().filter(|link| link.is_origin()) {
        link.origin = link.mask.parse().ok().and_then(|network| files.label(network));
    }
}

/// Tags the links with equal masks that lead to different subjects.
pub fn tell_apart<'a>(links: impl IntoIterator<Item = &'a mut SubjectLink>) {
    let links: Vec<_> = links.into_iter().collect();
    let mut ids: HashMap<(&str, String), HashSet<i64>> = HashMap::new();
    for link in &links {
        ids.entry((link.key, link.mask.clone())).or_default().insert(link.id);
    }
    for link in links {
        if ids.get(&(link.key, link.mask.clone())).is_some_and(|ids| ids.len() > 1) {
            link.tag = Some(tag(link.id));
        }
    }
}

pub fn tag(key: i64) -> String {
    hash_text(key)[..TAG].to_owned()
}

/// A subject's keyed hash in a URL. It does not tell who it is.
pub fn hash_text(key: i64) -> String {
    format!("{key:016x}")
}

pub fn parse_hash(text: &str) -> Option<i64> {
    let fits = text.len() == 16 && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    fits.then(|| u64::from_str_radix(text, 16).ok().map(u64::cast_signed))?
}

pub const fn kind_key(kind: SubjectKind) -> &'static str {
    match kind {
        SubjectKind::Account => "event.account",
        SubjectKind::Address => "event.address-in",
        SubjectKind::Network => "event.network",
        SubjectKind::Phone => "event.phone",
    }
}

/// The key of the word for a subject as it is shown: events record mailboxes where numbers are.
pub fn shown_key(kind: SubjectKind, mask: &str) -> &'static str {
    if kind == SubjectKind::Phone && is_mailbox(mask) { "event.mailbox" } else { kind_key(kind) }
}

pub fn is_mailbox(mask: &str) -> bool {
    mask.contains('@')
}

/// The events of a subject; only those of one limit if one is given.
pub fn events_of(kind: SubjectKind, key: i64, limit: Option<&str>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(limit.map(|limit| ("limit", limit))).append_pair(kind.into_str(), &hash_text(key));
    format!("/admin/events?{}", query.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_subjects_that_differ_behind_one_mask_are_tagged() {
        let link = |kind, key, mask: &str| SubjectLink::new(kind, &MaskedSubject { key, mask: mask.into() });
        let (network, name) = ("203.0.113.0/24", "al…");
        let mut links = vec![
            link(SubjectKind::Address, 1, network),
            link(SubjectKind::Address, -2, network),
            link(SubjectKind::Account, 3, name),
            link(SubjectKind::Account, 3, name),
            link(SubjectKind::Phone, 4, name),
        ];
        tell_apart(&mut links);
        let tags: Vec<_> = links.iter().map(|link| link.tag.as_deref()).collect();
        assert_eq!(tags, [Some("0000"), Some("ffff"), None, None, None]);
        assert_eq!(links[1].href, "/admin/lookup?address=fffffffffffffffe");
    }

    #[test]
    fn a_hash_is_read_back_and_nothing_else_is() {
        for key in [0, 7, -7, i64::MIN, i64::MAX] {
            assert_eq!(parse_hash(&hash_text(key)), Some(key));
        }
        for text in ["", "-7", "7", "FFFFFFFFFFFFFFFF", "+00000000000000f", "00000000000000000"] {
            assert_eq!(parse_hash(text), None, "{text}");
        }
    }
}
