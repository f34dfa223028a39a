//! `/dev/outbox`: messages that were not sent anywhere.

use askama::Template;

use crate::web::kit::locale::Moment;
use crate::web::kit::visit::{Layout, Visit};

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
    pub fn new(visit: &Visit, phone: &str, rows: Vec<OutboxRow>) -> Self {
        let phone = phone.chars().take(64).collect();
        Self { layout: visit.layout("/dev/outbox", None), phone, rows }
    }
}
