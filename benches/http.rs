//! Sign-ins over HTTP compared with their bounds, in one run: `cargo bench --bench http`.
//!
//! Refused sign-ins are compared with an empty actix handler and one with a single EVALSHA, accepted ones
//! with the bare hash rate; and the latency of sign-ins to one account is measured while another one is
//! flooded. Attempts at other programs' logins are compared with the handler with one EVALSHA: refused ones, for
//! which no challenge is drawn, and admitted ones together with their outcomes. What a proxy asks for each request to an
//! application is compared with the empty handler, and its latency while sign-ins are flooded with that when alone. Wrong
//! passwords at names that exist and at others, new ones and ones that come again, are told apart by their time, or not; and
//! so are requests for a code by e-mail, at addresses that an account has and at others.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use actix_web::web::{Bytes, Data, post};
use actix_web::{App, HttpResponse, HttpServer};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use gatehouse::accounts::{
    FirstFactor, NewToken, RecipientSet, RedeemedCode, SessionToken, SignInClient, TokenScopes, Username,
};
use gatehouse::app::{Application, TimeAndEntropy};
use gatehouse::config::{self, LiveHandle};
use gatehouse::entropy::Entropy;
use gatehouse::gate::ReturnUrl;
use gatehouse::mail::Mailbox;
use gatehouse::web::http::services::Services;
use metrics_exporter_prometheus::PrometheusBuilder;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use self::support::contest::median;
use self::support::load::{
    self, CONNECTIONS, Connection, Flood, always, free_port, latencies, load, login_request, percentile,
    request, verdict,
};

const PASSWORD: &str = "correct horse battery staple";
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;
const ACCEPTED_ROUNDS: usize = 15;
const ACCOUNTS: usize = 24;
/// Wrong passwords, or requests for a code, of each kind, for what their times tell.
const APART: usize = 600;
/// Failures at one name until it is refused without a challenge.
const GUARD_MAX: usize = 20;

const APPS: &str = "[[apps]]\nname = 'wiki'\nhosts = ['wiki.example']\nwho = ['everyone']\n";

fn main() {
    load::main(run());
}

async fn run() {
    let redis = Redis::start();
    let on_redis = Gatehouse::start(&format!("redis://127.0.0.1:{}/", redis.port)).await;
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    if "refused".contains(&wanted) {
        refused(&redis, &on_redis).await;
    }
    if "guarded".contains(&wanted) {
        guarded(&redis, &on_redis).await;
    }
    if "gate".contains(&wanted) {
        gate(&on_redis).await;
    }
    if "accepted".contains(&wanted) {
        accepted(&on_redis).await;
    }
    if "flooded".contains(&wanted) {
        flooded(&on_redis).await;
    }
    if "apart".contains(&wanted) {
        apart(&redis).await;
    }
    if "mailed".contains(&wanted) {
        mailed(&redis).await;
    }
    // The servers' threads, and Redis, would otherwise outlive this.
    drop(redis);
    std::process::exit(0);
}

async fn refused(redis: &Redis, on_redis: &Gatehouse) {
    let empty = serve_empty().await;
    let evalsha = serve_evalsha(redis).await;
    let in_process = Gatehouse::start("memory:").await;
    println!("refused sign-ins per second, {CONNECTIONS} connections, median of {ROUNDS} rounds in turn");
    for gatehouse in [on_redis, &in_process] {
        gatehouse.exhaust("flooded").await;
    }
    let refused = login_request("flooded", "a wrong password");
    let contenders = [
        ("empty handler", empty, refused.clone(), 200),
        ("handler with one EVALSHA", evalsha, refused.clone(), 200),
        ("Gatehouse, refused, Redis", on_redis.address, refused.clone(), 403),
        ("Gatehouse, refused, in process", in_process.address, refused.clone(), 403),
    ];
    let mut rates = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for (index, (_, address, request, status)) in contenders.iter().enumerate() {
            rates[index].push(load(*address, request, *status, CONNECTIONS, ROUND).await);
        }
    }
    let medians: Vec<f64> = rates.into_iter().map(median).collect();
    for ((name, ..), rate) in contenders.iter().zip(&medians) {
        println!(
            "  {name:32} {rate:9.0}  {:.2} of the empty handler, {:.2} of the one with EVALSHA",
            rate / medians[0],
            rate / medians[1]
        );
    }
    println!(
        "  bar: on Redis at least 1.35 of the handler with one EVALSHA: {}",
        verdict(medians[2] / medians[1] >= 1.35)
    );
}

