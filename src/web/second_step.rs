//! `/login/factor` and `POST /api/v1/login/factor`: the second step of a sign-in, or of a new password after a code.

use actix_web::HttpResponse;
use actix_web::web::{Json, Query};
use askama::Template;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::accounts::{
    Account, AccountFactors, AccountId, AuthenticatedSession, ChallengePurpose, FactorProof, FirstFactor,
    HalfSignIn, HalfToken, Proof, RecoveryCode, Session, SessionToken, ShownBy, TotpCode,
};
use crate::captcha::CaptchaForm;
use crate::codes::Recipient;
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::login::{FactorGuess, FactorOutcome, FactorRequest, Password, resets_by_mail};
use crate::message::MessageCode;
use crate::sms::Phone;
use crate::web::captcha::CaptchaBlock;
use crate::web::code::calls::parse_sent_code;
use crate::web::form::{
    FormPage, FormReach, FormReply, GuardedFields, NextFields, Notice, SentForm, form_page,
};
use crate::web::http::action::{parse_current, read_current};
use crate::web::http::describe::{self, ATTEMPT, CurrentPassword};
use crate::web::http::locale::span_in_words;
use crate::web::http::page::{Requester, set, set_all};
use crate::web::http::{
    ActionRefusal, Actor, ApiRequest, CaptchaSolution, CountedAs, Field, FieldErrors, Flash, Message, Next,
    PageRequest, Problem, SecretField, Services, ServicesData, WebError, WebResult,
};
use crate::web::passkeys;
use crate::web::session::{SECOND_STEP, UserBody, begin};
use crate::webauthn::Assertion;

const FORM: CaptchaForm = CaptchaForm::Login;

/// The factor in a form: a code in one of two fields, or what the script puts there for a passkey.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct FactorFields {
    /// A code of the app. A recovery code is taken here, too.
    pub code: SecretField,
    recovery: SecretField,
    pub passkey: SecretField,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct FactorForm {
    #[serde(flatten)]
    factor: FactorFields,
    /// Not empty if the box is ticked.
    trust: String,
    #[serde(flatten)]
    guarded: GuardedFields,
}

/// One of them.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SecondFactor, example = json!({ "totp": "492039" }))]
pub struct FactorBody {
    /// The six digits that the authenticator app shows.
    #[schema(value_type = Option<String>)]
    totp: Option<SecretField>,
    /// A recovery code, with or without its dashes.
    #[schema(value_type = Option<String>)]
    recovery: Option<SecretField>,
    /// The answer to a challenge for `second-step`.
    #[schema(schema_with = describe::passkey_assertion, required = false)]
    passkey: Option<Assertion>,
    /// Whether sign-ins from here are not asked for the second step, for `[factors] trust_device`. It needs the cookie
    /// `gh_device`.
    #[serde(default)]
    trust: bool,
    captcha: Option<CaptchaSolution>,
}

/// What a call proves: one field, in its form.
fn read_guess(
    totp: Option<&SecretField>,
    recovery: Option<&SecretField>,
    (passkey, purpose): (Option<&Assertion>, ChallengePurpose),
) -> Result<FactorGuess, Problem> {
    let (field, message) = match (totp, recovery, passkey) {
        (Some(code), None, None) => match TotpCode::parse(code.expose()) {
            Some(code) => return Ok(FactorGuess::Totp(code)),
            None => ("totp", "Send the six digits that the app shows."),
        },
        (None, Some(code), None) => match RecoveryCode::parse(code.expose()) {
            Some(code) => return Ok(FactorGuess::Recovery(code)),
            None => ("recovery", "Send a recovery code: 16 letters and digits."),
        },
        (None, None, Some(shown)) => return Ok(FactorGuess::Passkey(Box::new(shown.clone()), purpose)),
        (None, None, None) => {
            ("totp", "Send totp (six digits), recovery (16 letters and digits) or passkey.")
        }
        _ => ("recovery", "Send one of totp, recovery and passkey."),
    };
    Err(Problem::wrong(field, message))
}

