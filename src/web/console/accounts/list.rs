//! `/admin/accounts`: accounts in a list with filters, looked for by name or number, and several changed at once.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::web::{Form, Query};
use askama::Template;
use strum::VariantArray;
use url::form_urlencoded;

use super::{A_PAGE, HERE, add_to_groups, change};
use crate::accounts::{
    Account, AccountAct, AccountChange, AccountCursor, AccountFilter, AccountId, AccountKey, AccountOrder,
    AccountRole, AccountState, AccountTotals, Groups, ListedAccount,
};
use crate::db::DbError;
use crate::sms::Phone;
use crate::web::console::guard::{Admin, AdminRequest};
use crate::web::console::limit_text::grouped;
use crate::web::console::{Choice, FormProblem, confirm};
use crate::web::form::{FormPairs, value};
use crate::web::http::{Flash, Layout, Services, WebError, WebResult};

const CHOSEN: &str = "/admin/accounts/chosen";
/// Groups that the filter suggests.
const SUGGESTED: u32 = 100;

/// `GET /admin/accounts`
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let page = AccountsView::new(&request, &query, "").await?;
    Ok(request.visit.page(StatusCode::OK, &page))
}

/// `POST /admin/accounts`: finds accounts. What somebody typed does not appear in a URL, so there is no next page.
pub async fn find(request: AdminRequest, pairs: Form<FormPairs>) -> WebResult {
    if !request.sends_own_form(&pairs) {
        let page = AccountsView::new(&request, &[], "").await?;
        let problem = Some(ChosenProblem::Form(FormProblem::Expired));
        return Ok(request.visit.page(StatusCode::FORBIDDEN, &AccountsView { problem, ..page }));
    }
    let page = AccountsView::new(&request, &[], asked(&pairs).as_str()).await?;
    Ok(request.visit.page(StatusCode::OK, &page))
}

fn asked(pairs: &[(String, String)]) -> String {
    value(pairs, "asked").trim().chars().take(255).collect()
}

/// A number that is written as one, or the first letters of a name.
fn sought(asked: &str, services: &Services) -> AccountFilter {
    let region = &services.live.snapshot().sms.default_region;
    match Phone::parse(asked, region) {
        Ok(phone) => AccountFilter { phone: Some(phone), ..AccountFilter::default() },
        Err(_) => AccountFilter { login: Some(asked.to_lowercase()), ..AccountFilter::default() },
    }
}

/// What several accounts are chosen for.
enum ChosenAct {
    Disable,
    AddTo(Groups),
}

impl ChosenAct {
    fn parse(pairs: &[(String, String)]) -> Result<Self, ChosenProblem> {
        match value(pairs, "act") {
            "disable" => Ok(Self::Disable),
            "add" => {
                let group = value(pairs, "group").trim();
                let groups = Groups::parse([group]);
                groups
                    .map(Self::AddTo)
                    .map_err(|_| ChosenProblem::GroupName(group.chars().take(64).collect()))
            }
            _ => Err(ChosenProblem::NoAct),
        }
    }

    async fn carry_out(
        &self,
        admin: &Admin,
        account: &Account,
        reason: &str,
    ) -> Result<AccountChange, DbError> {
        match self {
            Self::Disable => change(admin, account, AccountAct::Disable, reason).await,
            Self::AddTo(groups) => add_to_groups(admin, account, groups, reason).await,
        }
    }
}

