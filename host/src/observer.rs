//! Who watches a host: what it is told of every pass.

use polity_core::binding::PolicyId;
use polity_core::key::Key;
use polity_core::record::PassRecord;

/// Sees every pass that ends, in order.
pub trait Observer: Send {
    /// A pass ended.
    fn passed(&mut self, record: &PassRecord);
    /// An object is gone, or is governed no more.
    fn forgotten(&mut self, _: &Key) {}
    /// A policy takes part from now on.
    fn policy_loaded(&mut self, id: &PolicyId, policy: &polity_sandbox::Policy, bytes: &[u8]);
    /// A policy takes part no more.
    fn policy_forgotten(&mut self, _: &PolicyId) {}
    /// Something that a person who watches should know.
    fn report(&mut self, message: &str);
}
