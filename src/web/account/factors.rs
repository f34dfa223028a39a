//! `/account/factors`, and `/api/v1/totp`, `/api/v1/recovery-codes` and `/api/v1/confirm`: the second factors of the
//! signed-in account. Whoever changes them has proved lately who they are: by a factor, once there is one.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Json;
use askama::Template;
use qrcodegen::{QrCode, QrCodeEcc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::accounts::{
    AccountFactors, AuthenticatedSession, Factor, FactorSetup, Passkey, RecoveryCode, SessionToken, TotpCode,
    TotpSecret, TrustedDevice,
};
use crate::audit::Action;
use crate::captcha::CaptchaForm;
use crate::clock::Micros;
use crate::web::account::passkeys;
use crate::web::captcha::CaptchaBlock;
use crate::web::form::{FormPage, FormPairs, FormReach, FormReply, GuardedFields, Notice, form_page, once};
use crate::web::http::describe::{ATTEMPT, BODY, MEMBER};
use crate::web::http::page::Requester;
use crate::web::http::{
    ApiRequest, Device, Field, FieldErrors, Flash, Message, Moment, PageRequest, Problem, SecretField,
    Services, ServicesData, UnreadBody, WebError, WebResult,
};
use crate::web::second_step::{
    ConfirmBody, note_browser, only_phone, parse_step_up, record_factor, refuse_while_upgrading,
    require_confirmed, step_up,
};
use crate::web::session::{self, Member};

pub(super) const PATH: &str = "/account/factors";
pub(super) const FORM: CaptchaForm = CaptchaForm::PasswordChange;

/// What a form of the page does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FactorAct {
    /// Proves who is signed in.
    #[default]
    Confirm,
    ProposeTotp,
    UseTotp,
    RemoveTotp,
    RenewCodes,
    AddPasskey,
    RemovePasskey,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct FactorsForm {
    act: FactorAct,
    code: SecretField,
    current_password: SecretField,
    passkey: SecretField,
    /// Of a new passkey.
    label: String,
    passkey_id: String,
    #[serde(flatten)]
    guarded: GuardedFields,
}

/// The session's new token. None if it has ended meanwhile.
pub(super) async fn renew(
    sender: &Requester,
    services: &Services,
    factor: Option<Factor>,
) -> Result<Option<SessionToken>, WebError> {
    let Some(token) = sender.session_token().and_then(SessionToken::parse) else { return Ok(None) };
    Ok(services.sessions.confirm(&token, factor).await?)
}

async fn factors(services: &Services, who: &AuthenticatedSession) -> Result<AccountFactors, WebError> {
    Ok(services.factor_verifier.factors().of(who.account.id).await?)
}

pub async fn show(visit: PageRequest, Member(who): Member, services: ServicesData) -> WebResult {
    Ok(FactorsPage::of(&visit, &services, &who).await?.respond(&visit))
}

pub async fn submit(visit: PageRequest, body: UnreadBody<FormPairs>, services: ServicesData) -> WebResult {
    once(visit, services, body, FormReach::AnyInstance, submit_once).await
}

async fn submit_once(visit: PageRequest, form: FactorsForm, services: ServicesData) -> WebResult {
    let who = session::require(&visit, &services, PATH).await?;
    if who.account.must_change_password {
        return Ok(visit.change_password_first(PATH));
    }
    let live = visit.live(&services);
    let page = FactorsPage::of(&visit, &services, &who).await?;
    let show = |notice, captcha| page.clone().again(notice, captcha).respond(&visit);
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    if form.act == FactorAct::Confirm {
        let parse = |errors: &mut FieldErrors| {
            let current = (Field::CurrentPassword, &form.current_password);
            parse_step_up(&who.session, &form.code, &form.passkey, current, errors)
        };
        let shown = reply.read(&form.guarded, parse).await?;
        let factor = reply.told(step_up(&reply.actor(&form.guarded), &who.account, shown).await).await?;
        let Some(token) = renew(&visit, &services, factor).await? else {
            return Ok(visit.see_other("/login", None));
        };
        let mut response = visit.see_other(PATH, None);
        visit.begin_session(&mut response, &token, services.session_lasts);
        return Ok(response);
    }
    // Without it the page asks for the confirmation first.
    reply.read(&form.guarded, |_| Some(())).await?;
    if !services.sessions.is_confirmed(&who.session) {
        return Ok(reply.plain(Notice::None));
    }
    let (store, account) = (services.factor_verifier.factors(), who.account.id);
    let codes = match form.act {
        FactorAct::Confirm => unreachable!("answered above"),
        FactorAct::ProposeTotp => {
            refuse_while_upgrading(&services).await?;
            store.propose_totp(account, who.session.id).await?;
            return Ok(visit.see_other(PATH, None));
        }
        FactorAct::UseTotp => {
            let parse = |errors: &mut FieldErrors| {
                let code = TotpCode::parse(form.code.expose()).ok_or(Message::FactorUnfit);
                errors.take(Field::Code, code)
            };
            let code = reply.read(&form.guarded, parse).await?;
            refuse_while_upgrading(&services).await?;
            let Some(codes) = store.confirm_totp(account, who.session.id, &code).await? else {
                return Ok(reply.invalid(Field::Code, Message::TotpUnconfirmed));
            };
            note_browser(&visit, &services, &who.account).await?;
            record_factor(&visit, &services, &who, Action::FactorAdded, Factor::Totp);
            codes
        }
        FactorAct::RemoveTotp => {
            if store.remove_totp(account).await? {
                record_factor(&visit, &services, &who, Action::FactorRemoved, Factor::Totp);
            }
            return Ok(visit.see_other(PATH, Some(Flash::TotpRemoved)));
        }
        FactorAct::AddPasskey => {
            let made = (form.passkey.expose(), *visit.browser.bytes());
            match passkeys::add_by_form(&visit, &services, &who, made, &form.label).await? {
                Ok(codes) if codes.is_empty() => return Ok(visit.see_other(PATH, Some(Flash::PasskeyAdded))),
                Ok(codes) => codes,
                Err((field, message)) => return Ok(reply.invalid(field, message)),
            }
        }
        FactorAct::RemovePasskey => {
            passkeys::remove(&visit, &services, &who, &form.passkey_id).await?;
            return Ok(visit.see_other(PATH, Some(Flash::PasskeyRemoved)));
        }
        FactorAct::RenewCodes if page.factors.is_empty() => return Ok(reply.plain(Notice::None)),
        FactorAct::RenewCodes => {
            let codes = store.renew_recovery_codes(account).await?;
            record_factor(&visit, &services, &who, Action::FactorAdded, Factor::Recovery);
            codes
        }
    };
    let page = FactorsPage { codes: exposed(&codes), ..FactorsPage::of(&visit, &services, &who).await? };
    let mut response = page.respond(&visit);
    // Shown once: the same form again leads to the page without them.
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

fn exposed(codes: &[RecoveryCode]) -> Vec<String> {
    codes.iter().map(RecoveryCode::expose).collect()
}

#[derive(Template, Clone)]
#[template(path = "pages/factors.html")]
pub struct FactorsPage {
    pub form: FormPage,
    pub login: String,
    pub factors: AccountFactors,
    /// It was proved lately who is signed in.
    confirmed: bool,
    /// By a factor.
    asks_factor: bool,
    has_password: bool,
    passkeys: Vec<Passkey>,
    /// The domain of passkeys here; none where browsers have none.
    rp_id: Option<String>,
    /// By an SMS code, which alone opens the account.
    by_code: bool,
    policy: PolicySection,
    /// An app that is being set up.
    proposed: Option<ProposedTotp>,
    /// Those just handed out, shown once.
    codes: Vec<String>,
}

/// What sign-ins are asked for, and by when a factor has to be set up.
#[derive(Clone)]
pub struct PolicySection {
    /// By the owner's wish.
    pub asks: bool,
    /// By `[factors]`, whatever the owner wishes.
    pub required: bool,
    pub setup: Option<FactorSetup>,
    pub trusted: Vec<TrustedRow>,
}

#[derive(Clone)]
pub struct TrustedRow {
    pub device: String,
    pub browser: Device,
    pub until: Moment,
    pub here: bool,
}

impl PolicySection {
    pub async fn of(
        visit: &PageRequest,
        services: &Services,
        who: &AuthenticatedSession,
    ) -> Result<Self, WebError> {
        let (store, live) = (services.factor_verifier.factors(), services.live.snapshot());
        let policy = store.policy(who.account.id, &live.factors.required_of()).await?;
        let here = visit.known_devices().at(who.account.id).map(|device| device.id);
        let row = |TrustedDevice { device, until, user_agent }: TrustedDevice| TrustedRow {
            device: device.to_string(),
            browser: Device::parse(&user_agent),
            until: Moment(until),
            here: here == Some(device),
        };
        let trusted = store.trusted(who.account.id, &live.factors).await?.into_iter().map(row).collect();
        Ok(Self { asks: policy.asks, required: policy.required, setup: who.session.setup, trusted })
    }

    pub fn setup_by(&self) -> Option<Moment> {
        self.setup.filter(|setup| !setup.overdue).map(|setup| Moment(setup.by))
    }

    pub fn overdue(&self) -> bool {
        self.setup.is_some_and(|setup| setup.overdue)
    }
}

#[derive(Clone)]
struct ProposedTotp {
    /// In groups of four.
    secret: String,
    /// The sides of the image, and its dark squares as the path of an SVG.
    side: i32,
    squares: String,
}

form_page!(FactorsPage);

impl FactorsPage {
    async fn of(
        visit: &PageRequest,
        services: &Services,
        who: &AuthenticatedSession,
    ) -> Result<Self, WebError> {
        let confirmed = services.sessions.is_confirmed(&who.session);
        let login = who.account.login.as_str();
        let proposed = match confirmed {
            true => services.factor_verifier.factors().proposed_totp(who.account.id, who.session.id).await?,
            false => None,
        };
        let passkeys = services.factor_verifier.passkeys();
        Ok(Self {
            form: FormPage::new(visit, PATH, Some(login), None),
            login: login.to_owned(),
            factors: factors(services, who).await?,
            confirmed,
            asks_factor: who.session.strongest.is_some(),
            passkeys: passkeys.list(who.account.id).await?,
            rp_id: passkeys.site().map(|site| site.id.clone()),
            has_password: who.account.password_hash.is_some(),
            by_code: only_phone(&who.session, &who.account).is_some(),
            policy: PolicySection::of(visit, services, who).await?,
            proposed: proposed.map(|secret| ProposedTotp::of(&secret, &issuer(services), login)),
            codes: Vec::new(),
        })
    }

    fn focus(&self) -> &'static str {
        self.form.focus(match (self.confirmed, self.asks_factor) {
            (true, _) if self.proposed.is_none() => "",
            (true, _) | (false, true) => "code",
            (false, false) => "current_password",
        })
    }

    fn moment(&self, at: &Micros) -> Moment {
        Moment(*at)
    }

    fn since(&self) -> Option<Moment> {
        self.factors.totp_since.map(Moment)
    }
}

impl ProposedTotp {
    fn of(secret: &TotpSecret, issuer: &str, login: &str) -> Self {
        let letters = secret.base32();
        let groups: Vec<&str> = (0..letters.len()).step_by(4).map(|at| &letters[at..at + 4]).collect();
        let code = QrCode::encode_text(&secret.uri(issuer, login), QrCodeEcc::Medium)
            .expect("an address of some hundred letters fits");
        let side = code.size();
        let dark =
            (0..side).flat_map(|y| (0..side).map(move |x| (x, y))).filter(|(x, y)| code.get_module(*x, *y));
        let squares = dark.map(|(x, y)| format!("M{x} {y}h1v1h-1z")).collect();
        Self { secret: groups.join(" "), side, squares }
    }
}

/// The name that the app shows beside the account.
fn issuer(services: &Services) -> String {
    services.live.snapshot().brand.name.clone()
}

// The same as calls.

/// Prove again who is signed in
///
/// By the password, or by a second factor once the account has one. An account that only SMS codes open confirms by
/// a code for its number (`POST /api/v1/sms/codes` with the purpose `verify`). It holds for `[session] confirm`, by default 15
/// minutes, and counts as at sign-in.
#[utoipa::path(
    post,
    path = "/api/v1/confirm",
    operation_id = "confirmSession",
    tag = "session",
    request_body = ConfirmBody,
    responses((
        status = 204,
        description = "Confirmed. The session has a new token, and the old one is invalid.",
        headers(("SessionCookie"))
    )),
    security(("session" = [])),
    extensions(("x-problems" = json!([
        BODY, ATTEMPT, MEMBER, "invalid-credentials", "invalid-code", "invalid-factor", "no-password", "password-disabled",
        "step-up-required", "busy"
    ])))
)]
pub async fn api_confirm(body: Json<ConfirmBody>, Member(who): Member, call: ApiRequest) -> WebResult {
    let shown = body.step_up(&call.services, &who.session, &who.account).await?;
    let factor = step_up(&call.actor(FORM, body.captcha.as_ref()), &who.account, shown).await;
    let factor = call.told(FORM, factor).await?;
    let token = renew(&call, &call.services, factor).await?.ok_or(Problem::Unauthenticated)?;
    let mut response = HttpResponse::NoContent().finish();
    call.begin_session(&mut response, &token, call.services.session_lasts);
    Ok(response)
}

