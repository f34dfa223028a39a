//! A server that follows a script: late, rude, lying or gone.

use std::collections::HashMap;
use std::net::{Ipv4Addr, UdpSocket};

use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;

const FROM: &str = "login@sender.example";
const TO: &str = "somebody@recipient.example";
const MAIL: &[u8] = b"Subject: your code\r\n\r\nIt is 314159.\r\n";
const PASSWORD: &str = "correct horse";
/// Long enough for a machine with much to do.
const LONG: Duration = Duration::from_secs(30);
/// For servers that do not answer in any time.
const SHORT: Duration = Duration::from_secs(2);

const CLOSE: &str = "close";
const SILENCE: &str = "silence";

/// What a server does other than a good one: by the first word of a command, or `CONNECT`, `BODY` (once 1000 bytes of
/// it are read) or `END`, what it answers.
#[derive(Default)]
struct Script {
    answers: HashMap<&'static str, String>,
    /// Instead of those that a good server has.
    extensions: Option<&'static [&'static str]>,
    /// In addition to them, and to STARTTLS.
    before_tls: &'static [&'static str],
    /// Before each answer.
    pause: Duration,
    tls: Option<TlsAcceptor>,
    /// From the first byte.
    implicit: bool,
    is_stripped: bool,
}

#[derive(Default)]
struct Heard {
    /// With `TLS` where that was begun.
    commands: Vec<String>,
    mails: Vec<Vec<u8>>,
}

struct Fake {
    port: u16,
    heard: Arc<Mutex<Heard>>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Script {
    fn says(mut self, to: &'static str, answer: impl Into<String>) -> Self {
        self.answers.insert(to, answer.into());
        self
    }

    async fn start(self) -> Fake {
        self.start_at(Ipv4Addr::LOCALHOST).await
    }

    async fn start_at(self, address: Ipv4Addr) -> Fake {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let fake = Fake { port: listener.local_addr().unwrap().port(), heard: Arc::default() };
        let (script, heard) = (Arc::new(self), Arc::clone(&fake.heard));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, heard) = (Arc::clone(&script), Arc::clone(&heard));
                tokio::spawn(async move { script.serve(stream, &heard).await });
            }
        });
        fake
    }

    /// The lines that are left; None once there is nothing more to say.
    async fn answer(&self, stream: &mut impl Stream, to: &str, good: &str) -> Option<()> {
        tokio::time::sleep(self.pause).await; // the fault: a server that is slow
        match self.answers.get(to).map_or(good, String::as_str) {
            CLOSE => None,
            SILENCE => {
                tokio::time::sleep(LONG * 10).await; // the fault: a server that says nothing
                None
            }
            answer => stream.write_all(format!("{answer}\r\n").as_bytes()).await.ok(),
        }
    }

    async fn serve(&self, stream: TcpStream, heard: &Mutex<Heard>) -> Option<()> {
        let mut stream: BufReader<Box<dyn Stream>> = BufReader::new(Box::new(stream));
        let mut encrypted = self.implicit;
        if encrypted {
            stream = self.encrypt(stream, heard).await?;
        }
        self.answer(&mut stream, "CONNECT", "220 mail.example ESMTP").await?;
        loop {
            let mut line = Vec::new();
            stream.read_until(b'\n', &mut line).await.ok().filter(|length| *length > 0)?;
            let line = String::from_utf8(line).unwrap();
            let line = line.strip_suffix("\r\n").expect("commands end with CR LF");
            heard.lock().commands.push(line.to_owned());
            let word = line.split([' ', ':']).next().unwrap();
            let extensions = self.extensions.unwrap_or(&["8BITMIME", "SMTPUTF8", "AUTH PLAIN LOGIN"]);
            let good = match word {
                "EHLO" => {
                    let mut lines = vec!["mail.example"];
                    lines.extend(extensions);
                    if !encrypted {
                        lines.extend(self.before_tls);
                        lines.extend((self.tls.is_some() && !self.is_stripped).then_some("STARTTLS"));
                    }
                    let last = lines.pop().unwrap();
                    lines.iter().map(|line| format!("250-{line}\r\n")).collect::<String>() + "250 " + last
                }
                "AUTH" if line.ends_with("LOGIN") => "334 VXNlcm5hbWU6".to_owned(),
                "bG9naW4=" => "334 UGFzc3dvcmQ6".to_owned(),
                "AUTH" | "Y29ycmVjdCBob3JzZQ==" => "235 2.7.0 signed in".to_owned(),
                "DATA" => "354 go on".to_owned(),
                "QUIT" => "221 2.0.0 bye".to_owned(),
                _ => "250 2.1.0 fine".to_owned(),
            };
            self.answer(&mut stream, word, &good).await?;
            match word {
                "QUIT" => return None,
                "STARTTLS" => (stream, encrypted) = (self.encrypt(stream, heard).await?, true),
                "DATA" if self.answers.get("DATA").is_none_or(|answer| answer.starts_with("3")) => {
                    self.read_mail(&mut stream, heard).await?;
                }
                _ => {}
            }
        }
    }

    /// Reads commands as RFC 5321 has them, and no more leniently.
    async fn read_mail(
        &self,
        stream: &mut (impl Stream + AsyncBufReadExt),
        heard: &Mutex<Heard>,
    ) -> Option<()> {
        if self.answers.contains_key("BODY") {
            stream.read_exact(&mut [0; 1000]).await.ok()?;
            self.answer(stream, "BODY", "").await?;
        }
        let mut mail = b"\r\n".to_vec();
        while !mail.ends_with(b"\r\n.\r\n") {
            mail.push(stream.read_u8().await.ok()?);
        }
        mail.truncate(mail.len() - 3);
        let mut read = Vec::new();
        for (at, byte) in mail.iter().enumerate() {
            if !(*byte == b'.' && mail[..at].ends_with(b"\r\n")) {
                read.push(*byte);
            }
        }
        heard.lock().mails.push(read[2..].to_vec());
        self.answer(stream, "END", "250 2.0.0 Ok: queued as 4XyZ").await
    }

    async fn encrypt(
        &self,
        stream: BufReader<Box<dyn Stream>>,
        heard: &Mutex<Heard>,
    ) -> Option<BufReader<Box<dyn Stream>>> {
        let stream = self.tls.as_ref()?.accept(stream.into_inner()).await.ok()?;
        heard.lock().commands.push("TLS".to_owned());
        Some(BufReader::new(Box::new(stream)))
    }
}

