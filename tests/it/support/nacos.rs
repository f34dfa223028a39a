//! A private r-nacos on free ports, with its data in a folder of its own, killed when dropped.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nacos_sdk::api::config::{ConfigService, ConfigServiceBuilder};
use nacos_sdk::api::error::Error;
use nacos_sdk::api::props::ClientProps;
use tokio::sync::OnceCell;

const GROUP: &str = "DEFAULT_GROUP";
const DATA_ID: &str = "gatehouse.toml";

pub struct NacosServer {
    process: Child,
    pub port: u16,
    folder: tempfile::TempDir,
    guarded: bool,
    /// Another one's: a person at the console, a script.
    client: OnceCell<ConfigService>,
}

impl NacosServer {
    pub async fn start() -> Self {
        Self::on(free_ports(), tempfile::tempdir().unwrap(), false).await
    }

    /// Wants a sign-in, as `gate` with the password `keeper`.
    pub async fn guarded() -> Self {
        Self::on(free_ports(), tempfile::tempdir().unwrap(), true).await
    }

    async fn on(port: u16, folder: tempfile::TempDir, guarded: bool) -> Self {
        let program = std::env::var_os("RNACOS").unwrap_or_else(|| "rnacos".into());
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RNACOS")) {
            command.env_remove(name);
        }
        command.env("RNACOS_DATA_DIR", folder.path()).current_dir(folder.path());
        command.env("RNACOS_SDK_HOST", "127.0.0.1").env("RNACOS_CONSOLE_HOST", "127.0.0.1");
        command.env("RNACOS_HTTP_PORT", port.to_string()).env("RNACOS_HTTP_WORKERS", "1");
        command.env("RNACOS_ENABLE_OPEN_API_AUTH", guarded.to_string());
        command.env("RNACOS_INIT_ADMIN_USERNAME", "gate").env("RNACOS_INIT_ADMIN_PASSWORD", "keeper");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("rnacos (scripts/test installs it)");
        let server = Self { process, port, folder, guarded, client: OnceCell::new() };
        server.wait_until_up().await;
        server
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `kill -9`, without a word to its clients.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Where it was, with what it had.
    pub async fn start_again(mut self) -> Self {
        self.kill();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        Self::on(self.port, folder, self.guarded).await
    }

    async fn client(&self) -> Result<&ConfigService, Error> {
        let client = ClientProps::new().env_first(false).server_addr(self.address());
        let client = client.cache_dir(self.folder.path().join("client"));
        self.client.get_or_try_init(|| ConfigServiceBuilder::new(client).build()).await
    }

    pub async fn get(&self) -> Option<String> {
        let client = self.client().await.unwrap();
        match client.get_config(DATA_ID.to_owned(), GROUP.to_owned()).await {
            Ok(found) => Some(found.content().clone()),
            Err(Error::ConfigNotFound(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub async fn set(&self, document: &str) {
        let client = self.client().await.unwrap();
        let (data_id, group) = (DATA_ID.to_owned(), GROUP.to_owned());
        assert!(client.publish_config(data_id, group, document.to_owned(), None).await.unwrap());
    }

    pub async fn remove(&self) {
        let client = self.client().await.unwrap();
        assert!(client.remove_config(DATA_ID.to_owned(), GROUP.to_owned()).await.unwrap());
    }

    async fn wait_until_up(&self) {
        let health = format!("http://127.0.0.1:{}/health", self.port);
        let http = super::app::http().timeout(Duration::from_millis(500)).build().unwrap();
        for _ in 0..2000 {
            if http.get(&health).send().await.is_ok_and(|answer| answer.status().is_success())
                && self.client().await.is_ok()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // a process that starts has no clock to advance
        }
        panic!("rnacos did not come up on port {}", self.port);
    }
}

impl Drop for NacosServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A port that was free a moment ago, as are those for gRPC, a thousand above, and the console, two thousand.
fn free_ports() -> u16 {
    loop {
        let Ok(first) = TcpListener::bind(("127.0.0.1", 0)) else { continue };
        let port = first.local_addr().unwrap().port();
        let free = |above| {
            let port = port.checked_add(above);
            port.is_some_and(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        };
        if free(1000) && free(2000) {
            return port;
        }
    }
}
