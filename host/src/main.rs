//! The Polity host.
fn main() {}
