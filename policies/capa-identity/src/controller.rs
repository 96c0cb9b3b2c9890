//! The controller's own identity, and its creation if it is missing (CAPA-23, CAPA-25).

use polity_sdk::prelude::*;

use crate::Cx;
use crate::lookup::{self, RETRIEVAL_FAILED, named};
use crate::object::{AwsClusterControllerIdentity as Controller, DEFAULT};
use crate::stop::{Stop, Wait};

/// The time until the cluster is judged again after its identity was created.
const AFTER_CREATION: Period = Period::from_secs(1);

/// Reads the controller's own identity. There is one of it, and the pass of an AWSCluster creates it if it is
/// missing.
pub(crate) async fn fetch(cx: &Cx, name: &str) -> Result<Controller, Stop> {
    if name != DEFAULT {
        let kind = Controller::KIND;
        let message = format!("the only {kind} is {DEFAULT}, not {name:.253}");
        return Err(lookup::lacking(cx, RETRIEVAL_FAILED, message));
    }
    match cx.ask(cluster::object::<Controller>(name)).await {
        Err(failure) if failure.is_not_found() && may_create(cx) => Err(create(cx).await),
        answer => answer.map_err(|failure| lookup::no_identity::<Controller>(cx, name, failure)),
    }
}

fn may_create(cx: &Cx) -> bool {
    let primary = cx.object();
    cx.config().auto_create_controller_identity && primary.is_cluster() && !primary.metadata.deleting()
}

/// Creates the controller's identity. The next pass reads it like any other.
async fn create(cx: &Cx) -> Stop {
    let name = named::<Controller>(DEFAULT);
    let (edge, reason, became) = match cx.act(cluster::create(&Controller::open_to_all())).await {
        Ok(_) => ("CAPA-23", "ControllerIdentityCreated", "has been created"),
        Err(failure) if failure.code == Code::AlreadyExists => {
            ("CAPA-25", "ControllerIdentityAppeared", "has appeared meanwhile")
        }
        Err(failure) => {
            let message = format!("{name} does not exist and cannot be created: {}", failure.message);
            return lookup::lacking(cx, RETRIEVAL_FAILED, message).for_the_sake_of(failure);
        }
    };
    cx.note(edge);
    Stop {
        wait: Wait::After(AFTER_CREATION),
        ..Stop::failed(reason, format!("{name} was missing and {became}"))
    }
}
