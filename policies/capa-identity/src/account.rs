//! The session and its account (CAPA-08 to CAPA-10, CAPA-14 to CAPA-17, CAPA-24).

use polity_sdk::cloud::Credential;
use polity_sdk::cloud::session::{self, Attributes, Plan};
use polity_sdk::prelude::*;

use crate::Cx;
use crate::lookup::is_transient;
use crate::object::AwsCluster;
use crate::stop::{ACCOUNT, ALLOWED, RETRIEVED, Stop, Wait};

/// Opens the session of a plan, cached by the host or new, and reads its account. This is the only contact with the
/// cloud.
pub(crate) async fn open(cx: &Cx, cluster: &AwsCluster, plan: &Plan) -> Result<Credential<Attributes>, Stop> {
    let answer = cx.ask(session::open(plan)).await;
    let set = |condition, reason| {
        let conditions = &mut cx.object_mut().status.conditions;
        conditions.set(cx.now(), condition, ConditionStatus::True, reason, "");
    };
    set(ALLOWED, "Allowed");
    let credential = answer.map_err(|failure| failed(cx, failure))?;
    set(RETRIEVED, "Retrieved");
    if cluster.spec.identity_ref.is_some() {
        cx.note(if credential.reused { "CAPA-09" } else { "CAPA-08" });
        cx.note("CAPA-10");
    }
    // The host has cached the answer for a reused session.
    cx.note(if credential.reused { "CAPA-24" } else { "CAPA-14" });
    Ok(credential)
}

/// The stop if the role cannot be assumed, or its caller identity cannot be read. AWS needs time to learn of new
/// principals, so waiting may help even after a refusal.
fn failed(cx: &Cx, failure: Failure) -> Stop {
    cx.note("CAPA-21");
    let message = format!("no session could be opened: {}", failure.message);
    let (condition, reason) = (RETRIEVED, "CredentialProviderBuildFailed");
    let refused = matches!(failure.code, Code::PermissionDenied | Code::Unauthenticated);
    Stop {
        wait: if refused || is_transient(failure.code) {
            Wait::Retry(failure)
        } else {
            Wait::Resync
        },
        ..Stop::new(condition, ConditionStatus::Unknown, reason, message)
    }
}

/// Checks that the account is the known one. A cluster without a known account learns it once.
pub(crate) fn check(cx: &Cx, cluster: &AwsCluster, credential: &Credential<Attributes>) -> Result<(), Stop> {
    let known = [&cluster.status.account_id, &cluster.spec.account_id];
    if let Some(other) = known
        .into_iter()
        .flatten()
        .find(|known| **known != credential.attributes.account)
    {
        cx.note("CAPA-15");
        let message = format!(
            "the credentials of {} belong to account {}, but the cluster is in {other}",
            credential.attributes.principal, credential.attributes.account
        );
        return Err(Stop::new(
            ACCOUNT,
            ConditionStatus::False,
            "AccountMismatch",
            message,
        ));
    }
    cx.note("CAPA-16");
    let mut primary = cx.object_mut();
    if primary.is_cluster() && primary.status.account_id.is_none() {
        cx.note("CAPA-17");
        primary.status.account_id = Some(credential.attributes.account.clone());
    }
    if primary.status.conditions.get(ACCOUNT).is_some() {
        let conditions = &mut primary.status.conditions;
        conditions.set(cx.now(), ACCOUNT, ConditionStatus::True, "AccountMatches", "");
    }
    Ok(())
}
