//! Traces and metrics as a receiver of OTLP gets them.

mod metrics;
mod receiver;

use std::collections::BTreeSet;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;

use self::metrics::lines_of;
use self::receiver::{Mood, Receiver, attribute, end};
use crate::oidc;
use crate::support::app::{Answer, Client};
use crate::support::database::TestDatabase;
use crate::support::ports::free_port;
use crate::support::process::Home;
use crate::support::redis::RedisServer;

const LOGIN: &str = "marguerite-yourcenar";
const WORD: &str = "l-oeuvre au noir 1968";
const PHONE: &str = "+8613912345678";
const ADDRESS: &str = "203.0.113.77";

/// One of each thing that has something to hide; returns what else nobody may see.
async fn a_day(client: &Client) -> Vec<String> {
    let answer = client.register(LOGIN, WORD).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let mut secrets = cookies(&answer);
    assert!(!secrets.is_empty());
    assert_eq!(client.login(LOGIN, WORD).await.status, 200);
    assert_eq!(client.login(LOGIN, "wrong word entirely").await.status, 401);
    secrets.push(client.code(PHONE, "login").await);
    client.call("/sms/login", json!({ "phone": PHONE, "code": "000000" })).await;
    client.get(&format!("/login?next=/{LOGIN}")).await;
    client.get(&format!("/{LOGIN}/{PHONE}")).await;
    client.get(&format!("/api/v1/admin/subjects/login-account/{LOGIN}")).await;
    client.get("/account").await;
    secrets
}

/// The values of the cookies that it sets.
fn cookies(answer: &Answer) -> Vec<String> {
    let lines = answer.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let values = lines.map(|line| line.split(['=', ';']).nth(1).unwrap().to_owned());
    values.filter(|value| value.len() > 8).collect()
}

async fn send(client: &Client, path: &str, headers: &[(&str, &str)]) {
    let request = client.http.get(format!("{}{path}", client.url));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.send().await.unwrap();
}

#[tokio::test]
async fn requests_are_traced_by_route_and_name_nobody() {
    let receiver = Receiver::start(Mood::Accepts);
    let mut home = receiver.home();
    home.set("GATEHOUSE__SERVER__TRUSTED_PROXIES", "[\"127.0.0.1/32\"]");
    home.set("GATEHOUSE__TELEMETRY__HEADERS__AUTHORIZATION", "env:OTLP_KEY");
    home.set("OTLP_KEY", "Bearer let-me-in");
    // Read by OpenTelemetry's SDKs, and by nothing here.
    home.set("OTEL_SERVICE_NAME", "another");
    home.set("OTEL_TRACES_SAMPLER", "always_off");
    let running = home.start(&["serve"]).await;
    let client = running.client();
    let mut hidden = a_day(&client).await;
    send(&client, "/login", &[("x-forwarded-for", ADDRESS), ("user-agent", "Navigator/7.7")]).await;
    end(running).await;

    let spans = receiver.spans();
    let named = |name: &str| receiver.requests(name);
    let sign_ins = named("POST /api/v1/login");
    let statuses: Vec<_> =
        sign_ins.iter().map(|span| attribute(&span.attributes, "http.response.status_code")).collect();
    assert_eq!(statuses, ["200", "401"]);
    let sign_in = &sign_ins[0];
    assert_eq!(sign_in.kind, 2, "a server's");
    assert_eq!(attribute(&sign_in.attributes, "http.route"), "/api/v1/login");
    assert_eq!(attribute(&sign_in.attributes, "http.request.method"), "POST");
    assert!(!attribute(&sign_in.attributes, "gatehouse.request_id").is_empty());
    assert!(sign_in.end_time_unix_nano > sign_in.start_time_unix_nano && sign_in.parent_span_id.is_empty());
    assert!(named("GET").iter().all(|span| attribute(&span.attributes, "http.route").is_empty()));
    assert!(!named("GET").is_empty(), "paths without a route are not named");
    assert_eq!(named("GET /api/v1/admin/subjects/{limit}/{subject}").len(), 1);
    assert_eq!(under(&spans, sign_in), BTreeSet::from(["hash password", "sql"]));
    assert!(under(&spans, &named("POST /api/v1/sms/codes")[0]).contains("send message"));
    // Upkeep is no request.
    assert!(spans.iter().all(|span| span.kind == 2 || !span.parent_span_id.is_empty()));

    let resource =
        ExportTraceServiceRequest::decode(receiver.exports("/v1/traces")[0].body.as_slice()).unwrap();
    let resource = resource.resource_spans[0].resource.clone().unwrap();
    assert_eq!(attribute(&resource.attributes, "service.name"), "gatehouse");
    assert!(attribute(&resource.attributes, "service.instance.id").ends_with(&format!(":{}", home.port)));
    hidden.extend(
        [LOGIN, WORD, PHONE, &PHONE[3..], ADDRESS, "wrong word", "Navigator", "let-me-in"].map(str::to_owned),
    );
    for export in receiver.got.lock().unwrap().iter() {
        assert_eq!(export.authorization, "Bearer let-me-in");
        for secret in &hidden {
            let found = export.body.windows(secret.len()).any(|bytes| bytes == secret.as_bytes());
            assert!(!found, "{secret} in {}", String::from_utf8_lossy(&export.body));
        }
    }
}