impl Fake {
    fn server(&self, security: MailSecurity) -> SmtpServer {
        SmtpServer {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            security,
            credentials: None,
            timeout: LONG,
            hello: "login.example".to_owned(),
            authorities: Vec::new(),
        }
    }

    fn plain(&self) -> SmtpServer {
        self.server(MailSecurity::Plain)
    }

    fn commands(&self) -> Vec<String> {
        self.heard.lock().commands.clone()
    }

    fn mails(&self) -> Vec<Vec<u8>> {
        self.heard.lock().mails.clone()
    }

    /// No word of the mail or its addresses was said.
    fn was_told_nothing(&self) -> bool {
        let commands = self.commands();
        let greeting =
            |command: &String| matches!(command.split(' ').next(), Some("EHLO" | "STARTTLS" | "QUIT"));
        commands.iter().all(greeting) && self.mails().is_empty()
    }
}

impl SmtpServer {
    fn signed_in(self) -> Self {
        Self { credentials: Some(("login".to_owned(), Zeroizing::new(PASSWORD.to_owned()))), ..self }
    }

    fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    fn trusting(self, authority: &Authority) -> Self {
        Self { authorities: vec![authority.0.der().clone()], ..self }
    }

    async fn mail(&self) -> MailDelivery {
        self.send(FROM, TO, MAIL).await
    }
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        Self::named("an authority of tests")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn vouches_for(&self, name: &str, expired: bool) -> TlsAcceptor {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if expired {
            (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            );
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }

    fn script(&self, security: MailSecurity) -> Script {
        Script::with_tls(self.vouches_for("127.0.0.1", false), security)
    }
}

impl Script {
    fn with_tls(tls: TlsAcceptor, security: MailSecurity) -> Self {
        Self { tls: Some(tls), implicit: security == MailSecurity::Implicit, ..Self::default() }
    }
}

fn accepted() -> MailDelivery {
    MailDelivery::Accepted { said: Some("250 2.0.0".to_owned()) }
}

fn refused(at: SmtpPhase, reason: &str) -> MailDelivery {
    MailDelivery::Refused { at, reason: reason.to_owned() }
}

fn deferred(at: SmtpPhase, reason: &str) -> MailDelivery {
    MailDelivery::Deferred { at, reason: reason.to_owned() }
}

const LATE: &str = "the server did not answer in time";
const CLOSED: &str = "the server closed the connection, or gave no valid answer";

/// By the command that is answered, what it is about.
const PHASES: [(&str, SmtpPhase); 7] = [
    ("CONNECT", SmtpPhase::Greeting),
    ("EHLO", SmtpPhase::Greeting),
    ("AUTH", SmtpPhase::SignIn),
    ("MAIL", SmtpPhase::Sender),
    ("RCPT", SmtpPhase::Recipient),
    ("DATA", SmtpPhase::Data),
    ("END", SmtpPhase::Data),
];

#[tokio::test]
async fn a_mail_is_handed_over_in_the_order_of_the_protocol() {
    let fake = Script::default().start().await;
    assert_eq!(fake.plain().signed_in().mail().await, accepted());
    let from = format!("MAIL FROM:<{FROM}>");
    let to = format!("RCPT TO:<{TO}>");
    let sign_in = "AUTH PLAIN AGxvZ2luAGNvcnJlY3QgaG9yc2U=";
    assert_eq!(fake.commands(), ["EHLO login.example", sign_in, &from, &to, "DATA", "QUIT"]);
    assert_eq!(fake.mails(), [MAIL]);
}

#[tokio::test]
async fn an_address_introduces_itself_in_brackets() {
    let fake = Script::default().start().await;
    for (hello, said) in [("192.0.2.1", "EHLO [192.0.2.1]"), ("2001:db8::1", "EHLO [IPv6:2001:db8::1]")] {
        let server = SmtpServer { hello: hello.to_owned(), ..fake.plain() };
        assert_eq!(server.mail().await, accepted());
        assert!(fake.commands().contains(&said.to_owned()), "{said}");
    }
}

#[tokio::test]
async fn a_server_without_plain_is_signed_in_to_by_login() {
    let fake = Script { extensions: Some(&["AUTH CRAM-MD5 LOGIN"]), ..Script::default() }.start().await;
    assert_eq!(fake.plain().signed_in().mail().await, accepted());
    assert_eq!(fake.commands()[1..4], ["AUTH LOGIN", "bG9naW4=", "Y29ycmVjdCBob3JzZQ=="]);
    let none = Script { extensions: Some(&["AUTH CRAM-MD5"]), ..Script::default() }.start().await;
    let reason = "the server offers no way to sign in that is known here, PLAIN or LOGIN";
    assert_eq!(none.plain().signed_in().mail().await, deferred(SmtpPhase::SignIn, reason));
    assert!(none.was_told_nothing());
}

#[tokio::test]
async fn a_mail_arrives_byte_for_byte() {
    let fake = Script::default().start().await;
    let bodies: [&[u8]; 10] = [
        b".\r\n",
        b"..\r\n...\r\n",
        b"\r\n.\r\n\r\n.\r\n",
        b"x\r\n.\r\nMAIL FROM:<x@evil.example>\r\nRCPT TO:<y@evil.example>\r\nDATA\r\nz\r\n.\r\nQUIT\r\n",
        b"x\r\n.y\r\n. \r\n.\t\r\n",
        b"\r\n",
        b"\r\n\r\n\r\n",
        b"x..\r\ny.\r\n",
        b"no end",
        b"x\r\n.",
    ];
    for body in bodies {
        assert_eq!(fake.plain().send(FROM, TO, body).await, accepted());
    }
    // The protocol ends the last line, if nobody has.
    let ended = bodies.map(|body| match body {
        b"no end" | b"x\r\n." => [body, b"\r\n"].concat(),
        _ => body.to_vec(),
    });
    assert_eq!(fake.mails(), ended);
    assert_eq!(fake.commands().len(), 5 * bodies.len(), "nothing of a mail was taken for a command");
}

#[tokio::test]
async fn a_long_mail_arrives_byte_for_byte() {
    let fake = Script::default().start().await;
    let body = b".\r\n..a line of a mail\r\n".repeat(20_000);
    assert_eq!(fake.plain().send(FROM, TO, &body).await, accepted());
    assert!(fake.mails() == [body]);
}

#[tokio::test]
async fn a_mail_with_half_an_end_of_a_line_is_never_sent() {
    let fake = Script::default().start().await;
    let bodies: [&[u8]; 14] = [
        b"x\n.\r\ny\r\n",
        b"x\r\n.\ny\r\n",
        b"x\n.\ny\r\n",
        b"x\r.\ry\r\n",
        b"x\r\n.\ry\r\n",
        b"x\r.\r\ny\r\n",
        b"x\r\n\r.\r\ny\r\n",
        b"x\r\r\n.\r\r\ny\r\n",
        b"x\r\n\n.\r\n\ny\r\n",
        b"x\r\n.\n\ry\r\n",
        b"\nx\r\n",
        b"x\r\n\r",
        b"x\n",
        b"x\r\r\n",
    ];
    for body in bodies {
        let reason = "the mail has a line that CR LF does not end";
        assert_eq!(fake.plain().send(FROM, TO, body).await, refused(SmtpPhase::Data, reason), "{body:?}");
    }
    assert_eq!(fake.commands(), [""; 0]);
}

#[tokio::test]
async fn an_address_cannot_say_more_than_itself() {
    let fake = Script::default().start().await;
    for address in
        ["", "x", "x@y>\r\nDATA", "x@y.example>\r\nRCPT TO:<z@evil.example", "x@y.example\n", "x y@z.example"]
    {
        let reason = "the address is not valid";
        assert_eq!(fake.plain().send(FROM, address, MAIL).await, refused(SmtpPhase::Recipient, reason));
        assert_eq!(fake.plain().send(address, TO, MAIL).await, deferred(SmtpPhase::Sender, reason));
    }
    assert_eq!(fake.commands(), [""; 0]);
}

#[tokio::test]
async fn what_is_refused_for_now_is_deferred_even_after_the_mails_end() {
    for (to, at) in PHASES {
        let fake = Script::default().says(to, "451 4.7.1 try again later").start().await;
        let delivery = fake.plain().signed_in().mail().await;
        assert_eq!(delivery, deferred(at, "the server answered 451 4.7.1"), "{to}");
    }
}

#[tokio::test]
async fn what_is_refused_for_good_is_so_only_if_it_is_about_the_recipient_or_the_mail() {
    for (to, at) in PHASES {
        let fake = Script::default().says(to, "550-5.1.1 there is\r\n550 5.1.1 nobody").start().await;
        let delivery = fake.plain().signed_in().mail().await;
        let reason = "the server answered 550 5.1.1";
        let expected = match at {
            SmtpPhase::Recipient | SmtpPhase::Data => refused(at, reason),
            _ => deferred(at, reason),
        };
        assert_eq!(delivery, expected, "{to}");
        assert_eq!(fake.mails().len(), usize::from(to == "END"), "{to}");
    }
}

#[tokio::test]
async fn a_server_that_refused_is_told_goodbye() {
    for to in ["AUTH", "MAIL", "RCPT", "DATA", "END"] {
        let fake = Script::default().says(to, "550 no").start().await;
        fake.plain().signed_in().mail().await;
        assert_eq!(fake.commands().last().unwrap(), "QUIT", "{to}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_for_the_operator_to_mend() {
    for extensions in [&["AUTH PLAIN"], &["AUTH LOGIN"]] {
        let script = Script { extensions: Some(extensions), ..Script::default() };
        let wrong = "535 5.7.8 wrong password: correct horse";
        let fake = script.says("AUTH", wrong).says("Y29ycmVjdCBob3JzZQ==", wrong);
        let fake =
            if extensions[0].ends_with("LOGIN") { fake.says("AUTH", "334 VXNlcm5hbWU6") } else { fake };
        let fake = fake.start().await;
        let delivery = fake.plain().signed_in().mail().await;
        assert_eq!(delivery, deferred(SmtpPhase::SignIn, "the server answered 535 5.7.8"));
        assert_eq!(fake.mails(), [b""; 0]);
    }
}

#[tokio::test]
async fn a_reason_has_no_word_of_what_the_server_said() {
    for said in [
        "somebody@recipient.example is unknown",
        "314159",
        "5.314159.1 x",
        "5.3.14159 x",
        "correct horse",
        "4.1.1 of another class",
        "5.1 short",
        "5.1.x",
        "5.1.1: x",
        "",
    ] {
        for (to, at) in PHASES {
            let fake = Script::default().says(to, format!("550 {said}")).start().await;
            let (MailDelivery::Deferred { at: where_, reason }
            | MailDelivery::Refused { at: where_, reason }) = fake.plain().signed_in().mail().await
            else {
                panic!("{to}: {said}");
            };
            assert_eq!((where_, reason.as_str()), (at, "the server answered 550"), "{to}: {said}");
        }
        let fake = Script::default().says("END", format!("250 {said}")).start().await;
        assert_eq!(fake.plain().mail().await, MailDelivery::Accepted { said: Some("250".to_owned()) });
    }
}

#[tokio::test]
async fn a_mail_that_is_tried_is_told_in_the_servers_words() {
    for (to, _) in PHASES {
        let fake = Script::default().says(to, "550 5.7.1 not from you").start().await;
        let tried = fake.plain().signed_in().try_mail(FROM, TO, MAIL).await;
        assert_eq!(tried, Err("the server answered 550 5.7.1: 5.7.1 not from you".to_owned()), "{to}");
    }
    let fake = Script::default().says("END", "250-2.0.0 taken\r\n250 as 7").start().await;
    assert_eq!(fake.plain().try_mail(FROM, TO, MAIL).await, Ok("250 2.0.0 taken as 7".to_owned()));
}

#[tokio::test]
async fn a_mail_whose_end_is_not_answered_is_unknown() {
    for (answer, reason) in [
        (CLOSE, CLOSED),
        (SILENCE, LATE),
        ("thank you", CLOSED),
        ("999 thank you", CLOSED),
        ("250-thank you\r\n550 no", CLOSED),
        ("354 go on", "the server answered 354, out of order"),
    ] {
        let fake = Script::default().says("END", answer).start().await;
        let delivery = fake.plain().within(SHORT).mail().await;
        assert_eq!(delivery, MailDelivery::Unknown { reason: reason.to_owned() }, "{answer}");
        assert_eq!(fake.mails(), [MAIL], "{answer}");
    }
}

#[tokio::test]
async fn a_mail_whose_end_was_not_sent_is_deferred() {
    // More than the system takes on behalf of a server that does not read.
    let long = b"a line of a mail\r\n".repeat(700_000);
    for (answer, reason, time) in [(CLOSE, CLOSED, LONG), (SILENCE, LATE, SHORT)] {
        let fake = Script::default().says("BODY", answer).start().await;
        let delivery = fake.plain().within(time).send(FROM, TO, &long).await;
        assert_eq!(delivery, deferred(SmtpPhase::Data, reason));
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_before_the_mail_is_not_waited_for() {
    let mut tries = JoinSet::new();
    for (answer, reason, time) in [(CLOSE, CLOSED, LONG), (SILENCE, LATE, SHORT)] {
        for (to, at) in PHASES.into_iter().filter(|(to, _)| *to != "END") {
            tries.spawn(async move {
                let fake = Script::default().says(to, answer).start().await;
                let delivery = fake.plain().signed_in().within(time).mail().await;
                assert_eq!(delivery, deferred(at, reason), "{to}");
                assert!(fake.mails().is_empty());
            });
        }
    }
    tries.join_all().await;
}

#[tokio::test]
async fn a_server_that_greets_late_is_not_waited_for() {
    let fake = Script { pause: SHORT * 5, ..Script::default() }.start().await;
    assert_eq!(fake.plain().within(SHORT).mail().await, deferred(SmtpPhase::Greeting, LATE));
    assert!(fake.was_told_nothing());
}

#[tokio::test]
async fn slow_answers_together_have_twice_the_time_of_one() {
    let begun = Instant::now();
    let fake = Script { pause: SHORT * 2 / 5, ..Script::default() }.start().await;
    let delivery = fake.plain().signed_in().within(SHORT).mail().await;
    assert!(matches!(&delivery, MailDelivery::Deferred { reason, .. } if reason == LATE), "{delivery:?}");
    assert!(fake.mails().is_empty());
    assert!(begun.elapsed() < SHORT * 10);
}

#[tokio::test]
async fn a_server_that_sends_byte_after_byte_is_not_listened_to_forever() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fake = Fake { port: listener.local_addr().unwrap().port(), heard: Arc::default() };
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for byte in b"220-hello\r\n".iter().cycle() {
            let _ = stream.write_all(&[*byte]).await;
            tokio::time::sleep(Duration::from_millis(50)).await; // the fault: its pace
        }
    });
    assert_eq!(fake.plain().within(SHORT).mail().await, deferred(SmtpPhase::Greeting, LATE));
}

#[tokio::test]
async fn an_answer_without_end_is_none() {
    for line in ["250-\r\n".to_owned(), format!("250-{}\r\n", "x".repeat(900)), "x".repeat(1000)] {
        for (to, at) in [("EHLO", SmtpPhase::Greeting), ("RCPT", SmtpPhase::Recipient)] {
            let fake = Script::default().says(to, line.repeat(20_000)).start().await;
            assert_eq!(fake.plain().mail().await, deferred(at, CLOSED));
        }
    }
}

#[tokio::test]
async fn a_status_alone_is_an_answer() {
    let mut script = Script::default();
    for (to, answer) in
        [("CONNECT", "220"), ("MAIL", "250"), ("RCPT", "250"), ("DATA", "354"), ("END", "250")]
    {
        script = script.says(to, answer);
    }
    let fake = script.start().await;
    assert_eq!(fake.plain().mail().await, MailDelivery::Accepted { said: Some("250".to_owned()) });
    assert_eq!(fake.mails(), [MAIL]);
}

#[tokio::test]
async fn a_mail_is_not_said_to_a_server_that_expects_commands() {
    let fake = Script::default().says("DATA", "250 2.0.0 fine").start().await;
    let reason = "the server answered 250 2.0.0, out of order";
    assert_eq!(fake.plain().mail().await, deferred(SmtpPhase::Data, reason));
    tokio::time::sleep(Duration::from_millis(100)).await; // nothing tells that no more is said
    assert_eq!(fake.commands().last().unwrap(), "DATA");
}

#[tokio::test]
async fn an_answer_counts_in_every_encoding() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fake = Fake { port: listener.local_addr().unwrap().port(), heard: Arc::default() };
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        // GBK for: the user does not exist.
        let unknown = b"550 5.1.1 \xd3\xc3\xbb\xa7\xb2\xbb\xb4\xe6\xd4\xda\r\n";
        for answer in
            [b"220 \xbb\xb6\xd3\xad\r\n".as_slice(), b"250 x\r\n", b"250 x\r\n", unknown, b"221 x\r\n"]
        {
            stream.write_all(answer).await.unwrap();
            stream.read_until(b'\n', &mut Vec::new()).await.unwrap();
        }
    });
    let delivery = fake.plain().mail().await;
    assert_eq!(delivery, refused(SmtpPhase::Recipient, "the server answered 550 5.1.1"));
}

