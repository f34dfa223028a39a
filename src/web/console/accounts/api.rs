//! `/api/v1/admin/accounts`: the same as the pages, for programs and administrators.

use actix_web::HttpResponse;
use actix_web::web::{Path, Query};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::accounts::{
    Account, AccountAct, AccountChange, AccountCursor, AccountKey, AccountRole, AccountSearch, AccountState,
    Factor, Groups, GroupsError, Profile, ProfileError,
};
use crate::audit::words_of;
use crate::sms::Phone;
use crate::unseen::is_seen_whole;
use crate::web::console::accounts::{ConfirmedEmail, change, change_groups, found, set_profile_of};
use crate::web::console::guard::{Admin, Permitted};
use crate::web::console::standing::StandingBody;
use crate::web::console::{LONGEST_REASON, read_cursor, read_filter, read_page_size};
use crate::web::console::{lookup, standing};
use crate::web::http::describe::{self, ChangeReason};
use crate::web::http::{Locale, Moment, Problem, Services, ServicesData, UnreadBody};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AccountQuery {
    /// The first letters of the name, in small letters.
    login: Option<String>,
    /// The whole number.
    phone: Option<String>,
    /// Administrators, or all others.
    #[param(schema_with = words_of::<AccountRole>)]
    role: Option<String>,
    #[param(schema_with = words_of::<AccountState>)]
    state: Option<String>,
    /// The name of a group that they are in.
    group: Option<String>,
    /// The value of next from the previous page.
    after: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200, default = 50)]
    limit: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "accounts": [AccountBody::example()] }))]
struct AccountList {
    /// Newest first, or, with login, in alphabetical order; without those that are deleted.
    accounts: Vec<AccountBody>,
    /// For `after`; left out on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ManagedAccount, example = json!(AccountBody::example()))]
struct AccountBody {
    id: String,
    login: String,
    /// In E.164, if the account has a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(schema_with = describe::roles)]
    roles: Vec<&'static str>,
    has_password: bool,
    must_change_password: bool,
    /// The last sign-in by the password found it in the list of lost ones.
    password_breached: bool,
    /// Present if it is disabled: nothing opens it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    disabled_since: Option<String>,
    /// The strongest that it has, `passkey` or `totp`; left out if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    second_factor: Option<Factor>,
    /// How many it has. Left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    passkeys: Option<i64>,
    /// As administrators and imports set it. Left out in lists, as the two below.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = Email)]
    email: Option<String>,
    /// Left out without an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    email_verified: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The address that its owner has confirmed, masked. Left out in lists, as the one below.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed_email: Option<String>,
    /// Present if the mailbox of that address has refused mail: until then nothing is sent there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    mail_refused_until: Option<String>,
    /// What keeps its owner out now; empty if nothing does. Left out in lists, and while the counts cannot be read. From a
    /// known device they may get in all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    standing: Option<Vec<StandingBody>>,
}

impl AccountBody {
    fn example() -> Self {
        Self {
            id: "b19bb51d57b40116de95f7448daf9aef".to_owned(),
            login: "ada".to_owned(),
            phone: None,
            created_at: "2026-11-21T10:00:00Z".to_owned(),
            roles: vec!["user"],
            has_password: true,
            must_change_password: false,
            password_breached: false,
            disabled_since: None,
            passkeys: None,
            second_factor: None,
            email: None,
            email_verified: None,
            name: None,
            confirmed_email: None,
            mail_refused_until: None,
            standing: None,
        }
    }
}

impl AccountBody {
    fn of(account: &Account, second_factor: Option<Factor>) -> Self {
        Self {
            id: account.id.to_string(),
            login: account.login.as_str().to_owned(),
            phone: account.phone.as_ref().map(|phone| phone.as_str().to_owned()),
            created_at: Moment(account.created_at).iso(),
            roles: account.roles.names(),
            has_password: account.password_hash.is_some(),
            must_change_password: account.must_change_password,
            password_breached: account.password_breached,
            disabled_since: account.disabled_at.map(|at| Moment(at).iso()),
            passkeys: None,
            second_factor,
            email: None,
            email_verified: None,
            name: None,
            confirmed_email: None,
            mail_refused_until: None,
            standing: None,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "groups": ["on-call", "staff"] }))]
