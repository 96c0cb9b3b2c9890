//! What all passes share. Each file is one thing with its own methods; none of them knows a phase of a pass, or the controller.

pub(crate) mod cache;
pub(crate) mod calls;
pub(crate) mod capacity;
pub(crate) mod guards;
pub mod lease;
pub(crate) mod locks;
pub(crate) mod queue;
pub(crate) mod terms;
pub(crate) mod watches;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::binding::Binding;
use crate::time::Now;

use cache::Cache;
use calls::Calls;
use capacity::Capacities;
use guards::Guards;
use lease::Lease;
use locks::Locks;
use watches::Watches;

/// What all passes share. A handler of a phase reads it; the controller alone changes it.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) now: Now,
    pub(crate) lease: Lease,
    pub(crate) bindings: BTreeMap<Arc<str>, Arc<Binding>>,
    pub(crate) cache: Cache,
    /// The watches that questions of policies opened.
    pub(crate) watches: Watches,
    pub(crate) calls: Calls,
    pub(crate) capacities: Capacities,
    pub(crate) locks: Locks,
    pub(crate) guards: Guards,
    /// Whether the host is stopping, so that no new change may begin: passes end without waiting for their conclusion.
    pub(crate) cutting: bool,
}
