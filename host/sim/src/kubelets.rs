//! Plays the nodes of simulated machines. Once a second it does what kubeadm and the kubelets of a real
//! cluster would do.
//!
//! A machine that joins gets a Node, whose conditions follow the simulation. As long as its kubelet runs,
//! pods that are deleted end.

use std::collections::BTreeMap;
use std::sync::Arc;

use polity_clouds::{BoxFuture, Clock, Cloud};
use polity_core::call::Write;
use polity_core::contract::{Act, Failure, Kind, ListQuery, ObjectDelete, ObjectRef, Precondition, Question};
use polity_core::object::Object;
use polity_kube_rules::time::rfc3339;
use serde_json::{Value, json};

use crate::{NodeCondition, NodeView, SimCloud, Simulated as _};

/// The interval between two looks, in milliseconds of the clock.
const EVERY: u64 = 1_000;

/// The API server to which the kubelets speak.
pub trait Objects: Send + Sync {
    /// Answers a question about objects.
    fn read(&self, question: Question) -> BoxFuture<'_, Result<Value, Failure>>;

    /// Changes an object.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<(), Failure>>;

    /// Creates an object, or merges it into the object that has its name.
    fn apply(&self, object: Value) -> BoxFuture<'_, Result<(), Failure>>;
}

/// Plays the kubelets of every open simulated cloud, as long as the future is polled.
pub async fn play(
    clock: Arc<dyn Clock>,
    objects: Arc<dyn Objects>,
    clouds: impl Fn() -> Vec<Arc<dyn Cloud>> + Send,
) {
    let mut kubelets = Kubelets {
        objects,
        shown: BTreeMap::new(),
    };
    loop {
        clock.sleep_ms(EVERY).await;
        for cloud in clouds() {
            let Some(sim) = cloud.simulation() else { continue };
            if let Err(failure) = kubelets.look(sim, clock.now_ms()).await {
                // The next look does what is left.
                tracing::debug!(%failure, "the nodes of simulated machines");
            }
        }
    }
}

struct Kubelets {
    objects: Arc<dyn Objects>,
    /// The conditions that were written last, by provider id.
    shown: BTreeMap<String, Value>,
}

impl Kubelets {
    /// The simulation remembers which Nodes were created. So a Node that somebody deletes is not created
    /// again by a running kubelet, nor by one of the next process.
    async fn look(&mut self, sim: &SimCloud, unix: u64) -> Result<(), Failure> {
        // The state is stored before a Node is created: a machine that is lost with the process must leave no
        // Node.
        let nodes = sim.tell(|sim, now| sim.nodes(now)).await?;
        for node in &nodes {
            let id = &node.provider_id;
            if node.gone.is_none() && node.left.is_none() && !node.registered {
                self.objects.apply(object(node)).await?;
                sim.tell(|sim, _| sim.note_registered(id)).await?;
                self.shown.remove(id);
            }
            if node.left.is_some() && !node.deregistered {
                self.delete(reference(&node.name)).await?;
                sim.tell(|sim, _| sim.note_deregistered(id)).await?;
            }
            self.show(node).await?;
        }
        match nodes.iter().any(|node| node.heard) {
            true => self.end_pods(&nodes, unix).await,
            false => Ok(()),
        }
    }

    /// Writes the conditions of a Node if they changed and the Node still belongs to this machine.
    async fn show(&mut self, node: &NodeView) -> Result<(), Failure> {
        let conditions = conditions(node);
        if self.shown.get(&node.provider_id) == Some(&conditions) {
            return Ok(());
        }
        let question = Question::Object(polity_core::contract::ObjectQuery {
            object: reference(&node.name),
            projection: Vec::new(),
            latest: true,
        });
        let found = self.objects.read(question).await.unwrap_or_default();
        if found["spec"]["providerID"] == *node.provider_id {
            let conditions = beside_those_of_others(&conditions, &found);
            let write = Write::Patch {
                object: reference(&node.name),
                subresource: Some("status".into()),
                precondition: Some(Object::new(found).precondition()),
                patch: json!({"status": {"conditions": conditions}}),
            };
            self.objects.write(write).await?;
        }
        self.shown.insert(node.provider_id.clone(), conditions);
        Ok(())
    }

