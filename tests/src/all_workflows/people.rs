//! Actors other than Polity: a MachineSet, the controllers of a workload, and people.

use polity_core::contract::ObjectRef;
use polity_core::object::Object;
use serde_json::{Value, json};

use super::rules::Rules;
use super::scenario::{Deed, Workflow};
use super::setting::{self, PODS, SHIFTY, TENANTS, TRUSTED, WORKERS, access_key, capv_machine, mcm_machine};
use super::snapshot::{Snapshot, is_deleting, is_worker, phase};
use super::{orb, routers};
use crate::host_fixture::reference;
use crate::host_harness::Site;
use crate::host_harness::mcm::DEPLOYMENT;
use crate::simulation::bindings::MACHINES as CAPV;
use crate::simulation::seed::Chance;

/// The people, and what they did so far.
pub struct People {
    workflows: &'static [Workflow],
    chance: Chance,
    machines: u64,
    pods: u64,
    deeds: u64,
}

impl People {
    /// People who have not done anything yet.
    pub fn new(workflows: &'static [Workflow], chance: Chance) -> Self {
        People {
            workflows,
            chance,
            machines: 0,
            pods: 0,
            deeds: 0,
        }
    }

    /// Runs the controllers: they keep the wanted number of machines and pods. Returns whether they did anything.
    pub async fn keep_going(&mut self, site: &Site, snapshot: &Snapshot) -> bool {
        let mut busy = self.look_after_routers(site, snapshot).await;
        if self.workflows.contains(&Workflow::McmMachines) {
            busy |= self.machine_sets(site, snapshot).await;
        }
        self.workload(site, snapshot).await || busy
    }

    /// A person reads the traffic of a router that was given up, which starts it again.
    async fn look_after_routers(&mut self, site: &Site, snapshot: &Snapshot) -> bool {
        let mut busy = false;
        for router in snapshot
            .routers
            .iter()
            .filter(|router| routers::is_given_up(router))
        {
            self.deeds += 1;
            let name = router["metadata"]["name"].as_str().unwrap_or_default();
            routers::act(site, name, routers::Deed::Read, self.deeds).await;
            busy = true;
        }
        busy
    }

    /// Deletes and replaces machines that were given up.
    async fn machine_sets(&mut self, site: &Site, snapshot: &Snapshot) -> bool {
        let (mut there, mut busy) = (0, false);
        for machine in snapshot.mcm.iter().filter(|machine| !is_deleting(machine)) {
            if phase(machine) == Some("Failed") {
                let _ = site.delete(&named(machine), None).await;
                busy = true;
            } else if is_worker(machine) {
                there += 1;
            }
        }
        let mut missing = Vec::new();
        for _ in there..WORKERS {
            self.machines += 1;
            let name = format!("{DEPLOYMENT}-{}", self.machines);
            missing.push(mcm_machine(TRUSTED, &name, DEPLOYMENT));
        }
        for tenant in TENANTS {
            let single = |machine: &Value| machine["metadata"]["namespace"] == tenant && !is_worker(machine);
            if !snapshot.mcm.iter().any(single) {
                missing.push(mcm_machine(tenant, "single", "singles"));
            }
        }
        for machine in &missing {
            let created = site.cluster.apply(machine).await;
            created.expect("a machine is created");
        }
        busy || !missing.is_empty()
    }

