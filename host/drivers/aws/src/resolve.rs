//! Finds out the result of a create whose answer was lost.
//!
//! EC2 stores the client token of each instance. The driver lists the instances with this token, reads the list to its
//! end and compares every row. So it does no harm if the server does not apply the filter, or applies it loosely.
//!
//! **A terminated instance counts as absent.** machine-controller-manager reads it as `NotFound`, and creates the VM
//! again for a machine without a provider ID. The policy does the same after an absent create. If the driver answered
//! *found*, the machine would wait for its node until the creation timeout. A terminated instance never runs again, and
//! a new create has a new key, so nothing is created twice.
//!
//! **The driver never looks by `RunInstances` with the same token.** It would create an instance if there is none.

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

/// The answer that the create would have had; `None` if it created nothing.
async fn find(cx: &Context, entry: &Entry) -> Result<Option<Value>, Failure> {
    manifest::check_region(cx, "")?;
    let Entry { key, stamp, .. } = entry;
    if *stamp != STAMP || key.is_empty() {
        let message = format!(
            "this driver cannot find creates with stamp {stamp} (key {key:?}): load a driver that finds this stamp, or use polity resolve"
        );
        return Err(failure(Code::FailedPrecondition, message));
    }
    let seen = look::all(cx, &[("client-token", &[key])]).await?;
    let is_made = |instance: &Instance<'_>| instance.client_token() == key && !instance.is_gone();
    let made: Vec<Instance<'_>> = seen.instances().filter(is_made).collect();
    // An instance with this token and other marks comes from this create, but its marks were changed later.
    made.iter()
        .try_for_each(|instance| instance.owned(cx).map(drop))?;
    let one = Seen::single(&made, &format!("the client token {key}"))?;
    Ok(one.map(Instance::created))
}
