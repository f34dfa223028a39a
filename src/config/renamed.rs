//! Keys that had another name before: the former one is still read, with a warning.

use super::document::{ConfigTable, ConfigValue};
use super::error::ConfigProblem;

/// Section, former name, current name.
const RENAMED: [(&str, &str, &str); 1] = [("live", "home", "backend")];

/// Moves values to the current names of their keys, with a warning for each. A key under both names is a
/// problem.
pub(super) fn apply(root: &mut ConfigTable, problems: &mut Vec<ConfigProblem>) -> Vec<ConfigProblem> {
    let mut warnings = Vec::new();
    for (section, former, present) in RENAMED {
        let Some(entry) = root.get_mut(section) else { continue };
        entry.node = entry.node.clone().typed();
        let ConfigValue::Table(table) = &mut entry.node.value else { continue };
        let Some(value) = table.remove(former) else { continue };
        let (place, field) = (value.key.clone(), format!("{section}.{former}"));
        if table.contains_key(present) {
            let reason =
                format!("is the former name of {section}.{present}, which is set too; keep {present}");
            problems.push(ConfigProblem { place, field, reason });
        } else {
            table.insert(present.to_owned(), value);
            let reason = format!("is called {section}.{present} now; please rename it");
            warnings.push(ConfigProblem { place, field, reason });
        }
    }
    warnings
}
