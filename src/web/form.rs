//! What all forms share: their fields, the page around them, the steps before every form's action, how it
//! shows a refusal, and that a form which is sent twice acts once.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::{FromRequest, HttpRequest, HttpResponse};
use askama::Template;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::value::{Error, MapDeserializer};
use zeroize::Zeroize;

use crate::accounts::{
    FormAnswer, FormKey, FormStart, FormToken, HalfToken, RepeatedForm, SessionToken, is_state_hash,
};
use crate::captcha::{CaptchaAnswer, CaptchaForm};
use crate::config::LiveSettings;
use crate::gate::ReturnUrl;
use crate::login::SHORTEST_PASSWORD;
use crate::request_id;
use crate::web::captcha::{CaptchaBlock, ChallengeView, HelpContact, LaterView};
use crate::web::http::error_page::problem_page;
use crate::web::http::next::AppTarget;
use crate::web::http::page::with_wait;
use crate::web::http::problem::InForm;
use crate::web::http::row::{Checks, HandlerArgument};
use crate::web::http::{
    ActionRefusal, Actor, ChallengeContext, Field, FieldErrors, Flash, Layout, Message, Next, PageRequest,
    Problem, SecretField, Services, ServicesData, UnreadBody, Wait, WebContext, WebError, WebResult,
};

pub use crate::web::http::message::Notice;

/// What every page with a form has around its own fields.
#[derive(Clone)]
pub struct FormPage {
    pub layout: Layout,
    pub next: Option<Next>,
    pub notice: Notice,
    pub errors: FieldErrors,
    pub captcha: CaptchaBlock,
}

impl FormPage {
    /// The form at `path` as it is first shown. `user` is the signed-in user.
    pub fn new(visit: &PageRequest, path: &str, user: Option<&str>, next: Option<Next>) -> Self {
        let layout = visit.layout(Next::after(path, next.as_ref()), user);
        let (notice, errors, captcha) = (Notice::None, FieldErrors::default(), CaptchaBlock::Absent);
        Self { layout, next, notice, errors, captcha }
    }

    /// The form as it is shown again, and why.
    pub fn again(mut self, notice: Notice, captcha: CaptchaBlock) -> Self {
        self.layout.mistaken = notice.is_mistake();
        (self.errors, self.notice, self.captcha) = (notice.errors(), notice, captcha);
        self
    }

    pub fn respond(&self, visit: &PageRequest, page: &impl Template) -> HttpResponse {
        let mut response = visit.page(self.notice.status(), page);
        if let Some(next) = &self.next {
            next.open_forms(&mut response);
        }
        with_wait(response, self.notice.wait())
    }

    /// The focus: the field with an error, otherwise the first field to type again. A page with a wait sets no focus, so
    /// that its message is read first.
    pub fn focus(&self, first: &'static str) -> &'static str {
        match (&self.notice, self.errors.first()) {
            (notice, _) if notice.wait().is_some() => "",
            (Notice::CaptchaWrong, _) => "password",
            (_, Some(field)) => field.name(),
            _ => first,
        }
    }

    pub fn password_hint(&self) -> String {
        self.layout.with("register.password-hint", &SHORTEST_PASSWORD.to_string()).into_owned()
    }
}

/// A page that is a form and what it has beside: its template names the fields of the form without it.
macro_rules! form_page {
    ($page:ident) => {
        impl std::ops::Deref for $page {
            type Target = FormPage;

            fn deref(&self) -> &FormPage {
                &self.form
            }
        }

        impl $page {
            /// The page as it is shown again, and why.
            pub fn again(self, notice: Notice, captcha: CaptchaBlock) -> Self {
                Self { form: self.form.again(notice, captcha), ..self }
            }

            pub fn respond(&self, visit: &PageRequest) -> HttpResponse {
                self.form.respond(visit, self)
            }
        }
    };
}

pub(super) use form_page;

/// One submitted form. `show` renders its page with a notice.
pub struct FormReply<'a> {
    pub visit: &'a PageRequest,
    pub services: &'a Services,
    pub live: &'a Arc<LiveSettings>,
    pub form: CaptchaForm,
    pub show: &'a dyn Fn(Notice, CaptchaBlock) -> HttpResponse,
}

