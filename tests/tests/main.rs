//! The tests that cross crates: policies, host and servers together. Each module tests one promise, and its first lines
//! say which.
//!
//! All of them are one program, which is linked once. Many tests wait for servers, and others compute meanwhile.

mod all_workflows;
mod bad_input;
mod cases;
mod change;
mod chaos;
mod cluster;
mod crash;
mod definitions;
mod deploy;
mod drivers;
mod ec2;
mod ends;
mod evictions;
mod examples;
mod files;
mod fuzz;
mod guarded;
mod guide;
mod host_harness;
mod hostile;
mod image;
mod kubernetes;
mod live;
mod node_agent;
mod openstack;
mod operations;
mod outside;
mod page;
mod played;
mod policy_build;
mod process;
mod readmes;
mod real_cluster;
mod real_stories;
mod reference;
mod replay;
mod resolve;
mod resumed;
mod sandbox;
mod scales;
mod scenarios;
mod schemas;
mod secrets;
mod simulation;
mod story;
mod swap;
mod telemetry;
mod traces;
mod variants;
mod vcenter;
