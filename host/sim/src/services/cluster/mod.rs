//! The cluster that machines join.

pub(crate) mod kubeadm;
pub(crate) mod node;
pub(crate) mod token;
