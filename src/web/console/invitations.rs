//! `/admin/invitations` and its calls: accounts that administrators make, the links with which their owners come in, and who
//! may have an account at all.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Path;
use askama::Template;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::accounts::api::ProfileRequest;
use super::document::{check, record_save, save_unrecorded, told};
use super::guard::{Admin, AdminForm, AdminRequest, Permitted};
use super::{FormProblem, confirm};
use crate::accounts::{
    AccountId, AccountsMade, Groups, GroupsError, INVITATION_LASTS, ImportConflict, ImportRow,
    InvitationEntry, InvitationId, LONGEST_INVITATION, MOST_INVITED, NewInvitation, Profile, ProfileError,
    Username,
};
use crate::config::RegistrationMode;
use crate::db::DbError;
use crate::login::is_reserved;
use crate::sms::Phone;
use crate::tuning::{Draft, Edit, LiveSection};
use crate::web::form::{FormPairs, FormReach, once, value};
use crate::web::http::describe::{MobileNumber, UserName};
use crate::web::http::{
    Field, FieldErrors, Flash, InputError, Layout, Locale, Message, Moment, Problem, ServicesData,
    UnreadBody, WebResult, no_content_if,
};

const HERE: &str = "/admin/invitations";
/// Names that one form or one list creates accounts for.
const MOST_NAMES: usize = 200;
const HOUR: Duration = Duration::from_secs(3600);
/// Longer than any, and no longer than a page should repeat.
const LONGEST_MODE: usize = 32;

/// A link, and whose it is; None if it is for many.
struct MadeLink {
    login: Option<String>,
    id: InvitationId,
    link: String,
    expires_at: String,
}

impl MadeLink {
    fn new(admin: &Admin, login: Option<&Username>, made: &NewInvitation) -> Self {
        Self {
            login: login.map(|login| login.as_str().to_owned()),
            id: made.id,
            link: made.token.link(&admin.services.public_url),
            expires_at: Moment(made.expires_at).iso(),
        }
    }
}

/// Creates accounts, all of them or none, and records that. The ids are in the order of the rows.
async fn create(
    admin: &Admin,
    rows: &[ImportRow],
    groups: &Groups,
) -> Result<Result<Vec<(AccountId, MadeLink)>, Vec<(usize, ImportConflict)>>, DbError> {
    let services = &admin.services;
    let by = Some(admin.account.id);
    let made = match services.invitations.create_accounts(rows, groups, by).await? {
        AccountsMade::Refused(conflicts) => return Ok(Err(conflicts)),
        // Rare enough: the next try says which is taken.
        AccountsMade::Raced => return Ok(Err(vec![(0, ImportConflict::LoginTaken)])),
        AccountsMade::Made(made) => made,
    };
    let mut links = Vec::with_capacity(made.len());
    for (row, (id, invitation)) in rows.iter().zip(&made) {
        if let Some(account) = services.accounts.by_id(*id).await? {
            services.sign_in.guard().account_created(&account);
            admin.did_to(&account, "account-create", &json!({ "groups": groups.to_string() }));
        }
        links.push((*id, MadeLink::new(admin, Some(&row.login), invitation)));
    }
    Ok(Ok(links))
}

/// Makes a link for many, and records that.
async fn invite_many(
    admin: &Admin,
    count: u32,
    groups: &Groups,
    lasts: Duration,
) -> Result<MadeLink, DbError> {
    let by = Some(admin.account.id);
    let made = admin.services.invitations.invite_many(count, groups, lasts, by).await?;
    let detail = json!({
        "invitation": made.id.to_string(), "accounts": count, "groups": groups.to_string(), "expires_in": lasts.as_secs()
    });
    admin.did("invitation.create", &detail);
    Ok(MadeLink::new(admin, None, &made))
}

/// Makes another link to an account that nothing else opens, and records that.
async fn invite_again(admin: &Admin, id: &str) -> Result<(AccountId, MadeLink), Problem> {
    let account = super::accounts::found(&admin.services, id).await?;
    admin.may_touch(Some(&account), "invite")?;
    if account.disabled_at.is_some() {
        return Err(Problem::AccountDisabled);
    }
    // A program brings nobody into an account that was used.
    let new_only = admin.token().is_some();
    let made = admin.services.invitations.invite(account.id, Some(admin.account.id), new_only).await?;
    let made = made.ok_or(Problem::HasPassword)?;
    admin.did_to(&account, "account-invite", &json!({ "invitation": made.id.to_string() }));
    Ok((account.id, MadeLink::new(admin, Some(&account.login), &made)))
}

