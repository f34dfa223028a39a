//! `/admin/accounts/{id}`: shows an account and where it is signed in, and changes its state, its groups and its profile.

pub mod api;
pub mod groups;
pub mod list;

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::web::Path;
use askama::Template;
use serde_json::json;
use strum::VariantArray;

use crate::accounts::{
    Account, AccountAct, AccountChange, AccountId, Factor, Groups, GroupsError, PastSignIn, Profile,
    ProfileError, Session, Username,
};
use crate::audit::{Action, AuditEvent, Outcome, SubjectKind};
use crate::db::DbError;
use crate::lookup::RecordedSubject;
use crate::web::console::confirm;
use crate::web::console::events::row::{self, EventRow};
use crate::web::console::figures::DAY;
use crate::web::console::guard::{Admin, AdminForm, AdminRequest};
use crate::web::console::standing::StandingRow;
use crate::web::console::{FormProblem, lookup, standing, subject_link};
use crate::web::form::value;
use crate::web::http::{Device, Flash, Layout, Moment, Problem, Services, WebError, WebResult};

const HERE: &str = "/admin/accounts";
const A_PAGE: u32 = 50;
/// The form of its groups, beside those of acts.
const GROUPS: &str = "groups";
const PROFILE: &str = "profile";
const UNLOCK: &str = "unlock";
/// Events that the page shows.
const LATEST: u32 = 10;
const DAYS: u32 = 30;
/// Bytes of a list of groups as it is typed: 50 of 64, with spaces.
const LONGEST_LIST: usize = 4096;

/// Changes an account and records that. Administrators do not shut themselves out.
async fn change(
    admin: &Admin,
    account: &Account,
    act: AccountAct,
    reason: &str,
) -> Result<AccountChange, DbError> {
    if act.shuts_out() && account.id == admin.account.id {
        return Ok(AccountChange::LastAdmin);
    }
    let change = admin.services.accounts.change(account.id, act, admin.token().is_some()).await?;
    if change == AccountChange::Done {
        let name = format!("account-{}", act.into_str());
        admin.did_to(account, &name, &json!({ "reason": reason }));
    }
    if act == AccountAct::ClearFactors && change == AccountChange::Done {
        let audit = &admin.services.audit;
        audit.record(AuditEvent {
            account: Some(account.recorded()),
            ..AuditEvent::new(audit.now(), Action::FactorReset, Outcome::Ok)
        });
    }
    Ok(change)
}

/// Gives an account the groups that follow from those that it has, and records that.
async fn change_groups(
    admin: &Admin,
    account: &Account,
    reason: &str,
    change: impl FnOnce(&Groups) -> Groups + Send,
) -> Result<AccountChange, DbError> {
    let accounts = &admin.services.accounts;
    let change = accounts.change_groups(account.id, admin.token().is_some(), change).await?;
    if let AccountChange::NewGroups { from, to } = &change {
        let detail = json!({ "reason": reason, "from": from.to_string(), "to": to.to_string() });
        admin.did_to(account, "account-groups", &detail);
    }
    Ok(change)
}

/// Sets the profile of an account, and records which fields of it changed: what they hold is the owner's, and goes with
/// the account.
async fn set_profile_of(
    admin: &Admin,
    account: &Account,
    profile: &Profile,
    reason: Option<&str>,
) -> Result<AccountChange, DbError> {
    let change = admin.services.profiles.set(account.id, profile, admin.token().is_some()).await?;
    if let AccountChange::NewProfile(fields) = &change {
        let mut detail = json!({ "fields": fields.join(", ") });
        if let Some(reason) = reason {
            detail["reason"] = reason.into();
        }
        admin.did_to(account, "account-profile", &detail);
    }
    Ok(change)
}

/// Finds an account, even one that is deleted.
async fn by_id(services: &Services, id: &str) -> Result<Account, Problem> {
    let id = AccountId::parse(id).ok_or(Problem::NotFound)?;
    services.accounts.by_id(id).await?.ok_or(Problem::NotFound)
}

