//! Why something is not done: at the edge one type for every service, and one row for each refusal. The row says its status,
//! its name and texts in the API, what it carries, when to come again, which limits are shown with it, and what a form or a
//! page shows instead. Calls are answered with problem details (RFC 9457).

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::sync::LazyLock;
use std::time::Duration;

use actix_web::error::InternalError;
use actix_web::http::StatusCode as S;
use actix_web::http::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{Error, HttpResponse, ResponseError};
use serde::Serialize;
use strum::VariantArray;
use utoipa::ToSchema;

use crate::accounts::Factor;
use crate::clock::Micros;
use crate::db::DbError;
use crate::denied::{Denied, DeniedRule};
use crate::lookup::LookupError;
use crate::mail::MailboxError;
use crate::sms::PhoneError;
use crate::tuning::DraftError;
use crate::web::http::challenge::{BUSY as CAPTCHA_BUSY, CaptchaBody};
use crate::web::http::locale::{Locale, Wait, millis, whole_seconds};
use crate::web::http::message::{Field, FieldErrors, Message, Notice, Words};
use gatehouse_limiter::middleware::{BUSY, THROTTLED, UNAVAILABLE};

pub use gatehouse_limiter::middleware::ProblemKind as Kind;

/// A challenge that makes no browser ask by itself.
const SIGN_IN: &str = "Cookie realm=\"gatehouse\"";

const INVALID_TOKEN: Kind = kind(
    "invalid-token",
    S::UNAUTHORIZED,
    "Invalid token",
    "Send Authorization: Bearer with a valid token. If the token is expired or revoked, ask an administrator for a new one (/admin/tokens).",
);
const INVALID_INPUT: Kind = kind(
    "invalid-input",
    S::UNPROCESSABLE_ENTITY,
    "Invalid input",
    "Correct the fields listed in errors and send the call again.",
);

/// What every refusal of a row has in common.
struct RefusalRow {
    kind: Kind,
    /// For `WWW-Authenticate`.
    asks: Option<&'static str>,
    /// Its answer to a call comes with a challenge to solve.
    challenge: bool,
    page: ErrorKind,
}

/// What a form shows for a refusal of its action.
pub enum InForm {
    /// Nothing: it is passed on, and becomes the page of the refusal outside of the form.
    Page,
    /// The error page, answered by the form: if the form was sent twice, the first answer is still looked for.
    ErrorPage,
    Redirect(&'static str),
    Notice(Notice),
    /// The form again, at the status of the row; with the wait, if the words are for one.
    Words(Words),
}

/// Whose limits decide, so that an answer can show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedAs {
    Password,
    Guess,
    /// A second factor.
    Factor,
    Message,
    /// A registration, whose limits are not shown.
    Account,
}

/// The limits that are shown with a refusal, and the rule that is full, if one is.
pub type ShownLimits<'a> = (CountedAs, Option<DeniedRule<'a>>);

impl RefusalRow {
    /// The row, unless it lacks a column that its status calls for: then it does not compile.
    const fn checked(self, waits: bool) -> Self {
        let status = self.kind.status;
        assert!(self.asks.is_some() || !matches!(status, S::UNAUTHORIZED), "a 401 asks for credentials");
        assert!(
            waits == matches!(status, S::TOO_MANY_REQUESTS | S::SERVICE_UNAVAILABLE),
            "a 429 and a 503, and nothing else, say when to come again"
        );
        self
    }
}

/// A column is there if the macro has its text.
const fn is_there(_text: &str) -> bool {
    true
}

const fn kind(name: &'static str, status: S, title: &'static str, detail: &'static str) -> Kind {
    Kind { name, status, title, detail }
}

fn at(field: Field, message: Message) -> InForm {
    InForm::Notice(Notice::Invalid(FieldErrors::one(field, message)))
}

const fn shown(counted: CountedAs) -> Option<ShownLimits<'static>> {
    Some((counted, None))
}

fn full(limit: &str, rule: Option<(CountedAs, usize)>, retry_after: Duration) -> Option<ShownLimits<'_>> {
    rule.map(|(counted, rule)| (counted, Some(DeniedRule { limit, rule, retry_after })))
}

