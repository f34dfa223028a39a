//! What a form and a call of the API ask for alike: who asks, and the steps that the actions share. `FormReply::told` tells a
//! refusal by a form, `ApiRequest::told` by the details of the problem.

use std::sync::Arc;

use crate::accounts::{Account, KnownDevices, Username};
use crate::captcha::{CaptchaAnswer, RedeemResult};
use crate::clock::Micros;
use crate::codes::Recipient;
use crate::config::LiveSettings;
use crate::login::{
    CodeEntry, CodeRefusal, Password, RequestOrigin, SignInAttempt, SignInOutcome, SignedInOwner,
};
use crate::message::MessageCode;
use crate::web::http::challenge::ChallengeContext;
use crate::web::http::csrf::Browser;
use crate::web::http::extract::SecretField;
use crate::web::http::message::{Field, Message};
use crate::web::http::page::Requester;
use crate::web::http::problem::{CountedAs, Problem};
use crate::web::http::services::Services;

pub struct Actor<'a> {
    pub services: &'a Services,
    pub live: &'a Arc<LiveSettings>,
    pub sender: &'a Requester,
    pub origin: RequestOrigin,
    asker: ChallengeContext<'a>,
    known: KnownDevices,
    answer: Option<CaptchaAnswer<'a>>,
}

/// Why an action did not happen. It is no answer yet: `ApiRequest::told` and `FormReply::told` make one of it, with the
/// challenge and the limits of its row.
pub struct ActionRefusal(pub Problem);

impl<P: Into<Problem>> From<P> for ActionRefusal {
    fn from(problem: P) -> Self {
        Self(problem.into())
    }
}

impl From<CodeRefusal> for Problem {
    fn from(refusal: CodeRefusal) -> Self {
        match refusal {
            // A factor is missing only where a password is replaced, which answers it.
            CodeRefusal::WrongCode | CodeRefusal::FactorMissing(..) => Self::InvalidCode,
            CodeRefusal::Denied(denied) => Self::denied(denied, CountedAs::Guess),
            CodeRefusal::Unfit(unfit) => Self::at(Field::NewPassword, unfit.into()),
            CodeRefusal::NoAccount => Self::NoAccount,
            CodeRefusal::Closed => Self::RegistrationClosed,
            CodeRefusal::PasswordRequired => Self::PasswordRequired,
            CodeRefusal::AccountDisabled => Self::AccountDisabled,
            CodeRefusal::AccountFrozen => Self::AccountFrozen,
            CodeRefusal::PhoneTaken => Self::PhoneTaken,
            CodeRefusal::EmailTaken => Self::EmailTaken,
            CodeRefusal::Db(error) => error.into(),
        }
    }
}

/// The current password, as it was typed.
pub fn parse_current(typed: &SecretField) -> Result<Password, Message> {
    Password::attempt(typed.expose()).map_err(Message::of_current_password)
}

/// Reads the password as a call sends it, or the problem at its field.
pub fn read_current(field: Field, typed: &SecretField) -> Result<Password, Problem> {
    parse_current(typed).map_err(|message| Problem::at(field, message))
}

impl<'a> Actor<'a> {
    pub fn new(
        sender: &'a Requester,
        services: &'a Services,
        live: &'a Arc<LiveSettings>,
        asker: ChallengeContext<'a>,
        answer: Option<CaptchaAnswer<'a>>,
    ) -> Self {
        let (origin, known) = (sender.client.origin(), sender.known_devices());
        Self { services, live, origin, sender, asker, known, answer }
    }

    pub const fn known(&self) -> &KnownDevices {
        &self.known
    }

    pub fn now(&self) -> Micros {
        self.sender.now()
    }

    /// Whether its network is refused, and this browser is unknown at the account.
    pub fn is_refused(&self, account: &Account) -> bool {
        self.sender.is_denied(self.live) && self.known.at(account.id).is_none()
    }

    pub fn browser(&self) -> Option<&[u8; 16]> {
        self.asker.browser.map(Browser::bytes)
    }

    /// Whether a challenge was solved with the request.
    pub async fn redeem(&self) -> Result<bool, ActionRefusal> {
        let Some(answer) = self.answer else { return Ok(false) };
        match self.asker.redeem(self.services, self.live, answer).await {
            Some(RedeemResult::Solved) => Ok(true),
            Some(RedeemResult::Busy) => Err(Problem::CaptchaBusy.into()),
            None | Some(_) => Err(Problem::CaptchaInvalid.into()),
        }
    }

    /// Tries a password. The limits of the sign-in count it, whatever it is asked for; `field` is that of a current one.
    pub async fn try_password(
        &self,
        (login, password): (Username, Password),
        field: Option<Field>,
        solved: bool,
    ) -> Result<Box<SignedInOwner>, ActionRefusal> {
        let (origin, devices) = (self.origin.clone(), self.known.clone());
        let denied = self.sender.is_denied(self.live);
        let browser = self.browser().copied();
        let attempt = SignInAttempt { login, password, origin, devices, browser, denied, solved };
        match self.services.sign_in.attempt(self.live, attempt).await? {
            SignInOutcome::SignedIn(owner) => Ok(owner),
            SignInOutcome::Rejected { captcha_required } => {
                Err(Problem::InvalidCredentials { captcha_required, field }.into())
            }
            SignInOutcome::Denied(denied) => Err(Problem::denied(denied, CountedAs::Password).into()),
        }
    }

    /// The account with its password verified, as at sign-in, and whether a challenge was solved. `field` is the field
    /// of the password.
    pub async fn verify(
        &self,
        account: &Account,
        password: Password,
        field: Field,
    ) -> Result<(Box<SignedInOwner>, bool), ActionRefusal> {
        let solved = self.redeem().await?;
        if !self.services.sign_in.is_open_to(self.live, account, &self.known).await? {
            return Err(Problem::PasswordDisabled.into());
        }
        let owner = self.try_password((account.login.clone(), password), Some(field), solved).await?;
        Ok((owner, solved))
    }

    pub fn entry<'e>(&'e self, to: &'e Recipient, code: &'e MessageCode, solved: bool) -> CodeEntry<'e> {
        let browser = self.browser().map(|browser| &browser[..]);
        CodeEntry { to, code, origin: &self.origin, browser, known: &self.known, solved }
    }
}
