//! `[brand]`: on pages, at the hosts of applications and in messages, from when it is saved.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::gate::{Visitor, behind};
use crate::support::app::{Answer, Client, Store, TestApp};

pub const NAME: &str = "Söhne & <b>Töchter</b>";
const ESCAPED: &str = "Söhne &#38; &#60;b&#62;Töchter&#60;/b&#62;";

pub fn logo(width: usize) -> Vec<u8> {
    let pixels = vec![99_u8; width * 20];
    lodepng::encode_memory(&pixels, width, 20, lodepng::ColorType::GREY, 8).unwrap()
}

pub fn brand(logo: &[u8]) -> String {
    let logo = STANDARD.encode(logo);
    format!(
        "[brand]\nname = '{NAME}'\nlogo = '{logo}'\ncolour = '#7a1f3d'\nsupport = 'https://help.example/?a&b'\n"
    )
}

/// The first address of our own on a page that begins so.
fn address(page: &Answer, begin: &str) -> String {
    let at = page.text.find(begin).unwrap_or_else(|| panic!("no {begin} in {}", page.text));
    page.text[at..].split('"').next().unwrap().to_owned()
}

async fn until_sign_in_says(client: &Client, told: &str) -> Answer {
    for _ in 0..1_000 {
        let page = client.get("/login").await;
        if page.text.contains(told) {
            return page;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // the file is read four times a second
    }
    panic!("the sign-in page never says {told}");
}

#[tokio::test]
async fn a_brand_is_on_pages_from_when_it_is_saved_to_when_it_is_gone() {
    let app = TestApp::start(Store::Memory).await;
    let client = app.client();
    let page = client.get("/login").await;
    assert!(page.text.contains(" · Gatehouse</title>") && page.text.contains("<span>Gatehouse</span>"));
    assert!(!page.text.contains("/static/brand") && !page.text.contains("Get help"), "{}", page.text);
    assert_eq!(client.get("/static/logo.0123456789.png").await.status, 404);

    std::fs::write(app.file(), brand(&logo(20))).unwrap();
    let page = until_sign_in_says(&client, &format!(" · {ESCAPED}</title>")).await;
    assert!(page.text.contains(&format!("<span>{ESCAPED}</span>")) && !page.text.contains("Gatehouse"));
    assert!(page.text.contains("<a href=\"https://help.example/?a&#38;b\">Get help</a>"), "{}", page.text);
    let (of_logo, light) = (address(&page, "/static/logo."), address(&page, "/static/brand."));
    let dark = address(&page, "/static/brand-dark.");
    for (path, kind, told) in [
        (&of_logo, "image/png", None),
        (&light, "text/css; charset=utf-8", Some("--pine: #7a1f3d;")),
        (&dark, "text/css; charset=utf-8", Some("--pine: #")),
    ] {
        let file = client.get(path).await;
        let header = |name| file.header(name);
        assert_eq!(
            (file.status, header("content-type"), header("x-content-type-options")),
            (200, kind, "nosniff")
        );
        assert_eq!(header("cache-control"), "public, max-age=31536000, immutable");
        assert!(told.is_none_or(|told| file.text.contains(told)), "{}", file.text);
    }
    let sent = client.http.get(format!("{}{of_logo}", app.url)).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(&*sent, &logo(20)[..]);
    // A page of another instance.
    let other = client.get("/static/brand.0123456789.css").await;
    assert_eq!((other.status, other.header("cache-control")), (200, "no-cache"));
    assert!(client.get("/nothing-here").await.text.contains(ESCAPED), "pages that say what is wrong, too");

    // A mistake changes nothing, and a logo with the name in it stands alone.
    std::fs::write(app.file(), format!("{}more = 1", brand(&logo(90)))).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(address(&client.get("/login").await, "/static/logo."), of_logo);
    std::fs::write(app.file(), brand(&logo(90))).unwrap();
    let page = until_sign_in_says(&client, "width=\"144\" height=\"32\" alt=\"\"").await;
    assert!(page.text.contains(&format!("<span class=\"hidden\">{ESCAPED}</span>")), "{}", page.text);
    assert_ne!(address(&page, "/static/logo."), of_logo);
    std::fs::write(app.file(), "# Nothing is set here.\n").unwrap();
    until_sign_in_says(&client, " · Gatehouse</title>").await;
    assert_eq!(client.get(&of_logo).await.status, 404);
}

#[tokio::test]
async fn pages_at_the_host_of_an_application_carry_it() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    let apps = std::fs::read_to_string(app.file()).unwrap();
    std::fs::write(app.file(), format!("{}{apps}", brand(&logo(20)))).unwrap();
    until_sign_in_says(&app.client(), ESCAPED).await;
    let mut visitor = Visitor::of(&app);
    let page = visitor.open("https://wiki.example/.gatehouse/logout").await;
    assert!(page.text.contains(ESCAPED) && page.text.contains("Get help"), "{}", page.text);
    for begin in ["/.gatehouse/static/logo.", "/.gatehouse/static/brand.", "/.gatehouse/static/brand-dark."] {
        let file = visitor.open(&format!("https://wiki.example{}", address(&page, begin))).await;
        assert_eq!((file.status, file.header("cache-control").contains("immutable")), (200, true), "{begin}");
    }
    let elsewhere = visitor.open("https://wiki.example/static/brand.0123456789.css").await;
    assert_eq!(elsewhere.status, 404, "nothing else of ours is at that host");
}

#[tokio::test]
async fn messages_say_its_name() {
    let app = TestApp::with(Store::Memory, "[brand]\nname = '晴空'").await;
    let client = app.client();
    client.code("+8613800138000", "login").await;
    let outbox = client.get("/dev/outbox.json?phone=%2B8613800138000").await;
    assert!(outbox.text.contains("晴空") && !outbox.text.contains("Gatehouse"), "{}", outbox.text);
}
