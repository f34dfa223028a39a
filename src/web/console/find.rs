//! `/admin/find`: the console's search by `/` or Ctrl-K: pages, limits and accounts of that name, and the look-up of a
//! number, an address or an e-mail address. What somebody typed is in no URL.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use askama::Template;

use crate::accounts::{AccountSearch, ListedAccount};
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::lookup::LookupValue;
use crate::web::console::guard::{AdminForm, AdminRequest};
use crate::web::console::limit_text::title;
use crate::web::console::lookup::{self, subject};
use crate::web::console::standing;
use crate::web::form::value;
use crate::web::http::{Layout, WebResult};

const HERE: &str = "/admin/find";
const MOST_ACCOUNTS: u32 = 10;

/// Accounts of which their state is told: while somebody types, each letter asks.
const MOST_STATES: usize = 5;

pub struct FoundLink {
    /// A locale key: what it is.
    pub kind: &'static str,
    pub name: Cow<'static, str>,
    pub href: String,
    /// What keeps an account out, in a word or two.
    pub state: Option<Cow<'static, str>>,
}

impl FoundLink {
    const fn new(kind: &'static str, name: Cow<'static, str>, href: String) -> Self {
        Self { kind, name, href, state: None }
    }
}

#[derive(Template)]
#[template(path = "pages/admin/find.html")]
struct FindPage {
    layout: Layout,
    asked: String,
    found: Vec<FoundLink>,
    expired: bool,
}

/// `GET /admin/find`: nothing is looked for yet.
pub async fn show(request: AdminRequest) -> WebResult {
    let page =
        FindPage { layout: request.layout(HERE), asked: String::new(), found: Vec::new(), expired: false };
    Ok(request.visit.page(StatusCode::OK, &page))
}

/// `POST /admin/find`: leads to what is found, if that is one thing. With `suggest` it answers with the page in any case,
/// whose list a script shows while somebody types.
pub async fn find(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let AdminRequest { visit, services, .. } = request;
    let asked: String = value(pairs, "asked").trim().chars().take(255).collect();
    let layout = request.layout(HERE);
    if !posted.is_ours() {
        let page = FindPage { layout, asked, found: Vec::new(), expired: true };
        return Ok(visit.page(StatusCode::FORBIDDEN, &page));
    }
    let live = visit.settings(services);
    let suggests = !value(pairs, "suggest").is_empty();
    let subject = match subject::read(&asked, &live).filter(|_| !suggests) {
        Some(subject) => Some(services.lookup.named(subject).await?.value),
        None => None,
    };
    let is_looked_up = |value| {
        matches!(value, LookupValue::Address { .. } | LookupValue::Phone(_) | LookupValue::Mailbox(_))
    };
    if subject.is_some_and(is_looked_up) {
        return Ok(lookup::back_to(visit, &asked, None));
    }
    let letters = asked.to_lowercase();
    let names = |text: &str| !letters.is_empty() && text.to_lowercase().contains(&letters);
    let mut found = if letters.is_empty() { Vec::new() } else { accounts(request, &live, &letters).await? };
    let pages = layout.console_pages().into_iter().flat_map(|group| group.pages);
    let pages = pages.map(|page| FoundLink::new("find.page", layout.t(page.key), page.href.to_owned()));
    found.extend(pages.filter(|page| names(&page.name)));
    for limit in live.limits.iter().map(|limit| limit.name()) {
        let name = title(limit, layout.locale);
        if names(limit) || names(&name) {
            found.push(FoundLink::new("find.limit", name, format!("/admin/limits/edit/{limit}")));
        }
    }
    match &found[..] {
        [only] if !suggests => Ok(visit.see_other(&only.href, None)),
        _ => Ok(visit.page(StatusCode::OK, &FindPage { layout, asked, found, expired: false })),
    }
}

/// The accounts whose names begin so, the first of them with what keeps them out.
async fn accounts(
    request: &AdminRequest,
    live: &LiveSettings,
    letters: &str,
) -> Result<Vec<FoundLink>, DbError> {
    let AdminRequest { visit, services, .. } = request;
    let search = AccountSearch::by_name(letters.to_owned());
    let page = services.accounts.page(&search, None, MOST_ACCOUNTS).await?;
    let mut found = Vec::with_capacity(page.entries.len());
    let mut states = MOST_STATES;
    for ListedAccount { account, .. } in &page.entries {
        let (name, href) = (account.login.as_str().to_owned(), format!("/admin/accounts/{}", account.id));
        let standing = match states {
            0 => None,
            _ => standing::of_account(&services.lookup, live, account, visit.locale).await?,
        };
        // While the counts cannot be read, nobody waits for each.
        states = if standing.is_some() { states - 1 } else { 0 };
        let first = standing.iter().flatten().next();
        let state = first.map(|row| row.in_list(visit.locale));
        found.push(FoundLink { state, ..FoundLink::new("find.account", name.into(), href) });
    }
    Ok(found)
}
