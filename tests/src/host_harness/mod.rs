//! The whole host in one thread on a paused runtime: engine, kube client, embedded API, sandbox and simulated cloud,
//! as `polity run` puts them together. Hours pass in an instant, and nothing waits in real time but the compiler of
//! policies.
//!
//! # Flow
//!
//! A [`Site`] is what outlives hosts: a cluster, a cloud, a folder of policies. [`Site::start`] starts a [`Host`] on it
//! through a [`Wire`], which can fail. Everything is on the runtime's timer, so a test runs under
//! `#[tokio::test(start_paused = true)]`.
//!
//! # Caveats
//!
//! A kube client and a runtime take part: the same seed makes the same world, but not the same bytes of a recording.

pub mod agents;
pub mod backend;
pub mod capa;
pub mod hosts;
pub mod mcm;
pub mod orbiter;
pub mod outputs;
pub mod rug;
pub mod seeds;
pub mod story;
pub mod wire;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use polity::clock::Clock;
use polity::clouds::Clouds;
use polity::config::HostConfig;
use polity::connections::Connections;
use polity::engine::Handle;
use polity::host;
use polity::install::Target;
use polity::manifests::Manifests;
use polity::observer::Observer;
use polity::overview::Overview;
use polity::policies::Policies;
use polity::recording::Recorder;
use polity::scenario::{Running, Scenario};
use polity::secrets::ClusterSecrets;
use polity::selection::Selection;
use polity::settled::Settling;
use polity_cluster::Cluster;
use polity_core::binding::{Binding, PolicyId};
use polity_core::call::Write;
use polity_core::contract::{
    Act, Answer, Kind, ListQuery, ObjectDelete, ObjectQuery, ObjectRef, Precondition, Question,
};
use polity_core::controller::Guards;
use polity_core::object::Object;
use polity_core::record::PassRecord;
use polity_core::time::Unix;
use polity_sandbox::{Policy, Sandbox};
use polity_sim::{Effect, Millis, PoolMachine, Sim, Simulated as _, VmView};
use polity_standalone::{Api, Store};
use serde_json::Value;

use crate::evidence::{Checker, Notes};
use crate::guests;
use wire::Wire;

/// 2026-01-01T00:00:00Z: when worlds begin.
pub const BEGIN: Unix = Unix(1_767_225_600_000);

/// The lease of hosts.
pub const LEASE: (&str, &str) = ("kube-system", "polity");

/// What was listed last, by `apiVersion` and kind, and the revision of the API server at that time.
type Lists = BTreeMap<(String, String), (u64, Arc<Vec<Value>>)>;

/// What outlives hosts. In the end, each pass of its hosts must have done what it noted.
pub struct Site {
    /// The time of everything here.
    pub clock: Arc<Clock>,
    /// The API server, without anything between.
    pub cluster: Arc<Cluster>,
    /// The clouds.
    pub clouds: Arc<Clouds>,
    client: kube::Client,
    hosts: kube::Client,
    store: Option<Arc<Store>>,
    lists: RefCell<Lists>,
    policies: Arc<Policies>,
    lives: Cell<u32>,
    recordings: Option<std::path::PathBuf>,
    guards: Guards,
    notes: Notes,
}

/// What somebody who looks many times has seen of an API server.
pub struct Changes {
    store: Option<Arc<Store>>,
    seen: Option<u64>,
}

impl Changes {
    /// Whether there may be something new since this was asked last. Of a real API server only a request tells.
    pub fn any(&mut self) -> bool {
        let now = self.store.as_ref().map(|store| store.revision());
        let before = std::mem::replace(&mut self.seen, now);
        now.is_none() || now != before
    }
}

/// A host process on a site.
pub struct Host {
    /// Reaches its engine.
    pub handle: Handle,
    /// What its passes came to.
    pub overview: Arc<Overview>,
    /// Its passes, in the order in which they ended.
    pub records: Arc<Mutex<Vec<PassRecord>>>,
    /// What lies between it and the API server.
    pub wire: Wire,
    running: host::Running,
}

impl Site {
    /// A cluster with nothing in it, a folder with the compiled policies, and a cloud as `sim` configures it.
    pub fn new(seed: u64, sim: Option<Value>) -> Self {
        let clock = Arc::new(Clock::of_runtime(BEGIN));
        let time = clock.clone();
        let now: polity_standalone::Clock =
            Arc::new(move || UNIX_EPOCH + Duration::from_millis(time.now().unix.0));
        let store = Arc::new(Store::in_memory(now, u128::from(seed).to_be_bytes()));
        let client = kube::Client::new(Api::new(store.clone()), "default");
        let mut site = Site::on(client.clone(), client, clock, seed, sim);
        site.store = Some(store);
        site
    }

