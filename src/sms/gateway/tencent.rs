//! Tencent Cloud SMS (API 2021-01-11, SendSms), signed with TC3-HMAC-SHA256. It pushes reports in batches and signs none of
//! them: the address to which it pushes is a secret.

use hmac::{Hmac, KeyInit, Mac};
use reqwest::Client;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::Url;

use super::{
    CheckFuture, CheckResult, CheckedPart, DeliveryReport, DeliveryResult, GatewayAnswer, GatewayCheck,
    GatewayClient, MessageId, OpenError, OutOfService, RefusedFor, ReportAcknowledgement, ReportCall,
    ReportError, ReportState, ReportTokens, ReportedMessage, SendFuture, SmsGateway, SmsMessage, host_of,
    reference, refused_for, unknown, word,
};
use crate::clock::{Clock, Micros, iso};
use crate::config;
use crate::message::hex;

const NAME: &str = "tencent";
const ALGORITHM: &str = "TC3-HMAC-SHA256";
const VERSION: &str = "2021-01-11";
const JSON: &str = "application/json";
/// A message's id in hex, which its token follows.
const ID_LENGTH: usize = 32;
/// Packages of messages are asked about that were bought in the last three years; they are valid for one or two.
const PACKAGES_OF: i64 = 3 * 366 * 24 * 3600;
/// Signatures in one answer, the most that it gives; and how many are looked through.
const SIGNATURES: usize = 100;
const MOST_SIGNATURES: usize = 1000;

pub(super) struct TencentGateway {
    client: GatewayClient,
    tokens: ReportTokens,
    clock: Clock,
    url: Url,
    secret_id: String,
    secret_key: SecretString,
    sdk_app_id: String,
    sign_name: String,
    template_id: u64,
    region: String,
}

/// The signed parts of a request.
struct Tc3Request<'a> {
    host: &'a str,
    at: Micros,
    body: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TencentAnswer {
    response: Value,
}

#[derive(Deserialize)]
struct TencentReport {
    report_status: String,
    #[serde(default)]
    errmsg: Option<String>,
    #[serde(default)]
    sid: Option<String>,
    /// The `SessionContext` of the message, only for accounts for which Tencent Cloud has switched it on.
    #[serde(default)]
    ext: Option<String>,
}

impl TencentGateway {
    pub fn open(
        settings: &config::TencentSettings,
        client: GatewayClient,
        tokens: ReportTokens,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let secret = settings.secret_key.read();
        Ok(Self {
            client,
            tokens,
            clock,
            url: settings.url.clone(),
            secret_id: settings.secret_id.clone(),
            secret_key: secret.map_err(OpenError::secret("sms.tencent.secret_key"))?,
            sdk_app_id: settings.sdk_app_id.clone(),
            sign_name: settings.sign_name.clone(),
            template_id: settings.template_id,
            region: settings.region.clone(),
        })
    }

    async fn ask(&self, message: SmsMessage<'_>) -> DeliveryResult {
        let call = json!({
            "PhoneNumberSet": [message.phone.as_str()],
            "SmsSdkAppId": self.sdk_app_id,
            "SignName": self.sign_name,
            "TemplateId": self.template_id.to_string(),
            "TemplateParamSet": [message.code.expose()],
            "SessionContext": format!("{}{}", message.id, self.tokens.of(message.id)),
        });
        match self.post("SendSms", &call).await {
            Ok(answer) => evaluate(&answer),
            Err(delivery) => delivery,
        }
    }

    async fn post(&self, action: &str, call: &Value) -> Result<GatewayAnswer, DeliveryResult> {
        let (host, body) = (host_of(&self.url), call.to_string());
        let request = Tc3Request { host: &host, at: self.clock.now(), body: &body };
        let signed = request.authorization(&self.secret_id, self.secret_key.expose_secret());
        let request = |client: &Client| {
            client
                .post(self.url.clone())
                .header(HOST, &host)
                .header(CONTENT_TYPE, JSON)
                .header(AUTHORIZATION, &signed)
                .header("X-TC-Action", action)
                .header("X-TC-Version", VERSION)
                .header("X-TC-Timestamp", request.at.seconds())
                .header("X-TC-Region", &self.region)
                .body(body.clone())
        };
        self.client.answer(request).await
    }

