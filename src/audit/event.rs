//! The contents of an event: who tried what, how it ended, which rule of which limit decided, and what of it is shown.

use std::net::{Ipv4Addr, Ipv6Addr};

use gatehouse_limiter::{Refusal, RuleAction};
use serde::{Serialize, Serializer};
use strum::{EnumString, IntoStaticStr, VariantArray};
use utoipa::ToSchema;
use utoipa::openapi::schema::ObjectBuilder;

use crate::clock::{Micros, as_time};
use crate::config::LimitName;
use crate::unseen::{is_shaper, is_unseen};

/// What was attempted; by these words in SQL and in the API.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    SignIn,
    /// An attempt at another program's login; `name` is its realm.
    Attempt,
    /// A new password, set with an SMS code. It forgives the account's failures.
    Reset,
    /// An account's password was disabled after too many wrong ones in a row.
    PasswordDisabled,
    /// A password that signed in is in the list of lost ones.
    PasswordBreached,
    /// One password is tried at many names; the detail says at how many, from how many networks.
    Spray,
    /// A second factor was wrong, or its guess was refused, after a right first one; `name` is its kind.
    FactorFailed,
    /// An account got a second factor; `name` is its kind.
    FactorAdded,
    /// Its owner took one away, or used a recovery code up.
    FactorRemoved,
    /// An administrator took them all away.
    FactorReset,
    /// An account's authenticator app was disabled for strangers after too many wrong codes in a row.
    TotpDisabled,
    /// The next key that signs tokens was made; `name` is its algorithm.
    KeyRotated,
    /// A code or a refresh token of an application came from somebody who has a copy, or a refresh token late; `name` is
    /// the application.
    TokenReuse,
    /// An application's client sent a secret, a code or a token that was never given out; `name` is which.
    ClientCall,
    /// Somebody agreed that an application is told who they are; `name` is the application.
    ConsentGiven,
    /// An SMS code was entered; `name` is its purpose.
    Guess,
    Send,
    /// A mail with a code was asked for; `name` is its purpose.
    Mail,
    /// A code from a mail was entered; `name` is its purpose.
    MailGuess,
    /// An account was frozen by a code that its earlier address has.
    Frozen,
    Register,
    /// A large part of the total SMS budget is spent; `name` says how much.
    Budget,
    /// A challenge was requested or answered.
    Captcha,
    Custom,
    /// A request from a network that is refused (`[access] deny`), of which no more is known.
    Request,
    Reload,
    /// An attack began or ended; `name` is its kind.
    Attack,
    /// An administrator's action; `name` says which.
    Admin,
}

/// How it ended; by these words in SQL and in the API.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Ok,
    Wrong,
    Challenged,
    Throttled,
    Busy,
    Asked,
    /// Possibly sent: the gateway did not say.
    Unknown,
    /// Codes were short: the answer said that it was sent, but it was not.
    Withheld,
    /// It failed for a reason other than a limit; `name` or `detail` says which.
    Failed,
    /// Something that it needs is out.
    Unavailable,
    /// Not allowed, or not applied.
    Refused,
    Began,
    Ended,
}

crate::db::text_column!(Action, text => text.parse::<Self>()?);
crate::db::text_column!(Outcome, text => text.parse::<Self>()?);

/// The detail of a right password beside other attempts: the failures of its account were not forgiven.
pub const NOT_FORGIVEN: &str = r#"{"forgave":false}"#;
/// The name of a password attempt from a known device, which no log of the account counts. The detail says
/// which device.
pub const FROM_DEVICE: &str = "device";
/// The first field of that detail. At another program's login, where the name is the realm's, it alone tells.
pub const DEVICE: &str = "device";
/// The last field of the detail of a wrong password that was the same again: no rule that blocks counts it.
pub const REPEAT: &str = "repeat";