impl FactorFields {
    fn parse(&self, purpose: ChallengePurpose, errors: &mut FieldErrors) -> Option<FactorGuess> {
        if !self.passkey.expose().is_empty() {
            let shown = passkeys::parse(self.passkey.expose(), errors)?;
            return Some(FactorGuess::Passkey(Box::new(shown), purpose));
        }
        let typed = [&self.recovery, &self.code].map(|field| field.expose().trim());
        let parsed = match typed.into_iter().find(|typed| !typed.is_empty()) {
            None => Err(Message::FactorMissing),
            Some(typed) => FactorGuess::parse(typed).ok_or(Message::FactorUnfit),
        };
        errors.take(Field::Code, parsed)
    }
}

/// The factor, if the guess was right.
async fn prove(by: &Actor<'_>, account: &Account, guess: FactorGuess) -> Result<FactorProof, ActionRefusal> {
    let solved = by.redeem().await?;
    let (field, message) = match guess {
        FactorGuess::Passkey(..) => (Field::Passkey, Message::PasskeyWrong),
        _ => (Field::Code, Message::FactorWrong),
    };
    let (account, browser) = (account.clone(), by.browser().copied());
    let (origin, devices) = (by.origin.clone(), by.known().clone());
    let request = FactorRequest { account, guess, browser, origin, devices, solved };
    match by.services.factor_verifier.check(by.live, request).await? {
        FactorOutcome::Proved(proof) => Ok(proof),
        FactorOutcome::Wrong => Err(Problem::InvalidFactor { field, message }.into()),
        FactorOutcome::Closed => {
            Err(Problem::InvalidFactor { field: Field::Code, message: Message::FactorClosed }.into())
        }
        FactorOutcome::Denied(denied) => Err(Problem::denied(denied, CountedAs::Factor).into()),
    }
}

/// Another proof of who is signed in: by a factor, where the account has one, otherwise by the password.
pub enum StepUp {
    /// In this field.
    Password(Field, Password),
    Factor(FactorGuess),
    /// For this number, which alone opens the account.
    Code(Phone, MessageCode),
}

/// The factor that was proved; None for a first one.
pub async fn step_up(
    by: &Actor<'_>,
    account: &Account,
    shown: StepUp,
) -> Result<Option<FactorProof>, ActionRefusal> {
    match shown {
        StepUp::Factor(guess) => prove(by, account, guess).await.map(Some),
        StepUp::Code(phone, code) => {
            let solved = by.redeem().await?;
            by.services.by_code.confirm(by.live, by.entry(&phone.into(), &code, solved)).await?;
            Ok(None)
        }
        StepUp::Password(field, password) => by.verify(account, password, field).await.map(|_| None),
    }
}

/// Steps up by a form, which has the fields for a factor or that of the password.
pub async fn step_up_by_form(
    reply: &FormReply<'_>,
    guarded: &GuardedFields,
    (session, account): (&Session, &Account),
    factor: &FactorFields,
    (field, password): (Field, &SecretField),
) -> Result<Option<FactorProof>, WebError> {
    let parse = |errors: &mut FieldErrors| match session.strongest {
        Some(_) => factor.parse(ChallengePurpose::Confirm, errors).map(StepUp::Factor),
        None => Some(StepUp::Password(field, errors.take(field, parse_current(password))?)),
    };
    let shown = reply.read(guarded, parse).await?;
    reply.told(step_up(&reply.actor(guarded), account, shown).await).await
}

/// The session's new token, after its owner has proved who they are. None if it has ended meanwhile.
pub async fn renew(
    sender: &Requester,
    services: &Services,
    factor: Option<FactorProof>,
) -> Result<Option<SessionToken>, DbError> {
    match sender.session_token().and_then(SessionToken::parse) {
        Some(token) => services.sessions.confirm(&token, factor.as_ref()).await,
        None => Ok(None),
    }
}

