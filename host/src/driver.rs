//! The only event loop: turns outputs of core into futures, and their results into inputs.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use futures::{FutureExt as _, StreamExt as _};
use polity_cluster::{Cluster, MintLimits, Wanted};
use polity_core::binding::PolicyId;
use polity_core::call::{Call, CallId, LeaseRead, Reply, Scope, WatchEvent};
use polity_core::contract::{Answer, Code, Failure, Question, Resolution};
use polity_core::controller::lease::LeaseTrouble;
use polity_core::controller::{Controller, Health, Input, KeyView, Output, RoomSizes};
use polity_core::key::Key;
use polity_core::object::{Object, ResourceVersion};
use polity_core::record::PassRecord;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use crate::bindings::{Bindings, Loaded};
use crate::clock::Clock;
use crate::clouds::Clouds;
use crate::said::Said;
use crate::sim;
use crate::workers::Workers;

/// Inputs that are taken in before the outputs of the first are looked at again: bounds how long one turn takes.
const TURN: usize = 256;
/// Milliseconds of the clock between looks at whether a binding's status has news.
const STATUS_EVERY: u64 = 2_000;

/// Before a watch that came to an end begins again.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Something that reaches the driver.
#[allow(
    clippy::large_enum_variant,
    reason = "most of them are inputs, and each is moved once"
)]
pub(crate) enum Happening {
    Input(Input),
    /// The watch of the bindings said something.
    Bindings(WatchEvent),
    /// A binding's policies are loaded, or cannot be.
    Loaded(Box<Loaded>),
    /// A policy's file changed.
    PoliciesChanged,
    Ask(oneshot::Sender<View>),
}

/// What the driver tells of itself.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Every key, and how it waits.
    pub keys: Vec<(Key, KeyView)>,
    /// How each binding does.
    pub health: BTreeMap<String, Health>,
    /// Bindings that could not be loaded, with the reason.
    pub unloaded: BTreeMap<String, String>,
    /// Bindings that are still being loaded; one while it is not known which there are.
    pub loading: usize,
    /// Bindings whose objects are not all known yet.
    pub unsynced: Vec<String>,
    /// Whether this host holds the lease.
    pub holder: bool,
    /// What stands in the way of holding it.
    pub lease: Option<LeaseTrouble>,
    /// Passes in flight.
    pub passes: usize,
    /// Policies that are held ready: those of the bindings, and those that a pass in flight began with.
    pub policies: Vec<PolicyId>,
}

/// Sees every pass that ends, in order.
pub trait Observer: Send {
    /// A pass ended.
    fn passed(&mut self, record: &PassRecord);
    /// An object is gone, or is governed no more.
    fn forgotten(&mut self, _: &Key) {}
    /// A policy takes part from now on.
    fn policy_loaded(&mut self, id: &PolicyId, policy: &polity_sandbox::Policy, bytes: &[u8]);
    /// A policy takes part no more.
    fn policy_forgotten(&mut self, _: &PolicyId) {}
    /// Something that a person who watches should know.
    fn says(&mut self, message: &str);
}

/// Reaches a running driver.
#[derive(Clone)]
pub struct Handle {
    happenings: mpsc::UnboundedSender<Happening>,
}

impl Handle {
    /// What the driver tells of itself; none once it has stopped.
    pub async fn view(&self) -> Option<View> {
        let (answer, view) = oneshot::channel();
        self.happenings.send(Happening::Ask(answer)).ok()?;
        view.await.ok()
    }

    /// Lets the driver finish what is in flight, give its lease up and stop.
    pub fn stop(&self) {
        let _ = self.happenings.send(Happening::Input(Input::Stop));
    }

    /// Has the driver end what is in flight in the middle, give its lease up and stop.
    pub fn cut(&self) {
        let _ = self.happenings.send(Happening::Input(Input::Cut));
    }
}

