//! The parts that the feature `sim` adds to the host: the simulated cloud, the kubelets of its machines, and
//! scenarios. `no_sim.rs` stands in for it in builds without the feature.

use std::sync::Arc;

use polity_clouds::{BoxFuture, Cloud};
use polity_cluster::Cluster;
use polity_core::call::Write;
use polity_core::contract::{Answer, Code, Failure, Question};
use polity_core::time::Unix;
use polity_sim::kubelets::{self, Objects};
use polity_sim::{Sim, Simulated as _};
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::clouds::Clouds;

pub use crate::scenario::{Position, Running, Scenario};

/// Whether the scenario of a cloud has faults that have not happened yet.
pub(crate) fn has_unfinished_faults(cloud: &dyn Cloud) -> bool {
    let sim = cloud.simulation();
    sim.is_some_and(|sim| sim.inspect(|sim, now| sim.has_unfinished_faults(now)))
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
    (!answers.is_empty()).then(|| match answers.iter().all(|answers| *answers) {
        true => Ok(Value::Bool(true)),
        false => Err(away()),
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