/// The answer to a form after a step-up, with the session's new token.
pub async fn renewed(
    visit: &PageRequest,
    services: &Services,
    factor: Option<FactorProof>,
    mut answer: HttpResponse,
) -> WebResult {
    match renew(visit, services, factor).await? {
        Some(token) => visit.begin_session(&mut answer, &token, services.session_lasts),
        None => return Ok(visit.see_other("/login", None)),
    }
    Ok(answer)
}

/// The number that alone opens the account, and so may confirm who is signed in.
pub fn only_phone<'a>(session: &Session, account: &'a Account) -> Option<&'a Phone> {
    let alone = account.password_hash.is_none() && !account.roles.admin && session.strongest.is_none();
    account.phone.as_ref().filter(|_| alone)
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Confirmation, example = json!({ "totp": "492039" }))]
pub struct ConfirmBody {
    /// The password of the account that is signed in, while it has neither an app nor a passkey.
    #[schema(value_type = Option<CurrentPassword>)]
    password: Option<SecretField>,
    /// The six digits that the authenticator app shows.
    #[schema(value_type = Option<String>)]
    totp: Option<SecretField>,
    /// A recovery code.
    #[schema(value_type = Option<String>)]
    recovery: Option<SecretField>,
    /// The answer to a challenge for `confirm`.
    #[schema(schema_with = describe::passkey_assertion, required = false)]
    passkey: Option<Assertion>,
    /// For the number of an account that has neither a password nor a second factor.
    #[schema(value_type = Option<String>)]
    code: Option<SecretField>,
    captcha: Option<CaptchaSolution>,
}

impl ConfirmBody {
    /// Confirms the session: the answer has its new token.
    pub async fn confirm(&self, call: &ApiRequest, session: &Session, account: &Account) -> WebResult {
        const FORM: CaptchaForm = CaptchaForm::PasswordChange;
        let shown = self.read(&call.services, session, account).await?;
        let factor = step_up(&call.actor(FORM, self.captcha.as_ref()), account, shown).await;
        let factor = call.told(FORM, factor).await?;
        let token = renew(call, &call.services, factor).await?.ok_or(Problem::Unauthenticated)?;
        let mut response = HttpResponse::NoContent().finish();
        call.begin_session(&mut response, &token, call.services.session_lasts);
        Ok(response)
    }

    async fn read(
        &self,
        services: &Services,
        session: &Session,
        account: &Account,
    ) -> Result<StepUp, Problem> {
        if let (Some(code), Some(phone)) = (&self.code, only_phone(session, account)) {
            return Ok(StepUp::Code(phone.clone(), parse_sent_code(code)?));
        }
        let passkey = (self.passkey.as_ref(), ChallengePurpose::Confirm);
        match (&self.password, session.strongest.is_some()) {
            (Some(_), true) => Err(step_up_required(services, session, account.id).await?),
            (Some(_), false) if account.password_hash.is_none() => Err(Problem::NoPassword),
            (Some(password), false) => {
                Ok(StepUp::Password(Field::Password, read_current(Field::Password, password)?))
            }
            (None, false) if self.totp.is_none() && self.recovery.is_none() && passkey.0.is_none() => {
                Err(Problem::at(Field::Password, Message::CurrentPasswordMissing))
            }
            (None, _) => Ok(StepUp::Factor(read_guess(self.totp.as_ref(), self.recovery.as_ref(), passkey)?)),
        }
    }
}

async fn step_up_required(
    services: &Services,
    session: &Session,
    account: AccountId,
) -> Result<Problem, Problem> {
    let methods = match session.strongest.is_some() {
        true => services.factor_verifier.factors().of(account).await?.methods(),
        false => Vec::new(),
    };
    Ok(Problem::StepUpRequired { methods })
}

pub async fn require_confirmed(services: &Services, who: &AuthenticatedSession) -> Result<(), WebError> {
    match services.sessions.is_confirmed(&who.session) {
        true => Ok(()),
        false => Err(step_up_required(services, &who.session, who.account.id).await?.into()),
    }
}

