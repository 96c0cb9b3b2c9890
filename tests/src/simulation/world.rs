//! The event loop: what happens next, in an order drawn from the seed.

macro_rules! trace {
    ($world:expr, $($text:tt)*) => {
        if $world.options.trace > 0 {
            $world.note(format!($($text)*));
        }
    };
}

mod calls;
mod people;
mod settled;
mod watches;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use polity_core::binding::Binding;
use polity_core::call::{Call, CallId, Reply, Scope, WatchEvent};
use polity_core::contract::Code;
use polity_core::controller::{Guards, Input, Output};
use polity_core::record::PassRecord;
use polity_sim::Sim;

use super::host::{Host, Sort};
use super::oracle::{Instant, Oracle, Rule, Verdict, ensure};
use super::scenario::{Rates, Scenario};
use super::seed::Chance;
use super::stepper::Stepper;
use super::store::Store;
use calls::Arrival;

pub use people::{edit, new_object};

/// Unix milliseconds at which every world begins: 2026-01-01.
const BEGIN: u64 = 1_767_225_600_000;
/// Milliseconds after the last fault within which everything must have settled: resyncs take 10 min, retries wait up to
/// 5 min, tasks that were slowed down take a few more.
const SETTLES_WITHIN: u64 = 45 * 60_000;
/// Milliseconds between looks at whether everything has settled.
const LOOK_EVERY: u64 = 500;

/// Something that happens at a time.
enum Event {
    /// An input reaches a process.
    Deliver(usize, u32, Input),
    /// A watch says something, unless its connection broke since.
    Said(usize, u32, u64, Scope, WatchEvent),
    /// A watch lists.
    List(usize, u32, u64, Scope),
    /// A call reaches the API server or the cloud.
    Arrive(Box<Arrival>),
    /// The time at which a controller asked for its next tick.
    Tick(usize, u32),
    /// A process starts.
    Start(usize),
    /// A process that stood still goes on.
    Resume(usize, u32),
    /// A process learns how a binding stands by then.
    Bind(usize, u32, String),
    /// An action of the scenario, by its place.
    Act(usize),
    /// Faults stop.
    Quiet,
    /// Has everything settled?
    Look,
}

/// Makes the bindings of a world, for its policies and what its cloud can do.
pub type BindingsOf<'a> =
    dyn Fn(&dyn Stepper, Arc<polity_core::catalogue::Catalogue>) -> Vec<Binding> + Sync + 'a;

/// What is simulated with what.
pub struct Options<'a> {
    /// Calls the policies.
    pub stepper: &'a dyn Stepper,
    /// The guards that stand.
    pub guards: Guards,
    /// Whether the guard `AbsentTakesALook` of the cloud stands: while a cloud cannot be reached, no create in it is absent.
    pub absent_takes_a_look: bool,
    /// The bindings, for a cloud with this catalogue.
    pub bindings: &'a BindingsOf<'a>,
    /// The policy of Machines may say anything: what it leaves behind is its own fault, and the host must bear it.
    pub wild: Option<Wild>,
    /// Makes scenarios out of those of the seeds, for tests that look for something.
    pub shape: fn(&mut Scenario),
    /// Lines of the trace that are kept.
    pub trace: usize,
    /// Whether recordings are kept.
    pub record: bool,
}

/// What a world is like in which the policy of Machines may say anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wild {
    /// The API server knows the schema of Machines, and refuses what does not fit it.
    pub schema: bool,
}

/// A simulated world.
pub struct World<'a> {
    options: &'a Options<'a>,
    now: u64,
    jumped: u64,
    store: Store,
    shown: usize,
    pub(super) sim: Sim,
    effects: usize,
    hosts: Vec<Host>,
    queue: BTreeMap<(u64, u64, u64), Event>,
    sequence: u64,
    chance: Chance,
    scenario: Scenario,
    bindings: Vec<Binding>,
    /// Bindings that are gone.
    unbound: BTreeSet<String>,
    /// Handles of credentials, and for whom each is.
    handles: BTreeMap<String, String>,
    /// The version at which an object ended by a call that was not answered yet, by host and call.
    ended: BTreeMap<(usize, CallId), u64>,
    /// When each change was made, by version; world time.
    changed_at: Vec<(u64, u64)>,
    oracle: Oracle,
    calm: bool,
    calm_since: u64,
    settled: bool,
    edits: u64,
    trace: VecDeque<String>,
    /// One record a line, as JSON, with the host before it.
    pub(super) recording: Vec<u8>,
}

