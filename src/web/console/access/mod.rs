//! `/admin/access`: the answers to an attack.

pub mod answer;
pub mod call;
pub mod page;
pub mod view;
