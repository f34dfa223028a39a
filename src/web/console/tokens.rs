//! `/admin/tokens` and `/api/v1/admin/tokens`: API tokens for other programs.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::iter;
use std::str::FromStr;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Path, Query};
use askama::Template;
use serde::{Deserialize, Serialize};
use serde_json::json;
use strum::VariantArray;
use utoipa::ToSchema;

use crate::accounts::{
    AdminScope, ApiToken, MOST_SCOPES, NewToken, ProgramScope, ScopesError, TokenEntry, TokenId, TokenScopes,
};
use crate::clock::Micros;
use crate::db::DbError;
use crate::unseen::is_seen_whole;
use crate::web::console::guard::{Admin, AdminForm, AdminRequest, Permitted};
use crate::web::form::{FormPairs, FormReach, once, value};
use crate::web::http::{
    Field, FieldErrors, Flash, InputError, Layout, Locale, Message, Problem, Services, ServicesData,
    UnreadBody, WebResult,
};

const HERE: &str = "/admin/tokens";
const LONGEST_NAME: usize = 100;
/// Ten years.
const MOST_DAYS: u32 = 3660;
/// The longest life of a token for the admin API.
const MOST_ADMIN_DAYS: u32 = 366;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LONGEST_LIFE: Duration = Duration::from_secs(MOST_DAYS as u64 * DAY.as_secs());

/// Creates a token and records that. None if the maximum number of tokens exists.
async fn create_token(admin: &Admin, new: &NewToken) -> Result<Option<(ApiToken, TokenId)>, DbError> {
    let made = admin.services.tokens.create(new, admin.account.id).await?;
    if let Some((_, id)) = &made {
        let expires_in = new.expires_in.map(|span| span.as_secs());
        let detail = json!({ "token": id.to_string(), "name": new.name, "scopes": new.scopes.names(), "expires_in": expires_in });
        admin.did("token.create", &detail);
    }
    Ok(made)
}

/// Revokes a token and records that. Returns its name; None if there is none.
async fn revoke_token(admin: &Admin, id: TokenId) -> Result<Option<String>, DbError> {
    let revoked = admin.services.tokens.revoke(id, admin.account.id).await?;
    if revoked.is_some() {
        admin.did("token.revoke", &json!({ "token": id.to_string() }));
    }
    Ok(revoked)
}

/// A new token, or all that is wrong with it. A limit has to be configured first: a name of none would open nothing.
fn parse(
    services: &Services,
    name: &str,
    scopes: &[&str],
    expires_in: Result<Option<Duration>, Message>,
) -> Result<NewToken, Vec<(Field, Message)>> {
    let mut errors = Vec::new();
    let name = name.trim();
    if !(1..=LONGEST_NAME).contains(&name.chars().count()) || !is_seen_whole(name) {
        errors.push((Field::Name, Message::NameUnfit { max: LONGEST_NAME }));
    }
    let live = services.live.snapshot();
    let limits: Vec<&str> = live.limits.custom.keys().map(String::as_str).collect();
    let scopes = TokenScopes::requested(scopes, &limits);
    let scopes = scopes.map_err(|error| errors.push((Field::Scopes, about_scopes(error)))).ok();
    let expires_in = expires_in.map_err(|message| errors.push((Field::ExpiresDays, message))).ok();
    if expires_in.flatten().is_some_and(|span| span.is_zero() || span > LONGEST_LIFE) {
        errors.push((Field::ExpiresDays, Message::ExpiryUnfit { max: MOST_DAYS }));
    }
    // A token that opens a part of the admin API expires within a year.
    if let (Some(scopes), Some(expires_in)) = (&scopes, expires_in)
        && scopes.open_any()
        && expires_in.is_none_or(|span| span > DAY * MOST_ADMIN_DAYS)
    {
        errors.push((Field::ExpiresDays, Message::ExpiryRequired { max: MOST_ADMIN_DAYS }));
    }
    match (scopes, expires_in) {
        (Some(scopes), Some(expires_in)) if errors.is_empty() => {
            Ok(NewToken { name: name.to_owned(), scopes, expires_in })
        }
        _ => Err(errors),
    }
}

