//! Gives up an Unknown machine (MCM-H08 to MCM-H10), but never two of a deployment at once. When a zone is out, all
//! its machines are Unknown together, and replacing all of them would make things worse.

use std::ops::ControlFlow::{self, Break};

use mcm_api::{Machine, deployment};
use polity_sdk::prelude::*;

use crate::{Cx, health};

/// Makes the machine Failed under the lock of the deployment. The lock is held until that is published.
pub(crate) async fn replace(cx: &Cx, machine: &mut Machine) -> ControlFlow<Next, Option<Period>> {
    match deployment::in_progress(cx, machine).await {
        Err(failure) => Break(Next::failed(RetryClass::Short, failure)),
        Ok(None) => Break(wait(cx, "MCM-H10", Code::Aborted, "judged")),
        Ok(Some(others)) if others >= cx.config().max_replacements => {
            Break(wait(cx, "MCM-H09", Code::FailedPrecondition, "replaced"))
        }
        Ok(Some(_)) => {
            cx.note("MCM-H08");
            health::give_up(cx, machine, "the node was unhealthy for too long");
            Break(Next::retry(RetryClass::Short))
        }
    }
}

fn wait(cx: &Cx, edge: &str, code: Code, what: &str) -> Next {
    cx.note(edge);
    let message = format!("another machine of the deployment is being {what}");
    Next::failed(RetryClass::Short, Failure::new(code, message))
}
