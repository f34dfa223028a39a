//! An rspamd of a test's own, which scores mail without a network; on a free loopback port, killed when dropped.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::answer::http;
use super::database::command;
use super::mail_server::{Server, folder, started};
use super::ports::free_port;

/// An rspamd that knows no network: of names what a test tells it, no lists of senders, and no messages before.
pub struct Rspamd {
    server: Server,
    names: JoinHandle<()>,
    http: reqwest::Client,
}

/// From where a mail is said to come.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'a> {
    pub ip: Ipv4Addr,
    /// Of the server that sends it, also by its IP address.
    pub host: &'a str,
    pub from: &'a str,
    pub to: &'a str,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// From 4 a mail is delayed, from 6 marked, from 15 refused.
    pub score: f64,
    pub action: String,
    /// What it found, with what each adds to the score.
    pub symbols: BTreeMap<String, f64>,
}

/// A name, a type of a record (A, MX, PTR or TXT), and its value.
pub type Record = (String, &'static str, String);

impl Rspamd {
    pub async fn start(records: &[Record]) -> Self {
        started("rspamd", async || Self::try_start(records).await).await
    }

    async fn try_start(records: &[Record]) -> Option<Self> {
        let (folder, port, names) = (folder(), free_port(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let asked = names.local_addr().unwrap().port();
        // Its own list of top-level domains takes it twelve seconds.
        std::fs::write(folder.path().join("tld"), "com\nexample\ninvalid\nnet\norg\ntest\n").unwrap();
        let conf = folder.path().join("rspamd.conf");
        std::fs::write(&conf, rspamd_conf(folder.path(), port, asked)).unwrap();
        let mut rspamd = command("/usr/bin/rspamd", folder.path());
        rspamd.args(["--no-fork", "--insecure", "--config"]).arg(conf);
        for name in ["DBDIR", "RUNDIR", "LOGDIR", "LOCAL_CONFDIR"] {
            rspamd.arg(format!("--var={name}={}", folder.path().display()));
        }
        let http = http().build().unwrap();
        let names = tokio::spawn(answer_names(names, records.to_vec()));
        let url = format!("http://127.0.0.1:{port}/ping");
        let answers =
            async |_: &Server| http.get(&url).send().await.is_ok_and(|answer| answer.status() == 200);
        let server = Server::start(folder, port, rspamd, answers).await?;
        Some(Self { server, names, http })
    }

    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// What it says of a mail.
    pub async fn check(&self, mail: &str, envelope: &Envelope<'_>) -> Verdict {
        let request =
            self.http.post(format!("http://127.0.0.1:{}/checkv2", self.port())).body(mail.to_owned());
        let request = request.header("IP", envelope.ip.to_string()).header("Helo", envelope.host);
        let request = request.header("Hostname", envelope.host).header("From", envelope.from);
        let answer = request.header("Rcpt", envelope.to).send().await.unwrap().bytes().await.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        let score = |value: &serde_json::Value| {
            (value["score"].as_f64().unwrap_or_else(|| panic!("{answer}")) * 100.0).round() / 100.0
        };
        let symbols = answer["symbols"].as_object().unwrap().iter();
        Verdict {
            score: score(&answer),
            action: answer["action"].as_str().unwrap().to_owned(),
            symbols: symbols.map(|(name, found)| (name.clone(), score(found))).collect(),
        }
    }
}

impl Drop for Rspamd {
    fn drop(&mut self) {
        self.names.abort();
    }
}

/// With the modules that read a mail and ask for its sender's names. Where it may keep no compiled expressions, it spends
/// no seconds on compiling them.
fn rspamd_conf(folder: &Path, port: u16, names: u16) -> String {
    let folder = folder.display();
    let modules = ["arc", "chartable", "dkim", "dmarc", "forged_recipients", "hfilter", "maillist", "mid"];
    let modules = modules.iter().chain(&["mime_types", "once_received", "phishing", "regexp", "spf"]);
    let modules: String =
        modules.map(|name| format!(".include \"$CONFDIR/modules.d/{name}.conf\"\n")).collect();
    format!(
        r#"options {{
  filters = "chartable,dkim,regexp";
  url_tld = "{folder}/tld";
  dns {{ nameserver = ["127.0.0.1:{names}"]; timeout = 10s; retransmits = 2; }}
  local_addrs = [127.0.0.0/8];
  control_socket = "{folder}/control mode=0600";
  cache_file = "{folder}/symbols";
  hs_cache_dir = "{folder}/none";
  tempdir = "{folder}";
  allow_raw_input = true;
}}
logging {{ type = "console"; level = "notice"; }}
worker "normal" {{ bind_socket = "127.0.0.1:{port}"; count = 1; task_timeout = 60s; }}
lua = "$RULESDIR/rspamd.lua"
modules {{ path = "$PLUGINSDIR"; }}
.include "$CONFDIR/metrics.conf"
.include "$CONFDIR/actions.conf"
.include "$CONFDIR/groups.conf"
.include "$CONFDIR/composites.conf"
{modules}"#
    )
}

/// Answers questions for these records, and that there is nothing else.
async fn answer_names(socket: UdpSocket, records: Vec<Record>) {
    let mut buffer = [0; 4096];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        let question = &buffer[..length];
        let (mut name, mut at) = (String::new(), 12);
        while question[at] > 0 {
            let next = at + 1 + usize::from(question[at]);
            let dot = if name.is_empty() { "" } else { "." };
            name = format!("{name}{dot}{}", String::from_utf8_lossy(&question[at + 1..next]).to_lowercase());
            at = next;
        }
        let kind = question[at + 2];
        let known = records.iter().any(|record| record.0 == name);
        let found: Vec<_> =
            records.iter().filter(|record| record.0 == name && number(record.1) == kind).collect();
        let mut answer = [&question[..2], &[0x85, if known { 0x80 } else { 0x83 }, 0, 1, 0]].concat();
        answer.extend([u8::try_from(found.len()).unwrap(), 0, 0, 0, 0]);
        answer.extend(&question[12..at + 5]);
        for (_, _, value) in found {
            let data = match number("TXT") == kind {
                true => value.as_bytes().chunks(255).flat_map(counted).collect(),
                false if number("A") == kind => value.parse::<Ipv4Addr>().unwrap().octets().to_vec(),
                false => {
                    let preference: &[u8] = if number("MX") == kind { &[0, 10] } else { &[] };
                    let labels = value.split('.').flat_map(|label| counted(label.as_bytes()));
                    preference.iter().copied().chain(labels).chain([0]).collect()
                }
            };
            answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60]);
            answer.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            answer.extend(data);
        }
        let _ = socket.send_to(&answer, from).await;
    }
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn number(kind: &str) -> u8 {
    match kind {
        "A" => 1,
        "PTR" => 12,
        "MX" => 15,
        "TXT" => 16,
        _ => panic!("{kind}"),
    }
}
