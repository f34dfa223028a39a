//! A whole Gatehouse on a free port, with its own database and store, and a clock that a test moves.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::web::Data;
use gatehouse::accounts::{Roles, Username};
use gatehouse::app::{Application, TimeAndEntropy};
use gatehouse::clock::Clock;
use gatehouse::config::{ConfigSource, ConfigWatcher, LoadedConfig};
use gatehouse::entropy::Entropy;
use gatehouse::secret::MasterKey;
use gatehouse::web::http::services::Services;
use metrics_exporter_prometheus::PrometheusHandle;

pub use super::answer::{Answer, http};
use super::database::TestDatabase;
use super::limits::NOON;
use super::ports::free_port;
use super::postgres::PostgresServer;
use super::redis::RedisServer;
use super::setup::Setup;
use super::steered::SteeredClock;

/// The fixed answer of every challenge here. Its letters are not in the alphabet, so nothing is drawn.
pub const ANSWER: &str = "solo";
/// A password that the policy takes.
pub const PASSWORD: &str = "correct horse battery staple";

/// What an installation keeps its windows in. Each kind comes with one kind of database, so that tests on
/// both stores also test both databases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Store {
    /// With SQLite: the built-in parts.
    Memory,
    /// With PostgreSQL: an installation of several machines.
    Redis,
}

impl Store {
    /// An empty database of the matching kind.
    pub async fn database(self) -> TestDatabase {
        match self {
            Self::Memory => TestDatabase::sqlite(),
            Self::Redis => TestDatabase::postgres().await,
        }
    }
}

/// Each function of a store becomes a test on each of them.
macro_rules! on_both_stores {
    ($($test:ident),+ $(,)?) => {
        mod in_process {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::support::app::Store::Memory).await;
            })+
        }

        mod on_redis {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::support::app::Store::Redis).await;
            })+
        }
    };
}
pub(crate) use on_both_stores;

pub struct TestApp {
    pub url: String,
    pub services: Data<Services>,
    pub clock: Clock,
    /// Where its database is.
    pub database: String,
    /// If the store is Redis.
    pub redis: Option<RedisServer>,
    /// If requested; see [`Setup::own_postgres`].
    pub postgres: Option<PostgresServer>,
    handle: ServerHandle,
    ground: Ground,
    file: PathBuf,
    _watcher: ConfigWatcher,
}

/// What instances of one installation share.
#[derive(Clone)]
struct Ground {
    folder: Arc<tempfile::TempDir>,
    clock: Clock,
    /// Redis's.
    steered: Option<Arc<SteeredClock>>,
    database: String,
    /// What that is in, unless it is in a server of the test's own.
    _database: Arc<TestDatabase>,
    store_url: Option<String>,
}

impl Setup {
    pub async fn start(self) -> TestApp {
        let clock = if self.real_clocks { Clock::System } else { Clock::manual(NOON) };
        let steered = (self.store == Store::Redis).then(|| Arc::new(SteeredClock::at(clock.now())));
        let redis = steered.as_deref().map(RedisServer::steered);
        let own = self.store.database().await;
        let (mut database, mut postgres) = (own.url.clone(), None);
        if self.own_postgres {
            let server = PostgresServer::start().await;
            database = server.database("gatehouse").await;
            postgres = Some(server);
        }
        let ground = Ground {
            folder: Arc::new(tempfile::tempdir().unwrap()),
            clock,
            steered,
            database,
            _database: Arc::new(own),
            store_url: redis.as_ref().map(RedisServer::url),
        };
        let mut app = TestApp::build(ground, self).await;
        (app.redis, app.postgres) = (redis, postgres);
        app
    }
}

impl TestApp {
    pub async fn start(store: Store) -> Self {
        Self::on(store).start().await
    }

    /// `toml` is its configuration file.
    pub async fn with(store: Store, toml: &str) -> Self {
        Self::on(store).file(toml).start().await
    }

    /// Another instance on the same database, store, key and clocks.
    pub async fn beside(&self, setup: Setup) -> Self {
        Self::build(self.ground.clone(), setup).await
    }

    /// Another instance with the same key and clocks, whose database is at that address.
    pub async fn on_database(&self, database: &str) -> Self {
        let ground = Ground { database: database.to_owned(), store_url: None, ..self.ground.clone() };
        Self::build(ground, Self::on(Store::Memory)).await
    }

