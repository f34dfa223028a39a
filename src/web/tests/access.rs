//! `/admin/access` in every state.

use std::time::Duration;

use super::NOW;
use crate::config::{AccessNetwork, AccessSettings, SmsPause};
use crate::tuning::{AccessOrigin, DraftError};
use crate::web::console::FormProblem;
use crate::web::console::access::{AccessAnswer, AccessPage, AnswerForm, AnswerRow};
use crate::web::http::{Flash, PageRequest};

fn rows(visit: &PageRequest) -> Vec<AnswerRow> {
    let until = |minutes: u64| NOW.plus(Duration::from_secs(60 * minutes));
    let network = |network: &str, minutes, reason: &str| AccessNetwork {
        network: network.parse().unwrap(),
        until: until(minutes),
        reason: reason.to_owned(),
    };
    let settings = AccessSettings {
        deny: vec![
            network("203.0.113.0/24", 59, "260 guesses a minute from one network <b>"),
            network("2001:db8:ffff:ffff::/64", 1440, "the same over IPv6"),
        ],
        allow: vec![network("198.51.100.7/32", 43_200, "our office in Shanghai")],
        challenge_everyone_until: Some(until(14)),
        pause_sms: vec![SmsPause {
            prefix: "+86138".to_owned(),
            until: until(230),
            reason: "pumping".to_owned(),
        }],
    };
    let mut rows = AnswerRow::all(&settings, NOW, visit.locale);
    let origin = |login: Option<&str>| AccessOrigin {
        at: NOW.minus(Duration::from_secs(60)),
        login: login.map(str::to_owned),
        reason: Some("a spray over many names".to_owned()),
    };
    rows[0].origin = Some(origin(Some("ada")));
    rows[1].origin = Some(origin(None));
    rows
}

pub fn accesses(visit: &PageRequest) -> Vec<(&'static str, AccessPage)> {
    let layout = || visit.layout("/admin/access", Some("ada"));
    let page = |rows, form, problem| AccessPage::new(layout(), rows, form, problem, Vec::new());
    let mut wrong = AnswerForm::typed(AccessAnswer::Deny, "203.0.113.7/24", "7", "");
    wrong.check(visit.locale);
    let message = "203.0.113.7/24 is an address within a network; write 203.0.113.0/24".to_owned();
    wrong
        .refused(visit.locale, vec![DraftError { field: "deny[0].network".to_owned(), message, line: None }]);
    let chosen = AnswerForm::chosen(AccessAnswer::Deny, "203.0.113.0/24");
    let everyone = AnswerForm::chosen(AccessAnswer::Challenge, "");
    let not_saved = || FormProblem::NotSaved("the folder of gatehouse.toml cannot be written".to_owned());
    let told = |flash| {
        let mut page = page(rows(visit), None, None);
        (page.layout.flash, page.saved) = (Some(flash), rows(visit));
        page
    };
    vec![
        ("access-saved", told(Flash::AccessSaved)),
        ("access-ended", told(Flash::AccessEnded)),
        ("access", page(rows(visit), None, None)),
        ("access-none", page(Vec::new(), None, None)),
        ("access-challenge", page(Vec::new(), Some(everyone), None)),
        ("access-deny", page(Vec::new(), Some(chosen), None)),
        ("access-wrong", page(Vec::new(), Some(wrong), None)),
        ("access-expired", page(Vec::new(), None, Some(FormProblem::Expired))),
        ("access-stale", page(rows(visit), None, Some(FormProblem::Stale))),
        ("access-not-saved", page(Vec::new(), None, Some(not_saved()))),
        ("access-fixed", AccessPage::new(layout(), Vec::new(), None, None, vec!["deny", "allow"])),
    ]
}
