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
    "Wrong username or password",
    "Check both and try again. If captcha_required is true, get a challenge from POST /api/v1/captcha first and send its answer. If it keeps failing, set a new password with POST /api/v1/password/reset, or ask an administrator.",
);
pub const CAPTCHA_REQUIRED: Kind = kind(
    "captcha-required",
    S::FORBIDDEN,
    "CAPTCHA required",
    "Solve the challenge in captcha, or get one from POST /api/v1/captcha, and send the same call again with captcha: {id, answer}.",
);
pub const CAPTCHA_INVALID: Kind = kind(
    "captcha-invalid",
    S::FORBIDDEN,
    "CAPTCHA answer not accepted",
    "The answer was wrong, too late or already used. Solve a new challenge and send the same call again with its answer.",
);
pub const THROTTLED: Kind = kind(
    "throttled",
    S::TOO_MANY_REQUESTS,
    "Too many attempts",
    "Wait retry_after seconds, then try again. Trying earlier does not make the wait longer.",
);
pub const BUSY: Kind = kind(
    "busy",
    S::SERVICE_UNAVAILABLE,
    "Server busy",
    "This attempt was not counted. Send the same call again after Retry-After.",
);
pub const UNAVAILABLE: Kind = kind(
    "unavailable",
    S::SERVICE_UNAVAILABLE,
    "Temporarily unavailable",
    "A service that this call needs does not respond. Send the same call again after Retry-After.",
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
    "This account may not do this. Ask an administrator for the role.",
);
pub const CONFIRMATION_REQUIRED: Kind = kind(
    "confirmation-required",
    S::FORBIDDEN,
    "Password confirmation required",
    "A change requires a recently entered password. Send it with POST /api/v1/admin/confirm, then send the same call again.",
);
pub const INVALID_TOKEN: Kind = kind(
    "invalid-token",
    S::UNAUTHORIZED,
    "Invalid token",
    "Send Authorization: Bearer with a valid token. If the token is expired or revoked, ask an administrator for a new one (/admin/tokens).",
);
pub const INSUFFICIENT_SCOPE: Kind = kind(
    "insufficient-scope",
    S::FORBIDDEN,
    "Token not valid for this limit",
    "Ask an administrator for a token that names this limit.",
);
pub const UNKNOWN_LIMIT: Kind = kind(
    "unknown-limit",
    S::NOT_FOUND,
    "Unknown limit",
    "Check the name against those under [limits] in the configuration. Calls with a token use the name of a custom limit without custom. before it.",
);
pub const UNKNOWN_SUBJECT: Kind = kind(
    "unknown-subject",
    S::NOT_FOUND,
    "Invalid subject for this limit",
    "Send the subject percent-encoded: a username for login-account, a username@device for login-device, a mobile number for sms-phone and sms-guess, an IP address for limits that end in -address or -network, a dialling prefix for sms-prefix, everyone for totals, and up to 256 bytes of any text for custom limits.",
);
pub const CSRF: Kind = kind(
    "csrf",
    S::FORBIDDEN,
    "Cross-site call refused",
    "Call from a page of this site, or from a program that sends application/json and no Origin of another site.",
);
pub const LOGIN_TAKEN: Kind = kind(
    "login-taken",
    S::CONFLICT,
    "Username taken",
    "Choose another username. If it is yours, sign in instead.",
);
pub const INVALID_PHONE: Kind = kind(
    "invalid-phone",
    S::UNPROCESSABLE_ENTITY,
    "Invalid mobile number",
    "Send a mobile number, preferably with its country code: +8613800138000.",
);
pub const COUNTRY_NOT_ALLOWED: Kind = kind(
    "country-not-allowed",
    S::UNPROCESSABLE_ENTITY,
    "Codes are not sent to this country",
    "Use a number of another country, or sign in with a username and password.",
);
pub const INVALID_CODE: Kind = kind(
    "invalid-code",
    S::UNAUTHORIZED,
    "Invalid code",
    "The code is wrong, expired, already used, or was sent for something else. Check it, or request another with POST /api/v1/sms/codes.",
);
pub const NO_ACCOUNT: Kind = kind(
    "no-account",
    S::NOT_FOUND,
    "No account has this number",
    "Create one with POST /api/v1/register, or sign in with POST /api/v1/sms/login, which creates one.",
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
    "Temporarily unavailable",
    "The message was not sent: the SMS gateway did not accept it. It does not count towards the limit of the number. Send the same call again after Retry-After.",
);
pub const ONLY_WAY_IN: Kind = kind(
    "only-way-in",
    S::CONFLICT,
    "The number is the only way to sign in",
    "Set a password with POST /api/v1/password/reset first; then you can remove the number.",
);
pub const TOO_MANY_TOKENS: Kind = kind(
    "too-many-tokens",
    S::CONFLICT,
    "Too many tokens",
    "At most 100 tokens can be valid. Revoke one with DELETE /api/v1/admin/tokens/{id}, then send the same call again.",
);
pub const NO_PASSWORD: Kind = kind(
    "no-password",
    S::CONFLICT,
    "The account has no password",
    "Changing the number requires the current password. Set one with POST /api/v1/password/reset first.",
);
pub const PASSWORD_DISABLED: Kind = kind(
    "password-disabled",
    S::CONFLICT,
    "Password disabled",
    "There were too many wrong passwords in a row, and the account has not signed in from this browser before. Set a new password with POST /api/v1/password/reset, or ask an administrator to re-enable it.",
);
pub const PASSWORD_REQUIRED: Kind = kind(
    "password-required",
    S::FORBIDDEN,
    "Password required",
    "An SMS code is not enough for an administrator account. Sign in with POST /api/v1/login. If the password is lost, ask another administrator, or run gatehouse admin create on the server.",
);
pub const PASSWORD_CHANGE_REQUIRED: Kind = kind(
    "password-change-required",
    S::FORBIDDEN,
    "Password change required",
    "The current password is a one-time password. Change it on /account. Until then, only GET /api/v1/session and POST /api/v1/logout are allowed.",
);
pub const INVALID_INPUT: Kind = kind(
    "invalid-input",
    S::UNPROCESSABLE_ENTITY,
    "Invalid input",
    "Correct the fields listed in errors and send the call again.",
);
pub const PRECONDITION_REQUIRED: Kind = kind(
    "precondition-required",
    S::PRECONDITION_REQUIRED,
    "If-Match required",
    "Send If-Match with the ETag of GET /api/v1/admin/limits, so that nobody else's change is lost.",
);
pub const PRECONDITION_FAILED: Kind = kind(
    "precondition-failed",
    S::PRECONDITION_FAILED,
    "Somebody else changed the limits",
    "The field diff shows the difference between what is saved now and what you sent. Merge the two and send the call again with If-Match of version.",
);
pub const NOT_SAVED: Kind = kind(
    "not-saved",
    S::CONFLICT,
    "Limits not saved",
    "The backend of the limits cannot be written. The field reason says why and what to do. The previous limits stay in force.",
);
pub const NOT_FOUND: Kind =
    kind("not-found", S::NOT_FOUND, "Not found", "Check the path against /openapi.json.");
