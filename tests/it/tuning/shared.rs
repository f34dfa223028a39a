//! Several instances on one home.
