//! Kubernetes' own rules about objects, once: for the host, which has to expect of an API server what a real one does, and
//! for the standalone API server, which has to do it.
//!
//! An object is a [`serde_json::Value`], as an API server serves it, or its [`text`]. It may be anything: a rule about a
//! field that is not there, or is no such thing, takes it for empty, and no function here panics.
//!
//! **What it never does.** No I/O, no clock, no randomness; it knows no kind but where Kubernetes has a rule for that kind
//! alone. It knows nothing of Polity: grants, scopes of watches and projections are core's.
//!
//! Each rule names where it comes from. `apimachinery` is `k8s.io/apimachinery`, `apiserver` is `k8s.io/apiserver`.

pub mod conditions;
pub mod deletion;
pub mod fields;
pub mod finalizers;
pub mod labels;
pub mod merge_patch;
pub mod names;
pub mod text;
pub mod time;
