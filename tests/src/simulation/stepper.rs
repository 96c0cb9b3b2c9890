//! Calls into policies.

use std::sync::Arc;

use polity_core::binding::{Limits, LoadedPolicy, PolicyId};
use polity_core::contract::{Pass, Role, Trial};
use polity_core::fault::{Fault, Stepped};

use polity_sandbox::{LoadError, Policy, Sandbox, SandboxConfig};

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

/// capv-machine in the sandbox, as the host runs it; Widgets stay native.
pub struct Sandboxed(Arc<Policy>);

impl Sandboxed {
    /// Loads the policy of Machines.
    pub fn load(machine: &[u8]) -> Result<Self, LoadError> {
        Sandbox::new(SandboxConfig::default())?
            .load(machine)
            .map(Sandboxed)
    }
}

impl Stepper for Sandboxed {
    fn step(&self, policy: &PolicyId, role: Role, pass: &Pass, limits: &Limits) -> Stepped {
        match policy == self.0.id() {
            true => self.0.step(pass, limits),
            false => Native.step(policy, role, pass, limits),
        }
    }

    fn decide(&self, policy: &PolicyId, trial: &Trial, limits: &Limits) -> Result<u64, Fault> {
        Native.decide(policy, trial, limits)
    }

    fn machine(&self) -> LoadedPolicy {
        LoadedPolicy {
            id: self.0.id().clone(),
            manifest: self.0.manifest().clone(),
            config: "{}".into(),
        }
    }

    fn writes_metadata(&self) -> bool {
        true
    }
}
