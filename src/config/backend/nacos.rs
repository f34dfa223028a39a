//! A document in a Nacos-compatible config centre as the backend of the limits, for any number of instances.
//!
//! A swap names the MD5 of the document that it is based on. Nacos compares it and, if there is no document
//! yet, accepts only the first; r-nacos (0.8) accepts the MD5 and ignores it. So every swap reads before it
//! writes and again when it has settled, and is overtaken if there is another document then: of two at once
//! the last one to write is in force and the other is told, as long as a read and the following write take
//! less than [`SETTLE`]. If they take longer, and the server does not compare, a change that was confirmed
//! meanwhile may be overwritten; the log warns of this. And a document that is overtaken was in force for
//! that moment, whereas Nacos would not have accepted it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use nacos_sdk::api::config::{ConfigChangeListener, ConfigResponse, ConfigService, ConfigServiceBuilder};
use nacos_sdk::api::error::Error;
use nacos_sdk::api::plugin::{AuthContext, AuthPlugin, LoginIdentityContext, RequestResource};
use nacos_sdk::api::props::ClientProps;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use url::form_urlencoded::Serializer;

use super::{BackendRead, LimitsBackend, SwapResult, WatchControl};
use crate::config::backend_settings::{NacosAccount, NacosSettings};

/// How long a document must be unchanged until nobody who saw the one before can still be writing.
const SETTLE: Duration = Duration::from_millis(300);
/// How long it may take until a written document can be read: Nacos reads from a copy that follows its
/// database.
const SHOWN_WITHIN: Duration = Duration::from_millis(1200);
const BETWEEN_READS: Duration = Duration::from_millis(50);
/// The interval in which nothing must be found twice: a server that starts may not have its documents yet.
const EMPTY: Duration = Duration::from_millis(500);
/// The MD5 used when there is no document: no other document has it, and the field is required.
const MD5_OF_NOTHING: &str = "d41d8cd98f00b204e9800998ecf8427e";

pub(in crate::config) struct NacosBackend {
    settings: NacosSettings,
    poll: Duration,
    control: WatchControl,
    /// Whether a document was ever seen there.
    seen: bool,
    sign_in: Option<Arc<NacosSignIn>>,
    /// The runtime; None once it is dropped.
    runtime: Option<Runtime>,
    reader: NacosConnection,
    /// Separate from the reader, because a connection that subscribes to a document answers requests for it
    /// from what it last received.
    subscriber: NacosConnection,
}

/// A connection. Once connected, the library keeps it for ever; it must not be created often.
#[derive(Default)]
enum NacosConnection {
    #[default]
    None,
    Connecting(JoinHandle<Result<ConfigService, Error>>),
    Up(ConfigService),
}

impl NacosBackend {
    pub fn new(settings: NacosSettings, poll: Duration, control: WatchControl) -> std::io::Result<Self> {
        let account = settings.account.clone();
        let sign_in = account.map(|account| NacosSignIn::new(&settings.server, account)).transpose()?;
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("limits-nacos").enable_all().build()?;
        Ok(Self {
            settings,
            poll,
            control,
            seen: false,
            sign_in: sign_in.map(Arc::new),
            runtime: Some(runtime),
            reader: NacosConnection::None,
            subscriber: NacosConnection::None,
        })
    }

    /// Nothing must be found twice, because then the document in force here would be written.
    fn find(&mut self) -> Result<BackendRead, String> {
        match self.get()? {
            None => {
                std::thread::sleep(EMPTY);
                self.get().map(found)
            }
            document => Ok(found(document)),
        }
    }

    /// What became of a document that was sent; `refused` is set if the server said that it did not accept
    /// it.
    fn settled(
        &mut self,
        before: &BackendRead,
        next: &str,
        refused: Option<String>,
    ) -> Result<SwapResult, String> {
        std::thread::sleep(SETTLE);
        let deadline = Instant::now() + SHOWN_WITHIN;
        loop {
            let reading = self.get().map(found);
            match &reading {
                Ok(BackendRead::Bytes(bytes)) if bytes == next.as_bytes() => return Ok(SwapResult::Done),
                Ok(found) if found != before => return Ok(SwapResult::Overtaken(found.clone())),
                _ => {}
            }
            if Instant::now() > deadline {
                return Err(match (refused, reading) {
                    (Some(reason), _) | (None, Err(reason)) => reason,
                    (None, Ok(_)) => format!("{} accepted it, but does not return it", self.settings.server),
                });
            }
            std::thread::sleep(BETWEEN_READS);
        }
    }

