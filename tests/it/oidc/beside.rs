//! The same requests to npm's oidc-provider, which is certified, and to ours: where the answers differ,
//! docs/oidc.md says why.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

/// Both clients of the script, which send no PKCE unless that is asked about.
fn both() -> String {
    let client = |id: &str| {
        format!(
            "[[apps]]\nname = '{id}'\nwho = ['everyone']\n[apps.oidc]\nsecret = 'file:{}'\npkce = 'optional'\n\
             redirect_uris = ['{WIKI}', 'https://wiki.example/other']\n",
            secret_file()
        )
    };
    ["wiki", "files"].map(client).concat()
}

/// What was asked, theirs and ours.
async fn answers() -> Vec<[String; 3]> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = root.join("target/tools/oidc-provider-9.13.3");
    assert!(packages.join("node_modules").is_dir(), "scripts/test fetches oidc-provider");
    let app = start(TestApp::on(Store::Memory).file(&both())).await;
    let registered = app.client().register("ada", PASSWORD).await;
    let cookie = registered.cookie("gh_session").expect("a session").split(';').next().unwrap();
    let mut node = Command::new("node");
    node.arg(root.join("tests/clients/oidc-provider/beside.mjs")).arg(packages);
    node.args([&app.url, cookie, SECRET]).stdout(Stdio::piped());
    let output = tokio::task::spawn_blocking(move || node.output().expect("node")).await.unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    let text = |row: &Value, name: &str| row[name].as_str().expect("an answer").to_owned();
    let rows = told["rows"].as_array().expect("rows").iter();
    rows.map(|row| ["what", "theirs", "ours"].map(|name| text(row, name))).collect()
}

/// The first column of the table in docs/oidc.md.
fn explained() -> BTreeSet<String> {
    let page = include_str!("../../../docs/oidc.md");
    let (_, section) = page.split_once("\n## Beside another provider\n").expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let first = rows.filter_map(|row| row.split(" | ").next());
    first.flat_map(|cell| cell.split("; ")).map(|what| what.replace('`', "")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn where_answers_differ_from_another_providers_the_documents_say_why() {
    let rows = answers().await;
    for [what, theirs, ours] in &rows {
        println!("{what:52} | {theirs:60} | {ours}"); // the table for people: --no-capture
    }
    let differ = rows.iter().filter(|[_, theirs, ours]| theirs != ours);
    assert_eq!(differ.map(|[what, ..]| what.clone()).collect::<BTreeSet<_>>(), explained());
    let ours: BTreeMap<&str, &str> =
        rows.iter().map(|[what, _, ours]| (what.as_str(), ours.as_str())).collect();
    // Where theirs signs somebody out, and ours does not.
    assert_eq!(ours["refresh: again after a lost answer"], "200; then access 200, refresh 200");
    assert_eq!(ours["refresh: 64 at once with one token"], "64 of 64, 1 successors; the next 200");
    assert_eq!(ours["refresh: one that is two behind"], "400 invalid_grant; then access 401, refresh 400");
}
