//! What the pages of accounts show.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;
use rust_i18n::t;

use crate::audit::SubjectKind;
use crate::clock::Micros;
use crate::login::{Account, AccountAct, AccountPage, Groups, PastSignIn, Session};
use crate::web::console::subject_link;
use crate::web::kit::device::Device;
use crate::web::kit::layout::Layout;
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::Moment;

/// Why nothing is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindProblem {
    Nothing,
    Expired,
}

struct ListedAccount {
    href: String,
    login: String,
    phone: Option<String>,
    made: Moment,
    admin: bool,
    disabled: bool,
}

#[derive(Template)]
#[template(path = "pages/admin/accounts.html")]
pub struct AccountsView {
    layout: Layout,
    rows: Vec<ListedAccount>,
    next: Option<String>,
    asked: String,
    problem: Option<FindProblem>,
}

impl AccountsView {
    pub fn new(visit: &Visit, user: &str, found: AccountPage) -> Self {
        let next = found.next.map(|cursor| format!("/admin/accounts?after={cursor}"));
        let row = |account: Account| ListedAccount {
            href: format!("/admin/accounts/{}", account.id),
            login: account.login.as_str().to_owned(),
            phone: account.phone.as_ref().map(|phone| phone.as_str().to_owned()),
            made: Moment(account.created_at),
            admin: account.roles.admin,
            disabled: account.disabled_at.is_some(),
        };
        Self {
            layout: visit.layout("/admin/accounts", Some(user)),
            rows: found.entries.into_iter().map(row).collect(),
            next,
            asked: String::new(),
            problem: None,
        }
    }

    /// What was looked for. There is no next page: its URL would name it.
    pub fn asked(self, asked: String) -> Self {
        Self { asked, next: None, ..self }
    }

    pub fn problem(self, problem: FindProblem) -> Self {
        Self { problem: Some(problem), ..self }
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        let status = match self.problem {
            Some(FindProblem::Expired) => StatusCode::FORBIDDEN,
            Some(FindProblem::Nothing) | None => StatusCode::OK,
        };
        visit.page(status, self)
    }
}

/// Why a change was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountAnswer {
    ReasonMissing,
    /// The name that was typed before it is deleted.
    NameWrong,
    LastAdmin,
    NoPassword,
    Expired,
}

impl AccountAnswer {
    const fn status(self) -> StatusCode {
        match self {
            Self::ReasonMissing | Self::NameWrong => StatusCode::UNPROCESSABLE_ENTITY,
            Self::LastAdmin | Self::NoPassword => StatusCode::CONFLICT,
            Self::Expired => StatusCode::FORBIDDEN,
        }
    }

    const fn key(self) -> &'static str {
        match self {
            Self::ReasonMissing => "draft.reason-missing",
            Self::NameWrong => "accounts.delete-name-wrong",
            Self::LastAdmin => "accounts.last-admin",
            Self::NoPassword => "accounts.needs-password",
            Self::Expired => "notice.expired-text",
        }
    }
}

/// Why the groups were not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupsAnswer {
    Name(String),
    TooMany,
    ReasonMissing,
    Expired,
}

impl GroupsAnswer {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Name(_) | Self::TooMany | Self::ReasonMissing => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Expired => StatusCode::FORBIDDEN,
        }
    }

    fn text(&self, layout: &Layout) -> String {
        match self {
            Self::Name(name) => t!("accounts.group-wrong", locale = layout.lang(), it = name).into_owned(),
            Self::TooMany => layout.t("accounts.groups-too-many").into_owned(),
            Self::ReasonMissing => layout.t("draft.reason-missing").into_owned(),
            Self::Expired => layout.t("notice.expired-text").into_owned(),
        }
    }
}

struct SessionLine {
    device: Device,
    network: String,
    seen: Moment,
}

#[derive(Template)]
#[template(path = "pages/admin/one_account.html")]
pub struct AccountView {
    layout: Layout,
    id: String,
    login: String,
    phone: Option<String>,
    made: Moment,
    admin: bool,
    has_password: bool,
    must_change: bool,
    disabled: Option<Moment>,
    password_disabled: Option<Moment>,
    sessions: Vec<SessionLine>,
    sign_ins: Vec<SessionLine>,
    /// The one who looks at it.
    own: bool,
    /// Its events.
    events: Option<String>,
    answer: Option<(AccountAct, AccountAnswer)>,
    /// As they stand, or as they were typed.
    groups: String,
    groups_answer: Option<GroupsAnswer>,
}