fn about_scopes(error: ScopesError) -> Message {
    match error {
        ScopesError::Empty => Message::ScopesMissing,
        ScopesError::TooMany => Message::ScopesTooMany { max: MOST_SCOPES },
        ScopesError::NoName => Message::ScopesUnfit,
        ScopesError::Unknown { typed, nearest: Some(near) } => Message::ScopeNear { it: typed, near },
        ScopesError::Unknown { typed, nearest: None } => Message::ScopeUnknown { it: typed },
        ScopesError::TooManyPrograms => Message::ScopesRealms,
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "name": "forum", "scopes": ["reply"], "expires_in": 7776000 }))]
pub struct TokenRequest {
    /// What it is shown as.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// Names of custom limits that exist, or `*` for all of them; `guard:`, `verify:` or `relay:` with a name; parts of the
    /// admin API: `limits:read`, `limits:write`,
    /// `access:write`, `apps:write`, `events:read`, `subjects:clear`, `accounts:write`, which `*` does not include.
    scopes: Vec<String>,
    /// Seconds. Without it the token does not expire. Required for parts of the admin API, and then at most 366 days.
    #[schema(minimum = 1, maximum = 316224000)]
    expires_in: Option<u64>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "tokens": [{
    "id": "0123456789abcdef0123456789abcdef", "name": "forum", "scopes": ["reply"], "made_by": "ada",
    "created_at": "2026-11-21T10:00:00Z"
}] }))]
struct Tokens {
    tokens: Vec<TokenEntry>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "id": "0123456789abcdef0123456789abcdef", "token": "ght_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
}))]
struct TokenMade {
    id: String,
    /// Shown here and nowhere else.
    token: String,
}

/// The tokens of programs, newest first
///
/// Without those that were revoked; with the 100 that expired last.
#[utoipa::path(
    get,
    path = "/api/v1/admin/tokens",
    operation_id = "listTokens",
    tag = "admin",
    responses((status = 200, description = "At most 200 of them.", body = Tokens)),
)]
pub async fn api_list(_: Permitted, services: ServicesData) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(Tokens { tokens: services.tokens.list().await? }))
}

/// Create a token for a program
///
/// At most 100 are valid at one time.
#[utoipa::path(
    post,
    path = "/api/v1/admin/tokens",
    operation_id = "makeToken",
    tag = "admin",
    request_body = TokenRequest,
    responses((status = 201, description = "The token, this once.", body = TokenMade)),
    extensions(("x-problems" = json!(["too-many-tokens"])))
)]
pub async fn api_create(
    permitted: Permitted,
    body: UnreadBody<TokenRequest>,
) -> Result<HttpResponse, Problem> {
    let (admin, TokenRequest { name, scopes, expires_in }) = permitted.read(body).await?;
    let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let new = parse(&admin.services, &name, &scopes, Ok(expires_in.map(Duration::from_secs)));
    let error = |(field, message): (Field, Message)| match (field, message) {
        (Field::ExpiresDays, Message::ExpiryUnfit { .. }) => {
            let message = format!("Use 1 to {} seconds, or leave it out.", LONGEST_LIFE.as_secs());
            InputError::new("expires_in", message)
        }
        (field, message) => {
            let field = if field == Field::ExpiresDays { "expires_in" } else { field.name() };
            InputError::new(field, message.text(Locale::En))
        }
    };
    let new =
        new.map_err(|errors| Problem::InvalidInput { errors: errors.into_iter().map(error).collect() })?;
    let (token, id) = create_token(&admin, &new).await?.ok_or(Problem::TooManyTokens)?;
    Ok(HttpResponse::Created().json(TokenMade { id: id.to_string(), token: token.expose() }))
}

/// Revoke a token
///
/// The instance that answers refuses it at once, the others within a second. 404 if there is no such token, or if it was
/// revoked before.
#[utoipa::path(
    delete,
    path = "/api/v1/admin/tokens/{id}",
    operation_id = "revokeToken",
    tag = "admin",
    params(("id" = String, Path, example = "0123456789abcdef0123456789abcdef")),
    responses((status = 204, description = "Revoked.")),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn api_revoke(permitted: Permitted, id: Path<String>) -> Result<HttpResponse, Problem> {
    let id = TokenId::parse(&id).ok_or(Problem::NotFound)?;
    match revoke_token(&permitted.admin(), id).await? {
        Some(_) => Ok(HttpResponse::NoContent().finish()),
        None => Err(Problem::NotFound),
    }
}

