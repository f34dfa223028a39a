//! `/dev/outbox`: the messages of the outbox gateway, for developers on this machine.

use actix_web::http::StatusCode;
use actix_web::web::Query;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use serde::{Deserialize, Serialize};

use crate::sms::OutboxMessage;
use crate::web::http::client::is_here;
use crate::web::http::extract::parse_phone;
use crate::web::http::{Layout, Moment, PageRequest, Problem, Services, ServicesData};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OutboxQuery {
    phone: String,
}

/// `GET /dev/outbox`
pub async fn page(
    request: HttpRequest,
    visit: PageRequest,
    wanted: Query<OutboxQuery>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let messages = messages(&request, &services, &wanted.phone).ok_or(Problem::NotFound)?;
    let row = |message: OutboxMessage| OutboxRow {
        at: Moment(message.at),
        phone: message.phone.as_str().to_owned(),
        code: message.code,
        text: message.text,
    };
    let rows = messages.into_iter().map(row).collect();
    Ok(visit.page(StatusCode::OK, &OutboxPage::new(&visit, &wanted.phone, rows)))
}

#[derive(Serialize)]
struct Shown {
    id: String,
    at: String,
    phone: String,
    code: String,
    text: String,
}

/// `GET /dev/outbox.json?phone=`, newest first.
pub async fn json(request: HttpRequest, wanted: Query<OutboxQuery>, services: ServicesData) -> HttpResponse {
    let Some(messages) = messages(&request, &services, &wanted.phone) else {
        return Problem::NotFound.respond();
    };
    let shown = |message: OutboxMessage| Shown {
        id: message.id.to_string(),
        at: Moment(message.at).iso(),
        phone: message.phone.as_str().to_owned(),
        code: message.code,
        text: message.text,
    };
    HttpResponse::Ok().json(messages.into_iter().map(shown).collect::<Vec<_>>())
}

/// None if this client may not see the outbox. Only a peer on this machine may, unless it speaks for others
/// as a proxy does.
fn messages(request: &HttpRequest, services: &Services, phone: &str) -> Option<Vec<OutboxMessage>> {
    let outbox = services.outbox.as_ref()?;
    if !is_here(request) {
        return None;
    }
    if phone.trim().is_empty() {
        return Some(outbox.messages(None));
    }
    let phone = parse_phone(&services.live.snapshot(), phone);
    Some(phone.map_or_else(|_| Vec::new(), |phone| outbox.messages(Some(&phone))))
}

pub struct OutboxRow {
    pub at: Moment,
    pub phone: String,
    pub code: String,
    pub text: String,
}

#[derive(Template)]
#[template(path = "pages/outbox.html")]
pub struct OutboxPage {
    layout: Layout,
    phone: String,
    rows: Vec<OutboxRow>,
}

impl OutboxPage {
    /// `phone` is the typed number that filters the rows.
    pub fn new(visit: &PageRequest, phone: &str, rows: Vec<OutboxRow>) -> Self {
        let phone = phone.chars().take(64).collect();
        Self { layout: visit.layout("/dev/outbox", None), phone, rows }
    }
}
