//! Ids of resources that may be changed.

use std::fmt;

use crate::{Code, Failure, failure};

/// The id of a resource that carries the mark of the operation's owner, or of the orphan's owner that the operation names. Only
/// [`Context::owned`](crate::Context::owned) and [`Context::orphan`](crate::Context::orphan) make an `Owned`, and every request
/// that changes something needs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned<'a> {
    id: &'a str,
}

impl<'a> Owned<'a> {
    /// The id.
    pub fn id(&self) -> &'a str {
        self.id
    }
}

impl fmt::Display for Owned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

pub(crate) fn check<'a>(id: &'a str, stamp: Option<&str>, owner: &str) -> Result<Owned<'a>, Failure> {
    match stamp {
        Some(stamp) if stamp == owner && !owner.is_empty() => Ok(Owned { id }),
        _ => Err(failure(
            Code::PermissionDenied,
            format!(
                "{id} does not belong to this object: its owner mark in the cloud is missing or names another object"
            ),
        )),
    }
}