/// Makes the type of all refusals from their rows. A row is the variant with what it carries, its kind, and then, where they
/// apply and in this order:
/// - `asks`: the challenge of `WWW-Authenticate`, which a 401 must have (RFC 9110, 15.5.2);
/// - `offers challenge`: its answer to a call comes with a CAPTCHA;
/// - `wait`: when to come again, which a 429 and a 503 must say;
/// - `limits`: whose `RateLimit` fields are shown, and the rule that is full;
/// - `says`: the members of the problem details that it has besides;
/// - `page`: its page, if it is not the one of its status;
/// - `form`: what the form shows that asked for it, if it is not a page.
macro_rules! problems {
    (@or $default:expr) => { $default };
    (@or $default:expr, $given:expr) => { $given };
    ($(
        $(#[$doc:meta])*
        $variant:ident $({ $($field:ident: $type:ty),+ })? = $kind:expr
        $(, asks $asks:expr)?
        $(, offers $challenge:ident)?
        $(, wait $wait:expr)?
        $(, limits $limits:expr)?
        $(, says { $($member:ident: $value:expr),+ })?
        $(, page $page:expr)?
        $(, form $form:expr)?;
    )+) => {
        /// A refusal. What it carries is for its caller to read; causes stay in the log.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Problem {
            $($(#[$doc])* $variant $({ $($field: $type),+ })?,)+
        }

        const KIND_OF_ROWS: &[Kind] = &[$($kind),+];

        #[expect(unused_variables, reason = "a column of a row seldom takes all that the refusal carries")]
        impl Problem {
            fn row(&self) -> &'static RefusalRow {
                match self {
                    $(Self::$variant { .. } => {
                        static ROW: RefusalRow = RefusalRow {
                            kind: $kind,
                            asks: problems!(@or None $(, Some($asks))?),
                            challenge: problems!(@or false $(, is_there(stringify!($challenge)))?),
                            page: problems!(@or ErrorKind::of_status($kind.status) $(, $page)?),
                        }
                        .checked(problems!(@or false $(, is_there(stringify!($wait)))?));
                        &ROW
                    })+
                }
            }

            /// When to come again.
            fn wait(&self) -> Option<Duration> {
                match self {
                    $(Self::$variant $({ $($field),+ })? => problems!(@or None $(, Some($wait))?),)+
                }
            }

            /// Whose limits are shown with it, and the rule that is full.
            pub fn limits(&self) -> Option<ShownLimits<'_>> {
                match self {
                    $(Self::$variant $({ $($field),+ })? => problems!(@or None $(, $limits)?),)+
                }
            }

            pub fn in_form(&self) -> InForm {
                match self {
                    $(Self::$variant $({ $($field),+ })? => problems!(@or InForm::Page $(, $form)?),)+
                }
            }

            /// Its details, with the challenge that it offers.
            pub fn body<'a>(&'a self, captcha: Option<&'a CaptchaBody>) -> ProblemBody<'a> {
                let retry_after = self.retry_after();
                let bare = ProblemBody { captcha, retry_after, ..ProblemBody::of(self.kind()) };
                match self {
                    $(Self::$variant $({ $($field),+ })? => {
                        ProblemBody { $($($member: Some($value),)+)? ..bare }
                    })+
                }
            }
        }
    };
}

