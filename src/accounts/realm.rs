//! The logins of other programs: a realm's name, and names in it.

use std::borrow::Cow;

use icu_normalizer::ComposingNormalizerBorrowed;
use icu_properties::CodePointMapData;
use icu_properties::props::GeneralCategory;
use precis_profiles::Nickname;
use precis_profiles::precis_core::profile::PrecisFastInvocation;
use precis_profiles::precis_core::{DerivedPropertyValue, Error};

use super::id::AccountId;
use crate::config::is_custom_name;
use crate::secret::{SubKey, hidden_debug};
use crate::unseen::{is_shaper, is_unseen};

/// Bytes of a name as sent, and in its canonical form: enough for an e-mail address (RFC 5321: 254).
const LONGEST: usize = 256;

/// The login of one program, as the scope of its tokens names it. Whatever is counted there counts nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Realm(String);

/// A name at another program's login: a user name, an e-mail address, a number.
#[derive(Clone, PartialEq, Eq)]
pub struct RealmLogin(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RealmLoginError {
    #[error("must be 1 to 256 bytes")]
    Length,
    #[error("must not contain control or invisible characters")]
    Character,
}

impl Realm {
    /// Parses a name like that of a custom limit: 1 to 64 of a-z, 0-9 and -.
    pub fn parse(text: &str) -> Option<Self> {
        is_custom_name(text).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A subject of this realm: its name cannot contain what separates it.
    pub fn subject(&self, bytes: &[u8]) -> Vec<u8> {
        [self.0.as_bytes(), b"/", bytes].concat()
    }
}

impl RealmLogin {
    /// Spellings that most programs take for one are one (RFC 8266, and lower case): no program counts more attempts
    /// at a name because its letters were typed in another way. Two accounts whose names differ in nothing else share
    /// a count.
    pub fn parse(input: &str) -> Result<Self, RealmLoginError> {
        if input.is_empty() || input.len() > LONGEST {
            return Err(RealmLoginError::Length);
        }
        let fold = |text: &str| {
            let fit = nickname(text).map_err(|_| RealmLoginError::Character)?;
            Ok(fit.to_lowercase().replace('ς', "σ").replace('ß', "ss"))
        };
        let name = fold(&fold(input)?)?;
        if name.is_empty() || name.len() > LONGEST {
            return Err(RealmLoginError::Length);
        }
        Ok(Self(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What it is counted as in its realm: an account's id, though nobody here knows whether there is an account.
    pub fn id(&self, realm: &Realm, key: &SubKey) -> AccountId {
        AccountId::from(key.short_hash(*b"realm   ", &realm.subject(self.0.as_bytes())))
    }
}

hidden_debug!(RealmLogin);

/// Enforces RFC 8266. Its tables are those of Unicode 6.3: what they know nothing of, newer emoji and scripts, is
/// part of a name if it is seen.
fn nickname(text: &str) -> Result<Cow<'_, str>, Error> {
    Nickname::enforce(text).or_else(|error| {
        let is_newer =
            matches!(&error, Error::BadCodepoint(it) if it.property == DerivedPropertyValue::Unassigned);
        let is_defined = |letter| {
            let category = CodePointMapData::<GeneralCategory>::new().get(letter);
            !matches!(category, GeneralCategory::Unassigned | GeneralCategory::PrivateUse)
        };
        let is_fit = |letter| !is_unseen(letter) && !is_shaper(letter) && is_defined(letter);
        if !is_newer || !text.chars().all(is_fit) {
            return Err(error);
        }
        let spaced = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        Ok(ComposingNormalizerBorrowed::new_nfkc().normalize(&spaced).into_owned().into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::MasterKey;

    #[test]
    fn spellings_of_one_name_are_one() {
        let name = |text: &str| RealmLogin::parse(text).unwrap().0;
        for text in
            ["Alice@Example.com", " alice@example.com ", "ＡＬＩＣＥ@example.com", "aLiCe@EXAMPLE.COM"]
        {
            assert_eq!(name(text), "alice@example.com", "{text}");
        }
        assert_eq!(name("İnci"), name(&name("İnci")), "folding it again changes nothing");
        assert_eq!(name("张三 李四"), "张三 李四");
        assert_eq!((name("ΟΔΥΣΣΕΥΣ"), name("STRASSE")), (name("οδυσσευς"), name("straße")));
        assert_ne!(name("alice"), name("alicе"), "a Cyrillic letter is another one");
    }

    #[test]
    fn what_unicode_has_defined_since_2013_is_part_of_a_name_if_it_is_seen() {
        let name = |text: &str| RealmLogin::parse(text).map(|login| login.0);
        assert_eq!(name(" ＡＤＡ  \u{1f914}\u{2b82f} "), Ok("ada \u{1f914}\u{2b82f}".to_owned()));
        assert_eq!(name("\u{1c90}"), Ok("\u{10d0}".to_owned()), "a Georgian capital");
        for text in ["\u{1f914}\u{200b}", "\u{1f914}\u{200d}x", "\u{1fae0}\0", "\u{1fae0}\u{e000}", "\u{378}"]
        {
            assert!(name(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_nobody_can_see_is_refused() {
        assert_eq!(RealmLogin::parse(""), Err(RealmLoginError::Length));
        assert_eq!(RealmLogin::parse(&"x".repeat(257)), Err(RealmLoginError::Length));
        for text in ["   ", "a\0b", "a\nb", "\u{200b}", "ali\u{200d}ce", "\u{202e}ecila"] {
            assert!(RealmLogin::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_name_in_one_realm_is_nobody_in_another() {
        let key = MasterKey::from_bytes([7; 32]).derive("test");
        let id = |realm: &str, login: &str| {
            RealmLogin::parse(login).unwrap().id(&Realm::parse(realm).unwrap(), &key)
        };
        assert_eq!(id("shop", "alice"), id("shop", "ALICE"));
        assert_ne!(id("shop", "alice"), id("mail", "alice"));
        assert_ne!(id("a", "b/c"), id("a-b", "c"));
        assert!(Realm::parse("a/b").is_none() && Realm::parse("").is_none());
    }
}