/// A detail that says so.
pub fn with_repeat(detail: Option<String>) -> String {
    let field = format!(r#""{REPEAT}":true}}"#);
    match detail.as_deref().and_then(|detail| detail.strip_suffix('}')) {
        Some(others) => format!("{others},{field}"),
        None => format!("{{{field}"),
    }
}

/// The names of registrations that were refused before anything was looked up: they count nowhere.
pub const UNCOUNTED_REGISTRATIONS: [&str; 2] = ["unfit-password", "busy"];
/// The names of what an account's owner does with the data of it; all else of [`Action::Admin`] is administrators'.
pub const OWN_DATA: [&str; 2] = ["account-export", "account-delete"];

/// The names of factors that nobody guesses, a recovery code and a passkey: only address and network count those.
pub const COUNTED_AT_ADDRESS: [&str; 2] = ["recovery", "passkey"];
/// How such a detail begins.
pub const DEVICE_FIRST: &str = r#"{"device":"#;

/// One event. What is in clear stays in memory: of subjects, only a keyed hash and a mask are written.
#[derive(Clone)]
pub struct AuditEvent<'a> {
    /// When it was decided, by the clock that decided.
    pub at: Micros,
    /// For a failure: from when it counts.
    pub settled: Option<Micros>,
    pub action: Action,
    pub outcome: Outcome,
    pub name: Option<&'a str>,
    /// The rule that refused it or, if noted, would have refused it.
    pub why: Option<EventRule<'a>>,
    /// The limit that it is about, if no rule decided.
    pub limit: Option<&'a str>,
    pub solved: bool,
    pub account: Option<EventSubject<'a>>,
    pub address: Option<EventSubject<'a>>,
    pub network: Option<EventSubject<'a>>,
    pub phone: Option<EventSubject<'a>>,
    pub prefix: Option<EventSubject<'a>>,
    /// The account that acted in the console.
    pub actor: Option<&'a str>,
    pub detail: Option<String>,
}

