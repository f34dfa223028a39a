//! Twilio's Messages API: a form with basic authentication, and reports that Twilio signs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use sha1::Sha1;
use url::{Url, form_urlencoded};

use super::http::percent_encode;
use super::{
    CheckFuture, CheckResult, CheckedPart, DeliveryReport, DeliveryResult, GatewayAnswer, GatewayCheck,
    GatewayClient, MessageId, OpenError, OutOfService, RefusedFor, ReportCall, ReportError, ReportState,
    ReportTokens, ReportedMessage, SendFuture, SmsGateway, SmsMessage, reference, refused_for, unknown, word,
};
use crate::config;
use crate::secret::same;

const NAME: &str = "twilio";

pub(super) struct TwilioGateway {
    client: GatewayClient,
    tokens: ReportTokens,
    url: Url,
    account_sid: String,
    auth_token: SecretString,
    from: String,
}

#[derive(Deserialize)]
struct TwilioAnswer {
    sid: Option<String>,
    #[serde(default)]
    status: Value,
    code: Option<u32>,
    error_code: Option<u32>,
}

impl TwilioGateway {
    pub fn open(
        settings: &config::TwilioSettings,
        client: GatewayClient,
        tokens: ReportTokens,
    ) -> Result<Self, OpenError> {
        let auth_token = settings.auth_token.read().map_err(OpenError::secret("sms.twilio.auth_token"))?;
        let mut account = String::new();
        percent_encode(&mut account, &settings.account_sid);
        let mut url = settings.url.clone();
        url.set_path(&format!("/2010-04-01/Accounts/{account}"));
        let (account_sid, from) = (settings.account_sid.clone(), settings.from.clone());
        Ok(Self { client, tokens, url, account_sid, auth_token, from })
    }

    fn form(&self, message: &SmsMessage<'_>) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("To", message.phone.as_str()).append_pair("Body", message.text);
        // The id of a messaging service has this form; anything else is a sender's number or name.
        let service = self.from.len() == 34 && self.from.starts_with("MG");
        form.append_pair(if service { "MessagingServiceSid" } else { "From" }, &self.from);
        // Twilio refuses a message whose reports it could not deliver.
        if self.tokens.can_be_called() {
            form.append_pair("StatusCallback", self.tokens.url(NAME, message.id).as_str());
        }
        form.finish()
    }

    async fn ask(&self, message: SmsMessage<'_>) -> DeliveryResult {
        let form = self.form(&message);
        let request = |client: &Client| {
            client
                .post(self.resource("/Messages.json"))
                .basic_auth(&self.account_sid, Some(self.auth_token.expose_secret()))
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.clone())
        };
        self.client.call(request, evaluate).await
    }

    /// The URL of something that belongs to the account.
    fn resource(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{path}", self.url.path()));
        url
    }

    async fn get(&self, path: &str) -> Result<Value, CheckResult> {
        let url = self.resource(path);
        let request = |client: &Client| {
            client.get(url.clone()).basic_auth(&self.account_sid, Some(self.auth_token.expose_secret()))
        };
        let answer = self.client.answer(request).await?;
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let code = said["code"].as_u64().and_then(|code| word(&code.to_string()));
        match answer.unless_success(code.as_deref(), refusal(code.as_deref(), answer.status.as_u16())) {
            None => Ok(said),
            Some(delivery) => Err(delivery.into()),
        }
    }

    async fn examine(&self) -> Vec<GatewayCheck> {
        let account = self.get(".json").await;
        let (mut checks, may_ask) = GatewayCheck::of_access(&account);
        if !may_ask {
            return checks;
        }
        let status = account.map(|account| account["status"].as_str().and_then(word).unwrap_or_default());
        checks.push(match status {
            Ok(status) if status == "active" => CheckedPart::Account.passed(status),
            Ok(status) => GatewayCheck::failed(OutOfService::Account, format!("it is {status:?}")),
            Err(wrong) => CheckedPart::Account.unanswered(wrong),
        });
        checks.push(match self.get("/Balance.json").await {
            Ok(said) => balance(&said),
            Err(wrong) => CheckedPart::Balance.unanswered(wrong),
        });
        checks
    }

    /// As Twilio documents it: HMAC-SHA1 with the account's token over the URL and every field's name and
    /// value, in the order of the names.
    fn signature(&self, url: &str, fields: &[(String, String)]) -> String {
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort();
        sorted.dedup();
        let key = self.auth_token.expose_secret().as_bytes();
        let mut mac = Hmac::<Sha1>::new_from_slice(key).expect("HMAC takes a key of any length");
        mac.update(url.as_bytes());
        for (name, value) in sorted {
            mac.update(name.as_bytes());
            mac.update(value.as_bytes());
        }
        STANDARD.encode(mac.finalize().into_bytes())
    }
}

