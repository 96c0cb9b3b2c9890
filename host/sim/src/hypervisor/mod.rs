//! VMs, whoever made them.

pub(crate) mod create;
pub(crate) mod vm;
