//! The types and functions that `wit-bindgen` generates from `wit/driver`. `wit/` in this crate links to that folder, so that the package contains it.
#![allow(missing_docs, reason = "documented in wit/driver/driver.wit")]

wit_bindgen::generate!({
    path: "wit",
    world: "driver",
    generate_all,
    pub_export_macro: true,
    default_bindings_module: "polity_driver_sdk::bindings",
    runtime_path: "::polity_driver_sdk::bindings::rt",
    additional_derives: [PartialEq, Eq],
});

pub use wit_bindgen::rt;