    fn get(&mut self) -> Result<Option<ConfigResponse>, String> {
        let (data_id, group) = (self.settings.data_id.clone(), self.settings.group.clone());
        let answer = self.ask(|service| {
            let (data_id, group) = (data_id.clone(), group.clone());
            async move { service.get_config(data_id, group).await }
        });
        match answer {
            Ok(found) => Ok(Some(found)),
            Err(NacosError::Answered(Error::ConfigNotFound(_))) => Ok(None),
            Err(error) => Err(self.describe(&error)),
        }
    }

    /// Writes a document if the server still has one with this MD5. Not every server compares.
    fn publish(&mut self, content: &str, md5: &str) -> Result<(), String> {
        let (data_id, group) = (self.settings.data_id.clone(), self.settings.group.clone());
        let answer = self.ask(|service| {
            let (data_id, group, content, md5) =
                (data_id.clone(), group.clone(), content.to_owned(), md5.to_owned());
            let kind = Some("toml".to_owned());
            async move { service.publish_config_cas(data_id, group, content, kind, md5).await }
        });
        match answer {
            Ok(true) => Ok(()),
            Ok(false) => Err("the server did not accept it".to_owned()),
            Err(trouble) => Err(self.describe(&trouble)),
        }
    }

    /// Asks, and asks again with another token if the server refused the request.
    fn ask<T, F>(&mut self, question: impl Fn(ConfigService) -> F) -> Result<T, NacosError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let Some(runtime) = &self.runtime else { return Err(NacosError::Silent) };
        let (reader, settings, sign_in) = (&mut self.reader, &self.settings, &self.sign_in);
        runtime.block_on(async {
            let service = reader.up(settings, sign_in.as_ref()).await?;
            match (answer(question(service.clone())).await, sign_in) {
                (Err(NacosError::Answered(error)), Some(sign_in)) if is_refusal(&error) => {
                    if sign_in.renew().await {
                        answer(question(service)).await
                    } else {
                        Err(NacosError::Answered(error))
                    }
                }
                (answer, _) => answer,
            }
        })
    }

    fn describe(&self, error: &NacosError) -> String {
        let server = &self.settings.server;
        let sign_in = self.sign_in.as_ref().and_then(|sign_in| sign_in.state.lock().failed.clone());
        match (error, sign_in) {
            (_, Some(reason)) => format!("the sign-in at {server} failed: {reason}"),
            (NacosError::Silent, None) => format!("{server} does not answer"),
            (NacosError::Answered(error), None) => format!("{server}: {error}"),
            (NacosError::Broken, None) => format!("{server} sent an answer that the client cannot read"),
        }
    }
}

impl LimitsBackend for NacosBackend {
    fn read(&mut self, _: Option<&BackendRead>) -> BackendRead {
        let found = self.find().unwrap_or_else(BackendRead::Down);
        if !self.seen && matches!(found, BackendRead::Bytes(_)) {
            self.seen = true;
            self.listen();
        }
        found
    }

    fn swap(&mut self, expected: &BackendRead, next: &str) -> Result<SwapResult, String> {
        let started = Instant::now();
        let stands = self.get().map_err(|reason| {
            let place = self.settings.place();
            format!("{} cannot be written: {reason}; try again once it answers", place.display())
        })?;
        // The server computes it like this.
        let md5 =
            stands.as_ref().map_or_else(|| MD5_OF_NOTHING.to_owned(), |document| document.md5().clone());
        let stands = found(stands);
        if stands != *expected {
            return Ok(SwapResult::Overtaken(stands));
        }
        let refused = self.publish(next, &md5).err();
        let took = started.elapsed();
        if took > SETTLE && refused.is_none() {
            tracing::warn!(place = %self.settings.place().display(), ?took, "the config centre is slow; if it does not compare versions, this save may have overwritten another one: see the history of the limits");
        }
        self.settled(expected, next, refused).map_err(|reason| {
            format!(
                "it is not certain that {} was written: {reason}; check whether it is in force, and save it again if it is not",
                self.settings.place().display()
            )
        })
    }

