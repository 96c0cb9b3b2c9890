//! The tests of the policy.

mod crds;
mod edges;
