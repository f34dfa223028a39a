//! The gateways, one file each, behind one trait.

mod aliyun;
mod check;
mod http;
mod pool;
mod tencent;
mod twilio;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use strum::{EnumString, IntoStaticStr, VariantArray};
use url::{Url, form_urlencoded};

use super::Phone;
use crate::clock::{Clock, Micros};
use crate::config::{self, SecretError};
use crate::entropy::Entropy;
use crate::https;
use crate::message::{MessageCode, MessageId};
use crate::secret::{MasterKey, SigningKeys, SubKey};

pub use check::{CheckFuture, CheckResult, CheckedPart, GatewayCheck};
pub use pool::{GatewayOutage, Gateways, ListedSlot};

#[derive(Clone, Copy)]
pub struct SmsMessage<'a> {
    pub id: MessageId,
    pub phone: &'a Phone,
    pub code: &'a MessageCode,
    /// The whole text including the code. As secret as the code.
    pub text: &'a str,
}

impl fmt::Debug for SmsMessage<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Message({})", self.id)
    }
}

/// The outcome of a message, as far as the gateway says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryResult {
    Accepted {
        reference: Option<String>,
    },
    /// It was certainly not sent. `reason` is for the log and the ledger: no number, no code.
    Refused {
        reason: String,
        whose: RefusedFor,
    },
    /// It may have been sent: it counts, and is never sent again, by no gateway.
    Unknown {
        reason: String,
    },
}

/// To whom a gateway refuses what it refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedFor {
    /// This message: for its number or its content, by the provider's guard against fraud, or by a rate limit. Another
    /// gateway would go round the guard, or send to somebody who has opted out.
    ThisMessage,
    Everybody(OutOfService),
}

/// Why a gateway sends no message to anybody. Nothing that a requester chooses may be read as one of these: strangers
/// could take the gateway out of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum OutOfService {
    /// No connection could be made.
    Unreachable,
    Credentials,
    /// The account is suspended, or the service is not switched on for it.
    Account,
    Balance,
    /// The signature or the sender. In mainland China it must be filed with the carriers.
    Signature,
    Template,
    /// The service is not offered in the region that is set, or from here.
    Region,
}

impl OutOfService {
    /// Signatures, templates and packages of messages are for the mainland of China or for elsewhere, and so is what an
    /// account may do: what is refused in one country may be in order in another. So nobody takes a gateway out of service
    /// where others are by asking for a country that it does not serve.
    pub const fn is_of_a_country(self) -> bool {
        !matches!(self, Self::Unreachable | Self::Credentials)
    }

    /// What to do about it, for the log and the command line; the console has it in the reader's language.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Unreachable => {
                "check its address, the name server, and whether this machine may connect to it"
            }
            Self::Credentials => {
                "check the key and its secret in the configuration, what the key may do, from which addresses, and this machine's clock"
            }
            Self::Account => {
                "switch the SMS service on in the provider's console, or ask the provider why the account is suspended"
            }
            Self::Balance => "top up the account, or buy a package of messages",
            Self::Signature => {
                "check the signature or sender in the provider's console; in mainland China it must be approved and filed with the carriers under a real name, which takes 7 to 10 working days"
            }
            Self::Template => {
                "check in the provider's console that the template is approved and has the code as its only variable"
            }
            Self::Region => {
                "check the region in the configuration, and whether the provider accepts calls from this machine's country"
            }
        }
    }
}

pub type SendFuture<'a> = Pin<Box<dyn Future<Output = DeliveryResult> + Send + 'a>>;

pub trait SmsGateway: Send + Sync {
    /// The name in the configuration, in the ledger and in the URL of its reports.
    fn name(&self) -> &'static str;

    /// Tries once; only a failed connection is tried again. Waits at most the gateway's timeout.
    fn send<'a>(&'a self, message: SmsMessage<'a>) -> SendFuture<'a>;

    /// The content of a call to `/sms/reports/{gateway}`, if it is authentic.
    fn reports(&self, _call: &ReportCall<'_>) -> Result<Vec<DeliveryReport>, ReportError> {
        Err(ReportError::NotOffered)
    }

