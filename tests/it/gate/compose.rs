//! The application of docker-compose.yml behind the gate, by the files that it mounts.

use std::path::Path;

use super::account;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::authority::Authority;
use crate::support::browser::Browser;
use crate::support::reverse_proxy::{EchoApp, ProxyKind, ProxyPlan};

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[tokio::test]
async fn the_application_of_the_compose_file_is_used_in_a_browser() {
    let plan = ProxyPlan::new(ProxyKind::CaddyOfCompose, "wiki.localhost");
    // As its comment says.
    let compose = file("docker-compose.yml");
    let commented = compose.lines().filter_map(|line| line.strip_prefix("  #   "));
    let apps = commented.fold(String::new(), |text, line| text + line + "\n");
    assert!(apps.starts_with("[[apps]]\n"), "{apps}");
    let app = TestApp::on(Store::Memory)
        .file(&apps.replace("8000", &plan.port.to_string()))
        .behind_a_proxy()
        .set("server.public_url", format!("http://id.localhost:{}", plan.port))
        .start()
        .await;
    account(&app, "ada", &["staff"]).await;
    let echo = EchoApp::start().await;
    let gatehouse = app.url.rsplit(':').next().unwrap().parse().unwrap();
    let _proxy = plan.start(&Authority::new(), gatehouse, echo.port);
    let browser = Browser::start("").await;
    let page = format!("http://{}/page?a=b", plan.host());
    browser.open(&page).await;
    browser.fill(&[("login", "ada"), ("password", PASSWORD)]).await;
    browser.submit().await;
    assert_eq!(browser.driver.current_url().await.unwrap().as_str(), page);
    let told = browser.text("body").await.to_lowercase();
    for header in ["remote-user: ada", "remote-groups: staff", &format!("host: {}", plan.host())] {
        assert!(told.contains(header), "{header}: {told}");
    }
    browser.open(&format!("http://{}/.gatehouse/logout", plan.host())).await;
    browser.submit().await;
    browser.open(&page).await;
    assert!(browser.has("#password").await, "signed out");
}

#[test]
fn the_compose_file_mounts_what_is_there_and_its_proxy_is_trusted() {
    let compose = file("docker-compose.yml");
    let lines = || compose.lines().map(str::trim);
    let mounted: Vec<_> = lines().filter_map(|line| line.strip_prefix("- ./")?.split(':').next()).collect();
    assert!(mounted.contains(&"deploy/caddy/compose.Caddyfile"), "{mounted:?}");
    for path in mounted {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(), "{path}");
    }
    let address = lines().find_map(|line| line.strip_prefix("ipv4_address: ")?.split(' ').next()).unwrap();
    let subnet: ipnet::IpNet =
        lines().find_map(|line| line.strip_prefix("- subnet: ")?.split(' ').next()).unwrap().parse().unwrap();
    assert!(subnet.contains(&address.parse::<std::net::IpAddr>().unwrap()), "{address} in {subnet}");
    assert!(file("deploy/gatehouse.toml").contains(&format!("\"{address}/32\"")), "{address}");
}

/// What the tests of deploy/caddy/Caddyfile hold, they hold for this one.
#[test]
fn the_caddyfile_of_the_compose_file_is_the_other_with_other_names() {
    let other = file("deploy/caddy/Caddyfile");
    let mut expected = other[other.find("id.example {").unwrap()..].to_owned();
    for (name, ours) in [
        ("id.example {", "http://id.localhost:8000 {"),
        ("wiki.example {", "http://wiki.localhost:8000 {"),
        ("id.example", "id.localhost:8000"),
        ("wiki.example", "wiki.localhost:8000"),
        ("X-Forwarded-Proto https", "X-Forwarded-Proto http"),
        ("127.0.0.1:8080", "gatehouse:8080"),
        ("127.0.0.1:3000", "wiki:3000"),
    ] {
        expected = expected.replace(name, ours);
    }
    let own = file("deploy/caddy/compose.Caddyfile");
    assert_eq!(own[own.find("http://id.").unwrap()..], expected);
}
