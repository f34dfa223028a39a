//! A private r-nacos on free ports, with its data in a folder of its own, killed when dropped.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use reqwest::Method;

use super::ports::free_ports;

const USER: &str = "gate";
const PASSWORD: &str = "keeper";
/// HTTP, gRPC and the console: their distances from the first port.
const PORTS: [u16; 3] = [0, 1000, 2000];

pub struct NacosServer {
    process: Child,
    pub port: u16,
    folder: tempfile::TempDir,
    http: reqwest::Client,
    /// If it requires a sign-in.
    token: Option<String>,
}

impl NacosServer {
    pub async fn start() -> Self {
        Self::fresh(false).await
    }

    /// Requires a sign-in, as `gate` with the password `keeper`.
    pub async fn guarded() -> Self {
        Self::fresh(true).await
    }

    async fn fresh(guarded: bool) -> Self {
        // In about one start of six on an empty folder, version 0.8.8 accepts writes and stores nothing.
        for _ in 0..8 {
            let mut server = Self::spawn(free_ports(&PORTS), tempfile::tempdir().unwrap(), guarded);
            if server.is_up(guarded).await {
                return server;
            }
        }
        panic!("rnacos does not keep what is written")
    }

    fn spawn(port: u16, folder: tempfile::TempDir, guarded: bool) -> Self {
        let program = std::env::var_os("RNACOS").unwrap_or_else(|| "rnacos".into());
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RNACOS")) {
            command.env_remove(name);
        }
        command.env("RNACOS_DATA_DIR", folder.path()).current_dir(folder.path());
        command.env("RNACOS_SDK_HOST", "127.0.0.1").env("RNACOS_CONSOLE_HOST", "127.0.0.1");
        command.env("RNACOS_HTTP_PORT", port.to_string()).env("RNACOS_HTTP_WORKERS", "1");
        command.env("RNACOS_ENABLE_OPEN_API_AUTH", guarded.to_string());
        command.env("RNACOS_INIT_ADMIN_USERNAME", USER).env("RNACOS_INIT_ADMIN_PASSWORD", PASSWORD);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("rnacos (scripts/test installs it)");
        let http = super::app::http().timeout(Duration::from_secs(5)).build().unwrap();
        Self { process, port, folder, http, token: None }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `kill -9`, without a word to its clients.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// On the same ports, with its data.
    pub async fn start_again(mut self) -> Self {
        self.kill();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        let mut server = Self::spawn(self.port, folder, self.token.is_some());
        assert!(server.is_up(self.token.is_some()).await, "rnacos does not come back");
        server
    }

    pub async fn get(&self) -> Option<String> {
        self.read("gatehouse.toml").await.unwrap()
    }

    pub async fn set(&self, document: &str) {
        let answer = self.call(Method::POST, "gatehouse.toml", Some(document)).await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
    }

    pub async fn remove(&self) {
        let answer = self.call(Method::DELETE, "gatehouse.toml", None).await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
    }

    async fn read(&self, data_id: &str) -> reqwest::Result<Option<String>> {
        let answer = self.call(Method::GET, data_id, None).await?;
        match answer.status().as_u16() {
            404 => Ok(None),
            _ => answer.error_for_status()?.text().await.map(Some),
        }
    }

    /// Through the older interface, which the app does not use.
    async fn call(
        &self,
        method: Method,
        data_id: &str,
        content: Option<&str>,
    ) -> reqwest::Result<reqwest::Response> {
        let url = format!("http://{}/nacos/v1/cs/configs", self.address());
        let mut query = vec![("dataId", data_id), ("group", "DEFAULT_GROUP")];
        query.extend(self.token.as_deref().map(|token| ("accessToken", token)));
        let url = url::Url::parse_with_params(&url, query).expect("a URL");
        let request = self.http.request(method, url);
        match content {
            Some(content) => request.form(&[("content", content)]).send().await,
            None => request.send().await,
        }
    }

    /// Whether it stores what is written, once it answers.
    async fn is_up(&mut self, guarded: bool) -> bool {
        for _ in 0..1000 {
            if self.sign_in(guarded).await && self.call(Method::POST, "probe", Some("x")).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // a process that starts has no clock to advance
        }
        for _ in 0..50 {
            if self.read("probe").await.is_ok_and(|found| found.is_some()) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    async fn sign_in(&mut self, guarded: bool) -> bool {
        if !guarded {
            return true;
        }
        let url = format!("http://{}/nacos/v1/auth/login", self.address());
        let form = [("username", USER), ("password", PASSWORD)];
        let Ok(answer) = self.http.post(url).form(&form).send().await else { return false };
        let Ok(body) = answer.json::<serde_json::Value>().await else { return false };
        self.token = body["accessToken"].as_str().map(str::to_owned);
        self.token.is_some()
    }
}

impl Drop for NacosServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
