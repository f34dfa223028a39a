//! The difference between two sets of limits, by line.

use crate::config::line_diff;

/// A line of a unified diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffLine {
    pub kind: DiffKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffKind {
    Same,
    Added,
    Removed,
    /// Omitted lines.
    Gap,
}

/// The difference between two texts.
pub fn between(old: &str, new: &str) -> Vec<DiffLine> {
    lines(&line_diff(old, new).unified_diff().context_radius(2).to_string())
}

/// The lines of a unified diff without the names of its files.
pub fn lines(unified: &str) -> Vec<DiffLine> {
    let body = unified.lines().filter(|line| !line.starts_with("--- ") && !line.starts_with("+++ "));
    let body = body.filter(|line| !line.starts_with('\\'));
    let mut lines: Vec<DiffLine> = body.map(line).collect();
    if lines.first().is_some_and(|first| first.kind == DiffKind::Gap) {
        lines.remove(0);
    }
    lines
}

fn line(line: &str) -> DiffLine {
    let (kind, text) = match line.chars().next() {
        Some('+') => (DiffKind::Added, &line[1..]),
        Some('-') => (DiffKind::Removed, &line[1..]),
        Some('@') => (DiffKind::Gap, "…"),
        Some(' ') => (DiffKind::Same, &line[1..]),
        _ => (DiffKind::Same, line),
    };
    DiffLine { kind, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_is_shown_without_its_machinery() {
        let unified = "--- old\n+++ new\n@@ -1,2 +1,2 @@\n [limits]\n-max = 3\n+max = 5\n@@ -9 +9 @@\n+x\n\\ No newline\n";
        let shown: Vec<_> = lines(unified).into_iter().map(|line| (line.kind, line.text)).collect();
        let expected = [
            (DiffKind::Same, "[limits]"),
            (DiffKind::Removed, "max = 3"),
            (DiffKind::Added, "max = 5"),
            (DiffKind::Gap, "…"),
            (DiffKind::Added, "x"),
        ];
        assert_eq!(shown, expected.map(|(kind, text)| (kind, text.to_owned())));
    }
}