    /// The list with this name in the answer to a call that changes nothing.
    async fn list(&self, action: &str, call: Value, name: &str) -> Result<Vec<Value>, CheckResult> {
        let answer = self.post(action, &call).await?;
        let said: Option<TencentAnswer> = serde_json::from_slice(&answer.body).ok();
        let Some(mut response) = said.map(|said| said.response) else {
            return Err(evaluate(&answer).into());
        };
        match response["Error"]["Code"].as_str().and_then(word) {
            // The key is genuine, and may not ask this.
            Some(code) if code.contains("UnauthorizedOperation") => {
                Err(CheckResult::NotAsked(format!("the key may not call {action} ({code})")))
            }
            Some(_) => Err(evaluate(&answer).into()),
            None => match response.get_mut(name).map(Value::take) {
                Some(Value::Array(found)) => Ok(found),
                _ => Ok(Vec::new()),
            },
        }
    }

    /// Templates and signatures for the mainland (0) and for elsewhere (1) are apart.
    async fn template(&self, international: u8) -> Result<Vec<Value>, CheckResult> {
        let call = json!({ "International": international, "TemplateIdSet": [self.template_id] });
        self.list("DescribeSmsTemplateList", call, "DescribeTemplateStatusSet").await
    }

    async fn signature(&self, international: u8) -> Result<Vec<Value>, CheckResult> {
        let mut found = Vec::new();
        for offset in (0..MOST_SIGNATURES).step_by(SIGNATURES) {
            let call = json!({ "International": international, "Limit": SIGNATURES, "Offset": offset });
            let page = self.list("DescribeSmsSignList", call, "DescribeSignListStatusSet").await?;
            let is_last = page.len() < SIGNATURES;
            found.extend(page.into_iter().filter(|sign| sign["SignName"] == self.sign_name.as_str()));
            if is_last || !found.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    async fn balance(&self) -> GatewayCheck {
        let now = self.clock.now().seconds();
        let hour = |seconds: i64| {
            let text = iso(Micros(seconds * 1_000_000));
            text.chars().filter(char::is_ascii_digit).take(10).collect::<String>()
        };
        let call = json!({
            "SmsSdkAppId": self.sdk_app_id, "Limit": 500, "Offset": 0,
            "BeginTime": hour(now - PACKAGES_OF), "EndTime": hour(now),
        });
        let packages = match self.list("SmsPackagesStatistics", call, "SmsPackagesStatisticsSet").await {
            Ok(packages) => packages,
            Err(wrong) => return CheckedPart::Balance.unanswered(wrong),
        };
        let number = |package: &Value, name: &str| package[name].as_i64().unwrap_or(0);
        let valid = packages.iter().filter(|package| number(package, "PackageExpiredTime") > now);
        let left: i64 =
            valid.map(|package| number(package, "PackageAmount") - number(package, "CurrentUsage")).sum();
        match left {
            1.. => CheckedPart::Balance.passed(format!("{left} messages are left in packages")),
            // An account that pays afterwards has no packages.
            _ => CheckedPart::Balance
                .not_asked("no package has messages left; needed unless you pay afterwards"),
        }
    }

    async fn examine(&self) -> Vec<GatewayCheck> {
        let mut template = self.template(0).await;
        let (mut checks, may_ask) = GatewayCheck::of_access(&template);
        if !may_ask {
            return checks;
        }
        if template.as_ref().is_ok_and(Vec::is_empty) {
            template = self.template(1).await;
        }
        let mut signature = self.signature(0).await;
        if signature.as_ref().is_ok_and(Vec::is_empty) {
            signature = self.signature(1).await;
        }
        checks.push(approval(OutOfService::Signature, &self.sign_name, signature));
        checks.push(approval(OutOfService::Template, &self.template_id.to_string(), template));
        checks.push(self.balance().await);
        checks
    }
}

/// What was found under a name: the state of each, as the service numbers it.
fn approval(why: OutOfService, name: &str, found: Result<Vec<Value>, CheckResult>) -> GatewayCheck {
    let found = match found {
        Ok(found) => found,
        Err(wrong) => return why.part().unanswered(wrong),
    };
    let Some(first) = found.iter().find(|it| it["StatusCode"] == 0).or(found.first()) else {
        return GatewayCheck::failed(why, format!("{name} is not in this account"));
    };
    let said = first["ReviewReply"].as_str().filter(|said| !said.is_empty());
    let said = said.map(|said| format!(": {said}")).unwrap_or_default();
    match first["StatusCode"].as_i64() {
        Some(0) => why.part().passed(format!("{name} may be used")),
        Some(1) => GatewayCheck::failed(why, format!("{name} is under review{said}")),
        Some(2) => GatewayCheck::failed(why, format!("{name} is approved and not in force yet{said}")),
        _ => GatewayCheck::failed(why, format!("{name} is refused, or not filed with the carriers{said}")),
    }
}

impl Tc3Request<'_> {
    fn authorization(&self, secret_id: &str, secret_key: &str) -> String {
        let mac = |key: &[u8], text: &str| {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
            mac.update(text.as_bytes());
            mac.finalize().into_bytes()
        };
        let Self { host, at, body } = self;
        let day = &iso(*at)[..10];
        let (scope, names) = (format!("{day}/sms/tc3_request"), "content-type;host");
        let body = hex(&Sha256::digest(body.as_bytes()));
        let canonical = format!("POST\n/\n\ncontent-type:{JSON}\nhost:{host}\n\n{names}\n{body}");
        let hash = hex(&Sha256::digest(canonical.as_bytes()));
        let to_sign = format!("{ALGORITHM}\n{}\n{scope}\n{hash}", at.seconds());
        let key = mac(format!("TC3{secret_key}").as_bytes(), day);
        let key = mac(&mac(&key, "sms"), "tc3_request");
        let signature = hex(&mac(&key, &to_sign));
        format!("{ALGORITHM} Credential={secret_id}/{scope}, SignedHeaders={names}, Signature={signature}")
    }
}

/// The service answers with status 200, whatever the outcome: with a code for the call, or one for each number.
fn evaluate(answer: &GatewayAnswer) -> DeliveryResult {
    let said: Option<TencentAnswer> = serde_json::from_slice(&answer.body).ok();
    let said = said.map(|said| said.response).unwrap_or_default();
    let (error, status) = (&said["Error"]["Code"], &said["SendStatusSet"][0]);
    let code = error.as_str().or_else(|| status["Code"].as_str()).and_then(word);
    let whose = code.as_deref().and_then(refusal);
    if let Some(delivery) = answer.unless_success(code.as_deref(), whose.unwrap_or(RefusedFor::ThisMessage)) {
        return delivery;
    }
    match (code.as_deref(), whose) {
        (Some("Ok"), _) => {
            DeliveryResult::Accepted { reference: status["SerialNo"].as_str().and_then(reference) }
        }
        (Some(code), Some(whose)) => refused_for(whose, &format!("answered {code}")),
        (Some(code), None) => unknown(&format!("answered {code}")),
        (None, _) => unknown("sent an answer without a code"),
    }
}

/// Whose refusal a code is; None if the message may have been sent. The codes are those of Tencent Cloud's list (document
/// 382/59177). What a number can cause is about that number: its country, its operator's list, the template that does not
/// go abroad.
fn refusal(code: &str) -> Option<RefusedFor> {
    use OutOfService as Out;
    let (group, detail) = code.split_once('.').unwrap_or((code, ""));
    let everybody = |why| Some(RefusedFor::Everybody(why));
    match (group, detail) {
        // The provider's own SDKs have the other spelling.
        ("UnauthorizedOperation", "ServiceSuspendDueToArrears" | "SerivceSuspendDueToArrears")
        | ("FailedOperation", "InsufficientBalanceInSmsPackage") => everybody(Out::Balance),
        ("UnauthorizedOperation", "SdkAppIdIsDisabled" | "RequestPermissionDeny") => everybody(Out::Account),
        ("UnauthorizedOperation", "IndividualUserMarketingSmsPermissionDeny")
        | (
            "FailedOperation",
            "TemplateIncorrectOrUnapproved"
            | "TemplateUnapprovedOrNotExist"
            | "TemplateIdNotExist"
            | "TemplateParamSetNotMatchApprovedTemplate",
        ) => everybody(Out::Template),
        ("FailedOperation", "SignatureIncorrectOrUnapproved") => everybody(Out::Signature),
        ("AuthFailure" | "UnauthorizedOperation" | "IpInBlacklist" | "IpNotInWhitelist", _)
        | ("InvalidParameterValue", "SdkAppIdNotExist") => everybody(Out::Credentials),
        ("RegionNotAvailable" | "UnsupportedRegion", _) => everybody(Out::Region),
        ("FailedOperation" | "InternalError", "") => None,
        (
            "FailedOperation"
            | "LimitExceeded"
            | "RequestLimitExceeded"
            | "InvalidParameter"
            | "InvalidParameterValue"
            | "MissingParameter"
            | "UnsupportedOperation"
            | "UnknownParameter"
            | "InvalidRequest"
            | "InvalidAction"
            | "NoSuchVersion"
            | "NoSuchProduct"
            | "ActionOffline",
            _,
        ) => Some(RefusedFor::ThisMessage),
        _ => None,
    }
}

impl SmsGateway for TencentGateway {
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
        Some(self.tokens.secret_url(NAME).into())
    }