/// `POST /admin/accounts/chosen`: the same for each of the accounts, with one reason and a confirmed password.
pub async fn act_on_chosen(request: AdminRequest, pairs: Form<FormPairs>) -> WebResult {
    let reason = request.reason(&pairs);
    // As it was sent with the page; nothing else is led to.
    let here = value(&pairs, "here").strip_prefix(HERE).and_then(|query| query.strip_prefix('?'));
    let query: FormPairs = form_urlencoded::parse(here.unwrap_or_default().as_bytes()).into_owned().collect();
    let ids: Vec<&str> =
        pairs.iter().filter(|(name, _)| name == "account").map(|(_, id)| id.as_str()).collect();
    let again = async |problem: ChosenProblem| -> WebResult {
        let view = AccountsView::new(&request, &query, &asked(&pairs)).await?;
        let (status, typed) = (problem.status(), |name| value(&pairs, name).to_owned());
        let chosen = ids.iter().map(|id| (*id).to_owned()).collect();
        let typed = TypedAct { chosen, act: typed("act"), group: typed("group"), reason: typed("reason") };
        Ok(request.visit.page(status, &AccountsView { problem: Some(problem), typed, ..view }))
    };
    if reason == Err(FormProblem::Expired) {
        return again(ChosenProblem::Form(FormProblem::Expired)).await;
    }
    let mut accounts = Vec::new();
    for id in ids.iter().take(A_PAGE as usize).filter_map(|id| AccountId::parse(id)) {
        accounts.extend(
            request.services.accounts.by_id(id).await?.filter(|account| account.deleted_at.is_none()),
        );
    }
    let act = match ChosenAct::parse(&pairs) {
        _ if accounts.is_empty() => return again(ChosenProblem::Nobody).await,
        Err(problem) => return again(problem).await,
        Ok(ChosenAct::Disable) if accounts.iter().any(|account| account.id == request.admin.account.id) => {
            return again(ChosenProblem::Own).await;
        }
        Ok(act) => act,
    };
    let reason = match reason {
        Ok(reason) => reason,
        Err(problem) => return again(ChosenProblem::Form(problem)).await,
    };
    let run = Box::pin(async {
        let mut unchanged = Vec::new();
        for account in &accounts {
            match act.carry_out(&request.admin, account, &reason).await? {
                AccountChange::Done | AccountChange::Unchanged => {}
                _ => unchanged.push(account.login.as_str()),
            }
        }
        if !unchanged.is_empty() {
            return again(ChosenProblem::NotThese(unchanged.join(", "))).await;
        }
        let flash = match act {
            ChosenAct::Disable => Flash::AccountsDisabled,
            ChosenAct::AddTo(_) => Flash::AccountsAdded,
        };
        let back = ListedBy::parse(&query).href(None);
        Ok(request.visit.see_other(&back, Some(flash)))
    });
    confirm::confirmed(&request, CHOSEN, &pairs, run).await
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ChosenProblem {
    Form(FormProblem),
    Nobody,
    NoAct,
    GroupName(String),
    Own,
    /// All others are changed.
    NotThese(String),
}

impl ChosenProblem {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Form(problem) => problem.status(),
            Self::Nobody | Self::NoAct | Self::GroupName(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Own | Self::NotThese(_) => StatusCode::CONFLICT,
        }
    }

    fn text(&self, layout: &Layout) -> Cow<'static, str> {
        match self {
            Self::Form(FormProblem::ReasonMissing) => layout.t("draft.reason-missing"),
            Self::Form(_) => layout.t("notice.expired-text"),
            Self::Nobody => layout.t("accounts.chosen-nobody"),
            Self::NoAct => layout.t("accounts.chosen-no-act"),
            Self::GroupName(name) => layout.with("accounts.group-wrong", name),
            Self::Own => layout.t("accounts.chosen-own"),
            Self::NotThese(names) => layout.with("accounts.chosen-not-these", names),
        }
    }
}

/// What a list shows, in which order, as its URL says. A word that it does not know says nothing.
#[derive(Debug, Clone, Default)]
struct ListedBy {
    filter: AccountFilter,
    order: AccountOrder,
}

impl ListedBy {
    fn parse(query: &[(String, String)]) -> Self {
        let group = value(query, "group").trim();
        let filter = AccountFilter {
            role: value(query, "role").parse().ok(),
            state: value(query, "state").parse().ok(),
            group: (!group.is_empty()).then(|| group.chars().take(64).collect()),
            ..AccountFilter::default()
        };
        let by = value(query, "sort").parse().ok().filter(|key| filter.takes(*key)).unwrap_or_default();
        let reversed = value(query, "order") == "reversed";
        Self { filter, order: AccountOrder { by, reversed } }
    }

    fn href(&self, after: Option<&AccountCursor>) -> String {
        let (filter, order) = (&self.filter, self.order);
        let sort = (order.by != AccountKey::default()).then(|| order.by.into());
        let pairs: [(&str, Option<&'static str>); 4] = [
            ("role", filter.role.map(Into::into)),
            ("state", filter.state.map(Into::into)),
            ("sort", sort),
            ("order", order.reversed.then_some("reversed")),
        ];
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(pairs.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?))));
        query.extend_pairs(filter.group.iter().map(|group| ("group", group)));
        query.extend_pairs(after.map(|after| ("after", after.to_string())));
        let query = query.finish();
        if query.is_empty() { HERE.to_owned() } else { format!("{HERE}?{query}") }
    }
}

/// A form as it was sent, which is shown again.
#[derive(Debug, Default)]
struct TypedAct {
    chosen: Vec<String>,
    act: String,
    group: String,
    reason: String,
}