/// Attempts of another program: refused without a challenge, and admitted and settled in pairs.
async fn guarded(redis: &Redis, on_redis: &Gatehouse) {
    let evalsha = serve_evalsha(redis).await;
    let token = &on_redis.token;
    println!("attempts per second, {CONNECTIONS} connections, median of {ROUNDS} rounds in turn");
    let mut connection = Connection::open(on_redis.address).await;
    for _ in 0..GUARD_MAX {
        assert!(settle(&mut connection, token, "flooded", "failure").await, "there is a slot");
    }
    let (bare, refused) = (login_request("x", "x"), attempt_request(token, "flooded"));
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        rates[0].push(load(evalsha, &bare, 200, CONNECTIONS, ROUND).await);
        rates[1].push(load(on_redis.address, &refused, 200, CONNECTIONS, ROUND).await);
        rates[2].push(pairs(on_redis.address, token, ROUND).await);
    }
    // The server has closed the first one, which stood idle meanwhile.
    let mut connection = Connection::open(on_redis.address).await;
    assert!(!settle(&mut connection, token, "flooded", "failure").await, "it was refused to the end");
    let [evalsha, refused, pairs] = rates.map(median);
    for (name, rate) in [("handler with one EVALSHA", evalsha), ("refused", refused), ("pairs", pairs)] {
        println!("  {name:32} {rate:9.0}  {:.2} of the one with EVALSHA", rate / evalsha);
    }
    println!("  bar: refused at least 0.8: {}", verdict(refused / evalsha >= 0.8));
    println!("  bar: pairs at least 0.35: {}", verdict(pairs / evalsha >= 0.35));
}

/// What a proxy asks for each request of somebody who is signed in at an application.
async fn gate(server: &Gatehouse) {
    let empty = serve_empty().await;
    let asked = server.asked_by_proxy().await;
    println!("checks of the gate per second, {CONNECTIONS} connections, median of {ROUNDS} rounds in turn");
    let bare = login_request("x", "x");
    let mut rates = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        rates[0].push(load(empty, &bare, 200, CONNECTIONS, ROUND).await);
        rates[1].push(load(server.address, &asked, 200, CONNECTIONS, ROUND).await);
    }
    let [empty, checks] = rates.map(median);
    println!("  {:32} {empty:9.0}", "empty handler");
    println!("  {:32} {checks:9.0}  {:.2} of the empty handler", "checks", checks / empty);
    println!("  bar: at least 0.6: {}", verdict(checks / empty >= 0.6));

    server.exhaust("flooded").await;
    println!("latency of one check after another, p50 / p99 in ms, alone and beside refused sign-ins");
    let time = 3 * ROUND;
    let mut alone = latencies(server.address, always(&asked), time).await;
    let flooding = Flood::start(server.address, time);
    let mut flooded = latencies(server.address, always(&asked), time).await;
    let refused = flooding.count() as f64 / time.as_secs_f64();
    println!("  {:32} {:9.2} / {:.2}", "alone", percentile(&mut alone, 50), percentile(&mut alone, 99));
    let (half, most) = (percentile(&mut flooded, 50), percentile(&mut flooded, 99));
    println!("  {:32} {half:9.2} / {most:.2}", format!("beside {refused:.0} a second"));
    let ratio = most / percentile(&mut alone, 99);
    println!("  p99 ratio {ratio:.2}; bar: at most 3: {}", verdict(ratio <= 3.0));
}

/// Right passwords at names of their own.
async fn pairs(address: SocketAddr, token: &str, time: Duration) -> f64 {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for one in 0..CONNECTIONS {
        let token = token.to_owned();
        tasks.spawn(async move {
            let (mut connection, mut count) = (Connection::open(address).await, 0usize);
            while start.elapsed() < time {
                assert!(settle(&mut connection, &token, &format!("user{one}"), "success").await);
                count += 1;
            }
            count
        });
    }
    let count: usize = tasks.join_all().await.into_iter().sum();
    count as f64 / start.elapsed().as_secs_f64()
}

