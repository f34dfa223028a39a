//! Files that an operator named, and what else may be at their paths.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;

use crate::support::process::Home;

const FIVE: &str = "[limits.login-account]\nrules = [{ max = 5, window = \"1m\" }]\n";
const SIX: &str = "[limits.login-account]\nrules = [{ max = 6, window = \"1m\" }]\n";

fn make_fifo(home: &Home, name: &str) {
    assert!(Command::new("mkfifo").arg(home.path(name)).status().unwrap().success());
}

type Put = fn(&Home);

#[tokio::test]
async fn whatever_stands_in_place_of_the_configuration_holds_nothing_up() {
    let home = Home::new();
    home.write("gatehouse.toml", FIVE);
    let mut running = home.start(&["serve"]).await;
    let mut listener = None;
    let puts: [(&str, Put); 4] = [
        ("a FIFO", |home| make_fifo(home, "other")),
        ("a directory", |home| std::fs::create_dir(home.path("other")).unwrap()),
        ("a device", |home| symlink("/dev/zero", home.path("other")).unwrap()),
        ("a socket", |_| {}),
    ];
    for (round, (kind, put)) in puts.into_iter().enumerate() {
        std::fs::remove_file(home.path("gatehouse.toml")).unwrap();
        put(&home);
        if kind == "a socket" {
            listener = Some(UnixListener::bind(home.path("other")).unwrap());
        }
        std::fs::rename(home.path("other"), home.path("gatehouse.toml")).unwrap();
        let told = format!("gatehouse.toml: cannot be read: it is {kind}; it must be a regular file");
        running.until(kind, |running| running.stderr().contains(&told)).await;
        match kind {
            "a directory" => std::fs::remove_dir(home.path("gatehouse.toml")).unwrap(),
            _ => std::fs::remove_file(home.path("gatehouse.toml")).unwrap(),
        }
        home.replace("gatehouse.toml", if round % 2 == 0 { SIX } else { FIVE });
        let applied = |running: &crate::support::process::Running| {
            running.stderr().matches("configuration applied").count() > round
        };
        running.until("it is followed again", applied).await;
    }
    drop(listener);
    std::fs::remove_file(home.path("gatehouse.toml")).unwrap();
    make_fifo(&home, "gatehouse.toml");
    running.signal("HUP");
    running.signal("TERM");
    assert_eq!(running.ended().await.code(), Some(0));
}

#[test]
fn no_other_file_that_is_named_is_waited_for_either() {
    let home = Home::new();
    make_fifo(&home, "fifo");
    for (text, told) in [
        ("[secrets]\nkey_file = \"fifo\"\n", "fifo"),
        (
            "[sms]\ngateway = \"http\"\n[sms.http]\nurl = \"https://gateway.example/\"\nheaders = { key = \"file:fifo\" }\n",
            "fifo",
        ),
    ] {
        home.write("gatehouse.toml", text);
        let ended = home.run(&["serve"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(told) && ended.stderr.contains("it is a FIFO"), "{}", ended.stderr);
    }
    let ended = home.run(&["check-config", "fifo"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.starts_with("fifo: cannot be read: it is a FIFO"), "{}", ended.stderr);
}
