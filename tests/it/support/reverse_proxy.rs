//! nginx, Caddy and HAProxy with the files that `gatehouse gate print` prints, in front of an application that shows what
//! it was sent.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::authority::Authority;
use super::fast_cgi;
use super::ports::free_port;
use super::redis::until;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    Nginx,
    Caddy,
    /// In front of an application that speaks FastCGI.
    CaddyToFastCgi,
    /// With the file of docker-compose.yml, without TLS.
    CaddyOfCompose,
    Haproxy,
}

/// A proxy for these names, at a port that is chosen before Gatehouse is told of it.
pub struct ProxyPlan {
    pub kind: ProxyKind,
    pub port: u16,
    /// Of the applications: `wiki.example`.
    names: &'static [&'static str],
}

/// A running proxy; ended when dropped.
pub struct ReverseProxy {
    child: Child,
    pub port: u16,
    connector: TlsConnector,
    _folder: tempfile::TempDir,
}

impl ProxyPlan {
    pub fn new(kind: ProxyKind, names: &'static [&'static str]) -> Self {
        Self { kind, port: free_port(), names }
    }

    /// A name as browsers send it.
    pub fn host(&self, name: &str) -> String {
        format!("{name}:{}", self.port)
    }

    /// `config` is that of Gatehouse, and `app` the port at which every application listens.
    pub fn start(&self, authority: &Authority, config: &str, app: u16) -> ReverseProxy {
        let folder = tempfile::tempdir().unwrap();
        for name in ["id.example"].iter().chain(self.names) {
            let [certificate, key] = authority.certificate(name);
            let read = |file: &tempfile::NamedTempFile| std::fs::read_to_string(file.path()).unwrap();
            let (certificate, key) = (read(&certificate), read(&key));
            std::fs::create_dir_all(folder.path().join("certs")).unwrap();
            for (file, text) in [
                (format!("{name}.pem"), &certificate),
                (format!("{name}.key"), &key),
                (format!("certs/{name}.pem"), &format!("{certificate}{key}")),
            ] {
                std::fs::write(folder.path().join(file), text).unwrap();
            }
        }
        let print = |file: &str| {
            let config = written(folder.path(), "gatehouse.toml", config);
            printed(file, &config).replace("127.0.0.1:3000", &format!("127.0.0.1:{app}"))
        };
        let mut command = match self.kind {
            ProxyKind::Nginx => nginx(folder.path(), &print("nginx")),
            ProxyKind::Caddy => caddy(folder.path(), &print("caddy")),
            ProxyKind::CaddyToFastCgi => {
                let (text, to_app) = (print("caddy"), format!("reverse_proxy 127.0.0.1:{app} {{\n"));
                assert!(text.contains(&to_app), "{text}");
                caddy(folder.path(), &text.replace(&to_app, &format!("{to_app}transport fastcgi\n")))
            }
            ProxyKind::CaddyOfCompose => self.caddy_of_compose(folder.path(), config, app),
            ProxyKind::Haproxy => haproxy(folder.path(), &print("haproxy"), &print("haproxy-lua")),
        };
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.kind));
        let (port, log) = (self.port, folder.path().join("log"));
        until("the proxy listens", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("it ended ({status}): {}", std::fs::read_to_string(&log).unwrap());
            }
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        ReverseProxy { child, port, connector: connector(authority), _folder: folder }
    }

    /// The file that docker-compose.yml mounts, with our ports.
    fn caddy_of_compose(&self, folder: &Path, config: &str, app: u16) -> Command {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/caddy/compose.Caddyfile");
        let bind = config.split("bind = '").nth(1).unwrap().split('\'').next().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.replace("gatehouse:8080", bind).replace("wiki:3000", &format!("127.0.0.1:{app}"));
        caddy(folder, &text.replace(".localhost:8000", &format!(".localhost:{}", self.port)))
    }
}

/// What the program prints for a configuration.
pub fn printed(file: &str, config: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatehouse"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GATEHOUSE")) {
        command.env_remove(name);
    }
    let output = command.args(["gate", "print", file, "--config"]).arg(config).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn nginx(folder: &Path, printed: &str) -> Command {
    let here = folder.display();
    let text =
        printed.replace("/etc/ssl/", &format!("{here}/")).replace("    listen ", "    listen 127.0.0.1:");
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {here}/{kind};\n"))
        .concat();
    let whole = format!(
        "daemon off;\nmaster_process off;\npid {here}/pid;\nerror_log stderr;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}{text}}}\n"
    );
    let file = written(folder, "nginx.conf", &whole);
    let mut command = Command::new(program("nginx"));
    command.arg("-p").arg(folder).arg("-e").arg("stderr").arg("-c").arg(file);
    command
}

