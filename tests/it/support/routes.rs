//! The URL table, to compare the server's answers with it.

use std::collections::BTreeSet;

use gatehouse::routes;
use gatehouse::web::http::row::RowFacts;

pub const API: &str = "/api/v1";

/// Every row with its first method; what is for any method has GET here.
pub fn rows() -> Vec<(&'static str, RowFacts)> {
    let rows = routes::table().into_iter();
    rows.map(|row| (row.facts.methods.first().map_or("GET", |method| method.as_str()), row.facts)).collect()
}

/// Every method and path; HEAD is GET without its body, and goes with it.
pub fn table() -> BTreeSet<(String, String)> {
    rows().into_iter().map(|(method, row)| (method.to_owned(), row.path)).collect()
}
