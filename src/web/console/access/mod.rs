//! `/admin/access`: the answers to an attack.

pub mod call;
