//! `/admin/apps/form`: an application that is added, changed and deleted by a form.

use super::console::plain;
use super::{APPS, account, inside, start, written};
use crate::support::app::{Answer, Client, Store, TestApp};

const LIST: &str = "/admin/apps";
const FORM: &str = "/admin/apps/form";
const WIKI: &str = "/admin/apps/form?app=wiki";
const PAGE: &str = "https://wiki.example/page";

/// The elements of that name, each as its attributes and its text.
fn elements<'p>(page: &'p str, name: &str) -> Vec<(&'p str, &'p str)> {
    let lead = format!("<{name}");
    let element = |rest: &'p str| {
        let (tag, rest) = rest.split_once('>').unwrap();
        (tag, rest.split("</").next().unwrap())
    };
    let all = page.split(lead.as_str()).skip(1);
    all.filter(|rest| rest.starts_with([' ', '>'])).map(element).collect()
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let value = tag.split_once(&format!(" {name}=\"")).map(|(_, rest)| rest.split('"').next().unwrap());
    value.map(plain)
}

/// The fields of the form as a browser sends them, without its buttons, and those of other forms on the page.
fn fields(page: &Answer) -> Vec<(String, String)> {
    let form = page.text.split("data-draft").nth(1).unwrap().split("</form>").next().unwrap();
    let ticked = |tag: &&(&str, &str)| !tag.0.contains("type=\"checkbox\"") || tag.0.contains(" checked");
    let inputs = elements(form, "input");
    let inputs = inputs
        .iter()
        .filter(ticked)
        .map(|(tag, _)| (attribute(tag, "name").unwrap(), attribute(tag, "value").unwrap_or_default()));
    let texts = elements(form, "textarea");
    let texts = texts
        .iter()
        .map(|(tag, text)| (attribute(tag, "name").unwrap(), plain(text).trim_start().replace('\n', "\r\n")));
    inputs.chain(texts).collect()
}

/// Sends the form of a page with other values in some fields.
async fn send(boss: &Client, page: &Answer, act: &str, changed: &[(&str, &str)]) -> Answer {
    let mut sent = fields(page);
    sent.retain(|(name, _)| !changed.iter().any(|(key, _)| key == name));
    let sent: Vec<(&str, &str)> = sent.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    boss.post(FORM, &[&[("do", act)], changed, &sent].concat()).await
}

/// Whether a page has an element of that name with all of these in its attributes.
fn shows(page: &Answer, name: &str, attributes: &[&str]) -> bool {
    let mut all = elements(&page.text, name).into_iter();
    all.any(|(tag, _)| attributes.iter().all(|attribute| tag.contains(attribute)))
}

fn ticks(page: &Answer, who: &str) -> bool {
    fields(page).contains(&("who".to_owned(), who.to_owned()))
}

#[tokio::test]
async fn an_application_is_added_by_a_form_tried_and_saved() {
    let (app, boss) = start(Store::Memory).await;
    account(&app, "bob", &["staff"]).await;
    account(&app, "eve", &["sales"]).await;
    assert!(shows(&boss.get(LIST).await, "a", &["href=\"/admin/apps/form\""]));
    let page = boss.get(FORM).await;
    assert!(
        shows(&page, "input", &["\"group:staff\""]) && !ticks(&page, "group:staff"),
        "groups to choose from: {}",
        page.text
    );
    assert!(shows(&page, "option", &["value=\"eve\""]), "people are suggested: {}", page.text);
    let new = [
        ("name", "notes"),
        ("hosts", "notes.example\r\nn.example:8443"),
        ("who", "group:staff"),
        ("more", "eve group:interns"),
        ("public", "/health"),
    ];
    let tried = send(&boss, &page, "try", &new).await;
    assert_eq!(tried.status, 200, "{}", tried.text);
    for told in ["new host", "Would gain access:", "<bdi>bob</bdi>", "<bdi>eve</bdi>", "<code>interns</code>"]
    {
        assert!(tried.text.contains(told), "{told}: {}", tried.text);
    }
    assert!(!tried.text.contains("<h3><bdi>files</bdi></h3>"), "no warning of another: {}", tried.text);
    assert!(!written(&app).contains("notes"), "nothing is saved yet");
    for ticked in ["group:staff", "eve", "group:interns"] {
        assert!(ticks(&tried, ticked), "{ticked}");
    }
    let saved = send(&boss, &tried, "save", &[("reason", "notes move in")]).await;
    let file = "/admin/apps?proxy=nginx&app=notes#proxy-file";
    assert_eq!((saved.status, saved.header("location")), (303, file), "{}", saved.text);
    let there = "https://notes.example/page";
    assert_eq!(inside(&app, there, "eve").await.ask("GET", there).await.status, 200);
    assert!(written(&app).starts_with(APPS.trim()), "the others are as they were: {}", written(&app));
    assert!(boss.get("/admin/limits/history").await.text.contains("notes move in"));
}

