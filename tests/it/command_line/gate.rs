//! `gatehouse gate print`: the file for a proxy, and what is said where there can be none.

use gatehouse::gate::ProxyFile;

use crate::support::process::{Ended, Home};

const CONFIG: &str = "[server]\ntrusted_proxies = ['127.0.0.1']\n\
    [[apps]]\nname = 'wiki'\nhosts = ['wiki.example']\nwho = ['everyone']\n\
    [[apps]]\nname = 'photo album'\nhosts = ['photos.example:8443']\nwho = ['everyone']\n";

fn home(config: &str) -> Home {
    let mut home = Home::new();
    home.set("GATEHOUSE__SERVER__PUBLIC_URL", "https://id.example");
    home.write("gatehouse.toml", config);
    home
}

fn print(home: &Home, more: &[&str]) -> Ended {
    home.run(&[&["gate", "print"], more].concat())
}

#[test]
fn a_file_for_each_proxy_is_printed_with_the_names_of_the_configuration() {
    let home = home(CONFIG);
    for file in ProxyFile::ALL {
        let ended = print(&home, &[file.into_str()]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{file:?}");
        let text = &ended.stdout;
        assert!(text.contains(&format!("127.0.0.1:{}", home.port)), "{text}");
        if file != ProxyFile::HaproxyLua {
            assert!(text.contains("wiki.example") && text.contains("photos.example"), "{text}");
            assert!(text.contains("id.example"), "its own host, too: {text}");
        }
    }
    let one = print(&home, &["caddy", "--app", "photo album"]).stdout;
    assert!(one.contains("\nphotos.example:8443 {\n") && !one.contains("wiki"), "{one}");
}

#[test]
fn where_there_can_be_no_file_the_reason_says_what_would_be_right() {
    let untrusted = CONFIG.replace("trusted_proxies = ['127.0.0.1']\n", "");
    let none = CONFIG.split("[[apps]]").next().unwrap();
    let address = CONFIG.replace("wiki.example", "203.0.113.7:81");
    for (config, more, told) in [
        (CONFIG, &["ngnix"][..], "nginx"),
        (
            CONFIG,
            &["nginx", "--app", "Wiki"],
            "app: \"Wiki\" is not the name of an application; did you mean \"wiki\"?",
        ),
        (CONFIG, &["nginx", "--app", "zzz"], "there are: wiki, photo album"),
        (none, &["nginx"], "apps: is empty; name an application, its hosts and who may use it in [[apps]]"),
        (
            &untrusted,
            &["nginx"],
            "server.trusted_proxies: lacks the address of the proxy, so that it would get no answer; add \"127.0.0.1/32\"",
        ),
        (&address, &["nginx"], "apps.hosts: \"203.0.113.7:81\" is an address"),
        ("[[apps]]\nname = 'wiki'\n", &["nginx"], "hosts"),
    ] {
        let ended = print(&home(config), more);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{more:?}");
        assert!(ended.stderr.contains(told), "{more:?}: {}", ended.stderr);
    }
}