pub(super) async fn found(services: &Services, id: &str) -> Result<Account, Problem> {
    let account = by_id(services, id).await?;
    if account.deleted_at.is_none() { Ok(account) } else { Err(Problem::NotFound) }
}

/// `GET /admin/accounts/{id}`
pub async fn one(request: AdminRequest, id: Path<String>) -> WebResult {
    let account = found(&request.services, &id).await?;
    Ok(request.visit.page(StatusCode::OK, &view(&request, account).await?))
}

/// `POST /admin/accounts/{id}/{act}`, with a reason and a confirmed password; to delete it, also with its name.
pub async fn act(posted: AdminForm, path: Path<(String, String)>) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let (id, act) = path.into_inner();
    let reason = posted.reason();
    let act: AccountAct = act.parse().map_err(|_| Problem::NotFound)?;
    let account = by_id(&request.services, &id).await?;
    let done = || match act {
        AccountAct::Delete => request.visit.see_other(HERE, Some(said_of(act))),
        _ => request.visit.see_other(&format!("{HERE}/{id}"), Some(said_of(act))),
    };
    if account.deleted_at.is_some() {
        // The second of two clicks.
        return if act == AccountAct::Delete { Ok(done()) } else { Err(Problem::NotFound.into()) };
    }
    let again = async |problem: AccountProblem| -> WebResult {
        let view = view(request, account.clone()).await?;
        let status = problem.status();
        let problem = Some((act.into_str(), problem));
        Ok(request.visit.page(status, &AccountView { problem, ..view }))
    };
    let reason = match reason {
        Ok(reason) => reason,
        Err(problem) => return again(AccountProblem::Form(problem)).await,
    };
    let is_named = |typed: &str| Username::parse(typed.trim()).is_ok_and(|name| name == account.login);
    if act == AccountAct::Delete && !is_named(value(pairs, "account_name")) {
        return again(AccountProblem::NameWrong).await;
    }
    let act = Box::pin(async {
        match change(&request.admin, &account, act, &reason).await? {
            AccountChange::Done | AccountChange::Unchanged => Ok(done()),
            AccountChange::LastAdmin => again(AccountProblem::LastAdmin).await,
            AccountChange::NoPassword => again(AccountProblem::NoPassword).await,
            _ => Err(Problem::NotFound.into()),
        }
    });
    confirm::confirmed(&posted, act).await
}

/// `POST /admin/accounts/{id}/unlock`, with a reason and a confirmed password.
pub async fn unlock(posted: AdminForm, id: Path<String>) -> WebResult {
    let AdminForm { request, .. } = &posted;
    if !posted.is_ours() {
        return Err(Problem::Csrf.into());
    }
    let account = found(&request.services, &id).await?;
    let reason = match posted.reason() {
        Ok(reason) => reason,
        Err(problem) => {
            let problem = AccountProblem::Form(problem);
            let status = problem.status();
            let view = view(request, account).await?;
            let view = AccountView { problem: Some((UNLOCK, problem)), ..view };
            return Ok(request.visit.page(status, &view));
        }
    };
    let act = Box::pin(async {
        let live = request.services.live.snapshot();
        let by = lookup::actor(&request.admin, reason);
        let ended = request.services.lookup.unlock(&live, &account, &by).await.map_err(Problem::from)?;
        let said = if ended > 0 { Flash::AccountUnlocked } else { Flash::NothingLocked };
        Ok(request.visit.see_other(&format!("{HERE}/{id}"), Some(said)))
    });
    confirm::confirmed(&posted, act).await
}

/// What the next page says.
const fn said_of(act: AccountAct) -> Flash {
    match act {
        AccountAct::Disable => Flash::AccountDisabled,
        AccountAct::Enable => Flash::AccountEnabled,
        AccountAct::EndSessions => Flash::AccountSignedOut,
        AccountAct::RequireNewPassword => Flash::AccountMustChange,
        AccountAct::ClearFactors => Flash::AccountFactorsCleared,
        AccountAct::MakeAdmin => Flash::AccountMadeAdmin,
        AccountAct::UnmakeAdmin => Flash::AccountUnmadeAdmin,
        AccountAct::Delete => Flash::AccountDeleted,
    }
}

