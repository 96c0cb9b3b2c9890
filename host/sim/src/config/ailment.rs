//! Problems that a node can have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A problem of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Ailment {
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

impl Ailment {
    /// The problems that have a condition of their own, which is false while there is no problem.
    pub(crate) const CONDITIONS: [(Ailment, &'static str); 6] = [
        (Ailment::MemoryPressure, "MemoryPressure"),
        (Ailment::DiskPressure, "DiskPressure"),
        (Ailment::PidPressure, "PIDPressure"),
        (Ailment::NetworkUnavailable, "NetworkUnavailable"),
        (Ailment::KernelDeadlock, "KernelDeadlock"),
        (Ailment::ReadonlyFilesystem, "ReadonlyFilesystem"),
    ];
}
