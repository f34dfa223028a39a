//! `/admin/accounts`: accounts in a list with filters, looked for by name or number, and several changed at once.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::web::Query;
use askama::Template;
use strum::VariantArray;
use url::form_urlencoded;

use super::{A_PAGE, AccountProblem, HERE, change, change_groups};
use crate::accounts::{
    AccountAct, AccountChange, AccountCursor, AccountId, AccountKey, AccountRole, AccountSearch,
    AccountState, AccountTotals, Factor, Groups, ListedAccount,
};
use crate::sms::Phone;
use crate::web::console::guard::{AdminForm, AdminRequest};
use crate::web::console::limit_text::grouped;
use crate::web::console::standing::StandingRow;
use crate::web::console::{FormProblem, confirm, list_href, standing};
use crate::web::form::{FormPairs, value};
use crate::web::http::{Flash, Layout, Services, WebError, WebResult};

/// Groups that the filter suggests.
const SUGGESTED: u32 = 100;

/// `GET /admin/accounts`
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let page = AccountsView::new(&request, &query, "").await?;
    Ok(request.visit.page(StatusCode::OK, &page))
}

/// `POST /admin/accounts`: finds accounts. What somebody typed does not appear in a URL, so there is no next page. Without
/// it, the list with the filters has a URL.
pub async fn find(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    if !posted.is_ours() {
        let page = AccountsView::new(request, &[], "").await?;
        let problem = Some(AccountProblem::Form(FormProblem::Expired));
        return Ok(request.visit.page(StatusCode::FORBIDDEN, &AccountsView { problem, ..page }));
    }
    match asked(pairs).as_str() {
        "" => Ok(request.visit.see_other(&read(pairs).href(None), None)),
        asked => {
            let page = AccountsView::new(request, pairs, asked).await?;
            Ok(request.visit.page(StatusCode::OK, &page))
        }
    }
}

fn asked(pairs: &[(String, String)]) -> String {
    value(pairs, "asked").trim().chars().take(255).collect()
}

/// A number that is written as one, or the first letters of a name, among the accounts that the filters leave.
fn sought(asked: &str, filters: &AccountSearch, services: &Services) -> AccountSearch {
    let region = &services.live.snapshot().sms.default_region;
    let found = match Phone::parse(asked, region) {
        Ok(phone) => AccountSearch { phone: Some(phone), ..AccountSearch::default() },
        Err(_) => AccountSearch::by_name(asked.to_lowercase()),
    };
    AccountSearch { role: filters.role, state: filters.state, group: filters.group.clone(), ..found }
}

/// What several accounts are chosen for.
enum ChosenAct {
    Disable,
    AddTo(Groups),
}

impl ChosenAct {
    fn parse(pairs: &[(String, String)]) -> Result<Self, AccountProblem> {
        match value(pairs, "act") {
            "disable" => Ok(Self::Disable),
            "add" => {
                let groups = Groups::parse([value(pairs, "group").trim()]);
                groups.map(Self::AddTo).map_err(AccountProblem::from)
            }
            _ => Err(AccountProblem::NoAct),
        }
    }
}

/// `POST /admin/accounts/chosen`: the same for each of the accounts, with one reason and a confirmed password.
pub async fn act_on_chosen(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let reason = posted.reason();
    // It was sent with the page; nothing else is led to.
    let here = value(pairs, "here").strip_prefix(HERE).and_then(|query| query.strip_prefix('?'));
    let query: FormPairs = form_urlencoded::parse(here.unwrap_or_default().as_bytes()).into_owned().collect();
    let again = async |problem: AccountProblem| -> WebResult {
        let view = AccountsView::new(request, &query, &asked(pairs)).await?;
        let (status, sent) = (problem.status(), pairs.to_vec());
        Ok(request.visit.page(status, &AccountsView { problem: Some(problem), sent, ..view }))
    };
    let ids = pairs.iter().filter(|(name, _)| name == "account").filter_map(|(_, id)| AccountId::parse(id));
    let mut accounts = Vec::new();
    for id in ids.take(A_PAGE as usize) {
        accounts.extend(
            request.services.accounts.by_id(id).await?.filter(|account| account.deleted_at.is_none()),
        );
    }
    let act = match ChosenAct::parse(pairs) {
        _ if reason == Err(FormProblem::Expired) => Err(AccountProblem::Form(FormProblem::Expired)),
        _ if accounts.is_empty() => Err(AccountProblem::NoneChosen),
        Ok(ChosenAct::Disable) if accounts.iter().any(|account| account.id == request.admin.account.id) => {
            Err(AccountProblem::OwnChosen)
        }
        parsed => parsed,
    };
    let (act, reason) = match act.and_then(|act| Ok((act, reason.map_err(AccountProblem::Form)?))) {
        Ok(read) => read,
        Err(problem) => return again(problem).await,
    };
    let run = Box::pin(async {
        let mut unchanged = Vec::new();
        for account in &accounts {
            let changed = match &act {
                ChosenAct::Disable => change(&request.admin, account, AccountAct::Disable, &reason).await?,
                ChosenAct::AddTo(groups) => {
                    change_groups(&request.admin, account, &reason, |before| before.with(groups)).await?
                }
            };
            match changed {
                AccountChange::Done | AccountChange::NewGroups { .. } | AccountChange::Unchanged => {}
                _ => unchanged.push(account.login.as_str()),
            }
        }
        if !unchanged.is_empty() {
            return again(AccountProblem::NotThese(unchanged.join(", "))).await;
        }
        let flash = match act {
            ChosenAct::Disable => Flash::AccountsDisabled,
            ChosenAct::AddTo(_) => Flash::AccountsAdded,
        };
        Ok(request.visit.see_other(&read(&query).href(None), Some(flash)))
    });
    confirm::confirmed(&posted, run).await
}

