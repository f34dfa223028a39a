//! Row ids: 128 random bits, so that they do not reveal counts and cannot be guessed.

use std::fmt;

use crate::entropy::Entropy;

/// Written as 32 lower-case hexadecimal digits, and parsed from nothing else: one id has one text.
macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            pub fn random(entropy: &Entropy) -> Self {
                Self(entropy.bytes())
            }

            pub fn parse(text: &str) -> Option<Self> {
                let digits = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                let number = digits.then(|| u128::from_str_radix(text, 16).ok())??;
                Some(Self(number.to_be_bytes()))
            }

            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl From<[u8; 16]> for $name {
            fn from(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }
        }

        $crate::db::text_column!($name, text => Self::parse(text).ok_or("an id is not 32 hexadecimal digits")?);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }
    };
}

random_id! {
    /// An account, permanently: the login may change, the id does not.
    AccountId
}
random_id! {
    /// A session in its owner's list, used to end it. It opens nothing: the token does.
    SessionId
}
random_id! {
    /// One browser at one account. Opens nothing, and identifies no machine.
    DeviceId
}

pub(super) use random_id;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_text() {
        let id = AccountId::random(&Entropy::seeded(1));
        let text = id.to_string();
        assert_eq!(AccountId::parse(&text), Some(id));
        assert_eq!(AccountId::parse(&format!("+{}", &text[1..])), None);
        assert_eq!(AccountId::parse("0123456789ABCDEF0123456789ABCDEF"), None);
        assert_eq!(AccountId::parse(&"é".repeat(16)), None);
        assert_eq!(AccountId::parse(""), None);
    }
}
