//! Mails, handed to a mail server by SMTP: each in a connection of its own, so that it is known how far it has come.

use std::error::Error as _;
use std::fmt::Debug;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{io, iter, mem};

use lettre::Address;
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt, Starttls};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::{Response, Severity};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, Error as TlsError, ProtocolVersion, RootCertStore};
use strum::IntoStaticStr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

use crate::config::MailSecurity;

/// For how long the answer to a goodbye is waited for: the mail's outcome is known by then.
const GOODBYE: Duration = Duration::from_secs(5);
/// The most lines of an answer; servers that have much to offer have 20.
const MOST_LINES: usize = 100;

pub struct SmtpServer {
    /// A name or an address; one of IPv6 without brackets.
    pub host: String,
    pub port: u16,
    pub security: MailSecurity,
    pub credentials: Option<(String, Zeroizing<String>)>,
    /// For each phase; all of them together have twice as long.
    pub timeout: Duration,
    /// The name or the address by which this machine introduces itself.
    pub hello: String,
    /// Trusted in addition to the built-in ones.
    pub authorities: Vec<CertificateDer<'static>>,
}

/// The outcome of a mail, as far as the server says. A `reason` is for the log: no address, no code, no password, and
/// nothing of what the server said but its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailDelivery {
    Accepted {
        said: Option<String>,
    },
    /// It was not taken, and would not be at another time.
    Refused {
        at: SmtpPhase,
        reason: String,
    },
    /// It was certainly not taken. It may be later, or once the operator has mended something.
    Deferred {
        at: SmtpPhase,
        reason: String,
    },
    /// It may have been taken: it is never sent again.
    Unknown {
        reason: String,
    },
}

/// In the order in which they come, but for the greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum SmtpPhase {
    Connect,
    /// The server's greeting, and its answer to ours. With TLS from the first byte it comes after [`Self::Tls`].
    Greeting,
    Tls,
    SignIn,
    Sender,
    Recipient,
    Data,
}

/// What was tried, in this order, up to the first failure. It has the server's own words, for the operator alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmtpCheck {
    pub steps: Vec<(SmtpPhase, Result<String, String>)>,
}

impl SmtpServer {
    /// Tries once. `raw` is a whole message, each of its lines ended by CR LF.
    pub async fn send(&self, from: &str, to: &str, raw: &[u8]) -> MailDelivery {
        match SmtpAttempt::new(self).send(from, to, raw).await {
            Ok(answer) => MailDelivery::Accepted { said: Some(status(&answer)) },
            Err(failure) => failure.into(),
        }
    }

    /// Does all that comes before a mail, and sends none.
    pub async fn check(&self) -> SmtpCheck {
        let mut attempt = SmtpAttempt::new(self);
        if let Err(failure) = attempt.check().await {
            attempt.steps.push((failure.at, Err(failure.in_words())));
        }
        SmtpCheck { steps: attempt.steps }
    }

    /// Whether it would take a mail now, as far as can be told without one.
    pub async fn probe(&self) -> MailDelivery {
        match SmtpAttempt::new(self).check().await {
            Ok(()) => MailDelivery::Accepted { said: None },
            Err(failure) => failure.into(),
        }
    }

    /// Sends a mail, and tells it in the server's own words, for the operator alone.
    pub async fn try_mail(&self, from: &str, to: &str, raw: &[u8]) -> Result<String, String> {
        let sent = SmtpAttempt::new(self).send(from, to, raw).await;
        sent.map(|answer| in_words(&answer)).map_err(SmtpFailure::in_words)
    }

    fn client_id(&self) -> ClientId {
        match self.hello.parse() {
            Ok(IpAddr::V4(address)) => ClientId::Ipv4(address),
            Ok(IpAddr::V6(address)) => ClientId::Ipv6(address),
            Err(_) => ClientId::Domain(self.hello.clone()),
        }
    }

    fn tls(&self) -> Result<TlsConnector, TlsError> {
        let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        self.authorities.iter().try_for_each(|authority| roots.add(authority.clone()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into())
    }
}

struct SmtpAttempt<'a> {
    server: &'a SmtpServer,
    end: Instant,
    /// What has succeeded; it may hold words of the server's.
    steps: Vec<(SmtpPhase, Result<String, String>)>,
}

