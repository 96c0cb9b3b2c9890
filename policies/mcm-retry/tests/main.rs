//! The tests of the policy.

mod edges;
mod periods;
