//! Alibaba Cloud SMS (Dysmsapi 2017-05-25, SendSms), signed with ACS3-HMAC-SHA256. It pushes reports in
//! batches, and each report carries its own token.

use hmac::{Hmac, KeyInit, Mac};
use reqwest::Client;
use reqwest::header::AUTHORIZATION;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use url::Url;

use super::http::percent_encode;
use super::{
    CheckFuture, CheckResult, CheckedPart, DeliveryReport, DeliveryResult, GatewayAnswer, GatewayCheck,
    GatewayClient, MessageId, OpenError, OutOfService, Phone, RefusedFor, ReportAcknowledgement, ReportCall,
    ReportError, ReportState, ReportTokens, ReportedMessage, SendFuture, SmsGateway, SmsMessage, host_of,
    reference, refused_for, unknown, word,
};
use crate::clock::{Clock, iso};
use crate::config;
use crate::entropy::Entropy;
use crate::message::hex;

const NAME: &str = "aliyun";
const ALGORITHM: &str = "ACS3-HMAC-SHA256";
/// A message's id in hex, which its token follows.
const ID_LENGTH: usize = 32;

pub(super) struct AliyunGateway {
    client: GatewayClient,
    tokens: ReportTokens,
    clock: Clock,
    entropy: Entropy,
    url: Url,
    key_id: String,
    key_secret: SecretString,
    sign_name: String,
    template_code: String,
}

/// The signed parts of a request; its body is empty.
struct SignedRequest<'a> {
    host: &'a str,
    action: &'a str,
    version: &'a str,
    date: &'a str,
    nonce: &'a str,
    /// In canonical form.
    query: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AliyunAnswer {
    code: Option<String>,
    biz_id: Option<String>,
}

#[derive(Deserialize)]
struct AliyunReport {
    success: bool,
    #[serde(default)]
    err_code: Option<String>,
    #[serde(default)]
    out_id: Option<String>,
}

impl AliyunGateway {
    pub fn open(
        settings: &config::AliyunSettings,
        client: GatewayClient,
        tokens: ReportTokens,
        clock: Clock,
        entropy: Entropy,
    ) -> Result<Self, OpenError> {
        let secret = settings.access_key_secret.read();
        Ok(Self {
            client,
            tokens,
            clock,
            entropy,
            url: settings.url.clone(),
            key_id: settings.access_key_id.clone(),
            key_secret: secret.map_err(OpenError::secret("sms.aliyun.access_key_secret"))?,
            sign_name: settings.sign_name.clone(),
            template_code: settings.template_code.clone(),
        })
    }

    async fn ask(&self, message: SmsMessage<'_>) -> DeliveryResult {
        let parameter = serde_json::json!({ "code": message.code.expose() }).to_string();
        let sent = self
            .post(
                "SendSms",
                &mut [
                    ("PhoneNumbers", &called(message.phone)),
                    ("SignName", &self.sign_name),
                    ("TemplateCode", &self.template_code),
                    ("TemplateParam", &parameter),
                    // Returned with the report, which nothing else authenticates.
                    ("OutId", &format!("{}{}", message.id, self.tokens.of(message.id))),
                ],
            )
            .await;
        match sent {
            Ok(answer) => evaluate(&answer),
            Err(delivery) => delivery,
        }
    }

    async fn post(
        &self,
        action: &str,
        parameters: &mut [(&str, &str)],
    ) -> Result<GatewayAnswer, DeliveryResult> {
        let (query, nonce) = (canonical_query(parameters), self.entropy.bytes::<16>());
        let request = SignedRequest {
            host: &host_of(&self.url),
            action,
            version: "2017-05-25",
            date: &iso(self.clock.now()),
            nonce: &hex(&nonce),
            query: &query,
        };
        let mut url = self.url.clone();
        url.set_query(Some(&query));
        let request = |client: &Client| {
            let mut call = client.post(url.clone());
            for (name, value) in request.headers() {
                call = call.header(name, value);
            }
            call.header(AUTHORIZATION, request.authorization(&self.key_id, self.key_secret.expose_secret()))
        };
        self.client.answer(request).await
    }