/// The event loop and what it drives.
pub struct Driver {
    machine: Controller,
    clock: Arc<Clock>,
    cluster: Arc<Cluster>,
    clouds: Arc<Clouds>,
    bindings: Bindings,
    workers: Workers,
    observer: Box<dyn Observer>,
    happenings: mpsc::UnboundedReceiver<Happening>,
    sender: mpsc::UnboundedSender<Happening>,
    calls: BTreeMap<CallId, AbortHandle>,
    watches: BTreeMap<Scope, AbortHandle>,
    next_status: u64,
    /// What is wrong with the lease and the watches.
    said: Said,
    /// Bindings of this host alone, in place of the cluster's.
    local: Option<Vec<Object>>,
}

/// What a driver is made of.
pub struct Parts {
    /// Differs between processes.
    pub identity: String,
    /// Its clock.
    pub clock: Arc<Clock>,
    /// Its cluster.
    pub cluster: Arc<Cluster>,
    /// Its clouds.
    pub clouds: Arc<Clouds>,
    /// Loads policies.
    pub policies: Arc<crate::policies::Policies>,
    /// Threads that call policies; 0: the driver's own, in order, as a simulation needs it.
    pub threads: usize,
    /// Sees every pass.
    pub observer: Box<dyn Observer>,
}

impl Driver {
    /// A driver, and what reaches it while it runs.
    pub fn new(parts: Parts) -> (Self, Handle) {
        let (sender, happenings) = mpsc::unbounded_channel();
        let driver = Driver {
            machine: Controller::new(parts.identity).with_rooms(rooms(parts.threads)),
            bindings: Bindings::new(
                parts.cluster.clone(),
                parts.policies.clone(),
                parts.clouds.clone(),
                sender.clone(),
            ),
            workers: Workers::start(parts.threads, sender.clone()),
            clock: parts.clock,
            cluster: parts.cluster,
            clouds: parts.clouds,
            observer: parts.observer,
            happenings,
            sender: sender.clone(),
            calls: BTreeMap::new(),
            watches: BTreeMap::new(),
            next_status: 0,
            said: Said::default(),
            local: None,
        };
        (driver, Handle { happenings: sender })
    }

    /// The same driver without a guard of its core.
    #[cfg(feature = "simulation")]
    pub fn with_guards(mut self, guards: polity_core::controller::Guards) -> Self {
        self.machine.set_guards(guards);
        self
    }

    /// The same driver with bindings of its own: the cluster's are left alone, their status is written nowhere, and there
    /// is no lease. Whoever starts it sees to it that nobody else acts on what they govern.
    pub fn with_local_bindings(mut self, bindings: Vec<Object>) -> Self {
        self.local = Some(bindings);
        self
    }

    /// Starts to run, until it is told to stop and nothing is in flight any more.
    pub fn spawn_run(self) -> Running {
        Running {
            task: tokio::spawn(self.run()),
        }
    }

    /// Runs until it is told to stop and nothing is in flight any more.
    pub async fn run(mut self) {
        self.watch_bindings();
        let mut turn = Vec::with_capacity(TURN);
        loop {
            let deadline = self.machine.deadline().min(self.next_status);
            tokio::select! {
                biased;
                count = self.happenings.recv_many(&mut turn, TURN) => if count == 0 { return },
                () = self.clock.sleep_until(deadline) => turn.push(Happening::Input(Input::Tick)),
            }
            for happening in turn.drain(..) {
                if self.take_in(happening) {
                    return;
                }
            }
            self.write_statuses();
            let trouble = self.machine.lease_trouble().map(|trouble| trouble.to_string());
            self.tell("the lease", trouble.as_deref());
        }
    }

    /// Says what is wrong with something, or that nothing is any more, if it is news.
    fn tell(&mut self, of: &str, wrong: Option<&str>) {
        if let Some(news) = self.said.news(of, wrong, self.clock.now().boot) {
            self.observer.says(&news);
        }
    }

    fn tell_watch(&mut self, scope: &Scope, event: &WatchEvent) {
        match event {
            WatchEvent::Failed(why) => self.tell(&watch_of(scope), Some(why)),
            WatchEvent::Listed { .. } => self.tell(&watch_of(scope), None),
            WatchEvent::Applied(_) | WatchEvent::Deleted(_) => {}
        }
    }

