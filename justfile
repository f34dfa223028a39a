# Short names for what is done often; `just` alone lists them.

_list:
    @just --list --unsorted

# What CI runs: format, lints, licences, tests
check:
    scripts/test

# Some tests: just test captcha
test *filter:
    cargo test {{ filter }}

# Rewrite the code in the house format
fmt:
    cargo fmt

lint:
    cargo clippy --all-targets --all-features -- -D warnings

# Licences, bans and sources of every dependency (needs cargo-deny)
deny:
    cargo deny check licenses bans sources

# The Debian package, under target/debian (needs cargo-deb)
deb:
    cargo deb --locked

# What the binary is made of, as CycloneDX: gatehouse_bin.cdx.json (needs cargo-cyclonedx)
sbom:
    cargo cyclonedx --format json --spec-version 1.5 --describe binaries

# The app on http://127.0.0.1:8080 with the built-in defaults
run *args:
    cargo run -- {{ args }}

# The compose file as Docker understands it; wants a .env (see .env.example)
compose-config:
    docker compose config --quiet