    /// Asks, without sending, whether messages would be sent: what its API has for that, and nothing for the rest.
    fn check(&self) -> CheckFuture<'_> {
        Box::pin(async { Vec::new() })
    }

    /// The address for its reports, if that must be entered in the provider's console.
    fn reports_to(&self) -> Option<String> {
        None
    }

    /// The answer to a valid report, with status 200, so that the gateway does not repeat it; `None` if an
    /// empty answer is enough.
    fn acknowledgement(&self) -> Option<ReportAcknowledgement<'_>> {
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportAcknowledgement<'a> {
    pub content_type: &'static str,
    pub body: &'a str,
}

pub struct ReportCall<'a> {
    /// The URL that was called, as the gateway knows it: with `server.public_url` and the query.
    pub url: &'a str,
    pub query: &'a str,
    pub header: &'a dyn Fn(&str) -> Option<String>,
    pub body: &'a [u8],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryReport {
    pub message: ReportedMessage,
    pub state: ReportState,
    /// The gateway's own code or word for it; no number, no code.
    pub detail: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportedMessage {
    Id(MessageId),
    /// The gateway's id from when it accepted the message.
    Reference(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray, Serialize)]
#[strum(serialize_all = "lowercase", const_into_str)]
#[serde(rename_all = "lowercase")]
pub enum ReportState {
    Pending,
    Delivered,
    Failed,
}

crate::db::text_column!(ReportState, text => text.parse::<Self>()?);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    #[error("this report is not from the gateway")]
    NotAuthentic,
    #[error("this report cannot be read: {0}")]
    Unreadable(String),
    #[error("this gateway sends no reports")]
    NotOffered,
}

pub struct OpenedGateway {
    pub gateway: Arc<dyn SmsGateway>,
    /// The same gateway, if it is the outbox: for the page that shows it.
    pub outbox: Option<Outbox>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{field}: {reason}")]
    Setting { field: String, reason: String },
    #[error("sms: TLS for the gateway cannot be set up: {0}")]
    Tls(String),
}

impl OpenError {
    fn secret(field: impl Into<String>) -> impl FnOnce(SecretError) -> Self {
        let field = field.into();
        |reason| Self::Setting { field, reason: reason.to_string() }
    }
}

#[derive(Clone)]
pub struct GatewayDeps<'a> {
    pub master: &'a MasterKey,
    /// The base URL to which gateways send their reports.
    pub public_url: &'a Url,
    /// `sms.timeout`
    pub timeout: Duration,
    pub clock: Clock,
    pub entropy: Entropy,
}

pub fn open(chosen: &config::GatewaySettings, parts: GatewayDeps<'_>) -> Result<OpenedGateway, OpenError> {
    let tokens = ReportTokens::new(parts.master, parts.public_url);
    let gateway: Arc<dyn SmsGateway> = match chosen {
        config::GatewaySettings::Outbox => {
            let outbox = Outbox::new(parts.clock);
            return Ok(OpenedGateway { gateway: Arc::new(outbox.clone()), outbox: Some(outbox) });
        }
        config::GatewaySettings::None => Arc::new(NoGateway),
        config::GatewaySettings::Http(settings) => {
            let client = GatewayClient::open(parts.timeout, settings.ca_file.as_deref())?;
            Arc::new(http::HttpGateway::open(settings, client, tokens)?)
        }
        config::GatewaySettings::Twilio(settings) => Arc::new(twilio::TwilioGateway::open(
            settings,
            GatewayClient::open(parts.timeout, None)?,
            tokens,
        )?),
        config::GatewaySettings::Aliyun(settings) => {
            let client = GatewayClient::open(parts.timeout, None)?;
            Arc::new(aliyun::AliyunGateway::open(settings, client, tokens, parts.clock, parts.entropy)?)
        }
        config::GatewaySettings::Tencent(settings) => {
            let client = GatewayClient::open(parts.timeout, None)?;
            Arc::new(tencent::TencentGateway::open(settings, client, tokens, parts.clock)?)
        }
    };
    Ok(OpenedGateway { gateway, outbox: None })
}

const LONGEST_ANSWER: usize = 64 * 1024;
/// A connection that was idle for longer may be closed; a request on a closed one may have been processed.
const REST: Duration = Duration::from_secs(15);

pub(super) struct GatewayClient {
    client: Client,
    timeout: Duration,
}

pub(super) struct GatewayAnswer {
    pub status: StatusCode,
    pub body: Vec<u8>,
}