    /// Takes in one happening; true once the machine has stopped.
    fn take_in(&mut self, happening: Happening) -> bool {
        match happening {
            Happening::Input(input) => {
                match &input {
                    Input::Returned { call, .. } => {
                        self.calls.remove(call);
                    }
                    Input::Watched { scope, event } => self.tell_watch(scope, event),
                    _ => {}
                }
                return self.step(input);
            }
            Happening::Bindings(event) => {
                self.tell_watch(&crate::bindings::scope(), &event);
                for name in self.bindings.observe(event) {
                    self.observer.says(&format!("binding {name} is gone"));
                    self.step(Input::Unbound(name));
                    self.forget_policies();
                }
            }
            Happening::Loaded(loaded) => self.loaded(*loaded),
            Happening::PoliciesChanged => self.bindings.reload_changed(),
            Happening::Ask(answer) => {
                let _ = answer.send(self.view());
            }
        }
        false
    }

    fn loaded(&mut self, loaded: Loaded) {
        let name = loaded.name.clone();
        match self.bindings.loaded(loaded) {
            None => {}
            Some(Ok(ready)) => {
                for (policy, bytes) in &ready.policies {
                    self.workers.policy(policy.clone());
                    self.observer.policy_loaded(policy.id(), policy, bytes);
                }
                self.step(Input::Bound(Box::new(ready.binding)));
                self.forget_policies();
            }
            Some(Err(problem)) => self
                .observer
                .says(&format!("binding {name} is not loaded: {problem}")),
        }
        self.next_status = 0;
    }

    /// What no binding names any more is let go, unless a pass in flight began with it: then when bindings change next.
    fn forget_policies(&mut self) {
        for id in self.workers.keep(&self.machine.policies()) {
            self.observer.policy_forgotten(&id);
        }
    }

    fn step(&mut self, input: Input) -> bool {
        let outputs = self.machine.step(self.clock.now(), input);
        let mut stopped = false;
        for output in outputs {
            match output {
                Output::Call { id, call } => self.call(id, call),
                Output::Cancel(id) => {
                    if let Some(call) = self.calls.remove(&id) {
                        call.abort();
                    }
                }
                Output::Watch(scope) => self.watch(scope),
                Output::Unwatch(scope) => {
                    if let Some(watch) = self.watches.remove(&scope) {
                        watch.abort();
                    }
                    self.said.forget(&watch_of(&scope));
                }
                Output::Recorded(record) => self.observer.passed(&record),
                Output::Forgotten(key) => self.observer.forgotten(&key),
                Output::Stopped => stopped = true,
            }
        }
        stopped
    }

