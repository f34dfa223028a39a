//! `/openapi.json`: the API described. Each call is annotated at its handler and each body at its type; here is
//! what they share. A test holds the document to the URL table, and answers to the document.

mod finish;
mod problems;

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse};
use serde_json::Value;
use utoipa::OpenApi;

use crate::web::console::{access, accounts, apps, confirm, events, limits, lookup, messages, tokens};
use crate::web::kit::problem::ProblemBody;
use crate::web::kit::public_body::PublicBody;
use crate::web::{
    account, captcha, code, machine, register, reset, session, sign_in, sign_in_by_code, status,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Gatehouse",
        description = "Bodies are JSON, with `Content-Type: application/json`; a field that is not listed is \
            refused. Refusals are problem details (RFC 9457); the page at their `type` says more. The session is a \
            cookie, as on the pages. A call that changes something is refused if its Origin, Referer or \
            Sec-Fetch-Site names another site."
    ),
    servers((url = "/")),
    tags(
        (name = "sign-in"),
        (name = "sms", description = "Codes by SMS."),
        (name = "session"),
        (name = "account"),
        (name = "limits", description = "Hits on custom limits, for other programs."),
        (name = "guard", description = "Attempts at the logins of other programs."),
        (name = "verify", description = "Codes by SMS, for other programs."),
        (name = "relay", description = "Codes by SMS that identity providers make themselves."),
        (name = "admin", description = "For administrators."),
        (name = "operations", description = "For operators and monitoring.")
    ),
    components(schemas(ProblemBody)),
    paths(
        captcha::call::issue,
        sign_in::call::submit,
        register::call::submit,
        code::call::send,
        sign_in_by_code::call::login,
        reset::call::reset,
        session::call::show,
        session::call::logout,
        account::phone_call::set_phone,
        account::phone_call::remove_phone,
        machine::limits::reserve,
        machine::limits::peek,
        machine::limits::refund,
        machine::attempts::ask,
        machine::attempts::settle,
        machine::attempts::forgive,
        machine::verifications::start,
        machine::verifications::check,
        machine::relay::logto,
        machine::relay::supabase,
        machine::relay::outcome,
        confirm::call::submit,
        access::api_show,
        access::api_save,
        apps::api_show,
        apps::api_save,
        apps::api_preview,
        limits::api_show,
        limits::api_save,
        limits::history::api_history,
        limits::history::api_rollback,
        limits::preview::api_preview,
        lookup::call::show,
        lookup::call::clear,
        lookup::call::enable_password,
        events::call::events,
        messages::call::messages,
        messages::call::brakes,
        messages::call::lift,
        accounts::call::list,
        accounts::call::show,
        accounts::call::act,
        accounts::call::groups,
        accounts::call::set_groups,
        tokens::call::list,
        tokens::call::create,
        tokens::call::revoke,
        status::healthz,
        status::readyz,
        status::metrics
    )
)]
struct Annotated;

pub static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let annotated = serde_json::to_value(Annotated::openapi()).expect("strings and numbers are JSON");
    finish::finish(annotated)
});

static BODY: LazyLock<PublicBody> =
    LazyLock::new(|| PublicBody::new("application/json", DOCUMENT.to_string()));

pub async fn serve(request: HttpRequest) -> HttpResponse {
    BODY.respond(&request, "no-cache")
}
