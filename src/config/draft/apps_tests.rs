use super::tests::{edit, source};
use super::*;
use crate::config::{Apps, Server};

const DOCUMENT: &str = r#"# Ours, since 2024.
[server]
public_url = "https://id.example"
trusted_proxies = ["127.0.0.1/32"]

# Everybody reads it.
[[apps]] # notes
name = "wiki"
hosts = ["wiki.example"]  # one
who = ["group:staff", "alice"]

# Only on call.
[[apps.parts]]
path = "/admin/*"
who = ["group:on-call"]

# token = "first-secret"

# Sold in May.
[[apps]]
name = "shop"
hosts = ["shop.example"]

# The store.
[store]
url = "memory:"
# The end.
"#;

fn apps_of(document: &str) -> String {
    LiveSection::Apps.text_in(document)
}

fn put_with(document: &str, draft: &str, variables: &[(&str, &str)]) -> Result<String, SaveError> {
    edit(document, &Edit::Section(LiveSection::Apps, Draft::Toml(draft.to_owned())), variables)
}

fn put(document: &str, draft: &str) -> Result<String, SaveError> {
    put_with(document, draft, &[])
}

fn put_json(document: &str, draft: &serde_json::Value) -> Result<String, SaveError> {
    edit(document, &Edit::Section(LiveSection::Apps, Draft::Json(draft.clone())), &[])
}

fn apps(document: &str) -> Apps {
    source(&[]).read(source(&[]).tree(document).unwrap()).unwrap().live.apps
}

fn drafted(draft: &str) -> Apps {
    apps(&put("", draft).unwrap())
}

fn app(name: &str) -> String {
    format!("[[apps]]\nname = \"{name}\"\nhosts = [\"{name}.example\"]\n")
}

#[test]
fn what_is_shown_of_the_applications_and_sent_back_changes_no_byte() {
    let example = include_str!("../../../gatehouse.example.toml");
    let theirs = format!("\u{feff}{}", DOCUMENT.replace('\n', "\r\n"));
    for document in [DOCUMENT, "", example, &theirs, &DOCUMENT[..DOCUMENT.find("# The store").unwrap()]] {
        let shown = apps_of(document);
        assert_eq!(put(document, &shown).unwrap(), document);
        assert_eq!(put(document, &shown.replace('\n', "\r\n")).unwrap(), document);
    }
}

#[test]
fn what_was_commented_out_around_the_applications_is_shown_to_nobody_and_stays() {
    let shown = apps_of(DOCUMENT);
    let expected = DOCUMENT.split("\n\n# Everybody").nth(1).unwrap().split("\n# The store").next().unwrap();
    let expected = format!("# Everybody{expected}").replace("# token = \"first-secret\"\n\n", "");
    assert_eq!(shown, expected);
    let changed = put(DOCUMENT, &shown.replace("\"alice\"", "\"bob\"")).unwrap();
    assert_eq!(changed, DOCUMENT.replace("\"alice\"", "\"bob\""));
}

#[test]
fn hidden_text_stays_whatever_comes_and_goes_around_it() {
    let shown = apps_of(DOCUMENT);
    let (wiki, shop) = shown.split_once("\n# Sold").unwrap();
    for draft in [
        String::new(),
        wiki.to_owned(),
        format!("# Sold{shop}"),
        format!("{}\n{shown}", app("first")),
        shown.replace("\"shop\"", "\"other\""),
        "apps = []\n".to_owned(),
        "apps = [{ name = \"a\", hosts = [\"a.example\"] }]\n".to_owned(),
    ] {
        let out = put(DOCUMENT, &draft).unwrap();
        for kept in
            ["# token = \"first-secret\"\n\n", "# Ours, since 2024.\n", "# The store.\n[store]", "# The end."]
        {
            assert!(out.contains(kept), "{kept}: {out}");
        }
        assert!(!apps_of(&out).contains("secret"), "{out}");
        assert_eq!(apps(&out), drafted(&draft));
        assert_eq!(put(&out, &apps_of(&out)).unwrap(), out);
    }
}

#[test]
fn the_first_applications_come_after_everything_else_and_the_last_leave_nothing() {
    let bare = "# Ours.\n[server]\nworkers = 2\n# [store]\n# url = \"redis://:secret@here\"\n";
    let out = put(bare, &app("wiki")).unwrap();
    assert_eq!(
        out,
        "# Ours.\n[server]\nworkers = 2\n\n[[apps]]\nname = \"wiki\"\nhosts = [\"wiki.example\"]\n\n# [store]\n# url = \"redis://:secret@here\"\n"
    );
    assert_eq!(apps_of(&out), app("wiki"));
    assert_eq!(put("", &app("wiki")).unwrap(), app("wiki"));
    let none = put(&out, "").unwrap();
    assert!(!none.contains("apps") && none.starts_with("# Ours.\n[server]\nworkers = 2\n"), "{none}");
    assert!(
        !put(&app("wiki"), "").unwrap().contains("[[apps]]"),
        "an empty document is one that is being written"
    );
}

