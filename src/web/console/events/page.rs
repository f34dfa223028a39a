//! `/admin/events`: the record of events, filtered.

use actix_web::http::StatusCode;
use actix_web::web::Query;

use crate::audit::{AttackEntry, EventFilter, EventPage, FoldedAttack};
use crate::clock::Micros;
use crate::db::DbError;
use crate::web::console::confirm::carried::FormPairs;
use crate::web::console::events::EventsAsked;
use crate::web::console::events::drawn::chart;
use crate::web::console::events::row::EventRow;
use crate::web::console::events::view::{EventsFound, EventsPage};
use crate::web::console::guard::Admin;
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;
use crate::web::kit::web_error::WebResult;

const A_PAGE: u32 = 50;
/// Attacks that are one line each; the events of earlier ones are listed.
const MOST_ATTACKS: u32 = 50;

/// `GET /admin/events`
pub async fn show(visit: Visit, admin: Admin, query: Query<FormPairs>, services: Shared) -> WebResult {
    let (asked, now) = (EventsAsked::read(&query), visit.now());
    if asked.after.is_none() {
        services.audit.flush().await;
    }
    let found = find(&services, &asked, now).await?;
    let limits = &services.live.snapshot().limits;
    Ok(visit.page(StatusCode::OK, &EventsPage::new(&visit, admin.login(), asked, found, limits)))
}

async fn find(services: &Services, asked: &EventsAsked, now: Micros) -> Result<EventsFound, DbError> {
    let filter = asked.filter(now);
    let chart = match asked.after {
        None => Some(chart(services, &filter, now).await?),
        Some(_) => None,
    };
    let attacks = attacks(services, asked, &filter).await?;
    let folded = asked.folds_attacks().then(|| attacks.iter().map(folded).collect());
    let filter = EventFilter { folded, ..filter };
    let page = services.audit.log().page(&filter, asked.after, A_PAGE).await?;
    let lines = attacks.iter().filter(|attack| is_on(attack, asked, &page)).map(EventRow::from).collect();
    Ok(EventsFound { page, lines, chart })
}

/// Those that are one line each.
async fn attacks(
    services: &Services,
    asked: &EventsAsked,
    filter: &EventFilter,
) -> Result<Vec<AttackEntry>, DbError> {
    if !asked.folds_attacks() {
        return Ok(Vec::new());
    }
    let mut attacks = services.attacks.since(filter.since.unwrap_or(Micros(0)), MOST_ATTACKS).await?;
    attacks.retain(|attack| {
        let is_asked = (filter.actions.is_empty() || filter.actions.contains(&attack.kind.action()))
            && filter.realm.as_ref().is_none_or(|realm| *realm == attack.realm);
        is_asked && filter.until.is_none_or(|until| attack.began_at < until)
    });
    Ok(attacks)
}

fn folded(attack: &AttackEntry) -> FoldedAttack {
    let realm = attack.realm.clone();
    FoldedAttack { kind: attack.kind, realm, from: attack.began_at, until: attack.seen_at }
}

/// An attack stands where its last event would.
fn is_on(attack: &AttackEntry, asked: &EventsAsked, page: &EventPage) -> bool {
    let at = attack.seen_at;
    let oldest = page.next.as_ref().and_then(|_| page.entries.last());
    asked.after.is_none_or(|after| at < after.at) && oldest.is_none_or(|oldest| at >= oldest.at)
}
