//! Lists the files of migrations/ for src/db.rs, which embeds them.

use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=migrations");
    let folder = format!("{}/migrations", env::var("CARGO_MANIFEST_DIR").unwrap());
    let names = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(".sql")?.to_owned())).collect();
    names.sort();
    let list =
        names.iter().map(|name| format!("({name:?}, include_str!({:?})),\n", format!("{folder}/{name}.sql")));
    let list: String = list.collect();
    fs::write(format!("{}/migrations.rs", env::var("OUT_DIR").unwrap()), format!("[{list}]")).unwrap();
}
