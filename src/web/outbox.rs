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

pub async fn page(
    visit: PageRequest,
    wanted: Query<OutboxQuery>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let rows = rows(visit.request(), &services, &wanted.phone)?;
    Ok(visit.page(StatusCode::OK, &OutboxPage::new(&visit, &wanted.phone, rows)))
}

/// `GET /dev/outbox.json?phone=`, newest first.
pub async fn json(request: HttpRequest, wanted: Query<OutboxQuery>, services: ServicesData) -> HttpResponse {
    match rows(&request, &services, &wanted.phone) {
        Ok(rows) => HttpResponse::Ok().json(rows),
        Err(problem) => problem.respond(),
    }
}

/// Only a peer on this machine may see the outbox, unless it speaks for others as a proxy does.
fn rows(request: &HttpRequest, services: &Services, phone: &str) -> Result<Vec<OutboxRow>, Problem> {
    let outbox = services.outbox.as_ref().filter(|_| is_here(request)).ok_or(Problem::NotFound)?;
    let messages = match phone.trim() {
        "" => outbox.messages(None),
        typed => match parse_phone(&services.live.snapshot(), typed) {
            Ok(phone) => outbox.messages(Some(&phone)),
            Err(_) => Vec::new(),
        },
    };
    let row = |message: OutboxMessage| OutboxRow {
        id: message.id.to_string(),
        at: Moment(message.at),
        phone: message.phone.as_str().to_owned(),
        code: message.code,
        text: message.text,
    };
    Ok(messages.into_iter().map(row).collect())
}

#[derive(Serialize)]
pub struct OutboxRow {
    pub id: String,
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
    pub fn new(visit: &PageRequest, phone: &str, rows: Vec<OutboxRow>) -> Self {
        let phone = phone.chars().take(64).collect();
        Self { layout: visit.layout("/dev/outbox", None), phone, rows }
    }
}
