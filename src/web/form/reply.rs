//! What every form goes through before it is acted on, and the ways in which it comes back.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;

use crate::captcha::{CaptchaForm, Challenge, ImageRefusal};
use crate::config::LiveSettings;
use crate::login::{Account, Password, SignInAttempt, SignInOutcome, SignedInOwner};
use crate::web::captcha::challenge::{Answered, Asker};
use crate::web::captcha::view::{CaptchaBlock, ChallengeView, LaterView};
use crate::web::form::fields::Guarded;
use crate::web::form::notice::Notice;
use crate::web::kit::error_page::broken;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::services::Services;
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::Wait;
use crate::web::session::client;

/// One form that was sent. `show` makes its page with what is to be said.
pub struct Reply<'a> {
    pub visit: &'a Visit,
    pub services: &'a Services,
    pub live: &'a Arc<LiveSettings>,
    pub form: CaptchaForm,
    pub show: &'a dyn Fn(Notice, CaptchaBlock) -> HttpResponse,
}

impl Reply<'_> {
    /// The input, and whether a challenge was solved with it; or the page that goes back instead.
    pub async fn admit<T>(
        &self,
        guarded: &Guarded,
        parse: impl FnOnce(&mut FieldErrors) -> Option<T>,
    ) -> Result<(T, bool), HttpResponse> {
        let parsed = self.read(guarded, parse).await?;
        Ok((parsed, self.redeem(guarded).await?))
    }

    /// The input alone.
    pub async fn read<T>(
        &self,
        guarded: &Guarded,
        parse: impl FnOnce(&mut FieldErrors) -> Option<T>,
    ) -> Result<T, HttpResponse> {
        if !self.visit.admits_form(&guarded.csrf_token) {
            return Err(self.plain(Notice::Expired));
        }
        if guarded.captcha_refresh.is_some() {
            return Err(self.challenged(Notice::Refreshed).await);
        }
        let mut errors = FieldErrors::default();
        let parsed = parse(&mut errors);
        unanswered(guarded, &mut errors);
        let Some(parsed) = parsed.filter(|_| errors.is_empty()) else {
            // Nothing was tried, and the answer, if any, was not looked at: a new image goes with it.
            let challenge = !guarded.captcha_id.is_empty();
            let notice = Notice::Invalid(errors);
            return Err(if challenge { self.challenged(notice).await } else { self.plain(notice) });
        };
        Ok(parsed)
    }

    /// Whether a challenge was solved with it.
    pub async fn redeem(&self, guarded: &Guarded) -> Result<bool, HttpResponse> {
        let asker = asker(self.visit, self.form);
        let Guarded { captcha_id, captcha_answer, .. } = guarded;
        match asker.redeem(self.services, self.live, captcha_id, captcha_answer.expose()).await {
            Answered::Nothing => Ok(false),
            Answered::Solved => Ok(true),
            Answered::Wrong => Err(self.challenged(Notice::CaptchaWrong).await),
        }
    }

    /// The account with its password verified, tried as at sign-in so that the same windows count it; or
    /// the page that goes back. `field` is where the password was typed.
    pub async fn verify(
        &self,
        account: &Account,
        password: Password,
        field: Field,
        solved: bool,
    ) -> Result<Box<SignedInOwner>, HttpResponse> {
        let Reply { visit, services, live, .. } = *self;
        match services.sign_in.is_open_to(live, account, &client(visit)).await {
            Ok(true) => {}
            // Their own page says since when, and what to do.
            Ok(false) => return Err(visit.see_other("/account", None)),
            Err(error) => return Err(broken(visit, &error)),
        }
        let attempt = SignInAttempt {
            login: account.login.clone(),
            password,
            origin: visit.client.origin(),
            client: client(visit),
            solved,
        };
        let wrong = Message::CurrentPasswordWrong;
        Err(match services.sign_in.attempt(live, attempt).await {
            Ok(SignInOutcome::SignedIn(owner)) => return Ok(owner),
            Ok(SignInOutcome::Rejected { captcha_required: false }) => self.invalid(field, wrong),
            Ok(SignInOutcome::Rejected { captcha_required: true }) => {
                self.challenged(Notice::Invalid(FieldErrors::one(field, wrong))).await
            }
            Ok(SignInOutcome::Challenged { .. }) => self.challenged(Notice::CaptchaNeeded).await,
            Ok(SignInOutcome::Throttled { retry_after, .. }) => self.wait(retry_after),
            Ok(SignInOutcome::Busy { retry_after }) => self.busy(retry_after),
            Err(error) => broken(visit, &error),
        })
    }

    pub fn plain(&self, notice: Notice) -> HttpResponse {
        (self.show)(notice, CaptchaBlock::Absent)
    }

    pub fn invalid(&self, field: Field, message: Message) -> HttpResponse {
        self.plain(Notice::Invalid(FieldErrors::one(field, message)))
    }

    pub fn wait(&self, retry_after: Duration) -> HttpResponse {
        self.plain(Notice::Throttled(self.until(retry_after)))
    }

    pub fn busy(&self, retry_after: Duration) -> HttpResponse {
        self.plain(Notice::Busy(self.until(retry_after)))
    }

    pub fn no_codes(&self, retry_after: Duration) -> HttpResponse {
        self.plain(Notice::NoCodes(self.until(retry_after)))
    }

    pub fn until(&self, retry_after: Duration) -> Wait {
        Wait::new(self.visit.now(), retry_after)
    }

    pub async fn challenged(&self, notice: Notice) -> HttpResponse {
        (self.show)(notice, fresh_challenge(self.visit, self.services, self.live, self.form).await)
    }
}

/// An answer was asked for, and none given.
pub fn unanswered(guarded: &Guarded, errors: &mut FieldErrors) {
    if !guarded.captcha_id.is_empty() && guarded.captcha_answer.expose().trim().is_empty() {
        errors.add(Field::CaptchaAnswer, Message::CaptchaMissing);
    }
}

pub fn asker(visit: &Visit, form: CaptchaForm) -> Asker<'_> {
    Asker { form, client: visit.client, browser: Some(&visit.browser) }
}

pub async fn fresh_challenge(
    visit: &Visit,
    services: &Services,
    live: &LiveSettings,
    form: CaptchaForm,
) -> CaptchaBlock {
    match asker(visit, form).issue(services, live).await {
        Ok(Challenge { id, expires_in }) => CaptchaBlock::Challenge(ChallengeView { id, expires_in }),
        Err(ImageRefusal { retry_after, .. }) => {
            CaptchaBlock::Later(LaterView { wait: Wait::new(visit.now(), retry_after), form })
        }
    }
}
