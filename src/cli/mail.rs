//! `gatehouse mail check`

use std::net::{IpAddr, SocketAddr};

use gatehouse::app::TimeAndEntropy;
use gatehouse::config::LoadedConfig;
use gatehouse::mail::{DnsResult, Letter, MailDns, MailTransport, Mailbox, SmtpCheck, SmtpPhase};
use gatehouse::message::MessageId;

use super::log::tell;
use super::{CliFailure, none_failed};

/// The port of name servers (RFC 1035, 4.2).
const DNS_PORT: u16 = 53;

/// Each step towards the server that delivers, and what DNS says. With an address, a mail is sent there.
pub async fn check(
    loaded: &LoadedConfig,
    address: Option<&str>,
    dns: Option<&str>,
) -> Result<(), CliFailure> {
    let (settings, live) = (&loaded.settings, loaded.live.snapshot());
    let to = address.map(Mailbox::parse).transpose();
    let to = to.map_err(|wrong| CliFailure::unusable(format!("ADDRESS {wrong}")))?;
    let dns = MailDns::new(dns.map(name_server).transpose()?);
    let world = TimeAndEntropy::default();
    let transport = MailTransport::open(&settings.mail, (&settings.server, &settings.sms), &world.clock);
    let transport = transport.map_err(CliFailure::unusable)?;
    let Some(SmtpCheck { steps }) = transport.check().await else {
        return Err(CliFailure::unusable("mail.url is not set, so no mail leaves this machine"));
    };
    let unreachable = tell_steps(steps);
    let mut failed = unreachable;
    if let Some((_, domain)) = settings.mail.from.as_deref().and_then(|from| from.rsplit_once('@')) {
        failed += ask(&dns, domain, to.as_ref().map(Mailbox::domain)).await;
    }
    if let Some(to) = to.filter(|_| unreachable == 0) {
        let id = MessageId::random(&world.entropy).to_string();
        failed += send(&transport, &id, &live.brand.name, &to).await;
    }
    none_failed(failed)
}

fn name_server(text: &str) -> Result<SocketAddr, CliFailure> {
    let alone = |_| text.parse().map(|ip: IpAddr| SocketAddr::new(ip, DNS_PORT));
    let server = text.parse().or_else(alone).ok().filter(|server: &SocketAddr| server.port() > 0);
    server.ok_or_else(|| {
        CliFailure::unusable(
            "--dns: use an IP address, with a port if it is not 53, such as 192.0.2.53 or [2001:db8::53]:5353",
        )
    })
}

/// Returns how many failed.
fn tell_steps(steps: Vec<(SmtpPhase, Result<String, String>)>) -> usize {
    let mut failed = 0;
    for (phase, result) in steps {
        let step: &str = phase.into();
        let line = match result {
            Ok(said) => format!("ok   {step}: {said}"),
            Err(reason) => {
                failed += 1;
                format!("FAIL {step}: {reason}")
            }
        };
        tell!("{}", plain(&line));
    }
    failed
}

/// What DNS says of the domain that mail is from, and of the one that it goes to; returns how many checks failed.
async fn ask(dns: &MailDns, from: &str, to: Option<&str>) -> usize {
    let mut failed = 0;
    for check in dns.check(from, to).await {
        let about = check.about;
        let line = match check.result {
            DnsResult::InOrder(said) => format!("ok   {about}: {said}"),
            DnsResult::Advised(said) => format!("note {about}: {said}"),
            DnsResult::NotAsked(reason) => format!("note {about} cannot be asked: {reason}"),
            DnsResult::Wrong(reason) => {
                failed += 1;
                format!("FAIL {about}: {reason}")
            }
        };
        tell!("{}", plain(&line));
    }
    tell!("note DKIM: the server that delivers signs, not Gatehouse");
    failed
}

/// Sends a mail with which nothing has to be done; returns whether that failed.
async fn send(transport: &MailTransport, id: &str, brand: &str, to: &Mailbox) -> usize {
    let text = format!("{brand}: this is a test. Nothing has to be done.\n");
    let html =
        format!("<!doctype html><title>Test</title><p>{}</p>", text.trim().replace(['<', '>', '&'], " "));
    let letter = Letter { subject: format!("{brand}: test"), text, html, code: None };
    let masked = to.masked();
    let (line, failed) = match transport.try_mail(id, brand, to, &letter).await {
        Ok(said) => (format!("ok   it took a mail to {masked}: {said}"), 0),
        Err(reason) => (format!("FAIL a mail to {masked}: {reason}"), 1),
    };
    tell!("{}", plain(&line));
    failed
}

/// Whatever answers says nothing to the terminal.
fn plain(line: &str) -> String {
    line.replace(char::is_control, " ")
}
