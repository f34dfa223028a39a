//! The list of accounts and that of groups: what they show, and what is done to several at once.

use std::collections::BTreeSet;

use gatehouse::accounts::{AccountAct, Groups, Roles, Username};

use super::acts;
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

on_both_stores!(
    accounts_are_listed_by_role_state_and_group,
    a_list_is_walked_by_its_links_and_no_link_has_a_name,
    several_accounts_are_changed_at_once_with_one_reason,
    what_is_not_done_to_several_says_why,
    a_group_shows_its_members_and_who_names_it,
);

const LIST: &str = "/admin/accounts";
const CHOSEN: &str = "/admin/accounts/chosen";

/// Boss, and six users: two disabled, one to change the password, three in groups.
async fn start(store: Store) -> (TestApp, Client) {
    let app = TestApp::on(store)
        .file("[[apps]]\nname = \"wiki\"\nhosts = [\"wiki.example\"]\nwho = [\"group:staff\"]\n[[apps.parts]]\npath = \"/admin/*\"\nwho = [\"group:ops\"]\n")
        .start()
        .await;
    let boss = app.sign_in_admin("boss").await;
    for name in ["ada", "bea", "cleo", "dora", "eve", "fay"] {
        app.register(name).await;
    }
    for (name, act) in [
        ("bea", AccountAct::Disable),
        ("cleo", AccountAct::Disable),
        ("dora", AccountAct::RequireNewPassword),
    ] {
        app.services.accounts.change(id(&app, name).await, act, false).await.unwrap();
    }
    for (name, groups) in [("ada", "staff"), ("bea", "staff"), ("eve", "staff,tokyo")] {
        let groups = Groups::parse(groups.split(',')).unwrap();
        app.services.accounts.change_groups(id(&app, name).await, false, |_| groups.clone()).await.unwrap();
    }
    (app, boss)
}

async fn id(app: &TestApp, name: &str) -> gatehouse::accounts::AccountId {
    app.services.accounts.find(&Username::parse(name).unwrap()).await.unwrap().unwrap().id
}

/// What stands between each `from` and the next `to` of a page.
fn between<'t>(text: &'t str, from: &str, to: &str) -> Vec<&'t str> {
    text.split(from).skip(1).filter_map(|rest| rest.split_once(to)).map(|(inner, _)| inner).collect()
}

/// The names in the rows of a page.
fn listed(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let rows = between(&answer.text, "<th scope=\"row\">", "</th>");
    rows.into_iter().map(|row| between(row, "<bdi>", "</bdi>")[0].to_owned()).collect()
}

async fn accounts_are_listed_by_role_state_and_group(store: Store) {
    let (_app, boss) = start(store).await;
    for (query, names) in [
        ("?sort=login", "ada bea boss cleo dora eve fay"),
        ("?sort=login&order=reversed", "fay eve dora cleo boss bea ada"),
        ("?role=admin", "boss"),
        ("?state=disabled&sort=login", "bea cleo"),
        ("?state=must-change-password", "dora"),
        ("?state=active&sort=login", "ada boss eve fay"),
        ("?group=staff&sort=login", "ada bea eve"),
        ("?group=staff&state=disabled", "bea"),
        ("?group=nobody", ""),
    ] {
        let found = listed(&boss.get(&format!("{LIST}{query}")).await);
        let wanted: Vec<&str> = names.split_whitespace().collect();
        assert_eq!(found, wanted, "{query}");
        let is_filter = |part: &&str| !part.starts_with("sort") && !part.starts_with("order");
        let filters: Vec<&str> = query.trim_start_matches('?').split('&').filter(is_filter).collect();
        let answer = boss.get(&format!("/api/v1{LIST}?{}", filters.join("&"))).await;
        let accounts = answer.body["accounts"].as_array().unwrap_or_else(|| panic!("{}", answer.text));
        let found: BTreeSet<&str> = accounts.iter().map(|it| it["login"].as_str().unwrap()).collect();
        assert_eq!(found, wanted.iter().copied().collect(), "{query}");
    }
    for wrong in ["role=boss", "state=gone", "group=Staff"] {
        let answer = boss.get(&format!("/api/v1{LIST}?{wrong}")).await;
        assert_eq!((answer.status, answer.problem()), (422, "invalid-input"), "{wrong}");
        assert_eq!(boss.get(&format!("{LIST}?{wrong}")).await.status, 200, "a page does what it can");
    }
    let head = boss.get(LIST).await.text;
    for total in
        ["Accounts: <strong>7</strong>", "Disabled: <strong>2</strong>", "Administrators: <strong>1</strong>"]
    {
        assert!(head.contains(total), "{total}: {head}");
    }
}