/// `POST /admin/accounts/{id}/groups`, with a reason and a confirmed password.
pub async fn set_groups(posted: AdminForm, id: Path<String>) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let reason = posted.reason();
    let account = found(&request.services, &id).await?;
    let typed = value(pairs, "groups");
    let again = async |problem: AccountProblem| -> WebResult {
        let view = view(request, account.clone()).await?;
        let status = problem.status();
        let view = AccountView { groups: typed.to_owned(), problem: Some((GROUPS, problem)), ..view };
        Ok(request.visit.page(status, &view))
    };
    let groups = match &reason {
        Err(FormProblem::Expired) => Err(AccountProblem::Form(FormProblem::Expired)),
        _ if typed.len() > LONGEST_LIST => Err(AccountProblem::TooManyGroups),
        _ => Groups::parse(typed.split([' ', ',']).map(str::trim).filter(|name| !name.is_empty()))
            .map_err(AccountProblem::from),
    };
    let (groups, reason) = match groups.and_then(|groups| Ok((groups, reason.map_err(AccountProblem::Form)?)))
    {
        Ok(read) => read,
        Err(problem) => return again(problem).await,
    };
    let act = Box::pin(async {
        match change_groups(&request.admin, &account, &reason, |_| groups).await? {
            AccountChange::NewGroups { .. } | AccountChange::Unchanged => {
                Ok(request.visit.see_other(&format!("{HERE}/{id}#groups-of"), Some(Flash::AccountGroupsSet)))
            }
            _ => Err(Problem::NotFound.into()),
        }
    });
    confirm::confirmed(&posted, act).await
}

/// `POST /admin/accounts/{id}/profile`, with a reason and a confirmed password.
pub async fn set_profile(posted: AdminForm, id: Path<String>) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let reason = posted.reason();
    let account = found(&request.services, &id).await?;
    let typed = TypedProfile {
        email: value(pairs, "email").trim().to_owned(),
        email_verified: !value(pairs, "email_verified").is_empty(),
        name: value(pairs, "name").trim().to_owned(),
    };
    let filled = |text| Some(text).filter(|text: &&str| !text.is_empty());
    let profile = Profile::parse(filled(&typed.email), typed.email_verified, filled(&typed.name));
    let read = match (reason, profile) {
        (Ok(reason), Ok(profile)) => Ok((reason, profile)),
        (Err(FormProblem::Expired), _) => Err(AccountProblem::Form(FormProblem::Expired)),
        (_, Err(error)) => Err(AccountProblem::Profile(error)),
        (Err(problem), _) => Err(AccountProblem::Form(problem)),
    };
    let (reason, profile) = match read {
        Ok(read) => read,
        Err(problem) => {
            let status = problem.status();
            let view = view(request, account).await?;
            let view = AccountView { typed, problem: Some((PROFILE, problem)), ..view };
            return Ok(request.visit.page(status, &view));
        }
    };
    let act = Box::pin(async {
        match set_profile_of(&request.admin, &account, &profile, Some(&reason)).await? {
            AccountChange::NewProfile(_) | AccountChange::Unchanged => {
                let here = format!("{HERE}/{id}#profile-of");
                Ok(request.visit.see_other(&here, Some(Flash::AccountProfileSet)))
            }
            _ => Err(Problem::NotFound.into()),
        }
    });
    confirm::confirmed(&posted, act).await
}

