//! Parts of Kubernetes itself: definitions of kinds, label selectors, Nodes, and draining them.
//!
//! [`cluster`](crate::cluster) asks for and writes objects of any kind.

mod crd;
pub mod drain;
pub mod node;
mod selector;

pub use crd::{Column, Crd};
pub use selector::{LabelExpression, LabelOperator, LabelSelector};