    /// The answer to a call that changes nothing; None: it knows no such thing.
    async fn get(&self, action: &str, name: &str, value: &str) -> Result<Option<Value>, CheckResult> {
        let answer = self.post(action, &mut [(name, value)]).await?;
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match said["Code"].as_str().and_then(word).as_deref() {
            Some("OK") => Ok(Some(said)),
            // The key is genuine, and may not ask this.
            Some(code) if MAY_NOT.contains(&code) => {
                Err(CheckResult::NotAsked(format!("the key may not call {action} ({code})")))
            }
            // Its refusals of a message's signature or template are about ours.
            Some(code) if code.contains("SIGN") || code.contains("TEMPLATE") => Ok(None),
            _ => Err(evaluate(&answer).into()),
        }
    }

    async fn examine(&self) -> Vec<GatewayCheck> {
        let signature = self.get("GetSmsSign", "SignName", &self.sign_name).await;
        let (mut checks, may_ask) = GatewayCheck::of_access(&signature);
        if !may_ask {
            return checks;
        }
        let template = self.get("GetSmsTemplate", "TemplateCode", &self.template_code).await;
        checks.push(approval(OutOfService::Signature, &self.sign_name, signature, filed));
        checks.push(approval(OutOfService::Template, &self.template_code, template, |_| Ok(())));
        checks.push(CheckedPart::Balance.not_asked("its console shows it; this API has no call for it"));
        checks
    }
}

/// What was found under a name, by its state, which is a number or a text with one. `beyond` is what the approval alone does
/// not say.
fn approval(
    why: OutOfService,
    name: &str,
    found: Result<Option<Value>, CheckResult>,
    beyond: impl FnOnce(&Value) -> Result<(), String>,
) -> GatewayCheck {
    let found = match found {
        Ok(Some(found)) => found,
        Ok(None) => return GatewayCheck::failed(why, format!("{name} is not in this account")),
        Err(wrong) => return why.part().unanswered(wrong),
    };
    let state = if why == OutOfService::Signature { &found["SignStatus"] } else { &found["TemplateStatus"] };
    let said = found["AuditInfo"]["RejectInfo"].as_str().filter(|said| !said.is_empty());
    let said = said.map(|said| format!(": {said}")).unwrap_or_default();
    match state.as_str().map_or_else(|| state.to_string(), str::to_owned).as_str() {
        "1" => match beyond(&found) {
            Ok(()) => why.part().passed(format!("{name} may be used")),
            Err(wrong) => GatewayCheck::failed(why, format!("{name} {wrong}")),
        },
        "0" => GatewayCheck::failed(why, format!("{name} is under review{said}")),
        "10" => GatewayCheck::failed(why, format!("the review of {name} was cancelled")),
        _ => GatewayCheck::failed(why, format!("{name} is refused{said}")),
    }
}

/// Whether no carrier has refused to file a signature, or lost it. What they are still at may be sent in part.
fn filed(signature: &Value) -> Result<(), String> {
    let at = |carrier: &Value| {
        let words = match carrier["RegisterStatus"].as_i64()? {
            0 => "refused",
            2 => "filed once and expired",
            -2 => "not filed",
            _ => return None,
        };
        Some(format!("{} ({words})", carrier["OperatorCode"].as_str().and_then(word)?))
    };
    let carriers = signature["SignIspRegisterDetailList"].as_array();
    let lacking: Vec<_> = carriers.into_iter().flatten().filter_map(at).collect();
    if lacking.is_empty() { Ok(()) } else { Err(format!("is not filed with {}", lacking.join(", "))) }
}

impl SignedRequest<'_> {
    /// In the order of their names, in which they are signed.
    fn headers(&self) -> [(&'static str, String); 6] {
        [
            ("host", self.host.to_owned()),
            ("x-acs-action", self.action.to_owned()),
            ("x-acs-content-sha256", hex(&Sha256::digest(b""))),
            ("x-acs-date", self.date.to_owned()),
            ("x-acs-signature-nonce", self.nonce.to_owned()),
            ("x-acs-version", self.version.to_owned()),
        ]
    }

    fn authorization(&self, key_id: &str, key_secret: &str) -> String {
        let headers = self.headers();
        let names = headers.each_ref().map(|(name, _)| *name).join(";");
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let body = hex(&Sha256::digest(b""));
        let canonical = format!("POST\n/\n{}\n{lines}\n{names}\n{body}", self.query);
        let to_sign = format!("{ALGORITHM}\n{}", hex(&Sha256::digest(canonical.as_bytes())));
        let mut mac =
            Hmac::<Sha256>::new_from_slice(key_secret.as_bytes()).expect("HMAC takes a key of any length");
        mac.update(to_sign.as_bytes());
        let signature = hex(&mac.finalize().into_bytes());
        format!("{ALGORITHM} Credential={key_id},SignedHeaders={names},Signature={signature}")
    }
}