/// Revokes an invitation and records that. False if it is not good.
async fn revoke_one(admin: &Admin, id: InvitationId) -> Result<bool, DbError> {
    let services = &admin.services;
    let Some(whose) = services.invitations.revoke(id).await? else { return Ok(false) };
    let account = match whose {
        Some(account) => services.accounts.by_id(account).await?,
        None => None,
    };
    let detail = json!({ "invitation": id.to_string() });
    match account {
        Some(account) => admin.did_to(&account, "invitation.revoke", &detail),
        None => admin.did("invitation.revoke", &detail),
    }
    Ok(true)
}

const fn about_conflict(conflict: ImportConflict) -> (Field, Message) {
    match conflict {
        ImportConflict::LoginTaken | ImportConflict::LoginDeleted => (Field::Login, Message::LoginTaken),
        ImportConflict::PhoneTaken => (Field::Phone, Message::PhoneTaken),
    }
}

fn about_groups(error: GroupsError) -> Message {
    match error {
        GroupsError::Name(it) => Message::GroupUnfit { it },
        GroupsError::TooMany => Message::GroupsTooMany,
    }
}

const fn about_profile(error: ProfileError) -> (Field, Message) {
    match error {
        ProfileError::Email => (Field::Email, Message::EmailUnfit),
        ProfileError::VerifiedNothing => (Field::Email, Message::EmailMissing),
        ProfileError::Name => (Field::Name, Message::ShownNameUnfit),
    }
}

fn row(login: Username, phone: Option<Phone>, profile: Profile) -> ImportRow {
    ImportRow { line: 1, login: login.standard(), password_hash: None, phone, totp: None, profile }
}

// The calls.

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AccountToCreate, example = json!({ "login": "ada", "groups": ["staff"] }))]
pub struct CreateRequest {
    #[schema(value_type = UserName)]
    login: String,
    #[schema(max_items = 50)]
    groups: Option<Vec<String>>,
    /// A code sent to it signs in: make sure that it is the owner's.
    #[schema(value_type = Option<MobileNumber>)]
    phone: Option<String>,
    profile: Option<ProfileRequest>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "id": "b19bb51d57b40116de95f7448daf9aef", "login": "ada", "expires_at": "2026-11-24T10:00:00Z",
    "link": "https://login.example/welcome/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
}))]
struct CreatedAccount {
    id: String,
    login: String,
    /// With it the owner sets the password, once. Shown here and nowhere else.
    link: String,
    #[schema(format = DateTime)]
    expires_at: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = InvitationRequest, example = json!({ "count": 30, "expires_in": 604800, "groups": ["class-7b"] }))]
pub struct InviteRequest {
    /// How many accounts it makes.
    #[schema(minimum = 1, maximum = 1000)]
    count: u32,
    /// Seconds.
    #[schema(minimum = 60, maximum = 7776000)]
    expires_in: u64,
    /// The groups of the accounts that it makes.
    #[schema(max_items = 50)]
    groups: Option<Vec<String>>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "id": "0123456789abcdef0123456789abcdef", "expires_at": "2026-11-28T10:00:00Z",
    "link": "https://login.example/welcome/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
}))]
struct CreatedInvitation {
    id: String,
    /// Shown here and nowhere else.
    link: String,
    #[schema(format = DateTime)]
    expires_at: String,
}

#[derive(Serialize, ToSchema)]
struct InvitationList {
    invitations: Vec<InvitationEntry>,
}

