//! The alert rules and the dashboard in `deploy/` agree with what the server measures.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::app::{Client, http};
use crate::support::ports::free_port;
use crate::support::process::Home;

const METRICS: &str = include_str!("../../docs/metrics.md");
const RULES: &str = include_str!("../../deploy/prometheus/gatehouse.rules.yml");
const RULES_TEST: &str = include_str!("../../deploy/prometheus/gatehouse.rules.test.yml");
const DASHBOARD: &str = include_str!("../../deploy/grafana/gatehouse.json");

/// What has gone wrong, which is nothing here, and what is measured only while there are imported passwords or a
/// receiver.
const MAY_BE_EMPTY: [&str; 3] =
    ["5xx by route", "Answers to compared passwords leave after", "Export over OTLP"];

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

/// The rows of the table, by name.
fn documented() -> BTreeMap<&'static str, &'static str> {
    let rows = METRICS.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.collect()
}

/// The alerts, each with its expression.
fn alerts() -> Vec<(&'static str, &'static str)> {
    let alerts = RULES.split("- alert: ").skip(1);
    let field = |alert: &'static str| alert.split("expr: ").nth(1).unwrap().lines().next().unwrap();
    alerts.map(|alert| (alert.lines().next().unwrap(), field(alert))).collect()
}

/// The queries of the dashboard, each with its panel's title.
fn queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let of_panel = |panel: &Value| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default().into_iter();
        let queries = targets.map(move |target| target["expr"].as_str().unwrap().to_owned());
        queries.map(move |query| (title.clone(), query)).collect::<Vec<_>>()
    };
    dashboard["panels"].as_array().unwrap().iter().flat_map(of_panel).collect()
}

/// Our metrics in an expression, each with the text of its braces.
fn named(expression: &str) -> Vec<(String, String)> {
    let mut named = Vec::new();
    for (start, _) in expression.match_indices("gatehouse_") {
        let rest = &expression[start..];
        let end = rest.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
        let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let labels =
            rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(inner, _)| inner);
        named.push((name.to_owned(), labels.to_owned()));
    }
    named
}

#[test]
fn rules_and_dashboard_name_only_metrics_and_labels_that_exist() {
    let rows = documented();
    let expressions = alerts().into_iter().map(|(_, expression)| expression.to_owned());
    let expressions: Vec<String> = expressions.chain(queries().into_iter().map(|(_, query)| query)).collect();
    assert!(expressions.len() > 40, "{}", expressions.len());
    for expression in expressions {
        let ours = named(&expression);
        assert!(!ours.is_empty() || expression.contains("up{job=\"gatehouse\"}"), "{expression}");
        for (name, labels) in ours {
            let family = name.strip_suffix("_bucket").unwrap_or(&name);
            let row = rows.get(family).unwrap_or_else(|| panic!("no metric {family}: {expression}"));
            assert_eq!(row.contains("| histogram"), family != name, "{expression}");
            let grouped =
                expression.split("by (").skip(1).flat_map(|rest| rest.split(')').next().unwrap().split(", "));
            let selected = labels.split(", ").filter_map(|label| label.split(['=', '!']).next());
            for label in grouped.chain(selected).filter(|label| !["", "instance", "le"].contains(label)) {
                assert!(row.contains(&format!("`{label}`")), "{family} has no label {label}: {expression}");
            }
        }
    }
}

#[test]
fn every_metric_of_the_server_is_on_the_dashboard() {
    let shown: Vec<String> =
        queries().iter().flat_map(|(_, query)| named(query)).map(|(name, _)| name).collect();
    for name in documented().into_keys().filter(|name| !name.starts_with("gatehouse_rate_limit_")) {
        assert!(shown.iter().any(|shown| shown.strip_suffix("_bucket").unwrap_or(shown) == name), "{name}");
    }
}

#[test]
fn every_alert_fires_in_a_test_and_is_quiet_in_another() {
    let cases: Vec<&str> = RULES_TEST.split("- name: ").skip(1).collect();
    for (alert, _) in alerts() {
        let quiet = format!("alertname: {alert} }}");
        let fires = format!("alertname: {alert}\n        exp_alerts:");
        assert!(cases.iter().any(|case| case.contains(&quiet)), "{alert} is never quiet");
        assert!(cases.iter().any(|case| case.contains(&fires)), "{alert} never fires");
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["test", "rules"]).arg(deploy("prometheus/gatehouse.rules.test.yml"));
    let tested = promtool.output().expect("promtool: scripts/setup installs it");
    assert!(tested.status.success(), "{}{}", text(&tested.stdout), text(&tested.stderr));
}

