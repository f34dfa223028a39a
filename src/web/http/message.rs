//! What a form says when it is shown again: the errors of its fields, and the notice above them.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use rust_i18n::t;
use strum::IntoStaticStr;

use crate::accounts::UsernameError;
use crate::login::PasswordError;
use crate::mail::MailboxError;
use crate::sms::PhoneError;
use crate::web::http::locale::{Locale, Wait};

/// Form fields that people fill in. The names are those in the HTML and the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Field {
    Login,
    Password,
    CurrentPassword,
    NewPassword,
    Phone,
    Code,
    CaptchaAnswer,
    Name,
    Scopes,
    ExpiresDays,
    /// What an authenticator answered.
    Passkey,
    /// A passkey's name.
    Label,
    Groups,
    Email,
    /// How many accounts an invitation makes.
    Count,
}

impl Field {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Makes the messages of fields from their rows: the name, what it fills in, and the key of its text. A form that is shown
/// again for one alone has the status that follows, or 422.
macro_rules! messages {
    (@or $default:ident) => { StatusCode::$default };
    (@or $default:ident, $given:ident) => { StatusCode::$given };
    ($(
        $(#[$doc:meta])*
        $variant:ident $({ $($field:ident: $type:ty),+ })? = $key:literal $(, $status:ident)?;
    )+) => {
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Message {
            $($(#[$doc])* $variant $({ $($field: $type),+ })?,)+
        }

        impl Message {
            pub fn text(&self, locale: Locale) -> Cow<'static, str> {
                match self {
                    $(Self::$variant $({ $($field),+ })? => {
                        t!($key, locale = locale.code() $($(, $field = $field)+)?)
                    })+
                }
            }

            const fn status(&self) -> StatusCode {
                match self {
                    $(Self::$variant { .. } => messages!(@or UNPROCESSABLE_ENTITY $(, $status)?),)+
                }
            }
        }
    };
}

messages! {
    LoginMissing = "error.login-missing";
    LoginLength { min: usize, max: usize } = "error.login-length";
    LoginCharacters = "error.login-characters";
    LoginTaken = "error.login-taken", CONFLICT;
    /// The invitation is to an account that has a name.
    LoginGiven = "error.login-given";
    PasswordMissing = "error.password-missing";
    PasswordTooShort { min: usize } = "error.password-short";
    PasswordTooLong { max: usize } = "error.password-long";
    PasswordControl = "error.password-control";
    PasswordUndefined = "error.password-undefined";
    /// The password is on a list of common passwords, or as easy to guess.
    PasswordGuessable = "error.password-guessable";
    PasswordBreached = "error.password-breached";
    PasswordSameAsLogin = "error.password-is-login";
    PasswordUnchanged = "error.password-unchanged";
    CurrentPasswordMissing = "error.current-missing";
    CurrentPasswordWrong = "error.current-wrong";
    PhoneMissing = "error.phone-missing";
    PhoneInvalid = "error.phone-invalid";
    PhoneNotMobile = "error.phone-not-mobile";
    CountryNotAllowed = "error.phone-country";
    NoCodesSent = "error.phone-no-codes";
    PhoneTaken = "error.phone-taken", CONFLICT;
    NotAskedHere = "error.not-asked";
    MailboxMissing = "error.email-missing";
    EmailInvalid = "error.email-invalid";
    EmailTooLong = "error.email-long";
    EmailDomain = "error.email-domain";
    EmailTaken = "error.email-taken", CONFLICT;
    /// It is no code, was used, or is older than seven days.
    FreezeCodeWrong = "error.freeze-code", UNAUTHORIZED;
    /// Neither a number nor an address.
    RecipientInvalid = "error.recipient-invalid";
    /// Shown only to a user who has proved that the number is theirs.
    NoAccount = "error.phone-no-account", NOT_FOUND;
    CodeMissing = "error.code-missing";
    CodeDigits = "error.code-digits";
    /// The code is wrong, expired, used or was never sent.
    CodeWrong = "error.code-wrong", UNAUTHORIZED;
    /// A second factor: a code of an app, or a recovery code.
    FactorMissing = "error.factor-missing";
    FactorUnfit = "error.factor-unfit";
    /// It is wrong, or was used before.
    FactorWrong = "error.factor-wrong", UNAUTHORIZED;
    /// Codes of the app are not compared from this browser any more.
    FactorClosed = "error.factor-closed", UNAUTHORIZED;
    /// The code is none of the app that is being set up.
    TotpUnconfirmed = "error.totp-unconfirmed", UNAUTHORIZED;
    /// A passkey that is not known, or whose answer is not accepted.
    PasskeyWrong = "error.passkey-wrong", UNAUTHORIZED;
    /// Its authenticator has not checked its user.
    PasskeyUnverified = "error.passkey-unverified";
    PasskeyKnown = "error.passkey-known", CONFLICT;
    PasskeysTooMany { max: usize } = "error.passkeys-many";
    PasskeyLabelUnfit = "error.passkey-label";
    CaptchaMissing = "error.captcha-missing";
    CaptchaWrong = "error.captcha-wrong";
    /// A token's name: missing, too long, or with control characters.
    NameUnfit { max: usize } = "error.token-name";
    ScopesMissing = "error.scopes-missing";
    ScopesTooMany { max: usize } = "error.scopes-many";
    /// A scope is neither the name of a custom limit nor a part of the admin API.
    ScopesUnfit = "error.scopes-unfit";
    ScopeNear { it: String, near: String } = "error.scope-near";
    ScopeUnknown { it: String } = "error.scope-unknown";
    ScopesRealms = "error.scopes-realms";
    ExpiryUnfit { max: u32 } = "error.expiry-unfit";
    /// A token for the admin API has to expire within this many days.
    ExpiryRequired { max: u32 } = "error.expiry-required";
    /// This one of several names.
    LoginsUnfit { it: String } = "invitations.login-unfit";
    LoginsTaken { it: String } = "invitations.logins-taken", CONFLICT;
    LoginsTooMany { max: usize } = "invitations.logins-many";
    /// With several names, whose would it be?
    OfOneAccount = "invitations.of-one";
    GroupUnfit { it: String } = "accounts.group-wrong";
    GroupsTooMany = "accounts.groups-too-many";
    EmailUnfit = "accounts.email-wrong";
    EmailMissing = "accounts.email-missing";
    ShownNameUnfit = "accounts.name-wrong";
    CountUnfit { max: u32 } = "invitations.count-unfit";
    /// No link makes an account while registration is closed.
    InvitesClosed = "invitations.closed", CONFLICT;
}

impl Message {
    /// For a current password. A password that could not be set cannot be correct.
    pub const fn of_current_password(error: PasswordError) -> Self {
        match error {
            PasswordError::Empty => Self::CurrentPasswordMissing,
            _ => Self::CurrentPasswordWrong,
        }
    }
}

impl From<UsernameError> for Message {
    fn from(error: UsernameError) -> Self {
        match error {
            UsernameError::Empty => Self::LoginMissing,
            UsernameError::TooLong => Self::LoginLength { min: 1, max: crate::accounts::LONGEST_LOGIN },
            UsernameError::Whitespace
            | UsernameError::At
            | UsernameError::Address
            | UsernameError::Character
            | UsernameError::NoLetter
            | UsernameError::MixedScripts
            | UsernameError::Direction => Self::LoginCharacters,
        }
    }
}

impl From<PasswordError> for Message {
    fn from(error: PasswordError) -> Self {
        match error {
            PasswordError::Empty => Self::PasswordMissing,
            PasswordError::TooShort => Self::PasswordTooShort { min: crate::login::SHORTEST_PASSWORD },
            PasswordError::TooLong => Self::PasswordTooLong { max: crate::login::LONGEST_PASSWORD },
            PasswordError::Control => Self::PasswordControl,
            PasswordError::Undefined => Self::PasswordUndefined,
            PasswordError::Guessable => Self::PasswordGuessable,
            PasswordError::Breached => Self::PasswordBreached,
        }
    }
}

impl From<MailboxError> for Message {
    fn from(error: MailboxError) -> Self {
        match error {
            MailboxError::Missing => Self::MailboxMissing,
            MailboxError::Malformed => Self::EmailInvalid,
            MailboxError::TooLong => Self::EmailTooLong,
            MailboxError::Domain => Self::EmailDomain,
        }
    }
}

impl From<PhoneError> for Message {
    fn from(error: PhoneError) -> Self {
        match error {
            PhoneError::Missing => Self::PhoneMissing,
            PhoneError::NotANumber => Self::PhoneInvalid,
            PhoneError::NotMobile => Self::PhoneNotMobile,
            PhoneError::CountryNotAllowed => Self::CountryNotAllowed,
        }
    }
}

/// At most one message a field, in the order of the form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldErrors(Vec<(Field, Message)>);

impl FieldErrors {
    pub fn one(field: Field, message: Message) -> Self {
        Self(vec![(field, message)])
    }

    /// Keeps only the first message of a field.
    pub fn add(&mut self, field: Field, message: Message) {
        if self.of(field).is_none() {
            self.0.push((field, message));
        }
    }

    /// Returns the value, or records its message for the field. So a handler can parse all fields first.
    pub fn take<T>(&mut self, field: Field, parsed: Result<T, Message>) -> Option<T> {
        parsed.map_err(|message| self.add(field, message)).ok()
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn of(&self, field: Field) -> Option<&Message> {
        self.0.iter().find(|(at, _)| *at == field).map(|(_, message)| message)
    }

    pub fn status(&self) -> StatusCode {
        self.0.first().map_or(StatusCode::UNPROCESSABLE_ENTITY, |(_, message)| message.status())
    }

    pub fn first(&self) -> Option<Field> {
        self.0.first().map(|(field, _)| *field)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Field, &Message)> {
        self.0.iter().map(|(field, message)| (*field, message))
    }
}

/// What a form says above its fields when it is shown again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Notice {
    #[default]
    None,
    /// Another image was requested. Nothing was tried.
    Refreshed,
    /// Somebody is signed in, but not recently enough for a part of an application.
    SignInAgain,
    /// The password is to be given again.
    PasswordAgain,
    /// The part asks for a password, and the account has none.
    PasswordForPart,
    CaptchaNeeded,
    CaptchaWrong,
    Invalid(FieldErrors),
    /// The action was refused, until then if there is a wait.
    Refused {
        status: StatusCode,
        words: Words,
        wait: Option<Wait>,
    },
}

/// The keys of what a form says of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// The class of the box.
    pub tone: &'static str,
    pub title: &'static str,
    /// What to do next. With a wait and a link: what somebody can do instead who is not signed in; with a wait alone: why.
    pub text: &'static str,
    /// The path and the text of a link.
    pub link: Option<(&'static str, &'static str)>,
    /// The words are for a wait.
    pub waits: bool,
    /// The form cannot succeed.
    pub closes: bool,
}

impl Words {
    /// What was sent is wrong, or has failed.
    pub const fn bad(title: &'static str, text: &'static str) -> Self {
        Self { tone: "bad", title, text, link: None, waits: false, closes: false }
    }

    /// Something else has to be done first.
    pub const fn warn(title: &'static str, text: &'static str) -> Self {
        Self { tone: "warn", ..Self::bad(title, text) }
    }

    pub const fn waiting(title: &'static str) -> Self {
        Self { waits: true, ..Self::warn(title, "") }
    }
}

impl Notice {
    /// The account has no password, and needs one first.
    pub const PASSWORD_FIRST: Self = Self::Refused {
        status: StatusCode::FORBIDDEN,
        words: Words {
            link: Some(("/password/reset", "account.set-password")),
            closes: true,
            ..Words::warn("notice.password-first-title", "notice.password-first-text")
        },
        wait: None,
    };

    /// Only administrators make accounts.
    pub const REGISTRATION_CLOSED: Self = Self::Refused {
        status: StatusCode::FORBIDDEN,
        words: Words {
            closes: true,
            ..Words::warn("problem.registration-closed.title", "problem.registration-closed.about")
        },
        wait: None,
    };

    /// No code sets a password here.
    pub const NO_RESET: Self = Self::Refused {
        status: StatusCode::FORBIDDEN,
        words: Words { closes: true, ..Words::warn("reset.none-title", "reset.none-text") },
        wait: None,
    };

    /// No code was sent: too many were sent recently.
    pub const fn too_many_codes(wait: Wait) -> Self {
        let words = Words { text: "wait.codes-why", ..Words::waiting("wait.codes") };
        Self::Refused { status: StatusCode::TOO_MANY_REQUESTS, words, wait: Some(wait) }
    }

    pub fn at(field: Field, message: Message) -> Self {
        Self::Invalid(FieldErrors::one(field, message))
    }

    pub fn status(&self) -> StatusCode {
        match self {
            Self::None
            | Self::Refreshed
            | Self::SignInAgain
            | Self::PasswordAgain
            | Self::PasswordForPart => StatusCode::OK,
            Self::CaptchaNeeded | Self::CaptchaWrong => StatusCode::FORBIDDEN,
            Self::Invalid(errors) => errors.status(),
            Self::Refused { status, .. } => *status,
        }
    }

    pub const fn wait(&self) -> Option<&Wait> {
        match self {
            Self::Refused { wait, .. } => wait.as_ref(),
            _ => None,
        }
    }

    /// What was sent is wrong and can be corrected.
    pub fn is_mistake(&self) -> bool {
        match self {
            Self::CaptchaWrong | Self::Invalid(_) => true,
            Self::Refused { status, .. } => *status == StatusCode::UNAUTHORIZED,
            _ => false,
        }
    }

    /// A limit is full.
    pub fn is_throttled(&self) -> bool {
        self.status() == StatusCode::TOO_MANY_REQUESTS
    }

    /// The form cannot succeed.
    pub const fn closes(&self) -> bool {
        matches!(self, Self::Refused { words: Words { closes: true, .. }, .. })
    }

    /// Whether the password has to be given: neither a passkey nor a code would do.
    pub const fn wants_password(&self) -> bool {
        matches!(self, Self::PasswordAgain | Self::PasswordForPart)
    }

    pub fn errors(&self) -> FieldErrors {
        match self {
            Self::Invalid(errors) => errors.clone(),
            Self::CaptchaWrong => FieldErrors::one(Field::CaptchaAnswer, Message::CaptchaWrong),
            _ => FieldErrors::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_of_a_field_stands() {
        let mut errors = FieldErrors::default();
        assert_eq!(errors.take::<()>(Field::Login, Err(Message::LoginMissing)), None);
        errors.add(Field::Login, Message::LoginTaken);
        assert_eq!(errors, FieldErrors::one(Field::Login, Message::LoginMissing));
        assert_eq!(errors.of(Field::Password), None);
    }

    #[test]
    fn numbers_are_filled_in() {
        let message = Message::PasswordTooShort { min: 15 };
        for locale in Locale::ALL {
            let text = message.text(locale);
            assert!(text.contains("15") && !text.contains("%{"), "{text}");
        }
    }
}
