//! Profiles: what applications are told about the owners of accounts. Administrators and imports set them, never the
//! owners, and no account is found or linked by one.

use sqlx::{Row, query, query_as};

use super::administration::in_tx;
use super::{AccountChange, AccountId, session_changes};
use crate::clock::Clock;
use crate::db::{Db, DbError, DbLock, from_row, on_db, on_tx, text_column};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::hidden_debug;
use crate::unseen::is_seen_whole;

/// In bytes: no mail server takes a longer address (RFC 5321, 4.5.3.1.3, without the brackets).
const LONGEST_EMAIL: usize = 254;
const LONGEST_NAME: usize = 128;
/// The longest part of a host name (RFC 1034).
const LONGEST_LABEL: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    pub email: Option<Email>,
    /// Somebody made sure that the address is the owner's.
    pub email_verified: bool,
    pub name: Option<DisplayName>,
}

/// One mailbox, as browsers take it (HTML, "valid e-mail address"), in the case in which it was written.
#[derive(Clone, PartialEq, Eq)]
pub struct Email(String);

/// A name for people to read, on one line and without hidden characters.
#[derive(Clone, PartialEq, Eq)]
pub struct DisplayName(String);

/// Said of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("must be one address, such as ada@example.org, of at most {LONGEST_EMAIL} bytes")]
    Email,
    #[error("must not be true without an email")]
    VerifiedNothing,
    #[error(
        "must be 1 to {LONGEST_NAME} characters on one line, none of them hidden, without spaces around them"
    )]
    Name,
}