/// Sorted by name, and encoded as in RFC 3986.
fn canonical_query(parameters: &mut [(&str, &str)]) -> String {
    parameters.sort_unstable();
    let mut out = String::new();
    for (name, value) in parameters {
        if !out.is_empty() {
            out.push('&');
        }
        percent_encode(&mut out, name);
        out.push('=');
        percent_encode(&mut out, value);
    }
    out
}

/// In the service's form: in mainland China without the country code, elsewhere without the plus.
fn called(phone: &Phone) -> String {
    phone.as_str().strip_prefix("+86").unwrap_or_else(|| phone.digits()).to_owned()
}

/// The service reports most refusals by a code in an answer with status 200.
fn evaluate(answer: &GatewayAnswer) -> DeliveryResult {
    let said: Option<AliyunAnswer> = serde_json::from_slice(&answer.body).ok();
    let code = said.as_ref().and_then(|said| said.code.as_deref()).and_then(word);
    let whose = code.as_deref().and_then(refusal);
    if let Some(delivery) = answer.unless_success(code.as_deref(), whose.unwrap_or(RefusedFor::ThisMessage)) {
        return delivery;
    }
    match (code.as_deref(), whose) {
        (Some("OK"), _) => {
            DeliveryResult::Accepted { reference: said.and_then(|said| reference(&said.biz_id?)) }
        }
        (Some(code), Some(whose)) => refused_for(whose, &format!("answered {code}")),
        (Some(code), None) => unknown(&format!("answered {code}")),
        (None, _) => unknown("sent an answer without a code"),
    }
}

/// A genuine key that may not do something.
const MAY_NOT: [&str; 4] = ["isp.RAM_PERMISSION_DENY", "Forbidden.RAM", "NoPermission", "Forbidden"];

/// Whose refusal a code is; None if the message may have been sent. The codes are those of Alibaba Cloud's list (document
/// 101346). isv: the caller's fault; VALVE, FILTER: the service's own limits. isp: a failure in its systems.
fn refusal(code: &str) -> Option<RefusedFor> {
    use OutOfService as Out;
    let everybody = |why| Some(RefusedFor::Everybody(why));
    match code {
        "isv.SMS_SIGNATURE_ILLEGAL"
        | "isv.SMS_SIGN_ILLEGAL"
        | "isv.SIGN_STATE_ILLEGAL"
        | "isv.SMS_SIGNATURE_SCENE_ILLEGAL" => everybody(Out::Signature),
        "isv.SMS_TEMPLATE_ILLEGAL" | "isv.TEMPLATE_MISSING_PARAMETERS" => everybody(Out::Template),
        "isv.AMOUNT_NOT_ENOUGH" | "isv.OUT_OF_SERVICE" => everybody(Out::Balance),
        "isv.PRODUCT_UN_SUBSCRIPT"
        | "isv.PRODUCT_UNSUBSCRIBE"
        | "isv.ACCOUNT_NOT_EXISTS"
        | "isv.ACCOUNT_ABNORMAL" => everybody(Out::Account),
        "isv.DENY_IP_RANGE" => everybody(Out::Region),
        "InvalidAccessKeyId"
        | "InvalidAccessKeyId.NotFound"
        | "InvalidAccessKeyId.Inactive"
        | "SignatureDoesNotMatch"
        | "IncompleteSignature"
        | "InvalidTimeStamp.Expired"
        | "MissingAccessKeyId" => everybody(Out::Credentials),
        code if MAY_NOT.contains(&code) => everybody(Out::Credentials),
        code if ["isv.", "VALVE:", "FILTER"].iter().any(|start| code.starts_with(start)) => {
            Some(RefusedFor::ThisMessage)
        }
        _ => None,
    }
}

