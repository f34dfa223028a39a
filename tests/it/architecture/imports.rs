//! Which module of `src` uses which, read from the sources; and which use each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

/// From `crate` on: `["sms", "codes"]`; the root is empty.
type Module = Vec<String>;

/// Who uses whom.
pub type Uses = BTreeSet<(Module, Module)>;

/// `sources` are paths below `src`, and texts.
pub fn uses<'a>(sources: impl IntoIterator<Item = (&'a str, &'a str)>) -> Uses {
    let sources = sources.into_iter().map(|(path, text)| (module(path), without_tests(text)));
    let sources: BTreeMap<Module, String> = sources.collect();
    let imports: BTreeMap<_, _> =
        sources.iter().map(|(module, text)| (module, imports(module, text, &sources))).collect();
    let mut uses = Uses::new();
    for (module, text) in &sources {
        let spelt = text.split(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter));
        let spelt = spelt.filter_map(|path| absolute(module, segments(path)));
        for path in imports[module].iter().map(|(_, path)| path.clone()).chain(spelt) {
            uses.insert((module.clone(), owner(path, &sources, &imports)));
        }
    }
    uses.retain(|(from, to)| from != to);
    uses
}

/// The circles within a folder: `sms: codes, sending`. The root is `crate`.
pub fn circles(uses: &Uses) -> Vec<String> {
    let folders: BTreeSet<&[String]> =
        uses.iter().flat_map(|(from, _)| (0..from.len()).map(|end| &from[..end])).collect();
    let mut found = Vec::new();
    for folder in folders {
        let inside = |module: &Module| module.strip_prefix(folder)?.first().cloned();
        let edges = uses.iter().filter_map(|(from, to)| Some((inside(from)?, inside(to)?)));
        let edges: BTreeSet<_> = edges.filter(|(from, to)| from != to).collect();
        let mut left: BTreeSet<_> = edges.iter().map(|(from, _)| from).collect();
        while let Some(first) = left.pop_first() {
            let circle: Vec<_> = reached(first, &edges)
                .into_iter()
                .filter(|other| reached(other, &edges).contains(first))
                .collect();
            left.retain(|module| !circle.contains(module));
            if !circle.is_empty() {
                let name = if folder.is_empty() { "crate".to_owned() } else { folder.join("::") };
                let members: Vec<_> = circle.iter().map(|module| module.as_str()).collect();
                found.push(format!("{name}: {}", members.join(", ")));
            }
        }
    }
    found
}

fn reached<'a>(from: &'a str, edges: &'a BTreeSet<(String, String)>) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        let next = edges.iter().filter(|(from, _)| from == module).map(|(_, to)| to);
        open.extend(next.filter(|to| reached.insert(*to)).map(String::as_str));
    }
    reached
}

fn module(path: &str) -> Module {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').filter(|part| !["lib", "main"].contains(part)).map(str::to_owned).collect()
}

/// Code without comments and without the tests at its end.
fn without_tests(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The names that the `use` statements of a module import, with their paths.
fn imports(module: &Module, text: &str, modules: &BTreeMap<Module, String>) -> Vec<(String, Module)> {
    let statements = text.split(';').filter_map(|statement| {
        let start = statement.rfind("use ").filter(|start| {
            let line = statement[..*start].rsplit('\n').next().unwrap_or_default().trim();
            line.is_empty() || line.starts_with("pub")
        })?;
        Some(&statement[start + 4..])
    });
    let named = statements.flat_map(expand).filter_map(|path| {
        let (path, name) = path.split_once(" as ").unwrap_or((&path, path.rsplit("::").next()?));
        let mut path = segments(path);
        if modules.contains_key(&[&module[..], &path[..1]].concat()) {
            path.insert(0, "self".to_owned());
        }
        Some((name.to_owned(), absolute(module, path)?))
    });
    named.collect()
}

/// Each path of a tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let inside = rest.strip_suffix('}').unwrap_or(rest);
    let mut depth = 0;
    let parts = inside.split(|letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        letter == ',' && depth == 0
    });
    let parts = parts.filter(|part| !part.trim().is_empty());
    parts.flat_map(expand).map(|part| format!("{prefix}{part}")).collect()
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").filter(|part| !part.is_empty() && *part != "*").map(str::to_owned).collect()
}

/// The path from the root; None if it belongs to another crate.
fn absolute(module: &Module, path: Vec<String>) -> Option<Module> {
    let mut at = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.clone(),
        _ => return None,
    };
    for part in path {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => drop(at.pop()),
            _ => at.push(part),
        }
    }
    Some(at)
}

/// The module that defines an item, through re-exports.
fn owner(
    path: Module,
    modules: &BTreeMap<Module, String>,
    imports: &BTreeMap<&Module, Vec<(String, Module)>>,
) -> Module {
    let inside = (0..=path.len()).rev().find(|end| modules.contains_key(&path[..*end])).unwrap_or_default();
    let (module, rest) = (path[..inside].to_vec(), &path[inside..]);
    let Some(name) = rest.first() else { return module };
    let handed_on = imports.get(&module).into_iter().flatten().find(|(other, _)| other == name);
    match handed_on {
        Some((_, target)) if *target != path => owner(target.clone(), modules, imports),
        _ => module,
    }
}