    async fn build(ground: Ground, mut setup: Setup) -> Self {
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let url = format!("http://{}:{port}", setup.host);
        let mut default = |key: &str, value: &str| {
            setup.keys.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        };
        default("server.bind", &address);
        default("server.public_url", &url);
        default("database.url", &ground.database);
        default("secrets.key_file", ground.folder.path().join("secret.key").to_str().unwrap());
        // Two busy cores are not an outage; the tests of outages set their own timeout.
        default("store.timeout", "5s");
        if let Some(url) = &ground.store_url {
            default("store.url", url);
        }
        default("captcha.provider", "fixed");
        // Without them no image means no challenge; tests of proofs of work ask for them.
        default("captcha.proof_of_work", "false");
        if setup.keys["captcha.provider"] == "fixed" {
            setup = setup.set("captcha.fixed_answer", ANSWER);
        }
        let first = ground.folder.path().join("test.toml");
        let beside = || ground.folder.path().join(format!("test-{}.toml", address.replace(':', "-")));
        let file = if first.exists() { beside() } else { first };
        std::fs::write(&file, &setup.file).unwrap();
        let source = ConfigSource::new(Some(&file), setup.variables());
        let LoadedConfig { mut settings, live, .. } = source.load().unwrap();
        let clock = ground.clock.clone();
        let watcher =
            ConfigWatcher::start(source, settings.clone(), live.clone(), clock.clone(), |_| {}).unwrap();
        // As cheap as it gets, unless the test says what it costs.
        if !setup.sets("password.") {
            settings.password.memory_kib = 64;
            settings.password.iterations = 1;
        }
        let world = TimeAndEntropy { clock: clock.clone(), entropy: Entropy::Os };
        let application = Application::build(settings, live, world, recorder()).await.unwrap();
        let services = application.services.clone();
        let serving = application.serve().unwrap();
        let handle = serving.handle();
        tokio::spawn(serving.run());
        let database = ground.database.clone();
        let (redis, postgres) = (None, None);
        Self { url, services, clock, database, redis, postgres, handle, ground, file, _watcher: watcher }
    }

    /// The watched configuration file with `toml`.
    pub fn file(&self) -> PathBuf {
        self.file.clone()
    }

    /// The same port, with an empty Redis.
    pub fn restart_redis(&mut self) {
        let old = self.redis.take().expect("an app on Redis");
        let (port, steered) = (old.port, self.ground.steered.as_ref().expect("a clock for it"));
        drop(old);
        self.redis = Some(RedisServer::start_at(port, |command| steered.steer(command)));
    }

    /// By which Redis counts.
    pub fn clock_of_redis(&self) -> &SteeredClock {
        self.ground.steered.as_deref().expect("an app on Redis")
    }

    /// Advances every clock.
    pub fn advance(&self, span: Duration) {
        self.clock.advance(span);
        if let Some(steered) = &self.ground.steered {
            steered.advance(span);
        }
    }

    /// What its secrets are derived from.
    pub fn master_key(&self) -> MasterKey {
        MasterKey::load_or_create(&self.ground.folder.path().join("secret.key"), &Entropy::Os).unwrap()
    }

    /// A client with its own cookies, which does not follow redirects.
    pub fn client(&self) -> Client {
        self.client_that_says(&[])
    }

    /// A client whose every request says that it was forwarded for this address.
    pub fn client_at(&self, address: &str) -> Client {
        self.client_that_says(&[("x-forwarded-for", address)])
    }

    /// A client that sends these headers with every request.
    pub fn client_that_says(&self, headers: &[(&'static str, &str)]) -> Client {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let http = http()
            .default_headers(headers.collect())
            .cookie_store(true)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        Client { http, url: self.url.clone() }
    }

    pub async fn stop(&self) {
        self.handle.stop(false).await;
    }

    /// How many password hashes were computed so far.
    pub fn hashes(&self) -> u64 {
        self.services.hasher.verifications()
    }

    /// An administrator's account, which nobody can register.
    pub async fn administrator(&self, name: &str) {
        let (login, services) = (Username::parse(name).unwrap(), &self.services);
        let hash = services.hasher.hash_new(PASSWORD, &login).await.unwrap().unwrap();
        services.accounts.create(&login, &hash, Roles { admin: true }).await.unwrap();
    }

    /// A new administrator's client.
    pub async fn sign_in_admin(&self, name: &str) -> Client {
        self.admit(name, self.client()).await
    }

    /// The same at an address, behind a proxy.
    pub async fn sign_in_admin_at(&self, name: &str, address: &str) -> Client {
        self.admit(name, self.client_at(address)).await
    }

    async fn admit(&self, name: &str, client: Client) -> Client {
        self.administrator(name).await;
        assert_eq!(client.login(name, PASSWORD).await.status, 200);
        client
    }

    pub async fn register(&self, login: &str) {
        let answer = self.client().register(login, PASSWORD).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        // Sends the signal; nothing has to wait for it.
        drop(self.handle.stop(false));
    }
}

/// The process has one recorder, whichever app asks first.
fn recorder() -> PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| gatehouse::telemetry::builder().install_recorder().unwrap()).clone()
}

/// What tests type that want a failure: each time it is another guess, because the same one again is none.
pub const WRONG: &str = "a wrong password";