async fn view(request: &AdminRequest, account: Account) -> Result<AccountView, WebError> {
    let AdminRequest { services, admin, .. } = request;
    let groups = services.accounts.groups(account.id).await?;
    let profile = services.profiles.of(account.id).await?;
    let key = services.audit.subject(&account.recorded());
    let recorded = RecordedSubject { kind: SubjectKind::Account, key };
    let since = request.visit.now().minus(DAY * DAYS);
    let latest = services.lookup.events_of(recorded, since, LATEST).await?;
    let factors = services.factor_verifier.factors().of(account.id).await?;
    let live = services.live.snapshot();
    let confirmed = ConfirmedEmail::of(services, account.id).await?;
    Ok(AccountView {
        confirmed,
        standing: standing::of_account(&services.lookup, &live, &account, request.visit.locale).await?,
        latest: row::rows(latest),
        strongest: factors.methods().into_iter().find(|factor| *factor != Factor::Recovery),
        invited: services.invitations.is_invited(account.id).await?,
        layout: request.layout(format!("{HERE}/{}", account.id)),
        sessions: services.sessions.list(account.id).await?,
        sign_ins: services.accounts.last_sign_ins(account.id).await?,
        own: account.id == admin.account.id,
        events: subject_link::events_of(SubjectKind::Account, key, None),
        problem: None,
        has_factors: services.accounts.has_factors(account.id).await?,
        passkeys: factors.passkeys,
        groups: groups.names().collect::<Vec<_>>().join(" "),
        names: groups.names().map(str::to_owned).collect(),
        typed: TypedProfile::of(&profile),
        profile,
        account,
    })
}

/// Why a form that changes one or several accounts is shown again.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AccountProblem {
    Form(FormProblem),
    /// The name that was typed before it is deleted.
    NameWrong,
    GroupName(String),
    TooManyGroups,
    Profile(ProfileError),
    NoneChosen,
    NoAct,
    LastAdmin,
    NoPassword,
    OwnChosen,
    /// All others are changed.
    NotThese(String),
}

impl From<GroupsError> for AccountProblem {
    fn from(error: GroupsError) -> Self {
        match error {
            GroupsError::Name(name) => Self::GroupName(name),
            GroupsError::TooMany => Self::TooManyGroups,
        }
    }
}

impl AccountProblem {
    /// Its status, the key of its text, and what that names.
    fn row(&self) -> (StatusCode, &'static str, Option<&str>) {
        const WRONG: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;
        const CONFLICT: StatusCode = StatusCode::CONFLICT;
        match self {
            Self::Form(problem @ FormProblem::ReasonMissing) => {
                (problem.status(), "draft.reason-missing", None)
            }
            Self::Form(problem) => (problem.status(), "notice.expired-text", None),
            Self::NameWrong => (WRONG, "accounts.delete-name-wrong", None),
            Self::GroupName(name) => (WRONG, "accounts.group-wrong", Some(name)),
            Self::TooManyGroups => (WRONG, "accounts.groups-too-many", None),
            Self::Profile(ProfileError::Email) => (WRONG, "accounts.email-wrong", None),
            Self::Profile(ProfileError::VerifiedNothing) => (WRONG, "accounts.email-missing", None),
            Self::Profile(ProfileError::Name) => (WRONG, "accounts.name-wrong", None),
            Self::NoneChosen => (WRONG, "accounts.chosen-nobody", None),
            Self::NoAct => (WRONG, "accounts.chosen-no-act", None),
            Self::LastAdmin => (CONFLICT, "accounts.last-admin", None),
            Self::NoPassword => (CONFLICT, "accounts.needs-password", None),
            Self::OwnChosen => (CONFLICT, "accounts.chosen-own", None),
            Self::NotThese(names) => (CONFLICT, "accounts.chosen-not-these", Some(names)),
        }
    }

    fn status(&self) -> StatusCode {
        self.row().0
    }

    fn text(&self, layout: &Layout) -> Cow<'static, str> {
        match self.row() {
            (_, key, Some(named)) => layout.with(key, named),
            (_, key, None) => layout.t(key),
        }
    }
}

