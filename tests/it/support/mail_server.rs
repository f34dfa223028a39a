//! What the mail servers of tests have in common, and one of them: an Exim, which takes mail by TLS from the first byte. Each
//! is on a free loopback port, and killed when dropped.
//!
//! Where the tests run as root they run as nobody, else as whoever runs the tests: scripts/setup unpacks them without
//! their users, and wrappers tell them that these exist and, Postfix, that it is root.

use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::authority::Authority;
use super::database::{command, own};
use super::dovecot::PASSWORD;
use super::ports::free_port;
use super::until;

/// Another program may take a free port before it is bound.
const TRIES: usize = 5;

/// Whose mail a server takes. It is all for example.org, in one mailbox; busy@ is asked to come back, gone@ is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Senders {
    Anybody,
    /// Those who sign in, with any name and [`PASSWORD`].
    SignedIn,
}

/// A process with all that it starts, and its folder.
pub struct Server {
    process: Child,
    folder: TempDir,
    port: u16,
}

impl Server {
    /// None if it ends before it is ready, as it does where its port is taken.
    pub(super) async fn start(
        folder: TempDir,
        port: u16,
        mut command: Command,
        ready: impl AsyncFn(&Self) -> bool,
    ) -> Option<Self> {
        let said = File::create(folder.path().join("out")).unwrap();
        command.process_group(0).stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
        let program = command.get_program().to_owned();
        let missing = "scripts/setup installs rspamd and unpacks Postfix and Exim";
        let process = command.spawn().unwrap_or_else(|wrong| panic!("{program:?}: {wrong}; {missing}"));
        let mut server = Self { process, folder, port };
        for _ in 0..6000 {
            if ready(&server).await {
                return Some(server);
            }
            if let Some(status) = server.process.try_wait().unwrap() {
                eprintln!("{program:?} ended ({status}):\n{}", server.said());
                return None;
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // a process that starts has no clock to advance
        }
        panic!("{program:?} does not come up:\n{}", server.said());
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The raw messages in the order in which it took them, as files have them: their lines end with LF.
    pub fn mails(&self) -> Vec<String> {
        let mailbox = self.folder.path().join("mail/box");
        let files = ["new", "cur"].into_iter().filter_map(|name| std::fs::read_dir(mailbox.join(name)).ok());
        // A reader may have moved it in the meantime.
        let read = |path: PathBuf| Some(String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned());
        let mut mails: Vec<_> = files.flatten().filter_map(|entry| read(entry.unwrap().path())).collect();
        // It delivers several at a time. The names that it gives to them in `Received: … id …` are in order.
        mails.sort_by_cached_key(|mail| {
            mail.split_whitespace().skip_while(|word| *word != "id").nth(1).map(str::to_owned)
        });
        mails
    }

    /// Waits until this many have arrived.
    pub async fn until_mails(&self, count: usize) -> Vec<String> {
        until("mails arrive", async || self.mails().len() >= count).await;
        self.mails()
    }

    /// Its output and its log.
    pub fn said(&self) -> String {
        let read = |name| std::fs::read(self.folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&["out", "log", "mainlog"].map(read).concat()).into_owned()
    }

    /// A signal to all of its processes: `STOP` makes it hang, `CONT` continue, `KILL` end.
    pub fn signal(&self, name: &str) {
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args([&format!("-{name}"), "--", &group]).stderr(Stdio::null()).status();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What a process started outlives it, and goes with its group.
        self.signal("KILL");
        let _ = self.process.wait();
    }
}

pub(super) async fn started<T>(what: &str, attempt: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..TRIES {
        if let Some(server) = attempt().await {
            return server;
        }
    }
    panic!("no {what} came up");
}

/// An Exim.
pub struct SecondServer(Server);

impl Deref for SecondServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl SecondServer {
    /// With a certificate for this name.
    pub async fn start(authority: &Authority, name: &str, senders: Senders) -> Self {
        started("Exim", async || Self::try_start(authority, name, senders).await).await
    }

    async fn try_start(authority: &Authority, name: &str, senders: Senders) -> Option<Self> {
        let (folder, port) = (certified(authority, name), free_port());
        let mut exim = unpacked("usr/sbin/exim4", folder.path());
        let conf = folder.path().join("exim.conf");
        std::fs::write(&conf, exim_conf(folder.path(), port, senders)).unwrap();
        exim.arg("-C").arg(conf).arg("-bdf");
        let listens = async |server: &Server| server.said().contains("listening for SMTPS");
        Server::start(folder, port, exim, listens).await.map(Self)
    }
}

fn exim_conf(folder: &Path, port: u16, senders: Senders) -> String {
    let (folder, exim) = (folder.display(), root().join("usr/sbin/exim4"));
    let (exim, kept) = (exim.display(), ENVIRONMENT.replace(' ', " : "));
    let denied = if senders == Senders::Anybody { "" } else { "deny !authenticated = *\n" };
    format!(
        "primary_hostname = exim.test
exim_path = {exim}
keep_environment = {kept}
spool_directory = {folder}/spool
log_file_path = {folder}/%slog
local_interfaces = 127.0.0.1
daemon_smtp_ports = {port}
tls_on_connect_ports = {port}
tls_certificate = {folder}/chain
daemon_startup_retries = 0
disable_ipv6
host_lookup =
dkim_verify_signers =
acl_smtp_rcpt = rcpt
begin acl
rcpt:
{denied}defer message = later
  local_parts = busy
deny message = unknown
  local_parts = gone
accept domains = example.org
deny message = nothing leaves this machine
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = ${{if eq{{$auth3}}{{{PASSWORD}}}}}
login:
  driver = plaintext
  public_name = LOGIN
  server_prompts = <| Username: | Password:
  server_condition = ${{if eq{{$auth2}}{{{PASSWORD}}}}}
begin routers
all:
  driver = accept
  transport = mailbox
begin transports
mailbox:
  driver = appendfile
  maildir_format
  directory = {folder}/mail/box
  envelope_to_add
  return_path_add
"
    )
}

/// The variables that [`unpacked`] sets.
pub(super) const ENVIRONMENT: &str =
    "LD_LIBRARY_PATH LD_PRELOAD NSS_WRAPPER_PASSWD NSS_WRAPPER_GROUP UID_WRAPPER UID_WRAPPER_ROOT";

/// A program that sees its own users: each is whoever it runs as, or nobody that it may become.
pub(super) fn unpacked(program: &str, folder: &Path) -> Command {
    let owner = std::fs::metadata(folder).unwrap();
    let (uid, gid, other) = (owner.uid(), owner.gid(), owner.uid() - 1);
    let users = [("root", 0, 0), ("postfix", uid, gid), ("Debian-exim", uid, gid), ("nobody", other, other)];
    let passwd = users.map(|(name, uid, gid)| format!("{name}:x:{uid}:{gid}::/:/bin/false\n"));
    std::fs::write(folder.join("passwd"), passwd.concat()).unwrap();
    let groups = users.map(|(name, _, gid)| format!("{name}:x:{gid}:\n")).concat();
    std::fs::write(folder.join("group"), format!("{groups}postdrop:x:{}:\n", other - 1)).unwrap();
    let libraries = std::fs::read_dir(root().join("usr/lib")).expect("what scripts/setup unpacks");
    let libraries = std::env::join_paths(libraries.map(|entry| entry.unwrap().path())).unwrap();
    let mut command = command(root().join(program), folder);
    command.env("LD_LIBRARY_PATH", libraries).env("LD_PRELOAD", "libnss_wrapper.so:libuid_wrapper.so");
    command.env("NSS_WRAPPER_PASSWD", folder.join("passwd")).env("NSS_WRAPPER_GROUP", folder.join("group"));
    command
}

/// Where scripts/setup unpacks Debian's packages.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/mail-1/root")
}

/// A folder of whom the server runs as.
pub(super) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    own(folder.path());
    folder
}

/// One with a place for the mailbox, and with a key and a certificate for that name.
pub(super) fn certified(authority: &Authority, name: &str) -> TempDir {
    let (folder, files) = (folder(), authority.certificate(name));
    let [certificate, key] = files.map(|file| std::fs::read_to_string(file.path()).unwrap());
    std::fs::write(folder.path().join("chain"), key + certificate.as_str()).unwrap();
    own(&folder.path().join("chain"));
    owned(&folder.path().join("mail"));
    folder
}

pub(super) fn owned(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    own(folder);
}
