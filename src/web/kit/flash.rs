//! A message for the next page, shown once. A signed cookie carries its name, never its text.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::secret::{SigningKeys, SubKey};

/// All messages of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flash {
    SignedOut,
    SessionEnded,
    /// As before, and what was sent with it was dropped.
    NotSaved,
    Registered,
    PasswordChanged,
    SessionRevoked,
    OthersRevoked,
    PasswordReset,
    PhoneSet,
    PhoneRemoved,
    BrakeLifted,
    TokenRevoked,
    /// What the same form has just made, and was shown once.
    AlreadyMade,
    LimitsSaved,
    LimitsRestored,
    CountCleared,
    PasswordEnabled,
    NothingEnabled,
    AccessSaved,
    AccessEnded,
    AppsSaved,
    AccountChanged,
    AccountDeleted,
}

impl Flash {
    pub const ALL: [Self; 23] = [
        Self::SignedOut,
        Self::SessionEnded,
        Self::NotSaved,
        Self::Registered,
        Self::PasswordChanged,
        Self::SessionRevoked,
        Self::OthersRevoked,
        Self::PasswordReset,
        Self::PhoneSet,
        Self::PhoneRemoved,
        Self::BrakeLifted,
        Self::TokenRevoked,
        Self::AlreadyMade,
        Self::LimitsSaved,
        Self::LimitsRestored,
        Self::CountCleared,
        Self::PasswordEnabled,
        Self::NothingEnabled,
        Self::AccessSaved,
        Self::AccessEnded,
        Self::AppsSaved,
        Self::AccountChanged,
        Self::AccountDeleted,
    ];

    pub fn named(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flash| flash.code() == code)
    }

    /// Its name in cookies.
    pub const fn code(self) -> &'static str {
        match self {
            Self::SignedOut => "signed-out",
            Self::SessionEnded => "session-ended",
            Self::NotSaved => "not-saved",
            Self::Registered => "registered",
            Self::PasswordChanged => "password-changed",
            Self::SessionRevoked => "session-revoked",
            Self::OthersRevoked => "others-revoked",
            Self::PasswordReset => "password-reset",
            Self::PhoneSet => "phone-set",
            Self::PhoneRemoved => "phone-removed",
            Self::BrakeLifted => "brake-lifted",
            Self::TokenRevoked => "token-revoked",
            Self::AlreadyMade => "already-made",
            Self::LimitsSaved => "limits-saved",
            Self::LimitsRestored => "limits-restored",
            Self::CountCleared => "count-cleared",
            Self::PasswordEnabled => "password-enabled",
            Self::NothingEnabled => "nothing-enabled",
            Self::AccessSaved => "access-saved",
            Self::AccessEnded => "access-ended",
            Self::AppsSaved => "apps-saved",
            Self::AccountChanged => "account-changed",
            Self::AccountDeleted => "account-deleted",
        }
    }

    /// The colour of the message.
    pub const fn tone(self) -> &'static str {
        if self.is_for_the_signed_out() || matches!(self, Self::AlreadyMade) { "warn" } else { "good" }
    }

    /// Not true any more once somebody is signed in.
    pub const fn is_for_the_signed_out(self) -> bool {
        matches!(self, Self::SessionEnded | Self::NotSaved)
    }

    pub const fn key(self) -> &'static str {
        match self {
            Self::SignedOut => "flash.signed-out",
            Self::SessionEnded => "flash.session-ended",
            Self::NotSaved => "flash.not-saved",
            Self::Registered => "flash.registered",
            Self::PasswordChanged => "flash.password-changed",
            Self::SessionRevoked => "flash.session-revoked",
            Self::OthersRevoked => "flash.others-revoked",
            Self::PasswordReset => "flash.password-reset",
            Self::PhoneSet => "flash.phone-set",
            Self::PhoneRemoved => "flash.phone-removed",
            Self::BrakeLifted => "flash.brake-lifted",
            Self::TokenRevoked => "flash.token-revoked",
            Self::AlreadyMade => "flash.already-made",
            Self::LimitsSaved => "flash.limits-saved",
            Self::LimitsRestored => "flash.limits-restored",
            Self::CountCleared => "flash.count-cleared",
            Self::PasswordEnabled => "flash.password-enabled",
            Self::NothingEnabled => "flash.nothing-enabled",
            Self::AccessSaved => "flash.access-saved",
            Self::AccessEnded => "flash.access-ended",
            Self::AppsSaved => "flash.apps-saved",
            Self::AccountChanged => "flash.account-changed",
            Self::AccountDeleted => "flash.account-deleted",
        }
    }
}

/// Signs and verifies flash cookies; the keys are `web.flash`.
#[derive(Clone)]
pub struct Flashes(SigningKeys);

impl Flashes {
    pub const fn new(keys: SigningKeys) -> Self {
        Self(keys)
    }

    pub fn sign(&self, flash: Flash) -> String {
        format!("{}.{}", flash.code(), URL_SAFE_NO_PAD.encode(mac(self.0.signing(), flash)))
    }

    pub fn read(&self, cookie: &str) -> Option<Flash> {
        let (code, told) = cookie.split_once('.')?;
        let flash = Flash::named(code)?;
        let told = URL_SAFE_NO_PAD.decode(told).ok()?;
        self.0.signer(&told, |key| mac(key, flash)).map(|_| flash)
    }
}

fn mac(key: &SubKey, flash: Flash) -> [u8; 16] {
    *key.hash(&[flash.code().as_bytes()]).first_chunk().expect("a hash of 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::MasterKey;

    fn flashes(byte: u8) -> Flashes {
        Flashes::new(MasterKey::from_bytes([byte; 32]).derive_signing("web.flash"))
    }

    #[test]
    fn what_was_signed_is_read_back() {
        for flash in Flash::ALL {
            assert_eq!(flashes(1).read(&flashes(1).sign(flash)), Some(flash));
        }
    }

    #[test]
    fn nobody_else_can_put_words_on_a_page() {
        let signed = flashes(1).sign(Flash::SignedOut);
        assert_eq!(flashes(2).read(&signed), None);
        assert_eq!(flashes(1).read(&signed.replace("signed-out", "password-changed")), None);
        assert_eq!(flashes(1).read("signed-out."), None);
        assert_eq!(flashes(1).read("<b>hello</b>"), None);
    }
}
