//! The connections to a config centre: one for requests, one that subscribes, and their thread.

use std::sync::Arc;
use std::time::Duration;

use nacos_sdk::api::config::{ConfigChangeListener, ConfigResponse, ConfigService, ConfigServiceBuilder};
use nacos_sdk::api::error::Error;
use nacos_sdk::api::props::ClientProps;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout, timeout_at};

use super::sign_in::NacosSignIn;
use crate::config::backend::WatchWaker;
use crate::config::nacos::NacosSettings;

/// How long a first connection may take, and how long an answer may take.
const CONNECTION: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(1);
/// The client library stores copies of documents on disk, and this cannot be turned off. Nothing can be
/// created below a device, so writing fails; the library continues without the copies.
const NOWHERE: &str = "/dev/null/gatehouse";

/// A document in the config centre.
pub(super) struct NacosDocument {
    pub content: String,
    /// As the server computes it; used in a swap.
    pub md5: String,
}

pub(super) struct NacosClient {
    settings: NacosSettings,
    sign_in: Option<Arc<NacosSignIn>>,
    /// None once it is dropped.
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

impl NacosClient {
    pub fn new(settings: NacosSettings) -> Result<Self, String> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(1).thread_name("limits-nacos").enable_all();
        let runtime = builder.build().map_err(|reason| format!("its thread cannot be started: {reason}"))?;
        let account = settings.account.clone();
        let sign_in =
            account.map(|account| NacosSignIn::new(&settings.server, account)).transpose()?.map(Arc::new);
        Ok(Self {
            settings,
            sign_in,
            runtime: Some(runtime),
            reader: NacosConnection::None,
            subscriber: NacosConnection::None,
        })
    }

    /// The current document, if there is one.
    pub fn get(&mut self) -> Result<Option<NacosDocument>, String> {
        let (data_id, group) = (self.settings.data_id.clone(), self.settings.group.clone());
        let answer = self.ask(|service| {
            let (data_id, group) = (data_id.clone(), group.clone());
            async move { service.get_config(data_id, group).await }
        });
        match answer {
            Ok(found) => {
                Ok(Some(NacosDocument { content: found.content().clone(), md5: found.md5().clone() }))
            }
            Err(NacosError::Answered(Error::ConfigNotFound(_))) => Ok(None),
            Err(error) => Err(self.describe(&error)),
        }
    }

    /// Writes a document if the server still has one with this MD5. Not every server compares.
    pub fn publish(&mut self, content: &str, md5: &str) -> Result<(), String> {
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

    /// Subscribes to changes. The library does not announce the first appearance of a document, so there must
    /// be one.
    pub fn listen(&mut self, waker: &WatchWaker) {
        let Some(runtime) = &self.runtime else { return };
        match std::mem::take(&mut self.subscriber) {
            NacosConnection::None => {
                let connecting = connect(self.settings.clone(), self.sign_in.clone());
                let (settings, waker) = (self.settings.clone(), waker.clone());
                self.subscriber = NacosConnection::Connecting(runtime.spawn(async move {
                    let service = connecting.await?;
                    let subscriber = Arc::new(NacosSubscriber(waker.clone()));
                    service.add_listener(settings.data_id, settings.group, subscriber).await?;
                    // Earlier changes are found by reading.
                    waker.changed();
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
        let sign_in = self.sign_in.as_ref().and_then(|sign_in| sign_in.failed());
        match (error, sign_in) {
            (_, Some(reason)) => format!("the sign-in at {server} failed: {reason}"),
            (NacosError::Silent, None) => format!("{server} does not answer"),
            (NacosError::Answered(error), None) => format!("{server}: {error}"),
            (NacosError::Broken, None) => format!("{server} sent an answer that the client cannot read"),
        }
    }
}

impl Drop for NacosClient {
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
            Ok(Err(died)) => Err(died.into()),
            Ok(Ok(Err(_))) => Err(NacosError::Silent),
            Ok(Ok(Ok(service))) => {
                *self = Self::Up(service.clone());
                Ok(service)
            }
        }
    }
}

/// Why there is no answer.
enum NacosError {
    Silent,
    Answered(Error),
    /// The library cannot handle every answer.
    Broken,
}

impl From<JoinError> for NacosError {
    fn from(_: JoinError) -> Self {
        Self::Broken
    }
}

/// On a separate task, so that a panic ends only that.
async fn answer<T: Send + 'static>(
    question: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, NacosError> {
    match timeout(ANSWER, tokio::spawn(question)).await {
        Err(_) => Err(NacosError::Silent),
        Ok(Err(died)) => Err(died.into()),
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

struct NacosSubscriber(WatchWaker);

impl ConfigChangeListener for NacosSubscriber {
    fn notify(&self, _: ConfigResponse) {
        self.0.changed();
    }
}