    /// As [`Site::new`], with the cloud in this data folder, and the objects too where `objects` says so.
    ///
    /// # Panics
    /// If something in the folder cannot be opened.
    pub fn kept(seed: u64, sim: Option<Value>, data: &Arc<polity::Data>, objects: bool) -> Self {
        let clock = Arc::new(Clock::of_runtime(BEGIN));
        let folder = objects.then_some(&**data);
        let api = polity::standalone::open(&clock, folder, None).expect("an API server");
        let client = kube::Client::new(api, "default");
        let mut site = Site::on(client.clone(), client, clock.clone(), seed, sim.clone());
        let secrets = Arc::new(ClusterSecrets::new(site.cluster.clone()));
        site.clouds = Arc::new(Clouds::new(clock, secrets, Some(data.clone()), seed, sim));
        site
    }

    /// A folder with the compiled policies and a cloud as `sim` configures it, on somebody else's cluster. Its objects
    /// have the times of that cluster, so `clock` should too. Hosts speak to it by `hosts`, everybody else by `client`.
    pub fn on(
        client: kube::Client,
        hosts: kube::Client,
        clock: Arc<Clock>,
        seed: u64,
        sim: Option<Value>,
    ) -> Self {
        let policies = Policies::new(
            guests::sandbox().clone(),
            guests::folder(),
            false,
            Box::new(|_| {}),
        );
        let cluster = Arc::new(Cluster::new(client.clone(), LEASE));
        let secrets = Arc::new(ClusterSecrets::new(Arc::new(Cluster::new(hosts.clone(), LEASE))));
        let clouds = Arc::new(Clouds::new(clock.clone(), secrets, None, seed, sim));
        Site {
            cluster,
            clouds,
            clock,
            client,
            hosts,
            store: None,
            lists: RefCell::default(),
            policies: Arc::new(policies),
            lives: Cell::new(0),
            recordings: None,
            guards: Guards::default(),
            notes: Notes::default(),
        }
    }

    /// Speaks to the API server, as nobody in particular.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Hosts started from now on lack some guards.
    pub fn without(&mut self, guards: Guards) {
        self.guards = guards;
    }

    /// Hosts started from now on load policies from this folder.
    pub fn load_from(&mut self, folder: &Path) {
        self.load_with(guests::sandbox().clone(), folder);
    }

    /// Hosts started from now on load policies from this folder, by a sandbox of their own.
    pub fn load_with(&mut self, sandbox: Arc<Sandbox>, folder: &Path) {
        self.policies = Arc::new(Policies::new(sandbox, folder, false, Box::new(|_| {})));
    }

    /// Hosts started from now on reach clouds through the connections of the cluster, too. To be called
    /// once it is said where policies and drivers are loaded from.
    pub fn connect(&mut self) {
        let secrets = Arc::new(ClusterSecrets::new(self.cluster.clone()));
        let (cluster, policies, clock) = (self.cluster.clone(), self.policies.clone(), self.clock.clone());
        let connections = Connections::new(cluster, policies, clock, secrets, 1, Vec::new());
        let connections = Arc::new(connections.used_by("replica", Selection::default()));
        connections.follow();
        self.clouds = Arc::new((*self.clouds).clone().with_connections(connections));
    }

    /// Hosts started from now on record every pass into this folder.
    pub fn record(&mut self, folder: &Path) {
        self.recordings = Some(folder.to_owned());
    }

    /// Applies manifests as `polity run` does.
    ///
    /// # Panics
    /// If the API server takes one of them amiss.
    pub async fn apply(&self, manifests: &Manifests) {
        let said = self.try_apply(manifests, Target::Standalone).await;
        assert_eq!(said.expect("the manifests are applied"), [""; 0]);
        for cloud in self.clouds.all() {
            if let Some(sim) = cloud.simulation() {
                sim.inspect(|sim, _| sim.remember_effects());
            }
        }
    }

    /// The same, where something may be wrong with them; what `polity run` says meanwhile.
    ///
    /// # Errors
    /// What ends `polity run`.
    pub async fn try_apply(&self, manifests: &Manifests, target: Target) -> Result<Vec<String>, String> {
        let said = Mutex::new(Vec::new());
        let says = |message: &str| said.lock().expect("a lock").push(message.to_owned());
        let applied = manifests.apply(&self.cluster, &self.policies, &self.clouds, target, &says);
        applied.await.map_err(|e| format!("{e:#}"))?;
        Ok(said.into_inner().expect("a lock"))
    }

    /// Starts a host.
    pub fn start(&self) -> Host {
        self.process(self.hosts.clone(), None)
    }

    /// Starts a host with this one binding of its own, as `polity node-agent` is one.
    pub fn start_agent(&self, binding: Value) -> Host {
        self.start_agent_by(self.hosts.clone(), binding)
    }

