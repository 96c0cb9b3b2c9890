//! The rules of Kubernetes about objects, each once. The host uses them to predict what an API server does;
//! the standalone API server uses them to do it.
//!
//! An object is a [`serde_json::Value`], as an API server serves it, or its [`text`]. It may have any shape.
//! A rule treats a field that is missing or has the wrong type as empty, and no function here panics.
//!
//! [`schema`] checks a value by the schema of a CRD, or by the part of JSON Schema with which configurations and arguments are
//! described.
//!
//! **Not here.** No I/O, no clock, no randomness. No kind is known, unless Kubernetes has a rule for that
//! kind alone. Nothing of Polity is known: grants, the scopes of watches and projections are core's.
//!
//! Policies are components and do not have this crate, so the SDK has the few rules that policies need as types of its
//! own: label selectors, conditions and times. `policies/sdk/tests/kube_rules.rs` plays one table through both.
//!
//! Each rule names its source. `apimachinery` is `k8s.io/apimachinery`, `apiserver` is `k8s.io/apiserver`.

pub mod conditions;
pub mod deletion;
pub mod fields;
pub mod finalizers;
pub mod labels;
pub mod merge_patch;
pub mod names;
pub mod schema;
pub mod served;
pub mod text;
pub mod time;