    /// Ends the pods whose grace period is over, if the kubelet of their node runs.
    async fn end_pods(&self, nodes: &[NodeView], unix: u64) -> Result<(), Failure> {
        let query = ListQuery {
            latest: true,
            ..ListQuery::all(kind("Pod"))
        };
        let pods = self.objects.read(Question::Objects(query)).await?;
        // The API server writes times in this form, to the second, so texts can be compared.
        let now = rfc3339(unix);
        for pod in pods.as_array().into_iter().flatten() {
            let on = |node: &&NodeView| pod["spec"]["nodeName"] == *node.name && node.heard;
            let ends = pod["metadata"]["deletionTimestamp"].as_str();
            if ends.is_some_and(|at| at <= now.as_str()) && nodes.iter().any(|node| on(&node)) {
                self.delete(Object::new(pod.clone()).reference()).await?;
            }
        }
        Ok(())
    }

    async fn delete(&self, object: ObjectRef) -> Result<(), Failure> {
        let question = Question::Object(polity_core::contract::ObjectQuery {
            object: object.clone(),
            projection: Vec::new(),
            latest: true,
        });
        let Ok(found) = self.objects.read(question).await else {
            return Ok(());
        };
        let delete = Act::Delete(ObjectDelete {
            object,
            precondition: Precondition {
                uid: Object::new(found).uid().to_owned(),
                resource_version: None,
            },
            grace_period_seconds: Some(0),
            propagation_policy: None,
        });
        self.objects.write(Write::Act(delete)).await
    }
}

/// The Node as a kubelet registers it, with its conditions.
fn object(node: &NodeView) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node.name, "labels": node.labels},
        "spec": {"providerID": node.provider_id}, "status": {"conditions": conditions(node)},
    });
    object["metadata"]["labels"]["kubernetes.io/hostname"] = json!(node.name);
    if !node.taints.is_empty() {
        object["spec"]["taints"] = json!(node.taints);
    }
    object
}

fn conditions(node: &NodeView) -> Value {
    let condition = |condition: &NodeCondition| {
        json!({
            "type": condition.kind, "status": condition.status, "reason": condition.reason, "message": "",
            "lastTransitionTime": rfc3339(condition.since), "lastHeartbeatTime": rfc3339(condition.since),
        })
    };
    node.conditions.iter().map(condition).collect()
}

/// The kubelet's conditions together with those that others wrote, for example its agent.
fn beside_those_of_others(conditions: &Value, node: &Value) -> Value {
    let own = |kind: &Value| {
        conditions
            .as_array()
            .into_iter()
            .flatten()
            .any(|own| own["type"] == *kind)
    };
    let found = node["status"]["conditions"].as_array().into_iter().flatten();
    let others = found.filter(|other| !own(&other["type"]));
    conditions
        .as_array()
        .into_iter()
        .flatten()
        .chain(others)
        .cloned()
        .collect()
}

fn kind(kind: &str) -> Kind {
    Kind {
        api_version: "v1".into(),
        kind: kind.into(),
    }
}

fn reference(name: &str) -> ObjectRef {
    ObjectRef {
        cluster: None,
        kind: kind("Node"),
        namespace: None,
        name: name.into(),
    }
}

#[test]
fn a_kubelet_leaves_the_conditions_of_others_alone() {
    let own = json!([{"type": "Ready", "status": "True"}]);
    let others = json!({"type": "PackagesEnsured", "status": "True"});
    let node = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, others]}});
    assert_eq!(beside_those_of_others(&own, &node), json!([own[0], others]));
    assert_eq!(beside_those_of_others(&own, &json!({})), own);
}
