//! The limiter as a library: what a program that uses it has to build.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// 137 now; with the server some 420.
const MOST: usize = 142;

/// Names of the crates that a choice of features requires.
fn built_with(features: &str) -> BTreeSet<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let told = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(["--no-default-features", "--features", features, "--manifest-path"])
        .arg(manifest)
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let lines = String::from_utf8(told.stdout).unwrap();
    lines.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn the_limiter_alone_brings_nothing_of_the_application() {
    let heavy = [
        "sqlx",
        "argon2",
        "rlibphonenumber",
        "lodepng",
        "reqwest",
        "rustls",
        "clap",
        "askama",
        "toml",
        "zxcvbn",
    ];
    for features in ["", "redis", "actix", "redis,actix"] {
        let built = built_with(features);
        let found: Vec<_> = heavy.iter().filter(|name| built.contains(**name)).collect();
        assert!(found.is_empty(), "{features:?} brings {found:?}");
        assert_eq!(built.contains("redis"), features.contains("redis"), "{features:?}");
        assert_eq!(built.contains("actix-web"), features.contains("actix"), "{features:?}");
    }
}

/// Each makes a build longer: add one deliberately.
#[test]
fn as_a_middleware_on_redis_it_needs_so_many_crates() {
    let built = built_with("redis,actix");
    assert!(built.len() <= MOST, "{} crates: {built:?}", built.len());
}