/// With certificates of our own.
fn caddy(folder: &Path, printed: &str) -> Command {
    let mut text = "{\n\tadmin off\n\tauto_https off\n}\n".to_owned();
    for line in printed.lines() {
        match line.strip_suffix(" {").filter(|line| !line.starts_with(['\t', '#'])) {
            Some(site) if site.starts_with("http://") => text += &format!("{line}\n\tbind 127.0.0.1\n"),
            Some(site) => {
                let files = format!("{}/{}", folder.display(), site.split(':').next().unwrap());
                text += &format!("https://{line}\n\tbind 127.0.0.1\n\ttls {files}.pem {files}.key\n");
            }
            None => text += &format!("{line}\n"),
        }
    }
    let file = written(folder, "Caddyfile", &text);
    let mut command = Command::new(program("caddy"));
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
    command.env("HOME", folder).env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
    command
}

fn haproxy(folder: &Path, printed: &str, script: &str) -> Command {
    let lua = written(folder, "gatehouse.lua", script);
    let text = printed
        .replace("/etc/haproxy/gatehouse.lua", &lua.display().to_string())
        .replace("/etc/haproxy/certs/", &format!("{}/certs/", folder.display()))
        .replace("bind :", "bind 127.0.0.1:");
    let file = written(folder, "haproxy.cfg", &text);
    let mut command = Command::new(program("haproxy"));
    command.arg("-f").arg(file);
    command
}

impl ReverseProxy {
    /// The same for a connection that is kept: returns once an answer with its length is whole.
    pub async fn raw_once(&self, name: &'static str, request: &str) -> String {
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let mut tls = self.connector.connect(ServerName::try_from(name).unwrap(), tcp).await.unwrap();
        tls.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while matches!(tls.read_buf(&mut answer).await, Ok(1..)) {
            let text = String::from_utf8_lossy(&answer).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.to_ascii_lowercase().lines().find_map(|line| {
                line.strip_prefix("content-length:").and_then(|length| length.trim().parse::<usize>().ok())
            });
            if length.is_none_or(|length| body.len() >= length) {
                break;
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends a request to the letter, over TLS for this name; returns the whole answer.
    pub async fn raw(&self, name: &'static str, request: &str) -> String {
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let mut tls = self.connector.connect(ServerName::try_from(name).unwrap(), tcp).await.unwrap();
        tls.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A peer that ends without a farewell has sent all the same; one that has upgraded does not end.
        while matches!(tls.read_buf(&mut answer).await, Ok(1..)) && !answer.ends_with(UPGRADED) {}
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for ReverseProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the application says first over a connection that it has upgraded.
const UPGRADED: &[u8] = b"hello over a socket";

/// An application that answers with the request as it was sent, as plain text; to an upgrade with 101.
pub struct EchoApp {
    pub port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl EchoApp {
    pub async fn start() -> Self {
        Self::answering(echo).await
    }

    /// One that a proxy speaks FastCGI with: it answers with its variables, `NAME=value` in a line each.
    pub async fn fast_cgi() -> Self {
        Self::answering(fast_cgi::echo).await
    }

    async fn answering<F>(answer: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
        Self { port, task }
    }
}

impl Drop for EchoApp {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn echo(mut stream: TcpStream) {
    let mut got = Vec::new();
    let head = loop {
        if let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if !matches!(stream.read_buf(&mut got).await, Ok(1..)) {
            return;
        }
    };
    let text = String::from_utf8_lossy(&got[..head]).into_owned();
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    while got.len() < head + length.unwrap_or(0) {
        if !matches!(stream.read_buf(&mut got).await, Ok(1..)) {
            return;
        }
    }
    let upgrades = text.lines().any(|line| line.to_ascii_lowercase().starts_with("upgrade: websocket"));
    let answer = if upgrades {
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n\r\nhello over a socket"
            .to_owned()
    } else {
        let body = String::from_utf8_lossy(&got);
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    };
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Debian keeps some of them where only root looks.
fn program(name: &str) -> PathBuf {
    let below = Path::new("/usr/sbin").join(name);
    if below.exists() { below } else { PathBuf::from(name) }
}

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file
}

fn connector(authority: &Authority) -> TlsConnector {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_file(authority.file.path()).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}