problems! {
    /// The name or the password is wrong. `field` is that of a current password, which somebody gives who is signed in.
    InvalidCredentials { captcha_required: bool, field: Option<Field> }
        = kind("invalid-credentials", S::UNAUTHORIZED, "Wrong username or password",
        "Check both and try again. If captcha_required is true, get a challenge from POST /api/v1/captcha first and send its answer. If it keeps failing, set a new password with POST /api/v1/password/reset, or ask an administrator."),
        asks SIGN_IN, limits shown(CountedAs::Password), says { captcha_required: *captcha_required },
        form match field {
            Some(field) => at(*field, Message::CurrentPasswordWrong),
            None => InForm::Words(Words::bad("notice.rejected-title", "notice.rejected-text")),
        };
    /// A challenge has to be solved first. `rule` is the full rule that asks for it, and says whose limits are shown.
    CaptchaRequired { limit: Cow<'static, str>, rule: Option<(CountedAs, usize)>, retry_after: Duration }
        = kind("captcha-required", S::FORBIDDEN, "CAPTCHA required",
        "Solve the challenge in captcha, or get one from POST /api/v1/captcha, and send the same call again with captcha: {id, answer}."),
        offers challenge, limits full(limit, *rule, *retry_after), form InForm::Notice(Notice::CaptchaNeeded);
    CaptchaInvalid = kind("captcha-invalid", S::FORBIDDEN, "CAPTCHA answer not accepted",
        "The answer was wrong, too late or already used. Solve a new challenge and send the same call again with its answer."),
        offers challenge, form InForm::Notice(Notice::CaptchaWrong);
    /// The first step was right; a second one is asked for.
    FactorRequired { methods: Vec<Factor>, expires_in: Duration }
        = kind("factor-required", S::FORBIDDEN, "Second step required",
        "The first step was right. Send one of methods with POST /api/v1/login/factor and the cookie that came with this answer, within expires_in seconds."),
        says { methods: methods, expires_in: expires_in.as_secs() };
    InvalidFactor { field: Field, message: Message } = kind("invalid-factor", S::UNAUTHORIZED, "Wrong code",
        "Send the code that the authenticator app shows now, which it was not used for before, a recovery code that was not used, or what a passkey of the account answers to a fresh challenge."),
        asks SIGN_IN, limits shown(CountedAs::Factor), form at(*field, message.clone());
    /// It opens no account, or its answer is not accepted.
    InvalidPasskey = kind("invalid-passkey", S::UNAUTHORIZED, "Passkey not accepted",
        "Get a challenge from POST /api/v1/passkeys/challenge, and send what the authenticator answers within five minutes, with the same cookies, once. It has to verify its user."),
        asks SIGN_IN, form at(Field::Passkey, Message::PasskeyWrong);
    /// A change of the factors, and who is signed in was not proved lately.
    StepUpRequired { methods: Vec<Factor> } = kind("step-up-required", S::FORBIDDEN, "Confirmation required",
        "A change of the second factors requires that who is signed in was proved lately. Send one of methods with POST /api/v1/confirm, or the password if methods is empty, then send the same call again."),
        says { methods: methods };
    /// The account must have a second factor, and did not set one up in time.
    FactorSetupRequired = kind("factor-setup-required", S::FORBIDDEN, "Second factor required",
        "This account must have a second factor, and the time to set one up has passed. Set one up on /account/factors, or with POST /api/v1/totp. Until then, nothing else opens but POST /api/v1/confirm and POST /api/v1/logout.");
    /// A limit is full. `rule` is its full rule, and says whose limits are shown; None if they are not.
    Throttled { limit: Cow<'static, str>, rule: Option<(CountedAs, usize)>, retry_after: Duration }
        = THROTTLED,
        wait *retry_after, limits full(limit, *rule, *retry_after), says { limit: limit },
        form InForm::Words(Words::waiting("wait.throttled"));
    /// A custom limit; told to the millisecond, as its windows may be shorter than a second.
    LimitFull { limit: String, retry_after: Duration } = THROTTLED,
        wait *retry_after, says { limit: limit, retry_after_ms: millis(*retry_after) };
    Busy { retry_after: Duration } = BUSY,
        wait *retry_after, form InForm::Words(Words::waiting("wait.busy"));
    /// Something that it needs is out, or is paused.
    Unavailable { retry_after: Duration } = UNAVAILABLE,
        wait *retry_after, form InForm::Words(Words {
            text: "wait.no-codes-instead",
            link: Some(("/login", "code-login.password")),
            ..Words::waiting("wait.no-codes")
        });
    /// Something is broken that may be mended soon: a database that restarts.
    Broken = UNAVAILABLE, wait Duration::from_secs(5);
    /// The answer to a challenge could not be looked at for now, and is still good.
    CaptchaBusy = UNAVAILABLE,
        wait CAPTCHA_BUSY, form InForm::Words(Words::waiting("wait.busy"));
    /// The gateway refused the message; nothing was counted. It is better not asked again at once.
    NotSent = Kind {
            detail: "The message was not sent: the SMS gateway did not accept it. It does not count towards the limit of the number. Send the same call again after Retry-After.",
            ..UNAVAILABLE
        },
        wait Duration::from_secs(10),
        form InForm::Words(Words::bad("notice.not-sent-title", "notice.not-sent-text"));
    Unauthenticated = kind("unauthenticated", S::UNAUTHORIZED, "Not signed in",
        "Sign in with POST /api/v1/login and send the cookie that it sets."),
        asks SIGN_IN;
    Forbidden = kind("forbidden", S::FORBIDDEN, "Not allowed",
        "This account may not do this. Ask an administrator for the role.");
    Denied = kind("denied", S::FORBIDDEN, "Requests from this network are refused",
        "The operators refuse requests from your network for a while. Try again later or from another network, or ask them."),
        page ErrorKind::Denied, form InForm::ErrorPage;
    /// A change in the console, and the password was not shown lately.
    ConfirmationRequired = kind("confirmation-required", S::FORBIDDEN, "Password confirmation required",
        "A change requires a recently entered password. Send it with POST /api/v1/admin/confirm, then send the same call again.");
    TokenMissing = INVALID_TOKEN,
        asks "Bearer realm=\"gatehouse\"";
    /// A token was sent, but it is unknown, revoked or expired.
    InvalidToken = INVALID_TOKEN,
        asks "Bearer realm=\"gatehouse\", error=\"invalid_token\"";
    /// A hook whose signature is none of its relay's, or too old.
    InvalidSignature = kind("invalid-signature", S::UNAUTHORIZED, "Signature not accepted",
        "Sign the body with a secret of this relay, as Standard Webhooks says, with a webhook-timestamp of now. Check the secret on both sides, and the clocks."),
        asks "Webhook-Signature realm=\"gatehouse\"";
    InsufficientScope = kind("insufficient-scope", S::FORBIDDEN, "Token not valid for this call",
        "Ask an administrator for a token with the scope of this call: the name of the custom limit, or the scope in /openapi.json. No token changes what concerns the account of an administrator."),
        asks "Bearer realm=\"gatehouse\", error=\"insufficient_scope\"";
    UnknownLimit = kind("unknown-limit", S::NOT_FOUND, "Unknown limit",
        "Check the name against those under [limits] in the configuration. Calls with a token use the name of a custom limit without custom. before it.");
    /// Another outcome of the attempt was told before.
    ToldOtherwise = kind("told-otherwise", S::CONFLICT, "Another outcome was told before",
        "The first outcome of an attempt stays. Ask with POST /api/v1/attempts before the next password is looked at.");
    /// The outcome of the attempt was not told in time.
    Lapsed = kind("lapsed", S::GONE, "Lapsed",
        "An attempt whose outcome was not told within settle_within seconds counts as a failure: ask with POST /api/v1/attempts again. A verification has expired or was approved before: send another with POST /api/v1/verifications. A second step came later than five minutes after the first, or was taken before: begin again with POST /api/v1/login.");
    /// The limit counts nothing of that kind.
    UnknownSubject = kind("unknown-subject", S::NOT_FOUND, "Invalid subject for this limit",
        "Send the subject percent-encoded: a username for login-account, a username@device for login-device, a mobile number for sms-phone and sms-guess, an e-mail address for mail-mailbox and mail-guess, an IP address for limits that end in -address or -network, a dialling prefix for sms-prefix, everyone for totals, and up to 256 bytes of any text for custom limits. What belongs to another program is led by the scope of its token: guard:REALM: and a name or an address, verify:NAME: and a number, verify:NAME, relay:NAME.");
    Csrf = kind("csrf", S::FORBIDDEN, "Cross-site call refused",
        "Call from a page of this site, or from a program that sends application/json and no Origin of another site."),
        page ErrorKind::ForeignForm,
        form InForm::Words(Words::warn("notice.expired-title", "notice.expired-text"));
    LoginTaken = kind("login-taken", S::CONFLICT, "Username taken",
        "Choose another username. If it is yours, sign in instead."),
        form at(Field::Login, Message::LoginTaken);
    /// Strangers cannot register; told whatever the name.
    RegistrationClosed = kind("registration-closed", S::FORBIDDEN, "Registration is closed",
        "Nobody can create an account here without an administrator. Ask one for an invitation, or sign in with POST /api/v1/login."),
        form InForm::Notice(Notice::REGISTRATION_CLOSED);
    /// A link that is unknown, used, revoked or expired.
    InvitationEnded = kind("invitation-ended", S::NOT_FOUND, "This invitation is not valid",
        "The invitation was used, revoked or has expired, or the link is not complete. Ask an administrator for another one."),
        page ErrorKind::InvitationEnded;
    InvalidPhone = kind("invalid-phone", S::UNPROCESSABLE_ENTITY, "Invalid mobile number",
        "Send a mobile number, preferably with its country code: +8613800138000.");
    CountryNotAllowed
        = kind("country-not-allowed", S::UNPROCESSABLE_ENTITY, "Codes are not sent to this country",
        "Use a number of another country, or sign in with a username and password.");
    InvalidCode = kind("invalid-code", S::UNAUTHORIZED, "Invalid code",
        "The code is wrong, expired, already used, or was sent for something else. Check it, or request another with the call that sent it."),
        asks SIGN_IN, limits shown(CountedAs::Guess), form at(Field::Code, Message::CodeWrong);
    NoAccount = kind("no-account", S::NOT_FOUND, "No account has this number or address",
        "Create one with POST /api/v1/register, or sign in with POST /api/v1/sms/login, which creates one."),
        form at(Field::Phone, Message::NoAccount);
    PhoneTaken = kind("phone-taken", S::CONFLICT, "Another account has this number",
        "Sign in to that account with POST /api/v1/sms/login, or use another number."),
        form at(Field::Phone, Message::PhoneTaken);
    InvalidEmail = kind("invalid-email", S::UNPROCESSABLE_ENTITY, "Invalid e-mail address",
        "Send one address, such as ada@example.org.");
    EmailTaken = kind("email-taken", S::CONFLICT, "Another account has this address",
        "Sign in to that account, or use another address."),
        form at(Field::Email, Message::EmailTaken);
    OnlyWayIn = kind("only-way-in", S::CONFLICT, "The number is the only way to sign in",
        "Set a password with POST /api/v1/password/reset first; then you can remove the number.");
    TooManyTokens = kind("too-many-tokens", S::CONFLICT, "Too many tokens",
        "At most 100 tokens can be valid. Revoke one with DELETE /api/v1/admin/tokens/{id}, then send the same call again.");
    NoPassword = kind("no-password", S::CONFLICT, "The account has no password",
        "Changing the number requires the current password. Set one with POST /api/v1/password/reset first.");
    /// The secret of the client is not kept here.
    NoStoredSecret = kind("no-stored-secret", S::CONFLICT, "The secret is not kept here",
        "Set secret = \"stored\" in [apps.oidc] of the application first. A secret of env: or file: is replaced where it is read from; a public client has none.");
    /// A third secret of a client.
    TwoSecrets = kind("two-secrets", S::CONFLICT, "The client has two secrets",
        "Drop the older one with DELETE /api/v1/admin/apps/{name}/secrets/{id} once the application uses the newer, then send the same call again.");
    /// An invitation sets the first password.
    HasPassword = kind("has-password", S::CONFLICT, "The account needs no link",
        "A link is for an account that nothing else opens: this one has a password, a number, an address or a second factor, or is frozen; and a token makes none for an account that somebody has signed in to. Let the owner use POST /api/v1/password/reset, or use POST /api/v1/admin/accounts/{id}/require-new-password, unlock or clear-factors first.");
    /// There were too many wrong passwords in a row. The page of the account says since when it is disabled, and what to do.
    PasswordDisabled = kind("password-disabled", S::CONFLICT, "Password disabled",
        "There were too many wrong passwords in a row, and the account has not signed in from this browser before. Set a new password with POST /api/v1/password/reset, or ask an administrator to re-enable it."),
        form InForm::Redirect("/account");
    /// An administrator's account is not opened by a number alone.
    PasswordRequired = kind("password-required", S::FORBIDDEN, "Password required",
        "An SMS code is not enough for an administrator account. Sign in with POST /api/v1/login. If the password is lost, ask another administrator, or run gatehouse admin create on the server."),
        form InForm::Words(Words {
            link: Some(("/login", "code-login.password")),
            closes: true,
            ..Words::warn("notice.password-required-title", "notice.password-required-text")
        });
    AccountDisabled = kind("account-disabled", S::FORBIDDEN, "Account disabled",
        "An administrator disabled this account. Ask an administrator to enable it."),
        form InForm::Words(Words {
            closes: true,
            ..Words::bad("notice.account-disabled-title", "notice.account-disabled-text")
        });
    /// By a code that an earlier address of it has.
    AccountFrozen = kind("account-frozen", S::FORBIDDEN, "Account frozen",
        "Somebody who had its e-mail address before has frozen it, so only what it had a week before opens it. Set a new password with POST /api/v1/password/reset and a code to its number of then. Otherwise sign in with a passkey of then, or with POST /api/v1/login: with the second factor of then, or with the password alone if it had neither. Or ask an administrator to unlock it; on the server, gatehouse admin unfreeze does."),
        form InForm::Words(Words {
            link: Some(("/password/reset", "reset.title")),
            closes: true,
            ..Words::warn("notice.account-frozen-title", "notice.account-frozen-text")
        });
    LastAdministrator = kind("last-administrator", S::CONFLICT, "No administrator would be left",
        "Make another account an administrator with POST /api/v1/admin/accounts/{id}/make-admin first. Administrators do not disable or delete their own account here.");
    PasswordChangeRequired = kind("password-change-required", S::FORBIDDEN, "Password change required",
        "The current password is a one-time password. Change it on /account. Until then, only GET /api/v1/session and POST /api/v1/logout are allowed.");
    /// An instance lives that would not ask for what was to begin.
    UpgradeUnfinished = kind("upgrade-unfinished", S::CONFLICT, "An upgrade of the servers is not finished",
        "A server of a version before second factors still runs, and would ask for none. Nothing was changed. Send the same call again once all are upgraded."),
        page ErrorKind::Upgrading;
    InvalidInput { errors: Vec<InputError> } = INVALID_INPUT,
        says { errors: Cow::Borrowed(errors.as_slice()) };
    /// One field of those that forms have, too.
    InvalidField { field: Field, message: Message } = INVALID_INPUT,
        says { errors: vec![InputError::new(field.name(), message.text(Locale::En))].into() },
        form at(*field, message.clone());
    PreconditionRequired = kind("precondition-required", S::PRECONDITION_REQUIRED, "If-Match required",
        "Send If-Match with the ETag of GET /api/v1/admin/limits, /api/v1/admin/access or /api/v1/admin/apps, so that nobody else's change is lost.");
    /// `diff` is unified: from what is saved to what the caller would have saved.
    PreconditionFailed { version: String, diff: String }
        = kind("precondition-failed", S::PRECONDITION_FAILED, "Somebody else changed the settings",
        "The field diff shows the difference between what is saved now and what you sent. Merge the two and send the call again with If-Match of version."),
        says { version: version, diff: diff };
    /// What the limits are kept in cannot be written.
    NotSaved { reason: String } = kind("not-saved", S::CONFLICT, "Not saved",
        "The backend of the live settings cannot be written. The field reason says why and what to do. The previous settings stay in force."),
        says { reason: reason };
    NotFound = kind("not-found", S::NOT_FOUND, "Not found",
        "Check the path against /openapi.json.");
    MethodNotAllowed { allow: String }
        = kind("method-not-allowed", S::METHOD_NOT_ALLOWED, "Method not allowed",
        "Use one of the methods in the Allow header.");
    PayloadTooLarge = kind("payload-too-large", S::PAYLOAD_TOO_LARGE, "Body too large",
        "Send at most 16 KiB, or 256 KiB for a set of limits.");
    RequestTimeout = kind("request-timeout", S::REQUEST_TIMEOUT, "Request timed out",
        "The whole body must arrive within ten seconds, a set of limits within thirty. Send the same call again over a faster connection.");
    UnsupportedMediaType
        = kind("unsupported-media-type", S::UNSUPPORTED_MEDIA_TYPE, "Unsupported content type",
        "Send JSON, with Content-Type: application/json.");
    MalformedJson = kind("malformed-json", S::BAD_REQUEST, "Invalid JSON",
        "Check quotes, commas and brackets, and send the whole body.");
    Internal = kind("internal", S::INTERNAL_SERVER_ERROR, "Internal error",
        "The error was logged. Try again later. If it keeps happening, tell an administrator when it happened.");
}

/// Each kind, in the order of the documentation. The API speaks English: programs read it; the page behind `type` speaks the
/// reader's language.
pub static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let mut kinds: Vec<Kind> = Vec::new();
    for kind in KIND_OF_ROWS {
        if kinds.iter().all(|known| known.name != kind.name) {
            kinds.push(*kind);
        }
    }
    kinds
});