    /// A list that may include messages of other programs with the same application: the ledger knows none of them. What
    /// comes to another address than the secret one is believed with the token of its message.
    fn reports(&self, call: &ReportCall<'_>) -> Result<Vec<DeliveryReport>, ReportError> {
        let pushed: Vec<TencentReport> = serde_json::from_slice(call.body)
            .map_err(|_| ReportError::Unreadable("it is not a list of reports".to_owned()))?;
        let is_genuine = self.tokens.is_secret_url(NAME, call.query);
        let ours = |ext: &str| -> Option<MessageId> {
            let (id, token) = ext.split_at_checked(ID_LENGTH)?;
            self.tokens.verify(id, token)
        };
        let reports = pushed.iter().filter_map(|report| {
            let sid = report.sid.as_deref().filter(|_| is_genuine).and_then(reference);
            let id = report.ext.as_deref().and_then(ours).map(ReportedMessage::Id);
            let state = match report.report_status.as_str() {
                "SUCCESS" => ReportState::Delivered,
                _ => ReportState::Failed,
            };
            let detail = report.errmsg.as_deref().and_then(word);
            Some(DeliveryReport { message: id.or(sid.map(ReportedMessage::Reference))?, state, detail })
        });
        let reports: Vec<_> = reports.collect();
        if reports.is_empty() && !is_genuine { Err(ReportError::NotAuthentic) } else { Ok(reports) }
    }