impl<'a> World<'a> {
    /// The world of a scenario.
    pub fn new(seed: u64, scenario: Scenario, options: &'a Options<'a>) -> Self {
        let mut sim = Sim::new(scenario.cloud.clone(), seed, BEGIN);
        if !options.absent_takes_a_look {
            sim.set_guards(polity_sim::Guards::without(polity_sim::Guard::AbsentTakesALook));
        }
        let bindings = (options.bindings)(options.stepper, sim.catalogue().clone());
        let mut world = World {
            options,
            now: 0,
            jumped: 0,
            store: Store::checking(options.wild.map(|wild| wild.schema)),
            shown: 0,
            sim,
            effects: 0,
            hosts: (0..scenario.hosts).map(|_| Host::new()).collect(),
            queue: BTreeMap::new(),
            sequence: 0,
            chance: Chance::new(seed, 2),
            bindings,
            unbound: BTreeSet::new(),
            handles: BTreeMap::new(),
            ended: BTreeMap::new(),
            changed_at: Vec::new(),
            oracle: Oracle::new(options.wild.is_some()),
            calm: false,
            calm_since: 0,
            settled: false,
            edits: 0,
            trace: VecDeque::new(),
            recording: Vec::new(),
            scenario,
        };
        for (index, (at, _)) in world.scenario.actions.clone().into_iter().enumerate() {
            world.schedule(at, Event::Act(index));
        }
        for host in 0..world.hosts.len() {
            let at = world.chance.between(0, 3_000);
            world.schedule(at, Event::Start(host));
        }
        world.schedule(world.scenario.quiet_at, Event::Quiet);
        world
    }

    /// Runs until everything has settled or a rule is broken.
    pub fn run(&mut self) -> Verdict {
        let deadline = self.scenario.quiet_at + SETTLES_WITHIN;
        let (mut at, mut turns) = (0, 0u32);
        while !self.settled {
            let Some(((now, _, _), event)) = self.queue.pop_first() else {
                break;
            };
            turns = if now == at { turns + 1 } else { 0 };
            (at, self.now) = (now, now);
            ensure(turns < 10_000, Rule::Progress, || {
                format!("no end of what happens at {now} ms")
            })?;
            ensure(now < deadline, Rule::Settles, || {
                self.unsettled().unwrap_or_default()
            })?;
            self.on_event(event)?;
            self.observe()?;
        }
        Ok(())
    }

