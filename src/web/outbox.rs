//! `/dev/outbox`: messages and mails that leave this machine nowhere, for developers on it.

use actix_web::http::StatusCode;
use actix_web::web::Query;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use serde::{Deserialize, Serialize};

use crate::codes::Channel;
use crate::mail::{Mailbox, SentMail};
use crate::sms::OutboxMessage;
use crate::web::http::client::is_here;
use crate::web::http::extract::parse_phone;
use crate::web::http::{Layout, Moment, PageRequest, Problem, Services, ServicesData};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OutboxQuery {
    phone: String,
    email: String,
}

pub async fn page(
    visit: PageRequest,
    wanted: Query<OutboxQuery>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let rows = rows(visit.request(), &services, &wanted)?;
    let typed = if wanted.phone.is_empty() { &wanted.email } else { &wanted.phone };
    Ok(visit.page(StatusCode::OK, &OutboxPage::new(&visit, typed, rows)))
}

/// `GET /dev/outbox.json?phone=` or `?email=`, newest first.
pub async fn json(request: HttpRequest, wanted: Query<OutboxQuery>, services: ServicesData) -> HttpResponse {
    match rows(&request, &services, &wanted) {
        Ok(rows) => HttpResponse::Ok().json(rows),
        Err(problem) => problem.respond(),
    }
}

/// Only a peer on this machine may see the outbox, unless it speaks for others as a proxy does.
fn rows(request: &HttpRequest, services: &Services, wanted: &OutboxQuery) -> Result<Vec<OutboxRow>, Problem> {
    let (messages, mails) = (services.outbox.as_ref(), services.codes.mail_outbox());
    if !is_here(request) || messages.is_none() && mails.is_none() {
        return Err(Problem::NotFound);
    }
    // The field of the page takes either.
    let (phone, email) = match (wanted.phone.trim(), wanted.email.trim()) {
        (typed, "") if typed.contains('@') => ("", typed),
        other => other,
    };
    let live = services.live.snapshot();
    let messages = match (messages, phone) {
        (Some(outbox), "") if email.is_empty() => outbox.messages(None),
        (Some(outbox), typed) if !typed.is_empty() => {
            parse_phone(&live, typed).map(|phone| outbox.messages(Some(&phone))).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let mails = match (mails, email) {
        (Some(outbox), "") if phone.is_empty() => outbox.mails(None),
        (Some(outbox), typed) if !typed.is_empty() => {
            Mailbox::parse(typed).map(|mailbox| outbox.mails(Some(&mailbox))).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let mut rows: Vec<_> =
        messages.into_iter().map(OutboxRow::of).chain(mails.into_iter().map(OutboxRow::of_mail)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.at.0));
    Ok(rows)
}

/// A message by SMS, or a mail.
#[derive(Serialize)]
pub struct OutboxRow {
    pub id: String,
    pub at: Moment,
    /// `sms` or `mail`.
    pub channel: Channel,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
}

impl OutboxRow {
    fn of(message: OutboxMessage) -> Self {
        Self {
            id: message.id.to_string(),
            at: Moment(message.at),
            channel: Channel::Sms,
            phone: Some(message.phone.as_str().to_owned()),
            code: Some(message.code),
            email: None,
            subject: None,
            text: message.text,
            html: None,
        }
    }

    fn of_mail(mail: SentMail) -> Self {
        let SentMail { id, at, to, code, subject, text, html } = mail;
        let (email, subject, html) = (Some(to.as_str().to_owned()), Some(subject), Some(html));
        let channel = Channel::Mail;
        Self { id, at: Moment(at), channel, phone: None, code, email, subject, text, html }
    }
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
