//! The kinds of `mcm.polity.dev`, which the policies `mcm-machine` and `mcm-safety` share.
//!
//! Data passes through as JSON, read into these types and written back as patches. Nothing here decides anything.

mod class;
mod machine;
mod safety;

pub use class::{ClassSpec, MachineClass, NodeCapacity, SecretRef};
pub use machine::{
    ClassRef, CurrentStatus, DEPLOYMENT, FINALIZER, KnownCondition, LastOperation, Machine, MachineSpec,
    MachineStatus, NODE, NextOp, OperationKind, OperationState, Phase, Token,
};
pub use safety::{MachineSafety, SafetySpec, SafetyStatus};

/// The group and version of these kinds.
pub const API_VERSION: &str = "mcm.polity.dev/v1alpha1";