impl FormReply<'_> {
    /// The parsed input, or the page to show instead.
    pub async fn read<T>(
        &self,
        guarded: &GuardedFields,
        parse: impl FnOnce(&mut FieldErrors) -> Option<T>,
    ) -> Result<T, WebError> {
        if !self.visit.admits_form(&guarded.csrf_token) {
            return Err(self.refused(Problem::Csrf).await);
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

    pub fn actor<'b>(&'b self, guarded: &'b GuardedFields) -> Actor<'b> {
        Actor::new(self.visit, self.services, self.live, self.asker(), guarded.answer())
    }

    fn asker(&self) -> ChallengeContext<'_> {
        ChallengeContext {
            form: self.form,
            client: self.visit.client,
            browser: Some(&self.visit.browser),
            realm: None,
        }
    }

    /// What came of an action; its refusal as a page.
    pub async fn told<T>(&self, outcome: Result<T, impl Into<ActionRefusal>>) -> Result<T, WebError> {
        match outcome {
            Ok(done) => Ok(done),
            Err(refusal) => Err(self.refused(refusal.into().0).await),
        }
    }

    /// A refusal as its row says: most show the form again, with a challenge if one helps.
    pub async fn refused(&self, problem: Problem) -> WebError {
        let notice = match problem.in_form() {
            InForm::Page => return problem.into(),
            InForm::ErrorPage => return problem_page(self.visit, &problem).into(),
            InForm::Redirect(path) => return self.visit.see_other(path, None).into(),
            InForm::Notice(notice) => notice,
            InForm::Words(words) => problem.notice(words, self.visit.now()),
        };
        self.again(notice, problem.is_challenged()).await.into()
    }

    pub fn plain(&self, notice: Notice) -> HttpResponse {
        (self.show)(notice, CaptchaBlock::Absent)
    }

    pub fn invalid(&self, field: Field, message: Message) -> HttpResponse {
        self.plain(Notice::at(field, message))
    }

    pub fn until(&self, retry_after: Duration) -> Wait {
        Wait::new(self.visit.now(), retry_after)
    }

    async fn again(&self, notice: Notice, challenge: bool) -> HttpResponse {
        if challenge { self.challenged(notice).await } else { self.plain(notice) }
    }

    pub async fn challenged(&self, notice: Notice) -> HttpResponse {
        let help = HelpContact::of(&self.live.captcha.help);
        let captcha = match self.asker().issue(self.services, self.live).await {
            Ok(challenge) => CaptchaBlock::Challenge(ChallengeView::new(challenge, self.visit.now(), help)),
            Err(later) => {
                let wait = self.until(later.refusal.retry_after);
                CaptchaBlock::Later(LaterView { wait, form: self.form, help })
            }
        };
        (self.show)(notice, captcha)
    }
}

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
    pub captcha_altcha: SecretField,
    pub captcha_refresh: Option<String>,
    pub csrf_token: String,
}

impl GuardedFields {
    pub fn answer(&self) -> Option<CaptchaAnswer<'_>> {
        let answer = match self.captcha_altcha.expose() {
            "" => CaptchaAnswer::Letters { id: &self.captcha_id, typed: self.captcha_answer.expose() },
            solution => CaptchaAnswer::Proof(solution),
        };
        (!answer.is_empty()).then_some(answer)
    }

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
pub struct NoFields {}

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
    /// Where it leads; None for what leads neither to one of our pages nor to an application.
    pub fn target(&self, visit: &PageRequest, live: &LiveSettings) -> Option<Next> {
        if self.rd.is_empty() {
            return Next::parse(&self.next);
        }
        let to = ReturnUrl::parse(&self.rd, &live.apps, !visit.cookies().secure)?;
        // A state that we cannot have issued is dropped.
        let state = if is_state_hash(&self.state) { self.state.clone() } else { String::new() };
        let name = to.app(&live.apps)?.name.clone();
        Some(Next::to_app(AppTarget { to, state, name }))
    }
}

