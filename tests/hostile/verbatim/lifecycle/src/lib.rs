//! A lifecycle policy that returns what the annotation `answer` of its object says, or its configuration: any step of
//! the contract, word by word. It is made without the SDK, which would not let it say most of it. Only for tests.

use serde_json::Value;

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
        world: "lifecycle-policy",
        additional_derives: [serde::Deserialize],
    });

    #[cfg(target_arch = "wasm32")]
    use super::Verbatim;
    #[cfg(target_arch = "wasm32")]
    export!(Verbatim);
}

use bindings::exports::polity::policy::lifecycle::{Guest as Lifecycle, Pass, StepOutcome};
use bindings::exports::polity::policy::policy_info::Guest as PolicyInfo;

/// What the policy says of itself until a test writes something else there.
static PLACE: [u8; 4_096] = said::place(
    r#"{"name": "verbatim", "version": "0.1.0", "role": "lifecycle", "governs": [], "needs": [],
    "writes": ["metadata.finalizers", "metadata.labels", "spec", "status"], "configSchema": {},
    "finalizer": null, "crd": null, "edges": []}"#,
);

/// The policy.
pub struct Verbatim;

impl PolicyInfo for Verbatim {
    fn describe() -> String {
        said::manifest(&PLACE)
    }
}

impl Lifecycle for Verbatim {
    fn step(pass: Pass) -> StepOutcome {
        let answers = pass.journal.iter().map(|entry| entry.answer.as_deref().ok());
        let snapshot = said::Snapshot::of(pass.object.as_deref(), answers);
        let mut step = snapshot.step(&pass.config);
        if let Some(conclusion) = step.get_mut("Concluded") {
            said::fill(conclusion, pass.journal.len());
        }
        match step {
            Value::Null => panic!("nothing is written down"),
            step => serde_json::from_value(step).expect("a step"),
        }
    }
}