pub fn kind_named(name: &str) -> Option<Kind> {
    KINDS.iter().copied().find(|kind| kind.name == name)
}

impl Problem {
    /// The name or the password is wrong, and the next attempt needs no challenge.
    pub const WRONG_LOGIN: Self = Self::InvalidCredentials { captcha_required: false, field: None };

    /// What a service denied; `counted` says whose limits it asked.
    pub fn denied(denied: Denied, counted: CountedAs) -> Self {
        let rule = denied.full().map(|full| (counted, full.rule));
        match denied {
            Denied::Challenged { limit, retry_after, .. } => {
                Self::CaptchaRequired { limit, rule, retry_after }
            }
            Denied::Throttled { limit, retry_after, .. } => Self::Throttled { limit, rule, retry_after },
            Denied::Busy { retry_after } => Self::Busy { retry_after },
            Denied::Unavailable { retry_after } => Self::Unavailable { retry_after },
            Denied::AddressDenied => Self::Denied,
        }
    }

    /// A limit is full, and its fields are not shown, or by whoever shows them.
    pub fn throttled(limit: impl Into<Cow<'static, str>>, retry_after: Duration) -> Self {
        Self::Throttled { limit: limit.into(), rule: None, retry_after }
    }

    /// In English, as the rest of the API.
    pub fn invalid(errors: &FieldErrors) -> Self {
        let error =
            |(field, message): (Field, &Message)| InputError::new(field.name(), message.text(Locale::En));
        Self::InvalidInput { errors: errors.iter().map(error).collect() }
    }