/// Create an account
///
/// Without a password: its owner sets one with the link, which is good for 72 hours. A number can sign in before that. No
/// account of a name that was deleted is created again.
#[utoipa::path(
    post,
    path = "/api/v1/admin/accounts",
    operation_id = "createAccount",
    tag = "admin",
    request_body = CreateRequest,
    responses((status = 201, description = "Created, with its link.", body = CreatedAccount)),
    extensions(("x-problems" = json!(["login-taken", "phone-taken", "invalid-phone", "country-not-allowed"])))
)]
pub async fn api_create(
    permitted: Permitted,
    body: UnreadBody<CreateRequest>,
) -> Result<HttpResponse, Problem> {
    let (admin, CreateRequest { login, groups, phone, profile }) = permitted.read(body).await?;
    let mut errors = FieldErrors::default();
    let login = errors.take(Field::Login, Username::parse(&login).map_err(Message::from));
    let groups = Groups::parse(groups.iter().flatten().map(String::as_str));
    let groups = errors.take(Field::Groups, groups.map_err(about_groups));
    let profile = match profile.map_or(Ok(Profile::default()), |profile| profile.parse()) {
        Ok(profile) => Some(profile),
        Err(error) => {
            let (field, message) = about_profile(error);
            errors.add(field, message);
            None
        }
    };
    let Some(((login, groups), profile)) = login.zip(groups).zip(profile).filter(|_| errors.is_empty())
    else {
        return Err(Problem::invalid(&errors));
    };
    let sms = &admin.services.live.snapshot().sms;
    let phone = phone.map(|text| Phone::parse(&text, &sms.default_region)?.allowed_by(sms));
    let row = row(login, phone.transpose()?, profile);
    // With the token somebody could come into what is open to that name.
    if admin.token().is_some() && is_reserved(&admin.services.live.snapshot(), &row.login) {
        return Err(admin.overreached("account-create"));
    }
    match create(&admin, std::slice::from_ref(&row), &groups).await? {
        Ok(made) => {
            let (id, MadeLink { link, expires_at, .. }) = made.into_iter().next().ok_or(Problem::Internal)?;
            let login = row.login.as_str().to_owned();
            Ok(HttpResponse::Created().json(CreatedAccount { id: id.to_string(), login, link, expires_at }))
        }
        Err(conflicts) => Err(match conflicts.first() {
            Some((_, ImportConflict::PhoneTaken)) => Problem::PhoneTaken,
            _ => Problem::LoginTaken,
        }),
    }
}

/// Invite the owner of an account again
///
/// Makes another link to an account that has no password yet; any before is not good any more.
#[utoipa::path(
    post,
    path = "/api/v1/admin/accounts/{id}/invite",
    operation_id = "inviteAccount",
    tag = "admin",
    params(("id" = String, Path, example = "b19bb51d57b40116de95f7448daf9aef")),
    responses((status = 201, description = "The link, this once.", body = CreatedAccount)),
    extensions(("x-problems" = json!(["not-found", "has-password", "account-disabled"])))
)]
pub async fn api_again(permitted: Permitted, id: Path<String>) -> Result<HttpResponse, Problem> {
    let (id, made) = invite_again(&permitted.admin(), &id).await?;
    let MadeLink { login, link, expires_at, .. } = made;
    let login = login.unwrap_or_default();
    Ok(HttpResponse::Created().json(CreatedAccount { id: id.to_string(), login, link, expires_at }))
}

/// The invitations that are good, newest first
#[utoipa::path(
    get,
    path = "/api/v1/admin/invitations",
    operation_id = "listInvitations",
    tag = "admin",
    responses((status = 200, description = "At most 200 of them.", body = InvitationList)),
)]
pub async fn api_list(_: Permitted, services: ServicesData) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(InvitationList { invitations: services.invitations.list().await? }))
}

/// Make an invitation for many
///
/// Everybody with the link makes an account with a name of their choice, until there are as many as it is for. Not while
/// `[registration] mode` is `closed`.
#[utoipa::path(
    post,
    path = "/api/v1/admin/invitations",
    operation_id = "makeInvitation",
    tag = "admin",
    request_body = InviteRequest,
    responses((status = 201, description = "The link, this once.", body = CreatedInvitation))
)]
pub async fn api_invite(
    permitted: Permitted,
    body: UnreadBody<InviteRequest>,
) -> Result<HttpResponse, Problem> {
    let (admin, InviteRequest { count, expires_in, groups }) = permitted.read(body).await?;
    let mut errors = Vec::new();
    if !(1..=MOST_INVITED).contains(&count) {
        errors.push(InputError::new("count", format!("Use 1 to {MOST_INVITED}.")));
    }
    let lasts = Duration::from_secs(expires_in);
    if lasts < Duration::from_secs(60) || lasts > LONGEST_INVITATION {
        let longest = LONGEST_INVITATION.as_secs();
        errors.push(InputError::new("expires_in", format!("Use 60 to {longest} seconds.")));
    }
    let groups = Groups::parse(groups.iter().flatten().map(String::as_str));
    let groups = groups.map_err(|error| errors.push(InputError::new("groups", format!("{error}."))));
    if admin.services.live.snapshot().registration.mode == RegistrationMode::Closed {
        errors.push(InputError::new("count", Message::InvitesClosed.text(Locale::En)));
    }
    let Some(groups) = groups.ok().filter(|_| errors.is_empty()) else {
        return Err(Problem::InvalidInput { errors });
    };
    let MadeLink { id, link, expires_at, .. } = invite_many(&admin, count, &groups, lasts).await?;
    Ok(HttpResponse::Created().json(CreatedInvitation { id: id.to_string(), link, expires_at }))
}

