//! What a real cluster's controllers do some time after a write: here it is part of the transaction of that write.
//!
//! `deletion` is the garbage collector with `owners` and the end of `namespaces`; `budget` counts for disruption budgets.
//!
//! **What is deliberately absent.** No scheduler, no workload controllers, no kubelet, no service accounts: nodes and pods
//! are objects that somebody else writes.

pub(crate) mod budget;
pub(crate) mod deletion;
pub(crate) mod namespaces;
mod owners;
