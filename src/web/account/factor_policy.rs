//! `/account/factors/policy` and `/api/v1/factors`: whether sign-ins to the account are asked for the second step, and
//! which browsers are not.

use actix_web::HttpResponse;
use actix_web::web::Path;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::factors::{FactorOwner, PATH};
use crate::accounts::{DeviceId, Factor, TrustedDevice};
use crate::web::http::{ApiRequest, Flash, Moment, PageRequest, Problem, ServicesData, WebResult};
use crate::web::session::{Member, MemberCall, MemberForm};

/// What a form does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PolicyAct {
    Ask,
    DoNotAsk,
    Distrust,
}

#[derive(Deserialize)]
pub struct PolicyForm {
    act: PolicyAct,
    /// The one to distrust.
    #[serde(default)]
    device: String,
}

/// `POST /account/factors/policy`. Trust ends without a confirmation: that takes nothing from its owner.
pub async fn submit(
    visit: PageRequest,
    MemberForm { who, form }: MemberForm<PolicyForm>,
    services: ServicesData,
) -> WebResult {
    let asks = match form.act {
        PolicyAct::Ask => true,
        PolicyAct::DoNotAsk => false,
        PolicyAct::Distrust => {
            if let Some(device) = DeviceId::parse(&form.device) {
                services.factor_verifier.factors().distrust(who.account.id, device).await?;
            }
            return Ok(visit.see_other(PATH, Some(Flash::BrowserDistrusted)));
        }
    };
    if !services.sessions.is_confirmed(&who.session) {
        return Ok(visit.see_other(PATH, None));
    }
    let done = FactorOwner::confirmed(&visit, &services, &who).await?.ask(asks).await?;
    let flash = if asks { Flash::SecondStepOn } else { Flash::SecondStepOff };
    Ok(visit.see_other(PATH, done.then_some(flash)))
}

// The calls of the API.

#[derive(Serialize, ToSchema)]
#[schema(as = Factors, example = json!({ "methods": ["totp", "recovery"], "ask": true, "required": false, "trusted": [] }))]
struct FactorsBody {
    /// What can be proved now, the strongest first.
    #[schema(value_type = Vec<String>)]
    methods: Vec<Factor>,
    /// Whether the owner has sign-ins asked for one.
    ask: bool,
    /// Whether the account must have one; its sign-ins are then asked for it in any case.
    required: bool,
    /// By when one has to be set up. Past it, nothing else opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    setup_by: Option<String>,
    trusted: Vec<TrustedDevice>,
}

/// The second factors of the account
#[utoipa::path(
    get,
    path = "/api/v1/factors",
    operation_id = "showFactors",
    tag = "session",
    responses((status = 200, description = "What there is, and what it is asked for.", body = FactorsBody)),
)]
pub async fn api_show(Member(who): Member, services: ServicesData) -> WebResult {
    let (store, live) = (services.factor_verifier.factors(), services.live.snapshot());
    let policy = store.policy(who.account.id, &live.factors.required_of()).await?;
    Ok(HttpResponse::Ok().json(FactorsBody {
        methods: store.of(who.account.id).await?.methods(),
        ask: policy.asks,
        required: policy.required,
        setup_by: who.session.setup.map(|setup| Moment(setup.by).iso()),
        trusted: store.trusted(who.account.id, &live.factors).await?,
    }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SecondStepSwitch, example = json!({ "ask": true }))]
pub struct SwitchBody {
    ask: bool,
}

/// Turn the second step of sign-ins on or off
///
/// On needs a second factor. Off keeps the factors: they still confirm changes, and applications may ask for them.
#[utoipa::path(
    put,
    path = "/api/v1/factors",
    operation_id = "switchSecondStep",
    tag = "session",
    request_body = SwitchBody,
    responses((status = 204, description = "It is as asked for.")),
    extensions(("x-problems" = json!(["step-up-required"])))
)]
pub async fn api_switch(MemberCall { who, call, body }: MemberCall<SwitchBody>) -> WebResult {
    if !FactorOwner::confirmed(&call, &call.services, &who).await?.ask(body.ask).await? {
        return Err(Problem::wrong("ask", "Set a second factor up first.").into());
    }
    Ok(HttpResponse::NoContent().finish())
}

/// End the trust in a browser
#[utoipa::path(
    delete,
    path = "/api/v1/factors/trusted/{device}",
    operation_id = "distrustBrowser",
    tag = "session",
    params(("device" = String, Path, description = "Of GET /api/v1/factors.")),
    responses((status = 204, description = "Its next sign-in is asked for the second step. Also if it was not trusted.")),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn api_distrust(device: Path<String>, Member(who): Member, call: ApiRequest) -> WebResult {
    let device = DeviceId::parse(&device).ok_or(Problem::NotFound)?;
    call.services.factor_verifier.factors().distrust(who.account.id, device).await?;
    Ok(HttpResponse::NoContent().finish())
}