impl<'a> SmtpAttempt<'a> {
    fn new(server: &'a SmtpServer) -> Self {
        Self { server, end: Instant::now() + server.timeout * 2, steps: Vec::new() }
    }

    async fn send(&mut self, from: &str, to: &str, raw: &[u8]) -> Result<Response, SmtpFailure> {
        if !is_of_whole_lines(raw) {
            return Err(SmtpFailure::refused(SmtpPhase::Data, "the mail has a line that CR LF does not end"));
        }
        let address =
            |at, text: &str| text.parse().map_err(|_| SmtpFailure::refused(at, "the address is not valid"));
        let (from, to) = (address(SmtpPhase::Sender, from)?, address(SmtpPhase::Recipient, to)?);
        let mut connection = self.open().await?;
        let outcome = self.hand_over(&mut connection, from, to, raw).await;
        // One that is silent or closed is left without a word.
        if outcome.as_ref().err().is_none_or(|failure| failure.answered.is_some()) {
            self.say_goodbye(&mut connection).await;
        }
        outcome
    }

    async fn check(&mut self) -> Result<(), SmtpFailure> {
        let mut connection = self.open().await?;
        let said = match self.sign_in(&mut connection).await? {
            Some(answer) => in_words(&answer),
            None => "none, as no name and password are set".to_owned(),
        };
        self.passed(SmtpPhase::SignIn, said);
        self.say_goodbye(&mut connection).await;
        Ok(())
    }

    /// A connection that is as secure as it shall be, and on which both sides have introduced themselves.
    async fn open(&mut self) -> Result<AsyncSmtpConnection, SmtpFailure> {
        let (tcp, peer) = self.limit(SmtpPhase::Connect, self.connect()).await?;
        self.passed(SmtpPhase::Connect, peer.to_string());
        let (hello, begun) = (self.server.client_id(), Instant::now());
        let stream: Box<dyn AsyncTokioStream> = match self.server.security {
            MailSecurity::Plain if !peer.ip().to_canonical().is_loopback() => {
                let reason = "the server is not on this machine, and TLS is switched off";
                return Err(SmtpFailure::new(SmtpPhase::Tls, reason));
            }
            MailSecurity::Plain => Box::new(Wire::new(tcp, peer)),
            MailSecurity::Implicit => Box::new(Wire::new(self.encrypt(tcp).await?, peer)),
            MailSecurity::StartTls => {
                let tcp = self.ask_for_tls(tcp, peer, &hello).await?;
                Box::new(Wire { first: b"220 \n", ..Wire::new(self.encrypt(tcp).await?, peer) })
            }
        };
        let greeting = AsyncSmtpConnection::connect_with_transport(stream, &hello);
        let connection = self.smtp(SmtpPhase::Greeting, greeting).await?;
        let (name, took) = (one_line(connection.server_info().name()), begun.elapsed().as_millis());
        self.passed(SmtpPhase::Greeting, format!("{name}, after {took} ms"));
        Ok(connection)
    }