/// Revoke an invitation
///
/// 404 if there is none that is good.
#[utoipa::path(
    delete,
    path = "/api/v1/admin/invitations/{id}",
    operation_id = "revokeInvitation",
    tag = "admin",
    params(("id" = String, Path, example = "0123456789abcdef0123456789abcdef")),
    responses((status = 204, description = "Revoked.")),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn api_revoke(permitted: Permitted, id: Path<String>) -> Result<HttpResponse, Problem> {
    let id = InvitationId::parse(&id).ok_or(Problem::NotFound)?;
    no_content_if(revoke_one(&permitted.admin(), id).await?, Problem::NotFound)
}

// The page.

/// `GET /admin/invitations`
pub async fn show(request: AdminRequest) -> WebResult {
    respond(&request, StatusCode::OK, |_| {}).await
}

/// `POST /admin/invitations`: the form that its button names. Answers with the page itself, not with a redirect: only this
/// answer shows the links.
pub async fn submit(posted: AdminForm) -> WebResult {
    let posted = Rc::new(posted);
    let (visit, services) = (posted.request.visit.clone(), posted.request.services.clone());
    let sent = Rc::clone(&posted);
    let act = async move |_, pairs: FormPairs, _| match value(&pairs, "do") {
        "invite" => submit_invitation(&sent.request, &pairs).await,
        "mode" => submit_mode(&sent).await,
        _ => submit_accounts(&sent.request, &pairs).await,
    };
    let run = once(visit, services, posted.pairs.clone(), FormReach::AnyInstance, act);
    confirm::confirmed(&posted, run).await
}

async fn submit_accounts(request: &AdminRequest, pairs: &FormPairs) -> WebResult {
    let mut errors = FieldErrors::default();
    let (rows, groups) = parse_accounts(request, pairs, &mut errors);
    let made = match groups.filter(|_| errors.is_empty()) {
        Some(groups) => create(&request.admin, &rows, &groups).await?,
        None => Err(Vec::new()),
    };
    match made {
        Ok(made) => {
            let links: Vec<_> = made.into_iter().map(|(_, link)| link).collect();
            respond(request, StatusCode::CREATED, |page| page.links = links).await
        }
        Err(conflicts) => {
            let of = |field| {
                let rows = conflicts.iter().filter(move |(_, it)| about_conflict(*it).0 == field);
                rows.map(|(at, _)| rows_name(at, pairs)).collect::<Vec<_>>().join(", ")
            };
            match (of(Field::Login), of(Field::Phone)) {
                (names, _) if !names.is_empty() => {
                    errors.add(Field::Login, Message::LoginsTaken { it: names });
                }
                (_, phones) if !phones.is_empty() => errors.add(Field::Phone, Message::PhoneTaken),
                _ => {}
            }
            let status = errors.status();
            respond(request, status, |page| page.again(pairs, errors)).await
        }
    }
}

/// The name in that line, as it was typed.
fn rows_name(at: &usize, pairs: &FormPairs) -> String {
    names(pairs).nth(*at).unwrap_or_default().to_owned()
}

fn names(pairs: &FormPairs) -> impl Iterator<Item = &str> {
    value(pairs, "login").split(['\n', ',']).map(str::trim).filter(|name| !name.is_empty())
}

