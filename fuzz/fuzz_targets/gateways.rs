//! Answers of SMS gateways, and their delivery reports: only a success is one, a report is about the message whose
//! token it has, and no word of a gateway that reaches the log or the ledger can hold a number or a code.
//!
//! Input: the gateway's place and a status (`1 400`), a line break, a query, a line break, a body.
#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gatehouse::clock::Clock;
use gatehouse::config;
use gatehouse::entropy::Entropy;
use gatehouse::secret::MasterKey;
use gatehouse::sms::gateway::{
    self, DeliveryResult, GatewayDeps, ReportCall, ReportedMessage, SmsGateway, SmsMessage,
};
use gatehouse::message::{MessageId, MessageCode};
use gatehouse::sms::Phone;
use hmac::{Hmac, KeyInit, Mac};
use libfuzzer_sys::fuzz_target;
use sha1::Sha1;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use url::{Url, form_urlencoded};

/// In the order of [`Rig::gateways`].
const SETTINGS: [&str; 4] = [
    "gateway = 'http'\n[sms.http]\nurl = '{here}/send'\nbody = 'token={report_token}&text={text}'\naccepted_if = 'ok'\nrefused_if = 'no'",
    "gateway = 'twilio'\n[sms.twilio]\nurl = '{here}'\naccount_sid = 'AC0123456789abcdef0123456789abcdef'\nauth_token = 'env:GATEHOUSE_FUZZ'\nfrom = '+15005550006'",
    "gateway = 'aliyun'\n[sms.aliyun]\nurl = '{here}'\naccess_key_id = 'id'\naccess_key_secret = 'env:GATEHOUSE_FUZZ'\nsign_name = 'x'\ntemplate_code = 'SMS_1'",
    "gateway = 'tencent'\n[sms.tencent]\nurl = '{here}'\nsecret_id = 'id'\nsecret_key = 'env:GATEHOUSE_FUZZ'\nsdk_app_id = '1'\nsign_name = 'x'\ntemplate_id = '1'",
];
const SECRET: &str = "secret";
const REPORTS: &str = "https://auth.example/sms/reports/x";
const ID: &str = "0123456789abcdef0123456789abcdef";
const PHONE: &str = "+8613800138000";
const CODE: &str = "271828";

/// The gateways, and a server that answers all of them.
struct Rig {
    runtime: Runtime,
    gateways: Vec<Arc<dyn SmsGateway>>,
    answer: Arc<Mutex<(u16, Vec<u8>)>>,
    /// With which a gateway may report on the message [`ID`].
    token: String,
}

/// Reads one request: its body, or None at the end of the connection.
async fn request(stream: &mut TcpStream, kept: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(end) = kept.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&kept[..end]).to_ascii_lowercase();
            let length =
                head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
            let whole = end + 4 + length.unwrap_or(0);
            if kept.len() >= whole {
                return Some(kept.drain(..whole).skip(end + 4).collect());
            }
        }
        if stream.read_buf(kept).await.ok()? == 0 {
            return None;
        }
    }
}

async fn serve(listener: TcpListener, answer: Arc<Mutex<(u16, Vec<u8>)>>, asked: Arc<Mutex<Vec<u8>>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let (answer, asked) = (Arc::clone(&answer), Arc::clone(&asked));
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Some(body) = request(&mut stream, &mut kept).await {
                *asked.lock().expect("no panic") = body;
                let (status, body) = answer.lock().expect("no panic").clone();
                let bodiless = status < 200 || status == 204 || status == 304;
                let length =
                    if bodiless { String::new() } else { format!("content-length: {}\r\n", body.len()) };
                let mut bytes = format!("HTTP/1.1 {status} x\r\n{length}\r\n").into_bytes();
                bytes.extend(if bodiless { Vec::new() } else { body });
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
    }
}

fn open(settings: &str, here: &str) -> Arc<dyn SmsGateway> {
    let text = format!("[sms]\n{}", settings.replace("{here}", here));
    let read = config::parse(Path::new("x"), &text, &[]).unwrap_or_else(|wrong| panic!("{wrong}"));
    let parts = GatewayDeps {
        master: &MasterKey::from_bytes([7; 32]),
        public_url: &Url::parse("https://auth.example").expect("a URL"),
        timeout: Duration::from_secs(2),
        clock: Clock::System,
        entropy: Entropy::Os,
    };
    gateway::open(&read.settings.sms.gateways[0].gateway, parts).unwrap_or_else(|wrong| panic!("{wrong}")).gateway
}

fn send(runtime: &Runtime, gateway: &dyn SmsGateway) -> DeliveryResult {
    let (phone, code) = (Phone::parse(PHONE, "CN").expect("a number"), MessageCode::parse(CODE).expect("a code"));
    let id = MessageId::parse(ID).expect("an id");
    runtime.block_on(gateway.send(SmsMessage { id, phone: &phone, code: &code, text: "271828 is your code" }))
}

