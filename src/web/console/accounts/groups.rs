//! `/admin/groups`: groups with how many are in them, the members of each, and the applications that name it.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use actix_web::web::{Path, Query};
use askama::Template;

use super::A_PAGE;
use crate::accounts::{AccountCursor, AccountKey, AccountSearch, AccountState, Groups, ListedAccount};
use crate::config::{App, Apps, Who};
use crate::web::console::guard::AdminRequest;
use crate::web::console::limit_text::grouped;
use crate::web::form::{FormPairs, value};
use crate::web::http::{Layout, Problem, WebResult};

const HERE: &str = "/admin/groups";

/// `GET /admin/groups`: those that somebody is in, and those that an application names.
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let after = value(&query, "after");
    let after = Groups::parse([after]).map_or("", |_| after);
    let mut sizes = request.services.accounts.group_sizes(after, A_PAGE + 1).await?;
    let has_more = sizes.len() > A_PAGE as usize;
    sizes.truncate(A_PAGE as usize);
    let last = sizes.last().filter(|_| has_more).map(|(name, _)| name.clone());
    let live = request.visit.settings(&request.services);
    let mut rows: BTreeMap<String, u64> =
        sizes.into_iter().map(|(name, count)| (name, count.unsigned_abs())).collect();
    for name in live.apps.all().iter().flat_map(|app| app.listed()).filter_map(group_of) {
        if name > after && last.as_deref().is_none_or(|last| name <= last) {
            rows.entry(name.to_owned()).or_default();
        }
    }
    let rows = rows.into_iter().map(|(name, size)| GroupRow {
        apps: naming(&live.apps, &name).map(|(app, _)| app).collect(),
        size: grouped(size),
        name,
    });
    let (rows, is_first) = (rows.collect(), after.is_empty());
    let next = last.map(|name| format!("{HERE}?after={name}"));
    let here = if is_first { HERE.to_owned() } else { format!("{HERE}?after={after}") };
    let page = GroupsView { layout: request.layout(here), rows, next, is_first };
    Ok(request.visit.page(StatusCode::OK, &page))
}

/// `GET /admin/groups/{name}`
pub async fn one(request: AdminRequest, name: Path<String>, query: Query<FormPairs>) -> WebResult {
    let name = name.into_inner();
    Groups::parse([name.as_str()]).map_err(|_| Problem::NotFound)?;
    let accounts = &request.services.accounts;
    let group = Some(name.clone());
    let search = AccountSearch { group, by: AccountKey::Login, ..AccountSearch::default() };
    let after = AccountCursor::parse(value(&query, "after"));
    let here = |after: AccountCursor| format!("{HERE}/{name}?after={after}");
    let members = accounts.page(&search, after, A_PAGE).await?;
    let page = GroupView {
        layout: request.layout(after.map_or_else(|| format!("{HERE}/{name}"), here)),
        size: grouped(accounts.group_size(&name).await?),
        next: members.next.map(here),
        apps: naming(&request.visit.settings(&request.services).apps, &name).collect(),
        members: members.entries,
        is_first: after.is_none(),
        name,
    };
    Ok(request.visit.page(StatusCode::OK, &page))
}

fn group_of(who: &Who) -> Option<&str> {
    match who {
        Who::Group(name) => Some(name),
        Who::Everyone | Who::Name(_) => None,
    }
}

/// The applications that name a group, each with the paths of its parts that do; without any, for all of it.
fn naming<'a>(apps: &'a Apps, group: &'a str) -> impl Iterator<Item = (String, Vec<String>)> + 'a {
    let named = move |who: &[Who]| who.iter().any(|who| group_of(who) == Some(group));
    apps.all().iter().filter_map(move |app| {
        let App { name, who, parts, .. } = app.as_ref();
        let parts = parts.iter().filter(|part| part.who.as_deref().is_some_and(named));
        let parts: Vec<_> = parts.map(|part| part.path.to_string()).collect();
        let is_whole = named(who);
        (is_whole || !parts.is_empty()).then(|| (name.clone(), parts))
    })
}

struct GroupRow {
    name: String,
    size: String,
    apps: Vec<String>,
}

#[derive(Template)]
#[template(path = "pages/admin/groups.html")]
struct GroupsView {
    layout: Layout,
    rows: Vec<GroupRow>,
    next: Option<String>,
    is_first: bool,
}

#[derive(Template)]
#[template(path = "pages/admin/one_group.html")]
struct GroupView {
    layout: Layout,
    name: String,
    size: String,
    members: Vec<ListedAccount>,
    next: Option<String>,
    is_first: bool,
    apps: Vec<(String, Vec<String>)>,
}
