//! What the tests share.

pub mod convert;
pub mod guests;
pub mod kubernetes;
pub mod simulation;
pub mod stand;
pub mod together;
pub mod whole;