    fn call(&mut self, id: CallId, call: Call) {
        let cluster = self.cluster.clone();
        match call {
            Call::Step {
                policy,
                role: _,
                pass,
                limits,
            } => self.workers.step(id, &policy, pass, limits),
            Call::Decide {
                policy,
                request,
                limits,
            } => self.workers.decide(id, &policy, request, limits),
            Call::Render(render) => self.workers.render(id, render),
            Call::Cloud(request) => match self.clouds.get(&request.session.cloud) {
                Some(cloud) => self.spawn(id, async move { Reply::Answer(cloud.perform(request).await) }),
                None => self.reply(id, Reply::Answer(Err(no_cloud(&request.session.cloud)))),
            },
            Call::Prepare(request) => match self.clouds.get(&request.session.cloud) {
                Some(cloud) => self.spawn(id, async move { Reply::Prepared(cloud.prepare(request).await) }),
                None => self.reply(id, Reply::Prepared(Err(no_cloud(&request.session.cloud)))),
            },
            Call::Commit(commit) => match self.clouds.get(&commit.request.session.cloud) {
                Some(cloud) => self.spawn(id, async move { Reply::Answer(cloud.commit(commit).await) }),
                None => {
                    let failure = no_cloud(&commit.request.session.cloud);
                    self.reply(id, Reply::Answer(Err(failure)));
                }
            },
            Call::Settle { session, entry } => match self.clouds.get(&session.cloud) {
                Some(cloud) => {
                    self.spawn(
                        id,
                        async move { Reply::Settled(cloud.settle(&session, &entry).await) },
                    );
                }
                None => self.reply(
                    id,
                    Reply::Settled(Resolution::unknown("the binding has no cloud")),
                ),
            },
            Call::Credential { cloud, owner, plan } => match self.clouds.get(&cloud) {
                Some(cloud) => {
                    self.spawn(
                        id,
                        async move { Reply::Answer(cloud.credential(&plan, &owner).await) },
                    );
                }
                None => self.reply(id, Reply::Answer(Err(no_cloud(&cloud)))),
            },
            Call::Mint {
                kind,
                groups,
                ttl,
                count,
                owner,
            } => {
                let unix = self.clock.now().unix;
                self.spawn(id, async move {
                    let limits = MintLimits {
                        count: count as usize,
                        ..MintLimits::default()
                    };
                    let wanted = Wanted {
                        kind: &kind,
                        groups: &groups,
                        ttl,
                        owner: &owner,
                    };
                    Reply::Answer(cluster.mint(wanted, unix, limits).await)
                });
            }
            Call::Revoke { token, owner } => {
                let clouds = self.clouds.clone();
                self.spawn(id, async move {
                    Reply::Answer(revoke(&cluster, &clouds, &token.name, &owner).await)
                });
            }
            Call::Read(question) => {
                let played = match &question {
                    Question::Reachable(_) => sim::reachable(&self.clouds),
                    _ => None,
                };
                match played {
                    Some(answer) => self.reply(id, Reply::Answer(answer)),
                    None => self.spawn(id, async move { Reply::Answer(cluster.read(&question).await) }),
                }
            }
            Call::Write(write) => {
                self.spawn(id, async move { Reply::Answer(cluster.write(&write).await) });
            }
            Call::Lease(write) if self.local.is_some() => {
                let written = write.map(|write| LeaseRead {
                    holder: write.holder,
                    duration: write.duration,
                    version: String::new(),
                    transitions: write.transitions,
                });
                self.reply(id, Reply::Lease(Ok(written)));
            }
            Call::Lease(write) => {
                self.spawn(
                    id,
                    async move { Reply::Lease(cluster.lease(write.as_ref()).await) },
                );
            }
        }
    }

    fn spawn(&mut self, id: CallId, future: impl Future<Output = Reply> + Send + 'static) {
        let sender = self.sender.clone();
        let task = tokio::spawn(async move {
            let reply = future.await;
            let _ = sender.send(Happening::Input(Input::Returned { call: id, reply }));
        });
        self.calls.insert(id, task.abort_handle());
    }

    fn reply(&self, id: CallId, reply: Reply) {
        let _ = self
            .sender
            .send(Happening::Input(Input::Returned { call: id, reply }));
    }

    fn watch(&mut self, scope: Scope) {
        let of = scope.clone();
        let happening = move |event| {
            let scope = of.clone();
            Happening::Input(Input::Watched { scope, event })
        };
        self.watch_as(scope, happening);
    }