#[derive(Template)]
#[template(path = "pages/admin/accounts.html")]
struct AccountsView {
    layout: Layout,
    totals: AccountTotals,
    rows: Vec<ListedAccount>,
    by: ListedBy,
    /// The path with all of its query.
    here: String,
    next: Option<String>,
    is_first: bool,
    groups: Vec<String>,
    asked: String,
    problem: Option<ChosenProblem>,
    typed: TypedAct,
}

impl AccountsView {
    /// What was looked for, or the list that the query describes.
    async fn new(request: &AdminRequest, query: &[(String, String)], asked: &str) -> Result<Self, WebError> {
        let (accounts, by) = (&request.services.accounts, ListedBy::parse(query));
        let after = AccountCursor::of_account(value(query, "after"));
        let found = if asked.is_empty() {
            accounts.page(&by.filter, by.order, after.clone(), A_PAGE).await?
        } else {
            accounts.page(&sought(asked, &request.services), AccountOrder::BY_NAME, None, A_PAGE).await?
        };
        let here = by.href(after.as_ref());
        Ok(Self {
            layout: request.layout(here.as_str()),
            totals: accounts.totals().await?,
            next: found.next.filter(|_| asked.is_empty()).map(|cursor| by.href(Some(&cursor))),
            rows: found.entries,
            is_first: after.is_none(),
            groups: accounts.group_names(SUGGESTED).await?,
            asked: asked.to_owned(),
            problem: None,
            typed: TypedAct::default(),
            by,
            here,
        })
    }

    fn word(&self, name: &str) -> Cow<'static, str> {
        self.layout.locale.named_word("accounts", name)
    }

    fn figure(&self, count: &u64) -> String {
        grouped(*count)
    }

    fn state(&self, row: &ListedAccount) -> AccountState {
        AccountState::of(&row.account)
    }

    fn roles(&self) -> Vec<Choice> {
        let chosen = self.by.filter.role;
        let choice = |role: &AccountRole| {
            let word = role.into_str();
            Choice::new(word, self.word(word), chosen == Some(*role))
        };
        AccountRole::VARIANTS.iter().map(choice).collect()
    }

    fn states(&self) -> Vec<Choice> {
        let chosen = self.by.filter.state;
        let choice = |state: &AccountState| {
            let word = state.into_str();
            Choice::new(word, self.word(word), chosen == Some(*state))
        };
        AccountState::VARIANTS.iter().map(choice).collect()
    }

    fn group(&self) -> &str {
        self.by.filter.group.as_deref().unwrap_or_default()
    }

    fn is_filtered(&self) -> bool {
        let AccountFilter { role, state, group, .. } = &self.by.filter;
        role.is_some() || state.is_some() || group.is_some()
    }

    /// The head of a column that a list may be sorted by; again, the other way round.
    fn column(&self, key: AccountKey) -> ListColumn {
        let AccountOrder { by, reversed } = self.by.order;
        let (is_sorted, is_listed) = (by == key && self.asked.is_empty(), self.asked.is_empty());
        let order = AccountOrder { by: key, reversed: is_sorted && !reversed };
        let ascending = (key == AccountKey::Login) != reversed;
        ListColumn {
            href: (is_listed && self.by.filter.takes(key))
                .then(|| ListedBy { order, ..self.by.clone() }.href(None)),
            sorted: is_sorted.then_some(if ascending { "ascending" } else { "descending" }),
            text: self.word(&format!("by-{}", <&str>::from(key))),
        }
    }

    fn first_page(&self) -> String {
        self.by.href(None)
    }

    fn is_chosen(&self, row: &ListedAccount) -> bool {
        self.typed.chosen.iter().any(|id| *id == row.account.id.to_string())
    }

    fn problem_text(&self) -> Option<Cow<'static, str>> {
        self.problem.as_ref().map(|problem| problem.text(&self.layout))
    }
}

impl AccountState {
    pub(super) const fn is_active(self) -> bool {
        matches!(self, Self::Active)
    }

    pub(super) fn word(self) -> &'static str {
        self.into()
    }

    /// The class of its tag.
    pub(super) const fn tone(self) -> &'static str {
        if matches!(self, Self::Disabled) { "bad" } else { "warn" }
    }
}

struct ListColumn {
    href: Option<String>,
    /// As `aria-sort` says it.
    sorted: Option<&'static str>,
    text: Cow<'static, str>,
}
