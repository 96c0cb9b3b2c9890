//! Calls of policies: natively or as components.

use std::sync::Arc;

use polity_core::binding::{Limits, LoadedPolicy, PolicyId};
use polity_core::contract::{Pass, RetryRequest, Wait};
use polity_core::fault::{Fault, StepOutput};
use polity_sandbox::{Compiler, LoadError, Policy, Sandbox, SandboxConfig};

use super::kinds;

/// Calls policies by their digest.
pub trait Stepper: Sync {
    /// One step.
    fn step(&self, policy: &PolicyId, pass: &Pass, limits: &Limits) -> StepOutput;

    /// How long until the next try, in milliseconds.
    fn decide(&self, policy: &PolicyId, request: &RetryRequest, limits: &Limits) -> Result<Wait, Fault>;

    /// The policy of Machines.
    fn machine(&self) -> LoadedPolicy;
}

/// capv-machine in the sandbox, as the host runs it, beside the native policies of the other kinds.
pub struct Sandboxed(Arc<Policy>);

impl Sandboxed {
    /// Loads the policy of Machines.
    pub fn load(machine: &[u8]) -> Result<Self, LoadError> {
        Sandbox::new(SandboxConfig::new(Compiler::InProcess))?
            .load(machine)
            .map(Sandboxed)
    }
}

impl Stepper for Sandboxed {
    fn step(&self, policy: &PolicyId, pass: &Pass, limits: &Limits) -> StepOutput {
        if policy == self.0.id() {
            self.0.step(pass, limits)
        } else {
            kinds::step(policy, pass)
        }
    }

    fn decide(&self, policy: &PolicyId, request: &RetryRequest, _: &Limits) -> Result<Wait, Fault> {
        Ok(kinds::decide(policy, request))
    }

    fn machine(&self) -> LoadedPolicy {
        LoadedPolicy {
            id: self.0.id().clone(),
            manifest: self.0.manifest().clone(),
            config: "{}".into(),
        }
    }
}