#[derive(Serialize, ToSchema)]
#[schema(as = TotpProposal)]
pub struct ProposalBody {
    /// In base32, for an app in which it is typed.
    secret: String,
    /// The same as an `otpauth:` address, for a QR code.
    uri: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TotpCode, example = json!({ "code": "492039" }))]
pub struct UseBody {
    /// The six digits that the app shows.
    #[schema(value_type = String)]
    code: SecretField,
}

#[derive(Serialize, ToSchema)]
#[schema(as = RecoveryCodes)]
pub struct CodesBody {
    /// Each is right once. They are not told again.
    recovery_codes: Vec<String>,
}

/// Begin to set up an authenticator app
///
/// RFC 6238 with SHA-1, six digits and 30 seconds. Nothing changes until PUT /api/v1/totp shows a code of it.
#[utoipa::path(
    post,
    path = "/api/v1/totp",
    operation_id = "proposeTotp",
    tag = "session",
    responses((status = 201, description = "The secret, told once.", body = ProposalBody)),
    security(("session" = [])),
    extensions(("x-problems" = json!([MEMBER, "step-up-required", "upgrade-unfinished"])))
)]
pub async fn api_propose(Member(who): Member, call: ApiRequest) -> WebResult {
    require_confirmed(&call.services, &who).await?;
    refuse_while_upgrading(&call.services).await?;
    let secret = call.services.factor_verifier.factors().propose_totp(who.account.id, who.session.id).await?;
    let uri = secret.uri(&issuer(&call.services), who.account.login.as_str()).to_string();
    Ok(HttpResponse::Created().json(ProposalBody { secret: secret.base32().to_string(), uri }))
}