static RIG: LazyLock<Rig> = LazyLock::new(|| {
    // SAFETY: this runs before there is another thread.
    unsafe { std::env::set_var("GATEHOUSE_FUZZ", SECRET) };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let (answer, asked) = (Arc::new(Mutex::new((200, Vec::new()))), Arc::new(Mutex::new(Vec::new())));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let here = format!("http://{}", listener.local_addr().expect("bound"));
    runtime.spawn(serve(listener, Arc::clone(&answer), Arc::clone(&asked)));
    let gateways: Vec<_> = SETTINGS.iter().map(|settings| open(settings, &here)).collect();
    send(&runtime, &*gateways[0]);
    let form = asked.lock().expect("no panic").clone();
    let token =
        form_urlencoded::parse(&form).find(|(name, _)| name == "token").expect("the body").1.into_owned();
    Rig { runtime, gateways, answer, token }
});

/// A code has six digits, and a number more.
fn is_harmless(words: &str) -> bool {
    words.split(|letter: char| !letter.is_ascii_digit()).all(|run| run.len() < 6)
}

fn judged(rig: &Rig, which: usize, status: u16, body: &[u8]) {
    *rig.answer.lock().expect("no panic") = (status, body.to_owned());
    match send(&rig.runtime, &*rig.gateways[which]) {
        DeliveryResult::Accepted { reference } => {
            assert!((200..300).contains(&status), "{status}");
            let short = |text: String| {
                (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
            };
            assert!(reference.is_none_or(short));
        }
        DeliveryResult::Refused { reason, .. } => {
            assert!(is_harmless(&reason), "{reason}");
            assert!((200..500).contains(&status), "{status} may have been sent: {reason}");
        }
        DeliveryResult::Unknown { reason } => assert!(is_harmless(&reason), "{reason}"),
    }
}

/// As Twilio signs it.
fn signature(body: &[u8]) -> String {
    let mut fields: Vec<(String, String)> = form_urlencoded::parse(body).into_owned().collect();
    fields.sort();
    fields.dedup();
    let mut mac = Hmac::<Sha1>::new_from_slice(SECRET.as_bytes()).expect("a key of any length");
    mac.update(REPORTS.as_bytes());
    for (name, value) in fields {
        mac.update(name.as_bytes());
        mac.update(value.as_bytes());
    }
    STANDARD.encode(mac.finalize().into_bytes())
}

/// `known`: the call has the message's token.
fn reported(rig: &Rig, query: &str, json: bool, body: &[u8], known: bool) {
    for (which, gateway) in rig.gateways.iter().enumerate() {
        let header = |name: &str| match name {
            "x-twilio-signature" => Some(signature(body)),
            "content-type" if json => Some("application/json".to_owned()),
            "content-type" => Some("application/x-www-form-urlencoded".to_owned()),
            _ => None,
        };
        let call = ReportCall { url: REPORTS, query, header: &header, body };
        for report in gateway.reports(&call).unwrap_or_default() {
            assert!(report.detail.as_deref().is_none_or(is_harmless), "{report:?}");
            match report.message {
                ReportedMessage::Reference(reference) => assert!((1..=64).contains(&reference.len())),
                // Twilio's signature is for the whole URL, which has the id.
                ReportedMessage::Id(id) => {
                    assert!(which == 1 || (known && id.to_string() == ID), "{report:?}")
                }
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(3, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (head, query, body) = (part(), part(), part());
    let Ok(query) = std::str::from_utf8(query) else { return };
    let head = String::from_utf8_lossy(head);
    let Some((which, status)) = head.split_once(' ') else { return };
    let (Ok(which), Ok(status)) = (which.parse::<u8>(), status.parse::<u16>()) else { return };
    let rig = &*RIG;
    // Not 1xx: hyper waits for what follows it.
    if (200..600).contains(&status) {
        judged(rig, usize::from(which) % 4, status, body);
    }
    let told = |part: &[u8]| String::from_utf8_lossy(part).contains(&rig.token);
    let json = which >= 4;
    reported(rig, query, json, body, told(query.as_bytes()) || told(body));
    // As the gateway would send it, with the token that it was given for the message.
    let token = &rig.token;
    reported(rig, &format!("id={ID}&token={token}&{query}"), json, body, true);
    reported(rig, "", true, format!("[{{\"out_id\":\"{ID}{token}\",{query}}}]").as_bytes(), true);
    reported(rig, "", true, format!("[{{\"ext\":\"{ID}{token}\",{query}}}]").as_bytes(), true);
});
