//! Rebuilds when a migration is added: the folder is embedded in the binary.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
