//! Tests of the driver of vSphere, against a small vCenter with a state.

mod bench;
mod changes;
mod clone;
mod contract;
mod failures;
mod hostile;
mod reads;
mod resolving;
mod sessions;
mod table;
mod tasks;
mod vcenter;
