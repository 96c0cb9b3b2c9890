//! The interface to a program or a person that watches a host.

use std::sync::Arc;
use std::time::Duration;

use polity_core::binding::{Binding, PolicyId};
use polity_core::contract::{Code, Role};
use polity_core::key::{Key, PassId};
use polity_core::record::PassRecord;
use polity_core::time::Unix;

/// A call of a policy, a cloud or the API server that came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// What was called.
    pub target: Target,
    /// The pass that waited for it, if a pass did.
    pub pass: Option<PassId>,
    /// When it was sent.
    pub began: Unix,
    /// Why it failed; none if it did not.
    pub failure: Option<Code>,
    /// How long it took, on the host's clock.
    pub took: Duration,
}

/// What a call is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An operation of a cloud: `vm.clone`.
    Cloud(String),
    /// The API server: `get`, `list`, `patch`.
    Api(&'static str),
    /// A step of the policy of this role.
    Step(Role),
    /// A question to a retry policy.
    Retry,
    /// The writes of a publication, drafted.
    Draft,
}

/// Sees every pass in the order in which the passes end.
pub trait Observer: Send {
    /// A pass ended.
    fn passed(&mut self, record: &Arc<PassRecord>);
    /// A call came back.
    fn called(&mut self, _: &Called) {}
    /// An object is gone, or no binding governs it any more.
    fn forgotten(&mut self, _: &Key) {}
    /// A binding was loaded, and its policies will be called.
    fn bound(&mut self, _: &Binding) {}
    /// A policy was loaded and will be called.
    fn policy_loaded(&mut self, id: &PolicyId, policy: &polity_sandbox::Policy, bytes: &[u8]);
    /// A policy is no longer used.
    fn policy_forgotten(&mut self, _: &PolicyId) {}
    /// Something that a person who watches the host should know.
    fn report(&mut self, message: &str);
}
