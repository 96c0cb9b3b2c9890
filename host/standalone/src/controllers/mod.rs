//! The work that a real cluster's controllers do some time after a write. Here it is part of the transaction
//! of that write.
//!
//! `deletion` with `owners` is the garbage collector, `namespaces` ends namespaces, and `budget` counts for
//! disruption budgets.
//!
//! **Deliberately absent.** There is no scheduler, no workload controller, no kubelet and no service account:
//! nodes and pods are objects that somebody else writes.

pub(crate) mod budget;
pub(crate) mod deletion;
pub(crate) mod namespaces;
mod owners;