/// Where the first form may have been answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormReach {
    /// Forms that this process has answered. For what a flood sends, so that a refusal does not ask the database.
    ThisProcess,
    AnyInstance,
}

/// A form that anyone may send, and that acts once. As a handler's argument.
pub struct SentForm(UnreadBody<FormPairs>);

impl HandlerArgument for SentForm {
    const CHECKS: &'static [Checks] = &[Checks::Form];
}

impl FromRequest for SentForm {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        ready(Ok(Self(UnreadBody::of(request, payload))))
    }
}

impl SentForm {
    /// Reads the form and acts on it, unless the same form succeeded within the last minute. A success is a redirect, or
    /// something created, which only the first answer shows. `act` reads it by `FormReply::read`, which refuses a form
    /// that is not ours.
    pub async fn once<T, A>(
        self,
        visit: PageRequest,
        services: ServicesData,
        reach: FormReach,
        act: impl FnOnce(PageRequest, T, ServicesData) -> A + 'static,
    ) -> WebResult
    where
        T: DeserializeOwned + 'static,
        A: Future<Output = WebResult> + 'static,
    {
        once(visit, services, self.0.read_form().await?, reach, act).await
    }
}

/// A form of ours whose fields are read; any other is answered with a page that says so. As a handler's argument.
pub struct OwnForm<T>(pub T);

impl<T> HandlerArgument for OwnForm<T> {
    const CHECKS: &'static [Checks] = &[Checks::Form];
}

impl<T: DeserializeOwned> FromRequest for OwnForm<T> {
    type Error = actix_web::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Self::Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, body) = (request.clone(), UnreadBody::<FormPairs>::of(request, payload));
        Box::pin(async move {
            let visit = PageRequest::of(&request, WebContext::of(&request)?.clone());
            let mut pairs = body.read_form().await?;
            if !visit.admits_form(value(&pairs, "csrf_token")) {
                return Err(Problem::Csrf.into());
            }
            let form = parse(&pairs);
            pairs.iter_mut().for_each(|(_, value)| value.zeroize());
            Ok(Self(form?))
        })
    }
}

/// Reads the fields of a form.
pub fn parse<T: DeserializeOwned>(pairs: &[(String, String)]) -> Result<T, Problem> {
    let fields = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let form = T::deserialize(MapDeserializer::<_, Error>::new(fields));
    form.map_err(|_| Problem::InvalidInput { errors: Vec::new() })
}

/// Acts on a form that was read, as `SentForm::once` does.
pub async fn once<T, A>(
    visit: PageRequest,
    services: ServicesData,
    mut pairs: FormPairs,
    reach: FormReach,
    act: impl FnOnce(PageRequest, T, ServicesData) -> A + 'static,
) -> WebResult
where
    T: DeserializeOwned + 'static,
    A: Future<Output = WebResult> + 'static,
{
    let form = parse(&pairs);
    let ours = visit.admits_form(value(&pairs, "csrf_token"));
    let key = ours.then(|| recognise(&visit, &services, &pairs));
    // Half of a sign-in is nothing, and a flood that hangs up gets nothing hashed; but a CAPTCHA is used up by it.
    let challenged = ["captcha_id", "captcha_altcha"].iter().any(|name| !value(&pairs, name).is_empty());
    let may_outlast = reach == FormReach::AnyInstance || challenged;
    pairs.iter_mut().for_each(|(_, value)| value.zeroize());
    let form = form?;
    let permit = may_outlast.then(|| services.forms.outlast()).flatten();
    // Boxed, because it goes one of two ways from here, and each would have room for all of it.
    let answered = Box::pin(request_id::keep(answer(visit, services, form, key, reach, act)));
    let Some(permit) = permit else { return answered.await };
    // A browser hangs up on the first of two clicks, and its answer is lost. What it began must not stay half done.
    let task = actix_web::rt::spawn(async move {
        let _permit = permit;
        answered.await
    });
    task.await.unwrap_or_else(|_| Err(Problem::Internal.into()))
}

