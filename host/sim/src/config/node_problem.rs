//! Problems that a node can have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A problem of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NodeProblem {
    /// The node reports itself as not ready.
    NotReady,
    /// `MemoryPressure`
    MemoryPressure,
    /// `DiskPressure`
    DiskPressure,
    /// `PIDPressure`
    PidPressure,
    /// `NetworkUnavailable`
    NetworkUnavailable,
    /// `KernelDeadlock`
    KernelDeadlock,
    /// `ReadonlyFilesystem`
    ReadonlyFilesystem,
}

impl NodeProblem {
    /// The problems that have a condition of their own, which is false while there is no problem.
    pub(crate) const CONDITIONS: [(NodeProblem, &'static str); 6] = [
        (NodeProblem::MemoryPressure, "MemoryPressure"),
        (NodeProblem::DiskPressure, "DiskPressure"),
        (NodeProblem::PidPressure, "PIDPressure"),
        (NodeProblem::NetworkUnavailable, "NetworkUnavailable"),
        (NodeProblem::KernelDeadlock, "KernelDeadlock"),
        (NodeProblem::ReadonlyFilesystem, "ReadonlyFilesystem"),
    ];
}
