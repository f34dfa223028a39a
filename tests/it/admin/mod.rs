//! What administrators may, and nobody else.

mod confirm;