    pub const fn at(field: Field, message: Message) -> Self {
        Self::InvalidField { field, message }
    }

    /// One field that cannot be used, and what would be right.
    pub fn wrong(field: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::InvalidInput { errors: vec![InputError::new(field, message)] }
    }

    pub fn invalid_draft(errors: Vec<DraftError>) -> Self {
        let error =
            |DraftError { field, message, line }| InputError { line, ..InputError::new(field, message) };
        Self::InvalidInput { errors: errors.into_iter().map(error).collect() }
    }

    pub fn kind(&self) -> Kind {
        self.row().kind
    }

    pub fn page(&self) -> ErrorKind {
        self.row().page
    }

    /// Whether its answer to a call comes with a challenge.
    pub fn offers_challenge(&self) -> bool {
        self.row().challenge
    }

    /// Whether the next attempt needs a challenge, so that a form shows one.
    pub fn is_challenged(&self) -> bool {
        self.offers_challenge() || matches!(self, Self::InvalidCredentials { captcha_required: true, .. })
    }

    /// Whole seconds, where there is something to wait for.
    pub fn retry_after(&self) -> Option<u64> {
        self.wait().map(whole_seconds)
    }

    /// What a form says in the words of the row, at its status.
    pub fn notice(&self, words: Words, now: Micros) -> Notice {
        let wait = self.wait().filter(|_| words.waits).map(|wait| Wait::new(now, wait));
        Notice::Refused { status: self.kind().status, words, wait }
    }

