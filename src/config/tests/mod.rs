//! Valid and invalid documents, and their messages.

mod accepted;
mod access;
mod apps;
mod brand;
mod clients;
mod example;
mod hostile;
mod nacos;
mod programs;
mod refused;
mod store;
mod telemetry;
mod variables;
mod webhooks;

use std::path::Path;

use super::{Config, ConfigError, parse};

fn read(text: &str) -> Result<Config, ConfigError> {
    read_with(text, &[])
}

fn read_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let variables: Vec<_> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    parse(Path::new("gatehouse.toml"), text, &variables)
}

/// The message for an invalid document.
fn refusal(text: &str) -> String {
    refusal_with(text, &[])
}

fn refusal_with(text: &str, variables: &[(&str, &str)]) -> String {
    read_with(text, variables).expect_err("a refusal").to_string()
}
