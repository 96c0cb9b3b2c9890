//! The user data, which is in a Secret (CAPV-42). The policy knows only the name of the Secret: the host reads the value and
//! sends it to the cloud.

use std::ops::ControlFlow::{self, Break, Continue};

use polity_sdk::prelude::*;

use crate::object::{Machine, Phase};
use crate::{Cx, requeue};

/// The key of the user data, as in the bootstrap Secrets of Cluster API.
const KEY: &str = "value";
const WAITING: &str = "WaitingForBootstrapData";

/// Returns the user data, or `None` for a machine without user data. The machine waits until the Secret has it, because a VM
/// that starts without its user data would never join a cluster.
pub(crate) async fn user_data(
    cx: &Cx,
    machine: &mut Machine,
) -> Result<ControlFlow<Next, Option<cluster::Sealed>>, Failure> {
    let Some(bootstrap) = &machine.spec.bootstrap else {
        return Ok(Continue(None));
    };
    let name = &bootstrap.data_secret_name;
    let found = cx.ask(cluster::secret(name)).await.found()?;
    let message = match found.filter(|secret| secret.exists) {
        Some(secret) if secret.keys.iter().any(|key| key == KEY) => {
            return Ok(Continue(Some(cluster::sealed(name, KEY))));
        }
        Some(_) => format!("Secret {name} lacks the key {KEY:?}"),
        None => format!("Secret {name} does not exist"),
    };
    cx.note("CAPV-42");
    machine.not_yet(cx, Phase::WaitingForBootstrapData, WAITING, message);
    Ok(Break(requeue(cx)))
}