fn evaluate(answer: &GatewayAnswer) -> DeliveryResult {
    let said: Option<TwilioAnswer> = serde_json::from_slice(&answer.body).ok();
    // Its codes have five digits; more could be the number or the code of the message.
    let plain = |code: Option<u32>| code.and_then(|code| word(&code.to_string()));
    let code = said.as_ref().and_then(|said| plain(said.code));
    let whose = refusal(code.as_deref(), answer.status.as_u16());
    if let Some(delivery) = answer.unless_success(code.as_deref(), whose) {
        return delivery;
    }
    let Some(said) = said else { return unknown("sent an answer that is not JSON") };
    match (said.status.as_str().map(state_of), said.sid) {
        (Some(Some(ReportState::Failed)), _) => {
            let code = plain(said.error_code);
            let told = code.as_deref().map(|code| format!(" ({code})")).unwrap_or_default();
            let whose = refusal(code.as_deref(), answer.status.as_u16());
            refused_for(whose, &format!("accepted the message, but failed at once{told}"))
        }
        (Some(Some(_)), Some(sid)) => DeliveryResult::Accepted { reference: reference(&sid) },
        _ => unknown("sent an answer without a message id"),
    }
}

/// Whose refusal a code of Twilio's is (<https://www.twilio.com/docs/api/errors>). Senders that do not reach every country
/// (21606, 21659), countries that are not switched on (21408), opt-outs (21610) and the fraud guard (30450) are about the
/// number.
fn refusal(code: Option<&str>, status: u16) -> RefusedFor {
    use OutOfService as Out;
    RefusedFor::Everybody(match (code, status) {
        (Some("20005" | "10001" | "90010" | "30002" | "20403"), _) => Out::Account,
        (Some("21212" | "21660" | "21703" | "21704"), _) => Out::Signature,
        (Some("20003" | "20008" | "70051"), _) | (_, 401) => Out::Credentials,
        _ => return RefusedFor::ThisMessage,
    })
}

fn balance(said: &Value) -> GatewayCheck {
    let currency = said["currency"].as_str().and_then(word).unwrap_or_default();
    match said["balance"].as_str().and_then(|left| left.parse::<f64>().ok()) {
        Some(left) if left > 0.0 => CheckedPart::Balance.passed(format!("{left} {currency}")),
        Some(left) => GatewayCheck::failed(OutOfService::Balance, format!("{left} {currency}")),
        None => CheckedPart::Balance.not_asked("the answer has no balance"),
    }
}

fn state_of(status: &str) -> Option<ReportState> {
    Some(match status {
        "accepted" | "scheduled" | "queued" | "sending" | "sent" => ReportState::Pending,
        "delivered" | "read" => ReportState::Delivered,
        "failed" | "undelivered" | "canceled" => ReportState::Failed,
        _ => return None,
    })
}