impl AccountView {
    pub fn new(
        visit: &Visit,
        user: &str,
        account: Account,
        sessions: Vec<Session>,
        sign_ins: Vec<PastSignIn>,
    ) -> Self {
        let line = |agent: &str, network: String, seen: Micros| SessionLine {
            device: Device::parse(agent),
            network,
            seen: Moment(seen),
        };
        let session = |session: Session| line(&session.user_agent, session.network, session.last_seen);
        let sign_in = |sign_in: PastSignIn| line(&sign_in.user_agent, sign_in.network, sign_in.at);
        Self {
            layout: visit.layout(format!("/admin/accounts/{}", account.id), Some(user)),
            id: account.id.to_string(),
            login: account.login.as_str().to_owned(),
            phone: account.phone.as_ref().map(|phone| phone.as_str().to_owned()),
            made: Moment(account.created_at),
            admin: account.roles.admin,
            has_password: account.password_hash.is_some(),
            must_change: account.must_change_password,
            disabled: account.disabled_at.map(Moment),
            password_disabled: account.password_disabled_at.map(Moment),
            sessions: sessions.into_iter().map(session).collect(),
            sign_ins: sign_ins.into_iter().map(sign_in).collect(),
            own: false,
            events: None,
            answer: None,
            groups: String::new(),
            groups_answer: None,
        }
    }

    pub fn in_groups(self, groups: &Groups) -> Self {
        Self { groups: groups.names().collect::<Vec<_>>().join(" "), ..self }
    }

    pub fn groups_answer(self, typed: String, answer: GroupsAnswer) -> Self {
        Self { groups: typed, groups_answer: Some(answer), ..self }
    }

    pub fn own(self, own: bool) -> Self {
        Self { own, ..self }
    }

    /// The key by which events name it.
    pub fn recorded_as(self, key: i64) -> Self {
        Self { events: Some(subject_link::events_of(SubjectKind::Account, key, None)), ..self }
    }

    pub fn answer(self, act: AccountAct, answer: AccountAnswer) -> Self {
        Self { answer: Some((act, answer)), ..self }
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        let of_groups = self.groups_answer.as_ref().map(GroupsAnswer::status);
        let status = self.answer.map(|(_, answer)| answer.status()).or(of_groups);
        visit.page(status.unwrap_or(StatusCode::OK), self)
    }

    /// What can be done to it now.
    fn acts(&self) -> Vec<AccountAct> {
        let fits = |act: &AccountAct| match act {
            AccountAct::Disable => self.disabled.is_none() && !self.own,
            AccountAct::Enable => self.disabled.is_some(),
            AccountAct::EndSessions => true,
            AccountAct::RequireNewPassword => self.has_password && !self.must_change,
            AccountAct::MakeAdmin => !self.admin && self.has_password && self.disabled.is_none(),
            AccountAct::UnmakeAdmin => self.admin,
            AccountAct::Delete => !self.own,
        };
        AccountAct::ALL.into_iter().filter(fits).collect()
    }

    /// The locale keys of an act: its button, and what it does.
    const fn words(&self, act: &AccountAct) -> (&'static str, &'static str) {
        match act {
            AccountAct::Disable => ("accounts.disable", "accounts.disable-about"),
            AccountAct::Enable => ("accounts.enable", "accounts.enable-about"),
            AccountAct::EndSessions => ("accounts.end-sessions", "accounts.end-sessions-about"),
            AccountAct::RequireNewPassword => ("accounts.new-password", "accounts.new-password-about"),
            AccountAct::MakeAdmin => ("accounts.make-admin", "accounts.make-admin-about"),
            AccountAct::UnmakeAdmin => ("accounts.unmake-admin", "accounts.unmake-admin-about"),
            AccountAct::Delete => ("accounts.delete", "accounts.delete-about"),
        }
    }

    fn groups_wrong(&self) -> Option<String> {
        self.groups_answer.as_ref().map(|answer| answer.text(&self.layout))
    }

    /// Which of its two fields is wrong.
    const fn reason_is_missing(&self) -> bool {
        matches!(self.groups_answer, Some(GroupsAnswer::ReasonMissing))
    }

    /// Whether the name of the account has to be typed, because nothing brings it back.
    fn asks_for_name(&self, act: &AccountAct) -> bool {
        *act == AccountAct::Delete
    }

    fn name_is_wrong(&self) -> bool {
        matches!(self.answer, Some((_, AccountAnswer::NameWrong)))
    }

    /// What went wrong with this act.
    fn wrong(&self, act: &AccountAct) -> Option<&'static str> {
        self.answer.filter(|(asked, _)| asked == act).map(|(_, answer)| answer.key())
    }
}
