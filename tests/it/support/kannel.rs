//! A private Kannel, the open SMS gateway, with a handset behind it that prints what it receives: on free
//! loopback ports, killed when dropped.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::ports::free_port;

pub const PASSWORD: &str = "apppw";

pub struct Kannel {
    folder: tempfile::TempDir,
    /// Receives messages from smsbox and passes them to operators. If it ends, smsbox ends too.
    bearerbox: Child,
    /// The operator with its one handset.
    handset: Child,
    /// Accepts messages by HTTP.
    smsbox: Child,
    admin_port: u16,
    port: u16,
}

/// A message as the handset received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    pub to: String,
    pub text: String,
}

impl Kannel {
    /// Waits until a message would get through.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [admin_port, boxes, operator, port] = [(); 4].map(|()| free_port());
        let path = folder.path().join("kannel.conf");
        std::fs::write(&path, configuration(folder.path(), admin_port, boxes, operator, port)).unwrap();
        let conf = path.to_str().unwrap();
        let operator = operator.to_string();
        let handset = ["-H", "127.0.0.1", "-r", &operator, "-i", "1", "-m", "0", "1 2 text never sent"];
        // The first to start is what the others connect to.
        let bearerbox = run(folder.path(), "bearerbox", "/usr/sbin/bearerbox", &[conf]);
        until("bearerbox answers", || status(admin_port).is_some());
        let handset = run(folder.path(), "handset", "/usr/lib/kannel/test/fakesmsc", &handset);
        let smsbox = run(folder.path(), "smsbox", "/usr/sbin/smsbox", &[conf]);
        let kannel = Self { folder, bearerbox, handset, smsbox, admin_port, port };
        until("the operator and smsbox are connected", || {
            let status = status(kannel.admin_port).unwrap_or_default();
            status.contains("(online") && status.contains("(on-line") && kannel.takes_messages()
        });
        kannel
    }

    /// The address that accepts messages, without a path.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The value for `sms.http.url` with `sms.http.method = "GET"`.
    pub fn url(&self) -> String {
        self.url_with(PASSWORD)
    }

    pub fn url_with(&self, password: &str) -> String {
        format!(
            "{}/cgi-bin/sendsms?username=app&password={password}&from=10690000&to={{phone}}&text={{text}}\
             &charset=UTF-8&coding=2&dlr-mask=31&dlr-url={{report_url}}%26status%3D%25d",
            self.address()
        )
    }

    /// What the handset has received so far, oldest first.
    pub fn delivered(&self) -> Vec<Delivered> {
        self.said("handset").lines().filter_map(delivered).collect()
    }

    /// Waits until the handset has received this many messages.
    pub fn until_delivered(&self, count: usize) -> Vec<Delivered> {
        let arrived = waited(|| self.delivered().len() >= count);
        let said = || ["handset", "bearerbox", "smsbox"].map(|part| self.said(part)).join("\n--\n");
        assert!(arrived, "waited in vain for {count} messages on the handset:\n{}", said());
        self.delivered()
    }

    pub fn takes_messages(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok()
    }

    /// `kill -9` for all of it: smsbox would end when bearerbox is gone, and restart itself.
    pub fn kill(&mut self) {
        for part in [&mut self.smsbox, &mut self.handset, &mut self.bearerbox] {
            kill_group(part);
        }
    }

    /// A signal to bearerbox: `STOP` makes it hang, `CONT` continue.
    pub fn signal(&self, name: &str) {
        let process = self.bearerbox.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &process]).status().unwrap().success());
    }

    /// The output of a part of it, for a test that failed.
    pub fn said(&self, part: &str) -> String {
        let bytes = std::fs::read(self.folder.path().join(part)).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Kannel {
    fn drop(&mut self) {
        self.kill();
    }
}

/// With everything it started. Harmless if repeated: a process that was waited for gets no signal.
fn kill_group(leader: &mut Child) {
    if matches!(leader.try_wait(), Ok(None)) {
        let group = format!("-{}", leader.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = leader.wait();
    }
}

/// The operator's port cannot be bound to loopback, but its clients can be restricted. Bearerbox looks for
/// undelivered messages every second instead of every minute, such as one that came while it was stopped.
fn configuration(folder: &Path, admin: u16, boxes: u16, operator: u16, port: u16) -> String {
    let folder = folder.display();
    format!(
        r#"group = core
admin-port = {admin}
admin-interface = "127.0.0.1"
admin-password = adm
status-password = st
smsbox-port = {boxes}
smsbox-interface = "127.0.0.1"
box-allow-ip = "127.0.0.1"
log-level = 1
sms-resend-freq = 1
dlr-storage = internal
store-type = file
store-location = {folder}/kannel.store

group = smsc
smsc = fake
smsc-id = FAKE
port = {operator}
connect-allow-ip = "127.0.0.1"

group = smsbox
bearerbox-host = 127.0.0.1
sendsms-port = {port}
sendsms-interface = "127.0.0.1"
log-level = 1

group = sendsms-user
username = app
password = {PASSWORD}
max-messages = 3
concatenation = true
user-allow-ip = "127.0.0.1"

group = sms-service
keyword = default
text = "no service"
max-messages = 0
"#
    )
}

/// Its output goes into a file with its name.
fn run(folder: &Path, name: &str, program: &str, arguments: &[&str]) -> Child {
    let said = File::create(folder.join(name)).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).process_group(0);
    command.stdout(said.try_clone().unwrap()).stderr(said);
    let missing = "kannel and fakesmsc (Debian: apt-get install kannel kannel-extras)";
    command.spawn().unwrap_or_else(|wrong| panic!("{program}: {wrong}; {missing}"))
}

/// Bearerbox's own report, if it answers.
fn status(admin_port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", admin_port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(b"GET /status.txt?password=st HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.contains("Status: running").then_some(answer)
}

/// `… Got message 1: <from to ucs-2 %9A%8C>`: what is not letters and digits is percent-encoded, Unicode as
/// big-endian UTF-16.
fn delivered(line: &str) -> Option<Delivered> {
    let message = line.split_once("Got message ")?.1.split_once(": <")?.1.strip_suffix('>')?;
    let mut parts = message.splitn(4, ' ').skip(1);
    let (to, kind, text) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = percent_decoded(text);
    let text = match kind {
        "ucs-2" => {
            let units: Vec<_> = bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).unwrap()
        }
        _ => String::from_utf8(bytes).unwrap(),
    };
    Some(Delivered { to: to.to_owned(), text })
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            other => other,
        });
    }
    out
}

fn until(what: &str, so: impl Fn() -> bool) {
    assert!(waited(so), "waited in vain until {what}");
}

/// Other processes have no clock to advance: they are polled until the condition is true.
fn waited(so: impl Fn() -> bool) -> bool {
    (0..6000).any(|_| {
        let is_so = so();
        if !is_so {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_so
    })
}
