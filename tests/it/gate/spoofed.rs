//! What clients say about themselves, and what proxies make of it: the faults of other gates, each held by its rule.

use super::proxies::{Site, WIKI, shown, status, through_each_proxy};
use crate::support::reverse_proxy::ProxyKind;

through_each_proxy!(
    what_a_client_says_about_itself_never_passes,
    no_spelling_of_a_header_becomes_a_variable_of_ours,
    what_a_client_says_changes_no_decision,
    what_is_judged_is_what_is_passed_on,
    what_proxies_ask_is_not_for_everybody,
    a_header_that_a_client_has_removed_is_missed,
);

/// GHSA-7r4p-vjf4-gxv4: a header that the answer leaves out or empty kept the client's value. CVE-2025-64484:
/// `X_Forwarded_User` passed for `X-Forwarded-User`.
async fn what_a_client_says_about_itself_never_passes(kind: ProxyKind) {
    let site = Site::behind(kind).await;
    let bob = site.signed_in("bob").await;
    let names = [
        "Remote-User",
        "remote-user",
        "REMOTE-USER",
        "Remote_User",
        "remote_user",
        "REMOTE_USER",
        "Remote-Groups",
        "Remote_Groups",
        "Remote-Name",
        "Remote_Name",
        "Remote-Email",
        "Remote_Email",
        "X-Forwarded-User",
        "X_Forwarded_User",
        "X-Forwarded-Host",
        "X_Forwarded_Host",
        "X-Forwarded-Proto",
        "X-Forwarded-Uri",
        "X_Forwarded_Uri",
        "X-Forwarded-Method",
        "X-Forwarded-For",
        "X-Forwarded-Prefix",
        "X-Original-URL",
        "X_Original_URL",
        "X-Original-URI",
        "X-Original-Method",
        "X-Original-Host",
        "Forwarded",
    ];
    for name in names {
        let spoofed = format!("{name}: spoofed\r\n");
        let to_app = site.ask("GET /page", &format!("{bob}{spoofed}")).await;
        assert!(!shown(&to_app).contains("spoofed"), "{name}: {to_app}");
        let lower = shown(&to_app).to_lowercase();
        assert_eq!(lower.matches("remote-user:").count(), 1, "{name}: {to_app}");
        assert!(lower.contains("remote-user: bob"), "{name}: {to_app}");
        let public = site.ask("GET /health", &spoofed).await;
        assert!(!shown(&public).contains("spoofed"), "{name}: {public}");
    }
}

/// GHSA-f59h-q822-g45g: a proxy that speaks FastCGI makes one variable of `Remote-User` and `Remote_User`.
#[tokio::test]
async fn no_variable_of_ours_is_a_clients_behind_fastcgi() {
    let site = Site::behind(ProxyKind::CaddyToFastCgi).await;
    let bob = site.signed_in("bob").await;
    let names = ["User", "Groups", "Name", "Email"];
    let claims: String = ["Remote-", "Remote_", "REMOTE_", "remote_"]
        .iter()
        .flat_map(|begin| names.map(|name| format!("{begin}{name}: spoofed\r\n")))
        .collect();
    let page = site.ask("GET /page", &format!("{bob}{claims}")).await;
    let variables: Vec<_> = shown(&page).lines().filter(|line| line.starts_with("HTTP_REMOTE_")).collect();
    for told in ["HTTP_REMOTE_USER=bob", "HTTP_REMOTE_GROUPS=staff", "HTTP_REMOTE_NAME=bob"] {
        assert!(variables.contains(&told), "{told}: {page}");
    }
    assert!(variables.len() <= names.len() && !page.contains("spoofed"), "{page}");
    let public = site.ask("GET /health", &claims).await;
    assert!(shown(&public).contains("REQUEST_URI=/health") && !public.contains("spoofed"), "{public}");
}

/// The same of other separators, of which some servers make an underscore, too.
async fn no_spelling_of_a_header_becomes_a_variable_of_ours(kind: ProxyKind) {
    let site = Site::behind(kind).await;
    let bob = site.signed_in("bob").await;
    let variable = |name: &str| -> String {
        name.chars()
            .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' })
            .collect()
    };
    for between in "-_.!#$%&'*+^`|~".chars() {
        let names = ["User", "Groups", "Name", "Email"].map(|name| format!("Remote{between}{name}"));
        let spoofed: String = names.iter().map(|name| format!("{name}: spoofed\r\n")).collect();
        for (path, who, user) in [("/page", bob.as_str(), "bob"), ("/health", "", "")] {
            let answer = site.ask(&format!("GET {path}"), &format!("{who}{spoofed}")).await;
            // A proxy may also refuse a header that it finds odd.
            if status(&answer) == 400 && !"-_".contains(between) {
                continue;
            }
            let lines = shown(&answer).lines().filter_map(|line| line.split_once(':'));
            let ours: Vec<_> = lines.filter(|(name, _)| variable(name).starts_with("REMOTE_")).collect();
            let users = ours
                .iter()
                .filter(|(name, _)| variable(name) == "REMOTE_USER")
                .map(|(_, value)| value.trim());
            assert!(
                users.clone().count() <= 1 && users.clone().all(|value| value == user),
                "{between}: {ours:?}"
            );
            assert!(user.is_empty() || users.count() == 1, "{between}: {ours:?}");
            assert!(ours.iter().all(|(_, value)| !value.contains("spoofed")), "{between}: {ours:?}");
        }
    }
}