async fn a_list_is_walked_by_its_links_and_no_link_has_a_name(store: Store) {
    let (app, boss) = start(store).await;
    let ada = app.services.accounts.find(&Username::parse("ada").unwrap()).await.unwrap().unwrap();
    let hash = ada.password_hash.unwrap();
    for number in 0..55 {
        let login = Username::parse(&format!("walker-{number:02}")).unwrap();
        app.services.accounts.create(&login, &hash, Roles::default()).await.unwrap();
    }
    for query in
        ["", "?order=reversed", "?sort=login", "?sort=login&order=reversed", "?state=active&sort=login"]
    {
        let (mut path, mut seen) = (format!("{LIST}{query}"), Vec::new());
        for page in 0.. {
            let answer = boss.get(&path).await;
            seen.extend(listed(&answer));
            let links = between(&answer.text, "href=\"", "\"");
            assert!(links.iter().all(|link| !link.contains("walker")), "{links:?}");
            let next =
                answer.text.split_once("\" rel=\"next\"").and_then(|(before, _)| before.rsplit_once('"'));
            match next {
                Some((_, next)) => path = next.replace("&#38;", "&"),
                None => break,
            }
            assert!(page < 5);
        }
        let each: BTreeSet<&String> = seen.iter().collect();
        let wanted = if query.contains("active") { 55 + 4 } else { 55 + 7 };
        assert_eq!((seen.len(), each.len()), (wanted, wanted), "{query}");
    }
}

async fn several_accounts_are_changed_at_once_with_one_reason(store: Store) {
    let (app, boss) = start(store).await;
    let (ada, fay) = (id(&app, "ada").await.to_string(), id(&app, "fay").await.to_string());
    let hers = app.client();
    assert_eq!(hers.login("fay", PASSWORD).await.status, 200);
    let here = "/admin/accounts?group=staff&sort=login";
    let back = "/admin/accounts?sort=login&group=staff";
    let add = [("account", ada.as_str()), ("account", &fay), ("act", "add"), ("group", "on-call")];
    let done =
        boss.submit(LIST, CHOSEN, &[&add[..], &[("reason", "the rota"), ("here", here)]].concat()).await;
    assert_eq!((done.status, done.header("location")), (303, back), "{}", done.text);
    for (name, groups) in [("ada", "on-call,staff"), ("fay", "on-call")] {
        assert_eq!(app.services.accounts.groups(id(&app, name).await).await.unwrap().to_string(), groups);
    }
    let disable = [("account", ada.as_str()), ("account", &fay), ("act", "disable"), ("reason", "they left")];
    let done =
        boss.submit(LIST, CHOSEN, &[&disable[..], &[("here", "https://evil.example/")]].concat()).await;
    assert_eq!((done.status, done.header("location")), (303, LIST), "{}", done.text);
    assert!(boss.get(LIST).await.text.contains("The chosen accounts are disabled"));
    assert_eq!(hers.get("/api/v1/session").await.status, 401);
    let acts: Vec<_> =
        acts(&app).await.into_iter().map(|act| (act.name.unwrap(), act.detail.unwrap())).collect();
    let names: Vec<&str> = acts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["account-disable", "account-disable", "account-groups", "account-groups"],
        "one for each"
    );
    assert_eq!(acts[0].1, r#"{"reason":"they left"}"#);
    assert!(acts[2].1.contains("\"to\":\"on-call\"") && acts[3].1.contains("\"from\":\"staff\""), "{acts:?}");
}

