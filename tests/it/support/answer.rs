//! A client that only reaches this machine, and what it is answered.

use std::time::Duration;

/// A client that only reaches this machine.
pub fn http() -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The server closes an idle connection after five seconds; a call sent at that moment would be lost.
    let builder = reqwest::Client::builder().no_proxy().pool_idle_timeout(Duration::from_secs(2));
    // Reading the system's certificates takes a tenth of a second, for each client.
    builder.tls_certs_only([])
}

/// A complete answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    /// Null if the body is not JSON.
    pub body: serde_json::Value,
    pub text: String,
}

impl Answer {
    pub async fn read(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = String::from_utf8_lossy(&response.bytes().await.unwrap()).into_owned();
        Self { status, headers, body: serde_json::from_str(&text).unwrap_or_default(), text }
    }

    /// The name of the problem, if it is one.
    pub fn problem(&self) -> &str {
        self.body["type"].as_str().and_then(|kind| kind.strip_prefix("/problems/")).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The first value of a form's hidden field.
    pub fn hidden(&self, field: &str) -> Option<String> {
        let lead = format!("name=\"{field}\" value=\"");
        let (_, rest) = self.text.split_once(&lead)?;
        rest.split('"').next().map(str::to_owned)
    }

    pub fn csrf_token(&self) -> String {
        self.hidden("csrf_token").unwrap_or_else(|| panic!("no form in {}", self.text))
    }

    /// The `Set-Cookie` line of a cookie.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let lines = self.headers.get_all("set-cookie").iter().filter_map(|line| line.to_str().ok());
        lines.into_iter().find(|line| line.split('=').next() == Some(name))
    }
}