/// What a list shows, in which order, as its URL says. A word that it does not know says nothing.
fn read(query: &[(String, String)]) -> AccountSearch {
    let group = value(query, "group").trim();
    let search = AccountSearch {
        role: value(query, "role").parse().ok(),
        state: value(query, "state").parse().ok(),
        group: (!group.is_empty()).then(|| group.chars().take(64).collect()),
        reversed: value(query, "order") == "reversed",
        ..AccountSearch::default()
    };
    let by = value(query, "sort").parse().ok().filter(|key| search.takes(*key)).unwrap_or_default();
    AccountSearch { by, ..search }
}

impl AccountSearch {
    fn href(&self, after: Option<AccountCursor>) -> String {
        let sort = Some(self.by).filter(|by| *by != AccountKey::default());
        list_href(
            HERE,
            [
                ("role", self.role.map(|role| role.into_str().to_owned())),
                ("state", self.state.map(|state| state.into_str().to_owned())),
                ("sort", sort.map(|by| by.into_str().to_owned())),
                ("order", self.reversed.then(|| "reversed".to_owned())),
                ("group", self.group.clone()),
                ("after", after.map(|after| after.to_string())),
            ],
        )
    }
}

#[derive(Template)]
#[template(path = "pages/admin/accounts.html")]
struct AccountsView {
    layout: Layout,
    /// Not beside what was looked for: to count them takes longer than to find it.
    totals: Option<AccountTotals>,
    rows: Vec<ListedAccount>,
    /// What keeps the owner of each row out, in their order; shorter while the counts cannot be read.
    kept_out: Vec<Option<StandingRow>>,
    search: AccountSearch,
    /// The path with all of its query.
    here: String,
    next: Option<String>,
    is_first: bool,
    groups: Vec<String>,
    asked: String,
    problem: Option<AccountProblem>,
    /// The form that is shown again.
    sent: FormPairs,
}

impl AccountsView {
    /// What was looked for, or the list that the query describes.
    async fn new(request: &AdminRequest, query: &[(String, String)], asked: &str) -> Result<Self, WebError> {
        let (accounts, search) = (&request.services.accounts, read(query));
        let after = AccountCursor::parse(value(query, "after"));
        let found = async {
            match asked.is_empty() {
                true => accounts.page(&search, after, A_PAGE).await,
                false => accounts.page(&sought(asked, &search, &request.services), None, A_PAGE).await,
            }
        };
        let totals = async {
            match asked.is_empty() {
                true => accounts.totals().await.map(Some),
                false => Ok(None),
            }
        };
        let (found, totals, groups) = tokio::try_join!(found, totals, accounts.group_names(SUGGESTED))?;
        let here = search.href(after);
        let live = request.services.live.snapshot();
        let mut kept_out = Vec::with_capacity(found.entries.len());
        for listed in &found.entries {
            let (lookup, locale) = (&request.services.lookup, request.visit.locale);
            // While the counts cannot be read, nobody waits for each.
            let Some(rows) = standing::of_account(lookup, &live, &listed.account, locale).await? else {
                break;
            };
            kept_out.push(rows.into_iter().next().filter(|row| row.kind != "disabled"));
        }
        Ok(Self {
            kept_out,
            layout: request.layout(here.as_str()),
            totals,
            next: found.next.filter(|_| asked.is_empty()).map(|cursor| search.href(Some(cursor))),
            rows: found.entries,
            is_first: after.is_none(),
            groups,
            asked: asked.to_owned(),
            problem: None,
            sent: FormPairs::default(),
            search,
            here,
        })
    }

    fn kept_out(&self, at: &usize) -> Option<&StandingRow> {
        self.kept_out.get(*at)?.as_ref()
    }

    fn word(&self, name: &str) -> Cow<'static, str> {
        self.layout.locale.named_word("accounts", name)
    }

    fn figure(&self, count: &u64) -> String {
        grouped(*count)
    }

    /// The head of a column that a list may be sorted by; again, the other way round.
    fn column(&self, by: AccountKey) -> ListColumn {
        let AccountsView { search, asked, .. } = self;
        let is_sorted = search.by == by && asked.is_empty();
        let other = || AccountSearch { by, reversed: is_sorted && !search.reversed, ..search.clone() };
        let ascending = (by == AccountKey::Login) != search.reversed;
        ListColumn {
            href: (asked.is_empty() && search.takes(by)).then(|| other().href(None)),
            sorted: is_sorted.then_some(if ascending { "ascending" } else { "descending" }),
            text: self.word(&format!("by-{}", by.into_str())),
        }
    }

    /// A field of the form as it was sent.
    fn typed(&self, name: &str) -> &str {
        value(&self.sent, name)
    }

    fn is_chosen(&self, row: &ListedAccount) -> bool {
        let id = row.account.id.to_string();
        self.sent.iter().any(|(name, sent)| name == "account" && *sent == id)
    }

    fn problem_text(&self) -> Option<Cow<'static, str>> {
        self.problem.as_ref().map(|problem| problem.text(&self.layout))
    }
}

impl AccountState {
    /// The class of its tag.
    pub(super) const fn tone(self) -> &'static str {
        if matches!(self, Self::Disabled) { "bad" } else { "warn" }
    }
}

struct ListColumn {
    href: Option<String>,
    /// The value of `aria-sort`.
    sorted: Option<&'static str>,
    text: Cow<'static, str>,
}
