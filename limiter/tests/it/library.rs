//! The limiter as a crate of its own: what a program that uses it has to build, and that it stands alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// With Redis and the middleware; the application has some 420.
const MOST: usize = 142;

/// Names of the crates that a choice of features requires.
fn built_with(features: &str) -> BTreeSet<String> {
    let told = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(["--features", features, "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let lines = String::from_utf8(told.stdout).unwrap();
    lines.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn the_limiter_alone_brings_nothing_of_the_application() {
    let heavy = [
        "gatehouse",
        "sqlx",
        "argon2",
        "rlibphonenumber",
        "lodepng",
        "reqwest",
        "clap",
        "askama",
        "toml",
        "zxcvbn",
    ];
    for features in ["", "redis", "actix", "redis,actix"] {
        let built = built_with(features);
        let found: Vec<_> = heavy.iter().filter(|name| built.contains(**name)).collect();
        assert!(found.is_empty(), "{features:?} brings {found:?}");
        assert!(!built.contains("rustls"), "{features:?} brings TLS");
        assert_eq!(built.contains("redis"), features.contains("redis"), "{features:?}");
        assert_eq!(built.contains("actix-web"), features.contains("actix"), "{features:?}");
    }
    assert!(built_with("redis-tls").contains("rustls"));
}

/// Each makes a build longer: add one deliberately.
#[test]
fn as_a_middleware_on_redis_it_needs_so_many_crates() {
    let built = built_with("redis,actix");
    assert!(built.len() <= MOST, "{} crates: {built:?}", built.len());
}

/// What is published is built from the package's own folder: the scripts are there by a link.
#[test]
fn the_package_carries_its_scripts() {
    let told = Command::new(env!("CARGO"))
        .args(["package", "--list", "--allow-dirty", "--offline", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let listed = String::from_utf8(told.stdout).unwrap();
    for script in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("lua")).unwrap() {
        let name = script.unwrap().file_name().into_string().unwrap();
        assert!(listed.lines().any(|line| line == format!("lua/{name}")), "{name}: {listed}");
    }
}