/// What the password is shown for takes the second factor, too, where the account has one.
pub async fn require_factor(services: &Services, who: &AuthenticatedSession) -> Result<(), WebError> {
    match who.session.strongest {
        Some(_) => require_confirmed(services, who).await,
        None => Ok(()),
    }
}

/// Nothing is set up that another instance would not ask for.
pub async fn refuse_while_upgrading(services: &Services) -> Result<(), WebError> {
    match services.factor_verifier.factors().is_upgrading().await? {
        true => Err(Problem::UpgradeUnfinished.into()),
        false => Ok(()),
    }
}

async fn half(sender: &Requester, services: &Services) -> Result<Option<(HalfToken, HalfSignIn)>, WebError> {
    let Some(token) = sender.half_token() else { return Ok(None) };
    Ok(services.half_sign_ins.find(&token).await?.map(|half| (token, half)))
}

/// What the whole sign-in does. None if it lapsed meanwhile, or the account was changed.
async fn finish(
    sender: &Requester,
    services: &Services,
    (token, half): (&HalfToken, &HalfSignIn),
    (factor, trusts): (FactorProof, bool),
    mut answer: HttpResponse,
) -> Result<Option<HttpResponse>, Problem> {
    if !services.half_sign_ins.end(token).await? {
        return Ok(None);
    }
    set(&mut answer, sender.edge.cookies.end_half());
    let HalfSignIn { account, first, new_password, .. } = half;
    let Some(new) = new_password else {
        let proof = Proof { first: *first, second: vec![factor] };
        let target = Next::home();
        // A second factor was proved, so none is asked for.
        let half = |_, _| Problem::Lapsed.respond();
        return begin(sender, services, account, (proof, trusts), target.as_str(), answer, half).await;
    };
    let by_mail = *first == FirstFactor::MailCode;
    // The rule may have changed since the first step.
    if by_mail && !resets_by_mail(&sender.settings(services), account) {
        return Ok(None);
    }
    let to: Option<Recipient> = match &account.phone {
        _ if by_mail => services.emails.of(account.id).await?.map(Recipient::from),
        phone => phone.clone().map(Recipient::from),
    };
    let Some(to) = to else { return Ok(None) };
    let key = to.mailbox().map(|mailbox| services.emails.key(mailbox)).unwrap_or_default();
    let shown = match &to {
        Recipient::Phone(phone) => ShownBy::Phone(phone, Some(&factor)),
        Recipient::Mailbox(_) => ShownBy::Mailbox(&key, Some(&factor)),
    };
    let set = services.accounts.set_password(account.id, new, shown).await?;
    let Some(version) = set else { return Ok(None) };
    let (live, origin) = (sender.settings(services), sender.client.origin());
    services.by_code.was_reset(&live, account, (&to, &origin), false).await;
    let account = account.clone().with_password(new.clone(), version);
    set_all(&mut answer, sender.edge.cookies.end_session());
    sender.remember_device(&mut answer, &account);
    Ok(Some(answer))
}

fn lapsed(visit: &PageRequest) -> HttpResponse {
    let mut response = visit.see_other("/login", Some(Flash::SecondStepLapsed));
    set(&mut response, visit.cookies().end_half());
    response
}

/// `GET /login/factor`
pub async fn show(visit: PageRequest, services: ServicesData) -> WebResult {
    let Some((_, half)) = half(&visit, &services).await? else { return Ok(lapsed(&visit)) };
    let factors = services.factor_verifier.factors().of(half.account.id).await?;
    Ok(FactorPage::new(&visit, &visit.live(&services), &half, factors).respond(&visit))
}

pub async fn submit(visit: PageRequest, form: SentForm, services: ServicesData) -> WebResult {
    form.once(visit, services, FormReach::AnyInstance, submit_once).await
}

