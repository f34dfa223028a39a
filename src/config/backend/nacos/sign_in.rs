//! The sign-in at a Nacos server: a token by HTTP, renewed before it expires.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nacos_sdk::api::plugin::{AuthContext, AuthPlugin, LoginIdentityContext, RequestResource};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;
use url::form_urlencoded::Serializer;

use crate::config::nacos::NacosAccount;

/// How long connecting and the answer may take together.
const PATIENCE: Duration = Duration::from_secs(1);
/// The shortest interval between two tries: a server that refuses could take more for an attack.
const BETWEEN: Duration = Duration::from_secs(10);
/// The longest answer of a server, in bytes.
const LONGEST: usize = 64 * 1024;

/// The client library's own plugin writes the password into the URL, and the URL into the log.
pub(super) struct NacosSignIn {
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
    pub fn new(server: &str, account: NacosAccount) -> Result<Self, String> {
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
            .map_err(|wrong| wrong.without_url().to_string())?;
        let url = format!("http://{server}/nacos/v1/auth/login");
        Ok(Self { http, url, account, state: Mutex::default() })
    }

    /// Why there is no token.
    pub fn failed(&self) -> Option<String> {
        self.with(|state| state.failed.clone())
    }

    /// Signs in again, whatever the token says: a server that was set up again knows none of its old ones.
    /// False if it was tried a moment ago.
    pub async fn renew(&self) -> bool {
        let now = Instant::now();
        let soon = self.with(|state| {
            let soon = state.tried_at.is_some_and(|at| now < at + BETWEEN);
            if !soon {
                state.tried_at = Some(now);
            }
            soon
        });
        if soon {
            return false;
        }
        let granted = self.ask().await;
        self.with(|state| match granted {
            Ok(GrantedToken { access_token, token_ttl }) => {
                *state = NacosSignInState {
                    token: Some(access_token.into()),
                    renew_at: Some(now + Duration::from_secs(token_ttl / 2)),
                    tried_at: Some(now),
                    failed: None,
                };
            }
            Err(reason) => state.failed = Some(reason),
        });
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

    fn with<T>(&self, read: impl FnOnce(&mut NacosSignInState) -> T) -> T {
        read(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
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
            let now = Instant::now();
            let holds = self.with(|state| state.renew_at.is_some_and(|at| now < at));
            if !holds {
                self.renew().await;
            }
        })
    }

    fn get_login_identity(&self, _: RequestResource) -> LoginIdentityContext {
        let token = self.with(|state| state.token.as_ref().map(|token| token.expose_secret().to_owned()));
        let context = LoginIdentityContext::default();
        match token {
            Some(token) => context.add_context("accessToken", token),
            None => context,
        }
    }
}