    /// What the seeds are meant to reach and this one did.
    pub fn reached(&self) -> BTreeSet<&'static str> {
        self.oracle.reached.clone()
    }

    /// Passes that ended.
    pub fn passes(&self) -> u64 {
        self.oracle.passes
    }

    /// Virtual milliseconds since the start.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The last lines of what happened.
    pub fn trace(&self) -> Vec<String> {
        self.trace.iter().cloned().collect()
    }

    fn note(&mut self, line: String) {
        if self.trace.len() == self.options.trace {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>9} {line}", self.now));
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        let tie = self.chance.draw();
        self.queue.insert((at.max(self.now), tie, self.sequence), event);
    }

    fn unix(&self) -> u64 {
        BEGIN + self.now + self.jumped
    }

    fn happens(&mut self, rate: impl Fn(&Rates) -> u64) -> bool {
        let rate = rate(&self.scenario.rates);
        !self.calm && rate > 0 && self.chance.one_in(rate)
    }

    /// How long something takes on its way, at most `longest`.
    fn way(&mut self, longest: u64) -> u64 {
        if self.happens(|r| r.slow) {
            self.chance.between(1, longest)
        } else {
            self.chance.between(1, 40)
        }
    }

    fn on_event(&mut self, event: Event) -> Verdict {
        match event {
            Event::Deliver(host, life, input) => self.feed(host, life, input),
            Event::Said(host, life, connection, scope, event) => {
                let open = self.hosts[host].watches.get(&scope);
                let told = self.hosts[host].life == life && open.is_some_and(|w| w.connection == connection);
                if let (true, WatchEvent::Listed { version, .. }) = (told, &event) {
                    let identity = &self.hosts[host].identity;
                    trace!(
                        self,
                        "{identity} is shown the list of {scope} at version {}", version.0
                    );
                }
                if told {
                    self.feed(host, life, Input::Watched { scope, event })
                } else {
                    Ok(())
                }
            }
            Event::List(host, life, connection, scope) => {
                self.list(host, life, connection, scope);
                Ok(())
            }
            Event::Arrive(arrival) => self.arrive(*arrival),
            Event::Tick(host, life) => {
                if self.hosts[host].tick_at == self.now {
                    self.hosts[host].tick_at = u64::MAX;
                    self.feed(host, life, Input::Tick)
                } else {
                    Ok(())
                }
            }
            Event::Start(host) => self.start(host),
            Event::Resume(host, life) => self.resume(host, life),
            Event::Bind(host, life, name) => self.tell_binding(host, life, &name),
            Event::Act(index) => self.act(index),
            Event::Quiet => self.quiet(),
            Event::Look => {
                self.settled = self.unsettled().is_none();
                self.schedule(self.now + LOOK_EVERY, Event::Look);
                Ok(())
            }
        }
    }

    fn start(&mut self, host: usize) -> Verdict {
        if self.hosts[host].controller.is_some() {
            return Ok(());
        }
        let boot = self.chance.between(0, 1_000_000);
        self.hosts[host].start(host, boot, self.options.guards);
        trace!(self, "{} starts", self.hosts[host].identity);
        let life = self.hosts[host].life;
        for binding in self.bindings.clone() {
            let at = self.now + self.chance.between(1, 500);
            self.schedule(at, Event::Bind(host, life, binding.name));
        }
        self.feed(host, life, Input::Tick)
    }

    /// A process learns how a binding stands.
    fn tell_binding(&mut self, host: usize, life: u32, name: &str) -> Verdict {
        let binding = self.bindings.iter().find(|binding| binding.name == name).cloned();
        let binding = binding.filter(|binding| !self.unbound.contains(&binding.name));
        let input = match binding {
            Some(binding) => Input::Bound(Box::new(binding)),
            None => Input::Unbound(name.to_owned()),
        };
        self.feed(host, life, input)
    }

    /// Every process is about to learn how a binding stands.
    fn tell_hosts(&mut self, name: &str) {
        for host in 0..self.hosts.len() {
            let life = self.hosts[host].life;
            let at = self.now + self.chance.between(1, 3_000);
            self.schedule(at, Event::Bind(host, life, name.to_owned()));
        }
    }

    fn crash(&mut self, host: usize) {
        if self.hosts[host].controller.is_none() {
            return;
        }
        trace!(self, "{} is gone", self.hosts[host].identity);
        self.hosts[host].crash();
        let at = self.now + self.chance.between(100, 20_000);
        self.schedule(at, Event::Start(host));
    }

    fn resume(&mut self, host: usize, life: u32) -> Verdict {
        if self.hosts[host].life != life || !self.hosts[host].paused {
            return Ok(());
        }
        trace!(self, "{} goes on", self.hosts[host].identity);
        self.hosts[host].paused = false;
        self.disturbs(host);
        while let Some(input) = self.hosts[host].inbox.pop_front() {
            self.feed(host, life, input)?;
        }
        self.feed(host, life, Input::Tick)
    }

    fn quiet(&mut self) -> Verdict {
        trace!(self, "it is quiet from now on");
        self.calm = true;
        self.calm_since = self.now;
        self.sim.stop_faults();
        for host in 0..self.hosts.len() {
            let life = self.hosts[host].life;
            self.resume(host, life)?;
        }
        for name in std::mem::take(&mut self.unbound) {
            self.tell_hosts(&name);
        }
        if self.options.wild.is_some() {
            self.ask_for_passes();
        }
        self.schedule(self.now, Event::Look);
        Ok(())
    }

    /// Feeds an input to a process, and does what it says.
    fn feed(&mut self, host: usize, life: u32, input: Input) -> Verdict {
        let unix = self.unix();
        let process = &mut self.hosts[host];
        if process.life != life {
            return Ok(());
        }
        if process.paused {
            process.inbox.push_back(input);
            return Ok(());
        }
        let clocks = process.clocks(self.now, unix);
        let Some(controller) = &mut process.controller else {
            return Ok(());
        };
        let identity = process.identity.clone();
        match &input {
            Input::Watched { scope, event } => {
                watches::shown(&mut self.oracle, (self.now, clocks.boot), &identity, scope, event);
            }
            Input::Bound(binding) => self
                .oracle
                .binds(clocks.boot, &identity, &binding.name, Some(binding)),
            Input::Unbound(name) => self.oracle.binds(clocks.boot, &identity, name, None),
            Input::Stop | Input::Cut => self.oracle.stops(&identity),
            Input::Returned { call, reply } => match process.calls.remove(call) {
                None => return Ok(()),
                Some(sort) => {
                    if let Some(version) = self.ended.remove(&(host, *call)) {
                        self.oracle.knows_ended(&identity, version);
                    }
                    if matches!(reply, Reply::Objects(Err(failure)) if failure.code == Code::NotFound) {
                        self.oracle.misses(self.now, &identity);
                    }
                    if sort == Sort::Read {
                        self.oracle.reads(self.now, &identity, reply);
                    }
                    let writes = matches!(sort, Sort::Write | Sort::Act);
                    if let Some(object) = writes.then(|| calls::written(reply)).flatten() {
                        let by_act = sort == Sort::Act;
                        self.oracle
                            .acknowledges((self.now, clocks.unix), &identity, &object, by_act);
                    }
                }
            },
            _ => {}
        }
        let outputs = controller.step(clocks, input);
        self.oracle.holds(&identity, clocks.boot, controller.is_holder());
        let keys = controller
            .keys()
            .map(|(key, view)| (key, view.queued, view.running));
        self.oracle.keys(self.now, &identity, keys)?;
        let crash = self.happens(|r| r.crash) && !outputs.is_empty();
        let until = if crash {
            self.chance.between(0, outputs.len() as u64) as usize
        } else {
            outputs.len()
        };
        for output in outputs.into_iter().take(until) {
            self.output(host, &identity, output)?;
        }
        if crash {
            self.crash(host);
        }
        self.plan_tick(host);
        Ok(())
    }

    fn plan_tick(&mut self, host: usize) {
        let process = &self.hosts[host];
        let Some(controller) = &process.controller else {
            return;
        };
        let at = controller
            .deadline()
            .0
            .saturating_sub(process.boot_offset)
            .max(self.now);
        if at < process.tick_at {
            let life = process.life;
            self.hosts[host].tick_at = at;
            self.schedule(at, Event::Tick(host, life));
        }
    }

    fn output(&mut self, host: usize, identity: &str, output: Output) -> Verdict {
        match output {
            Output::Call {
                id,
                call,
                tenant_queue,
                pass,
                begin_by,
            } => {
                if let (Call::Step { input, .. }, Some(pass), Some(queue)) = (&call, pass, tenant_queue)
                    && input.may_hold == u64::MAX
                {
                    self.hosts[host].large.insert(pass, queue);
                    self.oracle.grows();
                }
                self.call(host, identity, (id, begin_by), call)
            }
            Output::Cancel(id) => {
                self.hosts[host].calls.remove(&id);
                Ok(())
            }
            Output::Watch(scope) => {
                let life = self.hosts[host].life;
                self.hosts[host].watches.entry(scope.clone()).or_default();
                let at = self.now + self.way(2_000);
                self.schedule(at, Event::List(host, life, 0, scope));
                Ok(())
            }
            Output::Unwatch(scope) => {
                self.hosts[host].watches.remove(&scope);
                Ok(())
            }
            // Nothing depends on an Event.
            Output::Event(_) => Ok(()),
            Output::Recorded(record) => {
                self.hosts[host].large.remove(&record.pass);
                self.recorded(host, identity, &record)
            }
            Output::Forgotten(key) => {
                self.oracle.forgets(identity, &key);
                Ok(())
            }
            Output::Stopped => {
                self.crash(host);
                Ok(())
            }
        }
    }

    fn recorded(&mut self, _: usize, identity: &str, record: &PassRecord) -> Verdict {
        trace!(
            self,
            "{identity} {}: {:?} because {:?}, attempt {}, notes {:?}, next {:?} in {:?}, wrote {:?}",
            record.key,
            record.outcome,
            record.causes,
            record.attempt,
            record.notes().collect::<Vec<_>>(),
            record.next,
            record.wait,
            record
                .writes
                .iter()
                .map(|w| (w.purpose, w.version))
                .collect::<Vec<_>>()
        );
        if self.options.record {
            self.recording.extend_from_slice(identity.as_bytes());
            self.recording.push(b' ');
            serde_json::to_writer(&mut self.recording, record).expect("records are JSON");
            self.recording.push(b'\n');
        }
        let instant = Instant {
            now: self.now,
            store: &self.store,
        };
        self.oracle.recorded(&instant, identity, record)?;
        // What says anything says something else the next time; Machines have the sandbox, and a test of their own.
        if self.options.wild.is_some() || *record.key.binding == *"machines" {
            Ok(())
        } else {
            self.oracle.replays(self.options.stepper, record)
        }
    }

    fn disturbs(&mut self, host: usize) {
        let process = &self.hosts[host];
        let boot = process.clocks(self.now, self.unix()).boot;
        self.oracle.disturbs(&process.identity, boot);
    }
}