    async fn connect(&self) -> Result<(TcpStream, SocketAddr), SmtpFailure> {
        let failed = |reason: &str| SmtpFailure::new(SmtpPhase::Connect, reason);
        let found = lookup_host((self.server.host.as_str(), self.server.port)).await;
        let found = found.map_err(|_| failed("the server's name cannot be resolved"))?;
        let (found, mut wrong) = (Vec::from_iter(found), failed("the server's name has no address"));
        for address in &found {
            // An address that does not answer leaves the others their time.
            match timeout(self.server.timeout / found.len() as u32, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) => {
                    // The end of a mail would wait until the rest of it is confirmed.
                    let _ = tcp.set_nodelay(true);
                    return Ok((tcp, *address));
                }
                Ok(Err(refused)) => wrong = refused.into(),
                Err(_) => wrong = failed("the server cannot be reached: no answer in time"),
            }
        }
        Err(wrong)
    }

    /// Has the server begin TLS, and believes nothing of what it says before. lettre's own `starttls` keeps what it has read
    /// beyond the last answer, and takes it for what was said within TLS (as in CVE-2011-0411). This reader goes byte by
    /// byte: what a stranger has sent behind that answer is left to the handshake, which fails by it.
    async fn ask_for_tls(
        &self,
        tcp: TcpStream,
        peer: SocketAddr,
        hello: &ClientId,
    ) -> Result<TcpStream, SmtpFailure> {
        let kept = tcp.into_std()?;
        let (lent, kept) = (TcpStream::from_std(kept.try_clone()?)?, TcpStream::from_std(kept)?);
        let wire = Box::new(Wire { at_once: 1, ..Wire::new(lent, peer) });
        let greeting = AsyncSmtpConnection::connect_with_transport(wire, hello);
        let mut plain = self.smtp(SmtpPhase::Greeting, greeting).await?;
        if !plain.can_starttls() {
            self.say_goodbye(&mut plain).await;
            let reason =
                "the server does not offer STARTTLS; without it, nothing is sent, as others could read it";
            return Err(SmtpFailure::new(SmtpPhase::Tls, reason));
        }
        self.answer(SmtpPhase::Tls, Severity::PositiveCompletion, plain.command(Starttls)).await?;
        Ok(kept)
    }

    async fn encrypt(&mut self, tcp: TcpStream) -> Result<TlsStream<TcpStream>, SmtpFailure> {
        let host = &self.server.host;
        let failed =
            |wrong: String| SmtpFailure::new(SmtpPhase::Tls, format!("TLS cannot be set up: {wrong}"));
        let connector = self.server.tls().map_err(|wrong| failed(wrong.to_string()))?;
        let name = ServerName::try_from(host.clone()).map_err(|wrong| failed(wrong.to_string()))?;
        let handshake =
            async { connector.connect(name, tcp).await.map_err(|wrong| SmtpFailure::of_tls(&wrong)) };
        let stream = self.limit(SmtpPhase::Tls, handshake).await?;
        let version = match stream.get_ref().1.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLS 1.3",
            _ => "TLS 1.2",
        };
        self.passed(SmtpPhase::Tls, format!("{version}, with a certificate for {host}"));
        Ok(stream)
    }

    /// The server's answer; None if there is nobody to sign in as.
    async fn sign_in(&self, connection: &mut AsyncSmtpConnection) -> Result<Option<Response>, SmtpFailure> {
        let Some((name, password)) = &self.server.credentials else { return Ok(None) };
        let credentials = Credentials::new(name.clone(), password.as_str().to_owned());
        let answer = connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials);
        self.answer(SmtpPhase::SignIn, Severity::PositiveCompletion, answer).await.map(Some)
    }

    async fn hand_over(
        &self,
        connection: &mut AsyncSmtpConnection,
        from: Address,
        to: Address,
        raw: &[u8],
    ) -> Result<Response, SmtpFailure> {
        let (yes, go_on) = (Severity::PositiveCompletion, Severity::PositiveIntermediate);
        self.sign_in(connection).await?;
        let options = mail_options(connection, &from, &to, raw)?;
        self.answer(SmtpPhase::Sender, yes, connection.command(Mail::new(Some(from), options))).await?;
        self.answer(SmtpPhase::Recipient, yes, connection.command(Rcpt::new(to, Vec::new()))).await?;
        // To a server that expects commands, a mail would be commands.
        self.answer(SmtpPhase::Data, go_on, connection.command(Data)).await?;
        // lettre ends the last line in any case.
        let raw = raw.strip_suffix(b"\r\n").unwrap_or(raw);
        // Once lettre has written all that it was given, it asks for more, and then writes the mail's end. Before that the
        // server cannot have taken the mail; from then on it may have.
        let mut ended = false;
        let parts = iter::once(raw).chain(iter::from_fn(|| {
            ended = true;
            None
        }));
        let answer = self.answer(SmtpPhase::Data, yes, connection.message_iter(parts)).await;
        answer.map_err(|failure| SmtpFailure { ended, ..failure })
    }

    async fn say_goodbye(&self, connection: &mut AsyncSmtpConnection) {
        let _ = timeout(GOODBYE, self.smtp(SmtpPhase::Data, connection.quit())).await;
    }

    fn passed(&mut self, step: SmtpPhase, said: String) {
        self.steps.push((step, Ok(said)));
    }

    /// lettre itself waits forever.
    async fn limit<T>(
        &self,
        at: SmtpPhase,
        step: impl Future<Output = Result<T, SmtpFailure>>,
    ) -> Result<T, SmtpFailure> {
        let until = self.end.min(Instant::now() + self.server.timeout);
        let done = timeout_at(until, step).await;
        done.unwrap_or_else(|_| Err(SmtpFailure::new(at, "the server did not answer in time")))
    }

    async fn smtp<T>(
        &self,
        at: SmtpPhase,
        step: impl Future<Output = Result<T, SmtpError>>,
    ) -> Result<T, SmtpFailure> {
        self.limit(at, async { step.await.map_err(|wrong| SmtpFailure::of_smtp(at, &wrong)) }).await
    }

    /// Only an answer of the wanted kind: to lettre, each of both kinds is a yes to everything.
    async fn answer(
        &self,
        at: SmtpPhase,
        wanted: Severity,
        step: impl Future<Output = Result<Response, SmtpError>>,
    ) -> Result<Response, SmtpFailure> {
        let answer = self.smtp(at, step).await?;
        if answer.code().severity == wanted {
            return Ok(answer);
        }
        Err(SmtpFailure::new(at, format!("the server answered {}, out of order", status(&answer))))
    }
}

