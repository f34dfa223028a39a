//! The figures of the console are what was sent: every row of the table in docs/figures.md.

mod attacks;
mod page;
mod traffic;

use std::collections::BTreeSet;

const TABLE: &str = include_str!("../../docs/figures.md");
const ENGLISH: &str = include_str!("../../locales/en.toml");

/// The figures of the table.
fn documented() -> BTreeSet<&'static str> {
    let rows = TABLE.split("| figure |").nth(1).unwrap().lines();
    rows.filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

#[test]
fn each_figure_is_told_where_it_is_shown() {
    let words: toml::Table = ENGLISH.parse().unwrap();
    let told: BTreeSet<&str> = words["means"].as_table().unwrap().keys().map(String::as_str).collect();
    assert_eq!(told, documented());
}

#[tokio::test]
async fn every_figure_of_the_table_is_what_was_sent() {
    let here = traffic::sign_ins_and_codes().await;
    let programs = traffic::programs().await;
    let not_sent = traffic::messages_that_no_gateway_takes().await;
    let mails = traffic::mails().await;
    let slow = traffic::no_room().await;
    let days = traffic::two_days().await;
    let attacks = [
        attacks::sign_ins().await,
        attacks::messages().await,
        attacks::mails().await,
        attacks::registrations().await,
    ];
    let checked: BTreeSet<&str> =
        [here, programs, not_sent, mails, slow, days].into_iter().chain(attacks).flatten().collect();
    assert_eq!(checked, documented(), "each row is compared with what was sent");
}
