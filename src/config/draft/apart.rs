//! Comments that touch the limits, told apart from those that an empty line keeps away from them.

use toml_edit::{DocumentMut, Item};

use super::merge::{tables, walk};

/// Takes from the limits what stands above them and is set apart by an empty line, wherever they follow something
/// that is none of theirs; gives it back, as it stands above the first of them.
pub(super) fn take_apart(rest: &DocumentMut, limits: &mut Item) -> String {
    let theirs: Vec<isize> = tables(rest.as_item()).into_iter().map(|(at, _)| at).collect();
    let ours: Vec<isize> = tables(limits).into_iter().map(|(at, _)| at).collect();
    let before = |all: &[isize], at: isize| all.iter().copied().filter(|other| *other < at).max();
    let mut apart: Vec<(isize, String)> = Vec::new();
    walk(limits, &mut |table| {
        let Some(at) = table.position().filter(|at| ours.contains(at)) else { return };
        let follows_ours = before(&ours, at).is_some_and(|own| Some(own) > before(&theirs, at));
        let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
        let (above, own) = above(prefix);
        if !follows_ours && !above.is_empty() {
            let gap = if before(&ours, at).is_some() { "\n" } else { "" };
            let (above, own) = (above.to_owned(), format!("{gap}{own}"));
            apart.push((at, above));
            table.decor_mut().set_prefix(own);
        }
    });
    apart.sort();
    let mut texts = apart.into_iter().map(|(_, text)| text);
    let first = texts.next().unwrap_or_default();
    // An empty line before the second of them is enough.
    texts.filter(|text| !text.trim().is_empty()).fold(first, |all, text| all + text.trim_start_matches('\n'))
}

/// What stands before a table: up to the last empty line, and from there on.
fn above(prefix: &str) -> (&str, &str) {
    prefix.split_at(empty_lines(prefix).last().map_or(0, |line| line.end))
}

/// What stands behind the last table: up to the first empty line, and from there on.
pub(super) fn behind(trailing: &str) -> (&str, &str) {
    trailing.split_at(empty_lines(trailing).next().map_or(trailing.len(), |line| line.start))
}

fn empty_lines(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut at = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        let start = at;
        at += line.len();
        (line.ends_with('\n') && line.trim().is_empty()).then_some(start..at)
    })
}
