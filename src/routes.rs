//! Every URL, and the order of the middleware.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::from_fn;
use actix_web::web::{Data, PayloadConfig, delete, post, put, resource, route, scope};
use actix_web::{App, Error, HttpRequest, HttpResponse, Resource, Route, guard};

use crate::web::console::{
    access as console_access, accounts, apps, confirm, events, limits, lookup, messages, overview, tokens,
};
use crate::web::http::headers::{self, SecurityHeaders};
use crate::web::http::observe::{self, RouteMetrics};
use crate::web::http::{Problem, Services, WebContext, access, assets, connections, extract};
use crate::web::{
    account, api_page, captcha, code, delivery_reports, gate, openapi, outbox, problem_page, programs,
    register, reset, session, sign_in, sign_in_by_code, status,
};

/// The application of one worker.
pub fn app(
    services: Data<Services>,
    edge: Data<WebContext>,
    security: Data<SecurityHeaders>,
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<impl MessageBody>,
        Error = Error,
        InitError = (),
    >,
> {
    let codes = edge.sends_codes;
    App::new()
        .app_data(services)
        .app_data(edge)
        .app_data(security)
        .app_data(RouteMetrics::nowhere())
        .configure(extract::configure)
        .service(
            scope("/api/v1")
                .service(calls("/captcha", "POST").route(post().to(captcha::issue)))
                .service(calls("/login", "POST").route(post().to(sign_in::api)))
                .service(calls("/logout", "POST").route(post().to(session::api_logout)))
                .service(calls("/register", "POST").route(post().to(register::api)))
                .service(calls("/session", "GET, HEAD").route(get().to(session::api_show)))
                .service(calls("/sms/codes", "POST").guard(by_code(codes)).route(post().to(code::api)))
                .service(
                    calls("/sms/login", "POST").guard(by_code(codes)).route(post().to(sign_in_by_code::api)),
                )
                .service(calls("/password/reset", "POST").guard(by_code(codes)).route(post().to(reset::api)))
                .service(
                    calls("/account/phone", "POST, DELETE")
                        .route(post().to(account::phone::api_set))
                        .route(delete().to(account::phone::api_remove)),
                )
                .service(calls("/limits/{name}/reserve", "POST").route(post().to(programs::limits::reserve)))
                .service(calls("/limits/{name}/peek", "POST").route(post().to(programs::limits::peek)))
                .service(calls("/limits/{name}/refund", "POST").route(post().to(programs::limits::refund)))
                .service(calls("/attempts", "POST").route(post().to(programs::attempts::ask)))
                .service(calls("/attempts/forgive", "POST").route(post().to(programs::attempts::forgive)))
                .service(calls("/attempts/{attempt}", "POST").route(post().to(programs::attempts::settle)))
                .service(
                    calls("/verifications", "POST")
                        .guard(by_code(codes))
                        .route(post().to(programs::verifications::start)),
                )
                .service(
                    calls("/verifications/{id}/check", "POST")
                        .guard(by_code(codes))
                        .route(post().to(programs::verifications::check)),
                )
                .service(
                    calls("/relay/logto/{name}", "POST")
                        .guard(by_code(codes))
                        .app_data(PayloadConfig::new(extract::BODY_LIMIT))
                        .route(post().to(programs::relay::logto)),
                )
                .service(
                    calls("/relay/supabase/{name}", "POST")
                        .guard(by_code(codes))
                        .app_data(PayloadConfig::new(programs::relay::LONGEST_HOOK))
                        .route(post().to(programs::relay::supabase)),
                )
                .service(
                    calls("/relay/{id}/outcome", "POST")
                        .guard(by_code(codes))
                        .route(post().to(programs::relay::outcome)),
                )
                .service(calls("/admin/confirm", "POST").route(post().to(confirm::api_submit)))
                .service(
                    calls("/admin/tokens", "GET, HEAD, POST")
                        .route(get().to(tokens::api_list))
                        .route(post().to(tokens::api_create)),
                )
                .service(
                    calls("/admin/subjects/{limit}/{subject}", "GET, HEAD, DELETE")
                        .app_data(PayloadConfig::new(extract::BODY_LIMIT))
                        .route(get().to(lookup::api::show))
                        .route(delete().to(lookup::api::clear)),
                )
                .service(
                    calls("/admin/disabled-passwords/{login}", "DELETE")
                        .app_data(PayloadConfig::new(extract::BODY_LIMIT))
                        .route(delete().to(lookup::api::enable_password)),
                )
                .service(calls("/admin/tokens/{id}", "DELETE").route(delete().to(tokens::api_revoke)))
                .service(calls("/admin/accounts", "GET, HEAD").route(get().to(accounts::api::list)))
                .service(calls("/admin/accounts/{id}", "GET, HEAD").route(get().to(accounts::api::show)))
                .service(
                    calls("/admin/accounts/{id}/groups", "GET, HEAD, PUT")
                        .route(get().to(accounts::api::groups))
                        .route(put().to(accounts::api::set_groups)),
                )
                .service(calls("/admin/accounts/{id}/{act}", "POST").route(post().to(accounts::api::act)))
                .service(calls("/admin/messages", "GET, HEAD").route(get().to(messages::api_list)))
                .service(calls("/admin/events", "GET, HEAD").route(get().to(events::api::list)))
                .service(
                    calls("/admin/limits", "GET, HEAD, PUT")
                        .route(get().to(limits::api_show))
                        .route(put().to(limits::api_save)),
                )
                .service(
                    calls("/admin/limits/history", "GET, HEAD").route(get().to(limits::history::api_history)),
                )
                .service(
                    calls("/admin/limits/preview", "POST").route(post().to(limits::preview::api_preview)),
                )
                .service(
                    calls("/admin/limits/rollback", "POST").route(post().to(limits::history::api_rollback)),
                )
                .service(
                    calls("/admin/access", "GET, HEAD, PUT")
                        .route(get().to(console_access::api_show))
                        .route(put().to(console_access::api_save)),
                )
                .service(
                    calls("/admin/apps", "GET, HEAD, PUT")
                        .route(get().to(apps::api_show))
                        .route(put().to(apps::api_save)),
                )
                .service(calls("/admin/apps/preview", "POST").route(post().to(apps::api_preview)))
                .service(calls("/admin/brakes", "GET, HEAD").route(get().to(messages::api_brakes)))
                .service(
                    calls("/admin/brakes/{prefix}", "DELETE")
                        .app_data(PayloadConfig::new(extract::BODY_LIMIT))
                        .route(delete().to(messages::api_lift)),
                ),
        )
        .service(resource("/api/authz/forward-auth").route(route().to(gate::authz::forward_auth)))
        .service(resource("/api/authz/auth-request").route(route().to(gate::authz::auth_request)))
        .service(resource("/api/authz/ext-authz/{path:.*}").route(route().to(gate::authz::ext_authz)))
        .service(calls("/.gatehouse/start", "GET, HEAD").route(get().to(gate::host::start)))
        .service(
            calls("/.gatehouse/callback", "GET").route(route().guard(guard::Get()).to(gate::host::callback)),
        )
        .service(
            calls("/.gatehouse/logout", "GET, HEAD, POST")
                .route(get().to(gate::host::show_logout))
                .route(post().to(gate::host::logout)),
        )
        .service(resource("/.gatehouse/forbidden").route(route().to(gate::host::forbidden)))
        .service(calls("/.gatehouse/static/{file}", "GET, HEAD").route(get().to(gate::host::asset)))
        .service(calls("/", "GET, HEAD").route(get().to(session::home)))
        .service(
            calls("/login", "GET, HEAD, POST")
                .route(get().to(sign_in::show))
                .route(post().to(sign_in::submit)),
        )
        .service(
            calls("/login/code", "GET, HEAD, POST")
                .guard(by_code(codes))
                .route(get().to(sign_in_by_code::show))
                .route(post().to(sign_in_by_code::submit)),
        )
        .service(
            calls("/password/reset", "GET, HEAD, POST")
                .guard(by_code(codes))
                .route(get().to(reset::show))
                .route(post().to(reset::submit)),
        )
        .service(calls("/logout", "POST").route(post().to(session::logout)))
        .service(
            calls("/register", "GET, HEAD, POST")
                .route(get().to(register::show))
                .route(post().to(register::submit)),
        )
        .service(calls("/account", "GET, HEAD").route(get().to(account::show)))
        .service(calls("/.well-known/change-password", "GET, HEAD").route(get().to(account::change_here)))
        .service(calls("/account/password", "POST").route(post().to(account::change_password)))
        .service(
            calls("/account/phone", "GET, HEAD, POST")
                .guard(by_code(codes))
                .route(get().to(account::phone::show))
                .route(post().to(account::phone::submit)),
        )
        .service(
            calls("/account/phone/remove", "GET, HEAD, POST")
                .route(get().to(account::phone::show_removal))
                .route(post().to(account::phone::remove)),
        )
        .service(
            calls("/account/export", "GET, HEAD, POST")
                .route(get().to(account::data::show_export))
                .route(post().to(account::data::export)),
        )
        .service(
            calls("/account/delete", "GET, HEAD, POST")
                .route(get().to(account::data::show_deletion))
                .route(post().to(account::data::delete)),
        )
        .service(calls("/account/sessions/revoke", "POST").route(post().to(account::revoke)))
        .service(calls("/account/sessions/revoke-others", "POST").route(post().to(account::revoke_others)))
        .service(
            calls("/admin/confirm", "GET, HEAD, POST")
                .route(get().to(confirm::show))
                .route(post().to(confirm::submit)),
        )
        .service(
            calls("/admin/tokens", "GET, HEAD, POST")
                .route(get().to(tokens::show))
                .route(post().to(tokens::create)),
        )
        .service(
            calls("/admin/tokens/revoke", "GET, HEAD, POST")
                .route(get().to(tokens::ask))
                .route(post().to(tokens::revoke)),
        )
        .service(
            calls("/admin/accounts", "GET, HEAD, POST")
                .route(get().to(accounts::show))
                .route(post().to(accounts::find)),
        )
        .service(calls("/admin/accounts/{id}", "GET, HEAD").route(get().to(accounts::one)))
        .service(calls("/admin/accounts/{id}/groups", "POST").route(post().to(accounts::set_groups)))
        .service(calls("/admin/accounts/{id}/{act}", "POST").route(post().to(accounts::act)))
        .service(calls("/admin", "GET, HEAD").route(get().to(overview::show)))
        .service(calls("/admin/events", "GET, HEAD").route(get().to(events::show)))
        .service(calls("/admin/events.csv", "GET, HEAD").route(get().to(events::export::csv)))
        .service(calls("/admin/events.json", "GET, HEAD").route(get().to(events::export::json)))
        .service(
            calls("/admin/access", "GET, HEAD, POST")
                .route(get().to(console_access::show))
                .route(post().to(console_access::submit)),
        )
        .service(calls("/admin/access/end", "POST").route(post().to(console_access::end)))
        .service(calls("/admin/apps", "GET, HEAD").route(get().to(apps::show)))
        .service(
            calls("/admin/apps/edit", "GET, HEAD, POST")
                .route(get().to(apps::show_editor))
                .route(post().to(apps::submit)),
        )
        .service(calls("/admin/limits", "GET, HEAD").route(get().to(limits::show)))
        .service(
            calls("/admin/limits/edit/{limit}", "GET, HEAD, POST")
                .route(get().to(limits::editor::show))
                .route(post().to(limits::editor::submit)),
        )
        .service(
            calls("/admin/limits/toml", "GET, HEAD, POST")
                .route(get().to(limits::editor::show_toml))
                .route(post().to(limits::editor::submit_toml)),
        )
        .service(calls("/admin/limits/history", "GET, HEAD").route(get().to(limits::history::show)))
        .service(calls("/admin/limits/history/{change}", "GET, HEAD").route(get().to(limits::history::ask)))
        .service(calls("/admin/limits/rollback", "POST").route(post().to(limits::history::rollback)))
        .service(
            calls("/admin/lookup", "GET, HEAD, POST")
                .route(get().to(lookup::show))
                .route(post().to(lookup::ask)),
        )
        .service(calls("/admin/lookup/clear", "POST").route(post().to(lookup::clear)))
        .service(calls("/admin/lookup/enable", "POST").route(post().to(lookup::enable)))
        .service(calls("/admin/messages", "GET, HEAD").route(get().to(messages::show)))
        .service(calls("/admin/brakes/lift", "POST").route(post().to(messages::lift)))
        .service(calls("/dev/outbox", "GET, HEAD").route(get().to(outbox::page)))
        .service(calls("/dev/outbox.json", "GET, HEAD").route(get().to(outbox::json)))
        .service(
            // No HEAD: a delivery report takes effect with any method.
            calls("/sms/reports/{gateway}", "GET, POST")
                .guard(by_code(codes))
                .app_data(PayloadConfig::new(delivery_reports::LONGEST))
                .route(route().guard(guard::Get()).to(delivery_reports::take))
                .route(post().to(delivery_reports::take)),
        )
        .service(calls("/wforce/", "POST").route(post().to(programs::wforce::take)))
        .service(calls("/captcha/{id}.png", "GET, HEAD").route(get().to(captcha::image)))
        .service(calls("/problems/{name}", "GET, HEAD").route(get().to(problem_page::show)))
        .service(calls("/api", "GET, HEAD").route(get().to(api_page::show)))
        .service(calls("/openapi.json", "GET, HEAD").route(get().to(openapi::serve)))
        .service(calls("/static/{file}", "GET, HEAD").route(get().to(assets::serve)))
        .service(calls("/favicon.ico", "GET, HEAD").route(get().to(assets::icon)))
        .service(calls("/healthz", "GET, HEAD").route(get().to(status::healthz)))
        .service(calls("/readyz", "GET, HEAD").route(get().to(status::readyz)))
        .service(calls("/metrics", "GET, HEAD").route(get().to(status::metrics)))
        .default_service(route().to(nothing_here))
        .wrap(from_fn(extract::refuse_with_pages))
        .wrap(from_fn(access::refuse_denied))
        .wrap(from_fn(gate::keep_apart))
        .wrap(from_fn(connections::within_time))
        .wrap(from_fn(headers::secure))
        .wrap(from_fn(observe::observe))
}

/// HEAD is answered as GET (RFC 9110, 9.3.2); the server leaves the body out.
fn get() -> Route {
    route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// For a path that exists only if this installation sends codes.
fn by_code(codes: bool) -> impl guard::Guard {
    guard::fn_guard(move |_| codes)
}

/// A path with the methods that it accepts.
fn calls(path: &'static str, allow: &'static str) -> Resource {
    resource(path).app_data(RouteMetrics::default()).default_service(route().to(
        move |request: HttpRequest| async move {
            match *request.method() {
                Method::OPTIONS => Ok(HttpResponse::NoContent().insert_header(("allow", allow)).finish()),
                _ => Err(Problem::MethodNotAllowed { allow }),
            }
        },
    ))
}

async fn nothing_here() -> Result<HttpResponse, Problem> {
    Err(Problem::NotFound)
}
