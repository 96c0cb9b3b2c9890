//! A retry policy that says what its configuration says, word by word; see `hostile-verbatim-lifecycle`. Only for tests.

#[path = "../../said.rs"]
mod said;

#[allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    clippy::all,
    reason = "generated; wit/ documents it"
)]
mod bindings {
    wit_bindgen::generate!({
        path: "../../../../wit",
        world: "retry-policy",
        additional_derives: [serde::Deserialize],
    });

    #[cfg(target_arch = "wasm32")]
    use super::Verbatim;
    #[cfg(target_arch = "wasm32")]
    export!(Verbatim);
}

use bindings::exports::polity::policy::policy_info::{Guest as PolicyInfo, Manifest};
use bindings::exports::polity::policy::retry::{Guest as Retry, Trial};

/// What the policy says of itself until a test writes something else there.
static PLACE: [u8; 4_096] = said::place(
    r#"{"name": "verbatim-retry", "version": "0.1.0", "role": "Retry", "governs": [], "needs": [], "writes": [],
    "config_schema": "{}", "finalizer": null, "crd": null, "edges": []}"#,
);

/// The policy.
pub struct Verbatim;

impl PolicyInfo for Verbatim {
    fn describe() -> Manifest {
        serde_json::from_value(said::manifest(&PLACE)).expect("a manifest")
    }
}

impl Retry for Verbatim {
    fn decide(trial: Trial) -> u64 {
        let config: serde_json::Value = serde_json::from_str(&trial.config).unwrap_or_default();
        let said = said::Sight::default().expand(&config["answer"], 0);
        said.as_u64().expect("milliseconds")
    }
}
