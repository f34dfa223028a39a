//! What each gateway asks of the other side, and what it makes of every kind of answer.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use gatehouse::clock::{Clock, Micros};
use gatehouse::config;
use gatehouse::entropy::Entropy;
use gatehouse::secret::MasterKey;
use gatehouse::sms::gateway::{OpenError, Opened, Parts, open};
use gatehouse::sms::{
    Code, Delivery, Gateway, Message, MessageId, Phone, Report, ReportCall, ReportError, ReportState,
    Reported,
};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

pub const NUMBER: &str = "+8613800138000";
pub const CODE: &str = "314159";
pub const TEXT: &str = "【Gatehouse】验证码 314159，5 分钟内有效 & \"勿\"转发";

/// The gateway of a configuration, as the server opens it.
pub fn try_open(config: &str, timeout: Duration) -> Result<Opened, OpenError> {
    let parsed = config::parse(std::path::Path::new("gatehouse.toml"), config, &[]);
    let settings = parsed.unwrap_or_else(|wrong| panic!("{wrong}")).settings;
    let parts = Parts {
        master: &MasterKey::from_bytes([7; 32]),
        public_url: &settings.server.public_url,
        timeout,
        clock: Clock::manual(Micros(1_698_315_752_000_000)),
        entropy: Entropy::seeded(1),
    };
    open(&settings.sms.gateway, parts)
}

pub fn opened(config: &str, timeout: Duration) -> Opened {
    try_open(config, timeout).unwrap_or_else(|wrong| panic!("{wrong}"))
}

pub fn gateway(config: &str) -> Arc<dyn Gateway> {
    opened(config, Duration::from_secs(5)).gateway
}

pub fn some_id() -> MessageId {
    MessageId::random(&Entropy::Os)
}

pub async fn send(gateway: &dyn Gateway, id: MessageId) -> Delivery {
    let (phone, code) = (Phone::parse(NUMBER, "CN").unwrap(), Code::parse(CODE).unwrap());
    gateway.send(Message { id, phone: &phone, code: &code, text: TEXT }).await
}

fn secret_file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn accepted(reference: Option<&str>) -> Delivery {
    Delivery::Accepted { reference: reference.map(str::to_owned) }
}

fn refused(reason: &str) -> Delivery {
    Delivery::Refused { reason: format!("the gateway {reason}") }
}

fn unknown(reason: &str) -> Delivery {
    Delivery::Unknown { reason: format!("the gateway {reason}") }
}

/// One answer after another, each to a send of its own.
async fn judged(config: impl Fn(&str) -> String, cases: &[(u16, &str, Delivery)]) {
    let server = MockServer::start().await;
    let gateway = gateway(&config(&server.uri()));
    for (status, body, expected) in cases {
        server.reset().await;
        Mock::given(any())
            .respond_with(ResponseTemplate::new(*status).set_body_string(*body))
            .mount(&server)
            .await;
        assert_eq!(send(&*gateway, some_id()).await, *expected, "{status} {body}");
        assert_eq!(server.received_requests().await.unwrap().len(), 1, "sent once: {status} {body}");
    }
}

/// What reaches the other side.
async fn received(config: impl Fn(&str) -> String, answer: ResponseTemplate) -> (Request, MessageId) {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(answer).mount(&server).await;
    let id = some_id();
    let delivery = send(&*gateway(&config(&server.uri())), id).await;
    assert!(matches!(delivery, Delivery::Accepted { .. }), "{delivery:?}");
    (server.received_requests().await.unwrap().remove(0), id)
}

fn fields(form: &[u8]) -> Vec<(String, String)> {
    url::form_urlencoded::parse(form).into_owned().collect()
}

fn field<'f>(fields: &'f [(String, String)], name: &str) -> &'f str {
    &fields.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}: {fields:?}")).1
}

fn http(url: &str, rest: &str) -> String {
    format!("[sms]\ngateway = 'http'\n[sms.http]\nurl = '{url}'\n{rest}")
}