pub const METHOD_NOT_ALLOWED: Kind = kind(
    "method-not-allowed",
    S::METHOD_NOT_ALLOWED,
    "Method not allowed",
    "Use one of the methods in the Allow header.",
);
pub const PAYLOAD_TOO_LARGE: Kind = kind(
    "payload-too-large",
    S::PAYLOAD_TOO_LARGE,
    "Body too large",
    "Send at most 16 KiB, or 256 KiB for a set of limits.",
);
pub const REQUEST_TIMEOUT: Kind = kind(
    "request-timeout",
    S::REQUEST_TIMEOUT,
    "Request timed out",
    "The whole body must arrive within ten seconds, a set of limits within thirty. Send the same call again over a faster connection.",
);
pub const UNSUPPORTED_MEDIA_TYPE: Kind = kind(
    "unsupported-media-type",
    S::UNSUPPORTED_MEDIA_TYPE,
    "Unsupported content type",
    "Send JSON, with Content-Type: application/json.",
);
pub const MALFORMED_JSON: Kind = kind(
    "malformed-json",
    S::BAD_REQUEST,
    "Invalid JSON",
    "Check quotes, commas and brackets, and send the whole body.",
);
pub const INTERNAL: Kind = kind(
    "internal",
    S::INTERNAL_SERVER_ERROR,
    "Internal error",
    "The error was logged. Try again later. If it keeps happening, tell an administrator when it happened.",
);