impl AuditEvent<'_> {
    /// About nobody in particular; the rest is filled in with `..`.
    pub const fn new(at: Micros, action: Action, outcome: Outcome) -> Self {
        Self {
            at,
            settled: None,
            action,
            outcome,
            name: None,
            why: None,
            limit: None,
            solved: false,
            account: None,
            address: None,
            network: None,
            phone: None,
            prefix: None,
            actor: None,
            detail: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRule<'a> {
    pub limit: &'a str,
    /// The index of the rule, from 0.
    pub rule: usize,
    /// When the hit that causes the wait stops counting: attempts stopped by the same hit are one episode.
    /// Zero if no hit causes it.
    pub frees_at: Micros,
    pub noted: bool,
}

impl Outcome {
    /// What a limit in monitor mode noted, it let through.
    pub const fn fate(self, noted: bool) -> Fate {
        match self {
            Self::Challenged | Self::Throttled if noted => Fate::Done,
            Self::Ok | Self::Asked | Self::Unknown | Self::Began | Self::Ended => Fate::Done,
            Self::Wrong => Fate::Wrong,
            Self::Challenged => Fate::Challenged,
            Self::Throttled | Self::Busy | Self::Refused => Fate::Refused,
            Self::Withheld | Self::Failed | Self::Unavailable => Fate::Failed,
        }
    }

    /// What a refusal means for the client.
    pub const fn refused(refusal: &Refusal) -> Self {
        match refusal.then {
            RuleAction::Captcha => Self::Challenged,
            RuleAction::Block => Self::Throttled,
        }
    }
}

impl<'a> EventRule<'a> {
    pub const fn refused(limit: &'a str, refusal: &Refusal) -> Self {
        Self { limit, rule: refusal.rule, frees_at: refusal.frees_at, noted: false }
    }

    /// A rule that no hit fills: a brake, or `[access]`.
    pub const fn by_nobody(limit: &'a str) -> Self {
        Self { limit, rule: 0, frees_at: Micros(0), noted: false }
    }

    pub const fn noted(limit: &'a str, refusal: &Refusal) -> Self {
        Self { noted: true, ..Self::refused(limit, refusal) }
    }
}

#[derive(Clone, Copy)]
pub enum EventSubject<'a> {
    Account {
        id: &'a [u8; 16],
        login: &'a str,
    },
    Login(&'a str),
    /// A name at another program's login.
    Realm {
        id: &'a [u8; 16],
        login: &'a str,
    },
    /// Its key and mask from before.
    Recorded {
        key: i64,
        mask: &'a str,
    },
    Custom(&'a str),
    /// The bytes that limits count: a 4 or a 6, and the address (for IPv6 its first half).
    Address(&'a [u8]),
    Network(&'a [u8]),
    Phone(&'a str),
    /// The mailbox of an e-mail address, as limits count it. It stands where numbers do.
    Mailbox(&'a str),
    Prefix(&'a str),
}

impl EventSubject<'_> {
    /// The input of its key: a tag for its kind, and bytes that identify it. An error if it has its key already.
    pub(super) fn input(&self) -> Result<([u8; 8], &[u8]), i64> {
        Ok(match self {
            Self::Recorded { key, .. } => return Err(*key),
            Self::Account { id, .. } => (*b"account ", *id),
            Self::Realm { id, .. } => (*b"realm   ", *id),
            Self::Login(name) => (*b"login   ", name.as_bytes()),
            Self::Custom(name) => (*b"custom  ", name.as_bytes()),
            Self::Address(bytes) => (*b"address ", bytes),
            Self::Network(bytes) => (*b"network ", bytes),
            Self::Phone(number) => (*b"phone   ", number.as_bytes()),
            Self::Mailbox(mailbox) => (*b"mailbox ", mailbox.as_bytes()),
            Self::Prefix(prefix) => (*b"prefix  ", prefix.as_bytes()),
        })
    }
}

/// What became of an attempt: each has one. Every figure of the console is made of these, so that a word has one meaning
/// wherever it is shown; `docs/figures.md` says which figure counts what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It did what it was to do: a right password, a message that was or may have been sent.
    Done,
    Wrong,
    /// Nothing was checked: a challenge must be solved first.
    Challenged,
    /// Nothing was checked, and no challenge helps: a limit, a list of `[access]`, or no room to hash.
    Refused,
    /// It was admitted, and something else went wrong.
    Failed,
}

impl Action {
    /// What people and programs attempt here. A challenge is part of the attempt that it came with, what happens at
    /// the logins of other programs has figures of its own, and the rest is done by administrators and by us.
    pub const fn is_attempt(self) -> bool {
        matches!(
            self,
            Self::SignIn
                | Self::Register
                | Self::Send
                | Self::Guess
                | Self::Mail
                | Self::MailGuess
                | Self::Custom
                | Self::Request
        )
    }
}

/// Whether sums of admitted events may be found by the limit, which their rows do not name: see `EventWriter`.
pub(super) fn is_counted_by(limit: &str) -> bool {
    use LimitName::*;
    [
        LoginDevice,
        FactorDevice,
        GuardDevice,
        RegisterAddress,
        VerifyToken,
        RelayToken,
        GuardAddress,
        LoginAddress,
    ]
    .iter()
    .any(|counted| counted.as_str() == limit)
}

/// What an attack consists of.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum AttackKind {
    /// Passwords that were wrong, or refused before they were compared.
    SignIns,
    /// Messages requested, sent or not.
    Messages,
    /// Mails with a code requested, sent or not.
    Mails,
    /// Registrations, successful or not.
    Registrations,
    /// Attempts at another program's login, as sign-ins here. Each realm is watched by itself.
    Attempts,
}

impl AttackKind {
    pub const fn action(self) -> Action {
        match self {
            Self::SignIns => Action::SignIn,
            Self::Messages => Action::Send,
            Self::Mails => Action::Mail,
            Self::Registrations => Action::Register,
            Self::Attempts => Action::Attempt,
        }
    }

    /// The outcomes that count; all of them if empty. A successful sign-in is no reason for alarm.
    pub const fn outcomes(self) -> &'static [Outcome] {
        match self {
            Self::SignIns | Self::Attempts => {
                // What an answer to the attack refuses counts, too: it goes on until it ends.
                &[Outcome::Wrong, Outcome::Challenged, Outcome::Throttled, Outcome::Busy, Outcome::Refused]
            }
            Self::Messages | Self::Mails | Self::Registrations => &[],
        }
    }

    pub fn counts(self, action: Action, outcome: Outcome) -> bool {
        action == self.action() && (self.outcomes().is_empty() || self.outcomes().contains(&outcome))
    }

    /// Fewer in five minutes are never unusual.
    pub const fn floor(self) -> u64 {
        match self {
            Self::SignIns | Self::Attempts => 50,
            Self::Messages | Self::Mails | Self::Registrations => 30,
        }
    }
}

/// Kinds of subjects by which events can be found and summed; by these words in URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum SubjectKind {
    Account,
    Address,
    Network,
    Phone,
}

impl SubjectKind {
    pub(super) fn key_column(self) -> String {
        format!("{}_key", self.into_str())
    }

    pub(super) const fn mask_column(self) -> &'static str {
        match self {
            Self::Account => "account_mask",
            Self::Address | Self::Network => "address_mask",
            Self::Phone => "phone_mask",
        }
    }
}

// One row: an event, or an episode of them; as it is in the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SecurityEvent)]
pub struct EventEntry {
    /// When it was decided; of several, the first time.
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Micros,
    #[serde(skip)]
    pub id: i64,
    /// The last time of several events; of a failure, when it began to count.
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub until: Micros,
    /// How many attempts this event stands for.
    #[schema(minimum = 1)]
    pub count: i64,
    #[schema(schema_with = words_of::<Action>)]
    pub action: Action,
    #[schema(schema_with = words_of::<Outcome>)]
    pub outcome: Outcome,
    /// The purpose of a code, or `verify:` or `relay:` and the program that had it sent; the realm of an attempt; the
    /// form of a challenge, the act of an administrator, why something failed, or `device`: a password from a browser that
    /// the account knows; detail names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The limit that refused it, or would have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Which of its rules, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub rule: Option<i64>,
    /// The limit is in monitor mode: it was not refused.
    pub noted: bool,
    /// It came with a solved challenge.
    pub solved: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<MaskedSubject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<MaskedSubject>,
    #[serde(skip)]
    pub network: Option<MaskedSubject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<MaskedSubject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<MaskedSubject>,
    /// The id of the administrator's account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// More, if there is any: JSON, or text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The x-request-id of the request; of several, the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The times of several events that limits count one by one: microseconds from `at` to each, with commas between
    /// them.
    #[serde(skip)]
    pub hits: Option<String>,
}

impl EventEntry {
    /// Whether receivers of webhooks are told.
    pub(super) fn is_news(&self) -> bool {
        match self.action {
            Action::Attack
            | Action::PasswordDisabled
            | Action::PasswordBreached
            | Action::Spray
            | Action::Budget
            | Action::FactorAdded
            | Action::FactorRemoved
            | Action::FactorReset
            | Action::TotpDisabled
            | Action::KeyRotated
            | Action::Frozen
            | Action::ConsentGiven => true,
            // Guesses that were refused are many; and anybody can show a passkey that does not exist.
            Action::FactorFailed => self.outcome == Outcome::Wrong && self.account.is_some(),
            // A late repeat ends nothing.
            Action::TokenReuse => self.outcome == Outcome::Refused,
            Action::SignIn
            | Action::Attempt
            | Action::Reset
            | Action::ClientCall
            | Action::Guess
            | Action::Send
            | Action::Mail
            | Action::MailGuess
            | Action::Register
            | Action::Captcha
            | Action::Custom
            | Action::Request
            | Action::Reload
            | Action::Admin => false,
        }
    }

    pub const fn subject(&self, kind: SubjectKind) -> Option<&MaskedSubject> {
        match kind {
            SubjectKind::Account => self.account.as_ref(),
            SubjectKind::Address => self.address.as_ref(),
            SubjectKind::Network => self.network.as_ref(),
            SubjectKind::Phone => self.phone.as_ref(),
        }
    }
}

// A subject as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MaskedSubject {
    /// For a filter. It does not tell who it is.
    #[serde(serialize_with = "as_key")]
    #[schema(value_type = String)]
    pub key: i64,
    /// How it begins.
    pub mask: String,
}