#[tokio::test]
async fn http_sends_json_unless_told_otherwise() {
    let ok = ResponseTemplate::new(200);
    let (request, _) = received(|uri| http(&format!("{uri}/send"), ""), ok).await;
    assert_eq!((request.method.as_str(), request.url.path()), ("POST", "/send"));
    assert_eq!(request.headers["content-type"], "application/json");
    assert_eq!(request.headers["user-agent"], concat!("gatehouse/", env!("CARGO_PKG_VERSION")));
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body, serde_json::json!({ "to": NUMBER, "text": TEXT }));
}

#[tokio::test]
async fn http_fills_in_url_headers_and_body_each_in_its_own_way() {
    let key = secret_file("s3cr&t\n");
    let path = key.path().display().to_string();
    let config = |uri: &str| {
        let headers = format!(
            "{{ X-Key = 'file:{path}', Idempotency-Key = '{{id}}', Authorization = 'Bearer {{file:{path}}}' }}"
        );
        let body = "body = 'to={phone}&text={text}&code={code}&raw={phone_digits}'";
        let url = format!("{uri}/{{phone}}?text={{text}}&password={{file:{path}}}&report={{report_url}}");
        http(&url, &format!("method = 'PUT'\nheaders = {headers}\n{body}"))
    };
    let (request, id) = received(config, ResponseTemplate::new(204)).await;
    assert_eq!((request.method.as_str(), request.url.path()), ("PUT", "/%2B8613800138000"));
    let query = fields(request.url.query().unwrap().as_bytes());
    assert_eq!((field(&query, "text"), field(&query, "password")), (TEXT, "s3cr&t"));
    let report = url::Url::parse(field(&query, "report")).unwrap();
    assert_eq!((report.path(), report.host_str()), ("/sms/reports/http", Some("127.0.0.1")));
    let body = fields(&request.body);
    assert_eq!((field(&body, "to"), field(&body, "text"), field(&body, "code")), (NUMBER, TEXT, CODE));
    assert_eq!((field(&body, "raw"), body.len()), (&NUMBER[1..], 4));
    assert_eq!(request.headers["x-key"], "s3cr&t");
    assert_eq!(request.headers["authorization"], "Bearer s3cr&t");
    assert_eq!(request.headers["idempotency-key"], id.to_string().as_str());
    assert_eq!(request.headers["content-type"], "application/x-www-form-urlencoded");
}

#[tokio::test]
async fn http_takes_the_status_for_the_outcome() {
    let config = |uri: &str| http(uri, "");
    let cases = [
        (200, "", accepted(None)),
        (202, "0: Accepted for delivery", accepted(None)),
        (204, "", accepted(None)),
        (301, "", unknown("answered 301")),
        (307, "", unknown("answered 307")),
        (400, "+8613800138000 314159", refused("answered 400")),
        (403, "Authorization failed for sendsms", refused("answered 403")),
        (404, "", refused("answered 404")),
        (429, "", refused("answered 429")),
        (500, "", unknown("answered 500")),
        (502, "", unknown("answered 502")),
        (503, "", unknown("answered 503")),
    ];
    judged(config, &cases).await;
}