    pub fn respond(&self) -> HttpResponse {
        self.respond_with(None)
    }

    /// The answer to a call, with the challenge that it offers.
    pub fn respond_with(&self, captcha: Option<&CaptchaBody>) -> HttpResponse {
        // Room for a challenge.
        let mut body = Vec::with_capacity(1_024);
        serde_json::to_writer(&mut body, &self.body(captcha)).expect("strings and numbers are JSON");
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response =
            HttpResponse::build(self.kind().status).insert_header((CONTENT_TYPE, kind)).body(body);
        self.head(response.headers_mut());
        response
    }

    /// The fields that its status calls for, in whatever shape it is told.
    pub fn head(&self, headers: &mut HeaderMap) {
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Self::MethodNotAllowed { allow } = self {
            headers.insert(ALLOW, HeaderValue::try_from(allow).expect("names of methods"));
        }
        if let Some(asks) = self.row().asks {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(asks));
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name)
    }
}

impl std::error::Error for Problem {}

impl ResponseError for Problem {
    fn status_code(&self) -> S {
        self.kind().status
    }

    fn error_response(&self) -> HttpResponse {
        self.respond()
    }
}

/// The pages of errors outside of a form. One says less than a problem: what its status means, and four refusals by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum ErrorKind {
    BadRequest,
    Forbidden,
    Denied,
    /// A form that was too old, or not ours.
    ForeignForm,
    /// A server runs that would not ask for what was to be set up.
    Upgrading,
    InvitationEnded,
    NotFound,
    MethodNotAllowed,
    TooLarge,
    TooSlow,
    WrongType,
    TooMany,
    Internal,
    Unavailable,
}

