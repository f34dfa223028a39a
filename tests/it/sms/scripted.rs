//! Tencent Cloud and Alibaba Cloud as the test says: which message is accepted, refused or left without an answer, and
//! whether signature and template are in order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gatehouse::sms::OutOfService;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::gateways::{field, fields};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    Tencent,
    Aliyun,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    Accepts,
    RefusesNumber,
    RefusesAll(OutOfService),
    /// Reads it and says nothing.
    Hangs,
    /// Reads it and closes.
    Closes,
    /// Writes half of an answer that accepts, and closes.
    Half,
    /// Writes the first line of an answer, and closes.
    BetweenLines,
    /// Fails after it was read: it may have been sent.
    Fails,
}

impl Says {
    /// It is certain that nothing was sent.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::RefusesNumber | Self::RefusesAll(_))
    }
}

pub type Script = Box<dyn FnMut() -> Says + Send>;

pub struct Scripted {
    pub provider: Provider,
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    provider: Provider,
    script: Mutex<Script>,
    /// The messages that were read, by their ids, and what became of them.
    seen: Mutex<Vec<(String, Says)>>,
    /// Signature and template are in order.
    in_order: AtomicBool,
    /// Calls that send nothing.
    asked: AtomicUsize,
}

impl Scripted {
    pub async fn start(provider: Provider, says: Says) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            provider,
            script: Mutex::new(Box::new(move || says)),
            seen: Mutex::default(),
            in_order: AtomicBool::new(true),
            asked: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&serving)));
            }
        });
        Self { provider, port, shared }
    }

    pub fn says(&self, says: Says) {
        self.follows(Box::new(move || says));
    }

    pub fn follows(&self, script: Script) {
        *self.shared.script.lock().unwrap() = script;
    }

    pub fn is_in_order(&self, is: bool) {
        self.shared.in_order.store(is, Ordering::SeqCst);
    }

    pub fn seen(&self) -> Vec<(String, Says)> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// Its section of a configuration.
    pub fn section(&self, secret: &str) -> String {
        section(self.provider, &format!("http://127.0.0.1:{}", self.port), secret)
    }
}

pub fn section(provider: Provider, url: &str, secret: &str) -> String {
    match provider {
        Provider::Tencent => format!(
            "[sms.tencent]\nurl = '{url}'\nsecret_id = 'AKID0123'\nsecret_key = 'file:{secret}'\n\
             sdk_app_id = '1400006666'\nsign_name = '门房'\ntemplate_id = '1110'\n"
        ),
        Provider::Aliyun => format!(
            "[sms.aliyun]\nurl = '{url}'\naccess_key_id = 'LTAI0123'\naccess_key_secret = 'file:{secret}'\n\
             sign_name = '门房'\ntemplate_code = 'SMS_0123'\n"
        ),
    }
}

/// None if the other end is gone.
async fn serve(mut stream: TcpStream, shared: Arc<Shared>) -> Option<()> {
    loop {
        let (head, body) = read_request(&mut stream).await?;
        let action =
            header(&head, if shared.provider == Provider::Tencent { "x-tc-action" } else { "x-acs-action" });
        if action != "SendSms" {
            shared.asked.fetch_add(1, Ordering::SeqCst);
            let in_order = shared.in_order.load(Ordering::SeqCst);
            write(&mut stream, 200, &told(&action, in_order).to_string()).await?;
            continue;
        }
        let says = (shared.script.lock().unwrap())();
        shared.seen.lock().unwrap().push((id_of(shared.provider, &head, &body), says));
        let answer = answer(shared.provider, says).to_string();
        match says {
            Says::Accepts | Says::RefusesNumber | Says::RefusesAll(_) => {
                write(&mut stream, 200, &answer).await?
            }
            Says::Fails => write(&mut stream, 502, "").await?,
            Says::Hangs => std::future::pending().await,
            Says::Closes => return None,
            Says::Half => {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
                stream.write_all(format!("{head}{}", &answer[..answer.len() / 2]).as_bytes()).await.ok()?;
                return None;
            }
            Says::BetweenLines => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n").await.ok()?;
                return None;
            }
        }
    }
}