pub fn typed(password: &str) -> String {
    static GUESSES: AtomicU64 = AtomicU64::new(0);
    match password {
        WRONG | "wrong" => format!("{password} {}", GUESSES.fetch_add(1, Ordering::Relaxed)),
        _ => password.to_owned(),
    }
}

#[derive(Clone)]
pub struct Client {
    pub http: reqwest::Client,
    pub url: String,
}

/// Where a subject of a limit is looked up and let in again.
pub fn subject_path(limit: &str, subject: &str) -> String {
    let subject: String = url::form_urlencoded::byte_serialize(subject.as_bytes()).collect();
    format!("/api/v1/admin/subjects/{limit}/{}", subject.replace('+', "%20"))
}

impl Client {
    pub fn of(url: &str) -> Self {
        let http = http().cookie_store(true).redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { http, url: url.to_owned() }
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::read(self.http.get(format!("{}{path}", self.url)).send().await.unwrap()).await
    }

    /// [`WRONG`] in it is another one each time.
    pub async fn call(&self, path: &str, mut body: serde_json::Value) -> Answer {
        for field in ["password", "current_password"] {
            if let Some(password) = body[field].as_str() {
                body[field] = typed(password).into();
            }
        }
        let request = self.http.post(format!("{}/api/v1{path}", self.url)).json(&body);
        Answer::read(request.send().await.unwrap()).await
    }

    /// Saves over what has that version.
    pub async fn put(&self, path: &str, version: &str, body: serde_json::Value) -> Answer {
        let request = self.http.put(format!("{}{path}", self.url)).json(&body);
        Answer::read(request.header("if-match", format!("\"{version}\"")).send().await.unwrap()).await
    }

    pub async fn delete(&self, path: &str, body: serde_json::Value) -> Answer {
        Answer::read(self.http.delete(format!("{}{path}", self.url)).json(&body).send().await.unwrap()).await
    }

    /// Lets a subject of a limit in again.
    pub async fn clear(&self, limit: &str, subject: &str) -> Answer {
        self.delete(&subject_path(limit, subject), serde_json::json!({ "reason": "called us" })).await
    }

    /// A form, sent as a browser sends it from a page of ours.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let value = |name: &str, value: &str| match name {
            "password" | "current_password" => typed(value),
            _ => value.to_owned(),
        };
        let fields: Vec<_> = fields.iter().map(|(name, text)| (*name, value(name, text))).collect();
        let request = self.http.post(format!("{}{path}", self.url)).header("origin", &self.url).form(&fields);
        Answer::read(request.send().await.unwrap()).await
    }

    /// A form with the token from the page at `page`.
    pub async fn submit(&self, page: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let token = self.get(page).await.csrf_token();
        self.post(path, &[fields, &[("csrf_token", &token)]].concat()).await
    }

    pub async fn register(&self, login: &str, password: &str) -> Answer {
        self.call("/register", serde_json::json!({ "login": login, "password": password })).await
    }

    pub async fn login(&self, login: &str, password: &str) -> Answer {
        self.call("/login", serde_json::json!({ "login": login, "password": password })).await
    }

    /// With a challenge that was solved before it was asked for.
    pub async fn login_solved(&self, login: &str, password: &str) -> Answer {
        let id = self.challenge().await;
        self.login_with(login, password, &id, ANSWER).await
    }

    pub async fn login_with(&self, login: &str, password: &str, id: &str, answer: &str) -> Answer {
        let captcha = serde_json::json!({ "id": id, "answer": answer });
        let body = serde_json::json!({ "login": login, "password": password, "captcha": captcha });
        self.call("/login", body).await
    }

    /// Asks for a code.
    pub async fn ask_code(&self, phone: &str, purpose: &str) -> Answer {
        self.call("/sms/codes", serde_json::json!({ "phone": phone, "purpose": purpose })).await
    }

    /// The codes in the outbox, newest first; only those to one number if one is given.
    pub async fn codes(&self, phone: &str) -> Vec<String> {
        let query: String = url::form_urlencoded::byte_serialize(phone.as_bytes()).collect();
        let answer = self.get(&format!("/dev/outbox.json?phone={query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let messages = answer.body.as_array().unwrap().iter();
        messages.map(|message| message["code"].as_str().unwrap().to_owned()).collect()
    }

    /// Asks for a code and reads it.
    pub async fn code(&self, phone: &str, purpose: &str) -> String {
        let answer = self.ask_code(phone, purpose).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        self.codes(phone).await.remove(0)
    }

    /// A challenge's image.
    pub async fn image(&self, id: &str) -> Answer {
        self.get(&format!("/captcha/{id}.png")).await
    }

    /// A fresh challenge's id.
    pub async fn challenge(&self) -> String {
        let answer = self.call("/captcha", serde_json::json!({})).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.body["id"].as_str().unwrap().to_owned()
    }
}