#[tokio::test]
async fn an_answer_of_blanks_does_no_harm() {
    for blank in [" ", "\t ", "\u{3000}", "\u{85}", "\r", "\r ", " \r"] {
        let ehlo = format!("250-mail.example\r\n250-{blank}\r\n250-\r\n250 SMTPUTF8");
        let fake = Script::default().says("EHLO", ehlo).start().await;
        assert_eq!(fake.plain().send(FROM, "ü@recipient.example", MAIL).await, accepted(), "{blank:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_deferred() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fake = Fake { port: listener.local_addr().unwrap().port(), heard: Arc::default() };
    drop(listener);
    let reason = "the server cannot be reached: connection refused";
    assert_eq!(fake.plain().mail().await, deferred(SmtpPhase::Connect, reason));
    let nowhere = SmtpServer { host: "mail.invalid".to_owned(), ..fake.plain() };
    let reason = "the server's name cannot be resolved";
    assert_eq!(nowhere.mail().await, deferred(SmtpPhase::Connect, reason));
}

#[tokio::test]
async fn a_name_with_several_addresses_is_tried_at_each() {
    let fake = Script::default().start().await;
    // Where it has the address of IPv6 too, nobody listens there.
    let server = SmtpServer { host: "localhost".to_owned(), ..fake.plain() };
    assert_eq!(server.mail().await, accepted());
}

#[tokio::test]
async fn without_tls_nothing_leaves_this_machine() {
    let fake = Script::default().start_at(Ipv4Addr::UNSPECIFIED).await;
    // An address of this machine that is not of loopback, as a stranger's is; nothing is sent to find it.
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = probe.connect("192.0.2.1:9").and_then(|()| probe.local_addr()).map(|own| own.ip());
    let Some(own) = own.ok().filter(|own| !own.is_loopback()) else { return };
    let server = SmtpServer { host: own.to_string(), ..fake.plain() };
    let reason = "the server is not on this machine, and TLS is switched off";
    assert_eq!(server.mail().await, deferred(SmtpPhase::Tls, reason));
    assert_eq!(fake.commands(), [""; 0]);
}

const WITH_TLS: [MailSecurity; 2] = [MailSecurity::Implicit, MailSecurity::StartTls];

#[tokio::test]
async fn a_server_with_a_certificate_of_a_trusted_authority_gets_mails() {
    let authority = Authority::new();
    for security in WITH_TLS {
        let fake = authority.script(security).start().await;
        let server = fake.server(security).trusting(&authority).signed_in();
        assert_eq!(server.mail().await, accepted(), "{security:?}");
        assert_eq!(fake.mails(), [MAIL]);
        let commands = fake.commands();
        let begun = commands.iter().position(|command| command == "TLS").unwrap();
        let (before, after) = commands.split_at(begun);
        let expected: &[&str] = match security {
            MailSecurity::Implicit => &[],
            _ => &["EHLO login.example", "STARTTLS"],
        };
        assert_eq!(before, expected);
        assert_eq!(after[1], "EHLO login.example");
        assert_eq!((after.len(), after[6].as_str()), (7, "QUIT"));
    }
}

#[tokio::test]
async fn a_stranger_with_another_certificate_is_told_nothing() {
    let (authority, other) = (Authority::new(), Authority::named("another"));
    let cases = [
        (
            other.vouches_for("127.0.0.1", false),
            "the server's certificate is of an authority that is not trusted",
        ),
        (authority.vouches_for("mail.example", false), "the server's certificate is for another name"),
        (authority.vouches_for("127.0.0.1", true), "the server's certificate has expired"),
    ];
    for (tls, reason) in cases {
        for security in WITH_TLS {
            let fake = Script::with_tls(tls.clone(), security).start().await;
            let server = fake.server(security).trusting(&authority).signed_in();
            assert_eq!(server.mail().await, deferred(SmtpPhase::Tls, reason), "{security:?}");
            assert!(fake.was_told_nothing());
        }
    }
    let fake = authority.script(MailSecurity::Implicit).start().await;
    let delivery = fake.server(MailSecurity::Implicit).mail().await;
    let reason = "the server's certificate is of an authority that is not trusted";
    assert_eq!(delivery, deferred(SmtpPhase::Tls, reason), "the built-in ones do not vouch for it");
}

#[tokio::test]
async fn an_authority_that_cannot_be_read_is_told() {
    let authority = Authority::new();
    let fake = authority.script(MailSecurity::Implicit).start().await;
    let server = fake.server(MailSecurity::Implicit);
    let server = SmtpServer { authorities: vec![CertificateDer::from(b"x".to_vec())], ..server };
    let delivery = server.mail().await;
    let is_told = |reason: &String| reason.starts_with("TLS cannot be set up: ");
    assert!(matches!(&delivery, MailDelivery::Deferred { at: SmtpPhase::Tls, reason } if is_told(reason)));
}

#[tokio::test]
async fn a_server_that_does_not_offer_starttls_is_told_nothing() {
    let authority = Authority::new();
    let script = authority.script(MailSecurity::StartTls);
    let stripped = Script { is_stripped: true, ..script }.start().await;
    let server = stripped.server(MailSecurity::StartTls).trusting(&authority).signed_in();
    let MailDelivery::Deferred { at: SmtpPhase::Tls, reason } = server.mail().await else { panic!() };
    assert!(reason.starts_with("the server does not offer STARTTLS; "), "{reason}");
    assert!(stripped.was_told_nothing());
    for answer in ["454 4.7.0 not now", "502 5.5.1 no", CLOSE, SILENCE, "220 go on\r\n220 again", "354 go on"]
    {
        let fake = authority.script(MailSecurity::StartTls).says("STARTTLS", answer).start().await;
        let server = fake.server(MailSecurity::StartTls).trusting(&authority).signed_in().within(SHORT);
        let delivery = server.mail().await;
        assert!(
            matches!(delivery, MailDelivery::Deferred { at: SmtpPhase::Tls, .. }),
            "{answer}: {delivery:?}"
        );
        assert!(fake.was_told_nothing(), "{answer}");
    }
}

#[tokio::test]
async fn what_is_sent_behind_the_answer_to_starttls_is_not_believed() {
    let authority = Authority::new();
    // All answers to a mail, one of which would be believed before anything that comes through TLS.
    let answers = "250-mail.example\r\n250 AUTH LOGIN\r\n235 x\r\n250 x\r\n250 x\r\n354 x\r\n250 2.0.0 taken";
    for behind in [answers, "250 x", "\x16", "x"] {
        let script = authority.script(MailSecurity::StartTls);
        let fake = script.says("STARTTLS", format!("220 go on\r\n{behind}")).start().await;
        let server = fake.server(MailSecurity::StartTls).trusting(&authority).signed_in().within(SHORT);
        let delivery = server.mail().await;
        assert!(matches!(delivery, MailDelivery::Deferred { at: SmtpPhase::Tls, .. }), "{delivery:?}");
        assert!(fake.was_told_nothing());
    }
}

#[tokio::test]
async fn what_was_offered_before_tls_is_forgotten() {
    let authority = Authority::new();
    let script = authority.script(MailSecurity::StartTls);
    let script = Script { extensions: Some(&["8BITMIME"]), before_tls: &["SMTPUTF8"], ..script };
    let fake = script.start().await;
    let server = fake.server(MailSecurity::StartTls).trusting(&authority);
    let delivery = server.send(FROM, "ü@recipient.example", MAIL).await;
    assert!(matches!(delivery, MailDelivery::Refused { at: SmtpPhase::Recipient, .. }), "{delivery:?}");
}

#[tokio::test]
async fn tls_from_the_first_byte_at_a_port_without_it_says_so() {
    let fake = Script::default().start().await;
    let server = fake.server(MailSecurity::Implicit);
    let reason = "what the server sent is not TLS; at most ports smtp:// is right, and smtps:// at 465";
    assert_eq!(server.mail().await, deferred(SmtpPhase::Tls, reason));
    assert_eq!(fake.mails(), [b""; 0]);
}

#[tokio::test]
async fn letters_beyond_ascii_go_only_where_they_are_taken() {
    let (to, body) = ("üser@recipient.example", "Subject: x\r\n\r\nÜ\r\n".as_bytes());
    let fake = Script::default().start().await;
    assert_eq!(fake.plain().send(FROM, to, body).await, accepted());
    assert_eq!(fake.commands()[1], format!("MAIL FROM:<{FROM}> SMTPUTF8 BODY=8BITMIME"));
    assert_eq!(fake.commands()[2], format!("RCPT TO:<{to}>"));
    assert_eq!(fake.plain().send(FROM, TO, body).await, accepted());
    assert_eq!(fake.commands()[6], format!("MAIL FROM:<{FROM}> BODY=8BITMIME"));
    assert_eq!(fake.mails(), [body, body]);

    let eight_bits = Script { extensions: Some(&["8BITMIME"]), ..Script::default() }.start().await;
    let reason = "the server does not take addresses with such letters (SMTPUTF8)";
    assert_eq!(eight_bits.plain().send(FROM, to, MAIL).await, refused(SmtpPhase::Recipient, reason));
    assert_eq!(eight_bits.plain().send(to, TO, MAIL).await, deferred(SmtpPhase::Sender, reason));
    assert!(eight_bits.was_told_nothing());

    let seven_bits = Script { extensions: Some(&["PIPELINING"]), ..Script::default() }.start().await;
    let reason = "the server does not take mails with such letters (8BITMIME)";
    assert_eq!(seven_bits.plain().send(FROM, TO, body).await, refused(SmtpPhase::Data, reason));
    assert!(seven_bits.was_told_nothing());
    assert_eq!(seven_bits.plain().mail().await, accepted());
}

fn steps(check: &SmtpCheck) -> Vec<(SmtpPhase, bool)> {
    check.steps.iter().map(|(step, result)| (*step, result.is_ok())).collect()
}

#[tokio::test]
async fn a_check_does_all_but_send() {
    let authority = Authority::new();
    for security in WITH_TLS {
        let fake = authority.script(security).start().await;
        let check = fake.server(security).trusting(&authority).signed_in().check().await;
        use SmtpPhase::{Connect, Greeting, SignIn, Tls};
        assert_eq!(steps(&check), [(Connect, true), (Tls, true), (Greeting, true), (SignIn, true)]);
        let said = check.steps.into_iter().map(|(_, said)| said.unwrap());
        let said: Vec<String> = said.collect();
        assert_eq!(said[0], format!("127.0.0.1:{}", fake.port));
        assert_eq!(said[1], "TLS 1.3, with a certificate for 127.0.0.1");
        assert!(said[2].starts_with("mail.example, after ") && said[2].ends_with(" ms"), "{}", said[2]);
        assert_eq!(said[3], "235 2.7.0 signed in");
        let commands = fake.commands();
        assert!(commands.iter().all(|command| !command.starts_with("MAIL")));
        assert_eq!(commands.last().unwrap(), "QUIT");
    }
    let check = Script::default().start().await.plain().check().await;
    let none = "none, as no name and password are set".to_owned();
    assert_eq!(check.steps.last(), Some(&(SmtpPhase::SignIn, Ok(none))));
}

#[tokio::test]
async fn a_check_ends_at_the_first_failure_with_the_servers_words() {
    let long = "x".repeat(300);
    let said = format!("535-5.7.8 use an\x1b[2J\u{202e} app password\r\n535 5.7.8 {long}");
    let fake = Script::default().says("AUTH", said).start().await;
    let check = fake.plain().signed_in().check().await;
    use SmtpPhase::{Connect, Greeting, SignIn, Tls};
    assert_eq!(steps(&check), [(Connect, true), (Greeting, true), (SignIn, false)]);
    let said = check.steps[2].1.clone().unwrap_err();
    let words = said.strip_prefix("the server answered 535 5.7.8: 5.7.8 use an[2J app password xxx").unwrap();
    assert!(words.bytes().all(|letter| letter == b'x') && said.len() < 240, "{said}");

    let fake = Authority::new().script(MailSecurity::StartTls).start().await;
    let check = fake.server(MailSecurity::StartTls).check().await;
    assert_eq!(steps(&check), [(Connect, true), (Tls, false)]);
    let said = check.steps[1].1.clone().unwrap_err();
    assert!(said.starts_with("the server's certificate is of an authority that is not trusted: "), "{said}");
}
