//! `POST /admin/events`: the search over the record. What somebody typed may name a person, so it is in no URL: it leads to
//! the filter that it means, by an index. Any other text is kept in a cookie, and searched for row by row.

use std::iter;

use strum::VariantArray;
use url::form_urlencoded;

use crate::accounts::Realm;
use crate::audit::{Action, EventFilter, EventSubject, KEY, Outcome, SubjectKind};
use crate::clock::Micros;
use crate::config::BESIDE_LIMITS;
use crate::db::DbError;
use crate::lookup::LookupValue;
use crate::request_id::RequestId;
use crate::web::console::events::row::{action_word, outcome_word};
use crate::web::console::events::{EventQuery, page, text_key};
use crate::web::console::guard::{AdminForm, AdminRequest};
use crate::web::console::limit_text::title;
use crate::web::console::lookup::subject;
use crate::web::form::{FormPairs, value};
use crate::web::http::WebResult;
use crate::web::http::page::set;

/// In characters, as the field has it: a cookie holds 4,096 bytes.
const LONGEST: usize = 255;

/// `POST /admin/events`
pub async fn search(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let text: String = value(pairs, "asked").trim().chars().take(LONGEST).collect();
    let query: FormPairs = form_urlencoded::parse(value(pairs, "filter").as_bytes()).into_owned().collect();
    let mut asked = EventQuery::read(&query);
    if !posted.is_ours() {
        return page(request, asked, Some(text)).await;
    }
    request.services.audit.flush().await;
    if text.is_empty() || find(request, &mut asked, &text).await? {
        return Ok(request.visit.see_other(&asked.href(None), None));
    }
    asked.text = Some(text_key(&request.services, &text));
    let mut response = request.visit.see_other(&asked.href(None), None);
    let jar = request.visit.cookies();
    set(&mut response, jar.typed(jar.search_name, &text));
    Ok(response)
}

/// Sets what the text means, from the most particular to the least; false if it is only a text.
async fn find(request: &AdminRequest, asked: &mut EventQuery, text: &str) -> Result<bool, DbError> {
    let (log, filter) = (request.services.audit.log(), &mut asked.filter);
    if find_subject(request, filter, text).await? || find_word(request, filter, text) {
        return Ok(true);
    }
    if let Some(id) = RequestId::parse(text.as_bytes()) {
        let request = EventFilter { request: Some(id.as_str().to_owned()), ..EventFilter::default() };
        if !log.page(&request, None, 1).await?.entries.is_empty() {
            // Whatever the list was about.
            *asked = EventQuery::default();
            asked.filter = request;
            return Ok(true);
        }
    }
    let found = log.subject(text.strip_prefix(KEY).unwrap_or(text)).await?;
    filter.subjects.extend(found);
    Ok(found.is_some())
}

/// An address, its network, a number, or an e-mail address or a name that was used: a word may also be a name.
async fn find_subject(request: &AdminRequest, filter: &mut EventFilter, text: &str) -> Result<bool, DbError> {
    let AdminRequest { services, .. } = request;
    let network = text.strip_suffix("/24").or_else(|| text.strip_suffix("/48"));
    let subject = subject::read(network.unwrap_or(text), &request.visit.settings(services));
    let Some(subject) = subject else { return Ok(false) };
    if let (Some(_), LookupValue::Address { network, .. }) = (network, &subject.value) {
        let key = services.audit.subject(&EventSubject::Network(network));
        filter.subjects.insert(SubjectKind::Network, key);
        return Ok(true);
    }
    let subject = services.lookup.named(subject).await?;
    let twin = subject.twin();
    for subject in iter::once(subject).chain(twin) {
        let Some(found) = services.lookup.recorded(&subject).await? else { continue };
        let newest = services.audit.log().by_subject(found.kind, found.key, Micros(0), 1).await?;
        let is_certain = matches!(subject.value, LookupValue::Address { .. } | LookupValue::Phone(_));
        if is_certain || !newest.is_empty() {
            filter.subjects.insert(found.kind, found.key);
            return Ok(true);
        }
    }
    Ok(false)
}

/// An action, an outcome or a limit, by its key or by its title, and `guard:` and a realm.
fn find_word(request: &AdminRequest, filter: &mut EventFilter, text: &str) -> bool {
    let (locale, lower) = (request.visit.locale, text.to_lowercase());
    let is = |key: &str, word: &str| lower == key || lower == word.to_lowercase();
    let action = Action::VARIANTS.iter().find(|it| is(it.into_str(), &action_word(**it, locale)));
    let outcome = Outcome::VARIANTS.iter().find(|it| is(it.into_str(), &outcome_word(**it, locale)));
    let live = request.visit.settings(&request.services);
    let mut limits = live.limits.iter().map(|limit| limit.name()).chain(BESIDE_LIMITS);
    if let Some(realm) = text.strip_prefix("guard:").and_then(Realm::parse) {
        filter.realm = Some(realm.as_str().to_owned());
    } else if let Some(limit) = limits.find(|name| is(name, &title(name, locale))) {
        filter.limit = Some(limit.to_owned());
    } else if let Some(action) = action {
        filter.actions = vec![*action];
    } else if let Some(outcome) = outcome {
        filter.outcomes = vec![*outcome];
    } else {
        return false;
    }
    true
}
