//! Every URL, and the order of what stands before all of them.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::from_fn;
use actix_web::web::{Data, PayloadConfig, delete, post, put, resource, route, scope};
use actix_web::{App, Error, HttpRequest, HttpResponse, Resource, Route, guard};

use crate::web::connections;
use crate::web::handlers::admin as console;
use crate::web::handlers::{
    account, captcha, code_login, confirm, login, messages, outbox, phone, register, reports, reset, session,
    tokens,
};
use crate::web::headers::{self, SecurityHeaders};
use crate::web::observe::{self, RouteMetrics};
use crate::web::services::Services;
use crate::web::visit::Edge;
use crate::web::{Problem, api, assets, extract, openapi, pages, status};

/// The application of one worker.
pub fn app(
    services: Data<Services>,
    edge: Data<Edge>,
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
                .service(calls("/captcha", "POST").route(post().to(api::captcha::issue)))
                .service(calls("/login", "POST").route(post().to(api::login::submit)))
                .service(calls("/logout", "POST").route(post().to(api::session::logout)))
                .service(calls("/register", "POST").route(post().to(api::register::submit)))
                .service(calls("/session", "GET, HEAD").route(get().to(api::session::show)))
                .service(calls("/sms/codes", "POST").guard(by_code(codes)).route(post().to(api::sms::send)))
                .service(calls("/sms/login", "POST").guard(by_code(codes)).route(post().to(api::sms::login)))
                .service(
                    calls("/password/reset", "POST")
                        .guard(by_code(codes))
                        .route(post().to(api::password::reset)),
                )
                .service(
                    calls("/account/phone", "POST, DELETE")
                        .route(post().to(api::account::set_phone))
                        .route(delete().to(api::account::remove_phone)),
                )
                .service(calls("/limits/{name}/reserve", "POST").route(post().to(api::limits::reserve)))
                .service(calls("/limits/{name}/peek", "POST").route(post().to(api::limits::peek)))
                .service(calls("/limits/{name}/refund", "POST").route(post().to(api::limits::refund)))
                .service(calls("/admin/confirm", "POST").route(post().to(api::confirm::submit)))
                .service(
                    calls("/admin/tokens", "GET, HEAD, POST")
                        .route(get().to(api::tokens::list))
                        .route(post().to(api::tokens::create)),
                )
                .service(
                    calls("/admin/subjects/{limit}/{subject}", "GET, HEAD, DELETE")
                        .app_data(PayloadConfig::new(extract::BODY_LIMIT))
                        .route(get().to(api::subjects::show))
                        .route(delete().to(api::subjects::clear)),
                )
                .service(
                    calls("/admin/disabled-passwords/{login}", "DELETE")
                        .app_data(PayloadConfig::new(extract::BODY_LIMIT))
                        .route(delete().to(api::subjects::enable_password)),
                )
                .service(calls("/admin/tokens/{id}", "DELETE").route(delete().to(api::tokens::revoke)))
                .service(calls("/admin/messages", "GET, HEAD").route(get().to(api::admin::messages)))
                .service(calls("/admin/events", "GET, HEAD").route(get().to(api::events::events)))
                .service(
                    calls("/admin/limits", "GET, HEAD, PUT")
                        .route(get().to(api::tuning::show))
                        .route(put().to(api::tuning::save)),
                )
                .service(calls("/admin/limits/history", "GET, HEAD").route(get().to(api::tuning::history)))
                .service(calls("/admin/limits/preview", "POST").route(post().to(api::preview::submit)))
                .service(calls("/admin/limits/rollback", "POST").route(post().to(api::tuning::rollback)))
                .service(calls("/admin/brakes", "GET, HEAD").route(get().to(api::admin::brakes)))
                .service(calls("/admin/brakes/{prefix}", "DELETE").route(delete().to(api::admin::lift))),
        )
        .service(calls("/", "GET, HEAD").route(get().to(session::home)))
        .service(
            calls("/login", "GET, HEAD, POST").route(get().to(login::show)).route(post().to(login::submit)),
        )
        .service(
            calls("/login/code", "GET, HEAD, POST")
                .guard(by_code(codes))
                .route(get().to(code_login::show))
                .route(post().to(code_login::submit)),
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
        .service(calls("/account/password", "POST").route(post().to(account::change_password)))
        .service(
            calls("/account/phone", "GET, HEAD, POST")
                .guard(by_code(codes))
                .route(get().to(phone::show))
                .route(post().to(phone::submit)),
        )
        .service(
            calls("/account/phone/remove", "GET, HEAD, POST")
                .route(get().to(phone::show_removal))
                .route(post().to(phone::remove)),
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
        .service(calls("/admin/tokens/revoke", "POST").route(post().to(tokens::revoke)))
        .service(calls("/admin", "GET, HEAD").route(get().to(console::overview::show)))
        .service(calls("/admin/events", "GET, HEAD").route(get().to(console::events::show)))
        .service(calls("/admin/limits", "GET, HEAD").route(get().to(console::limits::show)))
        .service(
            calls("/admin/limits/edit/{limit}", "GET, HEAD, POST")
                .route(get().to(console::edit::show))
                .route(post().to(console::edit::submit)),
        )
        .service(
            calls("/admin/limits/toml", "GET, HEAD, POST")
                .route(get().to(console::edit::show_toml))
                .route(post().to(console::edit::submit_toml)),
        )
        .service(calls("/admin/limits/history", "GET, HEAD").route(get().to(console::history::show)))
        .service(calls("/admin/limits/history/{change}", "GET, HEAD").route(get().to(console::history::ask)))
        .service(calls("/admin/limits/rollback", "POST").route(post().to(console::history::rollback)))
        .service(
            calls("/admin/lookup", "GET, HEAD, POST")
                .route(get().to(console::lookup::show))
                .route(post().to(console::lookup::ask)),
        )
        .service(calls("/admin/lookup/clear", "POST").route(post().to(console::lookup::clear)))
        .service(calls("/admin/lookup/enable", "POST").route(post().to(console::lookup::enable)))
        .service(calls("/admin/messages", "GET, HEAD").route(get().to(messages::show)))
        .service(calls("/admin/brakes/lift", "POST").route(post().to(messages::lift)))
        .service(calls("/dev/outbox", "GET, HEAD").route(get().to(outbox::page)))
        .service(calls("/dev/outbox.json", "GET, HEAD").route(get().to(outbox::json)))
        .service(
            // No HEAD: a report is taken, by whichever method it comes.
            calls("/sms/reports/{gateway}", "GET, POST")
                .guard(by_code(codes))
                .app_data(PayloadConfig::new(reports::LONGEST))
                .route(route().guard(guard::Get()).to(reports::take))
                .route(post().to(reports::take)),
        )
        .service(calls("/captcha/{id}.png", "GET, HEAD").route(get().to(captcha::image)))
        .service(calls("/problems/{name}", "GET, HEAD").route(get().to(pages::problem::show)))
        .service(calls("/openapi.json", "GET, HEAD").route(get().to(openapi::serve)))
        .service(calls("/static/{file}", "GET, HEAD").route(get().to(assets::serve)))
        .service(calls("/favicon.ico", "GET, HEAD").route(get().to(assets::icon)))
        .service(calls("/healthz", "GET, HEAD").route(get().to(status::healthz)))
        .service(calls("/readyz", "GET, HEAD").route(get().to(status::readyz)))
        .service(calls("/metrics", "GET, HEAD").route(get().to(status::metrics)))
        .default_service(route().to(nothing_here))
        .wrap(from_fn(connections::within_time))
        .wrap(from_fn(headers::secure))
        .wrap(from_fn(observe::observe))
}

/// HEAD is answered as GET (RFC 9110, 9.3.2); the server leaves the body out.
fn get() -> Route {
    route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// For a path that is there only if codes are sent.
fn by_code(codes: bool) -> impl guard::Guard {
    guard::fn_guard(move |_| codes)
}

/// A path with the methods that it takes.
fn calls(path: &'static str, allow: &'static str) -> Resource {
    resource(path).app_data(RouteMetrics::default()).default_service(route().to(
        move |request: HttpRequest| async move {
            match *request.method() {
                Method::OPTIONS => HttpResponse::NoContent().insert_header(("allow", allow)).finish(),
                _ => extract::answer(&request, &Problem::MethodNotAllowed { allow }),
            }
        },
    ))
}

async fn nothing_here(request: HttpRequest) -> HttpResponse {
    extract::answer(&request, &Problem::NotFound)
}