/// `POST /admin/tokens`
#[derive(Debug)]
pub struct TokenMakingForm {
    pub name: String,
    /// The scopes of the boxes, and what was typed. Separated by spaces or commas.
    pub scopes: String,
    pub expires_days: String,
}

impl Default for TokenMakingForm {
    fn default() -> Self {
        Self { name: String::new(), scopes: String::new(), expires_days: "90".to_owned() }
    }
}

impl TokenMakingForm {
    fn read(pairs: &FormPairs) -> Self {
        let scopes = pairs.iter().filter(|(name, _)| name == "scopes").map(|(_, text)| text.as_str());
        Self {
            name: value(pairs, "name").to_owned(),
            scopes: scopes.collect::<Vec<_>>().join(" "),
            expires_days: value(pairs, "expires_days").trim().to_owned(),
        }
    }

    fn scopes(&self) -> Vec<&str> {
        let names = self.scopes.split([' ', ',', '\t', '\r', '\n']);
        names.filter(|name| !name.is_empty()).collect()
    }
}

/// `GET /admin/tokens`
pub async fn show(request: AdminRequest) -> WebResult {
    respond(&request, TokenNotice::None, FieldErrors::default(), TokenMakingForm::default()).await
}

/// `POST /admin/tokens`. Answers with the page itself, not with a redirect: only this answer shows the token.
pub async fn create(posted: AdminForm) -> WebResult {
    let pairs = posted.pairs.clone();
    let (visit, services) = (posted.request.visit.clone(), posted.request.services.clone());
    let make = async move |_, pairs: FormPairs, _| make(&posted.request, pairs).await;
    once(visit, services, pairs, FormReach::AnyInstance, make).await
}

async fn make(request: &AdminRequest, pairs: FormPairs) -> WebResult {
    let form = TokenMakingForm::read(&pairs);
    let expires_in = match form.expires_days.as_str() {
        "" => Ok(None),
        days => days.parse::<u32>().map(|days| Some(DAY * days)),
    };
    let expires_in = expires_in.map_err(|_| Message::ExpiryUnfit { max: MOST_DAYS });
    let mut errors = FieldErrors::default();
    let (notice, form) = match parse(&request.services, &form.name, &form.scopes(), expires_in) {
        Ok(new) => match create_token(&request.admin, &new).await? {
            Some((token, _)) => {
                (TokenNotice::Made { name: new.name, token: token.expose() }, TokenMakingForm::default())
            }
            None => (TokenNotice::Full, form),
        },
        Err(wrong) => {
            wrong.into_iter().for_each(|(field, message)| errors.add(field, message));
            (TokenNotice::None, form)
        }
    };
    respond(request, notice, errors, form).await
}

/// `GET /admin/tokens/revoke?id=…`: asks before a token is revoked. One that already is, is not listed either.
pub async fn ask(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let (found, id) = (request.services.tokens.list().await?, TokenId::parse(value(&query, "id")));
    let Some(entry) = found.into_iter().find(|token| Some(token.id) == id) else {
        return Ok(request.visit.see_other(HERE, None));
    };
    let layout = request.layout(format!("{HERE}/revoke?id={}", entry.id));
    Ok(request.visit.page(StatusCode::OK, &RevokePage { layout, entry }))
}

/// `POST /admin/tokens/revoke`. If the token is already revoked, there is nothing to do.
pub async fn revoke(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let AdminRequest { visit, admin, .. } = request;
    let revoked = match TokenId::parse(value(pairs, "id")) {
        Some(id) => revoke_token(admin, id).await?,
        None => None,
    };
    Ok(visit.see_other_about(HERE, Some(Flash::TokenRevoked), &revoked.unwrap_or_default()))
}

