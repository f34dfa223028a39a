//! Clients that compute: one in Rust, and the ALTCHA project's own.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use altcha::SolveChallengeOptions;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const SOLVER: &str = include_str!("../../clients/altcha/solve.js");

/// The challenge with its solution, before it is encoded.
pub fn solution(challenge: &Value) -> Value {
    let own: altcha::Challenge = serde_json::from_value(challenge.clone()).unwrap_or_else(|error| {
        panic!("no proof of work: {error}: {challenge}");
    });
    let solution = altcha::solve_challenge(SolveChallengeOptions::new(&own)).unwrap().unwrap();
    json!({ "challenge": challenge, "solution": solution })
}

pub fn encoded(solution: &Value) -> String {
    STANDARD.encode(solution.to_string())
}

pub fn solve(challenge: &Value) -> String {
    encoded(&solution(challenge))
}

/// By the solver of npm's `altcha`.
pub fn solve_by_npm(challenge: &Value) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let installed = root.join("target/tools/altcha-3.2.2");
    assert!(installed.join("node_modules/altcha").exists(), "npm's altcha (scripts/test installs it)");
    let mut command = Command::new("node");
    // From the folder where the module is found.
    command.current_dir(installed).args(["--input-type=module", "--eval", SOLVER]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().expect("node (Debian: apt-get install nodejs)");
    process.stdin.take().unwrap().write_all(challenge.to_string().as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}