impl ErrorKind {
    /// Its status, its title and its text.
    #[rustfmt::skip]
    const fn row(self) -> (S, &'static str, &'static str) {
        match self {
            Self::BadRequest => (S::BAD_REQUEST, "page-error.bad-request-title", "page-error.bad-request-text"),
            Self::Forbidden => (S::FORBIDDEN, "page-error.forbidden-title", "page-error.forbidden-text"),
            Self::Denied => (S::FORBIDDEN, "page-error.denied-title", "page-error.denied-text"),
            Self::ForeignForm => (S::FORBIDDEN, "page-error.foreign-title", "page-error.foreign-text"),
            Self::Upgrading => (S::CONFLICT, "problem.upgrade-unfinished.title", "problem.upgrade-unfinished.about"),
            Self::InvitationEnded => (S::NOT_FOUND, "problem.invitation-ended.title", "problem.invitation-ended.about"),
            Self::NotFound => (S::NOT_FOUND, "page-error.not-found-title", "page-error.not-found-text"),
            Self::MethodNotAllowed => (S::METHOD_NOT_ALLOWED, "page-error.method-title", "page-error.method-text"),
            Self::TooLarge => (S::PAYLOAD_TOO_LARGE, "page-error.large-title", "page-error.large-text"),
            Self::TooSlow => (S::REQUEST_TIMEOUT, "page-error.slow-title", "page-error.slow-text"),
            Self::WrongType => (S::UNSUPPORTED_MEDIA_TYPE, "page-error.type-title", "page-error.type-text"),
            Self::TooMany => (S::TOO_MANY_REQUESTS, "page-error.many-title", "page-error.many-text"),
            Self::Internal => (S::INTERNAL_SERVER_ERROR, "page-error.internal-title", "page-error.internal-text"),
            Self::Unavailable => (S::SERVICE_UNAVAILABLE, "page-error.unavailable-title", "page-error.unavailable-text"),
        }
    }

