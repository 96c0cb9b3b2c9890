//! Simulation B: plays the scenario of a seed to the whole host. It finds broken rules by looking at the cluster and
//! the cloud again and again, as a person would.

use std::collections::BTreeMap;
use std::time::Duration;

use polity::manifests::Manifests;
use polity_core::contract::{Kind, ObjectRef};
use polity_sim::Millis;
use serde_json::{Value, json};

use super::hosts::Hosts;
use super::{BEGIN, Site};
use crate::simulation::bindings::MACHINES;
use crate::simulation::scenario::{Action, Scenario};
use crate::simulation::seed::Chance;
use crate::simulation::store::Place;
use crate::simulation::world::{edit, new_object};

/// Between two looks at what must always hold.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long it may take until everything is settled once nothing goes wrong any more: the longest failure backoff and
/// the longest task, several times over.
const SETTLES_WITHIN: Millis = Millis::seconds(3 * 3_600);

/// What is settled is looked at again within this.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(15 * 60);

/// A world that is being simulated.
struct World {
    site: Site,
    scenario: Scenario,
    hosts: Hosts,
    edits: u64,
}

/// Simulates a seed; what it broke. Returns how many passes there were.
pub async fn run(seed: u64) -> Result<usize, String> {
    World::new(seed, Scenario::small(seed)).play().await
}

/// Governs Machines by the compiled `capv-machine`.
pub fn binding() -> Value {
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": "capv-machine"},
        "spec": {
            "governs": {"apiVersion": MACHINES, "kind": "Machine"},
            "policies": {"lifecycle": {"file": "capv_machine.wasm"}},
            "cloud": {"name": "sim"},
            "grants": [{"cloud": ["vm.*", "task.get"]}],
        },
    })
}

impl World {
    fn new(seed: u64, scenario: Scenario) -> Self {
        let cloud = serde_json::to_value(&scenario.cloud).expect("a configuration is JSON");
        World {
            site: Site::new(seed, Some(cloud)),
            hosts: Hosts::new(scenario.hosts, scenario.rates, Chance::new(seed, 7)),
            scenario,
            edits: 0,
        }
    }

    async fn play(&mut self) -> Result<usize, String> {
        let manifests = Manifests {
            bindings: vec![binding()],
            ..Manifests::default()
        };
        self.site.apply(&manifests).await;
        let mut actions = std::mem::take(&mut self.scenario.actions);
        actions.retain(|(at, action)| *at < self.scenario.quiet_at && is_simulated(action));
        for (at, action) in actions {
            self.look_until(at).await?;
            self.act(action).await;
        }
        self.look_until(self.scenario.quiet_at).await?;

        self.site.calm();
        let host = self.hosts.calm(&self.site).await;
        for _ in 0..2 {
            // A VM that somebody took away is missed when its machine is looked at for the next time.
            tokio::time::sleep(LOOKED_AT_WITHIN).await;
            let stuck = self.site.settles(&host, None, SETTLES_WITHIN).await;
            if !stuck.is_empty() {
                return Err(format!("it does not settle: {}", stuck.join("; ")));
            }
        }
        self.look().await?;
        self.compare().await?;
        let passes = self.hosts.news().len() + host.news().len();
        host.stop().await;
        Ok(passes)
    }

    /// Lets time pass, looking again and again.
    async fn look_until(&mut self, at: u64) -> Result<(), String> {
        let end = BEGIN + Duration::from_millis(at);
        while self.site.clock.now().unix < end {
            self.hosts.supervise(&self.site);
            let left = end - self.site.clock.now().unix;
            tokio::time::sleep(LOOK_EVERY.min(left)).await;
            self.look().await?;
        }
        Ok(())
    }

    /// At most one VM for a primary, and none without one.
    async fn look(&self) -> Result<(), String> {
        let vms = self.site.vms();
        let mut of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for vm in &vms {
            of.entry(&vm.owner).or_default().push(&vm.id);
        }
        if let Some((owner, vms)) = of.iter().find(|(_, vms)| vms.len() > 1) {
            return Err(format!("{owner} has the VMs {}", vms.join(", ")));
        }
        if vms.is_empty() {
            return Ok(());
        }
        let machines = self.site.list(MACHINES, "Machine").await;
        for vm in &vms {
            // The list was read after the VM was seen, so it contains the object of the VM, unless the VM went first.
            let alive = machines.iter().any(|m| m["metadata"]["uid"] == *vm.owner);
            if !alive && self.site.vms().iter().any(|still| still.id == vm.id) {
                return Err(format!("VM {} of {} has no object", vm.id, vm.name));
            }
        }
        Ok(())
    }

