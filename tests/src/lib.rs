//! Code that the tests share: simulations, harnesses for whole hosts, fixtures, and servers in processes of their own.

#![cfg(feature = "sim")]

pub mod all_workflows;
pub mod convert;
pub mod empty_root;
pub mod evidence;
pub mod examples;
pub mod fuzz;
pub mod guests;
pub mod host_fixture;
pub mod host_harness;
pub mod hostile_driver;
pub mod kubernetes;
pub mod moto;
pub mod openstack;
pub mod passes;
pub mod served;
mod server;
pub mod simulation;
pub mod skip;
pub mod specified;
pub mod tools;
pub mod vcsim;