/// What leads a key of a subject in the API.
pub const KEY: &str = "key:";

fn as_key<S: Serializer>(key: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{KEY}{key:016x}"))
}

/// In the description of the API: one of the words for it.
pub fn words_of<T: VariantArray + Copy + Into<&'static str>>() -> ObjectBuilder {
    let words = T::VARIANTS.iter().map(|word| (*word).into());
    ObjectBuilder::new().schema_type(utoipa::openapi::Type::String).enum_values(Some(words))
}

/// How many digits of a number are hidden.
const HIDDEN_DIGITS: usize = 4;

/// The visible part of a subject: enough to recognise it, too little to find it.
pub fn mask(subject: &EventSubject<'_>) -> String {
    match subject {
        EventSubject::Account { login, .. } | EventSubject::Realm { login, .. } => name(login),
        EventSubject::Recorded { mask, .. } => (*mask).to_owned(),
        EventSubject::Login(login) | EventSubject::Custom(login) => name(login),
        EventSubject::Address(bytes) | EventSubject::Network(bytes) => network(bytes),
        EventSubject::Phone(number) => {
            format!("{}****", number.get(..number.len().saturating_sub(HIDDEN_DIGITS)).unwrap_or_default())
        }
        EventSubject::Mailbox(mailbox) => {
            let (first, domain) =
                (mailbox.chars().next(), mailbox.rsplit_once('@').map(|(_, domain)| domain));
            format!("{}***@{}", first.unwrap_or('*'), domain.unwrap_or_default())
        }
        EventSubject::Prefix(prefix) => format!("{prefix}****"),
    }
}

