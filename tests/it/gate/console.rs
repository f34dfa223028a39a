//! `/admin/apps`: its warnings, a draft that is tried, and one that is saved.

use gatehouse::audit::EventFilter;
use gatehouse::gate::ProxyFile;

use super::proxies::server;
use super::{APPS, account, inside, start, written};
use crate::support::app::{Answer, Client, Store, TestApp, on_both_stores};

on_both_stores!(a_draft_is_tried_saved_and_followed_by_the_gate,);

const LIST: &str = "/admin/apps";
const EDIT: &str = "/admin/apps/edit";
const PAGE: &str = "https://wiki.example/page";

async fn shown(boss: &Client) -> (String, String) {
    let page = boss.get(EDIT).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let text = page.text.split("<textarea").nth(1).unwrap().split_once(">\n").unwrap().1;
    let text = text.split("</textarea>").next().unwrap();
    (page.hidden("version").unwrap(), super::unescaped(text).replace("&#34;", "\"").replace("&#39;", "'"))
}

async fn send(boss: &Client, act: &str, version: &str, toml: &str, reason: &str) -> Answer {
    let fields = [("do", act), ("version", version), ("toml", toml), ("reason", reason)];
    boss.submit(EDIT, EDIT, &fields).await
}

/// The same that the command line prints, one application or all.
#[tokio::test]
async fn the_page_shows_the_file_for_a_proxy_as_it_is_printed() {
    let (app, boss) = start(Store::Memory).await;
    let config = format!("{}public_url = '{}'\n{APPS}", server(&app), app.url);
    let config = gatehouse::config::parse("gatehouse.toml".as_ref(), &config, &[]).unwrap();
    for (query, files, only) in [
        ("", &[ProxyFile::Nginx][..], None),
        ("?proxy=caddy&app=wiki", &[ProxyFile::Caddy], Some("wiki")),
        ("?proxy=haproxy&app=", &[ProxyFile::Haproxy, ProxyFile::HaproxyLua], None),
        ("?proxy=traefik", &[ProxyFile::Traefik], None),
        ("?proxy=envoy&app=files", &[ProxyFile::Envoy], Some("files")),
        ("?proxy=apache", &[ProxyFile::Nginx], None),
    ] {
        let page = boss.get(&format!("{LIST}{query}")).await;
        assert_eq!(page.status, 200, "{query}: {}", page.text);
        let shown = page
            .text
            .split("data-copied=\"Copied\">")
            .skip(1)
            .map(|rest| rest.split("</pre>").next().unwrap());
        let shown: Vec<String> = shown.map(plain).collect();
        let print = |file: &ProxyFile| file.print(&config.settings.server, &config.live.apps, only).unwrap();
        assert_eq!(shown, files.iter().map(print).collect::<Vec<_>>(), "{query}");
    }
    let unknown = boss.get(&format!("{LIST}?app=%3Cb%3E")).await;
    assert!(
        unknown.status == 200 && unknown.text.contains("is not the name of an application"),
        "{}",
        unknown.text
    );
    assert!(!unknown.text.contains("data-copy") && !unknown.text.contains("<b>"));
}

/// Text of a page as it is read.
pub fn plain(html: &str) -> String {
    let html = html.replace("&#34;", "\"").replace("&#39;", "'").replace("&#60;", "<").replace("&#62;", ">");
    html.replace("&#38;", "&")
}

fn of(answer: &Answer, told: &str) -> bool {
    answer.text.contains(told)
}