fn mail_options(
    connection: &AsyncSmtpConnection,
    from: &Address,
    to: &Address,
    raw: &[u8],
) -> Result<Vec<MailParameter>, SmtpFailure> {
    let takes = |extension| connection.server_info().supports_feature(extension);
    let is_ascii = |address: &Address| AsRef::<str>::as_ref(address).is_ascii();
    let mut options = Vec::new();
    if !(is_ascii(from) && is_ascii(to)) {
        if !takes(Extension::SmtpUtfEight) {
            let at = if is_ascii(from) { SmtpPhase::Recipient } else { SmtpPhase::Sender };
            let reason = "the server does not take addresses with such letters (SMTPUTF8)";
            return Err(SmtpFailure::refused(at, reason));
        }
        options.push(MailParameter::SmtpUtfEight);
    }
    if !raw.is_ascii() {
        if !takes(Extension::EightBitMime) {
            let reason = "the server does not take mails with such letters (8BITMIME)";
            return Err(SmtpFailure::refused(SmtpPhase::Data, reason));
        }
        options.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    Ok(options)
}

/// Servers disagree on whether CR or LF alone ends a line: what is within a mail to one is its end, and the next mail, to
/// another (SMTP smuggling).
fn is_of_whole_lines(raw: &[u8]) -> bool {
    let ends = raw.windows(2).filter(|pair| pair == b"\r\n").count();
    b"\r\n".iter().all(|end| raw.iter().filter(|byte| *byte == end).count() == ends)
}

struct SmtpFailure {
    at: SmtpPhase,
    /// Whether it is for now or for good, if that was said.
    answered: Option<Severity>,
    /// The mail's end may have been sent.
    ended: bool,
    reason: String,
    /// For a check alone; may be empty.
    said: String,
}

impl SmtpFailure {
    fn in_words(self) -> String {
        let Self { reason, said, .. } = self;
        if said.is_empty() { reason } else { format!("{reason}: {said}") }
    }

    fn new(at: SmtpPhase, reason: impl Into<String>) -> Self {
        Self { at, answered: None, ended: false, reason: reason.into(), said: String::new() }
    }

    fn refused(at: SmtpPhase, reason: &str) -> Self {
        Self { answered: Some(Severity::PermanentNegativeCompletion), ..Self::new(at, reason) }
    }

    fn of_tls(wrong: &io::Error) -> Self {
        use CertificateError::{
            Expired, ExpiredContext, NotValidForName, NotValidForNameContext, UnknownIssuer,
        };
        let reason = match wrong.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(TlsError::InvalidCertificate(certificate)) => match certificate {
                Expired | ExpiredContext { .. } => "the server's certificate has expired",
                NotValidForName | NotValidForNameContext { .. } => {
                    "the server's certificate is for another name"
                }
                UnknownIssuer => "the server's certificate is of an authority that is not trusted",
                _ => "the server's certificate is not accepted",
            },
            Some(TlsError::InvalidMessage(_)) => {
                "what the server sent is not TLS; at most ports smtp:// is right, and smtps:// at 465"
            }
            _ => "TLS could not be begun",
        };
        Self { said: one_line(&wrong.to_string()), ..Self::new(SmtpPhase::Tls, reason) }
    }

    fn of_smtp(at: SmtpPhase, wrong: &SmtpError) -> Self {
        let said = wrong.source().map(ToString::to_string).unwrap_or_default();
        let reason = match wrong.status() {
            Some(code) => format!("the server answered {}", with_enhanced(code.to_string(), &said)),
            None if wrong.is_client() => {
                "the server offers no way to sign in that is known here, PLAIN or LOGIN".to_owned()
            }
            None => "the server closed the connection, or gave no valid answer".to_owned(),
        };
        let answered = wrong.status().map(|code| code.severity);
        Self { answered, said: one_line(&said), ..Self::new(at, reason) }
    }
}

