//! Tests of the driver of OpenStack, against a small OpenStack with a state.

mod bench;
mod boot;
mod cloud;
mod contract;
mod failures;
mod hostile;
mod lists;
mod management;
mod ports;
mod recorded;
mod resolving;
mod routers;
mod table;
