//! `[[webhooks]]`: who is told what, besides the console.

use strum::{EnumString, IntoStaticStr, VariantArray, VariantNames};
use url::{Host, Url};

use super::document::ValueNode;
use super::reader::{MOST_ENTRIES, ParseResult, SectionReader};
use super::values::{SecretRef, secret, yes_or_no};
use crate::public_address::is_public;

/// More would be a fan-out, which one receiver does better.
const MOST: usize = 10;

/// One receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    pub url: Url,
    /// `whsec_` and 24 to 64 bytes in base64, by which the receiver checks the signature.
    pub secret: SecretRef,
    pub events: Vec<WebhookEvent>,
    /// It may be at an address that only this network reaches, and without TLS.
    pub allow_private: bool,
}

/// What a webhook can be told. Its words are those of the configuration, and the `type` of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray, VariantNames)]
#[strum(const_into_str)]
pub enum WebhookEvent {
    #[strum(serialize = "attack.began")]
    AttackBegan,
    #[strum(serialize = "attack.ended")]
    AttackEnded,
    /// Codes to a dialling prefix are nearly stopped.
    #[strum(serialize = "sms.brake")]
    BrakeBegan,
    /// After too many wrong ones in a row.
    #[strum(serialize = "password.disabled")]
    PasswordDisabled,
    /// One password is tried at many names.
    #[strum(serialize = "spray")]
    Spray,
    /// Somebody has signed in with a lost one.
    #[strum(serialize = "password.breached")]
    PasswordBreached,
    #[strum(serialize = "factor.added")]
    FactorAdded,
    /// Its owner removed it, or a recovery code was used up.
    #[strum(serialize = "factor.removed")]
    FactorRemoved,
    /// A wrong one after a right first step.
    #[strum(serialize = "factor.failed")]
    FactorFailed,
    /// An administrator removed all.
    #[strum(serialize = "factor.reset")]
    FactorReset,
    /// After too many wrong codes in a row.
    #[strum(serialize = "totp.disabled")]
    TotpDisabled,
    /// The next key that signs tokens is published.
    #[strum(serialize = "key.rotated")]
    KeyRotated,
    /// Somebody has used a copy of an application's token, which ended the grant.
    #[strum(serialize = "token.reuse")]
    TokenReuse,
    /// Somebody agreed that an application is told who they are.
    #[strum(serialize = "consent.given")]
    ConsentGiven,
    /// Half, or four fifths, of all messages are spent.
    #[strum(serialize = "sms.total")]
    MessagesSpent,
    #[strum(serialize = "limits.changed")]
    LimitsChanged,
    /// The store or the database.
    #[strum(serialize = "dependency.down")]
    DependencyDown,
    #[strum(serialize = "dependency.up")]
    DependencyUp,
}

/// Every receiver in the document.
pub(super) fn read(root: &mut SectionReader<'_>) -> Vec<WebhookSettings> {
    let place = root.place_of("webhooks");
    let found = root.tables("webhooks", MOST, webhook).unwrap_or_default();
    let Some(place) = place else { return Vec::new() };
    let found: Vec<WebhookSettings> = found.into_iter().flatten().collect();
    // A delivery is known by its URL.
    let twice = |index: &usize| found[..*index].iter().any(|other| other.url == found[*index].url);
    for index in (0..found.len()).filter(twice) {
        let reason = "is listed twice; name all events in one entry";
        root.refuse(place.clone(), format!("webhooks[{index}].url"), reason);
    }
    found
}

fn webhook(section: &mut SectionReader<'_>) -> Option<WebhookSettings> {
    let url = section.required("url", "is missing; write where to post", address);
    let missing =
        "is missing; write \"env:NAME\" or \"file:PATH\" to say where the signing secret is read from";
    let secret = section.required("secret", missing, secret);
    let events = section
        .list("events", MOST_ENTRIES, event)
        .map_or_else(|| <WebhookEvent as VariantArray>::VARIANTS.to_vec(), |lists| lists.concat());
    let allow_private = section.value("allow_private", false, yes_or_no);
    if let (Some(url), false) = (&url, allow_private) {
        refuse_private(section, "url", url);
    }
    Some(WebhookSettings { url: url?, secret: secret?, events, allow_private })
}

pub(super) fn refuse_private(section: &SectionReader<'_>, key: &str, url: &Url) {
    let literal = match url.host() {
        Some(Host::Ipv4(address)) => Some(address.into()),
        Some(Host::Ipv6(address)) => Some(address.into()),
        Some(Host::Domain(_)) | None => None,
    };
    let reason = if url.scheme() == "http" {
        "is http, but receivers on the Internet need https; within your own network, set allow_private = true"
    } else if literal.is_some_and(|address| !is_public(address)) {
        "is an address that only this network reaches; if that is meant, set allow_private = true"
    } else {
        return;
    };
    section.refuse_key(key, reason);
}

pub(super) fn address(node: ValueNode) -> ParseResult<Url> {
    let wanted = "write it as \"https://ops.example/hook\"";
    let url = Url::parse(&node.text()?).map_err(|wrong| format!("is not a URL ({wrong}); {wanted}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("has the scheme {:?}; it must be http or https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a username or password; the signature says who sends it".to_owned());
    }
    Ok(url)
}

/// `*` is every event.
fn event(node: ValueNode) -> ParseResult<Vec<WebhookEvent>> {
    let text = node.text()?;
    if text == "*" {
        return Ok(<WebhookEvent as VariantArray>::VARIANTS.to_vec());
    }
    let names = || <WebhookEvent as VariantNames>::VARIANTS.join(", ");
    let event =
        text.parse().map_err(|_| format!("{text:?} is not allowed; use *, or some of: {}", names()))?;
    Ok(vec![event])
}