/// One attempt and its outcome; false if it was refused.
async fn settle(connection: &mut Connection, token: &str, login: &str, outcome: &str) -> bool {
    assert_eq!(connection.send(&attempt_request(token, login)).await, 200);
    let decision: serde_json::Value = serde_json::from_slice(connection.body()).unwrap();
    let Some(attempt) = decision["attempt"].as_str() else { return false };
    let path = format!("/api/v1/attempts/{attempt}");
    let told = authorized(token, &path, &format!(r#"{{"outcome":"{outcome}"}}"#));
    assert_eq!(connection.send(&told).await, 200);
    true
}

fn attempt_request(token: &str, login: &str) -> Vec<u8> {
    authorized(token, "/api/v1/attempts", &format!(r#"{{"login":"{login}","address":"203.0.113.7"}}"#))
}

fn authorized(token: &str, path: &str, body: &str) -> Vec<u8> {
    let bare = String::from_utf8(request(path, body)).unwrap();
    bare.replacen("\r\n", &format!("\r\nauthorization: Bearer {token}\r\n"), 1).into_bytes()
}

/// The machine's speed drifts within seconds by more than the difference to be measured: each round of
/// sign-ins is between two of bare hashes, and the ratio is the median of their ratios.
async fn accepted(on_redis: &Gatehouse) {
    println!("accepted sign-ins per second beside the bare hash rate, {ACCEPTED_ROUNDS} rounds in turn");
    let mut bare = vec![bare_hashes(ROUND)];
    let (mut accepted, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..ACCEPTED_ROUNDS {
        let before = bare[bare.len() - 1];
        accepted.push(on_redis.accepted(ROUND).await);
        bare.push(bare_hashes(ROUND));
        ratios.push(2.0 * accepted[accepted.len() - 1] / (before + bare[bare.len() - 1]));
    }
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    let ratio = median(ratios);
    println!("  bare argon2id, one thread a core {:9.1}", median(bare));
    println!("  accepted sign-ins, Redis         {:9.1}", median(accepted));
    println!("  accepted / bare, median of the rounds' ratios {ratio:.3} ({least:.2} to {most:.2})");
    println!("  bar: at least 0.94: {}", verdict(ratio >= 0.94));
}

async fn flooded(on_redis: &Gatehouse) {
    on_redis.exhaust("flooded").await;
    println!("one account's sign-ins, one at a time, while another account is flooded (p50 / p99 in ms)");
    let (mut calm, mut flooded) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (time, right) = (Duration::from_secs(4), login_request("user-0", PASSWORD));
        calm.extend(latencies(on_redis.address, always(&right), time).await);
        let flood = Flood::start(on_redis.address, time);
        flooded.extend(latencies(on_redis.address, always(&right), time).await);
        println!("  flood: {:.0} refusals per second", flood.count() as f64 / time.as_secs_f64());
    }
    println!("  alone    {:6.1} / {:6.1}", percentile(&mut calm, 50), percentile(&mut calm, 99));
    println!("  flooded  {:6.1} / {:6.1}", percentile(&mut flooded, 50), percentile(&mut flooded, 99));
    let ratio = percentile(&mut flooded, 99) / percentile(&mut calm, 99);
    println!("  p99 ratio {ratio:.2}; bar: at most 3: {}", verdict(ratio <= 3.0));
}

/// Half of the names are tried with another password each time, half with one that was tried there before.
async fn apart(redis: &Redis) {
    // So that each is compared, and counted all the same.
    let more = [("LIMITS__LOGIN_ACCOUNT__RULES", "[{ max = 10000, window = '1h' }]".to_owned())];
    let server = Gatehouse::start_with(&format!("redis://127.0.0.1:{}/1", redis.port), &more).await;
    let mut connection = Connection::open(server.address).await;
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..APART + ACCOUNTS {
        for turn in 0..4 {
            // Each kind is as often before each other one as after it.
            let kind = if round / 4 % 2 == 0 { (round + turn) % 4 } else { (round + 7 - turn) % 4 };
            let (is_known, is_repeat) = (kind % 2 == 0, kind / 2 == 1);
            let name = round % (ACCOUNTS / 2) + if is_repeat { ACCOUNTS / 2 } else { 0 };
            let login = format!("{}-{name}", if is_known { "user" } else { "none" });
            let password =
                if is_repeat { "an old password".to_owned() } else { format!("a guess{round:08}") };
            let request = login_request(&login, &password);
            let sent = Instant::now();
            assert_eq!(connection.send(&request).await, 401);
            // Before, each name is new once.
            if round >= ACCOUNTS {
                times[kind].push(sent.elapsed());
            }
        }
    }
    println!(
        "wrong passwords told apart by their time: a later one is the first kind's, with this chance; {APART} each"
    );
    let [known, unknown, known_again, unknown_again] = &times;
    let pairs = [
        ("a name that exists / another, a new guess", known, unknown),
        ("the same, a repeat", known_again, unknown_again),
        ("a new guess / a repeat, a name that exists", known, known_again),
        ("the same, another name", unknown, unknown_again),
    ];
    for (name, one, other) in pairs {
        let chance = later(one, other);
        println!("  {name:45} {chance:.3}  bar: 0.45 to 0.55: {}", verdict((0.45..=0.55).contains(&chance)));
    }
}

/// Half of the addresses are confirmed by an account. A mail server takes what goes there, beside the requests.
async fn mailed(redis: &Redis) {
    let many = || "[{ max = 10000, window = '1h' }]".to_owned();
    let more = [
        ("MAIL__URL", format!("smtp://{}", serve_mail().await)),
        ("MAIL__FROM", "login@example.org".to_owned()),
        ("LIMITS__MAIL_MAILBOX__RULES", many()),
        ("LIMITS__MAIL_ADDRESS__RULES", many()),
        ("LIMITS__MAIL_NETWORK__RULES", many()),
        ("LIMITS__MAIL_TOTAL__RULES", many()),
    ];
    let server = Gatehouse::start_with(&format!("redis://127.0.0.1:{}/2", redis.port), &more).await;
    let services = &server.services;
    for account in 0..ACCOUNTS {
        let login = Username::parse(&format!("user-{account}")).unwrap();
        let account = services.accounts.find(&login).await.unwrap().unwrap();
        let mailbox = Mailbox::parse(&format!("{}@example.org", login.as_str())).unwrap();
        assert_eq!(
            services.emails.give(&account, &mailbox.clone().into(), "en").await.unwrap(),
            RecipientSet::Done
        );
    }
    let mut connection = Connection::open(server.address).await;
    let mut times: [Vec<Duration>; 2] = Default::default();
    for round in 0..APART + ACCOUNTS {
        for turn in 0..2 {
            let kind = (round / ACCOUNTS + round + turn) % 2;
            let name = if kind == 0 { "user" } else { "none" };
            let body = format!(r#"{{"email":"{name}-{}@example.org","purpose":"reset"}}"#, round % ACCOUNTS);
            let request = request("/api/v1/email/codes", &body);
            let sent = Instant::now();
            assert_eq!(connection.send(&request).await, 202);
            // Before, each address is new once.
            if round >= ACCOUNTS {
                times[kind].push(sent.elapsed());
            }
        }
    }
    let [known, unknown] = &mut times;
    let (chance, halves) = (later(known, unknown), [percentile(known, 50), percentile(unknown, 50)]);
    println!(
        "codes by e-mail told apart by their time: a later one is the first kind's, with this chance; {APART} each"
    );
    println!("  medians in ms: {:.2} and {:.2}", halves[0], halves[1]);
    println!(
        "  {:45} {chance:.3}  bar: 0.45 to 0.55: {}",
        "an address that an account has / another",
        verdict((0.45..=0.55).contains(&chance))
    );
}

/// A mail server that takes everything.
async fn serve_mail() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(take_mail(stream));
        }
    });
    address
}

async fn take_mail(mut stream: TcpStream) -> std::io::Result<()> {
    let (from, mut to) = stream.split();
    let mut lines = BufReader::new(from).lines();
    to.write_all(b"220 mail.example ESMTP\r\n").await?;
    while let Some(line) = lines.next_line().await? {
        let answer: &[u8] = match line.get(..4).unwrap_or_default() {
            "DATA" => {
                to.write_all(b"354 go on\r\n").await?;
                while lines.next_line().await?.is_some_and(|line| line != ".") {}
                b"250 2.0.0 taken\r\n"
            }
            "EHLO" => b"250-mail.example\r\n250-8BITMIME\r\n250 SMTPUTF8\r\n",
            "QUIT" => b"221 2.0.0 bye\r\n",
            _ => b"250 2.1.0 fine\r\n",
        };
        to.write_all(answer).await?;
    }
    Ok(())
}

/// The chance that one of the first took longer than one of the others: the area under the curve of the best guesser.
fn later(these: &[Duration], others: &[Duration]) -> f64 {
    let above = |time: &Duration| {
        let half = |other: &Duration| match time.cmp(other) {
            std::cmp::Ordering::Greater => 2,
            std::cmp::Ordering::Equal => 1,
            std::cmp::Ordering::Less => 0,
        };
        others.iter().map(half).sum::<usize>()
    };
    these.iter().map(above).sum::<usize>() as f64 / (2 * these.len() * others.len()) as f64
}

struct Gatehouse {
    address: SocketAddr,
    /// Of a program that guards its own login.
    token: String,
    services: Data<Services>,
    _folder: tempfile::TempDir,
}

impl Gatehouse {
    async fn start(store: &str) -> Self {
        Self::start_with(store, &[]).await
    }

    async fn start_with(store: &str, more: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let variables: Vec<(String, String)> = [
            ("SERVER__BIND", address.to_string()),
            ("DATABASE__URL", format!("sqlite://{}", folder.path().join("bench.db").display())),
            ("SECRETS__KEY_FILE", folder.path().join("key").display().to_string()),
            ("STORE__URL", store.to_owned()),
            ("STORE__TIMEOUT", "1s".to_owned()),
            ("SERVER__TRUSTED_PROXIES", "['127.0.0.1/32']".to_owned()),
            // Everything here comes from one address.
            ("LIMITS__REGISTER_ADDRESS__RULES", "[]".to_owned()),
            ("LIMITS__LOGIN_ADDRESS__RULES", "[]".to_owned()),
            ("LIMITS__LOGIN_NETWORK__RULES", "[]".to_owned()),
            ("LIMITS__GUARD_ADDRESS__RULES", "[]".to_owned()),
            ("LIMITS__GUARD_NETWORK__RULES", "[]".to_owned()),
            ("LIMITS__GUARD_ACCOUNT__RULES", format!("[{{ max = {GUARD_MAX}, window = '1h' }}]")),
        ]
        .iter()
        .chain(more)
        .map(|(key, value)| (format!("GATEHOUSE__{key}"), value.clone()))
        .collect();
        let config = config::parse(Path::new("bench.toml"), APPS, &variables).unwrap();
        let live = LiveHandle::fixed(config.live);
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let application =
            Application::build(config.settings, live, TimeAndEntropy::default(), metrics).await.unwrap();
        let services = application.services.clone();
        tokio::spawn(application.serve().unwrap().run());
        for account in 0..ACCOUNTS {
            let body = format!(r#"{{"login":"user-{account}","password":"{PASSWORD}"}}"#);
            let mut connection = Connection::open(address).await;
            assert_eq!(connection.send(&request("/api/v1/register", &body)).await, 201);
        }
        let owner = services.accounts.find(&Username::parse("user-0").unwrap()).await.unwrap().unwrap();
        let scopes = TokenScopes::parse(["guard:bench"]).unwrap();
        let new = NewToken { name: "bench".to_owned(), scopes, expires_in: None };
        let (token, _) = services.tokens.create(&new, owner.id).await.unwrap().expect("few tokens");
        Self { address, token: token.expose(), services, _folder: folder }
    }

    /// Fails until the account is challenged and gets no more images: the state after a flood has lasted.
    async fn exhaust(&self, login: &str) {
        let mut connection = Connection::open(self.address).await;
        for _ in 0..320 {
            connection.send(&login_request(login, "a wrong password")).await;
        }
    }

    async fn accepted(&self, time: Duration) -> f64 {
        let next = Arc::new(AtomicUsize::new(0));
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (next, address) = (Arc::clone(&next), self.address);
            tasks.spawn(async move {
                let mut connection = Connection::open(address).await;
                while start.elapsed() < time {
                    let account = next.fetch_add(1, Ordering::SeqCst) % ACCOUNTS;
                    let request = login_request(&format!("user-{account}"), PASSWORD);
                    assert_eq!(connection.send(&request).await, 200);
                }
            });
        }
        tasks.join_all().await;
        next.load(Ordering::SeqCst) as f64 / start.elapsed().as_secs_f64()
    }

    /// A check for somebody who is signed in at the application.
    async fn asked_by_proxy(&self) -> Vec<u8> {
        let services = &self.services;
        let account = services.accounts.find(&Username::parse("user-0").unwrap()).await.unwrap().unwrap();
        let client = SignInClient::new(std::net::Ipv4Addr::LOCALHOST.into(), "a benchmark");
        let own = services
            .sessions
            .begin(&account, &client, FirstFactor::Password, None)
            .await
            .unwrap()
            .token()
            .unwrap();
        let session = services.sessions.find(&own).await.unwrap().unwrap().session.id;
        let apps = services.live.snapshot().apps.clone();
        let to = ReturnUrl::parse("https://wiki.example/", &apps, false).unwrap();
        let state = SessionToken::random(&Entropy::Os);
        let told = services.gate.state_hash(to.host(), &state);
        let code = services.gate.permit(session, &to, &told).await.unwrap();
        let redeemed = services.gate.redeem(to.host(), &code, Some(&state)).await.unwrap();
        let RedeemedCode::Session { token, .. } = redeemed else { panic!("no session at the application") };
        format!(
            "GET /api/authz/forward-auth HTTP/1.1\r\nhost: 127.0.0.1\r\nx-forwarded-method: GET\r\n\
             x-forwarded-proto: https\r\nx-forwarded-host: wiki.example\r\nx-forwarded-uri: /page?a=b\r\n\
             x-forwarded-for: 203.0.113.7\r\naccept: text/html\r\ncookie: __Host-gh_app={}\r\n\r\n",
            token.expose()
        )
        .into_bytes()
    }
}

async fn serve_empty() -> SocketAddr {
    let server = HttpServer::new(|| {
        App::new().route("/api/v1/login", post().to(|_: Bytes| async { HttpResponse::Ok().body("{}") }))
    });
    let server = server.disable_signals().bind(("127.0.0.1", 0)).unwrap();
    let address = server.addrs()[0];
    tokio::spawn(server.run());
    address
}

/// A handler that only runs the limiter's own script on one full log.
async fn serve_evalsha(redis: &Redis) -> SocketAddr {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", redis.port)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let script = concat!(
        include_str!("../lua/window.lua"),
        include_str!("../lua/refuse.lua"),
        include_str!("../lua/log.lua"),
        include_str!("../lua/reserve.lua")
    );
    let sha: String =
        redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await.unwrap();
    let mut command = redis::cmd("EVALSHA");
    command.arg(sha).arg(1).arg("bench:full").arg("idbyte").arg(0);
    command.arg(3).arg(70_000).arg(3).arg(3).arg(5).arg(60_000_000);
    let command = Arc::new(command);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(Data::new(connection.clone()))
            .app_data(Data::from(Arc::clone(&command)))
            .route("/api/v1/login", post().to(run_script))
    });
    let server = server.disable_signals().bind(("127.0.0.1", 0)).unwrap();
    let address = server.addrs()[0];
    tokio::spawn(server.run());
    address
}

