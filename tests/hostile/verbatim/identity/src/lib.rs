//! An identity policy that returns what the annotation `identity` of its object says, word by word; see
//! `hostile-verbatim-lifecycle`. Only for tests.

use serde_json::{Value, json};

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
        world: "identity-policy",
        additional_derives: [serde::Deserialize],
    });

    #[cfg(target_arch = "wasm32")]
    use super::Verbatim;
    #[cfg(target_arch = "wasm32")]
    export!(Verbatim);
}

use bindings::exports::polity::policy::identity::{Guest as Identity, Pass, StepOutcome};
use bindings::exports::polity::policy::policy_info::Guest as PolicyInfo;

/// What the policy says of itself until a test writes something else there.
static PLACE: [u8; 4_096] = said::place(
    r#"{"name": "verbatim-identity", "version": "0.1.0", "role": "identity", "governs": [], "needs": [],
    "writes": ["metadata.annotations", "status.conditions[Identity]"], "configSchema": {},
    "finalizer": null, "crd": null, "edges": []}"#,
);

/// The policy.
pub struct Verbatim;

impl PolicyInfo for Verbatim {
    fn describe() -> String {
        said::manifest(&PLACE)
    }
}

impl Identity for Verbatim {
    fn step(pass: Pass) -> StepOutcome {
        let answers = pass.journal.iter().map(|entry| entry.answer.as_deref().ok());
        let mut snapshot = said::Snapshot::of(pass.object.as_deref(), answers);
        let annotations = &mut snapshot.object["metadata"]["annotations"];
        annotations["answer"] = annotations["identity"].take();
        let mut step = snapshot.step(&pass.config);
        if let Some(judgement) = step.get_mut("Concluded").and_then(Value::as_object_mut) {
            said::fill(
                judgement.entry("conclusion").or_insert(json!({})),
                pass.journal.len(),
            );
        }
        match step {
            Value::Null => panic!("nothing is written down"),
            step => serde_json::from_value(step).expect("a step"),
        }
    }
}
