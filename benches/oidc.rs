//! What clients of OpenID Connect call, compared with its bounds in one run: `cargo bench --bench oidc`.
//!
//! Userinfo with a handler that reads one row; a refresh with one that writes one row, so that it survives a power
//! failure, and signs one token by RS256; discovery and keys with an empty handler; and the latency of userinfo and of
//! refreshes while sign-ins are flooded with that when alone. On SQLite and windows in process, unless the URL of an
//! empty PostgreSQL, or of a Redis, is among the arguments.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use actix_web::web::{self, Data};
use actix_web::{App, HttpResponse, HttpServer};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gatehouse::accounts::{FirstFactor, NewGrant, SignInClient, Username};
use gatehouse::app::{Application, TimeAndEntropy};
use gatehouse::clock::Clock;
use gatehouse::config::{self, LiveHandle, SigningAlgorithm};
use gatehouse::db::{Db, DbError, DbLock, Tx};
use gatehouse::oidc::TokenKeys;
use gatehouse::web::http::services::Services;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;
use sqlx::{query, query_scalar};

use self::support::contest::median;
use self::support::load::{
    self, CONNECTIONS, Connection, Flood, always, free_port, latencies, load, login_request, percentile,
    request, verdict,
};

const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;
const ACCOUNTS: usize = 40;
/// As many as a client may have in one session.
const GRANTS: usize = 20;
const PASSWORD: &str = "correct horse battery staple";
const SECRET: &str = "a secret of thirty-two characters";
const CALLBACK: &str = "https://wiki.example/callback";

fn main() {
    load::main(run());
}

async fn run() {
    let server = Server::start().await;
    let bounds = bounds(&server).await;
    let mut met = userinfo(&server, bounds).await;
    met &= refreshes(&server, bounds).await;
    documents(&server, bounds).await;
    met &= flooded(&server, bounds).await;
    // The servers' threads would otherwise outlive this.
    std::process::exit(i32::from(!met));
}

async fn userinfo(server: &Server, bounds: SocketAddr) -> bool {
    let asked = get("/oauth/userinfo", &server.access);
    let read = get("/read", "x");
    let rates = in_turn("userinfo", async |which| match which {
        0 => load(bounds, &read, 200, CONNECTIONS, ROUND).await,
        _ => load(server.address, &asked, 200, CONNECTIONS, ROUND).await,
    });
    told(["handler that reads a row", "userinfo"], rates.await, Some(0.6))
}

async fn refreshes(server: &Server, bounds: SocketAddr) -> bool {
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let own = server.refresh.iter().skip(number).step_by(CONNECTIONS).cloned().collect();
        clients.push(Refreshing { tokens: own, turn: 0 });
    }
    let write = request("/write", "");
    let rates = in_turn("refreshes", async |which| match which {
        0 => load(bounds, &write, 200, CONNECTIONS, ROUND).await,
        _ => refreshed(server.address, &mut clients).await,
    });
    told(["handler that writes a row and signs", "refreshes"], rates.await, Some(0.5))
}

async fn documents(server: &Server, bounds: SocketAddr) {
    let [empty, discovery, keys] =
        ["/empty", "/.well-known/openid-configuration", "/oauth/keys"].map(|path| get(path, "x"));
    for (name, asked) in [("discovery", discovery), ("keys", keys)] {
        let rates = in_turn(name, async |which| match which {
            0 => load(bounds, &empty, 200, CONNECTIONS, ROUND).await,
            _ => load(server.address, &asked, 200, CONNECTIONS, ROUND).await,
        });
        told(["empty handler", name], rates.await, None);
    }
}

