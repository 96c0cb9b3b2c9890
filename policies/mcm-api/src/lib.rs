//! The kinds of `mcm.polity.dev`, which the policies `mcm-machine`, `mcm-machineclass`, `mcm-machineset` and `mcm-safety`
//! share.
//!
//! Data comes as JSON, is read into these types, and is written back as patches. This crate also has the
//! configuration of `mcm-machine`, functions that need only an object, and the requests to a driver. It does not
//! decide which step comes next.

mod class;
mod config;
pub mod deployment;
pub mod driver;
mod machine;
pub mod node;
mod problem;
mod safety;
mod set;
pub mod token;

pub use class::{CLASS_FINALIZER, ClassSpec, MachineClass, NodeCapacity, SecretRef};
pub use config::{Config, Since, UnhealthyNode, Wait, credential_keys};
pub use machine::{
    ClassRef, Credentials, CurrentStatus, DEFAULT_PRIORITY, DEPLOYMENT, FINALIZER, KnownCondition,
    LastOperation, Machine, MachineSpec, MachineStatus, NODE, NextOp, OperationKind, OperationState,
    PRIORITY, Phase, Token,
};
pub use problem::Problem;
pub use safety::{MachineSafety, Orphan, SafetySpec, SafetyStatus};
pub use set::{MachineSet, MachineTemplate, MachineTemplateMetadata, SET_FINALIZER, SetSpec, SetStatus};

/// The group and version of these kinds.
pub const API_VERSION: &str = "mcm.polity.dev/v1alpha1";
