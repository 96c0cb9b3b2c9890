//! Plays the nodes of simulated machines. Once a second it does what kubeadm and the kubelets of a real
//! cluster would do.
//!
//! A machine that joins gets a Node, whose conditions follow the simulation. As long as its kubelet runs,
//! pods that are deleted end.

use std::collections::BTreeMap;
use std::sync::Arc;

use polity_clouds::{BoxFuture, Clock, Cloud};
use polity_core::call::Write;
use polity_core::contract::{
    Act, Code, Failure, Kind, ListQuery, ObjectDelete, ObjectQuery, ObjectRef, Precondition, Question,
};
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
                self.deregister(node).await?;
                sim.tell(|sim, _| sim.note_deregistered(id)).await?;
            }
            self.show(node).await?;
        }
        if nodes.iter().any(|node| node.heard) {
            self.end_pods(&nodes, unix).await
        } else {
            Ok(())
        }
    }

    /// Writes the conditions of a Node if they changed and the Node still belongs to this machine.
    async fn show(&mut self, node: &NodeView) -> Result<(), Failure> {
        let conditions = conditions(node);
        if self.shown.get(&node.provider_id) == Some(&conditions) {
            return Ok(());
        }
        if let Some(found) = self.own(node).await? {
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
                self.delete(&Object::new(pod.clone())).await?;
            }
        }
        Ok(())
    }

    /// Deletes the Node of a machine that left. A Node of that name that belongs to another machine stays.
    async fn deregister(&self, node: &NodeView) -> Result<(), Failure> {
        match self.own(node).await? {
            Some(found) => self.delete(&Object::new(found)).await,
            None => Ok(()),
        }
    }

    /// The Node of a machine; `None` if it does not exist, or if its name belongs to another machine.
    async fn own(&self, node: &NodeView) -> Result<Option<Value>, Failure> {
        let question = Question::Object(ObjectQuery {
            object: reference(&node.name),
            projection: Vec::new(),
            latest: true,
        });
        match self.objects.read(question).await {
            Ok(found) => Ok((found["spec"]["providerID"] == *node.provider_id).then_some(found)),
            Err(failure) if failure.code == Code::NotFound => Ok(None),
            // Nobody knows whether the Node exists. The next look asks again.
            Err(failure) => Err(failure),
        }
    }

    /// Deletes this object, and no later object of its name.
    async fn delete(&self, found: &Object) -> Result<(), Failure> {
        let delete = Act::Delete(ObjectDelete {
            object: found.reference(),
            precondition: Precondition {
                uid: found.uid().to_owned(),
                resource_version: None,
            },
            grace_period_seconds: Some(0),
            propagation_policy: None,
        });
        match self.objects.write(Write::Act(delete)).await {
            Err(failure) if failure.code == Code::NotFound => Ok(()),
            ended => ended,
        }
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use futures::executor::block_on;

    use super::*;

    /// An API server that answers its reads by a script, and remembers its writes.
    #[derive(Default)]
    struct Server {
        reads: Mutex<VecDeque<Result<Value, Failure>>>,
        writes: Mutex<Vec<Write>>,
    }

    impl Objects for Server {
        fn read(&self, _: Question) -> BoxFuture<'_, Result<Value, Failure>> {
            let next = self.reads.lock().unwrap().pop_front();
            Box::pin(std::future::ready(next.expect("one more read")))
        }

        fn write(&self, write: Write) -> BoxFuture<'_, Result<(), Failure>> {
            self.writes.lock().unwrap().push(write);
            Box::pin(std::future::ready(Ok(())))
        }

        fn apply(&self, _: Value) -> BoxFuture<'_, Result<(), Failure>> {
            Box::pin(std::future::ready(Ok(())))
        }
    }

    /// Kubelets of an API server that answers these reads.
    fn kubelets(reads: impl IntoIterator<Item = Result<Value, Failure>>) -> (Kubelets, Arc<Server>) {
        let server = Arc::new(Server {
            reads: Mutex::new(reads.into_iter().collect()),
            ..Server::default()
        });
        let objects = server.clone();
        let shown = BTreeMap::new();
        (Kubelets { objects, shown }, server)
    }

    fn view() -> NodeView {
        NodeView {
            name: "n".into(),
            provider_id: "sim:///m-1".into(),
            machine: "m".into(),
            owner: "u".into(),
            tenant: "t".into(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            joined: 1,
            left: None,
            gone: None,
            registered: true,
            deregistered: false,
            ready: true,
            heard: true,
            conditions: Vec::new(),
            since: 1,
        }
    }

    fn of_machine(provider_id: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "uid-n", "resourceVersion": "7"},
            "spec": {"providerID": provider_id},
        })
    }

    fn failed(code: Code) -> Result<Value, Failure> {
        Err(Failure::new(code, "no"))
    }

    #[test]
    fn conditions_that_could_not_be_written_are_written_at_the_next_look() {
        let found = of_machine("sim:///m-1");
        let (mut kubelets, server) = kubelets([failed(Code::DeadlineExceeded), Ok(found)]);
        assert!(block_on(kubelets.show(&view())).is_err());
        for _ in 0..2 {
            block_on(kubelets.show(&view())).unwrap();
        }
        assert_eq!(server.writes.lock().unwrap().len(), 1);
    }

    #[test]
    fn conditions_of_a_node_that_is_gone_are_not_written_at_each_look() {
        let (mut kubelets, server) = kubelets([failed(Code::NotFound)]);
        for _ in 0..2 {
            block_on(kubelets.show(&view())).unwrap();
        }
        assert!(server.writes.lock().unwrap().is_empty());
    }

    #[test]
    fn a_node_that_left_is_deleted_once_the_api_server_answers() {
        let found = of_machine("sim:///m-1");
        let (kubelets, server) = kubelets([failed(Code::Unavailable), Ok(found)]);
        assert!(block_on(kubelets.deregister(&view())).is_err());
        block_on(kubelets.deregister(&view())).unwrap();
        let writes = server.writes.lock().unwrap();
        let [Write::Act(Act::Delete(delete))] = &writes[..] else {
            panic!("{writes:?}");
        };
        assert_eq!(
            (delete.object.name.as_str(), delete.precondition.uid.as_str()),
            ("n", "uid-n")
        );
    }

    #[test]
    fn a_node_of_the_same_name_that_belongs_to_another_machine_stays() {
        let (kubelets, server) = kubelets([Ok(of_machine("sim:///m-2")), failed(Code::NotFound)]);
        for _ in 0..2 {
            block_on(kubelets.deregister(&view())).unwrap();
        }
        assert!(server.writes.lock().unwrap().is_empty());
    }

    #[test]
    fn a_kubelet_leaves_the_conditions_of_others_alone() {
        let own = json!([{"type": "Ready", "status": "True"}]);
        let others = json!({"type": "PackagesEnsured", "status": "True"});
        let node = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, others]}});
        assert_eq!(beside_those_of_others(&own, &node), json!([own[0], others]));
        assert_eq!(beside_those_of_others(&own, &json!({})), own);
    }
}
