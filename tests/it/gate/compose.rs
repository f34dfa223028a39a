//! The application of docker-compose.yml behind the gate, by the files that it mounts.

use std::path::Path;

use gatehouse::gate::ProxyFile;

use super::account;
use super::proxies::server;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::authority::Authority;
use crate::support::browser::Browser;
use crate::support::reverse_proxy::{EchoApp, ProxyKind, ProxyPlan};

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[tokio::test]
async fn the_application_of_the_compose_file_is_used_in_a_browser() {
    let plan = ProxyPlan::new(ProxyKind::CaddyOfCompose, &["wiki.localhost"]);
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
    let _proxy = plan.start(&Authority::new(), &server(&app), echo.port);
    let host = plan.host("wiki.localhost");
    let browser = Browser::start("").await;
    let page = format!("http://{host}/page?a=b");
    browser.open(&page).await;
    browser.fill(&[("login", "ada"), ("password", PASSWORD)]).await;
    browser.submit().await;
    assert_eq!(browser.driver.current_url().await.unwrap().as_str(), page);
    let told = browser.text("body").await.to_lowercase();
    for header in ["remote-user: ada", "remote-groups: staff", &format!("host: {host}")] {
        assert!(told.contains(header), "{header}: {told}");
    }
    browser.open(&format!("http://{host}/.gatehouse/logout")).await;
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

/// What the tests of the printed file hold, they hold for this one.
#[test]
fn the_caddyfile_of_the_compose_file_is_the_printed_one_with_other_addresses() {
    let config = "[server]\nbind = '0.0.0.0:8080'\npublic_url = 'http://id.localhost:8000'\n\
                  trusted_proxies = ['172.30.80.250']\n[sms]\ngateway = 'none'\n\
                  [[apps]]\nname = 'wiki'\nhosts = ['wiki.localhost:8000']\n";
    let config = gatehouse::config::parse(Path::new("gatehouse.toml"), config, &[]).unwrap();
    let printed = ProxyFile::Caddy.print(&config.settings.server, &config.live.apps, None).unwrap();
    let expected = printed.replace("127.0.0.1:8080", "gatehouse:8080").replace("127.0.0.1:3000", "wiki:3000");
    let sites = |text: &str| text[text.find("http://id.localhost:8000 {").unwrap()..].to_owned();
    assert_eq!(sites(&file("deploy/caddy/compose.Caddyfile")), sites(&expected));
}