/// Finish setting up an authenticator app
///
/// From now on sign-ins to the account are asked for a second step. An app and recovery codes from before are void.
#[utoipa::path(
    put,
    path = "/api/v1/totp",
    operation_id = "useTotp",
    tag = "session",
    request_body = UseBody,
    responses((status = 200, description = "In use.", body = CodesBody)),
    security(("session" = [])),
    extensions(("x-problems" = json!([BODY, MEMBER, "step-up-required", "upgrade-unfinished", "invalid-factor"])))
)]
pub async fn api_use(body: Json<UseBody>, Member(who): Member, call: ApiRequest) -> WebResult {
    let code = TotpCode::parse(body.code.expose());
    let code = code.ok_or_else(|| Problem::at(Field::Code, Message::FactorUnfit))?;
    require_confirmed(&call.services, &who).await?;
    refuse_while_upgrading(&call.services).await?;
    let store = call.services.factor_verifier.factors();
    let codes =
        store.confirm_totp(who.account.id, who.session.id, &code).await?.ok_or(Problem::InvalidFactor)?;
    note_browser(&call, &call.services, &who.account).await?;
    record_factor(&call, &call.services, &who, Action::FactorAdded, Factor::Totp);
    Ok(HttpResponse::Ok().json(CodesBody { recovery_codes: exposed(&codes) }))
}

