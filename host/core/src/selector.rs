//! Label selectors, as policies write them in their questions.

pub use polity_kube_rules::labels::LabelSelector as Selector;
