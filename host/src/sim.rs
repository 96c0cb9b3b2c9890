//! The parts that the feature `sim` adds to the host: the simulated cloud, the kubelets of its machines, and
//! scenarios. `no_sim.rs` stands in for it in builds without the feature.

use std::sync::Arc;

use polity_clouds::{BoxFuture, Cloud};
use polity_cluster::Cluster;
use polity_core::binding::{BindingSpec, Grant};
use polity_core::call::Write;
use polity_core::contract::{Answer, Code, Failure, Question};
use polity_core::time::Unix;
use polity_sim::kubelets::{self, Objects};
use polity_sim::{Sim, Simulated as _};
use serde_json::{Value, json};

use crate::adapters::SIM;
use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::data::Data;

pub use crate::scenario::{Position, Running, Scenario};

/// Whether a file of the data folder is one in which older versions kept the simulated cloud.
pub(crate) fn is_outdated(file: &str) -> bool {
    file == "cloud-sim.json"
}

/// What a person must know about an open cloud among objects that are real: that it is only simulated.
pub(crate) fn notice(name: &str, cloud: &dyn Cloud, data: Option<&Data>) -> Option<String> {
    cloud.simulation()?;
    Some(match data {
        Some(data) => format!(
            "the cloud {name} is a simulation: what it makes exists in {} only",
            data.path().display()
        ),
        None => format!(
            "the cloud {name} is a simulation: what it makes exists in this process only, and is forgotten when it ends \
             (--data DIR keeps it)"
        ),
    })
}

/// What a scenario still has to do, for a person.
pub(crate) fn unfinished(running: Option<&Running>, clouds: &Clouds) -> Vec<String> {
    let left = running.map(Running::steps_left).unwrap_or_default();
    let mut unfinished: Vec<String> = left
        .iter()
        .map(|step| format!("a step of the scenario is left: {step}"))
        .collect();
    let all = clouds.all();
    let with_faults = all.iter().filter_map(|cloud| cloud.simulation());
    let with_faults = with_faults.filter(|sim| sim.inspect(|sim, now| sim.has_unfinished_faults(now)));
    unfinished.extend(with_faults.map(|_| "the scenario's faults have not all happened".to_owned()));
    unfinished
}

/// The rights in the whole cluster that a host needs beside those of a binding's grants: it writes the Nodes of
/// simulated machines as their kubelets.
pub(crate) fn rights(spec: &BindingSpec) -> &'static [(&'static str, &'static [&'static str])] {
    let is_simulated = spec.cloud.as_ref().is_some_and(|cloud| cloud.name == SIM);
    if is_simulated && spec.grants.iter().any(makes_nodes) {
        &[
            ("nodes", &["get", "create", "patch", "delete"]),
            ("nodes/status", &["patch"]),
            ("pods", &["get", "list", "delete"]),
        ]
    } else {
        &[]
    }
}

/// Whether a grant lets machines of the simulated cloud become nodes.
fn makes_nodes(grant: &Grant) -> bool {
    let does = |name: &String| name == "*" || ["machine.", "kubeadm."].iter().any(|of| name.starts_with(of));
    matches!(grant, Grant::Cloud(names) if names.iter().any(does))
}

/// Lets the times of each scenario count from this moment, however long it took to open
/// the cloud.
pub(crate) fn begin(clouds: &Clouds, start: Unix) {
    for cloud in clouds.all() {
        if let Some(sim) = cloud.simulation() {
            sim.inspect(|sim, _| sim.begin(start.0));
        }
    }
}

/// Whether the API server that simulated machines join answers; `None` if no machines are simulated.
pub(crate) fn reachable(clouds: &Clouds) -> Option<Answer> {
    let all = clouds.all();
    let sims = all.iter().filter_map(|cloud| cloud.simulation());
    let answers: Vec<bool> = sims.map(|sim| sim.inspect(Sim::reachable)).collect();
    let away = || Failure::new(Code::Unavailable, "the API server does not answer");
    (!answers.is_empty()).then(|| {
        if answers.iter().all(|answers| *answers) {
            Ok(Value::Bool(true))
        } else {
            Err(away())
        }
    })
}

/// Revokes a token: no simulated machine can join with it any more.
///
/// # Errors
/// The revocation could not be stored.
pub(crate) async fn revoke(clouds: &Clouds, token: &str) -> Result<(), Failure> {
    for cloud in clouds.all() {
        if let Some(sim) = cloud.simulation() {
            sim.tell(|sim, now| sim.revoke_token(now, &json!(token))).await?;
        }
    }
    Ok(())
}

/// The kubelets of simulated machines, for a host that plays them itself.
pub(crate) fn kubelets(
    clock: &Arc<Clock>,
    cluster: &Arc<Cluster>,
    clouds: &Arc<Clouds>,
) -> Option<BoxFuture<'static, ()>> {
    let playing = play_kubelets(clock.clone(), cluster.clone(), clouds.clone());
    Some(Box::pin(playing))
}

/// Plays the kubelets of simulated machines as long as the future is polled.
pub async fn play_kubelets(clock: Arc<Clock>, cluster: Arc<Cluster>, clouds: Arc<Clouds>) {
    kubelets::play(clock, Arc::new(ApiServer(cluster)), move || clouds.all()).await;
}

/// The API server of this host, as kubelets see it.
struct ApiServer(Arc<Cluster>);

impl Objects for ApiServer {
    fn read(&self, question: Question) -> BoxFuture<'_, Result<Value, Failure>> {
        Box::pin(async move { self.0.read(&question).await })
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move { self.0.write(&write).await.map(drop) })
    }

    fn apply(&self, object: Value) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move { self.0.apply(&object).await.map(drop) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_pools_become_nodes_by_kubeadm() {
        let cloud = |name: &str| Grant::Cloud(vec![name.to_owned()]);
        for makes in ["machine.*", "machine.create", "kubeadm.*", "*"] {
            assert!(makes_nodes(&cloud(makes)), "{makes}");
        }
        for does_not in ["vm.*", "pool.*", "node.*"] {
            assert!(!makes_nodes(&cloud(does_not)), "{does_not}");
        }
    }
}