    /// The same, which speaks to the API server by this client.
    pub fn start_agent_by(&self, client: kube::Client, binding: Value) -> Host {
        self.process(client, Some(local(binding)))
    }

    fn process(&self, client: kube::Client, local: Option<Object>) -> Host {
        let (overview, records) = (
            Arc::new(Overview::default()),
            Arc::<Mutex<Vec<PassRecord>>>::default(),
        );
        let recorder = self
            .recordings
            .as_deref()
            .map(|folder| Recorder::open(folder, true, "simulated").expect("a folder to record into"));
        let watcher = Watcher {
            overview: overview.clone(),
            records: records.clone(),
            recorder,
            notes: self.notes.checker(),
        };
        let (running, wire) = self.run(client, 0, Box::new(watcher), local);
        Host {
            handle: running.handle().clone(),
            overview,
            records,
            wire,
            running,
        }
    }

    /// Starts a host with so many threads for policies, which `observer` sees.
    pub fn drive(&self, threads: usize, observer: Box<dyn Observer>) -> (host::Running, Wire) {
        self.run(self.hosts.clone(), threads, observer, None)
    }

    fn run(
        &self,
        client: kube::Client,
        threads: usize,
        observer: Box<dyn Observer>,
        local: Option<Object>,
    ) -> (host::Running, Wire) {
        let life = self.lives.get() + 1;
        self.lives.set(life);
        let wire = Wire::new(client);
        let outputs = wire.outputs().clone();
        let clouds = self.clouds.reached_through(move |cloud| outputs.counted(cloud));
        let config = HostConfig {
            identity: format!("host-{life}"),
            clock: self.clock.clone(),
            cluster: Arc::new(Cluster::new(wire.client(), LEASE)),
            clouds: Arc::new(clouds),
            policies: self.policies.clone(),
            threads,
            observer,
            alone: local.is_some(),
            local: local.map(|binding| vec![binding]),
            selection: Selection::default(),
            // The kubelets of the site outlive its hosts.
            beside: None,
        };
        let running = host::Host::start_unguarded(config, self.guards);
        wire.outputs().are_of(running.abort_handle());
        (running, wire)
    }

    /// Plays the kubelets of the simulated cloud's machines from now on.
    pub fn play_kubelets(&self) {
        let (clock, cluster, clouds) = (self.clock.clone(), self.cluster.clone(), self.clouds.clone());
        tokio::spawn(polity::sim::play_kubelets(clock, cluster, clouds));
    }

    /// Starts what a scenario says of objects.
    pub async fn play(&self, scenario: &Scenario) -> Running {
        scenario
            .start(&self.clock, &self.cluster, Target::Standalone, Arc::new(|_| {}))
            .await
    }

    /// Waits until everything is settled for this host and the scenario has nothing left to do; what is stuck after
    /// `deadline`.
    pub async fn settles(&self, host: &Host, running: Option<&Running>, deadline: Millis) -> Vec<String> {
        let settling = Settling {
            handle: &host.handle,
            overview: &host.overview,
            clouds: &self.clouds,
            running,
            is_open: true,
        };
        let settled = settling.wait(&self.clock, deadline).await;
        settled.err().map_or_else(Vec::new, |not| not.stuck)
    }

    /// Looks into the simulated cloud; the default while it is not open.
    pub fn inspect<T: Default>(&self, look: impl FnOnce(&mut Sim, u64) -> T) -> T {
        let clouds = self.clouds.all();
        let sim = clouds.iter().find_map(|cloud| cloud.simulation());
        sim.map(|sim| sim.inspect(look)).unwrap_or_default()
    }

    /// The VMs of the simulated cloud; none while it is not open.
    pub fn vms(&self) -> Vec<VmView> {
        self.inspect(|sim, now| sim.vms(now))
    }

    /// The machines of its pools, the oldest first.
    pub fn pool_machines(&self) -> Vec<PoolMachine> {
        self.inspect(|sim, now| sim.pool_machines(now))
    }

    /// Everything that happened in the simulated cloud since its bindings were applied, in order.
    pub fn effects(&self) -> Vec<Effect> {
        self.inspect(|sim, _| sim.effects().to_vec())
    }

    /// Nothing goes wrong in the cloud any more.
    pub fn calm(&self) {
        for cloud in self.clouds.all() {
            if let Some(sim) = cloud.simulation() {
                sim.inspect(|sim, _| sim.stop_faults());
            }
        }
    }

    /// For who looks many times: says before each look whether it can show anything new.
    pub fn changes(&self) -> Changes {
        Changes {
            store: self.store.clone(),
            seen: None,
        }
    }