impl GatewayClient {
    /// `timeout` is for the whole message. Connecting may take a third of it and is tried twice, so that a
    /// call that runs out of time has had a connection.
    pub fn open(timeout: Duration, authorities: Option<&Path>) -> Result<Self, OpenError> {
        let refused = |wrong: https::ClientError| match wrong {
            https::ClientError::Authorities(reason) => {
                OpenError::Setting { field: "sms.http.ca_file".to_owned(), reason }
            }
            https::ClientError::Tls(reason) => OpenError::Tls(reason),
        };
        let builder = https::client(authorities).map_err(refused)?;
        let client = builder.connect_timeout(timeout / 3).pool_idle_timeout(REST).build();
        let client = client.map_err(|wrong| OpenError::Tls(wrong.without_url().to_string()))?;
        Ok(Self { client, timeout })
    }

    /// What the gateway's answer means, or the lack of one.
    pub async fn call(
        &self,
        request: impl Fn(&Client) -> RequestBuilder,
        evaluate: impl FnOnce(&GatewayAnswer) -> DeliveryResult,
    ) -> DeliveryResult {
        match self.answer(request).await {
            Ok(answer) => evaluate(&answer),
            Err(delivery) => delivery,
        }
    }

    /// The gateway's answer, or what the lack of one means. `request` is repeated only if the first attempt never had a
    /// connection.
    pub async fn answer(
        &self,
        request: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<GatewayAnswer, DeliveryResult> {
        let whole = async {
            let mut answer = request(&self.client).send().await;
            if answer.as_ref().is_err_and(reqwest::Error::is_connect) {
                answer = request(&self.client).send().await;
            }
            match answer {
                Ok(response) => read(response).await,
                Err(wrong) if wrong.is_connect() => {
                    Err(out_of_service(OutOfService::Unreachable, "cannot be reached"))
                }
                Err(wrong) if wrong.is_builder() => {
                    Err(refused("cannot be called: the request is not valid"))
                }
                Err(_) => Err(unknown("closed the connection without an answer")),
            }
        };
        // Tests cannot advance the clock of another machine, so this uses the runtime's timer.
        let answered = tokio::time::timeout(self.timeout, whole).await;
        answered.unwrap_or_else(|_| Err(unknown("did not answer in time")))
    }
}

impl GatewayAnswer {
    /// What a status other than success means, whatever else the answer says. After a server error or a
    /// redirect the message may have been sent.
    pub fn unless_success(&self, said: Option<&str>, whose: RefusedFor) -> Option<DeliveryResult> {
        let said = said.map(|code| format!(" ({code})")).unwrap_or_default();
        let reason = format!("answered {}{said}", self.status.as_u16());
        match self.status.as_u16() {
            200..300 => None,
            400..500 => Some(refused_for(whose, &reason)),
            _ => Some(unknown(&reason)),
        }
    }
}

pub(super) fn refused(reason: &str) -> DeliveryResult {
    refused_for(RefusedFor::ThisMessage, reason)
}

pub(super) fn out_of_service(why: OutOfService, reason: &str) -> DeliveryResult {
    refused_for(RefusedFor::Everybody(why), reason)
}

pub(super) fn refused_for(whose: RefusedFor, reason: &str) -> DeliveryResult {
    DeliveryResult::Refused { reason: format!("the gateway {reason}"), whose }
}

pub(super) fn unknown(reason: &str) -> DeliveryResult {
    DeliveryResult::Unknown { reason: format!("the gateway {reason}") }
}

/// A gateway's own error word, if it has the form of one. Anything else it says may contain the number or the
/// code.
pub(super) fn word(text: &str) -> Option<String> {
    let form = |letter: u8| letter.is_ascii_alphanumeric() || b"._:-".contains(&letter);
    let short = (1..=64).contains(&text.len()) && text.bytes().all(form);
    // Six digits in a row may be the code, and more may be the number.
    let digits = text.split(|letter: char| !letter.is_ascii_digit()).all(|run| run.len() < 6);
    (short && digits).then(|| text.to_owned())
}

/// The gateway's id for a message, if it can be stored.
pub(super) fn reference(text: &str) -> Option<String> {
    let fits = (1..=64).contains(&text.len()) && text.bytes().all(|letter| letter.is_ascii_graphic());
    fits.then(|| text.to_owned())
}

/// The host of an address as its header has it.
pub(super) fn host_of(url: &Url) -> String {
    match (url.host_str().unwrap_or_default(), url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    }
}

/// Reads the whole body. A success that cannot be read is not one; otherwise the status is enough.
async fn read(mut response: Response) -> Result<GatewayAnswer, DeliveryResult> {
    let status = response.status();
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= LONGEST_ANSWER => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(GatewayAnswer { status, body }),
            Ok(Some(_)) if status.is_success() => return Err(unknown("sent an answer that is too long")),
            Err(_) if status.is_success() => {
                return Err(unknown("closed the connection before its answer was complete"));
            }
            Ok(Some(_)) | Err(_) => return Ok(GatewayAnswer { status, body: Vec::new() }),
        }
    }
}