impl From<io::Error> for SmtpFailure {
    fn from(wrong: io::Error) -> Self {
        Self::new(SmtpPhase::Connect, format!("the server cannot be reached: {}", wrong.kind()))
    }
}

impl From<SmtpFailure> for MailDelivery {
    fn from(SmtpFailure { at, answered, ended, reason, .. }: SmtpFailure) -> Self {
        match (answered, at) {
            (None, _) if ended => Self::Unknown { reason },
            // What is refused for good before there is a recipient is about the sender or this machine.
            (Some(Severity::PermanentNegativeCompletion), SmtpPhase::Recipient | SmtpPhase::Data) => {
                Self::Refused { at, reason }
            }
            _ => Self::Deferred { at, reason },
        }
    }
}

fn in_words(answer: &Response) -> String {
    let words: Vec<&str> = answer.message().collect();
    one_line(&format!("{} {}", answer.code(), words.join(" ")))
}

/// An answer without its words.
fn status(answer: &Response) -> String {
    with_enhanced(answer.code().to_string(), answer.first_word().unwrap_or_default())
}

/// A status, with the more exact one (RFC 3463) if what was said begins with one.
fn with_enhanced(status: String, said: &str) -> String {
    let word = said.split(' ').next().unwrap_or_default();
    let form = word.len() <= 7 && word.bytes().all(|letter| letter == b'.' || letter.is_ascii_digit());
    let is_one = form && word.matches('.').count() == 2 && word.get(..1) == status.get(..1);
    if is_one { format!("{status} {word}") } else { status }
}

/// What a server said, as it can be shown: a line at most, without what would move the rest of it about.
fn one_line(said: &str) -> String {
    let moves = ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    let stays = |letter: &char| !letter.is_control() && !moves.iter().any(|range| range.contains(letter));
    said.chars().filter(stays).take(200).collect()
}

/// A connection, with what is read from it in the form that lettre takes.
#[derive(Debug)]
struct Wire<S> {
    stream: S,
    peer: SocketAddr,
    /// Comes before what is read: lettre waits for a greeting, and after STARTTLS there is none.
    first: &'static [u8],
    /// The most bytes that are read at once.
    at_once: usize,
    /// Letters of the line so far, and lines of the answer.
    column: usize,
    lines: usize,
}

impl<S> Wire<S> {
    fn new(stream: S, peer: SocketAddr) -> Self {
        Self { stream, peer, first: b"", at_once: 1024, column: 0, lines: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (mut bytes, before) = ([0; 1024], buf.filled().len());
        while buf.filled().len() == before {
            // Each byte becomes three at most; lettre's buffer has 8 KiB.
            let mut part = ReadBuf::new(&mut bytes[..self.at_once.min(buf.remaining() / 3)]);
            match mem::take(&mut self.first) {
                b"" => ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?,
                first => part.put_slice(first),
            }
            if part.filled().is_empty() {
                break;
            }
            // lettre takes no answer that is not UTF-8 or has a status alone, and panics at a line of blanks.
            for letter in String::from_utf8_lossy(part.filled()).chars() {
                match letter {
                    '\r' => continue,
                    '\n' if self.column == 3 => buf.put_slice(b" \r\n"),
                    '\n' => buf.put_slice(b"\r\n"),
                    _ if self.column == 4 && letter.is_whitespace() => buf.put_slice(b"_"),
                    _ => buf.put_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
                }
                let ended = letter == '\n';
                self.column = if ended { 0 } else { self.column + 1 };
                self.lines += usize::from(ended);
            }
            // With each line lettre reads the whole answer anew: seconds, without a pause, for 100 KB of short ones.
            if self.lines > MOST_LINES {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.lines = 0;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin + Debug> AsyncTokioStream for Wire<S> {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

#[cfg(test)]
mod tests;