impl SmsGateway for AliyunGateway {
    fn name(&self) -> &'static str {
        NAME
    }

    fn send<'a>(&'a self, message: SmsMessage<'a>) -> SendFuture<'a> {
        Box::pin(self.ask(message))
    }

    fn check(&self) -> CheckFuture<'_> {
        Box::pin(self.examine())
    }

    fn reports_to(&self) -> Option<String> {
        Some(self.tokens.all_url(NAME).into())
    }

    /// A list that may include messages of other programs on the same account: those are ignored. A list
    /// without any of ours is not believed.
    fn reports(&self, call: &ReportCall<'_>) -> Result<Vec<DeliveryReport>, ReportError> {
        let pushed: Vec<AliyunReport> = serde_json::from_slice(call.body)
            .map_err(|_| ReportError::Unreadable("it is not a list of reports".to_owned()))?;
        let ours = |out_id: &str| -> Option<MessageId> {
            let (id, token) = out_id.split_at_checked(ID_LENGTH)?;
            self.tokens.verify(id, token)
        };
        let reports = pushed.iter().filter_map(|report| {
            let id = ours(report.out_id.as_deref()?)?;
            let state = if report.success { ReportState::Delivered } else { ReportState::Failed };
            let detail = report.err_code.as_deref().and_then(word);
            Some(DeliveryReport { message: ReportedMessage::Id(id), state, detail })
        });
        let reports: Vec<_> = reports.collect();
        if reports.is_empty() { Err(ReportError::NotAuthentic) } else { Ok(reports) }
    }

    /// Any other answer makes it push again.
    fn acknowledgement(&self) -> Option<ReportAcknowledgement<'_>> {
        Some(ReportAcknowledgement { content_type: "application/json", body: r#"{"code":0,"msg":"OK"}"# })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_number_causes_is_a_refusal_of_everybody() {
        for code in [
            "isv.BUSINESS_LIMIT_CONTROL",
            "isv.DAY_LIMIT_CONTROL",
            "isv.MOBILE_NUMBER_ILLEGAL",
            "isv.BLACK_KEY_CONTROL_LIMIT",
            "isv.DOMESTIC_NUMBER_NOT_SUPPORTED",
            "isv.TEMPLATE_PARAMS_ILLEGAL",
            "VALVE:M_MC",
            "FILTER",
        ] {
            assert_eq!(refusal(code), Some(RefusedFor::ThisMessage), "{code}");
        }
        assert_eq!(refusal("isp.SYSTEM_ERROR"), None);
    }

    #[test]
    fn a_signature_that_a_carrier_has_not_filed_is_told_with_the_carrier() {
        let with = |carriers: &str| {
            let text = format!(r#"{{"SignStatus":1,"SignIspRegisterDetailList":{carriers}}}"#);
            approval(OutOfService::Signature, "x", Ok(serde_json::from_str(&text).unwrap()), filed)
        };
        let carrier =
            |name: &str, status: i8| format!(r#"{{"OperatorCode":"{name}","RegisterStatus":{status}}}"#);
        let [mobile, unicom, telecom] = [carrier("mobile", 3), carrier("unicom", -1), carrier("telecom", 0)];
        let passed = CheckedPart::Signature.passed("x may be used");
        assert_eq!([with("[]"), with(&format!("[{mobile},{unicom}]"))], [passed.clone(), passed]);
        assert_eq!(
            with(&format!("[{mobile},{telecom}]")),
            GatewayCheck::failed(OutOfService::Signature, "x is not filed with telecom (refused)")
        );
    }

    /// The example in Alibaba Cloud's description of the signature.
    #[test]
    fn the_published_example_has_the_published_signature() {
        let query = canonical_query(&mut [
            ("RegionId", "cn-shanghai"),
            ("ImageId", "win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd"),
        ]);
        let request = SignedRequest {
            host: "ecs.cn-shanghai.aliyuncs.com",
            action: "RunInstances",
            version: "2014-05-26",
            date: "2023-10-26T10:22:32Z",
            nonce: "3156853299f313e23d1673dc12e1703d",
            query: &query,
        };
        assert_eq!(
            request.authorization("YourAccessKeyId", "YourAccessKeySecret"),
            "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;x-acs-content-sha256;\
             x-acs-date;x-acs-signature-nonce;x-acs-version,\
             Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0"
        );
    }

    #[test]
    fn numbers_and_times_are_written_as_the_service_wants_them() {
        for (phone, written) in [("+8613800138000", "13800138000"), ("+85291234567", "85291234567")] {
            assert_eq!(called(&Phone::parse(phone, "CN").unwrap()), written);
        }
        assert_eq!(iso(crate::clock::Micros(1_698_315_752_999_999)), "2023-10-26T10:22:32Z");
        assert_eq!(canonical_query(&mut [("b", "a b*~"), ("a", "中/")]), "a=%E4%B8%AD%2F&b=a%20b%2A~");
    }
}
