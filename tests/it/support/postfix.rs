//! A Postfix of a test's own, which takes mail by STARTTLS, with a Dovecot that knows its passwords and shows its mailbox.

use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::authority::Authority;
use super::dovecot::{Dovecot, PASSWORD};
use super::mail_server::{ENVIRONMENT, Senders, Server, certified, owned, root, started, unpacked};
use super::ports::free_port;

/// A Postfix, with a Dovecot.
pub struct Postfix {
    server: Server,
    imap: Dovecot,
}

impl Deref for Postfix {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Postfix {
    /// With a certificate for this name.
    pub async fn start(authority: &Authority, name: &str, senders: Senders) -> Self {
        started("Postfix", async || Self::try_start(authority, name, senders).await).await
    }

    async fn try_start(authority: &Authority, name: &str, senders: Senders) -> Option<Self> {
        let (folder, port, auth) = (certified(authority, name), free_port(), free_port());
        let [queue, conf] = ["queue", "conf"].map(|name| folder.path().join(name));
        for name in QUEUES.split(' ') {
            owned(&queue.join(name));
        }
        owned(&folder.path().join("data"));
        std::fs::create_dir(&conf).unwrap();
        let mut master = unpacked("usr/lib/postfix/sbin/master", folder.path());
        std::fs::write(conf.join("main.cf"), main_cf(folder.path(), senders, auth)).unwrap();
        std::fs::write(conf.join("master.cf"), master_cf(port)).unwrap();
        // Its processes wait two seconds for a file that may still be written to.
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::options().append(true).open(conf.join("main.cf")).unwrap().set_modified(long_ago).unwrap();
        let imap = Dovecot::start_with(&dovecot_conf(folder.path(), auth)).await;
        master.arg("-d").arg("-c").arg(&conf).env("MAIL_CONFIG", conf);
        master.env("UID_WRAPPER", "1").env("UID_WRAPPER_ROOT", "1");
        let listens = async |server: &Server| server.said().contains("daemon started");
        let server = Server::start(folder, port, master, listens).await?;
        Some(Self { server, imap })
    }

    /// The mails that have arrived, as a reader fetches them by IMAP.
    pub fn fetched(&self) -> Vec<String> {
        let fetch = |index: usize| {
            let url = format!("imap://127.0.0.1:{}/INBOX;MAILINDEX={index}", self.imap.port);
            let mut curl = Command::new("curl");
            let output = curl.args(["-sS", "--user", &format!("reader:{PASSWORD}"), &url]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        (1..=self.mails().len()).map(fetch).collect()
    }
}

const QUEUES: &str =
    "active bounce corrupt defer deferred flush hold incoming maildrop pid private public saved trace";

/// A mail that lacks headers is left without them.
fn main_cf(folder: &Path, senders: Senders, auth: u16) -> String {
    let owner = std::fs::metadata(folder).unwrap();
    let (uid, gid, folder, root) = (owner.uid(), owner.gid(), folder.display(), root());
    let (root, allowed) = (root.display(), if senders == Senders::Anybody { "permit" } else { "reject" });
    format!(
        "compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
meta_directory = {folder}/conf
daemon_directory = {root}/usr/lib/postfix/sbin
import_environment = MAIL_CONFIG {ENVIRONMENT}
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
myhostname = postfix.test
mydestination =
enable_long_queue_ids = yes
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
smtpd_peername_lookup = no
local_recipient_maps =
local_header_rewrite_clients =
smtpd_tls_security_level = may
smtpd_tls_chain_files = {folder}/chain
smtpd_tls_auth_only = yes
smtpd_sasl_auth_enable = yes
smtpd_sasl_type = dovecot
smtpd_sasl_path = inet:127.0.0.1:{auth}
smtpd_relay_restrictions = permit_sasl_authenticated, {allowed}
smtpd_recipient_restrictions = reject_unauth_destination, check_recipient_access inline:{{
  {{ busy@example.org = 450 4.2.1 later }}, {{ gone@example.org = 550 5.1.1 unknown }} }}
virtual_mailbox_domains = example.org
virtual_mailbox_base = {folder}/mail
virtual_mailbox_maps = static:box/
virtual_uid_maps = static:{uid}
virtual_gid_maps = static:{gid}
virtual_minimum_uid = 1
"
    )
}

fn dovecot_conf(folder: &Path, auth: u16) -> String {
    format!(
        "mail_location = maildir:{}/mail/box
auth_mechanisms = plain login
passdb {{
  driver = static
  args = password={PASSWORD}
}}
service auth {{
  inet_listener {{
    port = {auth}
  }}
}}
",
        folder.display()
    )
}

fn master_cf(port: u16) -> String {
    format!(
        "127.0.0.1:{port} inet n - n - - smtpd
postlog unix-dgram n - n - 1 postlogd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
tlsmgr unix - - n 1000? 1 tlsmgr
anvil unix - - n - 1 anvil
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
error unix - - n - - error
retry unix - - n - - error
virtual unix - n n - - virtual
"
    )
}