impl Email {
    fn parse(text: &str) -> Option<Self> {
        let (mailbox, host) = text.split_once('@')?;
        let is_mailbox = |byte: u8| byte.is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-".contains(&byte);
        let is_label = |label: &str| {
            (1..=LONGEST_LABEL).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let fits = text.len() <= LONGEST_EMAIL
            && !mailbox.is_empty()
            && mailbox.bytes().all(is_mailbox)
            && host.split('.').all(is_label);
        fits.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl DisplayName {
    fn parse(text: &str) -> Option<Self> {
        let fits =
            text.trim() == text && (1..=LONGEST_NAME).contains(&text.chars().count()) && is_seen_whole(text);
        fits.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ProfileError {
    pub const fn field(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::VerifiedNothing => "email_verified",
            Self::Name => "name",
        }
    }
}

impl Profile {
    pub fn parse(
        email: Option<&str>,
        email_verified: bool,
        name: Option<&str>,
    ) -> Result<Self, ProfileError> {
        let email = email.map(|text| Email::parse(text).ok_or(ProfileError::Email)).transpose()?;
        if email_verified && email.is_none() {
            return Err(ProfileError::VerifiedNothing);
        }
        let name = name.map(|text| DisplayName::parse(text).ok_or(ProfileError::Name)).transpose()?;
        Ok(Self { email, email_verified, name })
    }

    /// Tells an address that the owner has confirmed, or none, in place of the one that administrators have set.
    pub fn confirm(&mut self, address: Option<&str>) {
        self.email = address.map(|address| Email(address.to_owned()));
        self.email_verified = self.email.is_some();
    }

    pub fn email_text(&self) -> Option<&str> {
        self.email.as_ref().map(Email::as_str)
    }

    pub fn name_text(&self) -> Option<&str> {
        self.name.as_ref().map(DisplayName::as_str)
    }

    /// The fields in which the two differ.
    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let fields = [
            ("email", self.email != other.email),
            ("email_verified", self.email_verified != other.email_verified),
            ("name", self.name != other.name),
        ];
        fields.into_iter().filter_map(|(field, differs)| differs.then_some(field)).collect()
    }
}

const OF: &str = "SELECT email, email_verified, name FROM profiles WHERE account = $1";

#[derive(Debug, Clone)]
pub struct Profiles {
    db: Db,
    clock: Clock,
    entropy: Entropy,
}

impl Profiles {
    pub fn new(foundation: &Foundation) -> Self {
        let Foundation { db, clock, entropy, .. } = foundation.clone();
        Self { db, clock, entropy }
    }

    pub async fn of(&self, account: AccountId) -> Result<Profile, DbError> {
        let found: Option<Profile> = on_db!(&self.db, pool => query_as(OF).bind(account.to_string())
            .fetch_optional(pool).await)?;
        Ok(found.unwrap_or_default())
    }

    /// Replaces the whole profile. `spares_admins`: whoever asks may not touch administrators.
    pub async fn set(
        &self,
        account: AccountId,
        profile: &Profile,
        spares_admins: bool,
    ) -> Result<AccountChange, DbError> {
        const SET: &str = "INSERT INTO profiles (account, email, email_verified, name) VALUES ($1, $2, $3, $4)
            ON CONFLICT (account) DO UPDATE SET email = excluded.email, email_verified = excluded.email_verified,
            name = excluded.name";
        let at = self.db.now(&self.clock).await?;
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        let Some(found) = in_tx(&mut tx, account).await? else { return Ok(AccountChange::Gone) };
        if found.roles.admin && spares_admins {
            return Ok(AccountChange::OfAdmin);
        }
        let account = account.to_string();
        let before: Option<Profile> = on_tx!(&mut tx, connection => query_as(OF).bind(&account)
            .fetch_optional(connection).await)?;
        let changed = profile.differences(&before.unwrap_or_default());
        if changed.is_empty() {
            return Ok(AccountChange::Unchanged);
        }
        // What the gate remembers of its visitors has their profiles in it.
        session_changes::record(&mut tx, &self.entropy, &account, at).await?;
        on_tx!(&mut tx, connection => query(SET).bind(&account).bind(profile.email_text())
            .bind(i64::from(profile.email_verified)).bind(profile.name_text()).execute(connection).await.map(drop))?;
        tx.commit().await?;
        Ok(AccountChange::NewProfile(changed))
    }
}

text_column!(Email, text => Self(text.to_owned()));
text_column!(DisplayName, text => Self(text.to_owned()));
hidden_debug!(Email);
hidden_debug!(DisplayName);

// A row of `profiles`, or of a LEFT JOIN that found none.
from_row!(Profile, row => Profile {
    email: row.try_get("email")?,
    email_verified: row.try_get::<Option<i64>, _>("email_verified")? == Some(1),
    name: row.try_get("name")?,
});

#[cfg(test)]
mod tests {
    use super::*;

    fn email(text: &str) -> Result<Profile, ProfileError> {
        Profile::parse(Some(text), true, None)
    }

    #[test]
    fn an_address_is_what_browsers_take() {
        for text in [
            "ada@example.org",
            "Ada.Lovelace+news@Example.ORG",
            "a@b",
            "o'brien{|}~!#$%&*/=?^_`@x-1.example",
            "..@1.2",
        ] {
            assert_eq!(email(text).unwrap().email_text(), Some(text));
        }
        for text in [
            "",
            "@",
            "ada",
            "ada@",
            "@example.org",
            "ada@@example.org",
            "ada@example.org@example.org",
            "ada@-example.org",
            "ada@example-.org",
            "ada@example..org",
            "ada@example.org.",
            "ada@exa_mple.org",
            "ada@[127.0.0.1]",
            "\"a b\"@example.org",
            "Ada <ada@example.org>",
            "ada@example.org,eve@example.org",
            "ada@example.org eve@example.org",
            " ada@example.org",
            "ada@example.org\r\nRemote-User: eve",
            "ada\0@example.org",
            "\u{430}da@example.org",
            "ada@exämple.org",
        ] {
            assert_eq!(email(text), Err(ProfileError::Email), "{text:?}");
        }
        let host = |label: usize| format!("a@{}", "b".repeat(label));
        assert!(email(&host(63)).is_ok() && email(&host(64)).is_err());
        let long = |mailbox: usize| format!("{}@b.example", "a".repeat(mailbox));
        assert!(email(&long(244)).is_ok() && email(&long(245)).is_err(), "254 bytes");
    }

    #[test]
    fn a_name_is_one_line_that_shows_all_of_itself() {
        let name = |text: &str| Profile::parse(None, false, Some(text));
        for text in [
            "Ada Lovelace",
            "王小明",
            "O’Brien, J. (IT) <x>",
            "محمد",
            "ا\u{200c}ب",
            "A",
            "👩‍💻",
            "Ada ❤\u{fe0f}",
            "葛\u{e0100}城",
        ] {
            assert_eq!(name(text).unwrap().name_text(), Some(text));
        }
        for text in [
            "",
            " ",
            " Ada",
            "\u{200d}",
            "Ada\u{3000}",
            "Ada\nEve",
            "Ada\r\nRemote-User: eve",
            "Ada\0",
            "Ada\u{7f}",
            "Ada\u{85}Eve",
            "Ada\u{2028}Eve",
            "\u{202e}adA",
            "A\u{2066}da",
            "Ada\u{200b}",
            "\u{3164}",
            "\u{115f}",
            "Ada\u{2800}",
            "A\u{34f}da",
            "\u{17b4}",
            "Ada\u{fffe}",
            "\u{200d} \u{200d}",
            "\u{fe0f}",
        ] {
            assert_eq!(name(text), Err(ProfileError::Name), "{text:?}");
        }
        assert!(name(&"明".repeat(128)).is_ok() && name(&"a".repeat(129)).is_err());
    }

    #[test]
    fn nothing_is_not_verified() {
        assert_eq!(Profile::parse(None, true, Some("Ada")), Err(ProfileError::VerifiedNothing));
        assert!(!Profile::parse(Some("ada@example.org"), false, None).unwrap().email_verified);
        assert_eq!(Profile::parse(None, false, None), Ok(Profile::default()));
        let shown = format!("{:?}", Profile::parse(Some("ada@example.org"), true, Some("Ada")).unwrap());
        assert!(!shown.contains("ada@") && !shown.contains("Ada"), "{shown}");
    }
}
