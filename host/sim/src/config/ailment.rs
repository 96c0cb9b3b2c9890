//! What a node can have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that is wrong with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Ailment {
    /// It says itself that it is not ready.
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
    /// Those that have a condition of their own, which is false while nothing is wrong.
    pub(crate) const CONDITIONS: [(Ailment, &'static str); 6] = [
        (Ailment::MemoryPressure, "MemoryPressure"),
        (Ailment::DiskPressure, "DiskPressure"),
        (Ailment::PidPressure, "PIDPressure"),
        (Ailment::NetworkUnavailable, "NetworkUnavailable"),
        (Ailment::KernelDeadlock, "KernelDeadlock"),
        (Ailment::ReadonlyFilesystem, "ReadonlyFilesystem"),
    ];
}
