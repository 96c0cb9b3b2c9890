//! The tests of the whole: policies, host and servers together. Each module tests one promise, and says which at its top.
//!
//! One program, because many of them wait for servers: while they do, others compute. And it is linked once.

mod all_workflows;
mod bad_input;
mod cases;
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
mod kubernetes;
mod live;
mod node_agent;
mod openstack;
mod operations;
mod outside;
mod page;
mod process;
mod readmes;
mod real_cluster;
mod real_stories;
mod reference;
mod resolve;
mod resumed;
mod sandbox;
mod scenarios;
mod secrets;
mod simulation;
mod story;
mod swap;
mod telemetry;
mod traces;
mod vcenter;
