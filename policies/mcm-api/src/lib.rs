//! The kinds of `mcm.polity.dev`, which the policies `mcm-machine` and `mcm-safety` share.
//!
//! Data passes through as JSON, read into these types and written back as patches. Beside the kinds stand the
//! configuration of `mcm-machine` and what can be told of an object alone. Which step is next is decided elsewhere.

mod class;
mod config;
mod machine;
mod problem;
mod safety;

pub use class::{ClassSpec, MachineClass, NodeCapacity, SecretRef};
pub use config::{Config, Since, UnhealthyNode, Wait};
pub use machine::{
    ClassRef, CurrentStatus, DEPLOYMENT, FINALIZER, KnownCondition, LastOperation, Machine, MachineSpec,
    MachineStatus, NODE, NextOp, OperationKind, OperationState, Phase, Token,
};
pub use problem::Problem;
pub use safety::{MachineSafety, SafetySpec, SafetyStatus};

/// The group and version of these kinds.
pub const API_VERSION: &str = "mcm.polity.dev/v1alpha1";
