//! Finds what became of a create whose answer was lost.
//!
//! EC2 remembers the client token of each instance. The look asks for it, reads the list to its end and compares
//! every row. A filter that the server did not apply, or applied loosely, so does no harm.
//!
//! **An instance that is terminated is nothing.** machine-controller-manager reads it as `NotFound`, and makes the
//! VM anew for a machine without a provider's id. The policy does the same after a create that is absent. If the
//! driver answered that it was found, the machine would wait for its node until the creation timeout. No instance
//! comes back from there, and a new create has a new key, so nothing is made twice.
//!
//! **`RunInstances` with the same token is no way to look.** It would create if nothing is there.

use polity_driver_sdk::prelude::*;

use crate::instance::Instance;
use crate::look::{self, Seen};
use crate::manifest::{self, STAMP};

/// Finds the instance of an entry.
pub(crate) async fn resolve(cx: &Context, entry: &Entry) -> Finding {
    match find(cx, entry).await {
        Ok(Some(answer)) => Finding::Found(answer.to_string()),
        Ok(None) => Finding::None,
        Err(failure) => failure.into(),
    }
}

/// What the create would have answered; `None` if it made nothing.
async fn find(cx: &Context, entry: &Entry) -> Result<Option<Value>, Failure> {
    manifest::check_region(cx, "")?;
    let Entry { key, stamp, .. } = entry;
    if *stamp != STAMP || key.is_empty() {
        let message = format!("this driver cannot look for the key {key:?} of stamp {stamp}");
        return Err(failure(Code::FailedPrecondition, message));
    }
    let seen = look::all(cx, &[("client-token", &[key])]).await?;
    let is_made = |instance: &Instance<'_>| instance.client_token() == key && !instance.is_gone();
    let made: Vec<Instance<'_>> = seen.instances().filter(is_made).collect();
    // An instance with our token and other marks was made by us, and somebody has changed the marks since.
    made.iter()
        .try_for_each(|instance| instance.owned(cx).map(drop))?;
    let one = Seen::single(&made, &format!("the client token {key}"))?;
    Ok(one.map(Instance::created))
}