    /// Once everything is settled: each machine runs with its VM.
    async fn compare(&self) -> Result<(), String> {
        let vms = self.site.vms();
        let machines = self.site.list(MACHINES, "Machine").await;
        if vms.len() != machines.len() {
            return Err(format!("{} machines have {} VMs", machines.len(), vms.len()));
        }
        for machine in machines.iter() {
            if machine["status"]["phase"] != "Running" {
                let status = &machine["status"];
                return Err(format!("{} settled at {status}", machine["metadata"]["name"]));
            }
        }
        Ok(())
    }

    /// Does what the scenario says; what the API server refuses is as well.
    async fn act(&mut self, action: Action) {
        self.edits += 1;
        let (site, nth) = (&self.site, self.edits);
        match action {
            Action::Create(at) => {
                let _ = site.cluster.apply(&new_object(&at, nth)).await;
            }
            Action::Delete(at) => {
                let _ = site.delete(&reference(&at), None).await;
            }
            Action::Edit(at) => {
                let _ = site.patch(&reference(&at), None, edit(&at, nth)).await;
            }
            Action::Label(at) => {
                let label = format!("l{nth}");
                let patch = json!({"metadata": {"labels": {label: "x"}}});
                let _ = site.patch(&reference(&at), None, patch).await;
            }
            Action::Meddle(at) => {
                let status = json!({"status": {"addresses": [format!("192.0.2.{nth}")]}});
                let _ = site.patch(&reference(&at), Some("status"), status).await;
            }
            Action::Patch(at, subresource, patch) => {
                let _ = site.patch(&reference(&at), subresource, patch).await;
            }
            Action::Request(at) => {
                let nonce = json!({"request.polity.dev/look": nth.to_string()});
                let patch = json!({"metadata": {"annotations": nonce}});
                let _ = site.patch(&reference(&at), None, patch).await;
            }
            Action::CutWatches(index) => self.hosts.cut_watches(index),
            Action::Crash(index) | Action::Pause(index, _) => self.hosts.crash(index).await,
            Action::Stop(index) => self.hosts.stop(index).await,
            _ => {}
        }
    }
}

/// The whole host knows Machines, and its clocks are the runtime's.
fn is_simulated(action: &Action) -> bool {
    match action {
        Action::Create(at)
        | Action::Delete(at)
        | Action::Edit(at)
        | Action::Label(at)
        | Action::Meddle(at)
        | Action::Patch(at, ..)
        | Action::Request(at) => at.0 == "Machine",
        Action::CutWatches(_) | Action::Crash(_) | Action::Stop(_) | Action::Pause(..) => true,
        _ => false,
    }
}

fn reference(at: &Place) -> ObjectRef {
    ObjectRef {
        cluster: None,
        kind: Kind {
            api_version: MACHINES.into(),
            kind: at.0.clone(),
        },
        namespace: Some(at.1.clone()),
        name: at.2.clone(),
    }
}

#[cfg(test)]
mod tests {
    use polity_sim::SimConfig;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_vm_whose_machine_is_gone_is_noticed() {
        let at: Place = ("Machine".into(), "default".into(), "m0".into());
        let mut scenario = Scenario::small(1);
        scenario.cloud = SimConfig::default();
        scenario.actions = vec![(0, Action::Create(at.clone()))];
        let mut world = World::new(1, scenario);
        world.play().await.expect("it runs");

        let machine = reference(&at);
        world.site.delete(&machine, None).await.expect("it is there");
        let without = json!({"metadata": {"finalizers": null}});
        world
            .site
            .patch(&machine, None, without)
            .await
            .expect("it is there");
        assert_eq!(world.look().await, Err("VM vm-1 of m0 has no object".to_owned()));
    }
}
