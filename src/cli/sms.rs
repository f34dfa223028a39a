//! `gatehouse sms check`

use gatehouse::app::TimeAndEntropy;
use gatehouse::config::LoadedConfig;
use gatehouse::message::{MessageCode, MessageId};
use gatehouse::secret::{KeyFile, MasterKey};
use gatehouse::sms::gateway::{CheckResult, GatewayDeps, Gateways, ListedSlot};
use gatehouse::sms::{DeliveryResult, Phone, RefusedFor, SmsMessage};

use super::log::tell;
use super::{CliFailure, none_failed};

/// Each gateway in its order. With a number, each that serves its country also sends to it.
pub async fn check(loaded: &LoadedConfig, number: Option<&str>) -> Result<(), CliFailure> {
    let (settings, live) = (&loaded.settings, loaded.live.snapshot());
    let phone = number.map(|text| Phone::parse(text, &live.sms.default_region)).transpose();
    let phone = phone.map_err(|wrong| CliFailure::unusable(format!("NUMBER {wrong}")))?;
    let world = TimeAndEntropy::default();
    let file = KeyFile::find(&settings.secrets.key_file).map_err(CliFailure::unusable)?;
    // Before the first start nothing needs the right one.
    let master = file.as_ref().map_or_else(|| MasterKey::from_bytes(world.entropy.bytes()), KeyFile::master);
    let deps = GatewayDeps {
        master: &master,
        public_url: &settings.server.public_url,
        timeout: settings.sms.timeout,
        clock: world.clock.clone(),
        entropy: world.entropy.clone(),
    };
    let (gateways, _) = Gateways::open(&settings.sms.gateways, &deps).map_err(CliFailure::unusable)?;
    let (mut failed, mut served) = (0, false);
    for slot in gateways.iter() {
        failed += ask(slot).await;
        if let Some(url) = slot.gateway().reports_to().filter(|_| file.is_some()) {
            tell!("note {} reports: have it push them to {url}", slot.name());
        }
        if let Some(phone) = phone.as_ref().filter(|phone| slot.serves(phone.country().as_deref())) {
            served = true;
            let code = MessageCode::random(&world.entropy);
            failed += send(slot, phone, &code, MessageId::random(&world.entropy)).await;
        }
    }
    if phone.is_some() && !served {
        return Err(CliFailure::unusable("NUMBER is in a country that no gateway of sms.gateways serves"));
    }
    none_failed(failed)
}

/// What the gateway says of itself; returns how many checks failed.
async fn ask(slot: &ListedSlot) -> usize {
    let (name, checks) = (slot.name(), slot.gateway().check().await);
    if checks.is_empty() {
        tell!("note {name} has nothing to ask");
    }
    let mut failed = 0;
    for check in checks {
        let part: &str = check.part.into();
        let line = match check.result {
            CheckResult::Passed(said) => format!("ok   {name} {part}: {said}"),
            CheckResult::NotAsked(reason) => format!("note {name} {part} cannot be asked: {reason}"),
            CheckResult::Failed(why, reason) => {
                failed += 1;
                format!("FAIL {name} {part}: {reason}; {}", why.advice())
            }
        };
        // Whatever answers says nothing to the terminal.
        tell!("{}", line.replace(char::is_control, " "));
    }
    failed
}

/// Sends a code that nothing asks for; returns whether that failed.
async fn send(slot: &ListedSlot, phone: &Phone, code: &MessageCode, id: MessageId) -> usize {
    let (name, masked) = (slot.name(), phone.masked());
    let text = format!("Gatehouse: a test. The code {} opens nothing.", code.expose());
    match slot.gateway().send(SmsMessage { id, phone, code, text: &text }).await {
        DeliveryResult::Accepted { reference } => {
            let reference = reference.map(|it| format!(" as {it}")).unwrap_or_default();
            tell!("ok   {name} accepted a message to {masked}{reference}");
            return 0;
        }
        DeliveryResult::Unknown { reason } => {
            tell!("FAIL {name} may have sent a message to {masked}: {reason}");
        }
        DeliveryResult::Refused { reason, whose } => {
            let advice = match whose {
                RefusedFor::Everybody(why) => why.advice(),
                RefusedFor::ThisMessage => {
                    "this is about the number, its country, or the provider's limits and guard against fraud"
                }
            };
            tell!("FAIL {name} did not send a message to {masked}: {reason}; {advice}");
        }
    }
    1
}