/// What of it is the machine's: the handler that reads a row is on workers of its own that no flood reaches, and the
/// keys wait among the flood's requests, and for nothing else.
async fn flooded(server: &Server, bounds: SocketAddr) -> bool {
    let mut connection = Connection::open(server.address).await;
    // Until it is refused without a hash, as after a flood has lasted.
    for _ in 0..320 {
        connection.send(&login_request("flooded", "a wrong password")).await;
    }
    println!("latency of one call after another, p50 / p99 in ms, alone and beside refused sign-ins");
    let (time, mut met) = (3 * ROUND, true);
    for name in ["handler that reads a row", "keys", "userinfo", "refreshes"] {
        let (half, _) = server.spare.split_at(server.spare.len() / 2);
        let measure = async |own: &[String]| {
            let mut client = Refreshing { tokens: own.to_owned(), turn: 0 };
            match name {
                "handler that reads a row" => latencies(bounds, always(&get("/read", "x")), time).await,
                "keys" => latencies(server.address, always(&get("/oauth/keys", "x")), time).await,
                "userinfo" => {
                    latencies(server.address, always(&get("/oauth/userinfo", &server.access)), time).await
                }
                _ => latencies(server.address, move |answer| client.next(answer), time).await,
            }
        };
        let mut alone = measure(half).await;
        let flooding = Flood::start(server.address, time);
        let mut beside = measure(&server.spare[half.len()..]).await;
        let refused = flooding.count() as f64 / time.as_secs_f64();
        for (when, times) in [("alone", &mut alone), (&*format!("beside {refused:.0} a second"), &mut beside)]
        {
            let (half, most) = (percentile(times, 50), percentile(times, 99));
            println!("  {:44} {half:9.2} / {most:.2}", format!("{name} {when}"));
        }
        let ratio = percentile(&mut beside, 99) / percentile(&mut alone, 99);
        match name {
            "userinfo" | "refreshes" => {
                println!("  p99 ratio {ratio:.2}; bar: at most 3: {}", verdict(ratio <= 3.0));
                met &= ratio <= 3.0;
            }
            _ => println!("  p99 ratio {ratio:.2}"),
        }
    }
    met
}

/// Both in turn: the rates of each in a second.
async fn in_turn(what: &str, mut round: impl AsyncFnMut(usize) -> f64) -> [Vec<f64>; 2] {
    println!("{what} per second, {CONNECTIONS} connections, {ROUNDS} rounds in turn");
    let mut rates = [const { Vec::new() }; 2];
    for number in 0..=ROUNDS {
        for (which, rates) in rates.iter_mut().enumerate() {
            let rate = round(which).await;
            // The first is thrown away.
            if number > 0 {
                rates.push(rate);
            }
        }
    }
    rates
}

/// Prints both, and whether the second is this much of the first, by the median of the rounds' ratios.
fn told(names: [&str; 2], [first, second]: [Vec<f64>; 2], bar: Option<f64>) -> bool {
    let mut ratios: Vec<f64> = second.iter().zip(&first).map(|(own, other)| own / other).collect();
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    let ratio = median(ratios);
    println!("  {:44} {:9.0}", names[0], median(first));
    println!("  {:44} {:9.0}  {ratio:.2} of it ({least:.2} to {most:.2})", names[1], median(second));
    let met = bar.is_none_or(|bar| ratio >= bar);
    if let Some(bar) = bar {
        println!("  bar: at least {bar}: {}", verdict(met));
    }
    met
}

fn get(path: &str, token: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\r\n").into_bytes()
}

/// A client with grants, which it carries on one after the other.
struct Refreshing {
    tokens: Vec<String>,
    turn: usize,
}

impl Refreshing {
    /// The next request, after this answer to the one before. Without it the same token comes again in its turn.
    fn next(&mut self, answer: &[u8]) -> Vec<u8> {
        let count = self.tokens.len();
        if !answer.is_empty() {
            let answer: serde_json::Value = serde_json::from_slice(answer).unwrap();
            answer["refresh_token"].as_str().unwrap().clone_into(&mut self.tokens[(self.turn - 1) % count]);
        }
        let body = format!("grant_type=refresh_token&refresh_token={}", self.tokens[self.turn % count]);
        self.turn += 1;
        format!(
            "POST /oauth/token HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Basic {}\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
            STANDARD.encode(format!("wiki:{SECRET}")),
            body.len()
        )
        .into_bytes()
    }
}