/// Every mistake at once. A number, an address and a shown name are those of one account.
fn parse_accounts(
    request: &AdminRequest,
    pairs: &FormPairs,
    errors: &mut FieldErrors,
) -> (Vec<ImportRow>, Option<Groups>) {
    let typed: Vec<&str> = names(pairs).collect();
    let mut logins = Vec::new();
    for name in &typed {
        match Username::parse(name) {
            Ok(login) => logins.push(login.standard()),
            Err(_) if typed.len() > 1 => {
                errors.add(Field::Login, Message::LoginsUnfit { it: (*name).to_owned() });
            }
            Err(error) => errors.add(Field::Login, error.into()),
        }
    }
    let twice = logins.iter().enumerate().find(|(at, login)| logins[..*at].contains(login));
    if let Some((_, login)) = twice {
        errors.add(Field::Login, Message::LoginsTaken { it: login.as_str().to_owned() });
    }
    match typed.len() {
        0 => errors.add(Field::Login, Message::LoginMissing),
        count if count > MOST_NAMES => errors.add(Field::Login, Message::LoginsTooMany { max: MOST_NAMES }),
        _ => {}
    }
    let own = |name| Some(value(pairs, name).trim()).filter(|text| !text.is_empty());
    let live = request.visit.live(&request.services);
    let phone =
        own("phone").map(|text| crate::web::http::extract::parse_phone(&live, text).map_err(Message::from));
    let phone = phone.and_then(|parsed| errors.take(Field::Phone, parsed));
    let profile = match Profile::parse(own("email"), false, own("name")) {
        Ok(profile) => profile,
        Err(error) => {
            let (field, message) = about_profile(error);
            errors.add(field, message);
            Profile::default()
        }
    };
    if typed.len() > 1 {
        for field in [Field::Phone, Field::Email, Field::Name] {
            if own(field.name()).is_some() {
                errors.add(field, Message::OfOneAccount);
            }
        }
    }
    let groups = errors.take(Field::Groups, parse_groups(value(pairs, "groups")));
    let rows = logins.into_iter().map(|login| row(login, phone.clone(), profile.clone())).collect();
    (rows, groups)
}

fn parse_groups(typed: &str) -> Result<Groups, Message> {
    let names = typed.split([' ', ',']).map(str::trim).filter(|name| !name.is_empty());
    Groups::parse(names).map_err(about_groups)
}

async fn submit_invitation(request: &AdminRequest, pairs: &FormPairs) -> WebResult {
    let mut errors = FieldErrors::default();
    let count = value(pairs, "count").trim().parse().ok().filter(|count| (1..=MOST_INVITED).contains(count));
    let count = errors.take(Field::Count, count.ok_or(Message::CountUnfit { max: MOST_INVITED }));
    let hours = value(pairs, "hours").parse::<u32>().ok().map(|hours| HOUR * hours);
    let lasts = hours.filter(|lasts| (HOUR..=LONGEST_INVITATION).contains(lasts)).unwrap_or(INVITATION_LASTS);
    let groups = errors.take(Field::Groups, parse_groups(value(pairs, "groups")));
    if request.services.live.snapshot().registration.mode == RegistrationMode::Closed {
        errors.add(Field::Count, Message::InvitesClosed);
    }
    let Some((count, groups)) = count.zip(groups).filter(|_| errors.is_empty()) else {
        let status = errors.status();
        return respond(request, status, |page| page.again(pairs, errors)).await;
    };
    let link = invite_many(&request.admin, count, &groups, lasts).await?;
    respond(request, StatusCode::CREATED, |page| page.links = vec![link]).await
}

/// Saves the mode of `[registration]`.
async fn submit_mode(posted: &AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = posted;
    let AdminRequest { visit, services, admin } = request;
    let problem = async |problem: FormProblem| {
        let status = problem.status();
        respond(request, status, |page| page.problem = Some(problem)).await
    };
    let reason = match posted.reason() {
        Ok(reason) => reason,
        Err(wrong) => return problem(wrong).await,
    };
    let seen = services.tuning.current().version;
    let mode: String = value(pairs, "mode").chars().take(LONGEST_MODE).collect();
    let draft = Draft::Json(json!({ "mode": mode }));
    let checked = check(admin, Edit::Section(LiveSection::Registration, draft)).await?;
    let saved = save_unrecorded(admin, checked, &seen, &reason).await;
    record_save(admin, "registration.save", json!({ "reason": reason, "mode": mode }), &saved);
    match saved {
        Ok(saved) => Ok(visit.see_other(HERE, Some(told(&saved, Flash::RegistrationSaved)))),
        Err(error) => problem(error.into()).await,
    }
}

/// `POST /admin/accounts/{id}/invite`
pub async fn again(posted: AdminForm, id: Path<String>) -> WebResult {
    let act = Box::pin(async {
        let (_, link) = invite_again(&posted.request.admin, &id).await?;
        respond(&posted.request, StatusCode::CREATED, |page| page.links = vec![link]).await
    });
    confirm::confirmed(&posted, act).await
}

/// `POST /admin/invitations/revoke`. If it is not good any more, there is nothing to do.
pub async fn revoke(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let act = Box::pin(async {
        if let Some(id) = InvitationId::parse(value(pairs, "id")) {
            revoke_one(&request.admin, id).await?;
        }
        Ok(request.visit.see_other(HERE, Some(Flash::InvitationRevoked)))
    });
    confirm::confirmed(&posted, act).await
}

