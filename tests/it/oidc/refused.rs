//! Redirect URIs that were refused, as administrators see them.

use super::*;

const APPS: &str = "/admin/apps";

async fn ask(app: &TestApp, redirect_uri: &str) {
    let answer = app.client().get(&request(&[("redirect_uri", redirect_uri)])).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
}

async fn shown(boss: &Client) -> Vec<String> {
    let page = boss.get(APPS).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let items = page.text.split("register it if it is the application&#39;s own):").skip(1);
    items.map(|item| item.split("</li>").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_administrator_sees_what_was_received_when_and_the_nearest_that_is_registered() {
    let app = on(Store::Memory).start().await;
    let boss = app.sign_in_admin_at("boss", "198.51.100.7").await;
    assert_eq!(shown(&boss).await, Vec::<String>::new());
    ask(&app, "https://wiki.example/otter").await;
    let [only] = &shown(&boss).await[..] else { panic!("one") };
    assert!(only.contains("https://wiki.example/ot<mark>ter</mark>"), "{only}");
    assert!(only.contains("https://wiki.example/ot<mark>her</mark>"), "{only}");
    assert!(only.contains(&format!("datetime=\"{}\"", gatehouse::clock::iso(app.clock.now()))), "{only}");
    // What no client of ours asked for is nowhere.
    app.client().get(&request(&[("client_id", "nobody"), ("redirect_uri", "https://nobody.example/")])).await;
    let twice = format!("{}&redirect_uri=https://twice.example/", request(&[]));
    app.client().get(&twice).await;
    assert_eq!(shown(&boss).await.len(), 1);
    // One that is mended is gone: the application answers at it by now.
    let mended = clients().replace("/other'", "/otter'");
    std::fs::write(app.file(), mended).unwrap();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while !shown(&boss).await.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the file is not followed");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await; // the watcher's thread reads it, by no clock of ours
    }
}

#[tokio::test]
async fn an_administrator_sees_which_application_sends_no_pkce_and_what_to_write() {
    let app = start(on(Store::Memory)).await;
    let boss = app.sign_in_admin_at("boss", "198.51.100.7").await;
    let without = |client, uri| {
        let none = [("code_challenge", ""), ("code_challenge_method", "")];
        request(&[&[("client_id", client), ("redirect_uri", uri)][..], &none].concat())
    };
    let shown = async || boss.get(APPS).await.text.matches("pkce = ").count();
    // One that may, and one that has no secret, and so has to send it.
    app.client().get(&without("files-client", "https://files.example/callback?from=us")).await;
    app.client().get(&without("spa", SPA)).await;
    assert_eq!(shown().await, 0);
    let refused = sent(&app.client().get(&without("wiki", WIKI)).await);
    assert!(refused("error_description").unwrap().contains("set pkce to optional"));
    assert_eq!(shown().await, 1);
}

#[tokio::test]
async fn strangers_fill_nothing_and_what_they_send_does_nothing() {
    let app = on(Store::Memory).start().await;
    let boss = app.sign_in_admin_at("boss", "198.51.100.7").await;
    for number in 0..20 {
        ask(&app, &format!("https://evil.example/{number}")).await;
    }
    ask(&app, "https://evil.example/18").await;
    let all = shown(&boss).await;
    let last = |item: &String| item.split("</mark>").next().unwrap().rsplit('/').next().unwrap().to_owned();
    assert_eq!(all.iter().map(last).collect::<Vec<_>>(), ["18", "19", "17"]);
    ask(&app, "https://wiki.example/otter").await;
    for number in 20..40 {
        ask(&app, &format!("https://evil.example/{number}")).await;
    }
    assert!(
        shown(&boss).await[2].contains("https://wiki.example/ot<mark>ter</mark>"),
        "strangers do not push it out"
    );
    let hostile = format!("https://wiki.example/<script>alert(1)</script>\u{202e}\n{}", "x".repeat(5_000));
    ask(&app, &hostile).await;
    let all = shown(&boss).await;
    assert!(!all[0].contains("<script>") && !all[0].contains('\u{202e}'), "{}", all[0]);
    assert!(all[0].contains("\\u{202e}\\n") && all[0].contains("x…</mark>"), "{}", all[0]);
    assert!(all[0].len() < 1_000, "{}", all[0].len());
}
