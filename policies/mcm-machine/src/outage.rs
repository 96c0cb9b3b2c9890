//! Giving up an Unknown machine (MCM-H08 to MCM-H10): never two of a deployment at once. When a zone is out, all its
//! machines are Unknown together, and replacing them all would make it worse.

use std::ops::ControlFlow::{self, Break};

use mcm_api::{DEPLOYMENT, Machine, Phase};
use polity_sdk::prelude::*;

use crate::{Cx, health};

/// Another machine of the deployment: as much as this one looks at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sibling {
    metadata: Metadata,
    #[serde(default)]
    status: SiblingStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SiblingStatus {
    current_status: SiblingPhase,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct SiblingPhase {
    phase: Option<Phase>,
}

impl Kind for Sibling {
    const API_VERSION: &'static str = Machine::API_VERSION;
    const KIND: &'static str = Machine::KIND;
    const PROJECTION: &'static [&'static str] = &["status.currentStatus.phase"];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// Makes the machine Failed under the deployment's permit, which is held until that is published.
pub(crate) async fn replace(cx: &Cx, machine: &mut Machine) -> ControlFlow<Next, Option<Period>> {
    match in_progress(cx, machine).await {
        Err(failure) => Break(Next::failed(RetryClass::Short, failure)),
        Ok(None) => Break(health::stop(
            cx,
            &["MCM-H10"],
            Code::Aborted,
            "another machine of the deployment is being judged",
        )),
        Ok(Some(others)) if others >= cx.config().max_replacements => Break(health::stop(
            cx,
            &["MCM-H09"],
            Code::FailedPrecondition,
            "another machine of the deployment is being replaced",
        )),
        Ok(Some(_)) => {
            cx.note("MCM-H08");
            health::give_up(cx, machine, "the node was unhealthy for too long");
            Break(Next::retry(RetryClass::Short))
        }
    }
}

/// How many machines of the deployment are being replaced; none while somebody else counts them. A machine without a
/// deployment has no others.
async fn in_progress(cx: &Cx, machine: &Machine) -> Result<Option<u32>, Failure> {
    let Some(deployment) = machine.metadata.labels.get(DEPLOYMENT) else {
        return Ok(Some(0));
    };
    let Some(permit) = cx.permit(&format!("deployment/{deployment}")).await? else {
        return Ok(None);
    };
    let of_deployment = cluster::objects::<Sibling>().labels(&format!("{DEPLOYMENT}={deployment}"));
    let siblings = permit.objects(of_deployment).await?;
    let weight = |sibling: &Sibling| match sibling.status.current_status.phase {
        Some(Phase::Running | Phase::Unknown) => 0,
        // Until it is gone and its replacement is there, which counts by itself.
        Some(Phase::Terminating) => 2,
        _ => 1,
    };
    Ok(Some(siblings.iter().map(weight).sum()))
}