async fn a_draft_is_tried_saved_and_followed_by_the_gate(store: Store) {
    let (app, boss) = start(store).await;
    let ada = account(&app, "ada", &["on-call"]).await;
    account(&app, "bob", &["staff"]).await;
    account(&app, "eve", &["sales"]).await;
    let (ada_there, bob_there) = (inside(&app, PAGE, "ada").await, inside(&app, PAGE, "bob").await);
    for visitor in [&ada_there, &bob_there] {
        assert_eq!(visitor.ask("GET", PAGE).await.status, 200);
    }
    let (version, toml) = shown(&boss).await;
    assert_eq!(toml.trim(), APPS.trim(), "as it is in the file");

    // Whom it keeps out, whom it lets in, and nothing else happens.
    let draft = toml.replace("'ada'", "'eve', 'nobody-has-this'").replace("'/health', ", "");
    let draft = format!("{draft}\n# All of it.\n");
    let tried = send(&boss, "try", &version, &draft, "").await;
    assert_eq!(tried.status, 200, "{}", tried.text);
    for told in [
        &format!("<a href=\"/admin/accounts/{ada}\"><bdi>ada</bdi></a>"),
        "<bdi>eve</bdi>",
        "Would lose access:",
        "Would gain access:",
        "Would need a sign-in: <code>/health</code>",
        "No account that can sign in has this name: <code>nobody-has-this</code>",
        "whoever has an account",
    ] {
        assert!(tried.text.contains(told), "{told}: {}", tried.text);
    }
    assert!(!of(&tried, "<bdi>bob</bdi>"), "nothing changes for him");
    assert_eq!(shown(&boss).await, (version.clone(), toml.clone()));
    assert_eq!(ada_there.ask("GET", PAGE).await.status, 200);

    let saved = send(&boss, "save", &version, &draft, "ada has left").await;
    assert_eq!((saved.status, saved.header("location")), (303, LIST), "{}", saved.text);
    assert_eq!(ada_there.ask("GET", PAGE).await.status, 403);
    assert_eq!(bob_there.ask("GET", PAGE).await.status, 200);
    assert_eq!(inside(&app, PAGE, "eve").await.ask("GET", PAGE).await.status, 200);
    let list = boss.get(LIST).await;
    assert!(of(&list, "<bdi>wiki</bdi>") && of(&list, "<code>nobody-has-this</code>"), "{}", list.text);
    assert!(
        of(&list, "group:staff, eve, nobody-has-this") && of(&list, "whoever has an account"),
        "{}",
        list.text
    );
    assert!(written(&app).contains("\n# All of it.\n"));

    // Recorded with its reason, in the history and as an event.
    let history = boss.get("/admin/limits/history").await;
    assert!(of(&history, "ada has left") && of(&history, "nobody-has-this"), "{}", history.text);
    app.services.audit.flush().await;
    let events = app.services.audit.log().page(&EventFilter::default(), None, 50).await.unwrap().entries;
    let event = events.iter().find(|event| event.name.as_deref() == Some("apps.save")).unwrap();
    assert!(event.detail.as_deref().unwrap().contains("ada has left"), "{event:?}");
}

#[tokio::test]
async fn whoever_has_not_seen_the_newest_document_overwrites_nothing() {
    let (app, boss) = start(Store::Memory).await;
    let (version, toml) = shown(&boss).await;
    let (one, other) = (toml.replace("'ada'", "'kim'"), toml.replace("'ada'", "'lin'"));
    assert_eq!(send(&boss, "save", &version, &one, "kim came").await.status, 303);
    let late = send(&boss, "save", &version, &other, "lin came").await;
    assert_eq!(late.status, 412, "{}", late.text);
    for told in
        ["Somebody else saved a change", "kim", "lin", "action=\"/admin/apps/edit\"", "value=\"lin came\""]
    {
        assert!(of(&late, told), "{told}: {}", late.text);
    }
    assert!(written(&app).contains("'kim'"));
    let now = late.hidden("version").unwrap();
    assert_eq!(send(&boss, "save", &now, &other, "lin came").await.status, 303);
    assert!(written(&app).contains("'lin'"));
}

