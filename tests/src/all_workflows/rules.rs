//! The rules that must hold. They check the cluster, the cloud and every pass.

mod nodes;
mod orb;
mod routers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::LazyLock;

use polity_core::contract::{Act, Code, Next, Request, Role, Verdict};
use polity_core::record::PassRecord;
use polity_sim::{Happened, Simulated as _};
use serde_json::Value;

use super::scenario::Workflow;
use super::setting::{SHIFTY, SHUT, TRUSTED, WORKERS};
use super::snapshot::{Snapshot, is_deleting};
use crate::host_fixture::condition_of;
use crate::host_harness::story::edges;
use crate::host_harness::{BEGIN, Site};

/// How long acts for a tenant are still allowed after it lost its trust. In this time every host sees the change, and
/// calls in flight arrive.
const HEARD_WITHIN: u64 = 180_000;

/// The number of passes in the message of a broken rule.
const LINES: usize = 40;

/// The rules, and what they have seen so far.
pub struct Rules {
    passes: usize,
    /// The last passes, one line each.
    trace: VecDeque<String>,
    /// Everything that ever was a machine: its namespace, by uid.
    machines: BTreeMap<String, String>,
    effects: usize,
    /// Since when the shifty tenant is not trusted.
    closed: Option<u64>,
    nodes: nodes::Rules,
    orb: orb::Rules,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            passes: 0,
            trace: VecDeque::new(),
            machines: BTreeMap::new(),
            effects: 0,
            closed: Some(BEGIN.0),
            nodes: nodes::Rules::default(),
            orb: orb::Rules::default(),
        }
    }
}

/// `Err` is the broken rule, in words.
type Verdicts = Result<(), String>;

/// Every edge of the policies in this simulation.
static EDGES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let manifests = [
        capv_machine::manifest(),
        mcm_machine::manifest(),
        mcm_machineclass::manifest(),
        mcm_machineset::manifest(),
        mcm_safety::manifest(),
        capa_identity::manifest(),
        orbiter::manifest(),
        orbiter_node_agent::manifest(),
        rug_router::manifest(),
    ];
    let edges = manifests
        .into_iter()
        .flat_map(|manifest| manifest.into_contract().edges);
    edges.map(|edge| edge.id).collect()
});

impl Rules {
    /// The number of passes.
    pub fn passes(&self) -> usize {
        self.passes
    }

    /// The last passes as text.
    pub fn trace(&self) -> String {
        self.trace.iter().map(|line| format!("\n{line}")).collect()
    }

    /// Stores that the shifty tenant is trusted, or no longer trusted, from now on.
    pub fn trusted(&mut self, now: u64, trusted: bool) {
        self.closed = match (trusted, self.closed) {
            (true, _) => None,
            (false, closed) => closed.or(Some(now)),
        };
    }

    /// Stores that a person added this taint to the node with this uid and got a success as answer.
    pub fn tainted(&mut self, uid: &Value, key: &str) {
        self.nodes.tainted(uid, key);
    }

    /// The nodes of the Orb that people have cordoned, by uid.
    pub fn cordoned(&mut self) -> &mut BTreeSet<String> {
        &mut self.orb.cordoned
    }

    /// Checks all rules.
    pub fn look(&mut self, site: &Site, snapshot: &Snapshot, news: &[PassRecord]) -> Verdicts {
        for pass in news {
            self.passed(pass)?;
        }
        self.vms(site, snapshot)?;
        self.effects(site)?;
        self.nodes.look(snapshot)?;
        self.orb.look(snapshot)
    }

    fn passed(&mut self, pass: &PassRecord) -> Verdicts {
        self.passes += 1;
        if self.trace.len() == LINES {
            self.trace.pop_front();
        }
        let (at, notes) = ((pass.ended.unix - BEGIN).as_secs(), edges(pass));
        self.trace.push_back(format!(
            "{at} s {} {:?} {:?}: {notes}",
            pass.key, pass.outcome, pass.next
        ));
        let denied = pass
            .roles
            .iter()
            .any(|role| role.verdict == Some(Verdict::Denied));
        let lifecycle = pass.roles.iter().find(|role| role.role == Role::Lifecycle);
        if denied && let Some(lifecycle) = lifecycle {
            let acts = lifecycle
                .journal
                .iter()
                .filter(|entry| matches!(entry.request, Request::Act(Act::Cloud(_))));
            return Err(format!(
                "{} was denied, and its lifecycle ran with {} acts",
                pass.key,
                acts.count()
            ));
        }
        if let Some(Next::Retry {
            failure: Some(failure),
            ..
        }) = &pass.next
            && failure.code == Code::Internal
            && failure.message.starts_with("the answer is not what")
        {
            return Err(format!(
                "{} was answered what its policy cannot read: {}",
                pass.key, failure.message
            ));
        }
        let notes: BTreeSet<&str> = pass.notes().collect();
        if let Some(unknown) = notes.iter().find(|note| !EDGES.contains(**note)) {
            return Err(format!("{} took {unknown}, which no policy knows", pass.key));
        }
        self.nodes.passed(pass, &notes)
    }

