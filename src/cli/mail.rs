//! `gatehouse mail check`

use gatehouse::app::TimeAndEntropy;
use gatehouse::config::LoadedConfig;
use gatehouse::mail::{Letter, MailDelivery, MailTransport, Mailbox, SmtpCheck};
use gatehouse::message::MessageId;

use super::CliFailure;
use super::log::tell;

/// Each step towards the server that delivers. With an address, a mail is sent there.
pub async fn check(loaded: &LoadedConfig, address: Option<&str>) -> Result<(), CliFailure> {
    let (settings, live) = (&loaded.settings, loaded.live.snapshot());
    let to = address.map(Mailbox::parse).transpose();
    let to = to.map_err(|wrong| CliFailure::unusable(format!("ADDRESS {wrong}")))?;
    let world = TimeAndEntropy::default();
    let transport = MailTransport::open(&settings.mail, (&settings.server, &settings.sms), &world.clock);
    let transport = transport.map_err(CliFailure::unusable)?;
    let Some(SmtpCheck { steps }) = transport.check().await else {
        return Err(CliFailure::unusable("mail.url is not set, so no mail leaves this machine"));
    };
    for (phase, result) in steps {
        let step: &str = phase.into();
        match result {
            Ok(said) => {
                tell!("{}", plain(&format!("ok   {step}: {said}")));
            }
            Err(reason) => {
                tell!("{}", plain(&format!("FAIL {step}: {reason}")));
                return Err(CliFailure::broken("The mail server would take no mail."));
            }
        }
    }
    if let Some(from) = settings.mail.from.as_deref().and_then(|from| from.rsplit_once('@')) {
        let domain = from.1;
        tell!(
            "note SPF: the TXT record of {domain} has to name the server that delivers; ask with: dig +short TXT {domain}"
        );
        tell!(
            "note DKIM: the server that delivers signs, not Gatehouse; DMARC: dig +short TXT _dmarc.{domain}"
        );
    }
    let Some(to) = to else { return Ok(()) };
    let (id, brand) = (MessageId::random(&world.entropy).to_string(), &live.brand.name);
    let text = format!("{brand}: this is a test. Nothing has to be done.\n");
    let html =
        format!("<!doctype html><title>Test</title><p>{}</p>", text.trim().replace(['<', '>', '&'], " "));
    let letter = Letter { subject: format!("{brand}: test"), text, html };
    let masked = to.masked();
    match transport.send(&id, brand, &to, &letter).await {
        MailDelivery::Accepted { said } => {
            let said = said.map(|it| format!(": {it}")).unwrap_or_default();
            tell!("{}", plain(&format!("ok   it took a mail to {masked}{said}")));
            Ok(())
        }
        MailDelivery::Refused { reason, .. }
        | MailDelivery::Deferred { reason, .. }
        | MailDelivery::Unknown { reason } => {
            tell!("{}", plain(&format!("FAIL a mail to {masked}: {reason}")));
            Err(CliFailure::broken("The mail was not taken."))
        }
    }
}

/// Whatever answers says nothing to the terminal.
fn plain(line: &str) -> String {
    line.replace(char::is_control, " ")
}