async fn submit_once(visit: PageRequest, form: FactorForm, services: ServicesData) -> WebResult {
    let live = visit.live(&services);
    let Some((token, half)) = half(&visit, &services).await? else { return Err(lapsed(&visit).into()) };
    let factors = services.factor_verifier.factors().of(half.account.id).await?;
    let page = FactorPage::new(&visit, &live, &half, factors);
    let show = |notice, captcha| page.clone().again(notice, captcha).respond(&visit);
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    let parse = |errors: &mut FieldErrors| form.factor.parse(ChallengePurpose::SecondStep, errors);
    let guess = reply.read(&form.guarded, parse).await?;
    let factor = reply.told(prove(&reply.actor(&form.guarded), &half.account, guess).await).await?;
    let answer = match half.new_password {
        Some(_) => visit.see_other("/login", Some(Flash::PasswordReset)),
        None => visit.see_other(&half.target, None),
    };
    let done = finish(&visit, &services, (&token, &half), (factor, !form.trust.is_empty()), answer).await;
    let done = reply.told(done).await?;
    // Perhaps another instance has just answered the same form.
    done.ok_or_else(|| lapsed(&visit).into())
}

/// Take the second step of a sign-in
///
/// With the cookie that came with 403 factor-required, within five minutes. A code of the app counts on the account,
/// or on the device if the cookie `gh_device` shows one that the account knows, before it is compared, and is given
/// back if it was right; each code is right once. A wrong recovery code or passkey counts
/// on the client's address and its network, or on such a device.
#[utoipa::path(
    post,
    path = "/api/v1/login/factor",
    operation_id = "takeSecondStep",
    tag = "sign-in",
    request_body = FactorBody,
    responses(
        (status = 200, description = "Signed in. The cookie is the session.", body = UserBody, headers(("SignInCookies"))),
        (status = 204, description = "After POST /api/v1/password/reset: the password is set. Every session has ended.")
    ),
    extensions(("x-problems" = json!([ATTEMPT, "invalid-factor", "lapsed", "account-frozen", "busy"])))
)]
pub async fn api(body: Json<FactorBody>, call: ApiRequest) -> WebResult {
    let passkey = (body.passkey.as_ref(), ChallengePurpose::SecondStep);
    let (token, half) = half(&call, &call.services).await?.ok_or(Problem::Lapsed)?;
    let guess = read_guess(body.totp.as_ref(), body.recovery.as_ref(), passkey)?;
    let proved = prove(&call.actor(FORM, body.captcha.as_ref()), &half.account, guess).await;
    let factor = call.told(FORM, proved).await?;
    let answer = match half.new_password {
        Some(_) => HttpResponse::NoContent().finish(),
        None => HttpResponse::Ok().json(UserBody::from(&half.account)),
    };
    let done = finish(&call, &call.services, (&token, &half), (factor, body.trust), answer).await?;
    Ok(done.ok_or(Problem::Lapsed)?)
}

#[derive(Template, Clone)]
#[template(path = "pages/factor.html")]
pub struct FactorPage {
    pub form: FormPage,
    pub login: String,
    pub factors: AccountFactors,
    /// The sign-in sets a new password by a code, which takes a factor whether sign-ins are asked for one or not.
    resets: bool,
    /// For how long this browser can be trusted, in words.
    trust: Option<String>,
}

form_page!(FactorPage);

impl FactorPage {
    fn new(visit: &PageRequest, live: &LiveSettings, half: &HalfSignIn, factors: AccountFactors) -> Self {
        let form = FormPage::new(visit, SECOND_STEP, None, next_of(visit, live, &half.target));
        let lasts = live.factors.trust_device.as_secs();
        // A new password ends all trust.
        let resets = half.new_password.is_some();
        let offers = live.factors.trusts_devices() && !resets;
        let trust = offers.then(|| span_in_words(lasts, visit.locale));
        Self { form, login: half.account.login.as_str().to_owned(), factors, resets, trust }
    }

    fn focus(&self) -> &'static str {
        self.form.focus("code")
    }
}

/// The target again, so that the page says where it leads, and its form may end there.
fn next_of(visit: &PageRequest, live: &LiveSettings, target: &str) -> Option<Next> {
    let query = target.strip_prefix("/login?")?;
    Query::<NextFields>::from_query(query).ok()?.target(visit, live)
}
