//! What `wit-bindgen` makes of `wit/`: the three worlds as one, because they share every type.
//!
//! Nothing here is wasm-only: natively the types are ordinary Rust types and nothing calls the functions.
//! Which world a policy's component is of, its attribute says ([`policy`](crate::policy)).

wit_bindgen::generate!({
    path: "../../wit",
    inline: "
        package polity:sdk;
        world roles {
            include polity:policy/lifecycle-policy@0.1.0;
            include polity:policy/identity-policy@0.1.0;
            include polity:policy/retry-policy@0.1.0;
        }
    ",
    world: "polity:sdk/roles",
    generate_all,
    pub_export_macro: true,
    default_bindings_module: "polity_sdk::bindings",
    runtime_path: "::polity_sdk::bindings::rt",
    additional_derives: [PartialEq, Eq, PartialOrd, Ord],
});

pub use wit_bindgen::rt;
