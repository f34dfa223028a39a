//! The account page in every state.

use std::time::Duration;

use super::{CHROME, IPHONE, NOW, wait};
use crate::audit::{FailedAttempts, FailureSummary};
use crate::web::account::view::{AccountPage, SessionRow, SignInRow};
use crate::web::form::notice::Notice;
use crate::web::{Field, FieldErrors, Message, Visit};

pub fn pages(visit: &Visit) -> Vec<(&'static str, AccountPage)> {
    let before = |minutes: u64| NOW.minus(Duration::from_secs(60 * minutes));
    let row = |id: &str, agent, net: &str, minutes| {
        SessionRow::new(id.into(), agent, net.into(), before(minutes + 7000), before(minutes))
    };
    let sessions = || {
        let here = row("1", CHROME, "203.0.113.0/24", 0).current(true);
        vec![here, row("2", IPHONE, "2001:db8:77::/48", 95), row("3", "", "198.51.100.0/24", 5000)]
    };
    let sign_ins = || vec![SignInRow::new(before(1), CHROME, "203.0.113.0/24".into())];
    let failures = || {
        let row = |network: Option<&str>, wrong_passwords, wrong_codes, refused| FailedAttempts {
            network: network.map(str::to_owned),
            first: before(800),
            last: before(3),
            wrong_passwords,
            wrong_codes,
            refused,
        };
        let rows = vec![
            row(Some("203.0.113.0/24"), 1, 0, 0),
            row(Some("192.0.2.0/24"), 20, 3, 1_400),
            row(None, 0, 0, 9),
        ];
        FailureSummary { of: rows.len() as i64 + 41, networks: rows }
    };
    let page = || AccountPage::new(visit, "ada.lovelace", before(500_000), 15);
    let full = || page().sessions(sessions()).sign_ins(sign_ins()).failures(failures());
    let wrong = FieldErrors::one(Field::CurrentPassword, Message::CurrentPasswordWrong);
    vec![
        ("account", full()),
        ("account-phone", full().ways_in(Some("+8613800138000"), true).admin(true)),
        ("account-no-password", full().ways_in(Some("+8613800138000"), false)),
        ("account-wrong", full().notice(Notice::Invalid(wrong))),
        ("account-wait", full().notice(Notice::Throttled(wait(60)))),
        (
            "account-disabled",
            full().ways_in(Some("+8613800138000"), true).password_disabled(Some(before(90)), false),
        ),
        ("account-disabled-here", full().password_disabled(Some(before(90)), true)),
        ("account-disabled-asks", full().password_disabled(Some(before(90)), false)),
        ("account-disabled-admin", full().admin(true).password_disabled(Some(before(90)), false)),
        ("account-must-change", page().must_change(true).sessions(vec![sessions().remove(0)])),
        ("account-expired", page().notice(Notice::Expired)),
    ]
}
