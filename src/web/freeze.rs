//! `/freeze` and `POST /api/v1/freeze`: the code that an address gets when it is an account's no more.

use actix_web::HttpResponse;
use actix_web::web::Json;
use askama::Template;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::accounts::FreezeCode;
use crate::audit::{Action, AuditEvent, EventSubject, Outcome};
use crate::captcha::CaptchaForm;
use crate::web::captcha::CaptchaBlock;
use crate::web::form::{FormPage, FormReach, FormReply, GuardedFields, Notice, SentForm, form_page};
use crate::web::http::page::Requester;
use crate::web::http::{
    ApiRequest, Field, FieldErrors, Flash, Message, PageRequest, Problem, SecretField, Services,
    ServicesData, WebResult,
};

const PATH: &str = "/freeze";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct FreezeForm {
    code: SecretField,
    #[serde(flatten)]
    guarded: GuardedFields,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Freeze, example = json!({ "code": "7K3M-4H2Q-PXWA-6RTB" }))]
pub struct FreezeBody {
    /// From the mail to the earlier address. Spaces and dashes are ignored.
    #[schema(value_type = String)]
    code: SecretField,
}

fn parse(typed: &SecretField) -> Result<FreezeCode, Message> {
    FreezeCode::parse(typed.expose()).ok_or(Message::FreezeCodeWrong)
}

/// Freezes the account of the code. Its codes are of 80 bits, so that nothing limits guesses.
async fn freeze(sender: &Requester, services: &Services, code: &FreezeCode) -> Result<(), Problem> {
    let account = services.emails.freeze(code).await?;
    let account = account.ok_or_else(|| Problem::at(Field::Code, Message::FreezeCodeWrong))?;
    let audit = &services.audit;
    let (address, whose) = (sender.client.subject(), services.accounts.by_id(account).await?);
    audit.record(AuditEvent {
        account: whose.as_ref().map(|account| account.recorded()),
        address: Some(EventSubject::Address(address.as_ref())),
        ..AuditEvent::new(audit.now(), Action::Frozen, Outcome::Ok)
    });
    Ok(())
}

pub async fn show(visit: PageRequest) -> HttpResponse {
    FreezePage::new(&visit).respond(&visit)
}

pub async fn submit(visit: PageRequest, form: SentForm, services: ServicesData) -> WebResult {
    form.once(visit, services, FormReach::AnyInstance, submit_once).await
}

async fn submit_once(visit: PageRequest, form: FreezeForm, services: ServicesData) -> WebResult {
    let live = visit.live(&services);
    let show = |notice: Notice, captcha: CaptchaBlock| {
        let typed = form.code.expose().chars().take(40).collect();
        FreezePage { typed, ..FreezePage::new(&visit) }.again(notice, captcha).respond(&visit)
    };
    let form_of = CaptchaForm::PasswordReset;
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: form_of, show: &show };
    let read = |errors: &mut FieldErrors| errors.take(Field::Code, parse(&form.code));
    let code = reply.read(&form.guarded, read).await?;
    reply.told(freeze(&visit, &services, &code).await).await?;
    Ok(visit.see_other("/login", Some(Flash::Frozen)))
}

/// Freeze an account with the code that its earlier address got
///
/// Every session ends, and the account opens no other until its owner proves a second factor that it had before its address
/// changed, or sets a new password with a code to a number that it had a week before that, or an administrator unlocks it.
/// The password alone opens it only if it had neither.
#[utoipa::path(
    post,
    path = "/api/v1/freeze",
    operation_id = "freezeAccount",
    tag = "account",
    request_body = FreezeBody,
    responses((status = 204, description = "Frozen. Every session has ended.")),
    extensions(("x-problems" = json!([])))
)]
pub async fn api(body: Json<FreezeBody>, call: ApiRequest) -> WebResult {
    let code = parse(&body.code).map_err(|message| Problem::at(Field::Code, message))?;
    freeze(&call, &call.services, &code).await?;
    Ok(HttpResponse::NoContent().finish())
}

#[derive(Template, Clone)]
#[template(path = "pages/freeze.html")]
pub struct FreezePage {
    pub form: FormPage,
    /// The code as it was typed, if it was wrong.
    typed: String,
}

form_page!(FreezePage);

impl FreezePage {
    pub fn new(visit: &PageRequest) -> Self {
        Self { form: FormPage::new(visit, PATH, None, None), typed: String::new() }
    }

    fn focus(&self) -> &'static str {
        self.form.focus("code")
    }
}
