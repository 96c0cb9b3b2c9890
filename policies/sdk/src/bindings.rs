//! What `wit-bindgen` makes of the contract: the three worlds as one, because they share every type.
//!
//! Nothing here is wasm-only: natively the types are ordinary Rust types and nothing calls the functions.
//! Which world a policy's component is of, its attribute says ([`policy`](crate::policy)).

polity_sdk_macros::bindings!();

pub use wit_bindgen::rt;