    /// At most one VM for a machine, a router or a name in a pool, and none without an object.
    fn vms(&mut self, site: &Site, snapshot: &Snapshot) -> Verdicts {
        let mut of: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for vm in snapshot.vms.iter() {
            of.entry((&vm.owner, &vm.name)).or_default().push(&vm.id);
        }
        if let Some(((owner, name), vms)) = of.iter().find(|(_, vms)| vms.len() > 1) {
            return Err(format!("{name} of {owner} has the VMs {}", vms.join(", ")));
        }
        let machines = || {
            snapshot
                .capv
                .iter()
                .chain(snapshot.mcm.iter())
                .chain(snapshot.orbs.iter())
                .chain(snapshot.routers.iter())
        };
        for machine in machines() {
            let metadata = &machine["metadata"];
            self.machines
                .insert(text(&metadata["uid"]), text(&metadata["namespace"]));
        }
        for vm in snapshot.vms.iter() {
            // The list was read after the VM was seen. So it contains the object of the VM, unless the VM was
            // removed first.
            let alive = machines().any(|machine| machine["metadata"]["uid"] == *vm.owner);
            if !alive && site.vms().iter().any(|still| still.id == vm.id) {
                return Err(format!("VM {} of {} has no object", vm.id, vm.name));
            }
        }
        Ok(())
    }

    /// Nothing changes in any account for a tenant who is not trusted.
    fn effects(&mut self, site: &Site) -> Verdicts {
        let seen = self.effects;
        let clouds = site.clouds.all();
        let Some(sim) = clouds.iter().find_map(|cloud| cloud.simulation()) else {
            return Ok(());
        };
        let effects = sim.inspect(|sim, _| sim.effects()[seen..].to_vec());
        self.effects += effects.len();
        for effect in effects {
            // A task was begun before it ends.
            let begun = match effect.what {
                Happened::Submitted => true,
                Happened::Done => effect.task.is_none(),
                Happened::Failed(_) | Happened::Intervened(_) => false,
            };
            let tenant = self.machines.get(&effect.owner).map_or("", String::as_str);
            let closed = match tenant {
                SHUT => Some(BEGIN.0),
                SHIFTY => self.closed.map(|since| since + HEARD_WITHIN),
                _ => None,
            };
            if begun && closed.is_some_and(|since| effect.at >= since) {
                return Err(format!(
                    "{} was done for {tenant}, which is denied",
                    effect.operation
                ));
            }
        }
        Ok(())
    }

    /// Checks the settled state: trusted tenants have what they want, and the others have nothing new.
    pub fn compare(&self, snapshot: &Snapshot, workflows: &[Workflow]) -> Verdicts {
        self.orb.compare(snapshot)?;
        routers::compare(snapshot)?;
        let workers = snapshot.workers().count();
        if workflows.contains(&Workflow::McmMachines) && workers != WORKERS {
            return Err(format!("there are {workers} workers"));
        }
        for cluster in snapshot.clusters.iter() {
            self.settled(cluster, "no phase", |_| true)?;
        }
        let fine = |phase: Option<&str>| phase == Some("Running");
        for machine in snapshot.capv.iter() {
            self.settled(machine, "status.phase", fine)?;
        }
        for machine in snapshot.mcm.iter() {
            self.settled(machine, "status.currentStatus.phase", fine)?;
        }
        Ok(())
    }

    fn settled(&self, object: &Value, phase: &str, fine: impl Fn(Option<&str>) -> bool) -> Verdicts {
        let metadata = &object["metadata"];
        let tenant = &metadata["namespace"];
        let trusted = tenant == TRUSTED || tenant == SHIFTY && self.closed.is_none();
        let allowed = condition_of(object, "PrincipalUsageAllowed").map_or(&Value::Null, |c| &c["status"]);
        let phase = polity_core::projection::get(object, phase).and_then(Value::as_str);
        let holds = if trusted {
            allowed == "True" && fine(phase) && !is_deleting(object)
        } else {
            allowed == "False" && (tenant != SHUT || phase.is_none())
        };
        if holds {
            Ok(())
        } else {
            let (kind, name, status) = (&object["kind"], &metadata["name"], &object["status"]);
            Err(format!("{kind} {name} of {tenant} settled at {status}"))
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
