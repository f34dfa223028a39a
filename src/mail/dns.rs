//! What DNS says of the domain that our mail is from, and of one that mail goes to.

use std::iter::repeat_n;
use std::net::SocketAddr;
use std::time::Duration;
use std::{fmt, io};

use domain::base::iana::Rcode;
use domain::base::rdata::ParseRecordData;
use domain::base::{Name, ParsedName, Rtype};
use domain::rdata::{A, Aaaa, Mx, Txt};
use domain::resolv::StubResolver;
use domain::resolv::resolver::Resolver;
use domain::resolv::stub::Answer;
use domain::resolv::stub::conf::{ResolvConf, ServerConf, Transport};

/// How long a name server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often each server is asked for a record, as by the C library.
const ROUNDS: usize = 2;
/// Letters of records that are shown.
const MOST_SHOWN: usize = 1000;

type Octets = <StubResolver as Resolver>::Octets;

/// Asks DNS for what mail needs of it.
pub struct MailDns {
    /// One for each server: with several, the library gives up where the first cannot be reached.
    servers: Vec<StubResolver>,
    /// Instead of those of `/etc/resolv.conf`.
    named: Option<SocketAddr>,
}

/// What DNS says of one record, for the operator alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsCheck {
    /// Such as `SPF of example.org`.
    pub about: String,
    pub result: DnsResult,
}

/// Words of ours, and records as DNS shows them: what is not printable ASCII is escaped as in `\027`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsResult {
    InOrder(String),
    /// Mail is taken without it, but not by all.
    Advised(String),
    Wrong(String),
    /// Nothing was answered, which says nothing of the record.
    NotAsked(String),
}

impl MailDns {
    /// Asks this server, else those of `/etc/resolv.conf`, and one of this machine if there are none. Reads that file.
    pub fn new(named: Option<SocketAddr>) -> Self {
        let ResolvConf { servers, mut options } = named.map_or_else(ResolvConf::default, |server| {
            let servers = vec![ServerConf::new(server, Transport::UdpTcp)];
            ResolvConf { servers, ..ResolvConf::new() }
        });
        options.timeout = PATIENCE;
        let alone = |server| ResolvConf { servers: vec![server], options: options.clone() };
        Self { servers: servers.into_iter().map(alone).map(StubResolver::from_conf).collect(), named }
    }

    /// Asks for SPF, DMARC and the mail servers of the domain that mail is from, and for the mail servers of one that mail
    /// goes to. Takes at most some seconds for each name server.
    pub async fn check(&self, from: &str, to: Option<&str>) -> Vec<DnsCheck> {
        let policy = format!("_dmarc.{from}");
        let back = "bounces go there, so publish an MX record, or set mail.from to a domain that has one";
        let there = async {
            let to = to.filter(|to| !to.eq_ignore_ascii_case(from))?;
            Some((to, self.receives(to, "no mail arrives there").await))
        };
        let (spf, dmarc, mx, there) =
            tokio::join!(self.spf(from), self.dmarc(&policy), self.receives(from, back), there);
        let said = [("SPF", from, spf), ("DMARC", from, dmarc), ("MX", from, mx)];
        let said = said.into_iter().chain(there.map(|(to, result)| ("MX", to, result)));
        let check = |(record, domain, result): (_, _, Result<_, _>)| DnsCheck {
            about: format!("{record} of {domain}"),
            result: result.unwrap_or_else(DnsResult::NotAsked),
        };
        said.map(check).collect()
    }

    async fn spf(&self, domain: &str) -> Result<DnsResult, String> {
        let found = self.texts(domain, is_spf).await?;
        Ok(match &found[..] {
            [] => DnsResult::Wrong(
                "no TXT record begins with v=spf1; publish one that names the server that delivers, such as \
                 \"v=spf1 include:spf.example.net -all\""
                    .to_owned(),
            ),
            [only] if !names_a_server(&only.text::<Vec<u8>>()) => DnsResult::Wrong(format!(
                "no server may send mail from there by {}; name the one that delivers, such as \"v=spf1 \
                 include:spf.example.net -all\"",
                listed(&found)
            )),
            [_] => DnsResult::InOrder(listed(&found)),
            _ => DnsResult::Wrong(format!(
                "{} records begin with v=spf1, which is a permanent error (RFC 7208, 4.5); leave one of {}",
                found.len(),
                listed(&found)
            )),
        })
    }

    async fn dmarc(&self, name: &str) -> Result<DnsResult, String> {
        let found = self.texts(name, is_dmarc).await?;
        Ok(match &found[..] {
            [] => DnsResult::Advised(format!(
                "{name} has no such record; publish \"v=DMARC1; p=none\" there, unless a parent domain has one"
            )),
            [_] => DnsResult::InOrder(listed(&found)),
            _ => DnsResult::Advised(format!(
                "{} records begin with v=DMARC1, so receivers heed none (RFC 7489, 6.6.3); leave one of {}",
                found.len(),
                listed(&found)
            )),
        })
    }