    /// Watches a scope for as long as the driver lives. A watch has no end: one that comes to one all the same, be it by
    /// a panic, says so and begins again, because nobody would notice that it says nothing any more.
    fn watch_as(
        &mut self,
        scope: Scope,
        happening: impl Fn(WatchEvent) -> Happening + Send + Sync + 'static,
    ) {
        let (cluster, sender) = (self.cluster.clone(), self.sender.clone());
        let watched = scope.clone();
        let task = tokio::spawn(async move {
            loop {
                let all = async {
                    let mut events = std::pin::pin!(cluster.watch(watched.clone()));
                    while let Some(event) = events.next().await {
                        if sender.send(happening(event)).is_err() {
                            return;
                        }
                    }
                };
                let panicked = AssertUnwindSafe(all).catch_unwind().await.is_err();
                let why = if panicked {
                    "it failed; this is a bug of Polity"
                } else {
                    "it came to an end"
                };
                if sender.send(happening(WatchEvent::Failed(why.into()))).is_err() {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
        self.watches.insert(scope, task.abort_handle());
    }

    fn watch_bindings(&mut self) {
        self.bindings.watch_files();
        if let Some(objects) = self.local.clone() {
            let version = ResourceVersion::default();
            let listed = Happening::Bindings(WatchEvent::Listed { objects, version });
            let _ = self.sender.send(listed);
            return;
        }
        self.watch_as(crate::bindings::scope(), Happening::Bindings);
    }

    fn view(&self) -> View {
        View {
            keys: self
                .machine
                .keys()
                .map(|(key, view)| (key.clone(), view))
                .collect(),
            health: self
                .machine
                .bindings()
                .filter_map(|b| Some((b.name.clone(), self.machine.health(&b.name)?)))
                .collect(),
            unloaded: self.bindings.problems(),
            loading: self.bindings.loading(),
            unsynced: self.machine.unsynced().map(str::to_owned).collect(),
            holder: self.machine.is_holder(),
            lease: self.machine.lease_trouble(),
            passes: self.machine.passes_in_flight(),
            policies: self.workers.policies().cloned().collect(),
        }
    }

    /// Writes the statuses of bindings that have news. Only the lease holder does.
    fn write_statuses(&mut self) {
        let now = self.clock.now();
        if now.boot < self.next_status {
            return;
        }
        self.next_status = now.boot + STATUS_EVERY;
        if !self.machine.is_holder() || self.local.is_some() {
            return;
        }
        let machine = &self.machine;
        for write in self.bindings.statuses(|name| machine.health(name), now.unix) {
            let (cluster, name) = (self.cluster.clone(), write.0);
            tokio::spawn(async move {
                if let Err(failure) = cluster.write(&write.1).await {
                    tracing::debug!(binding = name, %failure, "the status of a binding is not written");
                }
            });
        }
    }
}

/// A driver that runs.
pub struct Running {
    task: JoinHandle<()>,
}

impl Running {
    /// Waits for the end of a driver that nobody told to stop: the host does nothing from then on, and whoever started
    /// it must not go on as if it did.
    pub async fn ended_by_itself(&mut self) -> anyhow::Error {
        let why = match (&mut self.task).await {
            Ok(()) => "nothing reaches it any more".to_owned(),
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => format!("it panicked: {}", said(&*panic)),
                Err(ended) => ended.to_string(),
            },
        };
        anyhow!("the event loop of the host ended before it was told to; this is a bug of Polity: {why}")
    }

    /// Waits for the end of a driver that was told to stop.
    ///
    /// # Errors
    /// If it failed on its way.
    pub async fn stopped(self) -> Result<()> {
        self.task
            .await
            .context("the event loop of the host failed while it stopped")
    }

    /// Ends it in the middle, as a crash does.
    pub fn abort(&self) {
        self.task.abort();
    }
}

/// What a panic said.
fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a word")
}

impl Drop for Driver {
    fn drop(&mut self) {
        for task in self.calls.values().chain(self.watches.values()) {
            task.abort();
        }
    }
}

fn rooms(threads: usize) -> RoomSizes {
    RoomSizes {
        threads: u32::try_from(threads).unwrap_or(u32::MAX),
        ..RoomSizes::default()
    }
}

fn watch_of(scope: &Scope) -> String {
    format!("the watch of {scope}")
}

/// Makes a token useless, in the cluster and for machines that are only simulated.
async fn revoke(cluster: &Cluster, clouds: &Clouds, token: &str, owner: &str) -> Answer {
    if let Some(value) = cluster.revoke(token, owner).await? {
        sim::revoke(clouds, &value).await?;
    }
    Ok(json!({}))
}

fn no_cloud(name: &str) -> Failure {
    let message = match name {
        "" => "this binding names no cloud".to_owned(),
        name => format!("cloud {name:?} is not open"),
    };
    Failure::new(Code::Unimplemented, message)
}
