//! Challenges: checking answers, showing the next challenge, and the images.

pub mod call;
pub mod image;
pub mod view;