async fn answer<T, A: Future<Output = WebResult>>(
    visit: PageRequest,
    services: ServicesData,
    form: T,
    key: Option<FormKey>,
    reach: FormReach,
    act: impl FnOnce(PageRequest, T, ServicesData) -> A,
) -> WebResult {
    let Some(key) = key else { return act(visit, form, services).await };
    let turn = match services.forms.begin(key).await? {
        FormStart::Repeated(again) => return Ok(repeated(&visit, &services, *again)),
        FormStart::First(turn) => turn,
    };
    let answer = act(visit.clone(), form, services.clone()).await;
    if let Ok(response) = &answer
        && let Some((done, token)) = success(&visit, response)
    {
        services.forms.finish(&turn, &done, token.as_ref()).await;
    } else if reach == FormReach::AnyInstance && may_be_repeated(&answer) {
        // The second of two forms finds the name taken, and the code and the CAPTCHA used.
        if let Some(again) = services.forms.find_elsewhere(&turn).await? {
            return Ok(repeated(&visit, &services, again));
        }
    }
    answer
}

fn recognise(visit: &PageRequest, services: &Services, pairs: &[(String, String)]) -> FormKey {
    let pattern = visit.pattern();
    let mut parts: Vec<&[u8]> = vec![visit.browser.bytes(), pattern.as_bytes()];
    parts.extend(pairs.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
    services.forms.recognise(&parts)
}

/// What is kept of an answer: where it leads, what is said there, and the session that it starts, or half of one.
fn success(visit: &PageRequest, response: &HttpResponse) -> Option<(FormAnswer, Option<FormToken>)> {
    let (location, flash) = match response.status() {
        StatusCode::SEE_OTHER => {
            let location = response.headers().get(LOCATION)?.to_str().ok()?;
            let flash = set_cookie(response, visit.cookies().flash_name);
            (
                location.to_owned(),
                flash.and_then(|flash| visit.edge.flashes.read(&flash)).map(|(flash, _)| flash),
            )
        }
        StatusCode::CREATED => (visit.pattern(), Some(Flash::AlreadyMade)),
        _ => return None,
    };
    let cookie = |name| set_cookie(response, name);
    // A whole sign-in removes the cookie of its half.
    let half = cookie(visit.cookies().half_name).and_then(|token| HalfToken::parse(&token));
    let session = || cookie(visit.cookies().session_name).and_then(|token| SessionToken::parse(&token));
    let token = half.map(FormToken::Half).or_else(|| session().map(FormToken::Session));
    let flash = flash.map(|flash| flash.code().to_owned());
    Some((FormAnswer { location, flash }, token))
}

fn set_cookie(response: &HttpResponse, name: &str) -> Option<String> {
    response.cookies().find(|cookie| cookie.name() == name).map(|cookie| cookie.value().to_owned())
}

fn may_be_repeated(answer: &WebResult) -> bool {
    let status = match answer {
        Ok(response) => response.status(),
        Err(WebError::Answer(response)) => response.status(),
        // The first of two has used it up.
        Err(WebError::Problem(problem)) => return *problem == Problem::InvitationEnded,
    };
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::CONFLICT, StatusCode::SEE_OTHER]
        .contains(&status)
}

fn repeated(visit: &PageRequest, services: &Services, again: RepeatedForm) -> HttpResponse {
    let flash = again.answer.flash.as_deref().and_then(|code| code.parse().ok());
    let mut response = visit.see_other(&again.answer.location, flash);
    if let Some((token, account)) = again.session {
        visit.begin_session(&mut response, &token, services.session_lasts);
        visit.remember_device(&mut response, &account);
    }
    if let Some((token, lasts)) = again.half {
        visit.begin_half(&mut response, &token, lasts);
    }
    response
}
