//! Tests of the driver against an EC2 that the tests play.

mod create;
mod delete;
mod doubt;
mod ec2;
mod errors;
mod hostile;
mod initialize;
mod list;
mod manifest;
mod resolve;
mod spec;
mod status;
mod table;
mod volumes;
