//! What all passes share and how much of it there is: requests at the API server and at clouds, and memory for large passes.

use std::sync::Arc;

use crate::binding::Binding;
use crate::call::Call;
use crate::fair::Quota;

/// The passes that may hold texts of any size: a quarter of them is kept for other tenant queues. One holds at most its journal,
/// its requests and what its policy concludes, some 32 MiB; so all passes hold at most eight times that.
const LARGE: u64 = 8;

/// What is shared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capacity {
    /// Memory for the texts of large passes.
    Large,
    /// Reads of the API server.
    Reads,
    /// Writes to the API server.
    Writes,
    /// The cloud of a binding.
    Cloud(Arc<str>),
}

impl std::fmt::Display for Capacity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Capacity::Large => {
                f.write_str("memory: other passes whose texts are large hold all that there is")
            }
            Capacity::Reads => f.write_str("its turn to read from the API server"),
            Capacity::Writes => f.write_str("its turn to write to the API server"),
            Capacity::Cloud(_) => f.write_str("its turn at its cloud: spec.limits.cloudCalls are in flight"),
        }
    }
}

/// How much there is of what all bindings share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacities {
    /// The largest number of reads in flight at the API server.
    pub reads: u32,
    /// The largest number of writes in flight at the API server.
    pub writes: u32,
    /// The bytes of texts that any pass may hold. One that holds more is large.
    pub small: u64,
}

impl Default for Capacities {
    /// What even a slow API server can bear from one client.
    fn default() -> Self {
        Capacities {
            reads: 16,
            writes: 16,
            small: 1 << 20,
        }
    }
}

impl Capacities {
    /// The places of a capacity, for a binding.
    pub(crate) fn places(&self, capacity: &Capacity, binding: &Binding) -> Quota {
        match capacity {
            Capacity::Large => Quota::new(LARGE),
            Capacity::Reads => Quota::new(self.reads.into()),
            Capacity::Writes => Quota::new(self.writes.into()),
            Capacity::Cloud(_) => Quota::halved(binding.spec.limits.cloud_calls.into()),
        }
    }
}

/// What a call takes a place of. Calls for the lease take none: waiting could lose the lease. Workers have turns of their own.
pub(crate) fn capacity_of(call: &Call, binding: &str) -> Option<Capacity> {
    match call {
        Call::Step { .. } | Call::Decide { .. } | Call::Draft(_) | Call::Lease(_) => None,
        Call::Read(_) => Some(Capacity::Reads),
        Call::Write(_) | Call::Mint(_) | Call::Revoke { .. } => Some(Capacity::Writes),
        Call::Cloud(_)
        | Call::Prepare(_)
        | Call::Commit(_)
        | Call::Resolve { .. }
        | Call::Credential { .. } => Some(Capacity::Cloud(binding.into())),
    }
}