    pub const fn status(self) -> S {
        self.row().0
    }

    pub const fn title(self) -> &'static str {
        self.row().1
    }

    pub const fn text(self) -> &'static str {
        self.row().2
    }

    /// The page of a refusal whose row names none.
    const fn of_status(status: S) -> Self {
        match status {
            S::UNAUTHORIZED | S::FORBIDDEN => Self::Forbidden,
            S::NOT_FOUND => Self::NotFound,
            S::METHOD_NOT_ALLOWED => Self::MethodNotAllowed,
            S::REQUEST_TIMEOUT => Self::TooSlow,
            S::PAYLOAD_TOO_LARGE => Self::TooLarge,
            S::UNSUPPORTED_MEDIA_TYPE => Self::WrongType,
            S::TOO_MANY_REQUESTS => Self::TooMany,
            S::INTERNAL_SERVER_ERROR => Self::Internal,
            S::SERVICE_UNAVAILABLE => Self::Unavailable,
            _ => Self::BadRequest,
        }
    }
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct InputError {
    /// Its name; in limits, its dotted path.
    #[schema(value_type = String)]
    pub field: Cow<'static, str>,
    #[schema(value_type = String)]
    pub message: Cow<'static, str>,
    /// The line, from 1, if the field was sent as TOML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl InputError {
    pub fn new(field: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), message: message.into(), line: None }
    }
}

#[derive(Serialize, Default, ToSchema)]
pub struct ProblemBody<'a> {
    pub r#type: String,
    pub title: &'a str,
    pub status: u16,
    /// What to do next.
    pub detail: &'a str,
    /// Whether the next attempt needs a solved challenge. The answer is the same for a name that no account has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captcha_required: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captcha: Option<&'a CaptchaBody>,
    /// What can be proved now, the strongest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<String>)]
    pub methods: Option<&'a [Factor]>,
    /// Seconds until the first step has to be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// The limit that is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<&'a str>,
    /// Whole seconds, rounded up, as in Retry-After.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// The same in milliseconds, rounded up; of custom limits only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<InputError>)]
    pub errors: Option<Cow<'a, [InputError]>>,
    /// The version that is saved now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<&'a str>,
    /// Unified, from what is saved now to what was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<&'a str>,
    /// Why, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
}

impl ProblemBody<'_> {
    pub fn of(Kind { name, status, title, detail }: Kind) -> Self {
        Self {
            r#type: ["/problems/", name].concat(),
            title,
            status: status.as_u16(),
            detail,
            ..Self::default()
        }
    }
}

pub type WebResult = Result<HttpResponse, WebError>;

#[derive(Debug)]
pub enum WebError {
    /// For example the form again, a redirect, or a refusal with its fields.
    Answer(Box<HttpResponse>),
    /// JSON for API calls; `extract::refuse_with_pages` renders a page for everyone else.
    Problem(Problem),
}

impl From<HttpResponse> for WebError {
    fn from(answer: HttpResponse) -> Self {
        Self::Answer(Box::new(answer))
    }
}

impl<P: Into<Problem>> From<P> for WebError {
    fn from(problem: P) -> Self {
        Self::Problem(problem.into())
    }
}

impl From<WebError> for Error {
    fn from(error: WebError) -> Self {
        match error {
            WebError::Answer(answer) => InternalError::from_response("answered", *answer).into(),
            WebError::Problem(problem) => problem.into(),
        }
    }
}

impl From<MailboxError> for Problem {
    fn from(_: MailboxError) -> Self {
        Self::InvalidEmail
    }
}

impl From<PhoneError> for Problem {
    fn from(error: PhoneError) -> Self {
        match error {
            PhoneError::Missing | PhoneError::NotANumber | PhoneError::NotMobile => Self::InvalidPhone,
            PhoneError::CountryNotAllowed => Self::CountryNotAllowed,
        }
    }
}

/// `?` on an error of a service answers [`Problem::Broken`].
macro_rules! broken {
    ($($error:ty),+) => {
        $(impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                log_failure(&error);
                Self::Broken
            }
        })+
    };
}

broken!(DbError, LookupError);

/// An outage is logged once, when it begins. Its later errors are not logged.
pub fn log_failure(error: &impl Display) {
    if crate::db::OUTAGE.is_out() {
        tracing::debug!(%error, "a request could not be answered");
    } else {
        tracing::error!(%error, "a request could not be answered");
    }
}

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;
