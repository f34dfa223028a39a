//! The account page in every state.

use std::time::Duration;

use super::{CHROME, IPHONE, NOW, refused, throttled};
use crate::accounts::Profile;
use crate::audit::FailedAttempts;
use crate::web::account::{AccountPage, FailureRow, SessionRow, SignInRow};
use crate::web::captcha::CaptchaBlock;
use crate::web::form::{FormPage, Notice};
use crate::web::http::{Device, Moment, Problem};
use crate::web::{Field, FieldErrors, Message, PageRequest};

pub fn pages(visit: &PageRequest) -> Vec<(&'static str, AccountPage)> {
    let before = |minutes: u64| NOW.minus(Duration::from_secs(60 * minutes));
    let row = |id: &str, agent, net: &str, minutes, current| SessionRow {
        id: id.into(),
        device: Device::parse(agent),
        address: net.into(),
        signed_in: Moment(before(minutes + 7000)),
        last_seen: Moment(before(minutes)),
        current,
        hosts: Vec::new(),
    };
    let sessions = || {
        let here = row("1", CHROME, "203.0.113.0/24", 0, true);
        let elsewhere = row("2", IPHONE, "2001:db8:77::/48", 95, false);
        vec![here, elsewhere, row("3", "", "198.51.100.0/24", 5000, false)]
    };
    let sign_in = || SignInRow {
        at: Moment(before(1)),
        device: Device::parse(CHROME),
        address: "203.0.113.0/24".into(),
    };
    let failures = || {
        let row = |network: Option<&str>, wrong_passwords, wrong_codes, refused| FailedAttempts {
            network: network.map(str::to_owned),
            first: before(800),
            last: before(3),
            wrong_passwords,
            wrong_codes,
            wrong_factors: 0,
            refused,
        };
        let rows = [
            row(Some("203.0.113.0/24"), 1, 0, 0),
            row(Some("192.0.2.0/24"), 20, 3, 1_400),
            row(None, 0, 0, 9),
        ];
        rows.into_iter().map(FailureRow::from).collect()
    };
    let page = || AccountPage {
        form: FormPage::new(visit, "/account", Some("ada.lovelace"), None),
        login: "ada.lovelace".into(),
        email: Some("ada@example.org".to_owned()),
        refuses_mail: Some(Moment(NOW)),
        resets_by_mail: false,
        phone: None,
        profile: Profile::default(),
        has_password: true,
        admin: false,
        created: Moment(before(500_000)),
        apps: Vec::new(),
        clients: Vec::new(),
        sessions: Vec::new(),
        sign_ins: Vec::new(),
        failures: Vec::new(),
        more_failures: 0,
        here_now: visit.client.masked(),
        must_change: false,
        breached: false,
        disabled: None,
        closed: false,
        asks_factor: false,
        confirm_first: false,
        setup_by: None,
    };
    let full = || AccountPage {
        sessions: sessions(),
        sign_ins: vec![sign_in()],
        failures: failures(),
        more_failures: 41,
        ..page()
    };
    let phone = || Some("+8613800138000".to_owned());
    let disabled = Some(Moment(before(90)));
    let said = |page: AccountPage, notice| page.again(notice, CaptchaBlock::Absent);
    let wrong = FieldErrors::one(Field::CurrentPassword, Message::CurrentPasswordWrong);
    vec![
        ("account", full()),
        ("account-phone", AccountPage { phone: phone(), admin: true, ..full() }),
        ("account-no-password", AccountPage { phone: phone(), has_password: false, ..full() }),
        ("account-wrong", said(full(), Notice::Invalid(wrong))),
        ("account-wait", said(full(), throttled(60))),
        ("account-disabled", AccountPage { phone: phone(), disabled, closed: true, ..full() }),
        ("account-disabled-here", AccountPage { disabled, ..full() }),
        ("account-disabled-asks", AccountPage { disabled, closed: true, ..full() }),
        ("account-disabled-admin", AccountPage { admin: true, disabled, closed: true, ..full() }),
        (
            "account-must-change",
            AccountPage { must_change: true, sessions: vec![sessions().remove(0)], ..page() },
        ),
        ("account-confirm-first", AccountPage { asks_factor: true, confirm_first: true, ..full() }),
        ("account-expired", said(page(), refused(&Problem::Csrf))),
    ]
}
