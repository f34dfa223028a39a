//! The real binary, run in its own folder.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::app::Client;
use super::ports::free_port;

/// Longer than any loaded machine takes; a test that works never waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The folder and the variables with which it is started.
pub struct Home {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
    user: Option<u32>,
    files: Option<u32>,
    pub port: u16,
}

/// The user with the fewest permissions: "nobody" on Linux.
const NOBODY: u32 = 65534;

impl Home {
    /// An empty folder. It has its own port, and hashing is as cheap as the settings allow.
    pub fn new() -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut home = Self { folder, variables: Vec::new(), user: None, files: None, port };
        home.set("GATEHOUSE__SERVER__BIND", format!("127.0.0.1:{port}"));
        home.set("GATEHOUSE__SERVER__PUBLIC_URL", home.url());
        home.set("GATEHOUSE__PASSWORD__MEMORY_KIB", "7168");
        home.set("GATEHOUSE__PASSWORD__ITERATIONS", "1");
        home
    }

    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.variables.retain(|(other, _)| other != name);
        self.variables.push((name.to_owned(), value.into()));
    }

    /// The tests may run as root, whom no file mode stops: then the binary runs as another user, who owns
    /// this folder and its contents.
    pub fn as_anybody(&mut self) {
        use std::os::unix::fs::{MetadataExt, chown};
        if std::fs::metadata(self.folder.path()).unwrap().uid() != 0 {
            return;
        }
        let inside = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        for path in inside.chain([self.folder.path().to_owned()]) {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        self.user = Some(NOBODY);
    }

    /// Limits the number of files that it may open, whatever it asks for.
    pub fn allow_files(&mut self, files: u32) {
        self.files = Some(files);
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// As an editor saves: writes a new file, then renames it over the old one.
    pub fn replace(&self, name: &str, text: &str) {
        self.write(".draft", text);
        std::fs::rename(self.path(".draft"), self.path(name)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let binary = env!("CARGO_BIN_EXE_gatehouse");
        let mut command = match self.files {
            None => Command::new(binary),
            Some(files) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &files.to_string(), binary]);
                shell
            }
        };
        for (name, _) in
            std::env::vars().filter(|(name, _)| name.starts_with("GATEHOUSE") || name == "RUST_LOG")
        {
            command.env_remove(name);
        }
        command.args(arguments).current_dir(self.folder.path());
        if let Some(user) = self.user {
            std::os::unix::process::CommandExt::uid(&mut command, user);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it until it ends.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        Ended::from(self.command(arguments).output().unwrap())
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Ended {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        // It may have refused its arguments and ended.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        Ended::from(child.wait_with_output().unwrap())
    }

    /// Runs it until it ends, with standard output redirected; returns its exit status.
    pub fn run_saying(&self, arguments: &[&str], out: Stdio) -> Option<i32> {
        self.command(arguments).stdout(out).status().unwrap().code()
    }

    /// Starts it and waits until it listens.
    pub async fn start(&self, arguments: &[&str]) -> Running {
        let mut running = self.spawn(self.command(arguments));
        running.until("it listens", |running| running.stdout().contains("Gatehouse listens on")).await;
        running
    }

    /// Starts it, and waits for nothing.
    pub fn begin(&self, arguments: &[&str]) -> Running {
        self.spawn(self.command(arguments))
    }

    /// The same, with its log redirected.
    pub async fn start_logging(&self, arguments: &[&str], log: Stdio) -> Running {
        let mut command = self.command(arguments);
        command.stderr(log);
        let mut running = self.spawn(command);
        running.until("it listens", |running| running.stdout().contains("Gatehouse listens on")).await;
        running
    }

    /// The same, with standard output redirected: it is tried until it listens.
    pub async fn start_saying(&self, arguments: &[&str], out: Stdio) -> Running {
        let mut command = self.command(arguments);
        command.stdout(out);
        let (mut running, port) = (self.spawn(command), self.port);
        running.until("it listens", |_| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
        running
    }

    fn spawn(&self, mut command: Command) -> Running {
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(collect).unwrap_or_default();
        let stderr = child.stderr.take().map(collect).unwrap_or_default();
        Running { child, stdout, stderr, url: self.url() }
    }
}

pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// A running server; killed when dropped.
pub struct Running {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    pub url: String,
}

impl Running {
    pub fn client(&self) -> Client {
        Client::of(&self.url)
    }

    pub fn stdout(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// The most memory that it has had so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until a condition is true; never for a fixed time.
    pub async fn until(&mut self, what: &str, so: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !so(self) {
                if let Some(status) = self.child.try_wait().unwrap() {
                    assert!(
                        so(self),
                        "it ended ({status}) before {what}:\n{}{}",
                        self.stdout(),
                        self.stderr()
                    );
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "waited in vain until {what}:\n{}{}", self.stdout(), self.stderr());
    }

    pub async fn ended(&mut self) -> ExitStatus {
        let waiting = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("an end")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(stream: impl std::io::Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let collected = Arc::clone(&text);
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        while matches!(lines.read_line(&mut line), Ok(1..)) {
            collected.lock().unwrap().push_str(&line);
            line.clear();
        }
    });
    text
}
