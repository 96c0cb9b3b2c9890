//! tests

pub mod kubernetes;
