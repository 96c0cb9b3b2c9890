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

use bindings::exports::polity::policy::policy_info::Guest as PolicyInfo;
use bindings::exports::polity::policy::retry::{Guest as Retry, RetryRequest, Wait};

/// What the policy says of itself until a test writes something else there.
static PLACE: [u8; 4_096] = said::place(
    r#"{"name": "verbatim-retry", "version": "0.1.0", "role": "retry", "governs": [], "needs": [], "writes": [],
    "configSchema": {}, "finalizer": null, "crd": null, "edges": []}"#,
);

/// The policy.
pub struct Verbatim;

impl PolicyInfo for Verbatim {
    fn describe() -> String {
        said::manifest(&PLACE)
    }
}

impl Retry for Verbatim {
    fn decide(request: RetryRequest) -> Wait {
        let config: serde_json::Value = serde_json::from_str(&request.config).unwrap_or_default();
        let said = said::Snapshot::default().expand(&config["answer"], 0);
        match said.as_u64() {
            Some(wait) => Wait::After(wait),
            None => serde_json::from_value(said).expect("a wait"),
        }
    }
}