/// CVE-2026-40575: the path that was judged was a header of the client's.
async fn what_a_client_says_changes_no_decision(kind: ProxyKind) {
    let site = Site::behind(kind).await;
    let bob = site.signed_in("bob").await;
    let open = "/health";
    for claim in [
        format!("X-Forwarded-Uri: {open}\r\n"),
        format!("X-Original-URL: https://{}{open}\r\n", site.wiki_host),
        "X-Forwarded-Host: open.example\r\n".to_owned(),
        "X-Forwarded-Method: HEAD\r\nX-Forwarded-Uri: /health\r\n".to_owned(),
        "X-Original-URL: https://open.example/\r\nX-Original-Method: GET\r\n".to_owned(),
        "Remote-User: ada\r\n".to_owned(),
    ] {
        let answer = site.ask("GET /page", &format!("{claim}Accept: text/html\r\n")).await;
        assert_eq!(status(&answer), 302, "{claim}: {answer}");
        let admin = site.ask("GET /admin/", &format!("{bob}{claim}")).await;
        assert_eq!(status(&admin), 403, "{claim}: {admin}");
    }
    // The name of the application is what stands in the proxy's file.
    for (target, host) in [
        (format!("https://{}/page", site.wiki_host), "open.example"),
        (format!("http://{}/page", site.wiki_host), "open.example"),
        ("/page".to_owned(), "open.example"),
        ("https://open.example/page".to_owned(), site.wiki_host.as_str()),
        (format!("https://{}/page", site.wiki_host), site.wiki_host.as_str()),
        (format!("http://evil\\page\\x?@{}/page", site.wiki_host), site.wiki_host.as_str()),
        (format!("http://evil?page=admin&a=@{}/page", site.wiki_host), site.wiki_host.as_str()),
        ("*".to_owned(), site.wiki_host.as_str()),
    ] {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: text/html\r\n\r\n"
        );
        let answer = site.wiki.raw(WIKI, &request).await;
        assert!(!answer.contains("GET /page") && !answer.contains("Host: "), "{target} {host}: {answer}");
    }
}

async fn what_is_judged_is_what_is_passed_on(kind: ProxyKind) {
    let site = Site::behind(kind).await;
    for before in ["http://evil\\admin\\users?", "http://evil?page=admin&a="] {
        let request = format!(
            "GET {before}@{0}/health HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n\r\n",
            site.wiki_host
        );
        let answer = site.wiki.raw(WIKI, &request).await;
        // Caddy answers nothing where no site has the name.
        let passed = answer.split_once("\r\n\r\n").is_some_and(|(_, body)| body.contains("HTTP/1."));
        assert!(!passed || shown(&answer).starts_with("GET /health HTTP/1."), "{before}: {answer}");
    }
    // A connection that is upgraded is for a WebSocket: another protocol carries requests that nobody judges.
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    let line = format!("GET /health HTTP/1.1\r\nHost: {}\r\n{h2c}\r\n", site.wiki_host);
    let answer = site.wiki.raw_once(WIKI, &line).await;
    assert!(!answer.to_lowercase().contains("upgrade: h2c"), "{answer}");
}

async fn what_proxies_ask_is_not_for_everybody(kind: ProxyKind) {
    let site = Site::behind(kind).await;
    let id = format!("id.example:{}", site.wiki.port);
    let original = format!("X-Original-URL: https://{}/health\r\nX-Original-Method: GET\r\n", site.wiki_host);
    let request =
        format!("GET /api/authz/auth-request HTTP/1.1\r\nHost: {id}\r\nConnection: close\r\n{original}\r\n");
    let answer = site.wiki.raw("id.example", &request).await;
    assert_eq!(status(&answer), 404, "{answer}");
}

/// CVE-2025-48865: `Connection` names headers that a proxy drops, also those that it sets itself.
async fn a_header_that_a_client_has_removed_is_missed(kind: ProxyKind) {
    let site = Site::behind(kind).await;
    let bob = site.signed_in("bob").await;
    for removed in
        ["X-Forwarded-Host", "X-Forwarded-Uri", "X-Original-URL", "Remote-User", "X-Forwarded-Proto"]
    {
        let line =
            format!("GET /page HTTP/1.1\r\nHost: {}\r\nConnection: close, {removed}\r\n", site.wiki_host);
        let stranger = site.wiki.raw(WIKI, &format!("{line}Accept: text/html\r\n\r\n")).await;
        assert_ne!(status(&stranger), 200, "{removed}: {stranger}");
        let known = site.wiki.raw(WIKI, &format!("{line}{bob}Remote-User: ada\r\n\r\n")).await;
        assert!(
            status(&known) != 200 || known.to_lowercase().contains("remote-user: bob"),
            "{removed}: {known}"
        );
        assert!(!known.to_lowercase().contains("remote-user: ada"), "{removed}: {known}");
    }
}
