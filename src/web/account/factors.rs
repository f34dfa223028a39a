//! `/account/factors`, and `/api/v1/totp`, `/api/v1/recovery-codes` and `/api/v1/confirm`: the second factors of the
//! signed-in account. Whoever changes them has proved lately who they are: by a factor, once there is one.

mod owner;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Query;
use askama::Template;
use qrcodegen::{QrCode, QrCodeEcc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::accounts::{
    AccountFactors, AuthenticatedSession, DeviceId, FactorPolicy, FactorSetup, Passkey, PasskeyLabel,
    RecoveryCode, TotpCode, TotpSecret, TrustedDevice,
};
use crate::captcha::CaptchaForm;
use crate::clock::Micros;
use crate::web::captcha::CaptchaBlock;
use crate::web::form::{FormPage, FormReply, GuardedFields, NextFields, Notice, form_page};
use crate::web::http::describe::ATTEMPT;
use crate::web::http::{
    ApiRequest, Device, Field, FieldErrors, Flash, Message, Moment, Next, PageRequest, Problem, SecretField,
    Services, ServicesData, WebError, WebResult,
};
use crate::web::second_step::{ConfirmBody, FactorFields, only_phone, renewed, step_up_by_form};
use crate::web::session::{Member, MemberCall, OwnersForm};

/// The code is none of the app that is being set up.
const UNCONFIRMED: Problem = Problem::InvalidFactor { field: Field::Code, message: Message::TotpUnconfirmed };

pub(super) use owner::FactorOwner;

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
    #[serde(flatten)]
    factor: FactorFields,
    current_password: SecretField,
    /// The name of a new passkey.
    label: String,
    passkey_id: String,
    #[serde(flatten)]
    to: NextFields,
    #[serde(flatten)]
    guarded: GuardedFields,
}

pub async fn show(
    visit: PageRequest,
    Member(who): Member,
    query: Query<NextFields>,
    services: ServicesData,
) -> WebResult {
    let next = query.target(&visit, &visit.live(&services));
    Ok(FactorsPage::of(&visit, &services, &who, next).await?.respond(&visit))
}

pub async fn submit(visit: PageRequest, form: OwnersForm, services: ServicesData) -> WebResult {
    form.once(visit, services, submit_once).await
}

