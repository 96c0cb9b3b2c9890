//! The types and calls generated from `wit/`, one module for each world. Lifecycle and identity share the
//! interface `types`. The retry world has types of its own, because bindgen generates other types for values
//! that are only passed in.

#![allow(missing_docs, reason = "documented in wit/")]
#![allow(
    unsafe_code,
    reason = "generated: exports are looked up once and called unchecked"
)]
#![allow(clippy::all, reason = "generated")]

pub(crate) mod lifecycle {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "lifecycle-policy",
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

pub(crate) mod identity {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "identity-policy",
        ownership: Borrowing { duplicate_if_necessary: true },
        with: {
            "polity:policy/types": crate::wit::lifecycle::polity::policy::types,
            "polity:policy/diagnostics": crate::wit::lifecycle::polity::policy::diagnostics,
            "polity:policy/debug": crate::wit::lifecycle::polity::policy::debug,
        },
    });
}

pub(crate) mod retry {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "retry-policy",
        with: {
            "polity:policy/diagnostics": crate::wit::lifecycle::polity::policy::diagnostics,
        },
    });
}

pub(crate) mod driver {
    wasmtime::component::bindgen!({
        path: "../../wit/driver",
        world: "driver",
        additional_derives: [PartialEq, Clone, serde::Serialize, serde::Deserialize],
    });
}
