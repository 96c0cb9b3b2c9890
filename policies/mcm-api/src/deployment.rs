//! The machines of a deployment.

use polity_sdk::prelude::*;

use crate::{Config, DEPLOYMENT, Machine, Phase};

/// A pass of a machine.
type Cx = Context<Machine, Config>;

/// The number of machines of the deployment that are being replaced; `None` while another pass holds the lock. A
/// machine without a deployment stands alone.
pub async fn in_progress(cx: &Cx, machine: &Machine) -> Result<Option<u32>, Failure> {
    let Some(deployment) = machine.metadata.labels.get(DEPLOYMENT) else {
        return Ok(Some(0));
    };
    let Some(lock) = cx.lock(&format!("deployment/{deployment}")).await? else {
        return Ok(None);
    };
    let of_deployment = cluster::objects::<Machine>()
        .labels(&format!("{DEPLOYMENT}={deployment}"))
        .keep(&["status.currentStatus"]);
    let siblings = lock.objects(of_deployment).await?;
    let weight = |sibling: &Machine| match sibling.phase() {
        Some(Phase::Running | Phase::Unknown) => 0,
        // It counts until it is gone and its replacement exists. From then on the replacement counts by itself.
        Some(Phase::Terminating) => 2,
        _ => 1,
    };
    Ok(Some(siblings.iter().map(weight).sum()))
}