async fn respond(
    request: &AdminRequest,
    notice: TokenNotice,
    errors: FieldErrors,
    form: TokenMakingForm,
) -> WebResult {
    let AdminRequest { visit, services, .. } = request;
    let tokens = services.tokens.list().await?;
    let status = match &notice {
        TokenNotice::None if !errors.is_empty() => errors.status(),
        TokenNotice::None => StatusCode::OK,
        TokenNotice::Made { .. } => StatusCode::CREATED,
        TokenNotice::Full => StatusCode::CONFLICT,
    };
    let layout = Layout { mistaken: !errors.is_empty(), ..request.layout(HERE) };
    let (now, groups) = (visit.now(), known_scopes(services, &tokens));
    Ok(visit.page(status, &TokensPage { layout, now, tokens, groups, notice, errors, form }))
}

/// Scopes to choose from, and the key of what they open. No configuration lists the realms of other logins, so what other
/// tokens have is offered, too.
pub type ScopeGroup = (&'static str, Vec<String>);

fn known_scopes(services: &Services, tokens: &[TokenEntry]) -> Vec<ScopeGroup> {
    let given = tokens.iter().flat_map(|token| token.scopes.names());
    let known: BTreeSet<String> = services.codes.scopes().chain(given).collect();
    let of = |program: ProgramScope| {
        let lead = format!("{}:", program.into_str());
        known.iter().filter(|name| name.starts_with(&lead)).cloned().collect()
    };
    let live = services.live.snapshot();
    let limits: Vec<String> = iter::once("*".to_owned()).chain(live.limits.custom.keys().cloned()).collect();
    let admin = AdminScope::VARIANTS.iter().map(|scope| scope.into_str().to_owned()).collect();
    let mut groups = vec![
        ("tokens.group-admin", admin),
        ("tokens.group-limits", limits),
        ("tokens.group-guard", of(ProgramScope::Guard)),
        ("tokens.group-verify", of(ProgramScope::Verify)),
        ("tokens.group-relay", of(ProgramScope::Relay)),
    ];
    groups.retain(|(_, names)| !names.is_empty());
    groups
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenNotice {
    None,
    Made { name: String, token: String },
    Full,
}

#[derive(Template)]
#[template(path = "pages/tokens.html")]
pub struct TokensPage {
    pub layout: Layout,
    pub now: Micros,
    pub tokens: Vec<TokenEntry>,
    pub groups: Vec<ScopeGroup>,
    pub notice: TokenNotice,
    pub errors: FieldErrors,
    /// The form as typed, until it has created a token.
    pub form: TokenMakingForm,
}

impl TokensPage {
    /// What a part of the admin API is, or all limits; the others are names that the reader gave.
    fn about(&self, scope: &str) -> Option<Cow<'static, str>> {
        if scope == "*" {
            return Some(self.layout.t("tokens.scope-all"));
        }
        let name = format!("scope-{}", AdminScope::from_str(scope).ok()?.into_str().replace(':', "-"));
        Some(self.layout.locale.named_word("tokens", &name))
    }

    fn is_chosen(&self, scope: &str) -> bool {
        self.form.scopes().contains(&scope)
    }

    /// What was typed beside the boxes.
    fn typed(&self) -> String {
        let has_box = |name: &str| self.groups.iter().any(|(_, names)| names.iter().any(|it| it == name));
        let names = self.form.scopes();
        names.into_iter().filter(|name| !has_box(name)).collect::<Vec<_>>().join(" ")
    }

    fn is_over(&self, token: &TokenEntry) -> bool {
        token.expires_at.is_some_and(|at| at <= self.now)
    }

    /// The days until it expires, to choose from, with their words; what was sent instead of one of them is kept.
    fn expiries(&self) -> Vec<(&str, Cow<'_, str>, bool)> {
        let sent = self.form.expires_days.as_str();
        let presets = [
            ("30", "tokens.month"),
            ("90", "tokens.quarter"),
            ("365", "tokens.year"),
            ("", "tokens.endless"),
        ];
        let other =
            (!presets.iter().any(|(days, _)| *days == sent)).then_some((sent, Cow::Borrowed(sent), true));
        let preset = |(days, key): (&'static str, _)| (days, self.layout.t(key), days == sent);
        presets.into_iter().map(preset).chain(other).collect()
    }

    fn focus(&self) -> &'static str {
        self.errors.first().map_or("", Field::name)
    }
}

/// Asks before a token is revoked.
#[derive(Template)]
#[template(path = "pages/admin/revoke.html")]
pub struct RevokePage {
    pub layout: Layout,
    pub entry: TokenEntry,
}