struct GroupsBody {
    /// In alphabetical order.
    groups: Vec<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "groups": ["on-call", "staff"], "reason": "Joined the operators." }))]
pub struct GroupsChangeRequest {
    /// All of its groups; those that are not named here end.
    #[schema(max_items = 50)]
    groups: Vec<String>,
    #[schema(value_type = ChangeReason)]
    reason: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "email": "ada@example.org", "email_verified": true, "name": "Ada Lovelace" }))]
pub struct ProfileRequest {
    /// One address, as browsers take it. Left out or null: none.
    #[schema(format = Email, max_length = 254)]
    email: Option<String>,
    /// Somebody made sure that the address is the owner's. Left out or null: false.
    email_verified: Option<bool>,
    /// On one line. Left out or null: none.
    #[schema(min_length = 1, max_length = 128)]
    name: Option<String>,
}

impl ProfileRequest {
    pub fn parse(&self) -> Result<Profile, ProfileError> {
        let verified = self.email_verified.unwrap_or_default();
        Profile::parse(self.email.as_deref(), verified, self.name.as_deref())
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "reason": "Left the company." }))]
pub struct AccountChangeRequest {
    #[schema(value_type = ChangeReason)]
    reason: String,
}

/// Accounts, newest first
#[utoipa::path(
    get,
    path = "/api/v1/admin/accounts",
    operation_id = "listAccounts",
    tag = "admin",
    params(AccountQuery),
    responses((status = 200, description = "A page of them.", body = AccountList)),
    extensions(("x-problems" = json!(["invalid-input", "invalid-phone"])))
)]
pub async fn list(
    _: Permitted,
    wanted: Query<AccountQuery>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let limit = read_page_size(wanted.limit.as_deref())?;
    let after = read_cursor(wanted.after.as_deref(), "after", AccountCursor::parse)?;
    let region = &services.live.snapshot().sms.default_region;
    let phone = wanted.phone.as_deref().filter(|text| !text.is_empty());
    let phone = phone.map(|text| Phone::parse(text, region)).transpose();
    let role = read_filter(wanted.role.as_deref(), "role", "Use user or admin.", |word| word.parse().ok())?;
    let states = "Use active, disabled or must-change-password.";
    let state = read_filter(wanted.state.as_deref(), "state", states, |word| word.parse().ok())?;
    let group = read_filter(wanted.group.as_deref(), "group", "Use the name of a group.", |name| {
        Groups::parse([name]).is_ok().then(|| name.to_owned())
    })?;
    let phone = phone.map_err(|_| Problem::InvalidPhone)?;
    let login = wanted.login.clone();
    let by = login.as_ref().map_or_else(AccountKey::default, |_| AccountKey::Login);
    let search = AccountSearch { login, phone, role, state, group, by, reversed: false };
    let page = services.accounts.page(&search, after, limit).await?;
    let next = page.next.map(|cursor| cursor.to_string());
    let accounts =
        page.entries.iter().map(|listed| AccountBody::of(&listed.account, listed.factor)).collect();
    Ok(HttpResponse::Ok().json(AccountList { accounts, next }))
}

/// One account
#[utoipa::path(
    get,
    path = "/api/v1/admin/accounts/{id}",
    operation_id = "showAccount",
    tag = "admin",
    params(("id" = String, Path, example = "b19bb51d57b40116de95f7448daf9aef")),
    responses((status = 200, description = "Its state.", body = AccountBody)),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn show(_: Permitted, id: Path<String>, services: ServicesData) -> Result<HttpResponse, Problem> {
    let account = found(&services, &id).await?;
    respond(&services, &account).await
}

async fn respond(services: &Services, account: &Account) -> Result<HttpResponse, Problem> {
    let live = services.live.snapshot();
    let standing = standing::of_account(&services.lookup, &live, account, Locale::En).await?;
    let factors = services.factor_verifier.factors().of(account.id).await?;
    let factor = factors.methods().into_iter().find(|factor| *factor != Factor::Recovery);
    let passkeys = Some(factors.passkeys);
    let profile = services.profiles.of(account.id).await?;
    let confirmed = ConfirmedEmail::of(services, account.id).await?;
    Ok(HttpResponse::Ok().json(AccountBody {
        passkeys,
        email: profile.email_text().map(str::to_owned),
        email_verified: profile.email.as_ref().map(|_| profile.email_verified),
        name: profile.name_text().map(str::to_owned),
        mail_refused_until: confirmed.as_ref().and_then(|email| email.refuses_until).map(|at| at.iso()),
        confirmed_email: confirmed.map(|email| email.mask),
        standing: standing.map(|rows| rows.into_iter().map(StandingBody::from).collect()),
        ..AccountBody::of(account, factor)
    }))
}

