//! Real mail servers: what arrives there, what they refuse, and what a filter for spam thinks of it.

use std::net::Ipv4Addr;
use std::time::Duration;

use gatehouse::clock::Clock;
use gatehouse::config::{MailSecurity, MailServer, MailSettings, SecretRef, Server, SmsSettings};
use gatehouse::mail::{LetterFacts, LetterKind, MailDelivery, MailTransport, Mailbox, SmtpPhase, letter};
use serde_json::json;
use strum::VariantArray;

use super::flows::{self, ask};
use super::proxy::{MailProxy, Passage};
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::authority::Authority;
use crate::support::dovecot;
use crate::support::mail_server::{SecondServer, Senders};
use crate::support::postfix::Postfix;
use crate::support::rspamd::{Envelope, Rspamd};

const ADA: &str = "ada@example.org";

fn transport(authority: &Authority, port: u16, security: MailSecurity, password: &str) -> MailTransport {
    let user = Some("login".to_owned());
    let settings = MailSettings {
        url: Some(MailServer { host: "localhost".to_owned(), port, security, user }),
        password: Some(SecretRef::Literal(password.to_owned())),
        ca_file: Some(authority.file.path().to_owned()),
        from: Some("login@example.org".to_owned()),
        timeout: Duration::from_secs(20),
        ..MailSettings::default()
    };
    MailTransport::open(&settings, (&Server::default(), &SmsSettings::default()), &Clock::System).unwrap()
}

