//! The forms as submitted. A missing field reads as empty, so that the error appears at the field and not on
//! a separate page.

use serde::Deserialize;

use crate::captcha::CaptchaAnswer;
use crate::config::LiveSettings;
use crate::gate::ReturnUrl;
use crate::login::is_state_hash;
use crate::web::kit::extract::SecretField;
use crate::web::kit::next::Next;
use crate::web::kit::visit::Visit;

/// A submitted form, field by field.
pub type FormPairs = Vec<(String, String)>;

pub fn value<'a>(pairs: &'a [(String, String)], name: &str) -> &'a str {
    pairs.iter().find(|(sent, _)| sent == name).map_or("", |(_, value)| value)
}

/// The fields of every form that may be challenged.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GuardedFields {
    pub captcha_id: String,
    pub captcha_answer: SecretField,
    /// The solution of the proof of work, instead of the letters.
    pub captcha_altcha: SecretField,
    /// Present if another image is requested.
    pub captcha_refresh: Option<String>,
    pub csrf_token: String,
}

impl GuardedFields {
    pub fn captcha(&self) -> CaptchaAnswer<'_> {
        match self.captcha_altcha.expose() {
            "" => CaptchaAnswer::Letters { id: &self.captcha_id, typed: self.captcha_answer.expose() },
            solution => CaptchaAnswer::Proof(solution),
        }
    }

    /// The form showed a challenge.
    pub fn was_challenged(&self) -> bool {
        !self.captcha_id.is_empty() || !self.captcha_altcha.expose().is_empty()
    }

    /// The form showed a challenge, and it was left alone.
    pub fn left_unanswered(&self) -> bool {
        let answered = |field: &SecretField| !field.expose().trim().is_empty();
        self.was_challenged() && !answered(&self.captcha_answer) && !answered(&self.captcha_altcha)
    }
}

/// `POST /logout`, and other forms that need only the CSRF token
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TokenForm {
    pub csrf_token: String,
}

/// Where to go after signing in: in the query of `GET /login`, `/login/code`, `/register` and `/account`, and in their
/// forms.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NextFields {
    pub next: String,
    /// An address at an application.
    pub rd: String,
    /// The hash of the browser's state there.
    pub state: String,
}

impl NextFields {
    /// None for what leads neither to one of our pages nor to an application.
    pub fn target(&self, visit: &Visit, live: &LiveSettings) -> Option<Next> {
        if self.rd.is_empty() {
            return Next::parse(&self.next);
        }
        let to = ReturnUrl::parse(&self.rd, &live.apps, !visit.cookies().secure())?;
        // A state that we cannot have issued is dropped.
        let state = if is_state_hash(&self.state) { self.state.clone() } else { String::new() };
        Some(Next::to_app(to, state))
    }
}