/// Refreshes a second, of each client over a connection of its own.
async fn refreshed(address: SocketAddr, clients: &mut Vec<Refreshing>) -> f64 {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for mut client in clients.drain(..) {
        tasks.spawn(async move {
            let (mut connection, mut count) = (Connection::open(address).await, 0usize);
            while start.elapsed() < ROUND {
                let request = client.next(connection.body());
                assert_eq!(connection.send(&request).await, 200);
                count += 1;
            }
            (client, count)
        });
    }
    let (back, counts): (Vec<_>, Vec<_>) = tasks.join_all().await.into_iter().unzip();
    *clients = back;
    counts.into_iter().sum::<usize>() as f64 / start.elapsed().as_secs_f64()
}

struct Server {
    address: SocketAddr,
    database: String,
    keys: TokenKeys,
    /// The row that the bound reads.
    session: String,
    access: String,
    /// Of the refreshes by all, and of those by one.
    refresh: Vec<String>,
    spare: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let path = |name: &str| folder.path().join(name).display().to_string();
        let given = |scheme: &str| std::env::args().find(|word| word.starts_with(scheme));
        let database = given("postgres").unwrap_or_else(|| format!("sqlite://{}", path("bench.db")));
        std::fs::write(path("secret"), SECRET).unwrap();
        let apps = format!(
            "[[apps]]\nname = 'wiki'\nwho = ['everyone']\n[apps.oidc]\nsecret = 'file:{}'\n\
             redirect_uris = ['{CALLBACK}']\npkce = 'optional'\n",
            path("secret")
        );
        let variables: Vec<(String, String)> = [
            ("SERVER__BIND", address.to_string()),
            ("DATABASE__URL", database.clone()),
            ("SECRETS__KEY_FILE", path("key")),
            ("STORE__URL", given("redis").unwrap_or_else(|| "memory:".to_owned())),
            ("STORE__TIMEOUT", "1s".to_owned()),
            // Everything here comes from one address, which may have that many connections as a proxy only.
            ("SERVER__TRUSTED_PROXIES", "['127.0.0.1/32']".to_owned()),
            ("LIMITS__REGISTER_ADDRESS__RULES", "[]".to_owned()),
            ("LIMITS__LOGIN_ADDRESS__RULES", "[]".to_owned()),
            ("LIMITS__LOGIN_NETWORK__RULES", "[]".to_owned()),
        ]
        .map(|(key, value)| (format!("GATEHOUSE__{key}"), value))
        .into();
        let config = config::parse(Path::new("bench.toml"), &apps, &variables).unwrap();
        let live = LiveHandle::fixed(config.live);
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let application =
            Application::build(config.settings, live, TimeAndEntropy::default(), metrics).await.unwrap();
        let services = application.services.clone();
        tokio::spawn(application.serve().unwrap().run());
        let keys = services.token_keys.clone();
        while !keys.is_ready(SigningAlgorithm::Rs256) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (mut session, mut access, mut all) = (String::new(), String::new(), Vec::new());
        for number in 0..ACCOUNTS {
            let body = format!(r#"{{"login":"user-{number}","password":"{PASSWORD}"}}"#);
            let mut connection = Connection::open(address).await;
            assert_eq!(connection.send(&request("/api/v1/register", &body)).await, 201);
            session = begin(&services, &format!("user-{number}"), &mut all, &mut access).await;
        }
        let spare = all.split_off(all.len() - 5 * GRANTS);
        Self { address, database, keys, session, access, refresh: all, spare, _folder: folder }
    }
}

