//! What every problem says: its name, its status, its title, and what to do next.

use actix_web::http::StatusCode as S;

/// What is the same for every problem of a name. The API speaks English: programs read it; the page
/// behind `type` speaks the reader's language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    pub status: S,
    pub title: &'static str,
    /// What to do next.
    pub detail: &'static str,
}

const fn kind(name: &'static str, status: S, title: &'static str, detail: &'static str) -> Kind {
    Kind { name, status, title, detail }
}

pub const INVALID_CREDENTIALS: Kind = kind(
    "invalid-credentials",
    S::UNAUTHORIZED,
    "Name or password is wrong",
    "Check both and try again. Where captcha_required is true, get a challenge from POST /api/v1/captcha first and send its answer along. If it keeps failing, set a new password with POST /api/v1/password/reset, or ask an administrator.",
);
pub const CAPTCHA_REQUIRED: Kind = kind(
    "captcha-required",
    S::FORBIDDEN,
    "A CAPTCHA is needed",
    "Solve the challenge in captcha, or get one from POST /api/v1/captcha, and send the same call again with captcha: {id, answer}.",
);
pub const CAPTCHA_INVALID: Kind = kind(
    "captcha-invalid",
    S::FORBIDDEN,
    "The CAPTCHA answer was not accepted",
    "It was wrong, too late or used before. Solve a new challenge and send the same call again with its answer.",
);
pub const THROTTLED: Kind = kind(
    "throttled",
    S::TOO_MANY_REQUESTS,
    "Too many attempts",
    "Wait for retry_after seconds, then try again. Trying sooner does not make the wait longer.",
);
pub const BUSY: Kind = kind(
    "busy",
    S::SERVICE_UNAVAILABLE,
    "Too much to do at the moment",
    "Nothing was counted against you. Send the same call again after Retry-After.",
);
pub const UNAVAILABLE: Kind = kind(
    "unavailable",
    S::SERVICE_UNAVAILABLE,
    "Not available at the moment",
    "Something that this call needs does not answer. Send the same call again after Retry-After.",
);
pub const UNAUTHENTICATED: Kind = kind(
    "unauthenticated",
    S::UNAUTHORIZED,
    "Not signed in",
    "Sign in with POST /api/v1/login and send the cookie that it sets.",
);
pub const FORBIDDEN: Kind = kind(
    "forbidden",
    S::FORBIDDEN,
    "Not allowed",
    "This account may not do this. Ask an administrator for the role that may.",
);
pub const CONFIRMATION_REQUIRED: Kind = kind(
    "confirmation-required",
    S::FORBIDDEN,
    "The password is to be shown again",
    "A change takes a password that was shown lately. Send it with POST /api/v1/admin/confirm, then send the same call again.",
);
pub const INVALID_TOKEN: Kind = kind(
    "invalid-token",
    S::UNAUTHORIZED,
    "No token that is good",
    "Send Authorization: Bearer with a token from /admin/tokens. One that was revoked or has expired is good for nothing any more: ask for another.",
);
pub const INSUFFICIENT_SCOPE: Kind = kind(
    "insufficient-scope",
    S::FORBIDDEN,
    "The token is not for this limit",
    "Ask an administrator for a token that names this limit.",
);
pub const UNKNOWN_LIMIT: Kind = kind(
    "unknown-limit",
    S::NOT_FOUND,
    "There is no limit of this name",
    "Check the name against those under [limits] in the configuration; here a custom limit goes without custom.",
);
pub const UNKNOWN_SUBJECT: Kind = kind(
    "unknown-subject",
    S::NOT_FOUND,
    "This limit counts no such subject",
    "Send what the limit counts, percent-encoded: a name for login-account, a name@device for login-device, a mobile number for sms-phone and sms-guess, an address for limits that end in -address or -network, a dialling prefix for sms-prefix, everyone for totals, and up to 256 bytes of any text for custom limits.",
);
pub const CSRF: Kind = kind(
    "csrf",
    S::FORBIDDEN,
    "The call does not come from this site",
    "Call from a page of this site, or from a program that sends application/json and no Origin of another site.",
);
pub const LOGIN_TAKEN: Kind = kind(
    "login-taken",
    S::CONFLICT,
    "This name is taken",
    "Choose another name. If it is yours, sign in instead.",
);
pub const INVALID_PHONE: Kind = kind(
    "invalid-phone",
    S::UNPROCESSABLE_ENTITY,
    "This is no mobile number",
    "Send a mobile number, best with its country code: +8613800138000.",
);
pub const COUNTRY_NOT_ALLOWED: Kind = kind(
    "country-not-allowed",
    S::UNPROCESSABLE_ENTITY,
    "No codes are sent to this country",
    "Use a number of another country, or sign in with a name and a password.",
);
pub const INVALID_CODE: Kind = kind(
    "invalid-code",
    S::UNAUTHORIZED,
    "The code is not right",
    "It was wrong, too old, used before, or sent for something else. Check it, or ask for another with POST /api/v1/sms/codes.",
);
pub const NO_ACCOUNT: Kind = kind(
    "no-account",
    S::NOT_FOUND,
    "No account has this number",
    "Make one with POST /api/v1/register, or sign in with POST /api/v1/sms/login, which makes one.",
);
pub const PHONE_TAKEN: Kind = kind(
    "phone-taken",
    S::CONFLICT,
    "Another account has this number",
    "Sign in to that account with POST /api/v1/sms/login, or use another number.",
);
pub const NOT_SENT: Kind = kind(
    "unavailable",
    S::SERVICE_UNAVAILABLE,
    "Not available at the moment",
    "The message was not sent: the SMS gateway did not take it. Nothing was counted. Send the same call again after Retry-After.",
);
pub const ONLY_WAY_IN: Kind = kind(
    "only-way-in",
    S::CONFLICT,
    "The number is the only way into this account",
    "Set a password with POST /api/v1/password/reset first; then the number can be removed.",
);
pub const TOO_MANY_TOKENS: Kind = kind(
    "too-many-tokens",
    S::CONFLICT,
    "There are 100 tokens already",
    "Revoke one that is not needed any more with DELETE /api/v1/admin/tokens/{id}, then send the same call again.",
);
pub const NO_PASSWORD: Kind = kind(
    "no-password",
    S::CONFLICT,
    "The account has no password yet",
    "Changing the number takes the current password. Set one with POST /api/v1/password/reset first.",
);
pub const PASSWORD_DISABLED: Kind = kind(
    "password-disabled",
    S::CONFLICT,
    "The password is disabled",
    "Too many wrong ones were tried in a row, and this browser is none that the account was signed in to before. Set a new one with POST /api/v1/password/reset, or ask an administrator to enable it again.",
);
pub const PASSWORD_REQUIRED: Kind = kind(
    "password-required",
    S::FORBIDDEN,
    "This account takes its password",
    "An administrator's account is not opened by a code. Sign in with POST /api/v1/login. Where the password is lost, another administrator helps, or gatehouse admin create on the server.",
);
pub const PASSWORD_CHANGE_REQUIRED: Kind = kind(
    "password-change-required",
    S::FORBIDDEN,
    "The password has to be changed first",
    "It was given out once. Change it on /account; until then only GET /api/v1/session and POST /api/v1/logout answer.",
);
pub const INVALID_INPUT: Kind = kind(
    "invalid-input",
    S::UNPROCESSABLE_ENTITY,
    "Some of the input cannot be used",
    "Correct the fields listed in errors and send the call again.",
);
pub const PRECONDITION_REQUIRED: Kind = kind(
    "precondition-required",
    S::PRECONDITION_REQUIRED,
    "Say which version is being replaced",
    "Send If-Match with the ETag of GET /api/v1/admin/limits, so that nobody else's change is lost.",
);
pub const PRECONDITION_FAILED: Kind = kind(
    "precondition-failed",
    S::PRECONDITION_FAILED,
    "Somebody else has changed it meanwhile",
    "Look at diff, which leads from what is saved now to what you sent. Put both together and send the call again with If-Match of version.",
);
pub const NOT_SAVED: Kind = kind(
    "not-saved",
    S::CONFLICT,
    "The limits cannot be saved",
    "What they are kept in cannot be written, and reason says why and what to do. What was in force still is.",
);
pub const NOT_FOUND: Kind = kind(
    "not-found",
    S::NOT_FOUND,
    "There is nothing at this address",
    "Check the path against /openapi.json.",
);
pub const METHOD_NOT_ALLOWED: Kind = kind(
    "method-not-allowed",
    S::METHOD_NOT_ALLOWED,
    "This address does not take this method",
    "Use one of the methods in the Allow header.",
);
pub const PAYLOAD_TOO_LARGE: Kind = kind(
    "payload-too-large",
    S::PAYLOAD_TOO_LARGE,
    "The body is too large",
    "Send at most 16 KiB; limits may take 256 KiB.",
);
pub const REQUEST_TIMEOUT: Kind = kind(
    "request-timeout",
    S::REQUEST_TIMEOUT,
    "The body took too long",
    "It has to arrive whole within ten seconds, limits within thirty. Send the same call again over a better connection.",
);
pub const UNSUPPORTED_MEDIA_TYPE: Kind = kind(
    "unsupported-media-type",
    S::UNSUPPORTED_MEDIA_TYPE,
    "The body is of another type than this call takes",
    "Send JSON, with Content-Type: application/json.",
);
pub const MALFORMED_JSON: Kind = kind(
    "malformed-json",
    S::BAD_REQUEST,
    "The body is not JSON",
    "Check quotes, commas and brackets, and that the body arrives whole.",
);
pub const INTERNAL: Kind = kind(
    "internal",
    S::INTERNAL_SERVER_ERROR,
    "Something broke on our side",
    "It was recorded. Try again later; if it stays, tell whoever runs this site when it happened.",
);