#[tokio::test]
async fn a_change_of_one_application_leaves_the_rest_of_the_document_alone() {
    let (app, boss) = start(Store::Memory).await;
    account(&app, "bob", &["staff"]).await;
    let bob = inside(&app, PAGE, "bob").await;
    let before = written(&app);
    let page = boss.get(WIKI).await;
    // What is shown and sent back changes nothing.
    let same = send(&boss, &page, "try", &[]).await;
    assert!(same.text.contains("no difference to any account"), "{}", same.text);
    assert_eq!(send(&boss, &page, "save", &[("reason", "look")]).await.status, 303);
    assert_eq!(written(&app), before);
    let changed = [("who", "ada"), ("reason", "staff has a wiki of its own")];
    assert_eq!(send(&boss, &boss.get(WIKI).await, "save", &changed).await.status, 303);
    assert_eq!(written(&app), before.replace("'group:staff', ", "").trim_start());
    assert_eq!(bob.ask("GET", PAGE).await.status, 403);
    let renamed = [("name", "wiki & more"), ("reason", "a better name")];
    assert_eq!(send(&boss, &boss.get(WIKI).await, "save", &renamed).await.status, 303);
    assert_eq!(boss.get(WIKI).await.status, 404);
    let list = boss.get(LIST).await;
    assert!(shows(&list, "a", &["href=\"/admin/apps/form?app=wiki+%26+more\""]), "{}", list.text);
}

#[tokio::test]
async fn enter_adds_who_is_typed_before_it_saves() {
    let (app, boss) = start(Store::Memory).await;
    account(&app, "eve", &[]).await;
    let before = written(&app);
    let typed = [("more", "eve"), ("reason", "eve has come")];
    let added = send(&boss, &boss.get(WIKI).await, "enter", &typed).await;
    assert!(added.status == 200 && ticks(&added, "eve"), "{}", added.text);
    assert_eq!(written(&app), before);
    assert_eq!(send(&boss, &added, "enter", &[]).await.status, 303);
    assert!(written(&app).contains("eve"), "{}", written(&app));
}

#[tokio::test]
async fn parts_come_and_go_without_a_script() {
    let (app, boss) = start(Store::Memory).await;
    let page = boss.get(WIKI).await;
    let more = send(&boss, &page, "add", &[("name", "kept as typed")]).await;
    assert!(
        shows(&more, "input", &["\"path-3\""]) && shows(&more, "input", &["\"kept as typed\""]),
        "{}",
        more.text
    );
    let part = [("path-3", "/secret/*"), ("nobody-3", "on"), ("name", "wiki")];
    let fewer = send(&boss, &more, "remove-0", &part).await;
    let paths = fields(&fewer).into_iter().filter(|(name, _)| name.starts_with("path-"));
    assert_eq!(paths.map(|(_, path)| path).collect::<Vec<_>>(), ["/keys/*", "/recent/*", "/secret/*"]);
    assert_eq!(send(&boss, &fewer, "save", &[("reason", "parts")]).await.status, 303);
    let file = written(&app);
    assert!(file.contains("/secret/*") && !file.contains("/admin/*"), "{file}");
    account(&app, "bob", &["staff"]).await;
    let secret = "https://wiki.example/secret/x";
    assert_eq!(inside(&app, PAGE, "bob").await.ask("GET", secret).await.status, 403, "nobody is let in");
}