pub(super) struct ReportTokens {
    keys: SigningKeys,
    public_url: Url,
}

impl ReportTokens {
    pub fn new(master: &MasterKey, public_url: &Url) -> Self {
        Self { keys: master.derive_signing("sms.report"), public_url: public_url.clone() }
    }

    /// 128 bits in hex, which need no escaping anywhere.
    pub fn of(&self, id: MessageId) -> String {
        self.of_text(&id.to_string())
    }

    fn of_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&token(self.keys.signing(), text)).into_owned()
    }

    /// The message of this id, if the token belongs to it.
    pub fn verify(&self, id: &str, said: &str) -> Option<MessageId> {
        let id = MessageId::parse(id)?;
        self.keys.signer(said.as_bytes(), |key| token(key, &id.to_string())).map(|_| id)
    }

    /// The URL at which a gateway reports on one message.
    pub fn url(&self, gateway: &str, id: MessageId) -> Url {
        let mut url = self.all_url(gateway);
        url.query_pairs_mut().append_pair("id", &id.to_string()).append_pair("token", &self.of(id));
        url
    }

    /// The URL at which a gateway reports on all messages.
    pub fn all_url(&self, gateway: &str) -> Url {
        let mut url = self.public_url.clone();
        url.set_path(&format!("/sms/reports/{gateway}"));
        url
    }

    /// The URL for all reports, with a token, for a gateway whose reports prove nothing themselves.
    pub fn secret_url(&self, gateway: &str) -> Url {
        let mut url = self.all_url(gateway);
        url.query_pairs_mut().append_pair("token", &self.of_text(gateway));
        url
    }

    /// Whether a call came to [`Self::secret_url`].
    pub fn is_secret_url(&self, gateway: &str, query: &str) -> bool {
        let said = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "token");
        said.is_some_and(|(_, said)| self.keys.signer(said.as_bytes(), |key| token(key, gateway)).is_some())
    }

    /// Whether anything outside this machine can call us.
    pub fn can_be_called(&self) -> bool {
        match self.public_url.host() {
            Some(url::Host::Domain(name)) => name != "localhost" && !name.ends_with(".localhost"),
            Some(url::Host::Ipv4(address)) => !address.is_loopback(),
            Some(url::Host::Ipv6(address)) => !address.is_loopback(),
            None => false,
        }
    }
}

/// In hex; of a message's id, or of a gateway's name, which no id can be.
fn token(key: &SubKey, text: &str) -> [u8; 32] {
    let hash = blake3::Hash::from_bytes(key.hash(&[text.as_bytes()])).to_hex();
    *hash.as_bytes().first_chunk().expect("64 digits")
}

const KEPT_MESSAGES: usize = 1000;

#[derive(Clone)]
pub struct Outbox {
    messages: Arc<Mutex<VecDeque<OutboxMessage>>>,
    clock: Clock,
}

#[derive(Clone)]
pub struct OutboxMessage {
    pub id: MessageId,
    pub at: Micros,
    pub phone: Phone,
    pub text: String,
    pub code: String,
}

impl fmt::Debug for OutboxMessage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OutboxMessage").field("id", &self.id).field("at", &self.at).finish_non_exhaustive()
    }
}

impl Outbox {
    pub fn new(clock: Clock) -> Self {
        Self { messages: Arc::default(), clock }
    }

    /// Newest first; only those to one number if one is given.
    pub fn messages(&self, to: Option<&Phone>) -> Vec<OutboxMessage> {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages
            .iter()
            .rev()
            .filter(|message| to.is_none_or(|phone| *phone == message.phone))
            .cloned()
            .collect()
    }
}

