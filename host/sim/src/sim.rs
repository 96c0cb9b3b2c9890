//! The simulated cloud as a whole: services on a kernel, and the way of calls and events between them.

mod creating;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use polity_clouds::catalogue::{LONGEST, credential_plan};
use polity_clouds::{CatalogueValidator, Opened, SessionRequest, Way};
use polity_core::call::{CloudRequest, Session};
use polity_core::catalogue::{BEGINS_WITHIN, Catalogue};
use polity_core::contract::{Answer, Code, Failure};

use crate::config::SimConfig;
use crate::config::scenario::{ASSUME, ASSUME_BY_TOKEN, CALLER, Quirk, REACHABLE, RESOLVE, RuleTarget};
use crate::event::{Call, Event, Kernel};
use crate::guards::Guards;
use crate::hypervisor::Hypervisor;
use crate::hypervisor::effects::Happened;
use crate::kernel::call::TaskError;
use crate::kernel::call::{Caller, Plan};
use crate::kernel::clock::Head;
use crate::kernel::due::Due;
use crate::kernel::envelope::{Admission, Delivery, Reply};
use crate::kernel::kept::Note;
use crate::kernel::{DUE, Settings};
use crate::services::cluster::Cluster;
use crate::services::machine::Machines;
use crate::services::pool::Pools;
use crate::services::router::Routers;
use crate::services::session::Sessions;
use crate::services::task::Tasks;
use crate::services::vm::Vms;
use crate::services::{Context, Service};

/// The version of the stamp on created things: owner, tenant, account and, with client tokens, key.
const STAMP: u32 = 1;

/// A simulated cloud.
pub struct Sim {
    pub(crate) config: SimConfig,
    pub(crate) kernel: Kernel,
    pub(crate) vms: Hypervisor,
    services: Vec<Box<dyn Service>>,
    /// The service of each operation, by its position.
    routes: BTreeMap<String, usize>,
    validator: CatalogueValidator,
    /// How often a service has panicked.
    panics: u64,
    guards: Guards,
}

impl Sim {
    /// An empty cloud at this moment (Unix milliseconds). The configuration's times count from it.
    pub fn new(config: SimConfig, seed: u64, start_ms: u64) -> Self {
        Self::with_services(services(&config), config, |settings| {
            Kernel::new(settings, seed, start_ms)
        })
    }

    /// A cloud at this point of its time. Its tables are restored afterwards.
    pub(crate) fn at(config: SimConfig, head: Head) -> Self {
        Self::with_services(services(&config), config, |settings| {
            Kernel::with_head(settings, head)
        })
    }

    pub(crate) fn with_services(
        services: Vec<Box<dyn Service>>,
        config: SimConfig,
        kernel: impl FnOnce(Settings<Quirk>) -> Kernel,
    ) -> Self {
        let hidden = Duration::from_millis(config.latest_effect()) + config.lag.into();
        let visible_within = BEGINS_WITHIN + LONGEST + hidden;
        let mut catalogue = Catalogue {
            stamp: STAMP,
            finds: vec![STAMP],
            credential: Some(credential_plan()),
            ..Catalogue::default()
        };
        let mut routes = BTreeMap::new();
        for (place, service) in services.iter().enumerate() {
            for (name, operation) in service.operations(visible_within) {
                routes.insert(name.to_owned(), place);
                catalogue.operations.insert(name.to_owned(), operation);
            }
        }
        Sim {
            kernel: kernel(settings(&config, &catalogue)),
            vms: Hypervisor::new(&config),
            services,
            routes,
            validator: CatalogueValidator::new(Arc::new(catalogue)).expect("our own schemas compile"),
            config,
            panics: 0,
            guards: Guards::default(),
        }
    }

    /// Lets the configuration's times count from this moment, unless something was called already.
    pub fn begin(&mut self, now_ms: u64) {
        let is_fresh = self.kernel.is_fresh();
        let mut tables = self.tables().into_iter();
        // Only the events that wait for their time are scheduled.
        if is_fresh && tables.all(|(name, table)| name == DUE || table.is_empty()) {
            self.kernel.begin(now_ms);
        }
    }

    /// Every table of the kernel, the hypervisor and the services, and the name that it is stored under.
    pub(crate) fn tables(&mut self) -> Vec<(&'static str, &mut dyn Note)> {
        let mut tables = self.kernel.tables();
        tables.extend(self.vms.tables());
        tables.extend(self.services.iter_mut().flat_map(|service| service.tables()));
        tables
    }

