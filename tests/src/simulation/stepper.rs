//! Calls into policies.

use polity_core::binding::{Limits, LoadedPolicy, PolicyId};
use polity_core::contract::{Pass, Role, Trial};
use polity_core::fault::{Fault, Stepped};

use super::native;

/// Calls policies by their digest.
pub trait Stepper: Sync {
    /// One step.
    fn step(&self, policy: &PolicyId, role: Role, pass: &Pass, limits: &Limits) -> Stepped;

    /// How long until the next try, in milliseconds.
    fn decide(&self, policy: &PolicyId, trial: &Trial, limits: &Limits) -> Result<u64, Fault>;

    /// The policy of Machines.
    fn machine(&self) -> LoadedPolicy;

    /// Whether the policy of Machines gives VMs their metadata.
    fn writes_metadata(&self) -> bool;
}

/// The native policies alone.
pub struct Native;

impl Stepper for Native {
    fn step(&self, policy: &PolicyId, _: Role, pass: &Pass, _: &Limits) -> Stepped {
        match &*policy.0 {
            "widget" => native::step(pass, native::widget),
            _ => native::step(pass, native::machine),
        }
    }

    fn decide(&self, _: &PolicyId, trial: &Trial, _: &Limits) -> Result<u64, Fault> {
        Ok(polity_core::retry::default_wait(trial))
    }

    fn machine(&self) -> LoadedPolicy {
        super::bindings::native_machine()
    }

    fn writes_metadata(&self) -> bool {
        false
    }
}
