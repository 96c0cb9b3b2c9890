//! What Kubernetes itself has: definitions of kinds, label selectors, Nodes and how they are drained.
//!
//! Objects of any kind are asked for and written with [`cluster`](crate::cluster).

mod crd;
pub mod drain;
pub mod node;
mod selector;

pub use crd::{Column, Crd};
pub use selector::{LabelExpression, LabelOperator, LabelSelector};