async fn respond(
    request: &AdminRequest,
    status: StatusCode,
    fill: impl FnOnce(&mut InvitationsPage),
) -> WebResult {
    let AdminRequest { visit, services, .. } = request;
    let mut page = InvitationsPage {
        layout: request.layout(HERE),
        invitations: services.invitations.list().await?,
        groups: services.accounts.group_names(100).await?,
        mode: services.live.snapshot().registration.mode,
        overridden: services.live.overridden().keys_of(LiveSection::Registration).any(|key| key == "mode"),
        links: Vec::new(),
        sent: FormPairs::default(),
        errors: FieldErrors::default(),
        problem: None,
    };
    fill(&mut page);
    page.layout.mistaken = !page.errors.is_empty();
    Ok(visit.page(status, &page))
}

#[derive(Template)]
#[template(path = "pages/admin/invitations.html")]
struct InvitationsPage {
    layout: Layout,
    invitations: Vec<InvitationEntry>,
    /// Suggested.
    groups: Vec<String>,
    mode: RegistrationMode,
    /// The mode is set by an environment variable.
    overridden: bool,
    /// What was just made.
    links: Vec<MadeLink>,
    /// The form that is shown again.
    sent: FormPairs,
    errors: FieldErrors,
    problem: Option<FormProblem>,
}

impl InvitationsPage {
    fn again(&mut self, pairs: &FormPairs, errors: FieldErrors) {
        (self.sent, self.errors) = (pairs.clone(), errors);
    }

    /// A field of that form as it was sent.
    fn typed(&self, form: &str, name: &str) -> &str {
        if value(&self.sent, "do") == form { value(&self.sent, name) } else { "" }
    }

    /// The errors of that form.
    fn errors_of(&self, form: &str) -> FieldErrors {
        if value(&self.sent, "do") == form { self.errors.clone() } else { FieldErrors::default() }
    }

    fn focus(&self) -> &'static str {
        self.errors.first().map_or("", Field::name)
    }

    /// The part of the form that most do without.
    fn opens_more(&self) -> bool {
        let filled = |name| !self.typed("create", name).is_empty();
        ["phone", "name", "email"].into_iter().any(filled)
    }

    /// How long a link for many may be good, in hours.
    fn spans(&self) -> Vec<(&'static str, Cow<'static, str>, bool)> {
        let spans = [
            ("24", "invitations.day"),
            ("72", "invitations.days"),
            ("168", "invitations.week"),
            ("720", "tokens.month"),
        ];
        let sent = Some(self.typed("invite", "hours")).filter(|hours| !hours.is_empty()).unwrap_or("72");
        spans.into_iter().map(|(hours, key)| (hours, self.layout.t(key), hours == sent)).collect()
    }

    /// How many accounts an invitation for many still makes.
    fn places(&self, row: &InvitationEntry) -> String {
        let words = self.layout.with("invitations.places", &row.count.to_string());
        words.replace("%{left}", &row.left.to_string())
    }

    /// The modes, each with whether it is in force.
    fn modes(&self) -> Vec<(&'static str, Cow<'static, str>, bool)> {
        let word = |(name, mode): (&'static str, _)| {
            let key = match mode {
                RegistrationMode::Open => "invitations.mode-open",
                RegistrationMode::Invite => "invitations.mode-invite",
                RegistrationMode::Closed => "invitations.mode-closed",
            };
            (name, self.layout.t(key), mode == self.mode)
        };
        RegistrationMode::WORDS.into_iter().map(word).collect()
    }

    /// Every link on a line of its own, with its name before it.
    fn all_links(&self) -> String {
        let line = |made: &MadeLink| match &made.login {
            Some(login) if self.links.len() > 1 => format!("{login}\t{}\n", made.link),
            _ => format!("{}\n", made.link),
        };
        self.links.iter().map(line).collect()
    }

    fn problem_text(&self) -> Option<String> {
        Some(match self.problem.as_ref()? {
            FormProblem::ReasonMissing => self.layout.t("draft.reason-missing").into_owned(),
            FormProblem::Refused(text) | FormProblem::NotSaved(text) => text.clone(),
            FormProblem::Expired | FormProblem::Stale => self.layout.t("notice.expired-text").into_owned(),
        })
    }
}