    /// Whether mail arrives at a domain. `otherwise` says what it means if none does.
    async fn receives(&self, domain: &str, otherwise: &str) -> Result<DnsResult, String> {
        let mut found: Vec<Mx<ParsedName<Octets>>> = self.ask(domain, Rtype::MX).await?;
        found.sort_by_key(Mx::preference);
        if !found.is_empty() && found.iter().all(|mx| mx.exchange().is_root()) {
            let refuses = "a null MX says that it takes no mail (RFC 7505)";
            return Ok(DnsResult::Wrong(format!("{refuses}; {otherwise}")));
        }
        if !found.is_empty() {
            return Ok(DnsResult::InOrder(listed(found)));
        }
        // Mail then goes to the domain's own addresses (RFC 5321, 5.1).
        let (v4, v6) = tokio::join!(self.ask::<A>(domain, Rtype::A), self.ask::<Aaaa>(domain, Rtype::AAAA));
        let addresses = v4.iter().flatten().map(ToString::to_string);
        let addresses: Vec<String> = addresses.chain(v6.iter().flatten().map(ToString::to_string)).collect();
        if !addresses.is_empty() {
            return Ok(DnsResult::InOrder(format!("there is none, so mail goes to {}", listed(addresses))));
        }
        v4.and(v6)?;
        Ok(DnsResult::Wrong(format!("there is no MX, A or AAAA record; {otherwise}")))
    }

    /// The TXT records of that kind, which is told by their whole text.
    async fn texts(&self, name: &str, is: impl Fn(&[u8]) -> bool) -> Result<Vec<Txt<Octets>>, String> {
        let mut found: Vec<Txt<Octets>> = self.ask(name, Rtype::TXT).await?;
        found.retain(|record| is(&record.text::<Vec<u8>>()));
        Ok(found)
    }

    /// All records of a name; the error says how to ask by hand.
    async fn ask<D>(&self, name: &str, kind: Rtype) -> Result<Vec<D>, String>
    where
        D: for<'a> ParseRecordData<'a, Octets>,
    {
        let answer = self.answer(name, kind).await;
        answer.and_then(|answer| records(&answer)).map_err(|reason| {
            let at = self.named.map(|server| format!("@{} -p {} ", server.ip(), server.port()));
            format!("{reason}; try: dig {}{kind} {name}", at.unwrap_or_default())
        })
    }

    /// What says whether there are such records. That there are none is believed only of a server that knows the top-level
    /// domain: one of a closed network says so of every name outside.
    async fn answer(&self, name: &str, kind: Rtype) -> Result<Answer, String> {
        let answer = self.first_answer(name, kind).await?;
        let top = name.rsplit('.').next().unwrap_or(name);
        if !has_records(&answer) && !has_records(&self.first_answer(top, Rtype::NS).await?) {
            return Err(format!("the name server knows no domains of .{top} at all, as in a closed network"));
        }
        Ok(answer)
    }

    async fn first_answer(&self, name: &str, kind: Rtype) -> Result<Answer, String> {
        let mut reason = "there is no name server".to_owned();
        let name = Name::vec_from_str(name).map_err(|wrong| wrong.to_string())?;
        for server in repeat_n(&self.servers, ROUNDS).flatten() {
            reason = match server.query((&name, kind)).await {
                Ok(answer) => match answer.header().rcode() {
                    Rcode::NOERROR | Rcode::NXDOMAIN => return Ok(answer),
                    code => format!("the name server answered {code}"),
                },
                Err(wrong) if wrong.kind() == io::ErrorKind::TimedOut => {
                    "no name server answered in time".to_owned()
                }
                Err(wrong) => wrong.to_string(),
            };
        }
        Err(reason)
    }
}

fn has_records(answer: &Answer) -> bool {
    answer.header_counts().ancount() > 0
}

fn records<D: for<'a> ParseRecordData<'a, Octets>>(answer: &Answer) -> Result<Vec<D>, String> {
    let section = answer.answer().map(|section| section.limit_to_in::<D>());
    let read = section.and_then(|found| found.map(|record| record.map(|it| it.into_data())).collect());
    read.map_err(|wrong| format!("the answer cannot be read: {wrong}"))
}

/// The version is a whole word, in letters of any case (RFC 7208, 4.5).
fn is_spf(text: &[u8]) -> bool {
    let version = text.split(|letter| *letter == b' ').next().unwrap_or_default();
    version.eq_ignore_ascii_case(b"v=spf1")
}

/// Whether an SPF record has a term that some server can match, or leads to one that may (RFC 7208, 4.6.1 and 6.1): not so
/// those of domains that send no mail, such as `v=spf1 -all`.
fn names_a_server(record: &[u8]) -> bool {
    let mut terms = record.split(|letter| *letter == b' ').skip(1).filter(|term| !term.is_empty());
    let fails_all =
        |term: &[u8]| [&b"-all"[..], b"~all", b"?all"].iter().any(|it| term.eq_ignore_ascii_case(it));
    let explains = |term: &[u8]| term.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"exp="));
    terms.any(|term| !fails_all(term) && !explains(term))
}

/// The version comes first, with blanks around its parts or none (RFC 7489, 6.4).
fn is_dmarc(text: &[u8]) -> bool {
    let first = text.split(|letter| *letter == b';').next().unwrap_or_default();
    first.iter().copied().filter(|letter| !b" \t".contains(letter)).eq(*b"v=DMARC1")
}

fn listed(records: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let shown: Vec<String> = records.into_iter().map(|record| record.to_string()).collect();
    let (shown, most) = (shown.join(", "), MOST_SHOWN);
    if shown.len() > most { shown.chars().take(most).chain(['…']).collect() } else { shown }
}