#[derive(Template)]
#[template(path = "pages/admin/one_account.html")]
struct AccountView {
    layout: Layout,
    account: Account,
    sessions: Vec<Session>,
    sign_ins: Vec<PastSignIn>,
    /// What keeps its owner out; None while the counts cannot be read.
    standing: Option<Vec<StandingRow>>,
    latest: Vec<EventRow>,
    strongest: Option<Factor>,
    /// A link of it is good.
    invited: bool,
    own: bool,
    events: String,
    /// Why a change was not made: an act by its name, [`GROUPS`] or [`PROFILE`].
    problem: Option<(&'static str, AccountProblem)>,
    /// There is something to clear.
    has_factors: bool,
    passkeys: i64,
    /// The groups as they are, or as they were typed.
    groups: String,
    /// The groups as they are.
    names: Vec<String>,
    profile: Profile,
    typed: TypedProfile,
    confirmed: Option<ConfirmedEmail>,
}

/// The e-mail address that the owner of an account has confirmed.
pub struct ConfirmedEmail {
    mask: String,
    /// Until when nothing is sent there, because it has refused mail.
    refuses_until: Option<Moment>,
}

impl ConfirmedEmail {
    async fn of(services: &Services, account: AccountId) -> Result<Option<Self>, DbError> {
        let Some(mailbox) = services.emails.of(account).await? else { return Ok(None) };
        let refuses_until = services.codes.mail_refused_until(&mailbox).await?.map(Moment);
        Ok(Some(Self { mask: mailbox.masked(), refuses_until }))
    }
}

/// The fields of the form: as they are, or as they were typed.
struct TypedProfile {
    email: String,
    email_verified: bool,
    name: String,
}

impl TypedProfile {
    fn of(profile: &Profile) -> Self {
        Self {
            email: profile.email_text().unwrap_or_default().to_owned(),
            email_verified: profile.email_verified,
            name: profile.name_text().unwrap_or_default().to_owned(),
        }
    }
}

impl AccountView {
    fn acts(&self) -> Vec<AccountAct> {
        let Account { roles, disabled_at, must_change_password, password_hash, .. } = &self.account;
        let has_password = password_hash.is_some();
        let fits = |act: &AccountAct| match act {
            AccountAct::Disable => disabled_at.is_none() && !self.own,
            AccountAct::Enable => disabled_at.is_some(),
            AccountAct::EndSessions => true,
            AccountAct::RequireNewPassword => has_password && !must_change_password,
            AccountAct::ClearFactors => self.has_factors,
            AccountAct::MakeAdmin => !roles.admin && has_password && disabled_at.is_none(),
            AccountAct::UnmakeAdmin => roles.admin,
            AccountAct::Delete => !self.own,
        };
        AccountAct::VARIANTS.iter().copied().filter(fits).collect()
    }

    /// What the button of an act says, or, with `-about`, what it does.
    fn word(&self, act: &AccountAct, part: &str) -> Cow<'static, str> {
        self.layout.locale.named_word("accounts", &format!("{}{part}", act.into_str()))
    }

    fn can_be_unlocked(&self) -> bool {
        self.standing.iter().flatten().any(|row| row.can_be_unlocked)
    }

    /// What was wrong with this form, if the page is shown again for it.
    fn wrong(&self, form: &str) -> Option<Cow<'static, str>> {
        let (_, problem) = self.problem.as_ref().filter(|(sent, _)| *sent == form)?;
        Some(problem.text(&self.layout))
    }

    /// Otherwise another field of the form is wrong.
    const fn lacks_reason(&self) -> bool {
        matches!(self.problem, Some((_, AccountProblem::Form(FormProblem::ReasonMissing))))
    }

    /// Whether the form of the profile is shown again for that field.
    fn is_wrong(&self, field: &str) -> bool {
        match &self.problem {
            Some((PROFILE, AccountProblem::Profile(error))) => error.field() == field,
            Some((PROFILE, _)) => field == "reason",
            _ => false,
        }
    }

    const fn name_is_wrong(&self) -> bool {
        matches!(self.problem, Some((_, AccountProblem::NameWrong)))
    }
}