/// Unlock an account
///
/// Ends what keeps its owner out: clears the counts of its name, of its number and of its mailbox whose rules are full, and
/// re-enables a password that too many wrong ones have disabled. It lifts a freeze, and takes away what the account got since
/// its address changed; the password, too, unless that alone would have lifted it. An account that an administrator disabled
/// stays so. A token clears no count of a number or a mailbox, for which it takes `subjects:clear`, lifts no freeze, and does
/// nothing to an administrator's account.
#[utoipa::path(
    post,
    path = "/api/v1/admin/accounts/{id}/unlock",
    operation_id = "unlockAccount",
    tag = "admin",
    params(("id" = String, Path, example = "b19bb51d57b40116de95f7448daf9aef")),
    request_body = AccountChangeRequest,
    responses((status = 200, description = "The account as it is now.", body = AccountBody)),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn unlock(
    permitted: Permitted,
    id: Path<String>,
    body: UnreadBody<AccountChangeRequest>,
) -> Result<HttpResponse, Problem> {
    let (admin, AccountChangeRequest { reason }) = permitted.read(body).await?;
    let reason = given(&reason)?;
    let account = found(&admin.services, &id).await?;
    admin.may_touch(Some(&account), "unlock")?;
    let live = admin.services.live.snapshot();
    admin.services.lookup.unlock(&live, &account, &lookup::actor(&admin, reason.to_owned())).await?;
    respond(&admin.services, &found(&admin.services, &id).await?).await
}

/// Change an account's state
///
/// `disable`: nothing opens it, and its sessions end. `end-sessions`: also makes every browser unknown.
/// `require-new-password`: the same, and the next sign-in chooses another password. `clear-factors`: its second factors go,
/// and its sessions end. `delete`: its data goes, and its name is not given again. A change that is so already succeeds. No
/// token makes or unmakes administrators, or changes an administrator's account.
#[utoipa::path(
    post,
    path = "/api/v1/admin/accounts/{id}/{act}",
    operation_id = "changeAccount",
    tag = "admin",
    params(
        ("id" = String, Path, example = "b19bb51d57b40116de95f7448daf9aef"),
        ("act" = String, Path, description = "`disable`, `enable`, `end-sessions`, `require-new-password`, `clear-factors`, `make-admin`, `unmake-admin` or `delete`.", example = "disable")
    ),
    request_body = AccountChangeRequest,
    responses((status = 204, description = "It is so.")),
    extensions(("x-problems" = json!(["not-found", "last-administrator", "no-password"])))
)]
pub async fn act(
    permitted: Permitted,
    path: Path<(String, String)>,
    body: UnreadBody<AccountChangeRequest>,
) -> Result<HttpResponse, Problem> {
    let (admin, AccountChangeRequest { reason }) = permitted.read(body).await?;
    let (id, act) = path.into_inner();
    let act: AccountAct = act.parse().map_err(|_| Problem::NotFound)?;
    let reason = given(&reason)?;
    if act.is_about_admins() && admin.token().is_some() {
        return Err(admin.overreached(act.into_str()));
    }
    let account = found(&admin.services, &id).await?;
    admin.may_touch(Some(&account), act.into_str())?;
    let changed = change(&admin, &account, act, reason).await?;
    answer(changed, &admin, act.into_str())
}

/// Clear the second factors of an account
///
/// For an owner who has lost them: the app, the passkeys and the recovery codes are void, and its sessions end. The same as
/// `clear-factors`. No token does this to an administrator's account.
#[utoipa::path(
    delete,
    path = "/api/v1/admin/accounts/{id}/factors",
    operation_id = "clearFactors",
    tag = "admin",
    params(("id" = String, Path, example = "b19bb51d57b40116de95f7448daf9aef")),
    request_body = AccountChangeRequest,
    responses((status = 204, description = "It is so.")),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn clear_factors(
    permitted: Permitted,
    id: Path<String>,
    body: UnreadBody<AccountChangeRequest>,
) -> Result<HttpResponse, Problem> {
    let act_on = (id.into_inner(), AccountAct::ClearFactors.into_str().to_owned());
    act(permitted, Path::from(act_on), body).await
}

