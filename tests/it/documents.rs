//! Documents agree with the code: links work, configurations are accepted, and commands answer as written.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Deserializer, Value};

use crate::custom;
use crate::support::app::{PASSWORD, Store};
use crate::support::reverse_proxy::printed;

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every page, with its path.
fn pages() -> Vec<(PathBuf, String)> {
    let examples = std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let own = [root().to_owned(), root().join("docs"), root().join("benches")];
    let folders: Vec<_> = own.into_iter().chain(examples).collect();
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .map(|path| (path.clone(), read(&path)))
        .collect()
}

/// The fenced blocks of a page in one language.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let fenced = page.split("\n```").skip(1).step_by(2);
    let of_language = fenced.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    of_language.map(str::to_owned).collect()
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn every_relative_link_leads_to_a_file_or_heading() {
    let mut broken = Vec::new();
    for (path, page) in pages() {
        let links = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let leads = target.exists()
                && (heading.is_empty()
                    || read(&target).lines().any(|line| line.starts_with('#') && anchor(line) == heading));
            if !leads {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Tests run what the program prints through these proxies.
#[test]
fn the_page_of_the_gate_shows_the_files_that_the_program_prints() {
    let page = read(&root().join("docs/gate.md"));
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gatehouse.toml");
    std::fs::write(&config, &blocks(&page, "toml")[0]).unwrap();
    for proxy in ["nginx", "caddy"] {
        let shown = blocks(&page, proxy).concat();
        assert_eq!(shown.trim_end(), printed(proxy, &config).trim_end(), "{proxy}");
    }
}

#[test]
fn every_configuration_is_accepted() {
    for (path, page) in pages() {
        for block in blocks(&page, "toml") {
            gatehouse::config::parse(&path, &block, &[]).unwrap_or_else(|wrong| panic!("{wrong}\n{block}"));
        }
    }
}

#[test]
fn every_command_can_be_parsed() {
    for (path, page) in pages() {
        for block in blocks(&page, "sh") {
            let parsed = Command::new("bash").args(["-n", "-c", &block]).status().unwrap();
            assert!(parsed.success(), "{}: {block}", path.display());
        }
    }
}

/// Commands that call the server are run against one. An answer has the fields of the comment below its command.
#[tokio::test]
async fn every_call_answers_as_written() {
    let limits = blocks(&read(&root().join("docs/api.md")), "toml").concat();
    let (app, _, program) = custom::start(Store::Memory, &limits).await;
    let mut called = 0;
    for (path, page) in pages() {
        for block in blocks(&page, "sh").into_iter().filter(|block| block.contains("localhost:8080")) {
            let expected =
                block.lines().filter_map(|line| line.strip_prefix("# ").filter(|rest| rest.starts_with('{')));
            let expected: Vec<Value> =
                expected.map(|answer| shape(&serde_json::from_str(answer).unwrap())).collect();
            let script = block.replace("localhost:8080", app.url.trim_start_matches("http://"));
            let Output { stdout, stderr, .. } = run(script, program.token.clone()).await;
            let answers = Deserializer::from_slice(&stdout).into_iter::<Value>();
            let answers: Vec<Value> = answers.map(|answer| shape(&answer.unwrap())).collect();
            assert_eq!(answers, expected, "{}: {}", path.display(), String::from_utf8_lossy(&stderr));
            called += answers.len();
        }
    }
    assert!(called > 0);
}

async fn run(script: String, token: String) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("bash");
    command.args(["-eu", "-c", &script]).current_dir(folder.path());
    command.envs([("ADMIN", "boss"), ("PASSWORD", PASSWORD), ("TOKEN", &token)]);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The fields of an answer without those that differ from call to call.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), shape(field))).collect(),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::String(text) if !text.starts_with("/problems/") => "text".into(),
        Value::Number(_) => 0.into(),
        other => other.clone(),
    }
}