async fn write(stream: &mut TcpStream, status: u16, body: &str) -> Option<()> {
    let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.ok()
}

async fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length: usize = header(head, "content-length").parse().unwrap_or(0);
            if body.len() >= length {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn header(head: &str, name: &str) -> String {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

fn id_of(provider: Provider, head: &str, body: &str) -> String {
    let with_token = match provider {
        Provider::Tencent => {
            let call: Value = serde_json::from_str(body).unwrap();
            call["SessionContext"].as_str().unwrap().to_owned()
        }
        Provider::Aliyun => {
            let query = head.split_once('?').unwrap().1.split(' ').next().unwrap();
            field(&fields(query.as_bytes()), "OutId").to_owned()
        }
    };
    with_token[..32].to_owned()
}

/// The answer to a message, as the provider documents it.
fn answer(provider: Provider, says: Says) -> Value {
    let code = match (provider, says) {
        (Provider::Tencent, Says::RefusesNumber) => "LimitExceeded.PhoneNumberDailyLimit",
        (Provider::Tencent, Says::RefusesAll(OutOfService::Signature)) => {
            "FailedOperation.SignatureIncorrectOrUnapproved"
        }
        (Provider::Tencent, Says::RefusesAll(OutOfService::Balance)) => {
            "FailedOperation.InsufficientBalanceInSmsPackage"
        }
        (Provider::Tencent, Says::RefusesAll(_)) => {
            return json!({ "Response": { "Error": { "Code": "AuthFailure.SecretIdNotFound" } } });
        }
        (Provider::Tencent, _) => "Ok",
        (Provider::Aliyun, Says::RefusesNumber) => "isv.MOBILE_NUMBER_ILLEGAL",
        (Provider::Aliyun, Says::RefusesAll(OutOfService::Signature)) => "isv.SMS_SIGNATURE_ILLEGAL",
        (Provider::Aliyun, Says::RefusesAll(OutOfService::Balance)) => "isv.AMOUNT_NOT_ENOUGH",
        (Provider::Aliyun, Says::RefusesAll(_)) => "isp.RAM_PERMISSION_DENY",
        (Provider::Aliyun, _) => "OK",
    };
    match provider {
        Provider::Tencent => {
            json!({ "Response": { "SendStatusSet": [{ "Code": code, "SerialNo": "5000:1" }] } })
        }
        Provider::Aliyun => json!({ "Code": code, "BizId": "1^0" }),
    }
}

/// The answer to a question.
fn told(action: &str, in_order: bool) -> Value {
    let state = if in_order { 0 } else { -1 };
    match action {
        "DescribeSmsSignList" => json!({ "Response": { "DescribeSignListStatusSet": [
            { "SignName": "别家", "StatusCode": 0 },
            { "SignName": "门房", "StatusCode": state, "ReviewReply": "资质\u{7}不符" },
        ] } }),
        "DescribeSmsTemplateList" => {
            json!({ "Response": { "DescribeTemplateStatusSet": [{ "TemplateId": 1110, "StatusCode": 0 }] } })
        }
        "SmsPackagesStatistics" => json!({ "Response": { "SmsPackagesStatisticsSet": [
            { "PackageAmount": 1000, "CurrentUsage": 250, "PackageExpiredTime": 4_102_444_800_i64 },
            { "PackageAmount": 1000, "CurrentUsage": 0, "PackageExpiredTime": 1 },
        ] } }),
        "GetSmsSign" => json!({ "Code": "OK", "SignStatus": if in_order { 1 } else { 2 } }),
        "GetSmsTemplate" => json!({ "Code": "OK", "TemplateStatus": "1" }),
        other => panic!("no such action: {other}"),
    }
}
