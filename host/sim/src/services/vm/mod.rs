//! VMs in the manner of vSphere.

pub(crate) mod clone;