#[tokio::test]
async fn a_mistake_is_told_at_its_field_and_nothing_typed_is_lost() {
    let (app, boss) = start(Store::Memory).await;
    let before = written(&app);
    let page = boss.get(WIKI).await;
    for (field, typed, id, told) in [
        ("name", "", "name", "is not a name"),
        ("name", "files", "name", "is the name of another application"),
        ("hosts", "", "hosts", "is missing"),
        ("hosts", "Wiki.example", "hosts", "has capital letters"),
        ("hosts", "wiki.example\r\nfiles.test", "hosts", "is listed twice"),
        ("more", "Ada", "who", "is nobody"),
        ("public", "health", "public", "is not a path"),
        ("path-0", "admin", "path-0", "is not a path"),
        ("who-0", "group:On-Call", "who-0", "is not a group"),
        ("password_within-1", "soon", "password_within-1", "soon"),
        ("signed_in_within-2", "1s", "signed_in_within-2", "1m"),
        ("who-0", "", "part-0", "requires nothing"),
    ] {
        for act in ["try", "save"] {
            let answer = send(&boss, &page, act, &[(field, typed), ("reason", "because")]).await;
            assert_eq!(answer.status, 422, "{field}={typed}: {}", answer.text);
            assert!(shows(&answer, "a", &[&format!("href=\"#{id}\"")]), "{id}: {}", answer.text);
            assert!(
                answer.text.contains(&format!(" id=\"{id}\"")) && answer.text.contains(told),
                "{told}: {}",
                answer.text
            );
            let field = if field == "more" { "who" } else { field };
            let kept = fields(&answer).into_iter().any(|(name, value)| name == field && value == typed);
            assert!(kept, "{field}: {:?}", fields(&answer));
        }
    }
    let without = send(&boss, &page, "save", &[("hosts", "w.example"), ("reason", " ")]).await;
    assert!(
        without.status == 422 && without.text.contains("Give a reason") && without.text.contains("w.example")
    );
    let foreign =
        send(&boss, &page, "save", &[("csrf_token", "x"), ("hosts", "w.example"), ("reason", "r")]).await;
    assert!(foreign.status == 403 && foreign.text.contains("w.example"), "{}", foreign.text);
    assert_eq!(written(&app), before);
}

#[tokio::test]
async fn an_application_is_deleted_with_a_reason_and_nobody_gets_in_any_more() {
    let (app, boss) = start(Store::Memory).await;
    account(&app, "bob", &["staff"]).await;
    let bob = inside(&app, PAGE, "bob").await;
    let page = boss.get(WIKI).await;
    let (token, version) = (page.csrf_token(), page.hidden("version").unwrap());
    let delete = async |reason: &str| {
        let fields = [("do", "delete"), ("app", "wiki"), ("version", &version), ("reason", reason)];
        boss.post(FORM, &[&fields[..], &[("csrf_token", &token)]].concat()).await
    };
    let without = delete("").await;
    assert!(without.status == 422 && shows(&without, "details", &[" open"]), "{}", without.text);
    assert!(ticks(&without, "group:staff"), "the form is as it is in force");
    assert_eq!(delete("it is gone").await.status, 303);
    assert!(!written(&app).contains("wiki") && written(&app).contains("files"), "{}", written(&app));
    assert_ne!(bob.ask("GET", PAGE).await.status, 200);
    assert_eq!(boss.get(WIKI).await.status, 404);
}

#[tokio::test]
async fn a_form_of_an_older_document_overwrites_nothing() {
    let (app, boss) = start(Store::Memory).await;
    let (one, other) = (boss.get(WIKI).await, boss.get(WIKI).await);
    assert_eq!(send(&boss, &one, "save", &[("public", "/one"), ("reason", "one")]).await.status, 303);
    let late = send(&boss, &other, "save", &[("public", "/other"), ("reason", "other")]).await;
    assert_eq!(late.status, 412, "{}", late.text);
    assert!(late.text.contains("Somebody else saved a change") && late.text.contains("value=\"other\""));
    assert!(written(&app).contains("/one") && !written(&app).contains("/other"));
}

#[tokio::test]
async fn what_a_variable_sets_is_read_only_in_the_form() {
    let apps = "[{ name = \"env\", hosts = [\"env.example\"], who = [\"everyone\"] }]";
    let app = TestApp::on(Store::Memory).behind_a_proxy().file("# Ours.\n").set("apps", apps).start().await;
    let boss = app.sign_in_admin_at("boss", "198.51.100.7").await;
    let list = boss.get(LIST).await;
    assert!(
        list.text.contains("GATEHOUSE__APPS") && !shows(&list, "a", &["href=\"/admin/apps/form\""]),
        "{}",
        list.text
    );
    let page = boss.get("/admin/apps/form?app=env").await;
    assert!(
        page.text.contains("GATEHOUSE__APPS") && shows(&page, "fieldset", &["app-fields", " disabled"]),
        "{}",
        page.text
    );
    assert!(
        !shows(&page, "button", &["value=\"save\""]) && !shows(&page, "button", &["danger"]),
        "{}",
        page.text
    );
    let refused = send(&boss, &page, "save", &[("hosts", "other.example"), ("reason", "r")]).await;
    assert!(refused.status == 422 && refused.text.contains("environment variable"), "{}", refused.text);
}
