//! The steps before every form's action, and the ways in which a form is shown again.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;

use crate::captcha::{CaptchaForm, ImageRefusal};
use crate::config::LiveSettings;
use crate::denied::Denied;
use crate::login::{Account, Password, SignInAttempt, SignInOutcome, SignedInOwner, Username};
use crate::web::captcha::{CaptchaBlock, ChallengeView, HelpContact, LaterView};
use crate::web::form::fields::GuardedFields;
use crate::web::form::notice::Notice;
use crate::web::kit::challenge::{Answered, Asker, BUSY};
use crate::web::kit::error_page::problem_page;
use crate::web::kit::locale::Wait;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::{Problem, WebError};
use crate::web::kit::services::Services;
use crate::web::kit::visit::Visit;

/// One submitted form. `show` renders its page with a notice.
pub struct FormReply<'a> {
    pub visit: &'a Visit,
    pub services: &'a Services,
    pub live: &'a Arc<LiveSettings>,
    pub form: CaptchaForm,
    pub show: &'a dyn Fn(Notice, CaptchaBlock) -> HttpResponse,
}

/// The result of a password typed into a form.
pub enum TriedPassword {
    Right(Box<SignedInOwner>),
    /// The next try needs a challenge.
    Wrong {
        captcha_required: bool,
    },
}

impl FormReply<'_> {
    /// The input, and whether its challenge was solved; or the page to show instead.
    pub async fn admit<T>(
        &self,
        guarded: &GuardedFields,
        parse: impl FnOnce(&mut FieldErrors) -> Option<T>,
    ) -> Result<(T, bool), WebError> {
        let parsed = self.read(guarded, parse).await?;
        Ok((parsed, self.redeem(guarded).await?))
    }

    /// The parsed input alone.
    pub async fn read<T>(
        &self,
        guarded: &GuardedFields,
        parse: impl FnOnce(&mut FieldErrors) -> Option<T>,
    ) -> Result<T, WebError> {
        if !self.visit.admits_form(&guarded.csrf_token) {
            return Err(self.plain(Notice::Expired).into());
        }
        if guarded.captcha_refresh.is_some() {
            return Err(self.challenged(Notice::Refreshed).await.into());
        }
        let mut errors = FieldErrors::default();
        let parsed = parse(&mut errors);
        if guarded.left_unanswered() {
            errors.add(Field::CaptchaAnswer, Message::CaptchaMissing);
        }
        let Some(parsed) = parsed.filter(|_| errors.is_empty()) else {
            // Nothing was tried, and any answer was not checked, so the page shows a new image.
            let (challenge, notice) = (guarded.was_challenged(), Notice::Invalid(errors));
            return Err(self.again(notice, challenge).await.into());
        };
        Ok(parsed)
    }

    /// Whether the challenge of this form was solved.
    pub async fn redeem(&self, guarded: &GuardedFields) -> Result<bool, WebError> {
        match self.asker().redeem(self.services, self.live, guarded.captcha()).await {
            Answered::Nothing => Ok(false),
            Answered::Solved => Ok(true),
            Answered::Wrong => Err(self.challenged(Notice::CaptchaWrong).await.into()),
            Answered::Busy => Err(self.denied(&Denied::Busy { retry_after: BUSY }).await.into()),
        }
    }

    /// Tries a password. The limits of the sign-in count it, whichever form it comes from.
    pub async fn try_password(
        &self,
        login: Username,
        password: Password,
        solved: bool,
    ) -> Result<TriedPassword, WebError> {
        let Self { visit, services, live, .. } = *self;
        let (origin, client) = (visit.client.origin(), visit.sign_in_client());
        let denied = visit.is_denied(live);
        let attempt = SignInAttempt { login, password, origin, client, denied, solved };
        match services.sign_in.attempt(live, attempt).await? {
            SignInOutcome::SignedIn(owner) => Ok(TriedPassword::Right(owner)),
            SignInOutcome::Rejected { captcha_required } => Ok(TriedPassword::Wrong { captcha_required }),
            SignInOutcome::Denied(denied) => Err(self.denied(&denied).await.into()),
        }
    }

    /// The account with its password verified. `field` is the field of the password.
    pub async fn verify(
        &self,
        account: &Account,
        password: Password,
        field: Field,
        solved: bool,
    ) -> Result<Box<SignedInOwner>, WebError> {
        let Self { visit, services, live, .. } = *self;
        if !services.sign_in.is_open_to(live, account, &visit.sign_in_client()).await? {
            // The account page says since when the password is disabled, and what to do.
            return Err(visit.see_other("/account", None).into());
        }
        match self.try_password(account.login.clone(), password, solved).await? {
            TriedPassword::Right(owner) => Ok(owner),
            TriedPassword::Wrong { captcha_required } => {
                let wrong = FieldErrors::one(field, Message::CurrentPasswordWrong);
                Err(self.again(Notice::Invalid(wrong), captcha_required).await.into())
            }
        }
    }

    pub fn plain(&self, notice: Notice) -> HttpResponse {
        (self.show)(notice, CaptchaBlock::Absent)
    }

    pub fn invalid(&self, field: Field, message: Message) -> HttpResponse {
        self.plain(Notice::Invalid(FieldErrors::one(field, message)))
    }

    pub async fn denied(&self, denied: &Denied) -> HttpResponse {
        match denied {
            Denied::Challenged { .. } => self.challenged(Notice::CaptchaNeeded).await,
            Denied::Throttled { retry_after, .. } => self.plain(Notice::Throttled(self.until(*retry_after))),
            Denied::Busy { retry_after } => self.plain(Notice::Busy(self.until(*retry_after))),
            Denied::Unavailable { retry_after } => self.plain(Notice::NoCodes(self.until(*retry_after))),
            Denied::AddressDenied => problem_page(self.visit, &Problem::Denied),
        }
    }

    pub fn until(&self, retry_after: Duration) -> Wait {
        Wait::new(self.visit.now(), retry_after)
    }

    /// Shows the form again, with or without a challenge.
    pub async fn again(&self, notice: Notice, challenge: bool) -> HttpResponse {
        if challenge { self.challenged(notice).await } else { self.plain(notice) }
    }

    pub async fn challenged(&self, notice: Notice) -> HttpResponse {
        let help = HelpContact::of(&self.live.captcha.help);
        let captcha = match self.asker().issue(self.services, self.live).await {
            Ok(challenge) => CaptchaBlock::Challenge(ChallengeView::new(challenge, self.visit.now(), help)),
            Err(ImageRefusal { retry_after, .. }) => {
                CaptchaBlock::Later(LaterView { wait: self.until(retry_after), form: self.form, help })
            }
        };
        (self.show)(notice, captcha)
    }

    fn asker(&self) -> Asker<'_> {
        Asker { form: self.form, client: self.visit.client, browser: Some(&self.visit.browser), realm: None }
    }
}