/// What `span` did, as its children and theirs.
fn under<'s>(spans: &'s [Span], parent: &Span) -> BTreeSet<&'s str> {
    let children = spans.iter().filter(|span| span.trace_id == parent.trace_id);
    children.filter(|span| span.span_id != parent.span_id).map(|span| span.name.as_str()).collect()
}

fn home_on(receiver: &Receiver, redis: &RedisServer, database: &TestDatabase) -> Home {
    let mut home = receiver.home();
    home.set("GATEHOUSE__STORE__URL", redis.url());
    home.set("GATEHOUSE__DATABASE__URL", &database.url);
    home
}

#[tokio::test]
async fn calls_to_redis_and_to_postgres_are_spans_of_their_request() {
    let (receiver, redis) = (Receiver::start(Mood::Accepts), RedisServer::start());
    let database = TestDatabase::postgres().await;
    let home = home_on(&receiver, &redis, &database);
    let running = home.start(&["serve"]).await;
    assert_eq!(running.client().login(LOGIN, WORD).await.status, 401);
    end(running).await;
    let (spans, sign_in) = (receiver.spans(), &receiver.requests("POST /api/v1/login")[0]);
    assert_eq!(under(&spans, sign_in), BTreeSet::from(["hash password", "redis", "sql"]));
    let systems: BTreeSet<_> =
        spans.iter().map(|span| attribute(&span.attributes, "db.system.name")).collect();
    assert_eq!(systems, BTreeSet::from(["", "postgresql", "redis"].map(str::to_owned)));
}

#[tokio::test]
async fn a_sign_in_without_a_second_factor_is_as_many_calls_as_before_there_were_any() {
    let (receiver, redis) = (Receiver::start(Mood::Accepts), RedisServer::start());
    let database = TestDatabase::postgres().await;
    let home = home_on(&receiver, &redis, &database);
    let running = home.start(&["serve"]).await;
    let client = running.client();
    assert_eq!(client.register(LOGIN, WORD).await.status, 201);
    for (password, status) in [(WORD, 200), (WORD, 200), ("wrong word entirely", 401)] {
        assert_eq!(client.login(LOGIN, password).await.status, status);
    }
    let stranger = running.client();
    for status in [401, 401, 401, 403] {
        assert_eq!(stranger.login(LOGIN, "wrong word entirely").await.status, status);
    }
    assert_eq!(client.get("/api/v1/session").await.status, 200);
    end(running).await;
    let spans = receiver.spans();
    let calls = |request: &Span| {
        let of =
            |name| spans.iter().filter(|span| span.trace_id == request.trace_id && span.name == name).count();
        (of("redis"), of("sql"))
    };
    let sign_ins: Vec<_> = receiver.requests("POST /api/v1/login").iter().map(calls).collect();
    // A slot is taken and settled. What settles a wrong password tells whether the next needs a challenge, too.
    assert_eq!(sign_ins, [(2, 2), (2, 2), (2, 3), (2, 3), (2, 3), (2, 3), (2, 0)]);
    let session: Vec<_> = receiver.requests("GET /api/v1/session").iter().map(calls).collect();
    assert_eq!(session, [(0, 1)]);
}