/// The first letter, or two if a name has five or more. Subjects of custom limits are any text: characters
/// that could reorder the surrounding line, and those that PostgreSQL does not accept (NUL), are replaced.
fn name(login: &str) -> String {
    let shown = if login.chars().nth(4).is_some() { 2 } else { 1 };
    let hides = |letter: char| is_unseen(letter) || is_shaper(letter);
    let readable = |letter: char| if hides(letter) { char::REPLACEMENT_CHARACTER } else { letter };
    login.chars().take(shown).map(readable).chain(['…']).collect()
}

/// The /24 or /48, as `login::Client` shows it to an account's owner.
fn network(bytes: &[u8]) -> String {
    match *bytes {
        [4, a, b, c, ..] => format!("{}/24", Ipv4Addr::new(a, b, c, 0)),
        [6, a, b, c, d, e, f, ..] => {
            let part = |high, low| u16::from_be_bytes([high, low]);
            format!("{}/48", Ipv6Addr::new(part(a, b), part(c, d), part(e, f), 0, 0, 0, 0, 0))
        }
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_comes_back_from_its_text() {
        assert!(Action::VARIANTS.iter().all(|action| action.into_str().parse() == Ok(*action)));
        assert!(Outcome::VARIANTS.iter().all(|outcome| outcome.into_str().parse() == Ok(*outcome)));
        assert!("Sign-In".parse::<Action>().is_err());
    }

    #[test]
    fn names_show_how_they_begin() {
        assert_eq!(mask(&EventSubject::Login("alice")), "al…");
        assert_eq!(mask(&EventSubject::Login("adam")), "a…");
        assert_eq!(mask(&EventSubject::Account { id: &[0; 16], login: "caroline" }), "ca…");
        assert_eq!(mask(&EventSubject::Login("张三")), "张…");
        assert_eq!(mask(&EventSubject::Login("")), "…");
    }

    #[test]
    fn nothing_in_a_mask_is_unseen_or_turns_a_line_around() {
        for unseen in ["\0", "\u{202e}", "\u{2066}", "\u{200b}", "\u{feff}", "\u{1b}", "\n", "\u{85}"] {
            assert_eq!(mask(&EventSubject::Custom(&format!("{unseen}{unseen}alice"))), "\u{fffd}\u{fffd}…");
        }
    }

    #[test]
    fn addresses_show_their_network() {
        assert_eq!(mask(&EventSubject::Address(&[4, 203, 0, 113, 77])), "203.0.113.0/24");
        assert_eq!(mask(&EventSubject::Network(&[4, 203, 0, 113])), "203.0.113.0/24");
        assert_eq!(mask(&EventSubject::Address(&[6, 0x20, 1, 0xd, 0xb8, 0, 0x42, 7, 7])), "2001:db8:42::/48");
        assert_eq!(mask(&EventSubject::Address(&[])), "?");
    }

    #[test]
    fn numbers_show_their_block() {
        assert_eq!(mask(&EventSubject::Phone("+8613800138000")), "+861380013****");
        assert_eq!(mask(&EventSubject::Prefix("+861380013")), "+861380013****");
        assert_eq!(mask(&EventSubject::Phone("+1")), "****");
    }
}
