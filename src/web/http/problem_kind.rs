//! What every problem says: its name, its status, its title, and what to do next.

use actix_web::http::StatusCode as S;

pub use gatehouse_limiter::middleware::{BUSY, ProblemKind as Kind, THROTTLED, UNAVAILABLE};

/// Each kind, and the list of them in the order of the documentation. The API speaks English: programs read it; the
/// page behind `type` speaks the reader's language. Without a text: the limiter's own.
macro_rules! kinds {
    ($($constant:ident $(= $name:literal, $status:ident, $title:literal, $detail:literal)?;)+) => {
        $($(pub const $constant: Kind =
            Kind { name: $name, status: S::$status, title: $title, detail: $detail };)?)+

        pub const KINDS: &[Kind] = &[$($constant),+];
    };
}

kinds! {
    INVALID_CREDENTIALS = "invalid-credentials", UNAUTHORIZED, "Wrong username or password",
        "Check both and try again. If captcha_required is true, get a challenge from POST /api/v1/captcha first and send its answer. If it keeps failing, set a new password with POST /api/v1/password/reset, or ask an administrator.";
    CAPTCHA_REQUIRED = "captcha-required", FORBIDDEN, "CAPTCHA required",
        "Solve the challenge in captcha, or get one from POST /api/v1/captcha, and send the same call again with captcha: {id, answer}.";
    CAPTCHA_INVALID = "captcha-invalid", FORBIDDEN, "CAPTCHA answer not accepted",
        "The answer was wrong, too late or already used. Solve a new challenge and send the same call again with its answer.";
    FACTOR_REQUIRED = "factor-required", FORBIDDEN, "Second step required",
        "The first step was right. Send one of methods with POST /api/v1/login/factor and the cookie that came with this answer, within expires_in seconds.";
    INVALID_FACTOR = "invalid-factor", UNAUTHORIZED, "Wrong code",
        "Send the code that the authenticator app shows now, which it was not used for before, a recovery code that was not used, or what a passkey of the account answers to a fresh challenge.";
    INVALID_PASSKEY = "invalid-passkey", UNAUTHORIZED, "Passkey not accepted",
        "Get a challenge from POST /api/v1/passkeys/challenge, and send what the authenticator answers within five minutes, with the same cookies, once. It has to verify its user.";
    STEP_UP_REQUIRED = "step-up-required", FORBIDDEN, "Confirmation required",
        "A change of the second factors requires that who is signed in was proved lately. Send one of methods with POST /api/v1/confirm, or the password if methods is empty, then send the same call again.";
    FACTOR_SETUP_REQUIRED = "factor-setup-required", FORBIDDEN, "Second factor required",
        "This account must have a second factor, and the time to set one up has passed. Set one up on /account/factors, or with POST /api/v1/totp. Until then, nothing else opens but POST /api/v1/confirm and POST /api/v1/logout.";
    THROTTLED;
    BUSY;
    UNAVAILABLE;
    UNAUTHENTICATED = "unauthenticated", UNAUTHORIZED, "Not signed in",
        "Sign in with POST /api/v1/login and send the cookie that it sets.";
    FORBIDDEN = "forbidden", FORBIDDEN, "Not allowed",
        "This account may not do this. Ask an administrator for the role.";
    DENIED = "denied", FORBIDDEN, "Requests from this network are refused",
        "The operators refuse requests from your network for a while. Try again later or from another network, or ask them.";
    CONFIRMATION_REQUIRED = "confirmation-required", FORBIDDEN, "Password confirmation required",
        "A change requires a recently entered password. Send it with POST /api/v1/admin/confirm, then send the same call again.";
    INVALID_TOKEN = "invalid-token", UNAUTHORIZED, "Invalid token",
        "Send Authorization: Bearer with a valid token. If the token is expired or revoked, ask an administrator for a new one (/admin/tokens).";
    INVALID_SIGNATURE = "invalid-signature", UNAUTHORIZED, "Signature not accepted",
        "Sign the body with a secret of this relay, as Standard Webhooks says, with a webhook-timestamp of now. Check the secret on both sides, and the clocks.";
    INSUFFICIENT_SCOPE = "insufficient-scope", FORBIDDEN, "Token not valid for this call",
        "Ask an administrator for a token with the scope of this call: the name of the custom limit, or the scope in /openapi.json. No token changes what concerns the account of an administrator.";
    UNKNOWN_LIMIT = "unknown-limit", NOT_FOUND, "Unknown limit",
        "Check the name against those under [limits] in the configuration. Calls with a token use the name of a custom limit without custom. before it.";
    TOLD_OTHERWISE = "told-otherwise", CONFLICT, "Another outcome was told before",
        "The first outcome of an attempt stays. Ask with POST /api/v1/attempts before the next password is looked at.";
    LAPSED = "lapsed", GONE, "Lapsed",
        "An attempt whose outcome was not told within settle_within seconds counts as a failure: ask with POST /api/v1/attempts again. A verification has expired or was approved before: send another with POST /api/v1/verifications. A second step came later than five minutes after the first, or was taken before: begin again with POST /api/v1/login.";
    UNKNOWN_SUBJECT = "unknown-subject", NOT_FOUND, "Invalid subject for this limit",
        "Send the subject percent-encoded: a username for login-account, a username@device for login-device, a mobile number for sms-phone and sms-guess, an IP address for limits that end in -address or -network, a dialling prefix for sms-prefix, everyone for totals, and up to 256 bytes of any text for custom limits. What belongs to another program is led by the scope of its token: guard:REALM: and a name or an address, verify:NAME: and a number, verify:NAME, relay:NAME.";
    CSRF = "csrf", FORBIDDEN, "Cross-site call refused",
        "Call from a page of this site, or from a program that sends application/json and no Origin of another site.";
    LOGIN_TAKEN = "login-taken", CONFLICT, "Username taken",
        "Choose another username. If it is yours, sign in instead.";
    INVALID_PHONE = "invalid-phone", UNPROCESSABLE_ENTITY, "Invalid mobile number",
        "Send a mobile number, preferably with its country code: +8613800138000.";
    COUNTRY_NOT_ALLOWED = "country-not-allowed", UNPROCESSABLE_ENTITY, "Codes are not sent to this country",
        "Use a number of another country, or sign in with a username and password.";
    INVALID_CODE = "invalid-code", UNAUTHORIZED, "Invalid code",
        "The code is wrong, expired, already used, or was sent for something else. Check it, or request another with the call that sent it.";
    NO_ACCOUNT = "no-account", NOT_FOUND, "No account has this number",
        "Create one with POST /api/v1/register, or sign in with POST /api/v1/sms/login, which creates one.";
    PHONE_TAKEN = "phone-taken", CONFLICT, "Another account has this number",
        "Sign in to that account with POST /api/v1/sms/login, or use another number.";
    ONLY_WAY_IN = "only-way-in", CONFLICT, "The number is the only way to sign in",
        "Set a password with POST /api/v1/password/reset first; then you can remove the number.";
    TOO_MANY_TOKENS = "too-many-tokens", CONFLICT, "Too many tokens",
        "At most 100 tokens can be valid. Revoke one with DELETE /api/v1/admin/tokens/{id}, then send the same call again.";
    NO_PASSWORD = "no-password", CONFLICT, "The account has no password",
        "Changing the number requires the current password. Set one with POST /api/v1/password/reset first.";
    PASSWORD_DISABLED = "password-disabled", CONFLICT, "Password disabled",
        "There were too many wrong passwords in a row, and the account has not signed in from this browser before. Set a new password with POST /api/v1/password/reset, or ask an administrator to re-enable it.";
    PASSWORD_REQUIRED = "password-required", FORBIDDEN, "Password required",
        "An SMS code is not enough for an administrator account. Sign in with POST /api/v1/login. If the password is lost, ask another administrator, or run gatehouse admin create on the server.";
    ACCOUNT_DISABLED = "account-disabled", FORBIDDEN, "Account disabled",
        "An administrator disabled this account. Ask an administrator to enable it.";
    LAST_ADMINISTRATOR = "last-administrator", CONFLICT, "No administrator would be left",
        "Make another account an administrator with POST /api/v1/admin/accounts/{id}/make-admin first. Administrators do not disable or delete their own account here.";
    PASSWORD_CHANGE_REQUIRED = "password-change-required", FORBIDDEN, "Password change required",
        "The current password is a one-time password. Change it on /account. Until then, only GET /api/v1/session and POST /api/v1/logout are allowed.";
    UPGRADE_UNFINISHED = "upgrade-unfinished", CONFLICT, "An upgrade of the servers is not finished",
        "A server of a version before second factors still runs, and would ask for none. Nothing was changed. Send the same call again once all are upgraded.";
    INVALID_INPUT = "invalid-input", UNPROCESSABLE_ENTITY, "Invalid input",
        "Correct the fields listed in errors and send the call again.";
    PRECONDITION_REQUIRED = "precondition-required", PRECONDITION_REQUIRED, "If-Match required",
        "Send If-Match with the ETag of GET /api/v1/admin/limits, /api/v1/admin/access or /api/v1/admin/apps, so that nobody else's change is lost.";
    PRECONDITION_FAILED = "precondition-failed", PRECONDITION_FAILED, "Somebody else changed the settings",
        "The field diff shows the difference between what is saved now and what you sent. Merge the two and send the call again with If-Match of version.";
    NOT_SAVED = "not-saved", CONFLICT, "Not saved",
        "The backend of the live settings cannot be written. The field reason says why and what to do. The previous settings stay in force.";
    NOT_FOUND = "not-found", NOT_FOUND, "Not found",
        "Check the path against /openapi.json.";
    METHOD_NOT_ALLOWED = "method-not-allowed", METHOD_NOT_ALLOWED, "Method not allowed",
        "Use one of the methods in the Allow header.";
    PAYLOAD_TOO_LARGE = "payload-too-large", PAYLOAD_TOO_LARGE, "Body too large",
        "Send at most 16 KiB, or 256 KiB for a set of limits.";
    REQUEST_TIMEOUT = "request-timeout", REQUEST_TIMEOUT, "Request timed out",
        "The whole body must arrive within ten seconds, a set of limits within thirty. Send the same call again over a faster connection.";
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE, "Unsupported content type",
        "Send JSON, with Content-Type: application/json.";
    MALFORMED_JSON = "malformed-json", BAD_REQUEST, "Invalid JSON",
        "Check quotes, commas and brackets, and send the whole body.";
    INTERNAL = "internal", INTERNAL_SERVER_ERROR, "Internal error",
        "The error was logged. Try again later. If it keeps happening, tell an administrator when it happened.";
}

/// An `unavailable` of its own: the gateway refused the message.
pub const NOT_SENT: Kind = Kind {
    detail: "The message was not sent: the SMS gateway did not accept it. It does not count towards the limit of the number. Send the same call again after Retry-After.",
    ..UNAVAILABLE
};

pub fn named(name: &str) -> Option<Kind> {
    KINDS.iter().copied().find(|kind| kind.name == name)
}