impl SmsGateway for TwilioGateway {
    fn name(&self) -> &'static str {
        NAME
    }

    fn send<'a>(&'a self, message: SmsMessage<'a>) -> SendFuture<'a> {
        Box::pin(self.ask(message))
    }

    fn check(&self) -> CheckFuture<'_> {
        Box::pin(self.examine())
    }

    fn reports(&self, call: &ReportCall<'_>) -> Result<Vec<DeliveryReport>, ReportError> {
        let fields: Vec<(String, String)> = form_urlencoded::parse(call.body).into_owned().collect();
        let signature = (call.header)("x-twilio-signature").ok_or(ReportError::NotAuthentic)?;
        if !same(self.signature(call.url, &fields).as_bytes(), signature.as_bytes()) {
            return Err(ReportError::NotAuthentic);
        }
        let field =
            |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        // The signature covers the query, including the id that we put there.
        let ours = form_urlencoded::parse(call.query.as_bytes())
            .find_map(|(name, value)| (name == "id").then(|| MessageId::parse(&value)).flatten());
        let theirs = || field("MessageSid").and_then(reference).map(ReportedMessage::Reference);
        let message = ours.map(ReportedMessage::Id).or_else(theirs);
        let message = message.ok_or_else(|| ReportError::Unreadable("it has no message id".to_owned()))?;
        let state = field("MessageStatus").and_then(state_of);
        let state = state.ok_or_else(|| ReportError::Unreadable("its status is unknown".to_owned()))?;
        let detail = field("ErrorCode").filter(|code| *code != "0").or(field("MessageStatus")).and_then(word);
        Ok(vec![DeliveryReport { message, state, detail }])
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::SecretRef;
    use crate::secret::MasterKey;

    fn twilio(auth_token: &str) -> TwilioGateway {
        let settings = config::TwilioSettings {
            url: Url::parse("https://api.twilio.com").unwrap(),
            account_sid: "AC0123".to_owned(),
            auth_token: SecretRef::Literal(auth_token.to_owned()),
            from: "+15005550006".to_owned(),
        };
        let url = Url::parse("https://login.example").unwrap();
        let tokens = ReportTokens::new(&MasterKey::from_bytes([1; 32]), &url);
        TwilioGateway::open(&settings, GatewayClient::open(Duration::from_secs(1), None).unwrap(), tokens)
            .unwrap()
    }

    /// The example in Twilio's description of the signature, which its own libraries are tested with.
    #[test]
    fn the_published_example_has_the_published_signature() {
        let fields = [
            ("CallSid", "CA1234567890ABCDE"),
            ("Caller", "+14158675309"),
            ("Digits", "1234"),
            ("From", "+14158675309"),
            ("To", "+18005551212"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let url = "https://mycompany.com/myapp.php?foo=1&bar=2";
        assert_eq!(twilio("12345").signature(url, &fields), "RSOYDt4T1cUTdK1PDd93/VVr8B8=");
    }

    fn report(
        twilio: &TwilioGateway,
        url: &str,
        body: &str,
        signed: &str,
    ) -> Result<Vec<DeliveryReport>, ReportError> {
        let fields: Vec<_> = form_urlencoded::parse(signed.as_bytes()).into_owned().collect();
        let signature = twilio.signature(url, &fields);
        let header = |name: &str| (name == "x-twilio-signature").then(|| signature.clone());
        let query = url.split_once('?').map_or("", |(_, query)| query);
        twilio.reports(&ReportCall { url, query, header: &header, body: body.as_bytes() })
    }

    #[test]
    fn reports_are_believed_by_their_signature_alone() {
        let (twilio, id) = (twilio("12345"), MessageId::parse("0123456789abcdef0123456789abcdef").unwrap());
        let url = format!("https://login.example/sms/reports/twilio?id={id}&token=x");
        for (body, state, detail) in [
            ("MessageSid=SM1&MessageStatus=delivered", ReportState::Delivered, "delivered"),
            ("MessageSid=SM1&MessageStatus=undelivered&ErrorCode=30003", ReportState::Failed, "30003"),
            ("MessageStatus=sent&To=%2B8613800138000", ReportState::Pending, "sent"),
        ] {
            let expected =
                DeliveryReport { message: ReportedMessage::Id(id), state, detail: Some(detail.to_owned()) };
            assert_eq!(report(&twilio, &url, body, body), Ok(vec![expected]), "{body}");
        }
        let by_reference = report(
            &twilio,
            "https://x/",
            "MessageSid=SM1&MessageStatus=read",
            "MessageSid=SM1&MessageStatus=read",
        );
        assert_eq!(by_reference.unwrap()[0].message, ReportedMessage::Reference("SM1".to_owned()));
        let (failed, delivered) = ("MessageStatus=failed", "MessageStatus=delivered");
        assert_eq!(report(&twilio, &url, delivered, failed), Err(ReportError::NotAuthentic));
        let unsigned = ReportCall { url: &url, query: "", header: &|_| None, body: delivered.as_bytes() };
        assert_eq!(twilio.reports(&unsigned), Err(ReportError::NotAuthentic));
        assert!(matches!(report(&twilio, &url, "a=b", "a=b"), Err(ReportError::Unreadable(_))));
    }

    #[test]
    fn a_number_in_place_of_an_error_code_is_not_repeated() {
        for (status, body, reason) in [
            (400, r#"{"code":21211}"#, "the gateway answered 400 (21211)"),
            (400, r#"{"code":271828}"#, "the gateway answered 400"),
            (
                201,
                r#"{"status":"failed","error_code":30003}"#,
                "the gateway accepted the message, but failed at once (30003)",
            ),
            (
                201,
                r#"{"status":"failed","error_code":4000138000}"#,
                "the gateway accepted the message, but failed at once",
            ),
        ] {
            let status = reqwest::StatusCode::from_u16(status).unwrap();
            let answer = GatewayAnswer { status, body: body.into() };
            let (reason, whose) = (reason.to_owned(), RefusedFor::ThisMessage);
            assert_eq!(evaluate(&answer), DeliveryResult::Refused { reason, whose }, "{body}");
        }
    }
}