    /// Deletes the pods of nodes that are gone, and creates new ones where there is room.
    async fn workload(&mut self, site: &Site, snapshot: &Snapshot) -> bool {
        let (mut there, mut busy) = (0, false);
        for pod in snapshot.pods.iter() {
            match snapshot.node(&pod["spec"]["nodeName"]) {
                None => {
                    let _ = site.delete(&named(pod), Some(0)).await;
                    busy = true;
                }
                Some(_) => there += usize::from(!is_deleting(pod)),
            }
        }
        let room: Vec<&Value> = snapshot.nodes.iter().filter(|node| has_room(node)).collect();
        if room.is_empty() {
            return busy;
        }
        for _ in there..PODS {
            busy = true;
            self.pods += 1;
            let name = format!("web-{}", self.pods);
            let node = &self.chance.pick(&room)["metadata"]["name"];
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": TRUSTED, "name": name, "labels": {"app": "web"}},
                "spec": {"nodeName": node, "terminationGracePeriodSeconds": 5, "containers": [{"name": "web", "image": "web"}]},
            });
            site.cluster.apply(&pod).await.expect("a pod is created");
            let status =
                json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            let pod = reference("v1", "Pod", Some(TRUSTED), &name);
            site.patch(&pod, Some("status"), status)
                .await
                .expect("it is there");
        }
        busy
    }

    /// Performs an action. People accept refusals of the API server.
    pub async fn act(&mut self, site: &Site, rules: &mut Rules, deed: Deed) {
        self.deeds += 1;
        match deed {
            Deed::Trust(trusted) => {
                let value = if trusted { json!("yes") } else { Value::Null };
                let patch = json!({"metadata": {"labels": {setting::TRUST: value}}});
                let namespace = reference("v1", "Namespace", None, SHIFTY);
                site.patch(&namespace, None, patch).await.expect("it is there");
                rules.trusted(site.clock.now().unix.0, trusted);
            }
            Deed::Taint => self.taint(site, rules).await,
            Deed::Template => {
                if let Some(machine) = self.worker(site).await {
                    let value = format!("v{}", self.deeds);
                    let taint =
                        json!({"key": "team.example.com/kept", "value": value, "effect": "PreferNoSchedule"});
                    let template =
                        json!({"metadata": {"labels": {"team": value}}, "spec": {"taints": [taint]}});
                    let patch = json!({"spec": {"nodeTemplate": template}});
                    let _ = site.patch(&machine, None, patch).await;
                }
            }
            Deed::DeleteWorker => {
                if let Some(machine) = self.worker(site).await {
                    let _ = site.delete(&machine, None).await;
                }
            }
            Deed::ForceDelete => {
                if let Some(machine) = self.worker(site).await {
                    let label = json!({"metadata": {"labels": {"force-deletion": "true"}}});
                    let _ = site.patch(&machine, None, label).await;
                    let _ = site.delete(&machine, None).await;
                }
            }
            Deed::DeleteVm(tenant) => {
                let _ = site
                    .delete(&reference(CAPV, "Machine", Some(tenant), "vm"), None)
                    .await;
            }
            Deed::CreateVm(tenant) => {
                let _ = site.cluster.apply(&capv_machine(tenant, "vm")).await;
            }
            Deed::Rotate => {
                let key = access_key(&format!("number {}", self.deeds));
                site.cluster.apply(&key).await.expect("a Secret is written");
            }
            Deed::Orb(deed) => orb::act(site, rules, &mut self.chance, deed, self.deeds).await,
            Deed::Router(name, deed) => routers::act(site, name, deed, self.deeds).await,
            Deed::CutWatches(_) | Deed::Crash(_) | Deed::Stop(_) | Deed::CrashAgent(_) => {}
        }
    }

    /// A worker, if there is one.
    async fn worker(&mut self, site: &Site) -> Option<ObjectRef> {
        let snapshot = Snapshot::of(site, self.workflows).await;
        let workers: Vec<&Value> = snapshot.workers().filter(|worker| !is_deleting(worker)).collect();
        (!workers.is_empty()).then(|| named(self.chance.pick(&workers)))
    }

    /// Adds a taint to those of a node, as kubectl does, with the read version as precondition.
    async fn taint(&mut self, site: &Site, rules: &mut Rules) {
        let nodes = site.list("v1", "Node").await;
        if nodes.is_empty() {
            return;
        }
        let all: Vec<&Value> = nodes.iter().collect();
        let node = self.chance.pick(&all);
        let key = format!("people.example.com/{}", self.deeds);
        let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.push(json!({"key": key, "effect": "PreferNoSchedule"}));
        let metadata = &node["metadata"];
        let patch = json!({
            "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "spec": {"taints": taints},
        });
        if site.patch(&named(node), None, patch).await.is_ok() {
            rules.tainted(&metadata["uid"], &key);
        }
    }
}

fn named(object: &Value) -> ObjectRef {
    Object::new(object.clone()).reference()
}

/// Whether the scheduler would bind a pod to this node.
fn has_room(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    ready && node["spec"]["unschedulable"] != true
}
