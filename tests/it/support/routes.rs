//! The URL table, read from its source, to compare the server's answers with it.

use std::collections::BTreeSet;

pub const API: &str = "/api/v1";

/// Every method and path; HEAD is GET without its body, and goes with it.
pub fn table() -> BTreeSet<(String, String)> {
    let mut ways = BTreeSet::new();
    let (mut prefix, mut path) = ("", String::new());
    for line in include_str!("../../../src/routes.rs").lines() {
        if line.contains("scope(\"/api/v1\")") {
            prefix = API;
        } else if line == "}" {
            prefix = "";
        }
        if let Some(named) = line.split(" at(\"").nth(1).or_else(|| line.split("(at(\"").nth(1)) {
            path = format!("{prefix}{}", named.split('"').next().unwrap());
        }
        for on in line.split(".on(").skip(1) {
            let method = on.split(',').next().unwrap().trim_end_matches("_ALONE");
            ways.insert((method.to_owned(), path.clone()));
        }
    }
    assert!(ways.len() >= 20, "the table is not read any more: {ways:?}");
    ways
}