    /// The objects of a kind. They are not read again as long as nothing in the API server has changed.
    ///
    /// # Panics
    /// If they cannot be listed.
    pub async fn list(&self, api_version: &str, kind: &str) -> Arc<Vec<Value>> {
        let Some(revision) = self.store.as_ref().map(|store| store.revision()) else {
            return Arc::new(list(&self.cluster, api_version, kind).await);
        };
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some((at, objects)) = self.lists.borrow().get(&key)
            && *at == revision
        {
            return objects.clone();
        }
        let objects = Arc::new(list(&self.cluster, api_version, kind).await);
        self.lists.borrow_mut().insert(key, (revision, objects.clone()));
        objects
    }

    /// An object; none if there is none.
    pub async fn get(&self, object: &ObjectRef) -> Option<Value> {
        let query = ObjectQuery {
            object: object.clone(),
            projection: Vec::new(),
            latest: true,
        };
        self.cluster.read(&Question::Object(query)).await.ok()
    }

    /// Somebody merges this into an object or its subresource.
    ///
    /// # Errors
    /// What the API server has against it.
    pub async fn patch(&self, object: &ObjectRef, subresource: Option<&str>, patch: Value) -> Answer {
        let write = Write::Patch {
            object: object.clone(),
            subresource: subresource.map(str::to_owned),
            precondition: None,
            patch,
        };
        self.cluster.write(&write).await
    }

    /// Somebody deletes an object as it stands now, if it is there.
    ///
    /// # Errors
    /// What the API server has against it.
    pub async fn delete(&self, object: &ObjectRef, grace_period_seconds: Option<u32>) -> Answer {
        let Some(found) = self.get(object).await else {
            return Ok(Value::Null);
        };
        let delete = ObjectDelete {
            object: object.clone(),
            precondition: Precondition {
                uid: Object::new(found).uid().to_owned(),
                resource_version: None,
            },
            grace_period_seconds,
            propagation_policy: None,
        };
        self.cluster.write(&Write::Act(Act::Delete(delete))).await
    }
}

/// The objects of a kind in a cluster.
///
/// # Panics
/// If they cannot be listed.
pub async fn list(cluster: &Cluster, api_version: &str, kind: &str) -> Vec<Value> {
    let query = ListQuery {
        latest: true,
        ..ListQuery::all(Kind {
            api_version: api_version.into(),
            kind: kind.into(),
        })
    };
    match cluster.read(&Question::Objects(query)).await {
        Ok(Value::Array(objects)) => objects,
        other => panic!("a list of {kind} is {other:?}"),
    }
}

impl Host {
    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        self.running.is_finished()
    }

    /// Ends the process at once: what it had sent may still arrive.
    pub fn kill(&self) {
        self.running.abort();
    }

    /// Ends the process at once, and waits until it has ended.
    pub async fn crash(self) {
        self.kill();
        let _ = self.running.stopped().await;
    }

    /// Lets it finish what is in flight and give its lease up.
    pub async fn stop(self) {
        self.handle.stop();
        let _ = self.running.stopped().await;
    }

    /// The passes that ended since this was asked last.
    pub fn news(&self) -> Vec<PassRecord> {
        std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many passes have ended of which nobody has asked.
    pub fn ended(&self) -> usize {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The passes of an object so far.
    pub fn passes_of(&self, name: &str) -> Vec<PassRecord> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |record: &&PassRecord| record.key.name.as_ref() == name;
        records.iter().filter(of).cloned().collect()
    }
}

/// A binding of one process, as it reads it from a file.
fn local(mut binding: Value) -> Object {
    binding["metadata"]["uid"] = "local".into();
    Object::new(binding)
}

struct Watcher {
    overview: Arc<Overview>,
    records: Arc<Mutex<Vec<PassRecord>>>,
    recorder: Option<Recorder>,
    notes: Checker,
}

impl Observer for Watcher {
    fn passed(&mut self, record: &Arc<PassRecord>) {
        self.overview.passed(record, &BTreeMap::new());
        self.notes.passed(record);
        if let Some(recorder) = &mut self.recorder {
            recorder.pass(record).expect("the pass is recorded");
        }
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.push(PassRecord::clone(record));
    }

    fn bound(&mut self, binding: &Binding) {
        if let Some(recorder) = &mut self.recorder {
            let (name, digest) = (binding.name.clone(), binding.digest.to_string());
            let kept = recorder.binding(name, digest, &binding.spec);
            kept.expect("the binding is recorded");
        }
    }

    fn policy_loaded(&mut self, id: &PolicyId, policy: &Policy, bytes: &[u8]) {
        if let Some(recorder) = &mut self.recorder {
            let kept = recorder.policy(&id.0, policy.manifest(), bytes);
            kept.expect("the policy is recorded");
        }
    }

    fn report(&mut self, _: &str) {}
}