async fn submit_once(
    visit: PageRequest,
    who: AuthenticatedSession,
    form: FactorsForm,
    services: ServicesData,
) -> WebResult {
    let live = visit.live(&services);
    let next = form.to.target(&visit, &live);
    let here = Next::after(PATH, next.as_ref());
    let page = FactorsPage::of(&visit, &services, &who, next.clone()).await?;
    let show = |notice, captcha| page.clone().again(notice, captcha).respond(&visit);
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    if form.act == FactorAct::Confirm {
        let (whose, password) =
            ((&who.session, &who.account), (Field::CurrentPassword, &form.current_password));
        let factor = step_up_by_form(&reply, &form.guarded, whose, &form.factor, password).await?;
        return renewed(&visit, &services, factor, visit.see_other(&here, None)).await;
    }
    // Without it the page asks for the confirmation first.
    reply.read(&form.guarded, |_| Some(())).await?;
    if !services.sessions.is_confirmed(&who.session) {
        return Ok(reply.plain(Notice::None));
    }
    let owner = FactorOwner::confirmed(&visit, &services, &who).await?;
    let codes = match form.act {
        FactorAct::Confirm => unreachable!("answered above"),
        FactorAct::ProposeTotp => {
            owner.propose_totp().await?;
            return Ok(visit.see_other(&here, None));
        }
        FactorAct::UseTotp => {
            let parse = |errors: &mut FieldErrors| {
                let code = TotpCode::parse(form.factor.code.expose()).ok_or(Message::FactorUnfit);
                errors.take(Field::Code, code)
            };
            let code = reply.read(&form.guarded, parse).await?;
            reply.told(owner.use_totp(&code).await?.ok_or(UNCONFIRMED)).await?
        }
        FactorAct::RemoveTotp => {
            owner.remove_totp().await?;
            return Ok(visit.see_other(PATH, Some(Flash::TotpRemoved)));
        }
        FactorAct::RenewCodes => {
            let Some(codes) = owner.renew_codes().await? else { return Ok(reply.plain(Notice::None)) };
            codes
        }
        FactorAct::AddPasskey => {
            let Some(label) = PasskeyLabel::parse(&form.label) else {
                return Ok(reply.invalid(Field::Label, Message::PasskeyLabelUnfit));
            };
            let Ok(made) = serde_json::from_str(form.factor.passkey.expose()) else {
                return Ok(reply.invalid(Field::Passkey, Message::PasskeyWrong));
            };
            match owner.add_passkey(&made, &label).await? {
                Ok((_, codes)) if codes.is_empty() => {
                    let on = next.as_ref().map_or(PATH, Next::as_str);
                    return Ok(visit.see_other(on, Some(Flash::PasskeyAdded)));
                }
                Ok((_, codes)) => codes,
                Err(refusal) => return Ok(reply.invalid(Field::Passkey, (&refusal).into())),
            }
        }
        FactorAct::RemovePasskey => {
            owner.remove_passkey(&form.passkey_id).await?;
            return Ok(visit.see_other(PATH, Some(Flash::PasskeyRemoved)));
        }
    };
    let page =
        FactorsPage { codes: exposed(&codes), ..FactorsPage::of(&visit, &services, &who, next).await? };
    let mut response = page.respond(&visit);
    // Shown once: the same form again leads to the page without them.
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

pub(super) fn exposed(codes: &[RecoveryCode]) -> Vec<String> {
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
    /// The confirmation is by a factor.
    asks_factor: bool,
    has_password: bool,
    passkeys: Vec<Passkey>,
    /// The domain of passkeys here; none where browsers have none.
    rp_id: Option<String>,
    /// The confirmation is by an SMS code, which alone opens the account.
    by_code: bool,
    policy: FactorPolicy,
    setup: Option<FactorSetup>,
    trusted: Vec<TrustedDevice>,
    /// This browser, if the account knows it.
    here: Option<DeviceId>,
    /// An app that is being set up.
    proposed: Option<ProposedTotp>,
    /// The recovery codes just handed out, shown once.
    codes: Vec<String>,
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
        next: Option<Next>,
    ) -> Result<Self, WebError> {
        let confirmed = services.sessions.is_confirmed(&who.session);
        let (login, account) = (who.account.login.as_str(), who.account.id);
        let (store, passkeys) = (services.factor_verifier.factors(), services.factor_verifier.passkeys());
        let proposed = if confirmed { store.proposed_totp(account, who.session.id).await? } else { None };
        let live = visit.settings(services);
        Ok(Self {
            form: FormPage::new(visit, PATH, Some(login), next),
            login: login.to_owned(),
            factors: store.of(account).await?,
            confirmed,
            asks_factor: who.session.strongest.is_some(),
            passkeys: passkeys.list(account).await?,
            rp_id: passkeys.site().map(|site| site.id.clone()),
            has_password: who.account.password_hash.is_some(),
            by_code: only_phone(&who.session, &who.account).is_some(),
            policy: store.policy(account, &live.factors.required_of()).await?,
            setup: who.session.setup,
            trusted: store.trusted(account, &live.factors).await?,
            here: visit.known_devices().at(account).map(|device| device.id),
            proposed: proposed.map(|(secret, _)| ProposedTotp::of(&secret, &issuer(services), login)),
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

    fn is_here(&self, device: &DeviceId) -> bool {
        self.here == Some(*device)
    }

    fn setup_by(&self) -> Option<Moment> {
        self.setup.filter(|setup| !setup.overdue).map(|setup| Moment(setup.by))
    }

    fn overdue(&self) -> bool {
        self.setup.is_some_and(|setup| setup.overdue)
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

// The calls of the API.

/// Prove again who is signed in
///
/// The proof is the password, or a second factor once the account has one. An account that only SMS codes open
/// confirms by a code for its number (`POST /api/v1/sms/codes` with the purpose `verify`). It holds for `[session]
/// confirm`, by default 15 minutes, and counts as at sign-in.
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
    extensions(("x-problems" = json!([ATTEMPT, "invalid-credentials", "invalid-code", "invalid-factor", "no-password", "password-disabled", "step-up-required", "busy"])))
)]
pub async fn api_confirm(MemberCall { who, call, body }: MemberCall<ConfirmBody>) -> WebResult {
    body.confirm(&call, &who.session, &who.account).await
}

#[derive(Serialize, ToSchema)]
#[schema(as = TotpProposal)]
pub struct ProposalBody {
    /// In base32, for an app in which it is typed.
    secret: String,
    /// The secret as an `otpauth:` address, for a QR code.
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
    extensions(("x-problems" = json!(["step-up-required", "upgrade-unfinished"])))
)]
pub async fn api_propose(Member(who): Member, call: ApiRequest) -> WebResult {
    let secret = FactorOwner::confirmed(&call, &call.services, &who).await?.propose_totp().await?;
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
    extensions(("x-problems" = json!(["step-up-required", "upgrade-unfinished", "invalid-factor"])))
)]
pub async fn api_use(MemberCall { who, call, body }: MemberCall<UseBody>) -> WebResult {
    let code = TotpCode::parse(body.code.expose());
    let code = code.ok_or_else(|| Problem::at(Field::Code, Message::FactorUnfit))?;
    let owner = FactorOwner::confirmed(&call, &call.services, &who).await?;
    let codes = owner.use_totp(&code).await?.ok_or(UNCONFIRMED)?;
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
    extensions(("x-problems" = json!(["step-up-required"])))
)]
pub async fn api_remove(Member(who): Member, call: ApiRequest) -> WebResult {
    FactorOwner::confirmed(&call, &call.services, &who).await?.remove_totp().await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Make new recovery codes
///
/// Earlier codes are void.
#[utoipa::path(
    post,
    path = "/api/v1/recovery-codes",
    operation_id = "renewRecoveryCodes",
    tag = "session",
    responses((status = 200, description = "Ten codes.", body = CodesBody)),
    extensions(("x-problems" = json!(["step-up-required", "not-found"])))
)]
pub async fn api_renew(Member(who): Member, call: ApiRequest) -> WebResult {
    let owner = FactorOwner::confirmed(&call, &call.services, &who).await?;
    let codes = owner.renew_codes().await?.ok_or(Problem::NotFound)?;
    Ok(HttpResponse::Ok().json(CodesBody { recovery_codes: exposed(&codes) }))
}
