//! Every URL: one row for each of its methods, which says who may call it. And the order of the middleware.

use std::rc::Rc;
use std::sync::LazyLock;

use actix_web::body::MessageBody;
use actix_web::dev::{AppService, HttpServiceFactory, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::from_fn;
use actix_web::web::{Data, PayloadConfig, resource, route, scope};
use actix_web::{App, Error, HttpRequest, HttpResponse};
use serde_json::Value;

use crate::accounts::AdminScope::{
    AccessWrite, AccountsWrite, AppsWrite, EventsRead, LimitsRead, LimitsWrite, SubjectsClear,
};
use crate::accounts::ProgramScope::{Guard, Relay, Verify};
use crate::audit::Action;
use crate::codes::Channel;
use crate::web::console::{
    access as console_access, accounts, apps, confirm, event_search, events, factors, find, invitations,
    limits, lookup, messages, origins, overview, tokens,
};
use crate::web::http::extract::{self, BODY_LIMIT};
use crate::web::http::headers::{self, SecurityHeaders};
use crate::web::http::observe::{self, RouteMetrics};
use crate::web::http::row::Caller::{self, *};
use crate::web::http::row::{AccessKind, Origin, Row, RowsHere, WhileDenied};
use crate::web::http::{Problem, Services, WebContext, access, assets, connections, error_page, pipeline};
use crate::web::openapi::ApiDocument;
use crate::web::{
    account, api_page, captcha, code, delivery_reports, freeze, gate, oidc, openapi, outbox, passkeys,
    programs, register, reset, second_step, session, sign_in, sign_in_by_code, status, welcome,
};

/// A page of the console, or a form of it that asks for the password where it needs one. A call that no token opens.
const CONSOLE: Caller = Admin(AccessKind::Read, &[]);
/// A form or a call that takes a password that was confirmed recently.
const CONFIRMED: Caller = Admin(AccessKind::Change, &[]);
const CONFIRMING: Caller = Admin(AccessKind::Try, &[]);
const READ_LIMITS: Caller = Admin(AccessKind::Read, &[LimitsRead, LimitsWrite]);
const TRY_LIMITS: Caller = Admin(AccessKind::Try, &[LimitsRead, LimitsWrite]);
const SAVE_LIMITS: Caller = Admin(AccessKind::Change, &[LimitsWrite]);
const READ_ACCESS: Caller = Admin(AccessKind::Read, &[LimitsRead, AccessWrite]);
const SAVE_ACCESS: Caller = Admin(AccessKind::Change, &[AccessWrite]);
const READ_APPS: Caller = Admin(AccessKind::Read, &[LimitsRead, AppsWrite]);
const SAVE_APPS: Caller = Admin(AccessKind::Change, &[AppsWrite]);
/// A trial names accounts.
const TRY_APPS: Caller = Admin(AccessKind::Try, &[AppsWrite]);
const READ_EVENTS: Caller = Admin(AccessKind::Read, &[EventsRead]);
const READ_SUBJECTS: Caller = Admin(AccessKind::Read, &[EventsRead, SubjectsClear]);
/// What lets somebody in again, or messages through.
const CLEAR_SUBJECTS: Caller = Admin(AccessKind::Change, &[SubjectsClear]);
const READ_ACCOUNTS: Caller = Admin(AccessKind::Read, &[AccountsWrite]);
const CHANGE_ACCOUNTS: Caller = Admin(AccessKind::Change, &[AccountsWrite]);

/// The row of a call of the API, from its annotation: `call!(Member, account::apps::api_list)`.
macro_rules! call {
    ($caller:expr, $($path:ident)::+) => { call!(@ $caller, [] $($path)::+) };
    (@ $caller:expr, [$($module:ident)*] $next:ident :: $($rest:ident)::+) => {
        call!(@ $caller, [$($module)* $next] $($rest)::+)
    };
    (@ $caller:expr, [$($module:ident)*] $handler:ident) => {
        pastey::paste! { Row::call::<$($module::)*[<__path_ $handler>], _, _>($caller, $($module::)*$handler) }
    };
}

/// The table. The first path that fits a request is the one that it is for, and each before it is compared: what a proxy
/// asks at every request of an application comes first.
pub fn table() -> Vec<Row> {
    let rows = at_hosts().into_iter().map(Row::spared).chain(sign_in_pages());
    let rows = rows.chain(account_pages().into_iter().map(Row::known));
    let rows = rows.chain(console().into_iter().map(Row::known)).chain(calls());
    let rows = rows.chain(admin_calls().into_iter().map(Row::known)).chain(program_calls());
    rows.chain(provider()).chain(others()).collect()
}

const POST: &[Method] = &[Method::POST];
const OPTIONS: &[Method] = &[Method::OPTIONS];
/// Without HEAD: it takes effect with any method.
const GET_ALONE: &[Method] = &[Method::GET];
const ANY: &[Method] = &[];

fn sign_in_pages() -> Vec<Row> {
    vec![
        Row::get("/", Anyone, session::home).known(),
        Row::get("/login", Anyone, sign_in::show).known(),
        Row::form("/login", Anyone, sign_in::submit).attempts(Action::SignIn).known(),
        Row::get("/login/code", Anyone, sign_in_by_code::show).with_codes(),
        Row::form("/login/code", Anyone, sign_in_by_code::submit).with_codes(),
        Row::get("/freeze", Anyone, freeze::show),
        Row::form("/freeze", Anyone, freeze::submit),
        Row::get("/password/reset", Anyone, reset::show).with_codes_or_mail(),
        Row::form("/password/reset", Anyone, reset::submit).with_codes_or_mail(),
        Row::get("/login/factor", HalfSignIn, second_step::show).known(),
        Row::form("/login/factor", HalfSignIn, second_step::submit).known(),
        Row::form("/logout", Anyone, session::logout).on("/account").known(),
        Row::get("/register", Anyone, register::show),
        Row::form("/register", Anyone, register::submit).attempts(Action::Register),
        Row::get("/welcome/{token}", Anyone, welcome::show),
        Row::form("/welcome/{token}", Anyone, welcome::submit).attempts(Action::Register),
    ]
}

fn account_pages() -> Vec<Row> {
    vec![
        Row::get("/confirm", Session, account::confirm::show).for_setup(),
        Row::form("/confirm", Session, account::confirm::submit).for_setup(),
        Row::get("/account", Session, account::show),
        Row::form("/account/password", Session, account::change_password).on("/account"),
        Row::get("/account/email", Member, account::email::show).with_mail(),
        Row::form("/account/email", Member, account::email::submit).with_mail(),
        Row::get("/account/email/remove", Member, account::email::show_removal),
        Row::form("/account/email/remove", Member, account::email::remove),
        Row::get("/account/phone", Member, account::phone::show).with_codes(),
        Row::form("/account/phone", Member, account::phone::submit).with_codes(),
        Row::get("/account/phone/remove", Member, account::phone::show_removal),
        Row::form("/account/phone/remove", Member, account::phone::remove),
        Row::get("/account/factors/code", Member, account::factor_code::show).with_codes().for_setup(),
        Row::form("/account/factors/code", Member, account::factor_code::submit)
            .with_codes()
            .for_setup()
            .on("/account/factors"),
        Row::get("/account/factors", Member, account::factors::show).for_setup(),
        Row::form("/account/factors", Member, account::factors::submit).for_setup(),
        Row::form("/account/factors/policy", Member, account::factor_policy::submit)
            .for_setup()
            .on("/account/factors"),
        Row::get("/account/export", Member, account::data::show_export),
        Row::form("/account/export", Member, account::data::export),
        Row::get("/account/delete", Member, account::data::show_deletion),
        Row::form("/account/delete", Member, account::data::delete),
        Row::form("/account/apps/revoke", Member, account::apps::revoke).on("/account"),
        Row::form("/account/sessions/revoke", Member, account::revoke).on("/account"),
        Row::form("/account/sessions/revoke-others", Member, account::revoke_others).on("/account"),
    ]
}

fn console() -> Vec<Row> {
    vec![
        Row::get("/admin/confirm", CONSOLE, confirm::show),
        Row::form("/admin/confirm", CONFIRMING, confirm::submit),
        Row::get("/admin/tokens", CONSOLE, tokens::show),
        Row::form("/admin/tokens", CONFIRMED, tokens::create),
        Row::get("/admin/tokens/revoke", CONSOLE, tokens::ask),
        Row::form("/admin/tokens/revoke", CONFIRMED, tokens::revoke).on("/admin/tokens"),
        Row::get("/admin/accounts", CONSOLE, accounts::list::show),
        Row::form("/admin/accounts", CONSOLE, accounts::list::find),
        Row::form("/admin/accounts/chosen", CONSOLE, accounts::list::act_on_chosen).on("/admin/accounts"),
        Row::get("/admin/groups", CONSOLE, accounts::groups::show),
        Row::get("/admin/groups/{name}", CONSOLE, accounts::groups::one),
        Row::get("/admin/accounts/{id}", CONSOLE, accounts::one),
        Row::form("/admin/accounts/{id}/groups", CONSOLE, accounts::set_groups).on("/admin/accounts"),
        Row::form("/admin/accounts/{id}/profile", CONSOLE, accounts::set_profile).on("/admin/accounts"),
        Row::form("/admin/accounts/{id}/unlock", CONSOLE, accounts::unlock).on("/admin/accounts"),
        Row::form("/admin/accounts/{id}/invite", CONSOLE, invitations::again).on("/admin/accounts"),
        Row::form("/admin/accounts/{id}/{act}", CONSOLE, accounts::act).on("/admin/accounts"),
        Row::get("/admin/invitations", CONSOLE, invitations::show),
        Row::form("/admin/invitations", CONSOLE, invitations::submit),
        Row::form("/admin/invitations/revoke", CONSOLE, invitations::revoke).on("/admin/invitations"),
        Row::get("/admin/find", CONSOLE, find::show),
        Row::form("/admin/find", CONSOLE, find::find),
        Row::get("/admin", CONSOLE, overview::show),
        Row::get("/admin/events", CONSOLE, events::show),
        Row::form("/admin/events", CONSOLE, event_search::search),
        Row::get("/admin/events.csv", CONSOLE, events::export::csv),
        Row::get("/admin/events.json", CONSOLE, events::export::json),
        Row::get("/admin/access", CONSOLE, console_access::show),
        Row::form("/admin/access", CONSOLE, console_access::submit),
        Row::form("/admin/access/end", CONSOLE, console_access::end).on("/admin/access"),
        Row::get("/admin/apps", CONSOLE, apps::show),
        Row::get("/admin/apps/form", CONSOLE, apps::form::show),
        Row::form("/admin/apps/form", CONSOLE, apps::form::submit),
        Row::get("/admin/apps/client", CONSOLE, apps::client::show),
        Row::form("/admin/apps/client", CONSOLE, apps::client::submit),
        Row::get("/admin/apps/edit", CONSOLE, apps::show_editor),
        Row::form("/admin/apps/edit", CONSOLE, apps::submit),
        Row::get("/admin/factors", CONSOLE, factors::show),
        Row::form("/admin/factors", CONSOLE, factors::submit),
        Row::get("/admin/limits", CONSOLE, limits::show),
        Row::get("/admin/limits/edit/{limit}", CONSOLE, limits::editor::show),
        Row::form("/admin/limits/edit/{limit}", CONSOLE, limits::editor::submit),
        Row::get("/admin/limits/toml", CONSOLE, limits::editor::show_toml),
        Row::form("/admin/limits/toml", CONSOLE, limits::editor::submit_toml),
        Row::get("/admin/limits/history", CONSOLE, limits::history::show),
        Row::get("/admin/limits/history/{change}", CONSOLE, limits::history::ask),
        Row::form("/admin/limits/rollback", CONSOLE, limits::history::rollback).on("/admin/limits/history"),
        Row::get("/admin/lookup", CONSOLE, lookup::show),
        Row::form("/admin/lookup", CONSOLE, lookup::ask),
        Row::form("/admin/lookup/clear", CONSOLE, lookup::clear).on("/admin/lookup"),
        Row::form("/admin/lookup/enable", CONSOLE, lookup::enable).on("/admin/lookup"),
        Row::form("/admin/lookup/allow-mail", CONSOLE, lookup::allow_mail).on("/admin/lookup"),
        Row::get("/admin/messages", CONSOLE, messages::show),
        Row::form("/admin/messages", CONSOLE, messages::find),
        Row::form("/admin/brakes/lift", CONSOLE, messages::lift).on("/admin/messages"),
    ]
}

/// Calls of the API for people.
fn calls() -> Vec<Row> {
    vec![
        call!(Anyone, captcha::issue).known(),
        call!(Anyone, sign_in::api).attempts(Action::SignIn).known(),
        call!(HalfSignIn, second_step::api).known(),
        call!(MaybeMember, session::api_logout).known(),
        call!(Anyone, register::api).attempts(Action::Register),
        call!(Anyone, welcome::api).attempts(Action::Register),
        call!(Session, session::api_show).known(),
        // Codes that prove a number to the account of a session are sent to who is refused, too.
        call!(MaybeMember, code::calls::send_by_sms)
            .with_codes()
            .for_setup()
            .attempts(Action::Send)
            .while_denied(WhileDenied::KnownSession),
        call!(Anyone, sign_in_by_code::api).with_codes().attempts(Action::Guess),
        call!(Anyone, freeze::api),
        call!(Anyone, reset::api).with_codes_or_mail(),
        call!(MaybeMember, code::calls::send_by_mail)
            .with_mail()
            .attempts(Action::Mail)
            .while_denied(WhileDenied::KnownSession),
        call!(Member, account::email::api_set).with_mail().known(),
        call!(Member, account::email::api_remove).known(),
        call!(Member, account::phone::api_set).with_codes().known(),
        call!(Member, account::phone::api_remove).known(),
        call!(Member, account::apps::api_list).known(),
        call!(Member, account::apps::api_revoke).known(),
        call!(Member, account::factors::api_confirm).known().for_setup(),
        call!(Member, account::factors::api_propose).known().for_setup(),
        call!(Member, account::factors::api_use).known().for_setup(),
        call!(Member, account::factors::api_remove).known().for_setup(),
        call!(Member, account::factor_policy::api_show).known().for_setup(),
        call!(Member, account::factor_policy::api_switch).known().for_setup(),
        call!(Member, account::factor_policy::api_distrust).known().for_setup(),
        call!(Member, account::factors::api_renew).known(),
        call!(MaybeMember, account::passkeys::api_challenge).known().for_setup(),
        call!(Anyone, passkeys::api_login).known(),
        call!(Member, account::passkeys::api_list).known().for_setup(),
        call!(Member, account::passkeys::api_add).known().for_setup(),
        call!(Member, account::passkeys::api_remove).known().for_setup(),
    ]
}

/// Calls of the API for administrators, and for programs with their tokens.
fn admin_calls() -> Vec<Row> {
    vec![
        call!(CONFIRMING, confirm::api_submit),
        call!(CONSOLE, tokens::api_list),
        call!(CONFIRMED, tokens::api_create),
        call!(READ_SUBJECTS, lookup::api::show),
        call!(CLEAR_SUBJECTS, lookup::api::clear).reads(BODY_LIMIT),
        call!(CLEAR_SUBJECTS, lookup::api::allow_mail).reads(BODY_LIMIT),
        call!(CHANGE_ACCOUNTS, lookup::api::enable_password).reads(BODY_LIMIT),
        call!(CONFIRMED, tokens::api_revoke),
        call!(READ_ACCOUNTS, accounts::api::list),
        call!(CHANGE_ACCOUNTS, invitations::api_create),
        call!(READ_ACCOUNTS, accounts::api::show),
        call!(READ_ACCOUNTS, accounts::api::groups),
        call!(CHANGE_ACCOUNTS, accounts::api::set_groups),
        call!(CHANGE_ACCOUNTS, accounts::api::set_profile),
        call!(CHANGE_ACCOUNTS, accounts::api::clear_factors),
        call!(CHANGE_ACCOUNTS, invitations::api_again),
        call!(CHANGE_ACCOUNTS, accounts::api::unlock),
        call!(CHANGE_ACCOUNTS, accounts::api::act),
        call!(READ_ACCOUNTS, invitations::api_list),
        call!(CHANGE_ACCOUNTS, invitations::api_invite),
        call!(CHANGE_ACCOUNTS, invitations::api_revoke),
        call!(READ_EVENTS, messages::api_list),
        call!(READ_EVENTS, messages::api_countries),
        call!(READ_EVENTS, events::api::list),
        call!(READ_LIMITS, limits::api_show),
        call!(SAVE_LIMITS, limits::api_save),
        call!(READ_LIMITS, limits::history::api_history),
        call!(TRY_LIMITS, limits::preview::api_preview),
        call!(SAVE_LIMITS, limits::history::api_rollback),
        call!(READ_ACCESS, console_access::api_show),
        call!(SAVE_ACCESS, console_access::api_save),
        call!(READ_ACCESS, origins::api_show),
        call!(READ_APPS, apps::api_show),
        call!(SAVE_APPS, apps::api_save),
        call!(TRY_APPS, apps::api_preview),
        call!(READ_APPS, apps::client::api_list),
        call!(SAVE_APPS, apps::client::api_generate),
        call!(SAVE_APPS, apps::client::api_drop),
        call!(READ_EVENTS, messages::api_brakes),
        call!(CLEAR_SUBJECTS, messages::api_lift).reads(BODY_LIMIT),
    ]
}

/// Calls of the API for programs alone.
fn program_calls() -> Vec<Row> {
    vec![
        call!(LimitUser, programs::limits::reserve),
        call!(LimitUser, programs::limits::peek),
        call!(LimitUser, programs::limits::refund),
        call!(Program(Guard), programs::attempts::ask),
        call!(Program(Guard), programs::attempts::forgive),
        call!(Program(Guard), programs::attempts::settle),
        call!(Program(Verify), programs::verifications::start).with_codes(),
        call!(Program(Verify), programs::verifications::check).with_codes(),
        call!(Program(Relay), programs::relay::logto).with_codes().reads(BODY_LIMIT),
        call!(Signer, programs::relay::supabase).with_codes().reads(programs::relay::LONGEST_HOOK),
        call!(Program(Relay), programs::relay::outcome).with_codes(),
        Row::new(GET_ALONE, "/wforce/", MailServer, Origin::NoCookies, programs::wforce::take),
        Row::new(POST, "/wforce/", MailServer, Origin::NoCookies, programs::wforce::take),
    ]
}

/// The provider of OpenID Connect.
fn provider() -> Vec<Row> {
    let asks = Origin::Elsewhere("A client may send its request as a form, which leads where a link would.");
    let leads = Origin::Elsewhere("Without a token of ours it leads to the page that asks.");
    vec![
        Row::get("/.well-known/openid-configuration", Anyone, oidc::discovery::show),
        Row::get("/oauth/authorize", Anyone, oidc::authorize::show).known(),
        Row::new(POST, "/oauth/authorize", Anyone, asks, oidc::authorize::take).reads(BODY_LIMIT).known(),
        Row::get("/oauth/continue", Anyone, oidc::authorize::go_on).known(),
        Row::form("/oauth/consent", Anyone, oidc::authorize::decide).on("/oauth/authorize").known(),
        Row::get("/oauth/keys", Anyone, oidc::keys::show),
        Row::new(POST, "/oauth/token", Client, Origin::NoCookies, oidc::token::issue).reads(BODY_LIMIT),
        Row::new(OPTIONS, "/oauth/token", Anyone, Origin::Harmless, oidc::preflight),
        Row::get("/oauth/userinfo", TokenHolder, oidc::userinfo::show),
        Row::new(POST, "/oauth/userinfo", TokenHolder, Origin::NoCookies, oidc::userinfo::show),
        Row::new(OPTIONS, "/oauth/userinfo", Anyone, Origin::Harmless, oidc::preflight),
        Row::new(POST, "/oauth/revoke", Client, Origin::NoCookies, oidc::token::revoke).reads(BODY_LIMIT),
        Row::new(OPTIONS, "/oauth/revoke", Anyone, Origin::Harmless, oidc::preflight),
        Row::new(POST, "/oauth/introspect", Client, Origin::NoCookies, oidc::token::introspect)
            .reads(BODY_LIMIT),
        Row::get("/oauth/logout", Anyone, oidc::logout::show).known(),
        Row::new(POST, "/oauth/logout", Anyone, leads, oidc::logout::submit).reads(BODY_LIMIT).known(),
    ]
}

/// What proxies ask, and what browsers ask for at the host of an application.
fn at_hosts() -> Vec<Row> {
    let of_host = Origin::Elsewhere("It stands at the host of an application, and has to come from there.");
    let redeems = Origin::Elsewhere("Its code is good in the browser that has the state to it.");
    vec![
        Row::new(ANY, "/api/authz/forward-auth", Proxy, Origin::Harmless, gate::authz::forward_auth),
        Row::new(ANY, "/api/authz/auth-request", Proxy, Origin::Harmless, gate::authz::auth_request),
        Row::new(ANY, "/api/authz/ext-authz/{path:.*}", Proxy, Origin::Harmless, gate::authz::ext_authz),
        Row::get("/.gatehouse/start", Anyone, gate::host::start),
        Row::new(GET_ALONE, "/.gatehouse/callback", Anyone, redeems, gate::host::callback),
        Row::get("/.gatehouse/logout", Anyone, gate::host::show_logout),
        Row::new(POST, "/.gatehouse/logout", Anyone, of_host, gate::host::logout),
        Row::new(ANY, "/.gatehouse/forbidden", Anyone, Origin::Harmless, gate::host::forbidden),
        Row::get("/.gatehouse/static/{file}", Anyone, gate::host::asset),
    ]
}

fn others() -> Vec<Row> {
    let report = |methods| {
        let take = delivery_reports::take;
        let row = Row::new(methods, "/sms/reports/{gateway}", Gateway, Origin::NoCookies, take);
        row.spared().with_codes().reads(delivery_reports::LONGEST)
    };
    vec![
        Row::get("/.well-known/change-password", Anyone, account::change_here),
        Row::get("/dev/outbox", ThisMachine, outbox::page),
        Row::get("/dev/outbox.json", ThisMachine, outbox::json),
        report(GET_ALONE),
        report(POST),
        Row::get("/captcha/{id}.png", Anyone, captcha::image).known(),
        Row::get("/problems/{name}", Anyone, error_page::show_problem),
        Row::get("/api", Anyone, api_page::show),
        Row::get("/openapi.json", Anyone, openapi::serve),
        Row::get("/static/{file}", Anyone, assets::serve).spared(),
        Row::get("/favicon.ico", Anyone, assets::icon).spared(),
        call!(Anyone, status::healthz).spared(),
        call!(Anyone, status::readyz).spared(),
        call!(Monitoring, status::metrics).spared(),
    ]
}

/// What `/openapi.json` serves.
pub static DOCUMENT: LazyLock<Value> = LazyLock::new(|| openapi::describe(table()));

const API: &str = "/api/v1";

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
    let sends = |channel: &Channel| match channel {
        Channel::Sms => edge.sends_codes,
        Channel::Mail => edge.sends_mail,
    };
    let is_there = |row: &Row| row.needs.is_empty() || row.needs.iter().any(sends);
    let there =
        table().into_iter().map(|row| if is_there(&row) { row } else { row.leading_to(nothing_here) });
    let (calls, pages): (Vec<_>, Vec<_>) =
        PathRows::of(there).into_iter().partition(|rows| rows.path().starts_with(API));
    let api = calls.into_iter().fold(scope(API), |api, rows| api.service(rows.below(API)));
    let app = App::new()
        .app_data(services)
        .app_data(edge)
        .app_data(security)
        .app_data(RouteMetrics::nowhere())
        .app_data(ApiDocument(&DOCUMENT))
        .configure(extract::configure)
        .service(api);
    pages
        .into_iter()
        .fold(app, App::service)
        .default_service(route().to(nothing_here))
        .wrap(from_fn(extract::refuse_with_pages))
        .wrap(from_fn(gate::keep_apart))
        .wrap(from_fn(connections::within_time))
        .wrap(from_fn(headers::secure))
        .wrap(from_fn(observe::observe))
        .wrap(from_fn(pipeline::one_at_a_time))
}