/// Remove the authenticator app
///
/// With the account's last factor go its recovery codes, and sign-ins are not asked for a second step any more.
#[utoipa::path(
    delete,
    path = "/api/v1/totp",
    operation_id = "removeTotp",
    tag = "session",
    responses((status = 204, description = "Removed, also if there was none.")),
    security(("session" = [])),
    extensions(("x-problems" = json!([MEMBER, "step-up-required"])))
)]
pub async fn api_remove(Member(who): Member, call: ApiRequest) -> WebResult {
    require_confirmed(&call.services, &who).await?;
    if call.services.factor_verifier.factors().remove_totp(who.account.id).await? {
        record_factor(&call, &call.services, &who, Action::FactorRemoved, Factor::Totp);
    }
    Ok(HttpResponse::NoContent().finish())
}

/// Make new recovery codes
///
/// Those from before are void.
#[utoipa::path(
    post,
    path = "/api/v1/recovery-codes",
    operation_id = "renewRecoveryCodes",
    tag = "session",
    responses((status = 200, description = "Ten codes.", body = CodesBody)),
    security(("session" = [])),
    extensions(("x-problems" = json!([MEMBER, "step-up-required", "not-found"])))
)]
pub async fn api_renew(Member(who): Member, call: ApiRequest) -> WebResult {
    require_confirmed(&call.services, &who).await?;
    if factors(&call.services, &who).await?.is_empty() {
        return Err(Problem::NotFound.into());
    }
    let codes = call.services.factor_verifier.factors().renew_recovery_codes(who.account.id).await?;
    record_factor(&call, &call.services, &who, Action::FactorAdded, Factor::Recovery);
    Ok(HttpResponse::Ok().json(CodesBody { recovery_codes: exposed(&codes) }))
}