#[tokio::test]
async fn a_mistake_is_told_with_its_line_and_what_was_typed_is_kept() {
    let (app, boss) = start(Store::Memory).await;
    let before = written(&app);
    let (version, toml) = shown(&boss).await;
    let own_host = app.url.split("//").nth(1).unwrap().split(':').next().unwrap().to_owned();
    for (draft, line, told) in [
        (toml.replace("'wiki.example'", "'Wiki.example'"), "Line 3", "has capital letters"),
        (toml.replace("'wiki.example'", &format!("'{own_host}'")), "Line 3", "server.public_url"),
        (format!("{toml}\n[server]\nworkers = 2\n"), "Line", "server"),
        (format!("{toml}[[apps]\n"), "Line", "apps"),
        (toml.replace("'everyone'", "'*'"), "Line", "is nobody"),
    ] {
        for act in ["try", "save"] {
            let answer = send(&boss, act, &version, &draft, "because").await;
            assert_eq!(answer.status, 422, "{draft}: {}", answer.text);
            assert!(of(&answer, line) && of(&answer, told), "{told}: {}", answer.text);
            assert!(of(&answer, "value=\"because\"") && of(&answer, "aria-invalid"), "{}", answer.text);
        }
    }
    let without = send(&boss, "save", &version, &toml.replace("ada", "<script>"), " ").await;
    assert!(without.status == 422 && !of(&without, "<script>'"), "{}", without.text);
    let without = send(&boss, "save", &version, &toml.replace("ada", "kim"), " ").await;
    assert!(
        without.status == 422 && of(&without, "Give a reason") && of(&without, "kim"),
        "{}",
        without.text
    );
    let foreign =
        boss.post(EDIT, &[("csrf_token", "x"), ("do", "save"), ("toml", "# mine"), ("reason", "r")]).await;
    assert!(foreign.status == 403 && of(&foreign, "# mine"), "{}", foreign.text);
    assert_eq!(written(&app), before);
}

#[tokio::test]
async fn where_there_is_no_application_yet_an_example_shows_how_to_begin() {
    let app = TestApp::on(Store::Memory).behind_a_proxy().file("# Ours.\n").start().await;
    let boss = app.sign_in_admin_at("boss", "198.51.100.7").await;
    for page in [LIST, EDIT] {
        assert!(of(&boss.get(page).await, "wiki.example"), "{page}");
    }
    let (version, toml) = shown(&boss).await;
    assert_eq!(toml.trim(), "");
    let first = "[[apps]]\r\nname = \"wiki\"\r\nhosts = [\"wiki.example\"]\r\n";
    let tried = send(&boss, "try", &version, first, "").await;
    assert!(of(&tried, "new host") && of(&tried, "Nobody may enter."), "{}", tried.text);
    assert_eq!(send(&boss, "save", &version, first, "the first").await.status, 303);
    let written = written(&app);
    assert!(written.contains("# Ours.\n") && written.contains("[[apps]]\nname"), "{written}");
    let (version, _) = shown(&boss).await;
    let tried = send(&boss, "try", &version, "", "").await;
    assert!(of(&tried, "no application any more"), "{}", tried.text);
}

#[tokio::test]
async fn applications_that_a_variable_sets_are_shown_as_such_and_not_saved() {
    let apps = "[{ name = \"env\", hosts = [\"env.example\"], who = [\"everyone\"] }]";
    let app = TestApp::on(Store::Memory).behind_a_proxy().file("# Ours.\n").set("apps", apps).start().await;
    let boss = app.sign_in_admin_at("boss", "198.51.100.7").await;
    assert!(of(&boss.get(LIST).await, "env.example"));
    assert!(of(&boss.get(EDIT).await, "GATEHOUSE__APPS"));
    let (version, _) = shown(&boss).await;
    assert!(!of(&boss.get(EDIT).await, "value=\"save\""), "nothing can be saved");
    // The document has none, but the variable stays.
    let tried = send(&boss, "try", &version, "", "").await;
    assert!(
        of(&tried, "no difference to any account") && !of(&tried, "application any more"),
        "{}",
        tried.text
    );
    let other = "[[apps]]\nname = \"wiki\"\nhosts = [\"wiki.example\"]\n";
    let refused = send(&boss, "save", &version, other, "why").await;
    assert!(refused.status == 422 && of(&refused, "environment variable"), "{}", refused.text);
}