    /// The library does not announce the first appearance of a document, so there must be one.
    fn listen(&mut self) {
        let Some(runtime) = self.runtime.as_ref().filter(|_| self.seen) else { return };
        match std::mem::take(&mut self.subscriber) {
            NacosConnection::None => {
                let connecting = connect(self.settings.clone(), self.sign_in.clone());
                let (settings, control) = (self.settings.clone(), self.control.clone());
                self.subscriber = NacosConnection::Connecting(runtime.spawn(async move {
                    let service = connecting.await?;
                    let subscriber = Arc::new(NacosSubscriber(control.clone()));
                    service.add_listener(settings.data_id, settings.group, subscriber).await?;
                    // Earlier changes are found by reading.
                    control.changed();
                    Ok(service)
                }));
            }
            // If it failed it is tried again before the next wait.
            NacosConnection::Connecting(made) if made.is_finished() => {
                if let Ok(Ok(service)) = runtime.block_on(made) {
                    self.subscriber = NacosConnection::Up(service);
                }
            }
            line => self.subscriber = line,
        }
    }

    fn poll(&self) -> Duration {
        self.poll
    }
}

fn found(document: Option<ConfigResponse>) -> BackendRead {
    document
        .map_or(BackendRead::Missing, |document| BackendRead::Bytes(document.content().clone().into_bytes()))
}

/// How long a first connection may take, and how long an answer may take.
const CONNECTION: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(1);
/// The client library stores copies of documents on disk, and this cannot be turned off. Nothing can be
/// created below a device, so writing fails; the library continues without the copies.
const NOWHERE: &str = "/dev/null/gatehouse";

impl Drop for NacosBackend {
    /// Without waiting for a name look-up that may still run.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl NacosConnection {
    async fn up(
        &mut self,
        settings: &NacosSettings,
        sign_in: Option<&Arc<NacosSignIn>>,
    ) -> Result<ConfigService, NacosError> {
        let mut making = match std::mem::take(self) {
            Self::Up(service) => {
                *self = Self::Up(service.clone());
                return Ok(service);
            }
            Self::Connecting(making) => making,
            Self::None => tokio::spawn(connect(settings.clone(), sign_in.cloned())),
        };
        match timeout_at(Instant::now() + CONNECTION, &mut making).await {
            // It continues by itself; the next call checks its state.
            Err(_) => {
                *self = Self::Connecting(making);
                Err(NacosError::Silent)
            }
            Ok(Err(_)) => Err(NacosError::Broken),
            Ok(Ok(Err(_))) => Err(NacosError::Silent),
            Ok(Ok(Ok(service))) => {
                *self = Self::Up(service.clone());
                Ok(service)
            }
        }
    }
}

enum NacosError {
    Silent,
    Answered(Error),
    /// The library cannot handle every answer.
    Broken,
}

/// On a separate task, so that a panic ends only that.
async fn answer<T: Send + 'static>(
    question: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, NacosError> {
    match timeout(ANSWER, tokio::spawn(question)).await {
        Err(_) => Err(NacosError::Silent),
        Ok(Err(_)) => Err(NacosError::Broken),
        Ok(Ok(answer)) => answer.map_err(|error| match error {
            Error::TonicGrpcTransport(_) | Error::TonicGrpcStatus(_) | Error::GrpcBufferRequest(_) => {
                NacosError::Silent
            }
            other => NacosError::Answered(other),
        }),
    }
}

const fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::ErrResult(_) | Error::ErrResponse(..))
}

async fn connect(settings: NacosSettings, sign_in: Option<Arc<NacosSignIn>>) -> Result<ConfigService, Error> {
    let NacosSettings { server, namespace, .. } = settings;
    let client = ClientProps::new()
        // Variables for other programs' clients must not configure this one.
        .env_first(false)
        .server_addr(server)
        .namespace(namespace)
        .app_name("gatehouse")
        .cache_dir(NOWHERE);
    let builder = ConfigServiceBuilder::new(client);
    match sign_in {
        Some(sign_in) => builder.with_auth_plugin(sign_in).build().await,
        None => builder.build().await,
    }
}

