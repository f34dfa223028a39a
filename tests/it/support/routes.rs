//! The URL table, read from its source, to compare the server's answers with it.

use std::collections::BTreeSet;

pub const API: &str = "/api/v1";

/// Every method and path; HEAD is GET without its body, and goes with it.
pub fn table() -> BTreeSet<(String, String)> {
    let mut ways = BTreeSet::new();
    let mut prefix = "";
    for line in include_str!("../../../src/routes.rs").lines() {
        if line.contains("scope(\"/api/v1\")") {
            prefix = API;
        } else if line.starts_with("        ") && !line.starts_with("         ") {
            prefix = "";
        }
        let Some(call) = line.split("calls(\"").nth(1) else { continue };
        let mut quoted = call.split('"');
        let (path, methods) = (quoted.next().unwrap(), quoted.nth(1).unwrap());
        let methods = methods.split(", ").filter(|method| *method != "HEAD");
        ways.extend(methods.map(|method| (method.to_owned(), format!("{prefix}{path}"))));
    }
    assert!(ways.len() >= 20, "the table is not read any more: {ways:?}");
    ways
}
