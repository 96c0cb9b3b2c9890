//! The interface to a program or a person that watches a host.

use polity_core::binding::PolicyId;
use polity_core::key::Key;
use polity_core::record::PassRecord;

/// Sees every pass in the order in which the passes end.
pub trait Observer: Send {
    /// A pass ended.
    fn passed(&mut self, record: &PassRecord);
    /// An object is gone, or no binding governs it any more.
    fn forgotten(&mut self, _: &Key) {}
    /// A policy was loaded and will be called.
    fn policy_loaded(&mut self, id: &PolicyId, policy: &polity_sandbox::Policy, bytes: &[u8]);
    /// A policy is no longer used.
    fn policy_forgotten(&mut self, _: &PolicyId) {}
    /// Something that a person who watches the host should know.
    fn report(&mut self, message: &str);
}