#[tokio::test]
async fn http_takes_the_words_of_a_success_for_the_outcome_where_told_to() {
    let config = |uri: &str| http(uri, "accepted_if = '\"code\":0'\nrefused_if = '\"code\":4'");
    let cases = [
        (200, r#"{"code":0,"id":"x"}"#, accepted(None)),
        (
            200,
            r#"{"code":4,"msg":"13800138000"}"#,
            refused("answered 200 with what sms.http.refused_if says"),
        ),
        (200, r#"{"code":9}"#, unknown("answered 200 without what sms.http.accepted_if says")),
        (200, "", unknown("answered 200 without what sms.http.accepted_if says")),
        (500, r#"{"code":0}"#, unknown("answered 500")),
        (400, r#"{"code":0}"#, refused("answered 400")),
    ];
    judged(config, &cases).await;
}

fn reported(gateway: &dyn Gateway, query: &str, kind: &str, body: &str) -> Result<Vec<Report>, ReportError> {
    let header = |name: &str| (name == "content-type").then(|| kind.to_owned());
    let url = format!("http://127.0.0.1:8080/sms/reports/http?{query}");
    gateway.reports(&ReportCall { url: &url, query, header: &header, body: body.as_bytes() })
}

/// The id and the token that the gateway is told of a message.
async fn told() -> (Arc<dyn Gateway>, MessageId, String) {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    let gateway = gateway(&http(&server.uri(), "body = '{report_token}'\nreport_answer = 'ACK/Jasmin'"));
    let id = some_id();
    send(&*gateway, id).await;
    let token = String::from_utf8(server.received_requests().await.unwrap().remove(0).body).unwrap();
    (gateway, id, token)
}

#[tokio::test]
async fn http_understands_the_reports_of_kannel_jasmin_and_others() {
    let (gateway, id, token) = told().await;
    let ours = format!("id={id}&token={token}");
    let form = "application/x-www-form-urlencoded";
    let json = format!(r#"{{"id":"{id}","token":"{token}","status":1}}"#);
    for (query, kind, body, state, detail) in [
        (format!("{ours}&status=1"), "", "", ReportState::Delivered, "1"),
        (format!("{ours}&status=2"), "", "", ReportState::Failed, "2"),
        (format!("{ours}&status=16"), "", "", ReportState::Failed, "16"),
        (format!("{ours}&status=4"), "", "", ReportState::Pending, "4"),
        (format!("{ours}&status=8"), "", "", ReportState::Pending, "8"),
        (
            ours.clone(),
            form,
            "id=jasmins-own&message_status=DELIVRD&level=2",
            ReportState::Delivered,
            "DELIVRD",
        ),
        (ours.clone(), form, "message_status=UNDELIV", ReportState::Failed, "UNDELIV"),
        (
            ours.clone(),
            form,
            "message_status=ESME_RTHROTTLED&level=1",
            ReportState::Failed,
            "ESME_RTHROTTLED",
        ),
        (ours.clone(), form, "message_status=ESME_ROK&level=1", ReportState::Pending, "ESME_ROK"),
        (String::new(), "application/json", json.as_str(), ReportState::Delivered, "1"),
        (String::new(), form, &format!("{ours}&status=failed"), ReportState::Failed, "failed"),
    ] {
        let expected = Report { message: Reported::Id(id), state, detail: Some(detail.to_owned()) };
        assert_eq!(reported(&*gateway, &query, kind, body), Ok(vec![expected]), "{query} {body}");
    }
    assert_eq!(gateway.acknowledgement().unwrap().body, "ACK/Jasmin");
}

#[tokio::test]
async fn http_believes_no_report_without_the_token_of_its_message() {
    let (gateway, id, token) = told().await;
    let other = some_id();
    for query in [
        format!("id={id}&status=1"),
        format!("id={id}&token=&status=1"),
        format!("id={id}&token={}&status=1", &token[1..]),
        format!("id={other}&token={token}&status=1"),
        format!("token={token}&status=1"),
        String::new(),
    ] {
        assert_eq!(reported(&*gateway, &query, "", ""), Err(ReportError::NotAuthentic), "{query}");
    }
    for status in ["", "&status=", "&status=3", "&status=perhaps"] {
        let said = reported(&*gateway, &format!("id={id}&token={token}{status}"), "", "");
        assert!(matches!(said, Err(ReportError::Unreadable(_))), "{status}");
    }
}

fn twilio(uri: &str, token: &str, from: &str) -> String {
    format!(
        "[server]\npublic_url = 'https://login.example'\n[sms]\ngateway = 'twilio'\n[sms.twilio]\n\
         url = '{uri}'\naccount_sid = 'AC0123'\nauth_token = 'file:{token}'\nfrom = '{from}'"
    )
}

#[tokio::test]
async fn twilio_is_asked_as_it_describes() {
    let token = secret_file("t0ken\n");
    let path = token.path().display().to_string();
    let answer = r#"{"sid":"SM11112222333344445555666677778888","status":"queued","error_code":null}"#;
    let ok = || ResponseTemplate::new(201).set_body_string(answer);
    let (request, id) = received(|uri| twilio(uri, &path, "+15005550006"), ok()).await;
    assert_eq!(request.url.path(), "/2010-04-01/Accounts/AC0123/Messages.json");
    let basic = base64::engine::general_purpose::STANDARD.encode("AC0123:t0ken");
    assert_eq!(request.headers["authorization"], format!("Basic {basic}").as_str());
    let form = fields(&request.body);
    assert_eq!((field(&form, "To"), field(&form, "Body")), (NUMBER, TEXT));
    assert_eq!(field(&form, "From"), "+15005550006");
    let callback = url::Url::parse(field(&form, "StatusCallback")).unwrap();
    assert_eq!(callback.path(), "/sms/reports/twilio");
    assert!(callback.query().unwrap().starts_with(&format!("id={id}&")));

    let service = "MG0123456789abcdef0123456789abcdef";
    let (request, _) = received(|uri| twilio(uri, &path, service), ok()).await;
    assert_eq!(field(&fields(&request.body), "MessagingServiceSid"), service);
}

#[tokio::test]
async fn twilios_answers_are_understood() {
    let token = secret_file("t0ken");
    let path = token.path().display().to_string();
    let cases = [
        (201, r#"{"sid":"SM123456","status":"queued","error_code":null}"#, accepted(Some("SM123456"))),
        (201, r#"{"sid":"SM1","status":"accepted"}"#, accepted(Some("SM1"))),
        (
            201,
            r#"{"sid":"SM1","status":"failed","error_code":30007}"#,
            refused("took the message and failed at once (30007)"),
        ),
        (201, r#"{"sid":"SM1","status":"surprising"}"#, unknown("gave an answer that names no message")),
        (201, r#"{"status":"queued"}"#, unknown("gave an answer that names no message")),
        (200, "<html>", unknown("gave an answer that is no JSON")),
        (
            400,
            r#"{"code":21211,"message":"Invalid 'To' Phone Number: +8613800138000","status":400}"#,
            refused("answered 400 (21211)"),
        ),
        (401, r#"{"code":20003,"message":"Authenticate","status":401}"#, refused("answered 401 (20003)")),
        (
            429,
            r#"{"code":20429,"message":"Too Many Requests","status":429}"#,
            refused("answered 429 (20429)"),
        ),
        (404, "nothing here", refused("answered 404")),
        (503, r#"{"code":20503,"status":503}"#, unknown("answered 503 (20503)")),
    ];
    judged(|uri| twilio(uri, &path, "+15005550006"), &cases).await;
}

fn aliyun(uri: &str, secret: &str) -> String {
    format!(
        "[sms]\ngateway = 'aliyun'\n[sms.aliyun]\nurl = '{uri}'\naccess_key_id = 'LTAI0123'\n\
         access_key_secret = 'file:{secret}'\nsign_name = '门房'\ntemplate_code = 'SMS_0123'"
    )
}

#[tokio::test]
async fn aliyun_is_asked_as_it_describes_and_its_reports_are_ours_alone() {
    let secret = secret_file("key");
    let path = secret.path().display().to_string();
    let ok = ResponseTemplate::new(200).set_body_string(r#"{"Code":"OK","BizId":"9006197469364984^0"}"#);
    let (request, id) = received(|uri| aliyun(uri, &path), ok).await;
    let query = fields(request.url.query().unwrap().as_bytes());
    assert_eq!((field(&query, "PhoneNumbers"), field(&query, "SignName")), ("13800138000", "门房"));
    assert_eq!(field(&query, "TemplateCode"), "SMS_0123");
    assert_eq!(field(&query, "TemplateParam"), r#"{"code":"314159"}"#);
    assert_eq!(
        (request.headers["x-acs-action"].to_str().unwrap(), request.method.as_str()),
        ("SendSms", "POST")
    );
    assert_eq!(request.headers["x-acs-version"], "2017-05-25");
    assert_eq!(request.headers["x-acs-date"], "2023-10-26T10:22:32Z");
    let signed = request.headers["authorization"].to_str().unwrap();
    assert!(
        signed.starts_with("ACS3-HMAC-SHA256 Credential=LTAI0123,SignedHeaders=host;x-acs-action;"),
        "{signed}"
    );

    let gateway = gateway(&aliyun("https://sms.example", &path));
    let out_id = field(&query, "OutId");
    assert!(out_id.len() <= 64);
    let pushed = |out_id: &str, success: bool, code: &str| {
        serde_json::json!({
            "phone_number": "13800138000", "send_time": "2026-01-01 00:00:00", "success": success,
            "report_time": "2026-01-01 00:00:05", "err_code": code, "err_msg": "13800138000",
            "sms_size": "1", "biz_id": "9006197469364984^0", "out_id": out_id,
        })
    };
    let report = |list: &[serde_json::Value]| {
        reported(&*gateway, "", "application/json", &serde_json::to_string(list).unwrap())
    };
    let expected =
        |state, detail: &str| Report { message: Reported::Id(id), state, detail: Some(detail.to_owned()) };
    let forged = format!("{}{}", some_id(), &out_id[32..]);
    assert_eq!(
        report(&[
            pushed(&forged, true, "DELIVERED"),
            pushed(out_id, true, "DELIVERED"),
            pushed("", true, "x")
        ]),
        Ok(vec![expected(ReportState::Delivered, "DELIVERED")])
    );
    assert_eq!(
        report(&[pushed(out_id, false, "MOBILE_SEND_LIMIT")]),
        Ok(vec![expected(ReportState::Failed, "MOBILE_SEND_LIMIT")])
    );
    assert_eq!(report(&[pushed(&forged, true, "DELIVERED")]), Err(ReportError::NotAuthentic));
    assert_eq!(report(&[]), Err(ReportError::NotAuthentic));
    assert!(matches!(reported(&*gateway, "", "", "{}"), Err(ReportError::Unreadable(_))));
    assert_eq!(gateway.acknowledgement().unwrap().body, r#"{"code":0,"msg":"OK"}"#);
}

#[tokio::test]
async fn aliyuns_answers_are_understood() {
    let secret = secret_file("key");
    let path = secret.path().display().to_string();
    let limit =
        r#"{"Code":"isv.BUSINESS_LIMIT_CONTROL","Message":"触发小时级流控Permits:5","RequestId":"x"}"#;
    let cases = [
        (200, r#"{"Code":"OK","Message":"OK","BizId":"12345678^0"}"#, accepted(Some("12345678^0"))),
        (200, r#"{"Code":"OK"}"#, accepted(None)),
        (200, limit, refused("answered isv.BUSINESS_LIMIT_CONTROL")),
        (200, r#"{"Code":"isv.MOBILE_NUMBER_ILLEGAL"}"#, refused("answered isv.MOBILE_NUMBER_ILLEGAL")),
        (200, r#"{"Code":"isp.RAM_PERMISSION_DENY"}"#, refused("answered isp.RAM_PERMISSION_DENY")),
        (200, r#"{"Code":"VALVE:M_MC"}"#, refused("answered VALVE:M_MC")),
        (200, r#"{"Code":"isp.SYSTEM_ERROR"}"#, unknown("answered isp.SYSTEM_ERROR")),
        (200, r#"{"Code":"SomethingNew"}"#, unknown("answered SomethingNew")),
        (200, r#"{"Message":"OK"}"#, unknown("gave an answer that has no code")),
        (200, "OK", unknown("gave an answer that has no code")),
        (400, r#"{"Code":"SignatureDoesNotMatch"}"#, refused("answered 400 (SignatureDoesNotMatch)")),
        (
            404,
            r#"{"Code":"InvalidAccessKeyId.NotFound"}"#,
            refused("answered 404 (InvalidAccessKeyId.NotFound)"),
        ),
        (400, r#"{"Code":"Throttling.User"}"#, refused("answered 400 (Throttling.User)")),
        (500, r#"{"Code":"InternalError"}"#, unknown("answered 500 (InternalError)")),
        (503, "", unknown("answered 503")),
    ];
    judged(|uri| aliyun(uri, &path), &cases).await;
}

/// The settings that gatehouse.example.toml gives for a gateway, with its address and its secret replaced.
pub fn example(of: &str, address: &str, at: &str, variable: &str, secret: &std::path::Path) -> String {
    let example = include_str!("../../../gatehouse.example.toml");
    let (_, after) = example.split_once(&format!("# For {of}:\n")).unwrap();
    let lines = after.lines().map_while(|line| line.strip_prefix("#   ")).collect::<Vec<_>>().join("\n");
    assert!(lines.contains(address) && lines.contains(variable), "{lines}");
    let lines = lines.replace(address, at).replace(variable, &format!("{{file:{}}}", secret.display()));
    format!("[sms]\ngateway = 'http'\n{lines}")
}

#[tokio::test]
async fn the_example_for_jasmin_is_what_jasmin_asks_for() {
    let secret = secret_file("jas&min\n");
    let config =
        |uri: &str| example("Jasmin", "http://127.0.0.1:1401", uri, "{env:JASMIN_PASSWORD}", secret.path());
    let success = "Success \"07033084-5cfd-4812-90a4-e4d24ffb6e3d\"";
    let (request, id) = received(config, ResponseTemplate::new(200).set_body_string(success)).await;
    assert_eq!((request.method.as_str(), request.url.path()), ("POST", "/send"));
    let form = fields(&request.body);
    assert_eq!((field(&form, "username"), field(&form, "password")), ("app", "jas&min"));
    assert_eq!((field(&form, "to"), field(&form, "coding")), (NUMBER, "8"));
    let utf16: String = TEXT.encode_utf16().map(|unit| format!("{unit:04x}")).collect();
    assert_eq!(field(&form, "hex-content"), utf16);
    let report = url::Url::parse(field(&form, "dlr-url")).unwrap();
    let jasmin = gateway(&config("http://127.0.0.1:1"));
    let posted = "id=07033084-5cfd-4812-90a4-e4d24ffb6e3d&message_status=DELIVRD&level=2&connector=x";
    let expected = Report {
        message: Reported::Id(id),
        state: ReportState::Delivered,
        detail: Some("DELIVRD".to_owned()),
    };
    let kind = "application/x-www-form-urlencoded";
    assert_eq!(reported(&*jasmin, report.query().unwrap(), kind, posted), Ok(vec![expected]));
    let cases = [
        (200, success, accepted(None)),
        (200, "Error \"no route\"", unknown("answered 200 without what sms.http.accepted_if says")),
        (403, "Error \"Authentication failure for username:app\"", refused("answered 403")),
        (412, "Error \"No route found\"", refused("answered 412")),
    ];
    judged(config, &cases).await;
}

#[tokio::test]
async fn the_example_for_a_gateway_of_ones_own_holds() {
    let secret = secret_file("t0ken");
    let config = |uri: &str| {
        example("one of your own", "https://sms.internal.example", uri, "{env:SMS_TOKEN}", secret.path())
    };
    let (request, id) = received(config, ResponseTemplate::new(200).set_body_string(r#"{"ok":true}"#)).await;
    assert_eq!(request.headers["authorization"], "Bearer t0ken");
    assert_eq!(request.headers["idempotency-key"], id.to_string().as_str());
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!((&body["to"], &body["content"]), (&NUMBER.into(), &TEXT.into()));
    assert!(body["callback"].as_str().unwrap().contains(&id.to_string()));
}

#[test]
fn a_secret_that_is_not_there_is_named_before_anything_is_sent() {
    let config = aliyun("https://sms.example", "/nowhere/key");
    let wrong = try_open(&config, Duration::from_secs(1)).map(|_| ()).unwrap_err().to_string();
    assert!(wrong.starts_with("sms.aliyun.access_key_secret: /nowhere/key cannot be read: "), "{wrong}");
}