async fn run_script(
    _: Bytes,
    connection: Data<MultiplexedConnection>,
    command: Data<redis::Cmd>,
) -> HttpResponse {
    let mut connection = MultiplexedConnection::clone(&connection);
    match connection.send_packed_command(&command).await {
        Ok(_) => HttpResponse::Ok().body("{}"),
        Err(_) => HttpResponse::InternalServerError().finish(),
    }
}

/// Hashes per second on every core, with reused memory and nothing else to do.
fn bare_hashes(time: Duration) -> f64 {
    let threads = std::thread::available_parallelism().unwrap().get();
    let start = Instant::now();
    let one = || {
        let params = Params::new(19_456, 2, 1, Some(32)).unwrap();
        let mut memory = vec![Block::new(); params.block_count()];
        let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let (mut out, mut count) = ([0; 32], 0usize);
        while start.elapsed() < time {
            hasher
                .hash_password_into_with_memory(
                    PASSWORD.as_bytes(),
                    b"sixteen bytes!!!",
                    &mut out,
                    &mut memory,
                )
                .unwrap();
            count += 1;
        }
        count
    };
    let count: usize = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    count as f64 / start.elapsed().as_secs_f64()
}

struct Redis {
    process: Child,
    port: u16,
}

impl Redis {
    fn start() -> Self {
        let port = free_port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server");
        let server = Self { process, port };
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
        while client.get_connection().is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut connection = client.get_connection().unwrap();
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64;
        for hit in 0..3 {
            // An hour ahead, so that it stays full during the run.
            let at = now + 3_600_000_000 + hit;
            redis::cmd("ZADD").arg("bench:full").arg(at).arg(hit).query::<()>(&mut connection).unwrap();
        }
        server
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}
