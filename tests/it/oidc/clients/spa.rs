//! A single-page application with oidc-client-ts, in a browser, which calls Gatehouse from another origin.

use std::os::unix::fs::PermissionsExt;

use super::apache::Apache;
use super::*;
use crate::support::authority::Authority;
use crate::support::browser::Browser;
use crate::support::ports::free_port;

/// The page shows who is signed in, and does what the settings are for.
const PAGE: &str = r#"<!doctype html>
<title>A single-page application</title>
<script type="importmap">
{ "imports": { "oidc-client-ts": "/oidc-client-ts.js", "jwt-decode": "/jwt-decode.js" } }
</script>
<script type="module">
import { manager } from "/settings.js";
if (location.pathname === "/callback") {
  await manager.signinCallback();
  history.replaceState(null, "", "/");
}
window.manager = manager;
window.user = await manager.getUser();
document.body.dataset.ready = "";
</script>
<body></body>
"#;

#[tokio::test(flavor = "multi_thread")]
async fn oidc_client_ts_signs_in_refreshes_and_signs_out() {
    let authority = Authority::new();
    let [certificate, key] = authority.certificate("spa.example");
    let site = tempfile::tempdir().unwrap();
    let packages = tools("oidc-1").join("node_modules");
    for (name, from) in [
        ("oidc-client-ts.js", "oidc-client-ts/dist/esm/oidc-client-ts.js"),
        ("jwt-decode.js", "jwt-decode/build/esm/index.js"),
    ] {
        std::fs::copy(packages.join(from), site.path().join(name)).unwrap();
    }
    std::fs::write(site.path().join("index.html"), PAGE).unwrap();
    // Apache reads them as another user than root.
    std::fs::set_permissions(site.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for algorithm in ["RS256", "ES256"] {
        let port = free_port();
        let origin = format!("https://spa.example:{port}");
        let printed = Printed::of("Single-page applications", "js").with("https://spa.example", &origin);
        let app = printed.start(algorithm).await;
        std::fs::write(site.path().join("settings.js"), printed.there[0].replace(HERE, &app.url)).unwrap();
        let text = format!(
            "SSLEngine on\nSSLCertificateFile {}\nSSLCertificateKeyFile {}\nDocumentRoot {}\nFallbackResource /index.html\n",
            certificate.path().display(),
            key.path().display(),
            site.path().display(),
        );
        let _apache = Apache::start(&app, port, &text, &[]);
        let _ = member(&app).await;
        let browser = Browser::start(&app.url).await;
        browser.open("/login").await;
        browser.fill(&[("login", "ada"), ("password", PASSWORD)]).await;
        browser.submit().await;

        let open = async || {
            browser.open(&format!("{origin}/")).await;
            ready(&browser).await;
        };
        open().await;
        let _ = browser.complaints().await;
        assert_eq!(browser.js("return user").await, Value::Null);
        browser.js("manager.signinRedirect()").await;
        browser.until("somebody", "return Boolean(window.user)").await;
        let profile = browser.js("return user.profile").await;
        assert_eq!((&profile["preferred_username"], &profile["email"]), (&"ada".into(), &EMAIL.into()));
        assert_eq!(profile["groups"], serde_json::json!(["staff"]));

        // From here on by script: a refresh token, and userinfo of the new access token.
        let renewed = "const before = user.access_token;
            manager.signinSilent().then((user) => { window.renewed = user && user.access_token !== before; })
                .catch((error) => { window.renewed = String(error); })";
        browser.js(renewed).await;
        browser.until("an answer", "return 'renewed' in window").await;
        assert_eq!(browser.js("return renewed").await, Value::Bool(true));
        rotate(&app).await;
        browser.js(&format!("delete window.renewed; {renewed}")).await;
        browser.until("an answer", "return 'renewed' in window").await;
        assert_eq!(browser.js("return renewed").await, Value::Bool(true));
        assert_eq!(browser.complaints().await, Vec::<String>::new());

        browser.js("manager.signoutRedirect()").await;
        browser
            .until(
                "the way back",
                &format!("return location.origin === {origin:?} && 'ready' in document.body.dataset"),
            )
            .await;
        assert_eq!(browser.js("return user").await, Value::Null);
        browser.open("/account").await;
        assert!(browser.path().await.starts_with("/login"), "{}", browser.path().await);
    }
}

async fn ready(browser: &Browser) {
    browser.until("a page", "return 'ready' in document.body.dataset").await;
}
