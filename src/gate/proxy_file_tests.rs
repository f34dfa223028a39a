use super::*;

const APPS: &str = "[[apps]]\nname = 'wiki'\nhosts = ['wiki.example', 'w.example:8443']\n\
                    [[apps]]\nname = 'files'\nhosts = ['files.test']\n";

const CLIENT: &str = "[[apps]]\nname = 'dash'\n[apps.oidc]\nredirect_uris = ['https://dash.example/cb']\n";

fn printed(server: &str, apps: &str, file: ProxyFile, only: Option<&str>) -> Result<String, ProxyFileError> {
    let text = format!("[server]\n{server}\n{apps}");
    let config = crate::config::parse("gatehouse.toml".as_ref(), &text, &[]).unwrap();
    file.print(&config.settings.server, &config.live.apps, only)
}

const PUBLIC: &str = "public_url = 'https://id.example'\ntrusted_proxies = ['127.0.0.1']";

#[test]
fn each_file_has_the_names_of_the_installation_and_no_others() {
    for file in ProxyFile::ALL {
        let all = printed(PUBLIC, APPS, file, None).unwrap();
        assert!(
            all.contains("127.0.0.1:8080") && all.ends_with('\n') && !all.ends_with("\n\n"),
            "{file:?}: {all}"
        );
        assert!(!all.contains("{{") && !all.contains("{%"), "{file:?}: {all}");
        if file == ProxyFile::HaproxyLua {
            continue;
        }
        let marks = ["id.example", "wiki.example", "w.example", "8443", "files.test", "/.gatehouse/"];
        for mark in marks.into_iter().filter(|mark| (file, *mark) != (ProxyFile::Traefik, "8443")) {
            assert!(all.contains(mark), "{mark} in {file:?}: {all}");
        }
        let one = printed(PUBLIC, APPS, file, Some("files")).unwrap();
        assert!(one.contains("id.example") && one.contains("files.test") && !one.contains("wiki"), "{one}");
        let untried = matches!(file, ProxyFile::Traefik | ProxyFile::Envoy);
        assert_eq!(one.starts_with("# Not tried with "), untried, "{one}");
    }
}

#[test]
fn gatehouse_is_asked_where_it_listens() {
    for (bind, reached, trusted) in [
        ("0.0.0.0:9000", "127.0.0.1:9000", "10.0.0.0/8"),
        ("[::]:9000", "[::1]:9000", "10.0.0.0/8"),
        ("[::1]:9000", "[::1]:9000", "::1"),
        ("127.0.0.1:9000", "127.0.0.1:9000", "127.0.0.0/8"),
    ] {
        let server =
            format!("bind = '{bind}'\npublic_url = 'https://id.example'\ntrusted_proxies = ['{trusted}']");
        let apps = format!("[sms]\ngateway = 'none'\n{APPS}");
        for file in ProxyFile::ALL {
            assert!(printed(&server, &apps, file, None).unwrap().contains(reached), "{bind} {file:?}");
        }
    }
}

#[test]
fn where_gatehouse_itself_is_public_no_proxy_listens() {
    let trusted = "trusted_proxies = ['127.0.0.1']";
    for url in ["", "public_url = 'http://localhost:8080'"] {
        for file in ProxyFile::ALL.into_iter().filter(|file| *file != ProxyFile::HaproxyLua) {
            let text = printed(&format!("{trusted}\n{url}"), APPS, file, None).unwrap();
            assert!(text.contains("# Gatehouse itself answers at http://"), "{file:?}: {text}");
            assert!(!text.contains("ssl") && !text.contains("tls") && !text.contains("https://"), "{text}");
        }
    }
    let nginx =
        printed(&format!("{trusted}\npublic_url = 'http://id.example'"), APPS, ProxyFile::Nginx, None);
    assert!(nginx.unwrap().contains("listen 80;\n    server_name id.example;"));
}

#[test]
fn what_is_missing_is_named_with_what_would_be_right() {
    let said = |server: &str, apps: &str, only| {
        printed(server, apps, ProxyFile::Nginx, only).unwrap_err().to_string()
    };
    let both = format!("{APPS}{CLIENT}");
    assert_eq!(printed(PUBLIC, &both, ProxyFile::Nginx, None), printed(PUBLIC, APPS, ProxyFile::Nginx, None));
    for (server, apps, only, told) in [
        (PUBLIC, "", None, "apps: is empty; name an application"),
        (PUBLIC, "", Some("wiki"), "apps: is empty"),
        (
            PUBLIC,
            APPS,
            Some("wikki"),
            "app: \"wikki\" is not the name of an application; did you mean \"wiki\"?",
        ),
        (PUBLIC, APPS, Some("zzz"), "there are: wiki, files"),
        (
            "",
            APPS,
            None,
            "server.trusted_proxies: lacks the address of the proxy, so that it would get no answer; add \"127.0.0.1/32\"",
        ),
        ("trusted_proxies = ['10.0.0.1']", APPS, None, "add \"127.0.0.1/32\""),
        (PUBLIC, CLIENT, None, "apps: \"dash\" has no hosts"),
        (PUBLIC, &both, Some("dash"), "apps: \"dash\" has no hosts"),
        (
            PUBLIC,
            "[[apps]]\nname = 'a'\nhosts = ['[2001:db8::1]']\n",
            None,
            "apps.hosts: \"[2001:db8::1]\" is an address",
        ),
        (
            PUBLIC,
            "[[apps]]\nname = 'a'\nhosts = ['203.0.113.7:81']\n",
            None,
            "apps.hosts: \"203.0.113.7:81\" is an address",
        ),
    ] {
        let error = said(server, apps, only);
        assert!(error.contains(told), "{error}");
    }
}
