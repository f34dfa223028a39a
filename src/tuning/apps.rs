//! `[[apps]]` in force.

use std::sync::Arc;

use super::{Tuning, version_of};
use crate::config::{self, LiveSettings};

/// The applications in force in this instance.
#[derive(Debug, Clone)]
pub struct CurrentApps {
    /// The version of the document, which a save must name.
    pub version: String,
    pub live: Arc<LiveSettings>,
    /// The `[[apps]]` part of the document, with its comments.
    pub toml: String,
    /// Whether an environment variable sets them, whatever the document says.
    pub overridden: bool,
}

impl Tuning {
    pub fn current_apps(&self) -> CurrentApps {
        let in_force = self.0.live.in_force();
        CurrentApps {
            version: version_of(&in_force),
            live: Arc::clone(&in_force.live),
            toml: config::apps_toml(&in_force.document),
            overridden: self.0.live.overridden_apps(),
        }
    }
}