/// With all that a letter of that kind may say.
pub fn facts(kind: LetterKind, locale: &'static str) -> LetterFacts<'static> {
    LetterFacts {
        kind,
        locale,
        brand: "Gatehouse",
        link: "https://login.example.org/account",
        code: Some(if matches!(kind, LetterKind::AddressChanged | LetterKind::AddressRemoved) {
            "7K3M-9Q2X-4H8P-6W5R"
        } else {
            "012345"
        }),
        minutes: Some(10),
        at: Some("2026-11-29 14:05 UTC"),
        network: Some("203.0.113.0/24"),
        times: 1,
        support: Some("mailto:help@example.org"),
    }
}

#[tokio::test]
async fn every_letter_arrives_whole_and_scores_low() {
    let authority = Authority::new();
    let postfix = Postfix::start(&authority, "localhost", Senders::SignedIn).await;
    let sends = transport(&authority, postfix.port(), MailSecurity::StartTls, dovecot::PASSWORD);
    let to = Mailbox::parse(ADA).unwrap();
    let mut letters = Vec::new();
    for kind in LetterKind::VARIANTS {
        for locale in ["en", "zh-CN"] {
            let letter = letter(&facts(*kind, locale));
            let id = format!("{:032x}", letters.len());
            let sent = sends.send(&id, "Gatehouse", &to, &letter).await;
            assert!(matches!(sent, MailDelivery::Accepted { .. }), "{kind:?} {locale}: {sent:?}");
            letters.push((*kind, locale, letter));
        }
    }
    postfix.until_mails(letters.len()).await;
    let names = [
        ("example.org", "A", "192.0.2.7"),
        ("example.org", "MX", "10 mail.example.org"),
        ("example.org", "TXT", "v=spf1 ip4:192.0.2.7 -all"),
        ("_dmarc.example.org", "TXT", "v=DMARC1; p=reject"),
        ("mail.example.org", "A", "192.0.2.7"),
        ("7.2.0.192.in-addr.arpa", "PTR", "mail.example.org"),
    ];
    let names = names.map(|(name, kind, value)| (name.to_owned(), kind, value.to_owned()));
    let rspamd = Rspamd::start(&names).await;
    let from = Ipv4Addr::new(192, 0, 2, 7);
    let envelope = Envelope { ip: from, host: "mail.example.org", from: "login@example.org", to: ADA };
    for (mail, (kind, locale, letter)) in postfix.fetched().iter().zip(&letters) {
        let headers = mail.split("\r\n\r\n").next().unwrap();
        for header in
            ["From: Gatehouse <login@example.org>", "To: ada@example.org", "Auto-Submitted: auto-generated"]
        {
            assert!(headers.contains(header), "{kind:?} {locale}: {headers}");
        }
        assert!(!mail.contains("alice") && !letter.text.is_empty());
        let verdict = rspamd.check(mail, &envelope).await;
        assert!(verdict.score <= 2.0, "{kind:?} {locale}: {verdict:?}");
    }
}

#[tokio::test]
async fn an_address_is_confirmed_by_a_mail_from_a_server_with_tls_from_the_first_byte() {
    let authority = Authority::new();
    let exim = SecondServer::start(&authority, "localhost", Senders::SignedIn).await;
    let password = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(password.path(), dovecot::PASSWORD).unwrap();
    let toml = format!(
        "[mail]\nurl = 'smtps://login@localhost:{}'\npassword = 'file:{}'\nca_file = '{}'\nfrom = 'login@example.org'\n",
        exim.port(),
        password.path().display(),
        authority.file.path().display()
    );
    let app = TestApp::on(Store::Memory).file_more(&toml).start().await;
    app.client().register("alice", PASSWORD).await;
    let owner = app.client();
    owner.login("alice", PASSWORD).await;
    let asked = owner.call("/email/codes", json!({ "email": ADA, "purpose": "verify" })).await;
    assert_eq!(asked.status, 202, "{}", asked.text);
    let mails = exim.until_mails(1).await;
    let code = mails[0].lines().map(str::trim).find(|line| line.len() == 6 && line.parse::<u32>().is_ok());
    let set = flows::set(&owner, ADA, code.unwrap_or_else(|| panic!("{}", mails[0]))).await;
    assert_eq!(set.status, 200, "{}", set.text);
    app.advance(Duration::from_secs(61));
    assert_eq!(ask(&app.client(), "nobody@example.org").await.status, 202);
    assert_eq!(ask(&app.client(), ADA).await.status, 202);
    // The code, the notice that the address is set, and the other code; nothing to anybody else.
    let mails = exim.until_mails(3).await;
    assert!(mails.iter().all(|mail| mail.contains("To: ada@example.org")), "{mails:?}");
}

#[tokio::test]
async fn what_a_server_refuses_is_told_apart_from_what_it_takes_later() {
    let authority = Authority::new();
    let postfix = Postfix::start(&authority, "localhost", Senders::SignedIn).await;
    let exim = SecondServer::start(&authority, "localhost", Senders::SignedIn).await;
    let servers = [(postfix.port(), MailSecurity::StartTls), (exim.port(), MailSecurity::Implicit)];
    for (port, security) in servers {
        let sends = transport(&authority, port, security, dovecot::PASSWORD);
        let to = async |address: &str| {
            let to = Mailbox::parse(address).unwrap();
            sends.send("0", "Gatehouse", &to, &letter(&facts(LetterKind::ConfirmCode, "en"))).await
        };
        assert!(matches!(to("gone@example.org").await, MailDelivery::Refused { .. }), "{security:?}");
        assert!(matches!(to("busy@example.org").await, MailDelivery::Deferred { .. }), "{security:?}");
        let wrong = transport(&authority, port, security, "wrong");
        let checked = wrong.check().await.unwrap();
        assert!(checked.steps.last().unwrap().1.is_err(), "{checked:?}");
        let stranger = transport(&Authority::new(), port, security, dovecot::PASSWORD);
        let ada = Mailbox::parse(ADA).unwrap();
        let sent = stranger.send("0", "Gatehouse", &ada, &letter(&facts(LetterKind::Frozen, "en"))).await;
        assert!(matches!(sent, MailDelivery::Deferred { .. }), "another certificate: {sent:?}");
    }
    assert!(postfix.mails().is_empty() && exim.mails().is_empty());
}

#[tokio::test]
async fn a_server_whose_starttls_is_stripped_on_the_way_is_told_nothing() {
    let authority = Authority::new();
    let postfix = Postfix::start(&authority, "localhost", Senders::Anybody).await;
    let mut proxy = MailProxy::to(postfix.port());
    proxy.lets(|_| Passage::Stripped);
    proxy.open().await;
    let sends = transport(&authority, proxy.port, MailSecurity::StartTls, dovecot::PASSWORD);
    let ada = Mailbox::parse(ADA).unwrap();
    let sent = sends.send("0", "Gatehouse", &ada, &letter(&facts(LetterKind::ResetCode, "en"))).await;
    assert!(matches!(sent, MailDelivery::Deferred { at: SmtpPhase::Tls, .. }), "{sent:?}");
    assert_eq!((proxy.connections(), proxy.taken()), (1, 0));
    assert!(postfix.mails().is_empty());
    let untouched = transport(&authority, postfix.port(), MailSecurity::StartTls, dovecot::PASSWORD);
    let sent = untouched.send("0", "Gatehouse", &ada, &letter(&facts(LetterKind::ResetCode, "en"))).await;
    assert!(matches!(sent, MailDelivery::Accepted { .. }), "{sent:?}");
}