    /// Any other answer makes it push again.
    fn acknowledgement(&self) -> Option<ReportAcknowledgement<'_>> {
        Some(ReportAcknowledgement { content_type: JSON, body: r#"{"result":0,"errmsg":"OK"}"# })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Micros = Micros(1_698_315_752_000_000);

    /// Made with the provider's own SDK, tencentcloud-sdk-python-sms 3.1.153: its client signs these bodies at that time (by
    /// a patched `time.time`), and `ApiRequest.send_request` is replaced to show the header.
    #[test]
    fn a_request_has_the_signature_that_the_providers_sdk_gives_it() {
        for (body, signature) in [
            (
                r#"{"PhoneNumberSet": ["+8613800138000"], "SmsSdkAppId": "1400006666", "TemplateId": "1110", "SignName": "\u817e\u8baf\u4e91", "TemplateParamSet": ["314159"], "SessionContext": "s"}"#,
                "bb36d1603defaa91e8dcd30cd31dba4385317d89d1c5fd3c1a13c442c3aa0a6a",
            ),
            (
                r#"{"International": 0, "TemplateIdSet": [1110]}"#,
                "b834fcf2f13c038c7bb4665475b54c2ecd0b73b5f7ad35852d8a9fc569022ad9",
            ),
        ] {
            let request = Tc3Request { host: "sms.tencentcloudapi.com", at: AT, body };
            let (id, key) = ("AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE", "Gu5t9xGARNpq86cd98joQYCN3EXAMPLE");
            assert_eq!(
                request.authorization(id, key),
                format!(
                    "TC3-HMAC-SHA256 Credential={id}/2023-10-26/sms/tc3_request, \
                     SignedHeaders=content-type;host, Signature={signature}"
                )
            );
        }
    }

    #[test]
    fn nothing_that_a_number_causes_is_a_refusal_of_everybody() {
        for code in [
            "LimitExceeded.PhoneNumberThirtySecondLimit",
            "LimitExceeded.PhoneNumberDailyLimit",
            "LimitExceeded.AppDailyLimit",
            "LimitExceeded.AppCountryOrRegionInBlacklist",
            "LimitExceeded.DeliveryFrequencyLimit",
            "RequestLimitExceeded.IPLimitExceeded",
            "FailedOperation.PhoneNumberInBlacklist",
            "FailedOperation.ContainSensitiveWord",
            "InvalidParameterValue.IncorrectPhoneNumber",
            "InvalidParameterValue.TemplateParameterFormatError",
            "UnsupportedOperation.ChineseMainlandTemplateToGlobalPhone",
            "UnsupportedOperation.GlobalTemplateToChineseMainlandPhone",
            "UnsupportedOperation.UnsupportedRegion",
        ] {
            assert_eq!(refusal(code), Some(RefusedFor::ThisMessage), "{code}");
        }
        for code in
            ["InternalError.Timeout", "InternalError.SendAndRecvFail", "InternalError", "FailedOperation"]
        {
            assert_eq!(refusal(code), None, "{code}");
        }
    }
}
