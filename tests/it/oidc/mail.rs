//! Mail by an access token: Dovecot asks `/oauth/introspect`.

use std::net::Ipv4Addr;

use super::*;
use crate::support::app::Store;
use crate::support::dovecot::Dovecot;

const HOME: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 9);

#[tokio::test]
async fn a_mailbox_opens_by_a_token_of_the_mail_client_and_by_no_other() {
    let app = start(on(Store::Memory)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dovecot-oauth2.conf.ext");
    let settings = format!(
        "introspection_mode = post\nintrospection_url = {}/oauth/introspect\nclient_id = wiki\nclient_secret = {SECRET}
username_attribute = username
active_attribute = active\nactive_value = true\ntimeout_msecs = 30000\n",
        app.url
    );
    std::fs::write(&file, settings).unwrap();
    // Its processes run as others.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let dovecot = Dovecot::start_with(&format!(
        "auth_mechanisms = plain oauthbearer xoauth2
passdb {{
  driver = oauth2
  mechanisms = oauthbearer xoauth2
  args = {}
}}
passdb {{
  driver = static
  args = password=secret
}}
",
        file.display()
    ))
    .await;
    let (ada, token, _) = granted(&app, "ada").await;
    let opens = async |login: &str, token: &str| {
        let answer = dovecot.connect(HOME).await.login_by_token(login, token).await;
        assert!(answer.starts_with("OK") || answer.starts_with("NO"), "{answer}\n{}", dovecot.said());
        answer.starts_with("OK")
    };
    assert!(opens("ada", &token).await, "{}", dovecot.said());
    assert!(!opens("bob", &token).await, "of somebody else");
    assert!(!opens("ada", "x.y.z").await, "none of ours");
    // By another client's token the introspection tells nothing; userinfo would.
    let files = [("client_id", "files-client"), ("redirect_uri", "https://files.example/callback?from=us")];
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", &code(&ada, &files).await),
        ("redirect_uri", files[1].1),
        ("code_verifier", VERIFIER),
    ];
    let other = call(&app, "/oauth/token", Some(("files-client", SECRET)), &fields).await;
    let other = other.body["access_token"].as_str().unwrap();
    assert_eq!(userinfo(&app.url, other).await.status, 200);
    assert!(!opens("ada", other).await, "of another client");
    // Signing out ends it.
    assert_eq!(ada.submit("/account", "/logout", &[]).await.status, 303);
    assert!(!opens("ada", &token).await, "it has ended");
}
