//! The library for authors of [Polity](https://polity.dev) policies.
//!
//! A policy decides; it never performs. It is an ordinary `async fn` over a [`Context`]. It *asks* questions, which have
//! no side effect. It *acts*, which changes something. It edits the object for which it was called, and ends with a
//! [`Next`].
//!
//! Every call is a pure function. If an answer is missing, the call ends with its requests, and the function is called
//! again from the top with the answers in its journal. So a policy must do the same in every call of a pass: it uses no
//! clock but [`Context::now`], no randomness, no maps with a random order, and no state outside the object.
//!
//! ```
//! use polity_sdk::cloud::vm;
//! use polity_sdk::prelude::*;
//!
//! /// A lamp that is lit when its VM runs.
//! #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
//! pub struct Lamp {
//!     metadata: Metadata,
//!     spec: LampSpec,
//!     #[serde(default)]
//!     status: LampStatus,
//! }
//!
//! /// The wanted state, which people write.
//! #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
//! pub struct LampSpec {
//!     /// The VM that powers the lamp.
//!     vm: String,
//! }
//!
//! /// The reported state, which the policy writes.
//! #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
//! pub struct LampStatus {
//!     #[serde(default, skip_serializing_if = "Option::is_none")]
//!     lit: Option<bool>,
//! }
//!
//! impl Kind for Lamp {
//!     const API_VERSION: &'static str = "lamps.example.com/v1";
//!     const KIND: &'static str = "Lamp";
//!     fn metadata(&self) -> &Metadata {
//!         &self.metadata
//!     }
//! }
//!
//! /// Asks for the power state of the VM and writes it to the status.
//! #[polity_sdk::policy(lifecycle)]
//! pub async fn reconcile(cx: Context<Lamp>) -> Result<Next, Failure> {
//!     let mut lamp = cx.object_mut();
//!     let power = cx.ask(vm::power(&lamp.spec.vm)).await?;
//!     lamp.status.lit = Some(power == vm::Power::On);
//!     Ok(Next::settled_for(Duration::from_secs(60)))
//! }
//!
//! /// The name of the policy, its needs and its writes.
//! pub fn manifest() -> Manifest {
//!     Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
//!         .governs::<Lamp>()
//!         .crd(Crd::of::<Lamp>("lamps"))
//!         .needs(Need::Cloud("vm.power".into()))
//!         .writes(["status.lit"])
//! }
//!
//! // A test of the same function, without WebAssembly and without a host:
//! # use polity_sdk::test::World;
//! # use serde_json::json;
//! let mut world = World::new(json!({
//!     "apiVersion": "lamps.example.com/v1", "kind": "Lamp",
//!     "metadata": {"name": "hall", "namespace": "home", "uid": "u-1"},
//!     "spec": {"vm": "vm-7"},
//! }));
//! world.answers(vm::power("vm-7"), json!({"state": "on"}));
//! let end = world.pass(reconcile);
//! assert_eq!(end.patch, Some(json!({"status": {"lit": true}})));
//! ```
//!
//! # Flow of a step
//!
//! The object's JSON is parsed once into the policy's type. The function's future is polled exactly once. If it awaited
//! answers that the journal lacks, these become the requests of the step: the asks if there are any, otherwise the acts,
//! in the order in which they were awaited. When the future is ready, the edits of the object become a merge patch.
//!
//! # Where to find what
//!
//! The modules at the top are the core: a pass and its requests ([`cluster`], [`cloud`]), the manifest, times and
//! conditions. [`cloud`] also has typed requests of some clouds, and [`kube`] has parts of Kubernetes. The test kit
//! ([`mod@test`]) is not compiled into a component. The README of this crate is a whole lifecycle policy, from
//! `Cargo.toml` to a host that runs it; `IDENTITY.md` and `RETRY.md` beside it are policies of the other roles.
//!
//! # Deliberately not here
//!
//! The library reads no clock and has no randomness. A component imports a single function, `diagnostics.panicked`, with
//! which a panic reports what broke.

extern crate self as polity_sdk;

#[allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    clippy::all,
    reason = "generated; types.wit and policy.wit of polity-contract document it"
)]
pub mod bindings;
pub mod cloud;
pub mod cluster;
mod condition;
mod context;
pub mod join;
mod json;
mod kind;
pub mod kube;
mod lock;
mod manifest;
mod next;
mod patch;
mod path;
mod report;
mod request;
pub mod step;
mod time;

#[cfg(not(target_arch = "wasm32"))]
pub mod test;
#[cfg(target_arch = "wasm32")]
pub mod wasm;

/// The contract's types as `types.wit` of `polity-contract` names them.
pub mod contract {
    pub use crate::bindings::exports::polity::policy::identity::{
        Judgement, StepOutcome as IdentityStep, Verdict as IdentityVerdict,
    };
    pub use crate::bindings::exports::polity::policy::retry::{Origin, RetryRequest, Wait};
    pub use crate::bindings::polity::policy::types::*;
}

pub use condition::{Condition, ConditionStatus, Conditions};
pub use context::{Acting, Asking, Context, Edit};
pub use contract::{
    ActInDoubt, Code, Effect, EventType, Failure, Next, Origin, Resolution, RetryClass, Wait,
};
pub use kind::{Kind, Metadata, OwnerReference};
pub use kube::{Column, Crd, LabelExpression, LabelOperator, LabelSelector};
pub use lock::Lock;
pub use manifest::{Edge, Manifest, Need, NeedOf, Role};
pub use next::{Found, Judgement, RetryRequest, Verdict};
pub use polity_sdk_macros::policy;
pub use report::{RECONCILE_FAILED, RECONCILED};
pub use request::{Act, Ask};
pub use step::decode;
pub use time::{Period, Time};

/// The imports that a policy usually needs, in one line.
pub mod prelude {
    pub use crate::join::{join, join_all};
    pub use crate::{
        Code, Condition, ConditionStatus, Conditions, Context, Crd, Edge, EventType, Failure, Found,
        Judgement, Kind, Manifest, Metadata, Need, NeedOf, Next, Period, RetryClass, RetryRequest, Time,
        Verdict, Wait, cloud, cluster,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use std::time::Duration;
}