#[tokio::test]
async fn a_client_of_openid_connect_costs_few_statements_and_asks_no_redis() {
    let (receiver, redis) = (Receiver::start(Mood::Accepts), RedisServer::start());
    let database = TestDatabase::postgres().await;
    let home = home_on(&receiver, &redis, &database);
    home.write("gatehouse.toml", &oidc::clients());
    let running = home.start(&["serve"]).await;
    let (client, url) = (running.client(), home.url());
    assert_eq!(client.register(LOGIN, WORD).await.status, 201);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while client.get("/oauth/keys").await.status != 200 {
        assert!(tokio::time::Instant::now() < deadline, "no key was made");
        tokio::time::sleep(Duration::from_millis(50)).await; // a thread makes the key, which our clock does not move
    }
    let code = oidc::code(&client, &[]).await;
    let call = async |fields: &[(&str, &str)]| {
        oidc::tokens(&oidc::call_at(&url, "/oauth/token", oidc::BY_WIKI, fields).await)
    };
    let by_code = [
        ("grant_type", "authorization_code"),
        ("code", &*code),
        ("redirect_uri", oidc::WIKI),
        ("code_verifier", oidc::VERIFIER),
    ];
    let (_, first) = call(&by_code).await;
    let (access, _) = call(&[("grant_type", "refresh_token"), ("refresh_token", &first)]).await;
    assert_eq!(oidc::userinfo(&url, &access).await.status, 200);
    end(running).await;
    let spans = receiver.spans();
    let calls = |name: &str| -> Vec<_> {
        let count = |request: &Span, name: &str| {
            spans.iter().filter(|span| span.trace_id == request.trace_id && span.name == name).count()
        };
        receiver.requests(name).iter().map(|span| (count(span, "redis"), count(span, "sql"))).collect()
    };
    assert_eq!(calls("GET /oauth/userinfo"), [(0, 1)]);
    // A code, then a refresh: of each, two begin and end the transaction.
    assert_eq!(calls("POST /oauth/token"), [(0, 7), (0, 7)]);
}

const OUT: &str = "the OTLP receiver for metrics is out of service";

/// Signs in as always, and returns the log of a server that was told to stop and did.
async fn live_with(home: &Home) -> String {
    let mut running = home.start(&["serve"]).await;
    let client = running.client();
    assert_eq!(client.register(LOGIN, WORD).await.status, 201);
    for _ in 0..20 {
        assert_eq!(client.login(LOGIN, WORD).await.status, 200);
    }
    running.until("an export failed", |running| running.stderr().contains(OUT)).await;
    for _ in 0..20 {
        assert_eq!(client.login(LOGIN, WORD).await.status, 200);
    }
    let metrics = lines_of(&client.get("/metrics").await.text);
    assert_eq!(metrics["gatehouse_otlp_up{signal=\"metrics\"}"], 0.0);
    assert!(metrics["gatehouse_otlp_errors_total{signal=\"metrics\"}"] >= 1.0);
    end(running).await
}

#[tokio::test]
async fn a_receiver_that_is_away_or_fails_stops_nothing_and_is_told_once() {
    let fails = Receiver::start(Mood::Fails);
    let away = format!("http://127.0.0.1:{}", free_port());
    for url in [&fails.url, &away] {
        let mut home = fails.home();
        home.set("GATEHOUSE__TELEMETRY__OTLP_ENDPOINT", url);
        home.set("GATEHOUSE__TELEMETRY__INTERVAL", "1s");
        let log = live_with(&home).await;
        assert_eq!(log.matches(OUT).count(), 1, "{log}");
    }
}