/// All rows of one path. Any other method is told which there are.
struct PathRows {
    path: String,
    rows: Vec<Row>,
}

impl PathRows {
    /// `rows` by their paths, in the order of the table.
    fn of(rows: impl IntoIterator<Item = Row>) -> Vec<Self> {
        let mut paths = Vec::<Self>::new();
        for row in rows {
            match paths.iter_mut().find(|known| known.path == row.facts.path) {
                Some(known) => known.rows.push(row),
                None => paths.push(Self { path: row.facts.path.clone(), rows: vec![row] }),
            }
        }
        paths
    }

    fn path(&self) -> &str {
        &self.path
    }

    /// Returns the rows for a scope with this prefix.
    fn below(mut self, prefix: &str) -> Self {
        self.path = self.path.strip_prefix(prefix).map(str::to_owned).unwrap_or(self.path);
        self
    }
}

impl HttpServiceFactory for PathRows {
    fn register(self, config: &mut AppService) {
        let allow: Rc<[&str]> =
            self.rows.iter().flat_map(|row| row.facts.methods).map(Method::as_str).collect();
        let other = move |request: HttpRequest| {
            let allow = allow.join(", ");
            async move {
                match *request.method() {
                    Method::OPTIONS => Ok(HttpResponse::NoContent().insert_header(("allow", allow)).finish()),
                    _ => Err(Problem::MethodNotAllowed { allow }),
                }
            }
        };
        let mut here = resource(self.path)
            .app_data(RouteMetrics::default())
            .app_data(RowsHere::new(&self.rows))
            .default_service(route().to(other));
        if let Some(bytes) = self.rows.iter().filter_map(|row| row.reads).max() {
            here = here.app_data(PayloadConfig::new(bytes));
        }
        for row in self.rows {
            here = here.route(row.route);
        }
        here.wrap(from_fn(access::refuse_denied)).register(config);
    }
}

async fn nothing_here(request: HttpRequest) -> Result<HttpResponse, Problem> {
    access::refusal(&request).await.ok_or(Problem::NotFound)
}