/// Grants of a new session of this account: adds the refresh tokens, sets an access token and returns the session.
async fn begin(services: &Services, login: &str, refresh: &mut Vec<String>, access: &mut String) -> String {
    let account = services.accounts.find(&Username::parse(login).unwrap()).await.unwrap().unwrap();
    let client = SignInClient::new(std::net::Ipv4Addr::LOCALHOST.into(), "a benchmark");
    let begun = services.sessions.begin(&account, &client, FirstFactor::Password, None).await.unwrap();
    let own = begun.token().unwrap();
    let session = services.sessions.find(&own).await.unwrap().unwrap().session.id;
    for _ in 0..GRANTS {
        let new = NewGrant {
            client: "wiki",
            session,
            scope: "openid profile email groups",
            methods: "first pwd",
            auth_time: Clock::System.now(),
            redirect_uri: CALLBACK,
            challenge: "",
            nonce: None,
        };
        let code = services.grants.begin(new).await.unwrap().expect("the session is new");
        let issued =
            services.grants.exchange(&code.expose(), ("wiki", CALLBACK), None, |_| true).await.unwrap();
        let Ok(issued) = issued else { panic!("a code that is new") };
        refresh.push(issued.refresh.to_string());
        *access = issued.access.expose();
    }
    session.to_string()
}

/// On connections of their own to the same database.
struct Bounds {
    db: Db,
    session: String,
    keys: TokenKeys,
    number: AtomicU64,
}

/// Serves the handlers that ours are compared with.
async fn bounds(server: &Server) -> SocketAddr {
    const ROWS: &str = "CREATE TABLE bench_rows (id BIGINT PRIMARY KEY NOT NULL, at BIGINT NOT NULL)";
    let db = Db::connect(&server.database).await.unwrap();
    match &db {
        Db::Sqlite(pools) => query(ROWS).execute(&pools.all).await.map(drop).unwrap(),
        Db::Postgres(pools) => query(ROWS).execute(&pools.all).await.map(drop).unwrap(),
    }
    let (session, keys) = (server.session.clone(), server.keys.clone());
    let bounds = Data::new(Bounds { db, session, keys, number: AtomicU64::new(0) });
    let serve = move || {
        App::new()
            .app_data(bounds.clone())
            .route("/read", web::get().to(read))
            .route("/write", web::post().to(write))
            .route("/empty", web::get().to(async || HttpResponse::Ok().body("{}")))
    };
    let server = HttpServer::new(serve).disable_signals().bind(("127.0.0.1", 0)).unwrap();
    let address = server.addrs()[0];
    tokio::spawn(server.run());
    address
}

async fn read(bounds: Data<Bounds>) -> HttpResponse {
    const SQL: &str = "SELECT account FROM sessions WHERE id = $1";
    let account: Result<String, sqlx::Error> = match &bounds.db {
        Db::Sqlite(pools) => query_scalar(SQL).bind(&bounds.session).fetch_one(&pools.all).await,
        Db::Postgres(pools) => query_scalar(SQL).bind(&bounds.session).fetch_one(&pools.all).await,
    };
    match account {
        Ok(account) => HttpResponse::Ok().json(json!({ "sub": account })),
        Err(_) => HttpResponse::InternalServerError().finish(),
    }
}

async fn write(bounds: Data<Bounds>, _: web::Bytes) -> HttpResponse {
    let number = bounds.number.fetch_add(1, Ordering::Relaxed);
    let claims = json!({ "sub": bounds.session, "iat": number });
    let signed =
        insert(&bounds.db, number).await.map(|()| bounds.keys.sign(SigningAlgorithm::Rs256, &claims, "JWT"));
    match signed {
        Ok(Ok(token)) => HttpResponse::Ok().json(json!({ "id_token": token })),
        _ => HttpResponse::InternalServerError().finish(),
    }
}

async fn insert(db: &Db, number: u64) -> Result<(), DbError> {
    const SQL: &str = "INSERT INTO bench_rows (id, at) VALUES ($1, $2)";
    let mut tx = db.begin_exclusive(DbLock::grant(&number.to_le_bytes())).await?;
    let (id, at) = (number as i64, Clock::System.now().0);
    match &mut tx {
        Tx::Sqlite(tx) => query(SQL).bind(id).bind(at).execute(&mut **tx).await.map(drop)?,
        Tx::Postgres(tx) => query(SQL).bind(id).bind(at).execute(&mut **tx).await.map(drop)?,
    }
    tx.commit().await
}