impl SmsGateway for Outbox {
    fn name(&self) -> &'static str {
        "outbox"
    }

    fn send<'a>(&'a self, message: SmsMessage<'a>) -> SendFuture<'a> {
        Box::pin(async move {
            let kept = OutboxMessage {
                id: message.id,
                at: self.clock.now(),
                phone: message.phone.clone(),
                text: message.text.to_owned(),
                code: message.code.expose().to_owned(),
            };
            let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
            if messages.len() >= KEPT_MESSAGES {
                messages.pop_front();
            }
            messages.push_back(kept);
            DeliveryResult::Accepted { reference: None }
        })
    }
}

pub struct NoGateway;

impl SmsGateway for NoGateway {
    fn name(&self) -> &'static str {
        "none"
    }

    fn send<'a>(&'a self, _: SmsMessage<'a>) -> SendFuture<'a> {
        Box::pin(async {
            let (reason, whose) = ("sms.gateway is \"none\"".to_owned(), RefusedFor::ThisMessage);
            DeliveryResult::Refused { reason, whose }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;
    use crate::message::MessageCode;

    #[test]
    fn words_of_a_gateway_hold_no_number_and_no_code() {
        for plain in ["isv.BUSINESS_LIMIT_CONTROL", "21211", "VALVE:M_MC", "DELIVRD", "Throttling.User"] {
            assert_eq!(word(plain).as_deref(), Some(plain));
        }
        for spoken in ["", "your code is 123456", "123456", "+8613800138000", "x123456", "词"] {
            assert_eq!(word(spoken), None, "{spoken}");
        }
    }

    #[test]
    fn a_token_is_good_for_its_message_and_key_alone() {
        let url = Url::parse("https://login.example").unwrap();
        let tokens = ReportTokens::new(&MasterKey::from_bytes([1; 32]), &url);
        let (one, other) = (MessageId::random(&Entropy::Os), MessageId::random(&Entropy::Os));
        assert_eq!(tokens.verify(&one.to_string(), &tokens.of(one)), Some(one));
        assert_eq!(tokens.verify(&one.to_string(), &tokens.of(other)), None);
        assert_eq!(tokens.verify(&one.to_string(), &tokens.of(one)[..31]), None);
        assert_eq!(tokens.verify(&one.to_string(), ""), None);
        let others = ReportTokens::new(&MasterKey::from_bytes([2; 32]), &url);
        assert_eq!(others.verify(&one.to_string(), &tokens.of(one)), None);
        assert_eq!(
            tokens.url("http", one).as_str(),
            format!("https://login.example/sms/reports/http?id={one}&token={}", tokens.of(one))
        );
    }

    #[test]
    fn loopback_is_called_by_nobody_else() {
        let key = MasterKey::from_bytes([1; 32]);
        for (url, can) in [
            ("http://127.0.0.1:8080", false),
            ("http://localhost", false),
            ("http://[::1]", false),
            ("https://login.example", true),
            ("http://192.0.2.1", true),
        ] {
            assert_eq!(ReportTokens::new(&key, &Url::parse(url).unwrap()).can_be_called(), can, "{url}");
        }
    }

    #[tokio::test]
    async fn the_last_thousand_are_kept_the_newest_first() {
        let outbox = Outbox::new(Clock::manual(Micros(1)));
        let phones =
            ["+8613800138000", "+8613800138001"].map(|text| Phone::parse(text, "CN").expect("a number"));
        for number in 0..=KEPT_MESSAGES {
            let (id, code) = (MessageId::random(&Entropy::Os), MessageCode::parse("012345").unwrap());
            let text = number.to_string();
            let message = SmsMessage { id, phone: &phones[number % 2], code: &code, text: &text };
            assert_eq!(outbox.send(message).await, DeliveryResult::Accepted { reference: None });
        }
        let all = outbox.clone().messages(None);
        assert_eq!(
            (all.len(), all[0].text.as_str(), all[KEPT_MESSAGES - 1].text.as_str()),
            (KEPT_MESSAGES, "1000", "1")
        );
        let odd = outbox.messages(Some(&phones[1]));
        assert_eq!((odd.len(), odd[0].text.as_str()), (KEPT_MESSAGES / 2, "999"));
        assert!(!format!("{:?}", all[0]).contains("012345"));
    }
}
