//! Lists the files of migrations/ for src/db.rs, which embeds them.

use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=migrations");
    let names =
        fs::read_dir("migrations").unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(".sql")?.to_owned())).collect();
    names.sort();
    // Relative to the tree that is compiled: trees that share a target folder share this list.
    let text =
        |name| format!(r#"include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/{name}.sql"))"#);
    let list: String = names.iter().map(|name| format!("({name:?}, {}),\n", text(name))).collect();
    fs::write(format!("{}/migrations.rs", env::var("OUT_DIR").unwrap()), format!("[{list}]")).unwrap();
}