#[test]
fn applications_of_any_shape_are_replaced() {
    for (before, above) in [
        (
            "# above\napps = [{ name = \"a\", hosts = [\"a.example\"] }] # behind\n[server]\nworkers = 2\n",
            "# above",
        ),
        ("apps = []\n", ""),
        (
            "[[apps]]\nname = \"a\"\nhosts = [\"a.example\"]\n[server]\nworkers = 2\n[[apps]]\nname = \"b\"\nhosts = [\"b.example\"]\n",
            "workers = 2",
        ),
    ] {
        for draft in [
            format!("{}[[apps.parts]]\npath = \"/x\"\nwho = []\n\n{}", app("wiki"), app("shop")),
            "apps = [{ name = \"c\", hosts = [\"c.example\"] }]\n".to_owned(),
            String::new(),
        ] {
            let out = put(before, &draft).unwrap();
            assert!(out.contains(above), "{out}");
            assert_eq!(apps(&out), drafted(&draft), "{out}");
        }
    }
}

#[test]
fn mistakes_of_applications_are_told_at_their_field_and_line() {
    for (draft, field, line, reason) in [
        ("[[apps]]\nname = \"a\"\n\nhosts = [\"A.example\"]\n", "apps[0].hosts[0]", 4, "has capital letters"),
        ("[[apps]]\nname = \"a\"\nhosts = [\"id.example\"]\n", "apps[0].hosts[0]", 3, "server.public_url"),
        ("[[apps]]\nhosts = [\"a.example\"]\n", "apps[0].name", 1, "is missing"),
        (
            "[[apps]]\nname = \"a\"\n[apps.oidc]\nredirect_uris = [\"https://a.example/*\"]\n",
            "apps[0].oidc.redirect_uris[0]",
            4,
            "wildcard",
        ),
        (
            "[[apps]]\nname = \"a\"\nhosts = [\"a.example\"]\nwhom = []\n",
            "apps[0].whom",
            4,
            "is not a setting",
        ),
        ("[[apps]]\nname = \"a\"\nhosts = [\"a.example\"]\n[server]\nworkers = 2\n", "server", 4, "apps"),
        ("[[apps]\n", "", 1, ""),
        ("\napps = 3\n", "apps", 2, "list"),
    ] {
        let Err(SaveError::Invalid(errors)) = put(DOCUMENT, draft) else { panic!("{draft}") };
        assert_eq!((errors[0].field.as_str(), errors[0].line), (field, Some(line)), "{draft}");
        assert!(errors[0].message.contains(reason), "{draft}: {errors:?}");
    }
    let both = "[[apps]]\nname = \"\"\nhosts = [\"*\"]\nwho = [\"Ada\"]\n";
    let Err(SaveError::Invalid(errors)) = put(DOCUMENT, both) else { panic!() };
    assert_eq!(errors.len(), 3, "all at once: {errors:?}");
}

#[test]
fn applications_in_json_that_are_in_force_change_no_byte_and_others_replace_them() {
    let part = json!({ "path": "/admin/*", "who": ["group:on-call"] });
    let wiki = json!({
        "name": "wiki", "hosts": ["wiki.example"], "who": ["group:staff", "alice"], "parts": [part],
    });
    let same = json!([wiki, { "name": "shop", "hosts": ["shop.example"], "who": [] }]);
    assert_eq!(put_json(DOCUMENT, &same).unwrap(), DOCUMENT);
    let theirs = format!("\u{feff}{}", DOCUMENT.replace('\n', "\r\n"));
    assert_eq!(put_json(&theirs, &same).unwrap(), theirs);
    let fewer = put_json(DOCUMENT, &json!([wiki])).unwrap();
    let (before, now) = (apps(DOCUMENT), apps(&fewer));
    assert_eq!(now.all(), &before.all()[..1]);
    assert!(fewer.contains("first-secret") && !fewer.contains("shop.example"), "{fewer}");
    assert_eq!(put_json(DOCUMENT, &json!([])).map(|out| apps(&out).is_empty()), Ok(true));
    // A list that means the same with a mistake elsewhere in it is not taken for what is in force.
    let broken = DOCUMENT.replace("\"shop.example\"", "\"SHOP\"");
    assert_eq!(apps(&put_json(&broken, &json!([wiki])).unwrap()), now);
}

