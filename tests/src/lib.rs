//! tests

pub mod kubernetes;
pub mod simulation;
