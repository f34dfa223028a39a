//! What the http gateway sends, and how it judges every kind of answer; and how the other tests open a
//! gateway.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use gatehouse::clock::{Clock, Micros};
use gatehouse::config;
use gatehouse::entropy::Entropy;
use gatehouse::message::{MessageCode, MessageId};
use gatehouse::secret::MasterKey;
use gatehouse::sms::gateway::{GatewayDeps, OpenError, OpenedGateway, open};
use gatehouse::sms::{
    DeliveryReport, DeliveryResult, OutOfService, Phone, RefusedFor, ReportCall, ReportError, ReportState,
    ReportedMessage, SmsGateway, SmsMessage,
};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

pub const NUMBER: &str = "+8613800138000";
pub const CODE: &str = "314159";
pub const TEXT: &str = "【Gatehouse】验证码 314159，5 分钟内有效 & \"勿\"转发";

/// The gateway of a configuration, as the server opens it.
pub fn try_open(config: &str, timeout: Duration) -> Result<OpenedGateway, OpenError> {
    let parsed = config::parse(std::path::Path::new("gatehouse.toml"), config, &[]);
    let settings = parsed.unwrap_or_else(|wrong| panic!("{wrong}")).settings;
    let parts = GatewayDeps {
        master: &MasterKey::from_bytes([7; 32]),
        public_url: &settings.server.public_url,
        timeout,
        clock: Clock::manual(Micros(1_698_315_752_000_000)),
        entropy: Entropy::seeded(1),
    };
    open(&settings.sms.gateways[0].gateway, parts)
}

pub fn opened(config: &str, timeout: Duration) -> OpenedGateway {
    try_open(config, timeout).unwrap_or_else(|wrong| panic!("{wrong}"))
}

pub fn gateway(config: &str) -> Arc<dyn SmsGateway> {
    opened(config, Duration::from_secs(5)).gateway
}

pub fn some_id() -> MessageId {
    MessageId::random(&Entropy::Os)
}

pub async fn send(gateway: &dyn SmsGateway, id: MessageId) -> DeliveryResult {
    let (phone, code) = (Phone::parse(NUMBER, "CN").unwrap(), MessageCode::parse(CODE).unwrap());
    gateway.send(SmsMessage { id, phone: &phone, code: &code, text: TEXT }).await
}

pub fn secret_file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

pub fn accepted(reference: Option<&str>) -> DeliveryResult {
    DeliveryResult::Accepted { reference: reference.map(str::to_owned) }
}

pub fn refused(reason: &str) -> DeliveryResult {
    DeliveryResult::Refused { reason: format!("the gateway {reason}"), whose: RefusedFor::ThisMessage }
}

/// Refused, and so would be whatever anybody asks for.
pub fn refused_all(why: OutOfService, reason: &str) -> DeliveryResult {
    DeliveryResult::Refused { reason: format!("the gateway {reason}"), whose: RefusedFor::Everybody(why) }
}

pub fn unknown(reason: &str) -> DeliveryResult {
    DeliveryResult::Unknown { reason: format!("the gateway {reason}") }
}

/// One answer after another, each for its own send.
pub async fn judged(config: impl Fn(&str) -> String, cases: &[(u16, &str, DeliveryResult)]) {
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

/// What the other side receives.
pub async fn received(config: impl Fn(&str) -> String, answer: ResponseTemplate) -> (Request, MessageId) {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(answer).mount(&server).await;
    let id = some_id();
    let delivery = send(&*gateway(&config(&server.uri())), id).await;
    assert!(matches!(delivery, DeliveryResult::Accepted { .. }), "{delivery:?}");
    (server.received_requests().await.unwrap().remove(0), id)
}

pub fn fields(form: &[u8]) -> Vec<(String, String)> {
    url::form_urlencoded::parse(form).into_owned().collect()
}

pub fn field<'f>(fields: &'f [(String, String)], name: &str) -> &'f str {
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
        (401, "", refused_all(OutOfService::Credentials, "answered 401")),
        (403, "Authorization failed for sendsms", refused_all(OutOfService::Credentials, "answered 403")),
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
            refused("answered 200 and its answer matches sms.http.refused_if"),
        ),
        (200, r#"{"code":9}"#, unknown("answered 200 but its answer does not match sms.http.accepted_if")),
        (200, "", unknown("answered 200 but its answer does not match sms.http.accepted_if")),
        (500, r#"{"code":0}"#, unknown("answered 500")),
        (400, r#"{"code":0}"#, refused("answered 400")),
    ];
    judged(config, &cases).await;
}

pub fn reported(
    gateway: &dyn SmsGateway,
    query: &str,
    kind: &str,
    body: &str,
) -> Result<Vec<DeliveryReport>, ReportError> {
    let header = |name: &str| (name == "content-type").then(|| kind.to_owned());
    let url = format!("http://127.0.0.1:8080/sms/reports/http?{query}");
    gateway.reports(&ReportCall { url: &url, query, header: &header, body: body.as_bytes() })
}

/// The id and the token of a message, as its gateway receives them.
async fn told() -> (Arc<dyn SmsGateway>, MessageId, String) {
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
        let expected =
            DeliveryReport { message: ReportedMessage::Id(id), state, detail: Some(detail.to_owned()) };
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

/// The settings from gatehouse.example.toml for a gateway, with its address and its secret replaced.
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
    let expected = DeliveryReport {
        message: ReportedMessage::Id(id),
        state: ReportState::Delivered,
        detail: Some("DELIVRD".to_owned()),
    };
    let kind = "application/x-www-form-urlencoded";
    assert_eq!(reported(&*jasmin, report.query().unwrap(), kind, posted), Ok(vec![expected]));
    let cases = [
        (200, success, accepted(None)),
        (
            200,
            "Error \"no route\"",
            unknown("answered 200 but its answer does not match sms.http.accepted_if"),
        ),
        (
            403,
            "Error \"Authentication failure for username:app\"",
            refused_all(OutOfService::Credentials, "answered 403"),
        ),
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
