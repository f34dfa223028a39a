//! Every URL, and the order of the middleware.

use actix_web::body::MessageBody;
use actix_web::dev::{AppService, HttpServiceFactory, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::from_fn;
use actix_web::web::{Data, PayloadConfig, resource, route, scope};
use actix_web::{
    App, Error, FromRequest, Handler, HttpRequest, HttpResponse, Resource, Responder, Scope, guard,
};

use crate::web::console::{
    access as console_access, accounts, apps, confirm, event_search, events, factors, find, limits, lookup,
    messages, overview, tokens,
};
use crate::web::http::headers::{self, SecurityHeaders};
use crate::web::http::observe::{self, RouteMetrics};
use crate::web::http::{
    Problem, Services, WebContext, access, assets, connections, error_page, extract, pipeline,
};
use crate::web::{
    account, api_page, captcha, code, delivery_reports, gate, oidc, openapi, outbox, passkeys, programs,
    register, reset, second_step, session, sign_in, sign_in_by_code, status,
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
        .service(api(codes))
        .service(resource("/api/authz/forward-auth").route(route().to(gate::authz::forward_auth)))
        .service(resource("/api/authz/auth-request").route(route().to(gate::authz::auth_request)))
        .service(resource("/api/authz/ext-authz/{path:.*}").route(route().to(gate::authz::ext_authz)))
        .service(at("/.gatehouse/start").on(GET, gate::host::start))
        .service(at("/.gatehouse/callback").on(GET_ALONE, gate::host::callback))
        .service(at("/.gatehouse/logout").on(GET, gate::host::show_logout).on(POST, gate::host::logout))
        .service(resource("/.gatehouse/forbidden").route(route().to(gate::host::forbidden)))
        .service(at("/.gatehouse/static/{file}").on(GET, gate::host::asset))
        .service(at("/").on(GET, session::home))
        .service(at("/login").on(GET, sign_in::show).on(POST, sign_in::submit))
        .service(
            at("/login/code").only_if(codes).on(GET, sign_in_by_code::show).on(POST, sign_in_by_code::submit),
        )
        .service(at("/password/reset").only_if(codes).on(GET, reset::show).on(POST, reset::submit))
        .service(at("/login/factor").on(GET, second_step::show).on(POST, second_step::submit))
        .service(at("/logout").on(POST, session::logout))
        .service(at("/register").on(GET, register::show).on(POST, register::submit))
        .service(at("/confirm").on(GET, account::confirm::show).on(POST, account::confirm::submit))
        .service(at("/account").on(GET, account::show))
        .service(at("/.well-known/change-password").on(GET, account::change_here))
        .service(at("/account/password").on(POST, account::change_password))
        .service(
            at("/account/phone")
                .only_if(codes)
                .on(GET, account::phone::show)
                .on(POST, account::phone::submit),
        )
        .service(
            at("/account/phone/remove")
                .on(GET, account::phone::show_removal)
                .on(POST, account::phone::remove),
        )
        .service(
            at("/account/factors/code")
                .only_if(codes)
                .on(GET, account::factor_code::show)
                .on(POST, account::factor_code::submit),
        )
        .service(at("/account/factors").on(GET, account::factors::show).on(POST, account::factors::submit))
        .service(at("/account/factors/policy").on(POST, account::factor_policy::submit))
        .service(at("/account/export").on(GET, account::data::show_export).on(POST, account::data::export))
        .service(at("/account/delete").on(GET, account::data::show_deletion).on(POST, account::data::delete))
        .service(at("/account/apps/revoke").on(POST, account::apps::revoke))
        .service(at("/account/sessions/revoke").on(POST, account::revoke))
        .service(at("/account/sessions/revoke-others").on(POST, account::revoke_others))
        .service(at("/admin/confirm").on(GET, confirm::show).on(POST, confirm::submit))
        .service(at("/admin/tokens").on(GET, tokens::show).on(POST, tokens::create))
        .service(at("/admin/tokens/revoke").on(GET, tokens::ask).on(POST, tokens::revoke))
        .service(at("/admin/accounts").on(GET, accounts::list::show).on(POST, accounts::list::find))
        .service(at("/admin/accounts/chosen").on(POST, accounts::list::act_on_chosen))
        .service(at("/admin/groups").on(GET, accounts::groups::show))
        .service(at("/admin/groups/{name}").on(GET, accounts::groups::one))
        .service(at("/admin/accounts/{id}").on(GET, accounts::one))
        .service(at("/admin/accounts/{id}/groups").on(POST, accounts::set_groups))
        .service(at("/admin/accounts/{id}/profile").on(POST, accounts::set_profile))
        .service(at("/admin/accounts/{id}/{act}").on(POST, accounts::act))
        .service(at("/admin/find").on(GET, find::show).on(POST, find::find))
        .service(at("/admin").on(GET, overview::show))
        .service(at("/admin/events").on(GET, events::show).on(POST, event_search::search))
        .service(at("/admin/events.csv").on(GET, events::export::csv))
        .service(at("/admin/events.json").on(GET, events::export::json))
        .service(at("/admin/access").on(GET, console_access::show).on(POST, console_access::submit))
        .service(at("/admin/access/end").on(POST, console_access::end))
        .service(at("/admin/apps").on(GET, apps::show))
        .service(at("/admin/apps/form").on(GET, apps::form::show).on(POST, apps::form::submit))
        .service(at("/admin/apps/edit").on(GET, apps::show_editor).on(POST, apps::submit))
        .service(at("/admin/factors").on(GET, factors::show).on(POST, factors::submit))
        .service(at("/admin/limits").on(GET, limits::show))
        .service(
            at("/admin/limits/edit/{limit}").on(GET, limits::editor::show).on(POST, limits::editor::submit),
        )
        .service(
            at("/admin/limits/toml").on(GET, limits::editor::show_toml).on(POST, limits::editor::submit_toml),
        )
        .service(at("/admin/limits/history").on(GET, limits::history::show))
        .service(at("/admin/limits/history/{change}").on(GET, limits::history::ask))
        .service(at("/admin/limits/rollback").on(POST, limits::history::rollback))
        .service(at("/admin/lookup").on(GET, lookup::show).on(POST, lookup::ask))
        .service(at("/admin/lookup/clear").on(POST, lookup::clear))
        .service(at("/admin/lookup/enable").on(POST, lookup::enable))
        .service(at("/admin/messages").on(GET, messages::show))
        .service(at("/admin/brakes/lift").on(POST, messages::lift))
        .service(at("/dev/outbox").on(GET, outbox::page))
        .service(at("/dev/outbox.json").on(GET, outbox::json))
        .service(
            // No HEAD: a delivery report takes effect with any method.
            at("/sms/reports/{gateway}")
                .only_if(codes)
                .reads(delivery_reports::LONGEST)
                .on(GET_ALONE, delivery_reports::take)
                .on(POST, delivery_reports::take),
        )
        .service(at("/wforce/").on(GET_ALONE, programs::wforce::take).on(POST, programs::wforce::take))
        .service(at("/.well-known/openid-configuration").on(GET, oidc::discovery::show))
        .service(
            at("/oauth/authorize")
                .reads(extract::BODY_LIMIT)
                .on(GET, oidc::authorize::show)
                .on(POST, oidc::authorize::take),
        )
        .service(at("/oauth/continue").on(GET, oidc::authorize::go_on))
        .service(at("/oauth/consent").on(POST, oidc::authorize::decide))
        .service(at("/oauth/keys").on(GET, oidc::keys::show))
        .service(
            at("/oauth/token")
                .reads(extract::BODY_LIMIT)
                .on(POST, oidc::token::issue)
                .on(OPTIONS, oidc::preflight),
        )
        .service(
            at("/oauth/userinfo")
                .on(GET, oidc::userinfo::show)
                .on(POST, oidc::userinfo::show)
                .on(OPTIONS, oidc::preflight),
        )
        .service(
            at("/oauth/revoke")
                .reads(extract::BODY_LIMIT)
                .on(POST, oidc::token::revoke)
                .on(OPTIONS, oidc::preflight),
        )
        .service(at("/oauth/introspect").reads(extract::BODY_LIMIT).on(POST, oidc::token::introspect))
        .service(
            at("/oauth/logout")
                .reads(extract::BODY_LIMIT)
                .on(GET, oidc::logout::show)
                .on(POST, oidc::logout::submit),
        )
        .service(at("/captcha/{id}.png").on(GET, captcha::image))
        .service(at("/problems/{name}").on(GET, error_page::show_problem))
        .service(at("/api").on(GET, api_page::show))
        .service(at("/openapi.json").on(GET, openapi::serve))
        .service(at("/static/{file}").on(GET, assets::serve))
        .service(at("/favicon.ico").on(GET, assets::icon))
        .service(at("/healthz").on(GET, status::healthz))
        .service(at("/readyz").on(GET, status::readyz))
        .service(at("/metrics").on(GET, status::metrics))
        .default_service(route().to(nothing_here))
        .wrap(from_fn(extract::refuse_with_pages))
        .wrap(from_fn(access::refuse_denied))
        .wrap(from_fn(gate::keep_apart))
        .wrap(from_fn(connections::within_time))
        .wrap(from_fn(headers::secure))
        .wrap(from_fn(observe::observe))
        .wrap(from_fn(pipeline::one_at_a_time))
}

/// What programs call.
fn api(codes: bool) -> Scope {
    scope("/api/v1")
        .service(at("/captcha").on(POST, captcha::issue))
        .service(at("/login").on(POST, sign_in::api))
        .service(at("/login/factor").on(POST, second_step::api))
        .service(at("/logout").on(POST, session::api_logout))
        .service(at("/register").on(POST, register::api))
        .service(at("/session").on(GET, session::api_show))
        .service(at("/sms/codes").only_if(codes).on(POST, code::api))
        .service(at("/sms/login").only_if(codes).on(POST, sign_in_by_code::api))
        .service(at("/password/reset").only_if(codes).on(POST, reset::api))
        .service(
            at("/account/phone").on(POST, account::phone::api_set).on(DELETE, account::phone::api_remove),
        )
        .service(at("/account/apps").on(GET, account::apps::api_list))
        .service(at("/account/apps/{client_id}").on(DELETE, account::apps::api_revoke))
        .service(at("/confirm").on(POST, account::factors::api_confirm))
        .service(
            at("/totp")
                .on(POST, account::factors::api_propose)
                .on(PUT, account::factors::api_use)
                .on(DELETE, account::factors::api_remove),
        )
        .service(
            at("/factors")
                .on(GET, account::factor_policy::api_show)
                .on(PUT, account::factor_policy::api_switch),
        )
        .service(at("/factors/trusted/{device}").on(DELETE, account::factor_policy::api_distrust))
        .service(at("/recovery-codes").on(POST, account::factors::api_renew))
        .service(at("/passkeys/challenge").on(POST, account::passkeys::api_challenge))
        .service(at("/passkeys/login").on(POST, passkeys::api_login))
        .service(at("/passkeys").on(GET, account::passkeys::api_list).on(POST, account::passkeys::api_add))
        .service(at("/passkeys/{id}").on(DELETE, account::passkeys::api_remove))
        .service(at("/limits/{name}/reserve").on(POST, programs::limits::reserve))
        .service(at("/limits/{name}/peek").on(POST, programs::limits::peek))
        .service(at("/limits/{name}/refund").on(POST, programs::limits::refund))
        .service(at("/attempts").on(POST, programs::attempts::ask))
        .service(at("/attempts/forgive").on(POST, programs::attempts::forgive))
        .service(at("/attempts/{attempt}").on(POST, programs::attempts::settle))
        .service(at("/verifications").only_if(codes).on(POST, programs::verifications::start))
        .service(at("/verifications/{id}/check").only_if(codes).on(POST, programs::verifications::check))
        .service(
            at("/relay/logto/{name}")
                .only_if(codes)
                .reads(extract::BODY_LIMIT)
                .on(POST, programs::relay::logto),
        )
        .service(
            at("/relay/supabase/{name}")
                .only_if(codes)
                .reads(programs::relay::LONGEST_HOOK)
                .on(POST, programs::relay::supabase),
        )
        .service(at("/relay/{id}/outcome").only_if(codes).on(POST, programs::relay::outcome))
        .service(at("/admin/confirm").on(POST, confirm::api_submit))
        .service(at("/admin/tokens").on(GET, tokens::api_list).on(POST, tokens::api_create))
        .service(
            at("/admin/subjects/{limit}/{subject}")
                .reads(extract::BODY_LIMIT)
                .on(GET, lookup::api::show)
                .on(DELETE, lookup::api::clear),
        )
        .service(
            at("/admin/disabled-passwords/{login}")
                .reads(extract::BODY_LIMIT)
                .on(DELETE, lookup::api::enable_password),
        )
        .service(at("/admin/tokens/{id}").on(DELETE, tokens::api_revoke))
        .service(at("/admin/accounts").on(GET, accounts::api::list))
        .service(at("/admin/accounts/{id}").on(GET, accounts::api::show))
        .service(
            at("/admin/accounts/{id}/groups")
                .on(GET, accounts::api::groups)
                .on(PUT, accounts::api::set_groups),
        )
        .service(at("/admin/accounts/{id}/profile").on(PUT, accounts::api::set_profile))
        .service(at("/admin/accounts/{id}/factors").on(DELETE, accounts::api::clear_factors))
        .service(at("/admin/accounts/{id}/{act}").on(POST, accounts::api::act))
        .service(at("/admin/messages").on(GET, messages::api_list))
        .service(at("/admin/events").on(GET, events::api::list))
        .service(at("/admin/limits").on(GET, limits::api_show).on(PUT, limits::api_save))
        .service(at("/admin/limits/history").on(GET, limits::history::api_history))
        .service(at("/admin/limits/preview").on(POST, limits::preview::api_preview))
        .service(at("/admin/limits/rollback").on(POST, limits::history::api_rollback))
        .service(at("/admin/access").on(GET, console_access::api_show).on(PUT, console_access::api_save))
        .service(at("/admin/apps").on(GET, apps::api_show).on(PUT, apps::api_save))
        .service(at("/admin/apps/preview").on(POST, apps::api_preview))
        .service(at("/admin/brakes").on(GET, messages::api_brakes))
        .service(at("/admin/brakes/{prefix}").reads(extract::BODY_LIMIT).on(DELETE, messages::api_lift))
}

/// HEAD is answered as GET (RFC 9110, 9.3.2); the server leaves the body out.
const GET: &[Method] = &[Method::GET, Method::HEAD];
const GET_ALONE: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const PUT: &[Method] = &[Method::PUT];
const OPTIONS: &[Method] = &[Method::OPTIONS];
const DELETE: &[Method] = &[Method::DELETE];

/// A path with its methods; any other is told which there are.
struct Path {
    resource: Resource,
    allow: Vec<&'static str>,
}

fn at(path: &'static str) -> Path {
    Path { resource: resource(path).app_data(RouteMetrics::default()), allow: Vec::new() }
}

impl Path {
    fn on<F, Args>(mut self, methods: &'static [Method], handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.allow.extend(methods.iter().map(Method::as_str));
        let asked = guard::fn_guard(move |request| methods.contains(&request.head().method));
        Self { resource: self.resource.route(route().guard(asked).to(handler)), ..self }
    }

    /// It exists only then.
    fn only_if(self, exists: bool) -> Self {
        Self { resource: self.resource.guard(guard::fn_guard(move |_| exists)), ..self }
    }

    /// At most so many bytes, where a handler takes them as they come.
    fn reads(self, bytes: usize) -> Self {
        Self { resource: self.resource.app_data(PayloadConfig::new(bytes)), ..self }
    }
}

impl HttpServiceFactory for Path {
    fn register(self, config: &mut AppService) {
        let allow = self.allow.join(", ");
        let other = move |request: HttpRequest| {
            let allow = allow.clone();
            async move {
                match *request.method() {
                    Method::OPTIONS => Ok(HttpResponse::NoContent().insert_header(("allow", allow)).finish()),
                    _ => Err(Problem::MethodNotAllowed { allow }),
                }
            }
        };
        self.resource.default_service(route().to(other)).register(config);
    }
}

async fn nothing_here() -> Result<HttpResponse, Problem> {
    Err(Problem::NotFound)
}