async fn what_is_not_done_to_several_says_why(store: Store) {
    let (app, boss) = start(store).await;
    let (ada, own) = (id(&app, "ada").await.to_string(), id(&app, "boss").await.to_string());
    let reason = ("reason", "a test");
    for (fields, status, told) in [
        (vec![("act", "disable"), reason], 422, "choose at least one"),
        (vec![("account", ada.as_str()), reason], 422, "say what to do"),
        (vec![("account", &ada), ("act", "disable"), ("reason", " ")], 422, "Give a reason"),
        (
            vec![("account", &ada), ("act", "add"), ("group", "<b>Ops"), reason],
            422,
            "&#60;b&#62;Ops is not the name",
        ),
        (vec![("account", &ada), ("account", &own), ("act", "disable"), reason], 409, "your own account"),
        (vec![("account", "no-id"), ("act", "disable"), reason], 422, "choose at least one"),
    ] {
        let refused = boss.submit(LIST, CHOSEN, &fields).await;
        assert_eq!(refused.status, status, "{fields:?}: {}", refused.text);
        assert!(refused.text.contains(told), "{told}: {}", refused.text);
        if fields[0].1 == ada {
            assert!(
                refused.text.contains(&format!("value=\"{ada}\" aria-label=\"Choose ada\" checked")),
                "it stays chosen"
            );
        }
    }
    // One has as many groups as it may, which the other does not suffer from.
    let many: Vec<String> = (0..50).map(|number| format!("g{number}")).collect();
    let full = Groups::parse(many.iter().map(String::as_str)).unwrap();
    app.services.accounts.change_groups(id(&app, "ada").await, false, |_| full.clone()).await.unwrap();
    let fay = id(&app, "fay").await;
    let fields = [
        ("account", ada.as_str()),
        ("account", &fay.to_string()),
        ("act", "add"),
        ("group", "staff"),
        reason,
    ];
    let partly = boss.submit(LIST, CHOSEN, &fields).await;
    assert_eq!(partly.status, 409);
    assert!(
        partly.text.contains("All were changed but these") && partly.text.contains(": ada<"),
        "{}",
        partly.text
    );
    assert!(app.services.accounts.groups(fay).await.unwrap().contains("staff"));
    // A stranger, and a form of another site.
    assert_eq!(app.client().post(CHOSEN, &fields).await.status, 303);
    assert_eq!(boss.post(CHOSEN, &fields).await.status, 403);
    assert!(app.services.accounts.by_id(id(&app, "ada").await).await.unwrap().unwrap().disabled_at.is_none());
}

async fn a_group_shows_its_members_and_who_names_it(store: Store) {
    let (app, boss) = start(store).await;
    let groups = boss.get("/admin/groups").await;
    let rows = between(&groups.text, "<tr><th scope=\"row\">", "</tr>");
    let rows: Vec<Vec<&str>> = rows.iter().map(|row| between(row, ">", "<")).collect();
    let rows: Vec<String> = rows.iter().map(|row| row.concat()).collect();
    assert_eq!(rows, ["ops0wiki", "staff3wiki", "tokyo1No application names it."], "{}", groups.text);
    let staff = boss.get("/admin/groups/staff").await;
    assert_eq!(listed(&staff), ["ada", "bea", "eve"]);
    assert!(
        staff.text.contains("<strong>wiki</strong>") && staff.text.contains("/admin/accounts?group=staff")
    );
    let ops = boss.get("/admin/groups/ops").await;
    assert!(ops.text.contains("<code>/admin/*</code>") && ops.text.contains("Nobody is in this group."));
    for (path, status) in [("Staff", 404), ("a%2Cb", 404), ("never-heard-of", 200)] {
        assert_eq!(boss.get(&format!("/admin/groups/{path}")).await.status, status, "{path}");
    }
    app.services.accounts.change(id(&app, "ada").await, AccountAct::Delete, false).await.unwrap();
    assert_eq!(listed(&boss.get("/admin/groups/staff").await), ["bea", "eve"], "who is deleted is in none");
}
