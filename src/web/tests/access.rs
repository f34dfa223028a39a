//! `/admin/access` in every state.

use std::time::Duration;

use super::NOW;
use crate::config::{AccessDenial, AccessNetwork, AccessSettings, DeniedSubject, SmsPause};
use crate::tuning::{AccessOrigin, DraftError};
use crate::web::console::FormProblem;
use crate::web::console::access::{AccessAnswer, AccessPage, AnswerForm, AnswerRow};
use crate::web::console::origins::OriginReport;
use crate::web::http::{Flash, PageRequest};

fn rows(visit: &PageRequest) -> Vec<AnswerRow> {
    let until = |minutes: u64| NOW.plus(Duration::from_secs(60 * minutes));
    let denial = |subject, minutes, reason: &str| AccessDenial {
        subject,
        until: until(minutes),
        reason: reason.to_owned(),
    };
    let network = |network: &str| DeniedSubject::Network(network.parse().unwrap());
    let settings = AccessSettings {
        deny: vec![
            denial(network("203.0.113.0/24"), 59, "260 guesses a minute from one network <b>"),
            denial(network("2001:db8:ffff:ffff::/64"), 1440, "the same over IPv6"),
            denial(DeniedSubject::Origin("asn:64496".parse().unwrap()), 240, "82% from one hosting company"),
        ],
        allow: vec![AccessNetwork {
            network: "198.51.100.7/32".parse().unwrap(),
            until: until(43_200),
            reason: "our office in Shanghai".to_owned(),
        }],
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
    let told = |known| {
        let mut form = AnswerForm::chosen(AccessAnswer::Deny, "asn:64496");
        let (origin, name) = ("asn:64496".parse().unwrap(), "AS64496 Example Hosting & Sons".to_owned());
        form.told = Some(OriginReport { origin, name, known, signed_in: 3_412, met: 12 });
        form
    };
    let everyone = AnswerForm::chosen(AccessAnswer::Challenge, "");
    let not_saved = || FormProblem::NotSaved("the folder of gatehouse.toml cannot be written".to_owned());
    let saved = |flash| {
        let mut page = page(rows(visit), None, None);
        (page.layout.flash, page.saved) = (Some(flash), rows(visit));
        page
    };
    vec![
        ("access-saved", saved(Flash::AccessSaved)),
        ("access-ended", saved(Flash::AccessEnded)),
        ("access", page(rows(visit), None, None)),
        ("access-none", page(Vec::new(), None, None)),
        ("access-challenge", page(Vec::new(), Some(everyone), None)),
        ("access-deny", page(Vec::new(), Some(chosen), None)),
        ("access-deny-origin", page(Vec::new(), Some(told(true)), None)),
        ("access-deny-unknown", page(Vec::new(), Some(told(false)), None)),
        ("access-wrong", page(Vec::new(), Some(wrong), None)),
        ("access-expired", page(Vec::new(), None, Some(FormProblem::Expired))),
        ("access-stale", page(rows(visit), None, Some(FormProblem::Stale))),
        ("access-not-saved", page(Vec::new(), None, Some(not_saved()))),
        ("access-fixed", AccessPage::new(layout(), Vec::new(), None, None, vec!["deny", "allow"])),
    ]
}
