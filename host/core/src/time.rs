//! Times as Kubernetes writes them.

pub use polity_kube_rules::time::rfc3339;
