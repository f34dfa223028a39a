//! `/admin/messages`: the messages sent, their delivery, and the brakes in force.

use std::borrow::Cow;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;
use rust_i18n::t;
use url::form_urlencoded;

use crate::sms::{
    HeldBrake, LedgerCursor, LedgerEntry, LedgerPage, MessagePurpose, MessageState, Purpose, ReportState,
};
use crate::web::console::words;
use crate::web::kit::layout::Layout;
use crate::web::kit::locale::Locale;
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::Moment;

/// The filter, and where the page begins.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub state: Option<MessageState>,
    pub prefix: String,
    pub after: Option<LedgerCursor>,
}

struct MessageRow {
    at: Moment,
    phone: String,
    purpose: MessagePurpose,
    gateway: String,
    state: MessageState,
    reason: Option<String>,
    report: Option<ReportState>,
    report_detail: Option<String>,
    entered: bool,
}

struct BrakeRow {
    prefix: String,
    /// Empty: for our pages.
    program: String,
    until: Moment,
    sent: i64,
    entered: i64,
}

struct Choice {
    value: &'static str,
    key: &'static str,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "pages/messages.html")]
pub struct MessagesPage {
    layout: Layout,
    asked: Asked,
    rows: Vec<MessageRow>,
    brakes: Vec<BrakeRow>,
    older: Option<String>,
    /// The prefix and program of the brake that was not lifted, and why.
    kept: Option<([String; 2], LiftProblem)>,
}

/// Why a brake was not lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiftProblem {
    ReasonMissing,
    /// The form was too old, or not ours.
    Expired,
}

impl MessagesPage {
    pub fn new(visit: &Visit, user: &str, asked: Asked, found: LedgerPage, brakes: Vec<HeldBrake>) -> Self {
        let here = address(&asked, asked.after.as_ref());
        Self {
            layout: visit.layout(here, Some(user)),
            rows: found.entries.into_iter().map(MessageRow::from).collect(),
            brakes: brakes.into_iter().map(BrakeRow::from).collect(),
            older: found.next.map(|next| address(&asked, Some(&next))),
            asked,
            kept: None,
        }
    }

    pub fn not_lifted(mut self, brake: [&str; 2], problem: LiftProblem) -> Self {
        self.layout.mistaken = problem == LiftProblem::ReasonMissing;
        self.kept = Some((brake.map(str::to_owned), problem));
        self
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        let status = match self.kept {
            None => StatusCode::OK,
            Some((_, LiftProblem::ReasonMissing)) => StatusCode::UNPROCESSABLE_ENTITY,
            Some((_, LiftProblem::Expired)) => StatusCode::FORBIDDEN,
        };
        visit.page(status, self)
    }

    fn is_expired(&self) -> bool {
        matches!(self.kept, Some((_, LiftProblem::Expired)))
    }

    fn lacks_reason(&self, brake: &BrakeRow) -> bool {
        self.kept.as_ref().is_some_and(|([prefix, program], problem)| {
            (prefix, program, *problem) == (&brake.prefix, &brake.program, LiftProblem::ReasonMissing)
        })
    }

    fn states(&self) -> Vec<Choice> {
        let choice = |state: MessageState| Choice {
            value: state.as_str(),
            key: state_key(state),
            chosen: self.asked.state == Some(state),
        };
        MessageState::ALL.into_iter().map(choice).collect()
    }

    /// The path of the first page with the same filter.
    fn newest(&self) -> String {
        address(&self.asked, None)
    }

    fn counted(&self, brake: &BrakeRow) -> Cow<'static, str> {
        let locale: Locale = self.layout.locale;
        t!("messages.counted", locale = locale.code(), entered = brake.entered, sent = brake.sent)
    }
}

impl MessageRow {
    fn state_key(&self) -> &'static str {
        state_key(self.state)
    }

    fn purpose(&self, locale: Locale) -> Cow<'static, str> {
        match &self.purpose {
            MessagePurpose::Own(Purpose::Login) => locale.t("messages.purpose-login"),
            MessagePurpose::Own(Purpose::Register) => locale.t("messages.purpose-register"),
            MessagePurpose::Own(Purpose::Reset) => locale.t("messages.purpose-reset"),
            MessagePurpose::Own(Purpose::Verify) => locale.t("messages.purpose-verify"),
            MessagePurpose::Verification(_) | MessagePurpose::Relayed(_) => self.purpose.stored(),
        }
    }

    fn gateway(&self, locale: Locale) -> Cow<'static, str> {
        words::gateway(&self.gateway, locale)
    }

    /// The colour of the state's mark.
    fn tone(&self) -> &'static str {
        match (self.state, self.report) {
            (MessageState::Refused | MessageState::Unknown | MessageState::Withheld, _)
            | (_, Some(ReportState::Failed)) => "warn",
            (MessageState::Pending | MessageState::Accepted, _) => "good",
        }
    }

    fn report_key(&self) -> Option<&'static str> {
        self.report.map(|report| match report {
            ReportState::Pending => "messages.reported-pending",
            ReportState::Delivered => "messages.reported-delivered",
            ReportState::Failed => "messages.reported-failed",
        })
    }
}

const fn state_key(state: MessageState) -> &'static str {
    match state {
        MessageState::Pending => "messages.state-pending",
        MessageState::Accepted => "messages.state-accepted",
        MessageState::Refused => "messages.state-refused",
        MessageState::Unknown => "messages.state-unknown",
        MessageState::Withheld => "messages.state-withheld",
    }
}

impl From<LedgerEntry> for MessageRow {
    fn from(entry: LedgerEntry) -> Self {
        Self {
            at: Moment(entry.at),
            phone: entry.phone,
            purpose: entry.purpose,
            gateway: entry.gateway,
            state: entry.state,
            reason: entry.reason,
            report: entry.report,
            report_detail: entry.report_detail,
            entered: entry.entered_at.is_some(),
        }
    }
}

impl From<HeldBrake> for BrakeRow {
    fn from(held: HeldBrake) -> Self {
        let HeldBrake { prefix, program, ends_at, sent, entered, .. } = held;
        Self { prefix, program: program.unwrap_or_default(), until: Moment(ends_at), sent, entered }
    }
}

fn address(asked: &Asked, after: Option<&LedgerCursor>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    if let Some(state) = asked.state {
        query.append_pair("state", state.as_str());
    }
    if !asked.prefix.is_empty() {
        query.append_pair("prefix", &asked.prefix);
    }
    if let Some(after) = after {
        query.append_pair("after", &after.to_string());
    }
    let query = query.finish();
    if query.is_empty() { "/admin/messages".to_owned() } else { format!("/admin/messages?{query}") }
}
