//! `/admin/find`: the console's search by `/` or Ctrl-K: pages, limits and accounts of that name, and the look-up of a
//! number or an address. What somebody typed is in no URL.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use askama::Template;

use crate::accounts::AccountSearch;
use crate::lookup::LookupValue;
use crate::web::console::guard::{AdminForm, AdminRequest};
use crate::web::console::limit_text::title;
use crate::web::console::lookup::{self, subject};
use crate::web::form::value;
use crate::web::http::{Layout, WebResult};

const HERE: &str = "/admin/find";
const MOST_ACCOUNTS: u32 = 10;

pub struct FoundLink {
    /// A locale key: what it is.
    pub kind: &'static str,
    pub name: Cow<'static, str>,
    pub href: String,
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

/// `POST /admin/find`: leads to what is found, if that is one thing.
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
    let subject = subject::read(&asked, &live).map(|subject| subject.value);
    if matches!(subject, Some(LookupValue::Address { .. } | LookupValue::Phone(_))) {
        return Ok(lookup::back_to(visit, &asked, None));
    }
    let letters = asked.to_lowercase();
    let names = |text: &str| !letters.is_empty() && text.to_lowercase().contains(&letters);
    let mut found: Vec<FoundLink> = layout
        .console_pages()
        .into_iter()
        .flat_map(|group| group.pages)
        .map(|page| FoundLink { kind: "find.page", name: layout.t(page.key), href: page.href.to_owned() })
        .filter(|page| names(&page.name))
        .collect();
    for limit in live.limits.iter().map(|limit| limit.name()) {
        let name = title(limit, layout.locale);
        if names(limit) || names(&name) {
            found.push(FoundLink { kind: "find.limit", name, href: format!("/admin/limits/edit/{limit}") });
        }
    }
    if !letters.is_empty() {
        let accounts = &services.accounts;
        let accounts = accounts.page(&AccountSearch::by_name(letters), None, MOST_ACCOUNTS).await?;
        found.extend(accounts.entries.into_iter().map(|listed| listed.account).map(|account| FoundLink {
            kind: "find.account",
            name: Cow::Owned(account.login.as_str().to_owned()),
            href: format!("/admin/accounts/{}", account.id),
        }));
    }
    if let [only] = &found[..] {
        return Ok(visit.see_other(&only.href, None));
    }
    Ok(visit.page(StatusCode::OK, &FindPage { layout, asked, found, expired: false }))
}
