//! The tests of the policy.

mod curve;
mod edges;
