//! The tests of the policy.

mod crd;
mod edges;
mod queue;