/// With a description each, and names as Prometheus' own linter wants them.
#[tokio::test]
async fn every_metric_says_what_it_is() {
    let home = Home::new();
    let running = home.start(&["serve"]).await;
    some_of_everything(&running.client()).await;
    let metrics = running.client().get("/metrics").await.text;
    let named = |lead| metrics.lines().filter_map(move |line| line.strip_prefix(lead)?.split(' ').next());
    let families: Vec<&str> = named("# TYPE ").collect();
    assert!(families.len() > 20, "{families:?}");
    for family in families {
        assert!(named("# HELP ").any(|described| described == family), "{family} is not described");
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool: scripts/setup installs it");
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let checked = promtool.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A counter that appears with its first event has no increase: Prometheus never saw it at zero.
#[tokio::test]
async fn what_an_alert_counts_is_at_zero_from_the_start() {
    let home = Home::new();
    let running = home.start(&["serve"]).await;
    let metrics = running.client().get("/metrics").await.text;
    let counted = alerts().into_iter().filter(|(_, expression)| expression.starts_with("increase("));
    let counted: Vec<_> = counted.flat_map(|(_, expression)| named(expression)).collect();
    assert!(counted.len() > 5, "{counted:?}");
    for (name, labels) in counted {
        let (label, values) = labels.split_once('=').unwrap_or_default();
        for value in values.trim_matches(['~', '"']).split('|') {
            let series =
                if label.is_empty() { name.clone() } else { format!("{name}{{{label}=\"{value}\"}}") };
            let any_label = format!("{name}{{");
            let at_zero = |line: &str| {
                line == format!("{series} 0")
                    || label.is_empty() && line.starts_with(&any_label) && line.ends_with(" 0")
            };
            assert!(metrics.lines().any(at_zero), "no {series} in {metrics}");
        }
    }
}

/// A Prometheus that scrapes one server; killed when dropped.
struct Prometheus {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(target: &str) -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let rules = deploy("prometheus/gatehouse.rules.yml");
        let config = json!({
            "global": { "scrape_interval": "500ms", "evaluation_interval": "500ms" },
            "rule_files": [rules],
            "scrape_configs": [{ "job_name": "gatehouse", "static_configs": [{ "targets": [target] }] }],
        });
        // JSON is YAML. It does not start on rules that it cannot read.
        std::fs::write(folder.path().join("prometheus.yml"), config.to_string()).unwrap();
        let child = Command::new("prometheus")
            .current_dir(folder.path())
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus: scripts/setup installs it");
        Self { child, url: format!("http://127.0.0.1:{port}"), _folder: folder }
    }

    /// What a query finds now; None while Prometheus starts.
    async fn ask(&self, query: &str) -> Option<Vec<Value>> {
        let url =
            url::Url::parse_with_params(&format!("{}/api/v1/query", self.url), [("query", query)]).unwrap();
        let answer = http().build().unwrap().get(url).send().await.ok()?;
        if answer.status() == 503 {
            return None;
        }
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        Some(answer["data"]["result"].as_array().unwrap().clone())
    }

    /// Asks until there is something; None if there is not for as long as any machine needs.
    async fn found(&self, query: &str) -> Option<Vec<Value>> {
        for _ in 0..300 {
            match self.ask(query).await {
                Some(found) if !found.is_empty() => return Some(found),
                _ => tokio::time::sleep(Duration::from_millis(100)).await, // Prometheus scrapes in real time
            }
        }
        None
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One of each: a wrong password, a wrong CAPTCHA answer, a code that is asked for, and one that is wrong.
async fn some_of_everything(client: &Client) {
    client.login("alice", "a wrong password").await;
    let challenge = client.challenge().await;
    client.login_with("alice", "a wrong password", &challenge, "wrong").await;
    assert_eq!(client.ask_code("+8613800138000", "login").await.status, 202);
    client.call("/sms/login", json!({ "phone": "+8613800138000", "code": "000000" })).await;
}

#[tokio::test]
async fn prometheus_answers_every_query_of_the_dashboard() {
    let home = Home::new();
    let running = home.start(&["serve"]).await;
    some_of_everything(&running.client()).await;
    let prometheus = Prometheus::start(running.url.trim_start_matches("http://"));
    let seen = prometheus.found("count_over_time(gatehouse_sms_gateway_up[1m]) > 2").await;
    assert!(seen.is_some(), "Prometheus scrapes the server");
    for (title, query) in queries() {
        let query = query.replace("$__rate_interval", "1m").replace("$instance", ".*");
        if MAY_BE_EMPTY.contains(&title.as_str()) {
            assert!(prometheus.ask(&query).await.is_some(), "{query}");
        } else {
            assert!(prometheus.found(&query).await.is_some(), "{title} is empty: {query}");
        }
    }
}
