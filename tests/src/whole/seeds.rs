//! Simulation B: a seed's scenario played to the whole host. What it breaks is found by looking at the cluster and the
//! cloud again and again, as a person would.

use std::collections::BTreeMap;
use std::time::Duration;

use polity::manifests::Manifests;
use polity_clouds::sim::Millis;
use polity_core::call::Write;
use polity_core::contract::{Act, Kind, ObjectDelete, ObjectRef, Precondition};
use serde_json::{Value, json};

use super::{BEGIN, Host, Site};
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
    hosts: Vec<Option<Host>>,
    chance: Chance,
    edits: u64,
}

/// Simulates a seed; what it broke. Returns how many passes there were.
pub async fn run(seed: u64) -> Result<usize, String> {
    World::new(seed, Scenario::of(seed)).play().await
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
            hosts: (0..scenario.hosts).map(|_| None).collect(),
            scenario,
            chance: Chance::new(seed, 7),
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
        let mut passes = 0;
        for (at, action) in actions {
            self.look_until(at).await?;
            passes += self.act(action).await;
        }
        self.look_until(self.scenario.quiet_at).await?;

        self.site.calm();
        let mut left = None;
        for host in std::mem::take(&mut self.hosts).into_iter().flatten() {
            host.wire.troubled(None);
            if let Some(before) = left.replace(host) {
                passes += before.records.lock().map_or(0, |r| r.len());
                before.stop().await;
            }
        }
        let host = left.unwrap_or_else(|| self.site.start());
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
        passes += host.records.lock().map_or(0, |r| r.len());
        host.stop().await;
        Ok(passes)
    }

    /// Starts the hosts that do not run: their supervisor's work.
    fn supervise(&mut self) {
        for host in &mut self.hosts {
            if host.is_none() {
                let new = self.site.start();
                let chance = Chance::new(self.chance.draw(), 1);
                new.wire.troubled(Some((self.scenario.rates, chance)));
                *host = Some(new);
            }
        }
    }

    /// Lets time pass, looking again and again.
    async fn look_until(&mut self, at: u64) -> Result<(), String> {
        while self.site.clock.now().unix < BEGIN + at {
            self.supervise();
            let left = BEGIN + at - self.site.clock.now().unix;
            tokio::time::sleep(LOOK_EVERY.min(Duration::from_millis(left))).await;
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
            // Whoever listed after the VM was seen sees its object, unless the VM went first.
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
        for machine in &machines {
            if machine["status"]["phase"] != "Running" {
                let status = &machine["status"];
                return Err(format!("{} settled at {status}", machine["metadata"]["name"]));
            }
        }
        Ok(())
    }

    /// Does what the scenario says; passes of hosts that ended by it.
    async fn act(&mut self, action: Action) -> usize {
        self.edits += 1;
        let nth = self.edits;
        match action {
            Action::Create(at) => {
                let _ = self.site.cluster.apply(&new_object(&at, nth)).await;
            }
            Action::Delete(at) => self.delete(&at).await,
            Action::Edit(at) => self.patch(&at, None, edit(&at, nth)).await,
            Action::Label(at) => {
                let label = format!("l{nth}");
                self.patch(&at, None, json!({"metadata": {"labels": {label: "x"}}}))
                    .await;
            }
            Action::Meddle(at) => {
                let status = json!({"status": {"addresses": [format!("192.0.2.{nth}")]}});
                self.patch(&at, Some("status"), status).await;
            }
            Action::Request(at) => {
                let nonce = json!({"request.polity.dev/look": nth.to_string()});
                self.patch(&at, None, json!({"metadata": {"annotations": nonce}}))
                    .await;
            }
            Action::CutWatches(index) => {
                if let Some(host) = &self.hosts[index] {
                    host.wire.cut();
                }
            }
            Action::Crash(index) | Action::Pause(index, _) => {
                if let Some(host) = self.hosts[index].take() {
                    let passes = host.records.lock().map_or(0, |r| r.len());
                    host.crash().await;
                    return passes;
                }
            }
            Action::Stop(index) => {
                if let Some(host) = self.hosts[index].take() {
                    let passes = host.records.lock().map_or(0, |r| r.len());
                    host.stop().await;
                    return passes;
                }
            }
            Action::Heartbeat(..) | Action::FallBehind(..) | Action::JumpAhead(_) => {}
        }
        0
    }

    async fn delete(&self, at: &Place) {
        let object = reference(at);
        let Some(found) = self.site.get(&object).await else {
            return;
        };
        let uid = found["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let delete = ObjectDelete {
            object,
            precondition: Precondition {
                uid,
                resource_version: None,
            },
            grace_period_seconds: None,
            propagation_policy: None,
        };
        let _ = self.site.cluster.write(&Write::Act(Act::Delete(delete))).await;
    }

    async fn patch(&self, at: &Place, subresource: Option<&str>, patch: Value) {
        let write = Write::Patch {
            object: reference(at),
            subresource: subresource.map(str::to_owned),
            patch,
        };
        let _ = self.site.cluster.write(&write).await;
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
        | Action::Request(at) => at.0 == "Machine",
        Action::CutWatches(_) | Action::Crash(_) | Action::Stop(_) | Action::Pause(..) => true,
        Action::Heartbeat(..) | Action::FallBehind(..) | Action::JumpAhead(_) => false,
    }
}

fn reference(at: &Place) -> ObjectRef {
    ObjectRef {
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
    use polity_clouds::sim::SimConfig;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_vm_whose_machine_is_gone_is_noticed() {
        let at: Place = ("Machine".into(), "default".into(), "m0".into());
        let mut scenario = Scenario::of(1);
        scenario.cloud = SimConfig::default();
        scenario.actions = vec![(0, Action::Create(at.clone()))];
        let mut world = World::new(1, scenario);
        world.play().await.expect("it runs");

        world.delete(&at).await;
        world
            .patch(&at, None, json!({"metadata": {"finalizers": null}}))
            .await;
        assert_eq!(world.look().await, Err("VM vm-1 of m0 has no object".to_owned()));
    }
}
