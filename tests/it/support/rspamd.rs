//! An rspamd of a test's own, which scores mail without a network; on a free loopback port, killed when dropped.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use super::answer::http;
use super::database::command;
use super::mail_server::{Server, folder, started};
use super::names::{NameServer, Record};
use super::ports::free_port;

/// An rspamd that knows no network: of names what a test tells it, no lists of senders, and no messages before.
pub struct Rspamd {
    server: Server,
    http: reqwest::Client,
    _names: NameServer,
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

impl Rspamd {
    pub async fn start(records: &[Record]) -> Self {
        started("rspamd", async || Self::try_start(records).await).await
    }

    async fn try_start(records: &[Record]) -> Option<Self> {
        let (folder, port, names) = (folder(), free_port(), NameServer::start(records).await);
        // Its own list of top-level domains takes it twelve seconds.
        std::fs::write(folder.path().join("tld"), "com\nexample\ninvalid\nnet\norg\ntest\n").unwrap();
        let conf = folder.path().join("rspamd.conf");
        std::fs::write(&conf, rspamd_conf(folder.path(), port, names.address.port())).unwrap();
        let mut rspamd = command("/usr/bin/rspamd", folder.path());
        rspamd.args(["--no-fork", "--insecure", "--config"]).arg(conf);
        for name in ["DBDIR", "RUNDIR", "LOGDIR", "LOCAL_CONFDIR"] {
            rspamd.arg(format!("--var={name}={}", folder.path().display()));
        }
        let http = http().build().unwrap();
        let url = format!("http://127.0.0.1:{port}/ping");
        let answers =
            async |_: &Server| http.get(&url).send().await.is_ok_and(|answer| answer.status() == 200);
        let server = Server::start(folder, port, rspamd, answers).await?;
        Some(Self { server, http, _names: names })
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