#[test]
fn mistakes_of_applications_in_json_are_told_at_their_field_without_a_line() {
    for (draft, field, reason) in [
        (json!([{ "name": "a", "hosts": ["A.example"] }]), "apps[0].hosts[0]", "has capital letters"),
        (json!([{ "name": "a", "hosts": ["id.example"] }]), "apps[0].hosts[0]", "server.public_url"),
        (json!([{ "name": null, "hosts": ["a.example"] }]), "apps[0].name", "null"),
        (json!([{ "name": "a", "hosts": ["a.example"], "who": null }]), "apps[0].who", "null"),
        (json!([null]), "apps[0]", "null"),
        (
            json!([{ "name": "a", "hosts": ["a.example"], "server": {} }]),
            "apps[0].server",
            "is not a setting",
        ),
        (json!({ "name": "a" }), "apps", "list"),
        (json!("[[apps]]"), "apps", "list"),
    ] {
        let Err(SaveError::Invalid(errors)) = put_json(DOCUMENT, &draft) else { panic!("{draft}") };
        assert_eq!((errors[0].field.as_str(), errors[0].line), (field, None), "{draft}");
        assert!(errors[0].message.contains(reason), "{draft}: {errors:?}");
    }
}

const CLIENT: &str =
    "[[apps]]\nname = \"dash\"\n\n# Since May.\n[apps.oidc]\nredirect_uris = [\"https://a.example/cb\"]\n";

#[test]
fn a_client_is_shown_written_and_taken_away_with_its_comments() {
    let draft = format!("{CLIENT}\n{}", apps_of(DOCUMENT));
    let out = put(DOCUMENT, &draft).unwrap();
    assert_eq!(apps_of(&out), draft);
    assert_eq!(apps(&out).client("dash").map(|(app, _)| app.name.clone()), Some("dash".to_owned()));
    assert_eq!(put(&out, &apps_of(DOCUMENT)).unwrap(), DOCUMENT);
    let listed: Vec<_> = apps(&out).all().iter().map(|app| json!(**app)).collect();
    assert_eq!(put_json(&out, &json!(listed)).unwrap(), out, "as the API shows it");
    let diff = line_diff(&apps_of(DOCUMENT), &apps_of(&out)).unified_diff().to_string();
    assert!(diff.contains("+redirect_uris = [\"https://a.example/cb\"]"), "{diff}");
}

#[test]
fn a_draft_with_a_secret_that_is_not_there_is_refused_by_its_line_and_the_document_is_not() {
    let draft = format!("{CLIENT}secret = \"env:GATEHOUSE_TEST_NOT_SET\"\n");
    let Err(SaveError::Invalid(errors)) = put("", &draft) else { panic!("{draft}") };
    let [DraftError { field, message, line }] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!((field.as_str(), *line), ("apps[0].oidc.secret", Some(7)));
    assert!(message.contains("GATEHOUSE_TEST_NOT_SET, which is not set"), "{message}");
    // Elsewhere it may be set, and answers to an attack have to be saved all the same.
    let limits = Draft::Toml("[limits.login-account]\nrules = []\n".to_owned());
    let merged = edit(&draft, &Edit::Section(LiveSection::Limits, limits), &[]).unwrap();
    assert!(merged.contains("GATEHOUSE_TEST_NOT_SET") && apps(&merged).client("dash").is_some());
    let mended = draft.replace("secret = \"env:GATEHOUSE_TEST_NOT_SET\"\n", "");
    assert_eq!(put(&draft, &mended).unwrap(), mended);
}

#[test]
fn applications_that_a_variable_sets_are_refused_unless_they_stay_as_they_are_shown() {
    let variables = [("GATEHOUSE__APPS", "[{ name = \"env\", hosts = [\"env.example\"] }]")];
    for same in [apps_of(DOCUMENT), app("env")] {
        assert_eq!(put_with(DOCUMENT, &same, &variables).unwrap(), DOCUMENT);
    }
    let Err(SaveError::Invalid(errors)) = put_with(DOCUMENT, &app("other"), &variables) else { panic!() };
    assert!(errors[0].field == "apps" && errors[0].message.contains("environment variable"), "{errors:?}");
    assert!(Overridden::by(source(&variables).environment()).apps() && !Overridden::by(&[]).apps());
}

#[test]
fn a_mistake_elsewhere_in_the_document_is_not_that_of_the_applications() {
    let broken = format!("{DOCUMENT}[password]\nqueue = 0\n");
    let refused = put(&broken, &app("wiki")).unwrap_err();
    assert!(
        matches!(&refused, SaveError::Backend(reason) if reason.contains("password.queue")),
        "{refused:?}"
    );
    let broken = DOCUMENT.replace("\"shop.example\"", "\"SHOP\"");
    put(&broken, &app("wiki")).expect("the draft mends it");
    assert_eq!(Server::default().public_url.host_str(), Some("127.0.0.1"));
}