/// Many receivers are for one signal: the other one's refusals are told once, not each time anew.
#[tokio::test]
async fn a_receiver_that_takes_only_traces_is_out_for_metrics_for_good() {
    let receiver = Receiver::start(Mood::TakesTraces);
    let mut home = receiver.home();
    home.set("GATEHOUSE__TELEMETRY__INTERVAL", "1s");
    let log = live_with(&home).await;
    assert!(!receiver.spans().is_empty());
    assert_eq!(log.matches(OUT).count(), 1, "{log}");
    assert!(!log.contains("back in service") && !log.contains("for traces is out"), "{log}");
}

#[tokio::test]
async fn what_goes_wrong_with_an_export_is_counted_from_zero() {
    let receiver = Receiver::start(Mood::Accepts);
    let running = receiver.home().start(&["serve"]).await;
    let metrics = lines_of(&running.client().get("/metrics").await.text);
    assert_eq!(metrics["gatehouse_otlp_errors_total{signal=\"traces\"}"], 0.0);
    assert_eq!(metrics["gatehouse_otlp_errors_total{signal=\"metrics\"}"], 0.0);
    assert_eq!(metrics["gatehouse_otlp_spans_lost_total{}"], 0.0);
    end(running).await;
}

/// The end waits for it a short time only; the export's own timeout is five times as long.
#[tokio::test]
async fn a_receiver_that_hangs_keeps_neither_requests_nor_the_end_waiting() {
    let receiver = Receiver::start(Mood::Hangs);
    let mut home = receiver.home();
    home.set("GATEHOUSE__TELEMETRY__INTERVAL", "1s");
    let mut running = home.start(&["serve"]).await;
    let client = running.client();
    assert_eq!(client.register(LOGIN, WORD).await.status, 201);
    running.until("an export hangs", |_| !receiver.exports("/v1/metrics").is_empty()).await;
    for _ in 0..20 {
        assert_eq!(client.login(LOGIN, WORD).await.status, 200);
    }
    let log = end(running).await;
    assert!(log.contains("the last spans or metrics are lost"), "{log}");
}

const THEIRS: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_trace_is_continued_for_a_trusted_proxy() {
    let receiver = Receiver::start(Mood::Accepts);
    let mut home = receiver.home();
    home.set("GATEHOUSE__SERVER__TRUSTED_PROXIES", "[\"127.0.0.1/32\"]");
    let running = home.start(&["serve"]).await;
    let client = running.client();
    let recorded = format!("00-{THEIRS}-{PARENT}-01");
    send(&client, "/login", &[("traceparent", &recorded), ("tracestate", "vendor=secret-of-theirs")]).await;
    // The proxy has decided against it.
    send(&client, "/register", &[("traceparent", &format!("00-{THEIRS}-{PARENT}-00"))]).await;
    let twice = [("traceparent", recorded.as_str()), ("traceparent", recorded.as_str())];
    send(&client, "/healthz", &twice).await;
    let (none, upper) = ("0".repeat(32), THEIRS.to_uppercase());
    let malformed = [
        format!("00-{THEIRS}-{PARENT}"),
        format!("ff-{THEIRS}-{PARENT}-01"),
        format!("00-{none}-{PARENT}-01"),
        format!("00-{THEIRS}-0000000000000000-01"),
        format!("00-{upper}-{PARENT}-01"),
        format!("00-{THEIRS}-{PARENT}-01-more"),
        "x".repeat(4096),
        String::new(),
    ];
    for parent in &malformed {
        send(&client, "/readyz", &[("traceparent", parent)]).await;
    }
    end(running).await;
    let continued = receiver.requests("GET /login");
    assert_eq!(continued.len(), 1);
    assert_eq!(
        (hex(&continued[0].trace_id), hex(&continued[0].parent_span_id)),
        (THEIRS.to_owned(), PARENT.to_owned())
    );
    assert_eq!(continued[0].trace_state, "");
    assert_eq!(receiver.requests("GET /register").len(), 0);
    assert_ne!(hex(&receiver.requests("GET /healthz")[0].trace_id), THEIRS);
    let own = receiver.requests("GET /readyz");
    assert_eq!(own.len(), malformed.len());
    assert!(own.iter().all(|span| hex(&span.trace_id) != THEIRS && span.parent_span_id.is_empty()));
}

