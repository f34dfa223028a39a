//! A private Dovecot on a free loopback port, killed when dropped. It takes one password for every name, and asks a
//! policy server before and after it looks.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};

use super::ports::free_port;

pub const PASSWORD: &str = "secret";

pub struct Dovecot {
    folder: tempfile::TempDir,
    master: Child,
    pub port: u16,
}

/// One connection of a mail client.
pub struct ImapClient(BufReader<TcpStream>);

impl Dovecot {
    /// It asks this policy server, whose address has its token as the password.
    pub async fn start(policy: &str) -> Self {
        let asks = format!(
            "auth_policy_server_url = {policy}
auth_policy_hash_nonce = one-of-these-servers
auth_policy_server_timeout_msecs = 30000
auth_policy_reject_on_fail = yes
passdb {{
  driver = static
  args = password={PASSWORD}
}}
"
        );
        Self::start_with(&asks).await
    }

    /// Waits until it greets.
    pub async fn start_with(settings: &str) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let mail = folder.path().join("mail");
        std::fs::create_dir(&mail).unwrap();
        // As root, its processes run as others.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&mail, Permissions::from_mode(0o777)).unwrap();
        let conf = folder.path().join("dovecot.conf");
        std::fs::write(&conf, configuration(folder.path(), port, settings)).unwrap();
        let output = || std::fs::File::options().create(true).append(true).open(folder.path().join("out"));
        let mut dovecot = Command::new("/usr/sbin/dovecot");
        std::os::unix::process::CommandExt::process_group(&mut dovecot, 0);
        dovecot.arg("-F").arg("-c").arg(&conf).stdin(Stdio::null());
        let master = dovecot.stdout(output().unwrap()).stderr(output().unwrap()).spawn().unwrap();
        let mut started = Self { folder, master, port };
        for _ in 0..2000 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
                return started;
            }
            assert!(started.master.try_wait().unwrap().is_none(), "it ended:\n{}", started.said());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("Dovecot does not answer:\n{}", started.said());
    }

    /// A client at that address, greeted.
    pub async fn connect(&self, from: Ipv4Addr) -> ImapClient {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddrV4::new(from, 0).into()).unwrap();
        let stream = socket.connect(SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port).into()).await.unwrap();
        let mut client = ImapClient(BufReader::new(stream));
        let greeting = client.line().await;
        assert!(greeting.starts_with("* OK"), "{greeting}");
        client
    }

    /// How many passwords of a name were looked at and were wrong, so far.
    pub fn mismatches(&self, login: &str) -> usize {
        let looked = format!("static({login},");
        let said = self.said();
        said.lines().filter(|line| line.contains(&looked) && line.contains("Password mismatch")).count()
    }

    /// Its log.
    pub fn said(&self) -> String {
        let read = |name| std::fs::read(self.folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&[read("out"), read("log")].concat()).into_owned()
    }
}

impl ImapClient {
    /// What a sign-in is answered.
    pub async fn login(&mut self, login: &str, password: &str) -> String {
        self.ask(&format!("LOGIN {login} {password}")).await
    }

    /// What one by a token is answered, as RFC 7628 has it. Where that is no, the server sends why before.
    pub async fn login_by_token(&mut self, login: &str, token: &str) -> String {
        let message = format!("n,a={login},\x01auth=Bearer {token}\x01\x01");
        let initial = data_encoding::BASE64.encode(message.as_bytes());
        self.ask(&format!("AUTHENTICATE OAUTHBEARER {initial}")).await
    }

    async fn ask(&mut self, command: &str) -> String {
        let command = format!("a {command}\r\n");
        self.0.get_mut().write_all(command.as_bytes()).await.unwrap();
        loop {
            let line = self.line().await;
            if let Some(answer) = line.strip_prefix("a ") {
                return answer.trim_end().to_owned();
            }
            if line.starts_with('+') {
                // What went wrong; the client says that it has read it.
                self.0.get_mut().write_all(b"AQ==\r\n").await.unwrap();
                continue;
            }
            assert!(line.starts_with('*'), "{line}");
        }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = tokio::time::timeout(Duration::from_secs(60), self.0.read_line(&mut line));
        assert!(read.await.expect("an answer").unwrap() > 0, "Dovecot hung up");
        line
    }
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        // Asked to end, it takes a second.
        let group = format!("-{}", self.master.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.master.wait();
    }
}

/// Without its own delays and penalties, so that what is refused is refused by the policy. It waits for the policy
/// longer than its two seconds, which an answer may take on a busy machine.
fn configuration(folder: &Path, port: u16, settings: &str) -> String {
    let id = |flag: &str| {
        let output = Command::new("id").arg(flag).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (me, group) = (id("-un"), id("-gn"));
    let root = id("-u") == "0";
    // Debian's users, which root must not stand in for.
    let (user, group, login) =
        if root { ("dovecot", "dovecot", "dovenull") } else { (me.as_str(), group.as_str(), me.as_str()) };
    let (uid, gid) = if root { ("65534".to_owned(), "65534".to_owned()) } else { (id("-u"), id("-g")) };
    let folder = folder.display();
    format!(
        "base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
auth_verbose = yes
auth_failure_delay = 0
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {login}
default_client_limit = 2000
first_valid_uid = 1
first_valid_gid = 1
mail_location = maildir:{folder}/mail/%u
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service imap-login {{
  chroot =
  service_count = 0
  client_limit = 1000
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/mail/%u
}}
{settings}"
    )
}
