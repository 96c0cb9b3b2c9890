//! The tests of the policy.

mod edges;
mod large;
mod passes;