    /// The operations of the cloud.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        self.validator.catalogue()
    }

    /// The latest time that was passed in.
    pub fn now(&self) -> u64 {
        self.kernel.now()
    }

    /// How often a service has panicked since this process began. Each panic is a bug of Polity, and tests of
    /// the simulation check the number.
    pub fn panics(&self) -> u64 {
        self.panics
    }

    /// Performs a call at this moment (Unix milliseconds). Its effects are complete when this returns; the
    /// answer is still on its way.
    pub fn perform(&mut self, now_ms: u64, request: &CloudRequest) -> Reply {
        let way = request.key.as_ref().map_or(Way::Perform, |_| Way::Commit);
        match self.validator.validate(request, way) {
            Ok(_) => self.perform_checked(now_ms, request),
            Err(failure) => {
                self.advance(now_ms);
                self.kernel.deliver(request, Err(failure), Delivery::Plain)
            }
        }
    }

    /// As [`Sim::perform`], for arguments that were validated before they were unsealed.
    pub(crate) fn perform_checked(&mut self, now_ms: u64, request: &CloudRequest) -> Reply {
        let now = self.advance(now_ms);
        let about = self.subject(now, request);
        match self.kernel.admit(now, request, about.as_deref()) {
            Admission::Answered(reply) => reply,
            Admission::Performed(plan, delivery) => {
                let answer = self.execute(now, request, plan);
                self.kernel.deliver(request, answer, delivery)
            }
        }
    }

    /// Opens a session for a plan. Returns the milliseconds until the answer arrives, and the answer;
    /// `deadline-exceeded` if it is lost.
    pub fn open_session(&mut self, now_ms: u64, request: &SessionRequest) -> (u64, Result<Opened, Failure>) {
        let now = self.advance(now_ms);
        self.with(now, |sessions: &mut Sessions, cx| sessions.open(cx, request))
    }

    /// Performs a call that has arrived.
    fn execute(&mut self, at: u64, request: &CloudRequest, plan: Plan<Quirk>) -> Answer {
        let caller = self.caller(at, &request.session)?;
        let call = Call::new(request, caller, plan);
        let place = self.routes.get(&call.operation).copied();
        let place = place.ok_or_else(|| call.unknown())?;
        let answer = self.run(place, at, |service, cx| service.perform(cx, &call));
        self.carry_events(at);
        answer.unwrap_or_else(|| {
            let message = format!("{}: the service has failed", call.operation);
            Err(Failure::new(Code::Internal, message).effect_unknown())
        })
    }

    /// Lets everything happen that is due by now. An earlier `now` counts as the latest one, so time never
    /// goes back.
    pub fn advance(&mut self, now_ms: u64) -> u64 {
        let now = self.kernel.set_now(now_ms);
        while let Some((at, due)) = self.kernel.take_due() {
            self.on_due(at, due);
        }
        now
    }

    fn on_due(&mut self, at: u64, due: Due<Event>) {
        match due {
            Due::End(task) => self.end_task(at, task),
            Due::Expire(task) => self.kernel.forget_task(task),
            Due::Arrive(late) => {
                // Nobody waits for the answer.
                let _ = self.execute(at, &(*late).into(), Plan::default());
            }
            Due::Cue(index) => self.intervene(at, index),
            Due::Event(event) => {
                self.kernel.announce(event);
                self.carry_events(at);
            }
        }
    }

    /// Passes announced events to the hypervisor and to all services, and then the events that these
    /// announce.
    fn carry_events(&mut self, at: u64) {
        while let Some(event) = self.kernel.next_announced() {
            self.vms.on_event(&mut self.kernel, at, &event);
            for place in 0..self.services.len() {
                self.run(place, at, |service, cx| service.on_event(cx, &event));
            }
            let name = |vm: u64| self.vms.get(vm).map(|vm| vm.name.as_str()).unwrap_or_default();
            match event {
                Event::Created { vm } => self.kernel.on_created(at, name(vm)),
                Event::Started { vm } => self.kernel.on_started(at, name(vm)),
                _ => {}
            }
        }
    }

    fn end_task(&mut self, at: u64, number: u64) {
        let Some(task) = self.kernel.task(number).cloned() else {
            return;
        };
        let place = self.routes.get(&task.operation).copied();
        let ended = self.vms.release(&task).and_then(|()| {
            let ended =
                place.and_then(|place| self.run(place, at, |service, cx| service.on_task_end(cx, &task)));
            ended.unwrap_or_else(|| Err(TaskError::new("RuntimeFault", "the service has failed")))
        });
        self.carry_events(at);
        let what = match &ended {
            Ok(()) => Happened::Done,
            Err(error) => Happened::Failed(error.fault.clone()),
        };
        self.vms.note_task(at, &task, what);
        self.kernel.end_task(at, number, ended);
    }

    /// Performs an event of the scenario on a VM.
    fn intervene(&mut self, at: u64, index: usize) {
        let (Some(cue), Some(event)) = (self.kernel.cue(at, index), self.config.events.get(index)) else {
            return;
        };
        let vm = self.vms.named(&cue.about);
        let vm = vm.filter(|vm| cue.after_start.is_none() || self.vms.is_on(vm.number));
        let Some(number) = vm.map(|vm| vm.number) else {
            return self.kernel.cue_missed(index);
        };
        let does = event.does;
        self.kernel.cue_done(index);
        self.kernel.announce(Event::Intervened { vm: number, does });
        self.carry_events(at);
        self.kernel.mark_dirty();
        self.vms.note_intervention(at, number, does);
    }

    /// Lets one service work, and catches a panic: `None`. The other services go on.
    fn run<T>(
        &mut self,
        place: usize,
        at: u64,
        act: impl FnOnce(&mut dyn Service, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let service = self.services[place].as_mut();
        let mut cx = Context {
            at,
            kernel: &mut self.kernel,
            vms: &mut self.vms,
        };
        let done = catch_unwind(AssertUnwindSafe(|| act(service, &mut cx))).ok();
        if done.is_none() {
            self.panics += 1;
            // The service may have changed records without noting it.
            self.kernel.mark_dirty();
        }
        done
    }

    /// Lets the service of this type do something.
    pub(crate) fn with<S: Service, T>(
        &mut self,
        at: u64,
        act: impl FnOnce(&mut S, &mut Context<'_>) -> T,
    ) -> T {
        let mut services = self.services.iter_mut();
        let service = services.find_map(|service| (service.as_mut() as &mut dyn Any).downcast_mut::<S>());
        let mut cx = Context {
            at,
            kernel: &mut self.kernel,
            vms: &mut self.vms,
        };
        act(service.expect("every cloud has this service"), &mut cx)
    }

    /// The service of this type.
    pub(crate) fn service<S: Service>(&self) -> &S {
        let mut services = self.services.iter();
        let service = services.find_map(|service| (service.as_ref() as &dyn Any).downcast_ref::<S>());
        service.expect("every cloud has this service")
    }

    fn caller(&self, at: u64, session: &Session) -> Result<Caller, Failure> {
        self.service::<Sessions>().caller(at, session)
    }

    /// The name of what a call is about.
    fn subject(&mut self, at: u64, request: &CloudRequest) -> Option<String> {
        let place = *self.routes.get(&request.operation)?;
        self.run(place, at, |service, cx| service.subject(cx, request))
            .flatten()
    }

    /// The same cloud without a guard.
    #[cfg(feature = "simulation")]
    pub fn set_guards(&mut self, guards: Guards) {
        let now = self.now();
        self.guards = guards;
        self.with(now, |pools: &mut Pools, _| pools.set_guards(guards));
    }
}

/// All services. Each hears of events in this order.
pub(crate) fn services(config: &SimConfig) -> Vec<Box<dyn Service>> {
    vec![
        Box::new(Sessions::new(config)),
        Box::new(Tasks),
        Box::new(Vms::new(config)),
        Box::new(Cluster::new(config)),
        Box::new(Machines::new(config.machines.clone())),
        Box::new(Pools::new(config)),
        Box::new(Routers::new(config)),
    ]
}

/// What the kernel has to know of a configuration, and of the operations that there are.
fn settings(config: &SimConfig, catalogue: &Catalogue) -> Settings<Quirk> {
    let operations = catalogue.operations.iter();
    let met = operations.clone().map(|(name, operation)| RuleTarget {
        operation: name.clone(),
        starts_task: operation.answer["properties"].get("task").is_some(),
    });
    let others = [RESOLVE, REACHABLE, ASSUME, ASSUME_BY_TOKEN, CALLER].map(|name| RuleTarget {
        operation: name.to_owned(),
        starts_task: false,
    });
    let met: Vec<RuleTarget> = met.chain(others).collect();
    let sealed = operations.flat_map(|(_, operation)| operation.sealed.iter().cloned());
    Settings {
        answers: config.answers,
        queue: config.queue,
        lag: config.lag.0,
        retention: config.task_retention.max(config.lag).0,
        client_tokens: config.tokens,
        outages: config.outages.clone(),
        rules: config.faults.iter().map(|rule| rule.compile(&met)).collect(),
        cues: config.events.iter().map(|event| event.cue()).collect(),
        sealed: sealed.collect::<BTreeSet<_>>(),
    }
}
