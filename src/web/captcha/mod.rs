//! Challenges: what was answered, what to show next, and the images.

pub mod call;
pub mod image;
pub mod view;
