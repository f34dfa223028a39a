//! `[sms]`: through whom codes are sent (until a restart), to whom and for how long (live).

use std::time::Duration;

use super::document::Node;
use super::reader::{Parsed, Section};
use super::sms_gateways::{Aliyun, Gateway, GatewayName, HttpGateway, Twilio};
use super::values::{duration, integer, share, word, yes_or_no};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What may change while the server runs.
#[derive(Debug, Clone, PartialEq)]
pub struct SmsTunables {
    /// For numbers written without a country code (ISO 3166-1, two letters).
    pub default_region: String,
    /// Countries that codes are sent to; empty: all.
    pub countries: Vec<String>,
    /// How long a code can be used; NIST SP 800-63B-4 allows ten minutes at most.
    pub code_ttl: Duration,
    /// How long the ledger keeps a message; at least as long as any limit on messages looks back.
    pub retention: Duration,
    pub brake: Brake,
}

/// What is done about a dialling prefix whose codes nobody enters.
#[derive(Debug, Clone, PartialEq)]
pub struct Brake {
    pub enabled: bool,
    /// How far it looks back.
    pub window: Duration,
    /// Fewer messages to a block (10,000 neighbouring numbers) say nothing yet.
    pub min_sent: u32,
    /// The same for an operator's range (a million numbers).
    pub min_sent_range: u32,
    /// The share of codes that have to come back.
    pub min_entered: f64,
    pub lifts_after: Duration,
}

impl Default for SmsTunables {
    fn default() -> Self {
        Self {
            default_region: "CN".to_owned(),
            countries: Vec::new(),
            code_ttl: Duration::from_secs(5 * 60),
            retention: 90 * DAY,
            brake: Brake::default(),
        }
    }
}

impl Default for Brake {
    fn default() -> Self {
        Self {
            enabled: true,
            window: HOUR,
            min_sent: 20,
            min_sent_range: 100,
            min_entered: 0.1,
            lifts_after: HOUR,
        }
    }
}

impl Brake {
    fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        let minute = Duration::from_secs(60);
        Self {
            enabled: section.value("enabled", default.enabled, yes_or_no),
            window: section.value("window", default.window, duration(minute..=7 * DAY)),
            min_sent: section.value("min_sent", default.min_sent, integer(1..=1_000_000)),
            min_sent_range: section.value("min_sent_range", default.min_sent_range, integer(1..=1_000_000)),
            min_entered: section.value("min_entered", default.min_entered, share),
            lifts_after: section.value("lifts_after", default.lifts_after, duration(minute..=30 * DAY)),
        }
    }
}

/// What takes a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmsSettings {
    pub gateway: Gateway,
    /// How long a gateway may take for one message; whoever asked for it waits as long.
    pub timeout: Duration,
}

impl Default for SmsSettings {
    fn default() -> Self {
        Self { gateway: Gateway::default(), timeout: Duration::from_secs(5) }
    }
}

pub(super) fn read(section: &mut Section<'_>) -> (SmsSettings, SmsTunables) {
    let default = SmsTunables::default();
    let place = section.place_of("gateway");
    let patience = duration(Duration::from_secs(1)..=Duration::from_secs(10));
    let timeout = section.value("timeout", SmsSettings::default().timeout, patience);
    let name = section.value("gateway", GatewayName::Outbox, word(&GatewayName::WORDS));
    let bounds = Duration::from_secs(1)..=Duration::from_secs(10 * 60);
    let tunables = SmsTunables {
        default_region: section.value("default_region", default.default_region, country),
        countries: section.list("countries", country).unwrap_or_default(),
        code_ttl: section.value("code_ttl", default.code_ttl, duration(bounds)),
        // At the least what the brake looks back at the most; the limits are held to it where both are known.
        retention: section.value("retention", default.retention, duration(7 * DAY..=3660 * DAY)),
        brake: section.section("brake", Brake::read),
    };
    // Every gateway's section is checked, also those that are not chosen.
    let chosen = |candidate| if name == candidate { place.clone() } else { None };
    let http = section.section("http", |inner| HttpGateway::read(inner, chosen(GatewayName::Http)));
    let twilio = section.section("twilio", |inner| Twilio::read(inner, chosen(GatewayName::Twilio)));
    let aliyun = section.section("aliyun", |inner| Aliyun::read(inner, chosen(GatewayName::Aliyun)));
    let gateway = match name {
        GatewayName::Outbox => None,
        GatewayName::None => Some(Gateway::None),
        GatewayName::Http => http.map(Gateway::Http),
        GatewayName::Twilio => twilio.map(Gateway::Twilio),
        GatewayName::Aliyun => aliyun.map(Gateway::Aliyun),
    };
    (SmsSettings { gateway: gateway.unwrap_or_default(), timeout }, tunables)
}

fn country(node: Node) -> Parsed<String> {
    let text = node.text()?;
    if crate::sms::is_country(&text) {
        Ok(text)
    } else {
        Err(format!("{text:?} is no country; write its two capital letters (ISO 3166-1): \"CN\""))
    }
}
