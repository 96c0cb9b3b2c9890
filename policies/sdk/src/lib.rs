//! What the author of a [Polity](https://polity.dev) policy depends on.
//!
//! A policy decides; it never performs. It is an ordinary `async fn` over a [`Context`]: it *asks* (no side effect),
//! it *acts* (something is done), it edits the object it was called for, and ends with a [`Next`]. Behind that, every
//! call is a pure function: when an answer is missing, the function ends with its requests and is called again, from
//! the top, with the answers in its journal. So a policy must do the same in every call of a pass: no clock but
//! [`Context::now`], no randomness, no maps with a random order, no state outside the object.
//!
//! ```
//! use polity_sdk::cloud::vm;
//! use polity_sdk::prelude::*;
//!
//! /// A light that follows its switch.
//! #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
//! pub struct Lamp {
//!     metadata: Metadata,
//!     spec: LampSpec,
//!     #[serde(default)]
//!     status: LampStatus,
//! }
//!
//! /// What people write.
//! #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
//! pub struct LampSpec {
//!     /// The VM that powers the lamp.
//!     vm: String,
//! }
//!
//! /// What the policy writes.
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
//! /// Asks how the VM is and writes down what it hears.
//! #[polity_sdk::policy(lifecycle)]
//! pub async fn reconcile(cx: Context<Lamp>) -> Result<Next, Failure> {
//!     let mut lamp = cx.object_mut();
//!     let power = cx.ask(vm::power(&lamp.spec.vm)).await?;
//!     lamp.status.lit = Some(power == vm::Power::On);
//!     Ok(Next::settled_for(Duration::from_secs(60)))
//! }
//!
//! /// What the policy is, needs and writes.
//! pub fn manifest() -> Manifest {
//!     Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
//!         .governs::<Lamp>()
//!         .crd(Crd::of::<Lamp>("lamps"))
//!         .needs(Need::Cloud("vm.power".into()))
//!         .writes(["status.lit"])
//! }
//!
//! // The very same function under test, without wasm and without a host:
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
//! The object's JSON is parsed once into the policy's type; the function's future is polled exactly once; what it
//! awaited and the journal did not hold is returned as requests: asks if any ask is missing, otherwise acts, in the
//! order in which they were awaited. When the future is ready, the edits of the object become a merge patch.
//!
//! # What lies where
//!
//! At the top is the core: a pass and its requests ([`cluster`], [`cloud`]), what a policy says of itself, times and
//! conditions. Below [`cloud`] are typed requests of some clouds, below [`kube`] what Kubernetes itself has. The test kit
//! ([`mod@test`]) is not in a component. The README of this crate is a whole policy, from `Cargo.toml` to a host that runs it.
//!
//! # What it deliberately never does
//!
//! It reads no clock, makes no randomness, and imports a single function, `diagnostics.panicked`, by which a panic
//! says what broke.

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

/// What a policy usually needs, in one line.
pub mod prelude {
    pub use crate::join::{join, join_all};
    pub use crate::{
        Code, Condition, ConditionStatus, Conditions, Context, Crd, Edge, EventType, Failure, Found, Kind,
        Manifest, Metadata, Need, NeedOf, Next, Period, RetryClass, Time, cloud, cluster,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use std::time::Duration;
}
