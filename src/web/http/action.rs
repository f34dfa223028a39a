//! What a form and a call of the API ask for alike: who asks, the steps that the actions share, and why one is refused.
//! `FormReply::refused` turns a refusal into a page, `ApiRequest::refused` into a problem.

use std::sync::Arc;

use crate::accounts::{Account, KnownDevices, SignInClient, Username};
use crate::captcha::CaptchaAnswer;
use crate::config::LiveSettings;
use crate::denied::Denied;
use crate::login::{
    CodeEntry, Password, PasswordError, RequestOrigin, SignInAttempt, SignInOutcome, SignedInOwner,
};
use crate::sms::{Phone, SmsCode};
use crate::web::http::challenge::{CaptchaOutcome, ChallengeContext};
use crate::web::http::message::Field;
use crate::web::http::problem::Problem;
use crate::web::http::services::Services;

/// Who asks for an action, and what it is judged by.
pub struct Actor<'a> {
    pub services: &'a Services,
    pub live: &'a Arc<LiveSettings>,
    pub asker: ChallengeContext<'a>,
    pub origin: RequestOrigin,
    /// What identifies the browser to accounts that have signed in from it.
    pub known: KnownDevices,
    pub user_agent: &'a str,
    /// Its network is refused: only known devices get in.
    pub denied: bool,
}

/// Why an action was not done.
pub enum ActionRefusal {
    CaptchaWrong,
    /// The answer could not be looked at for now, and is still good.
    CaptchaBusy,
    /// By the limits of what was asked for.
    Denied(Denied, CountedAs),
    WrongLogin {
        captcha_required: bool,
    },
    /// The current password of who is signed in, at its field.
    WrongCurrent {
        field: Field,
        captcha_required: bool,
    },
    PasswordDisabled,
    WrongCode,
    LoginTaken,
    PhoneTaken,
    NoAccount,
    PasswordRequired,
    AccountDisabled,
    /// The gateway did not accept the message.
    NotSent,
    /// A new password.
    Unfit(Field, PasswordError),
    /// For no reason of the action's own.
    Problem(Problem),
}

/// Whose limits decide, so that an answer can show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedAs {
    Password,
    Guess,
    Message,
    /// Those of a registration are not shown.
    Account,
}

impl<P: Into<Problem>> From<P> for ActionRefusal {
    fn from(problem: P) -> Self {
        Self::Problem(problem.into())
    }
}

impl Actor<'_> {
    pub fn browser(&self) -> Option<&[u8]> {
        self.asker.browser.map(|browser| &browser.bytes()[..])
    }

    /// What the account's owner sees of the client, and what identifies its browser to the account.
    fn shown(&self) -> SignInClient {
        SignInClient::new(self.asker.client.ip(), self.user_agent).known_as(self.known.clone())
    }

    /// Whether a challenge was solved with the request. None: it came without an answer.
    pub async fn redeem(&self, answer: Option<CaptchaAnswer<'_>>) -> Result<bool, ActionRefusal> {
        let Some(answer) = answer else { return Ok(false) };
        match self.asker.redeem(self.services, self.live, answer).await {
            CaptchaOutcome::Solved => Ok(true),
            CaptchaOutcome::Nothing | CaptchaOutcome::Wrong => Err(ActionRefusal::CaptchaWrong),
            CaptchaOutcome::Busy => Err(ActionRefusal::CaptchaBusy),
        }
    }

    /// Tries a password. The limits of the sign-in count it, whatever it is asked for.
    pub async fn try_password(
        &self,
        login: Username,
        password: Password,
        solved: bool,
    ) -> Result<Box<SignedInOwner>, ActionRefusal> {
        let (origin, client) = (self.origin.clone(), self.shown());
        let attempt = SignInAttempt { login, password, origin, client, denied: self.denied, solved };
        match self.services.sign_in.attempt(self.live, attempt).await? {
            SignInOutcome::SignedIn(owner) => Ok(owner),
            SignInOutcome::Rejected { captcha_required } => {
                Err(ActionRefusal::WrongLogin { captcha_required })
            }
            SignInOutcome::Denied(denied) => Err(ActionRefusal::Denied(denied, CountedAs::Password)),
        }
    }

    /// The account with its password verified, as at sign-in. `field` is the field of the password.
    pub async fn verify(
        &self,
        account: &Account,
        password: Password,
        field: Field,
        solved: bool,
    ) -> Result<Box<SignedInOwner>, ActionRefusal> {
        if !self.services.sign_in.is_open_to(self.live, account, &self.shown()).await? {
            return Err(ActionRefusal::PasswordDisabled);
        }
        let tried = self.try_password(account.login.clone(), password, solved).await;
        tried.map_err(|refusal| match refusal {
            ActionRefusal::WrongLogin { captcha_required } => {
                ActionRefusal::WrongCurrent { field, captcha_required }
            }
            other => other,
        })
    }

    /// A guess at a code.
    pub fn entry<'e>(&'e self, phone: &'e Phone, code: &'e SmsCode, solved: bool) -> CodeEntry<'e> {
        CodeEntry { phone, code, origin: &self.origin, browser: self.browser(), known: &self.known, solved }
    }
}
