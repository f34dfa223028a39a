//! Attacks: when there is much more traffic of a kind than usual at that hour, since when, and from whom to
//! whom.
//!
//! `rule.rs` says what is unusual, `figures.rs` adds up what is known about the traffic, and `shape.rs` tells one attack
//! from the next; all are pure.
//! `watch.rs` applies them to the record every few seconds, and `table.rs` keeps the result, once for all
//! instances.

mod figures;
mod rule;
mod shape;
mod table;
#[cfg(test)]
mod tests;
mod traffic;
mod watch;

use crate::audit::attack_kind::AttackKind;
use crate::clock::Micros;
use crate::db::{Db, DbError};

pub use figures::{AttackFigures, AttackShare, AttackState};
pub use watch::AttackWatch;

/// One attack, as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttackEntry {
    pub id: String,
    pub kind: AttackKind,
    /// The realm whose login it is at; empty if it is here.
    pub realm: String,
    pub began_at: Micros,
    /// The last time that the rate was unusual.
    pub seen_at: Micros,
    /// When it was noticed that it is over.
    pub ended_at: Option<Micros>,
    pub figures: AttackFigures,
}

/// Forgets attacks that ended before.
pub(super) async fn purge(db: &Db, before: Micros) -> Result<(), DbError> {
    table::purge(db, before).await
}
