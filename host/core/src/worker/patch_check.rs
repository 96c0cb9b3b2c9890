//! Checks the patch of a conclusion.

use std::sync::Arc;

use serde_json::json;

use crate::binding::Binding;
use crate::contract::{Document, Role};
use crate::grants;
use crate::merge::{self, Edits};
use crate::object::Object;

/// The cost of a byte that becomes part of a tree, which is copied, compared and dropped, in bytes that are read.
pub(super) const PER_BYTE: u64 = 32;

/// What the patch of a conclusion is checked against.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchCheck {
    /// The binding of the pass.
    pub binding: Arc<Binding>,
    /// The role that concludes.
    pub role: Role,
    /// The object as the pass read it; `None` if it is absent.
    pub snapshot: Option<Object>,
    /// The edits of the identity policy, if this is the conclusion of the lifecycle policy.
    pub judged: Option<Edits>,
}

impl PatchCheck {
    /// The cost of a check, in bytes that are read.
    pub(super) fn cost(&self, patch: Option<&Document>) -> u64 {
        let of_snapshot = || self.snapshot.as_ref().map_or(0, |object| object.json().len());
        let bytes = patch.map_or(0, |patch| (patch.len() + of_snapshot()) as u64);
        bytes.saturating_mul(PER_BYTE)
    }

    /// The edits of a conclusion, with those of the identity policy; `None` if the object is absent. An error says what is
    /// wrong with the patch.
    pub(super) fn run(&self, patch: Option<&Document>) -> Result<Option<Edits>, String> {
        let tree = patch.map(|patch| patch.shared_tree("the patch")).transpose();
        let tree = tree.map_err(|failure| failure.message)?;
        let values = tree.as_deref().map_or(0, merge::values);
        if values > merge::VALUES {
            return Err(format!(
                "the patch names {values} values; the limit is {}",
                merge::VALUES
            ));
        }
        if let Some(wrong) = tree.as_deref().and_then(|tree| merge::misshapen(tree, true)) {
            return Err(format!("the patch: {wrong}"));
        }
        let Some(snapshot) = &self.snapshot else {
            return match patch {
                None => Ok(None),
                Some(_) => Err("the policy patches an object that is absent".into()),
            };
        };
        let tree = tree.unwrap_or_else(|| Arc::new(json!({})));
        let edits = Edits::of(snapshot, tree, patch.map_or(0, |patch| patch.len()));
        match grants::check_writes(&self.binding, self.role, &edits) {
            Some(wrong) => Err(wrong),
            None => Ok(Some(match &self.judged {
                Some(judged) => judged.clone().and(&edits),
                None => edits,
            })),
        }
    }
}