/// Otherwise anybody could fill the receiver, or write into the traces of others.
#[tokio::test]
async fn a_stranger_selects_neither_the_trace_nor_whether_it_is_recorded() {
    let receiver = Receiver::start(Mood::Accepts);
    let mut home = receiver.home();
    home.set("GATEHOUSE__TELEMETRY__SAMPLE", "0");
    let running = home.start(&["serve"]).await;
    let recorded = format!("00-{THEIRS}-{PARENT}-01");
    send(&running.client(), "/login", &[("traceparent", &recorded), ("x-forwarded-for", "127.0.0.1")]).await;
    end(running).await;
    assert!(receiver.spans().is_empty());

    let receiver = Receiver::start(Mood::Accepts);
    let running = receiver.home().start(&["serve"]).await;
    let client = running.client();
    send(&client, "/login", &[("traceparent", &recorded)]).await;
    send(&client, "/login", &[("traceparent", &format!("00-{THEIRS}-{PARENT}-00"))]).await;
    // Any method is accepted, and none is believed to be one.
    let made_up = client.http.request("MARGUERITE".parse().unwrap(), format!("{}/login", client.url));
    made_up.send().await.unwrap();
    end(running).await;
    let spans = receiver.requests("GET /login");
    assert_eq!(spans.len(), 2);
    assert!(spans.iter().all(|span| hex(&span.trace_id) != THEIRS && span.parent_span_id.is_empty()));
    assert_eq!(receiver.requests("_OTHER /login").len(), 1);
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_is_told_before_the_start() {
    let receiver = Receiver::start(Mood::Accepts);
    let mut home = receiver.home();
    home.set("GATEHOUSE__TELEMETRY__HEADERS__X_KEY", "env:NO_SUCH_KEY");
    let ended = tokio::task::spawn_blocking(move || home.run(&["serve"])).await.unwrap();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("telemetry.headers.") && ended.stderr.contains("NO_SUCH_KEY"),
        "{}",
        ended.stderr
    );
}

/// A message to a gateway that fails, and an answer of 503: both are errors, a wrong password is none.
#[tokio::test]
async fn only_failures_of_the_server_are_errors() {
    let receiver = Receiver::start(Mood::Accepts);
    let mut home = receiver.home();
    home.set("GATEHOUSE__SMS__GATEWAY", "http");
    home.set(
        "GATEHOUSE__SMS__HTTP__URL",
        format!("http://127.0.0.1:{}/?to={{phone}}&text={{text}}", free_port()),
    );
    let running = home.start(&["serve"]).await;
    let client = running.client();
    assert_eq!(client.ask_code(PHONE, "login").await.status, 503);
    assert_eq!(client.login(LOGIN, WORD).await.status, 401);
    end(running).await;
    let status = |span: &Span| span.status.as_ref().map_or(0, |status| status.code);
    let asked = &receiver.requests("POST /api/v1/sms/codes")[0];
    assert_eq!((status(asked), attribute(&asked.attributes, "error.type").as_str()), (2, "503"));
    assert_eq!(status(&receiver.requests("send message")[0]), 2);
    assert_eq!(status(&receiver.requests("POST /api/v1/login")[0]), 0);
    assert!(receiver.exports("/v1/traces").iter().all(|export| {
        !export.body.windows(6).any(|bytes| bytes == &PHONE.as_bytes()[PHONE.len() - 6..])
    }));
}