struct NacosSubscriber(WatchControl);

impl ConfigChangeListener for NacosSubscriber {
    fn notify(&self, _: ConfigResponse) {
        self.0.changed();
    }
}

/// How long connecting and the answer may take together.
const PATIENCE: Duration = Duration::from_secs(1);
/// The shortest interval between two tries: a server that refuses could take more for an attack.
const BETWEEN: Duration = Duration::from_secs(10);
const LONGEST: usize = 64 * 1024;

/// The client library's own plugin writes the password into the URL, and the URL into the log.
struct NacosSignIn {
    http: reqwest::Client,
    url: String,
    account: NacosAccount,
    state: Mutex<NacosSignInState>,
}

#[derive(Default)]
struct NacosSignInState {
    token: Option<SecretString>,
    renew_at: Option<Instant>,
    tried_at: Option<Instant>,
    failed: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct GrantedToken {
    access_token: String,
    /// In seconds.
    token_ttl: u64,
}

impl NacosSignIn {
    pub fn new(server: &str, account: NacosAccount) -> std::io::Result<Self> {
        // The part of the program that uses TLS first selects the crypto provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .timeout(PATIENCE)
            // It is used from the threads of two runtimes, and a connection belongs to one.
            .pool_max_idle_per_host(0)
            // A redirect must not send the password to somebody else.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(std::io::Error::other)?;
        let url = format!("http://{server}/nacos/v1/auth/login");
        Ok(Self { http, url, account, state: Mutex::default() })
    }

    /// Signs in again, whatever the token says: a server that was set up again knows none of its old ones.
    /// False if it was tried a moment ago.
    pub async fn renew(&self) -> bool {
        let now = Instant::now();
        {
            let mut state = self.state.lock();
            if state.tried_at.is_some_and(|at| now < at + BETWEEN) {
                return false;
            }
            state.tried_at = Some(now);
        }
        let granted = self.ask().await;
        let mut state = self.state.lock();
        match granted {
            Ok(GrantedToken { access_token, token_ttl }) => {
                state.token = Some(access_token.into());
                state.renew_at = Some(now + Duration::from_secs(token_ttl / 2));
                state.failed = None;
            }
            Err(reason) => state.failed = Some(reason),
        }
        true
    }

    /// Read each time, so that a replaced secret is used from then on.
    fn form(&self) -> Result<String, String> {
        let mut form = Serializer::new(String::new());
        for (name, secret) in [("username", &self.account.username), ("password", &self.account.password)] {
            form.append_pair(name, secret.read().map_err(|error| error.to_string())?.expose_secret());
        }
        Ok(form.finish())
    }

    async fn ask(&self) -> Result<GrantedToken, String> {
        let request = self.http.post(&self.url).body(self.form()?);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let no_answer = |wrong: reqwest::Error| format!("no answer ({})", wrong.without_url());
        let mut answer = request.send().await.map_err(no_answer)?;
        if !answer.status().is_success() {
            return Err(format!("it was refused ({})", answer.status()));
        }
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(no_answer)? {
            body.extend_from_slice(&part);
            if body.len() > LONGEST {
                break;
            }
        }
        // The answer is not shown, because it may contain a token.
        serde_json::from_slice(&body).map_err(|_| "the answer contains no token".to_owned())
    }
}

impl AuthPlugin for NacosSignIn {
    /// Called at the start of a connection, and every half a minute.
    fn login<'s, 'f>(
        &'s self,
        _: Arc<Vec<String>>,
        _: Arc<AuthContext>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async {
            let holds = self.state.lock().renew_at.is_some_and(|at| Instant::now() < at);
            if !holds {
                self.renew().await;
            }
        })
    }

    fn get_login_identity(&self, _: RequestResource) -> LoginIdentityContext {
        let context = LoginIdentityContext::default();
        match &self.state.lock().token {
            Some(token) => context.add_context("accessToken", token.expose_secret()),
            None => context,
        }
    }
}
