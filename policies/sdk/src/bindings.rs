//! The types and functions that `wit-bindgen` generates from the contract. The three worlds are generated as
//! one, because they share every type.
//!
//! Natively the types are ordinary Rust types, and nothing calls the functions. The attribute
//! [`policy`](crate::policy) decides which world a component has.

polity_sdk_macros::bindings!();

pub use wit_bindgen::rt;