/// The groups of an account
#[utoipa::path(
    get,
    path = "/api/v1/admin/accounts/{id}/groups",
    operation_id = "showAccountGroups",
    tag = "admin",
    params(("id" = String, Path, example = "b19bb51d57b40116de95f7448daf9aef")),
    responses((status = 200, description = "Their names.", body = GroupsBody)),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn groups(_: Permitted, id: Path<String>, services: ServicesData) -> Result<HttpResponse, Problem> {
    let account = found(&services, &id).await?;
    let groups = services.accounts.groups(account.id).await?;
    Ok(HttpResponse::Ok().json(GroupsBody { groups: groups.names().map(str::to_owned).collect() }))
}

/// Give an account its groups
///
/// It has these groups then, and no others. Sessions go on. No token changes an administrator's account.
#[utoipa::path(
    put,
    path = "/api/v1/admin/accounts/{id}/groups",
    operation_id = "setAccountGroups",
    tag = "admin",
    params(("id" = String, Path, example = "b19bb51d57b40116de95f7448daf9aef")),
    request_body = GroupsChangeRequest,
    responses((status = 204, description = "It is so.")),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn set_groups(
    permitted: Permitted,
    id: Path<String>,
    body: UnreadBody<GroupsChangeRequest>,
) -> Result<HttpResponse, Problem> {
    let (admin, GroupsChangeRequest { groups, reason }) = permitted.read(body).await?;
    let reason = given(&reason)?;
    let groups = Groups::parse(groups.iter().map(String::as_str));
    let groups = groups.map_err(|error| Problem::wrong("groups", format!("{error}.")))?;
    let account = found(&admin.services, &id).await?;
    admin.may_touch(Some(&account), "groups")?;
    let changed = change_groups(&admin, &account, reason, |_| groups).await?;
    answer(changed, &admin, "groups")
}

/// Set the profile of an account
///
/// The whole of it: the address and the name that applications are told. Two accounts may have the same address, and
/// nothing is found by it. Sessions go on. No token changes an administrator's account.
#[utoipa::path(
    put,
    path = "/api/v1/admin/accounts/{id}/profile",
    operation_id = "setAccountProfile",
    tag = "admin",
    params(("id" = String, Path, example = "b19bb51d57b40116de95f7448daf9aef")),
    request_body = ProfileRequest,
    responses((status = 204, description = "It is so.")),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn set_profile(
    permitted: Permitted,
    id: Path<String>,
    body: UnreadBody<ProfileRequest>,
) -> Result<HttpResponse, Problem> {
    let (admin, profile): (_, ProfileRequest) = permitted.read(body).await?;
    let profile = profile.parse().map_err(|error| Problem::wrong(error.field(), format!("It {error}.")))?;
    let account = found(&admin.services, &id).await?;
    admin.may_touch(Some(&account), "profile")?;
    let changed = set_profile_of(&admin, &account, &profile, None).await?;
    answer(changed, &admin, "profile")
}

fn given(reason: &str) -> Result<&str, Problem> {
    let reason = reason.trim();
    if reason.chars().count() > LONGEST_REASON || !is_seen_whole(reason) {
        let message = format!("Give a reason of 1 to {LONGEST_REASON} characters on one line.");
        return Err(Problem::wrong("reason", message));
    }
    Ok(reason)
}

fn answer(changed: AccountChange, admin: &Admin, act: &str) -> Result<HttpResponse, Problem> {
    match changed {
        AccountChange::Done
        | AccountChange::NewGroups { .. }
        | AccountChange::NewProfile(_)
        | AccountChange::Unchanged => Ok(HttpResponse::NoContent().finish()),
        AccountChange::LastAdmin => Err(Problem::LastAdministrator),
        AccountChange::NoPassword => Err(Problem::NoPassword),
        AccountChange::OfAdmin => Err(admin.overreached(act)),
        AccountChange::TooManyGroups => Err(Problem::wrong("groups", format!("{}.", GroupsError::TooMany))),
        AccountChange::Gone => Err(Problem::NotFound),
    }
}
