//! Calls: what each operation does.

use polity_core::call::{CloudRequest, Session};
use polity_core::contract::{Answer, Code, Failure};
use serde_json::{Value, json};

use crate::config::scenario::Trouble;
use crate::hypervisor::vm::{self, Stamp, Vm};
use crate::kernel::faults::Subject;
use crate::kernel::late::Late;
use crate::kernel::tasks::{self, Task, TaskError, TaskKind};
use crate::services::machine;
use crate::services::machine::Joining;
use crate::services::pool;
use crate::services::router;
use crate::view::Happened;
use crate::world::Due;
use crate::{LONGEST, Reply, Sim};

/// How a task that is about to start will go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) doomed: Option<TaskError>,
    /// Milliseconds; none: as the configuration says.
    pub(crate) takes: Option<u64>,
    /// Of a machine that is about to be made.
    pub(crate) joining: Joining,
    /// The machine does not come back from the reboot.
    pub(crate) never_returns: bool,
    /// Of a router's VM: it never boots, or never shows what is plugged.
    pub(crate) never: bool,
}

impl Sim {
    /// Performs a call at this moment (Unix milliseconds). What it does is done when this returns; the answer is
    /// still on its way.
    pub fn perform(&mut self, now_ms: u64, request: &CloudRequest) -> Reply {
        match self.checked.request(request) {
            Ok(_) => self.perform_checked(now_ms, request),
            Err(failure) => {
                self.advance(now_ms);
                self.answered(request, Err(failure))
            }
        }
    }

    /// As [`Sim::perform`], for arguments that were checked before they were unsealed.
    pub(crate) fn perform_checked(&mut self, now_ms: u64, request: &CloudRequest) -> Reply {
        let now = self.advance(now_ms);
        if let Some(unreachable) = self.unreachable(now) {
            return match unreachable {
                Some(failure) => self.answered(request, Err(failure)),
                None => Reply::LOST,
            };
        }
        let subject = self.subject(request);
        match self.trouble(now, &subject) {
            None => self.untroubled(now, request, Plan::default()),
            Some(trouble) => self.troubled(now, request, trouble),
        }
    }

    fn troubled(&mut self, now: u64, request: &CloudRequest, trouble: Trouble) -> Reply {
        match trouble {
            Trouble::Fail {
                code,
                message,
                retry_after,
            } => {
                let message = echo(message, request);
                let retry_after = retry_after.map(|after| after.0);
                let failure = Failure {
                    retry_after,
                    ..Failure::new(code, message)
                };
                self.answered(request, Err(failure))
            }
            Trouble::LoseRequest => Reply::LOST,
            Trouble::LoseAnswer => {
                let _ = self.execute(now, request, Plan::default());
                Reply::LOST
            }
            Trouble::HappenLate(by) => {
                let late = Late::new(self.world.head.seed, request);
                self.world.schedule(now + by.0, Due::Arrive(late));
                self.dirty = true;
                Reply::LOST
            }
            Trouble::AnswerAfter(after) => {
                let answer = self.execute(now, request, Plan::default());
                match after.0 < LONGEST {
                    true => Reply {
                        after_ms: after.0,
                        answer: Some(answer),
                    },
                    false => Reply::LOST,
                }
            }
            Trouble::FailTask { fault, message } => {
                let message = message.unwrap_or_else(|| format!("{fault} (by the scenario)"));
                let plan = Plan {
                    doomed: Some(TaskError::new(&fault, message)),
                    ..Plan::default()
                };
                self.untroubled(now, request, plan)
            }
            Trouble::TaskTakes(time) => {
                let plan = Plan {
                    takes: Some(time.0),
                    ..Plan::default()
                };
                self.untroubled(now, request, plan)
            }
            Trouble::TaskState(state) => {
                let answer = self.execute(now, request, Plan::default()).map(|mut task| {
                    task["state"] = state.into();
                    task
                });
                self.answered(request, answer)
            }
            Trouble::FailAfterwards { code } => {
                let _ = self.execute(now, request, Plan::default());
                let failure = Failure::new(code, echo(None, request));
                self.answered(request, Err(failure.effect_unknown()))
            }
            Trouble::AnswerWith(answer) => {
                let answer = self.execute(now, request, Plan::default()).map(|_| answer);
                self.answered(request, answer)
            }
            Trouble::JoinsAfter(_) | Trouble::NeverJoins | Trouble::NodeName(_) => {
                let joining = Joining::from(trouble);
                let plan = Plan {
                    joining,
                    ..Plan::default()
                };
                self.untroubled(now, request, plan)
            }
            Trouble::NeverReturns => {
                let plan = Plan {
                    never_returns: true,
                    ..Plan::default()
                };
                self.untroubled(now, request, plan)
            }
            Trouble::NeverBoots | Trouble::NeverPlugs => {
                let plan = Plan {
                    never: true,
                    ..Plan::default()
                };
                self.untroubled(now, request, plan)
            }
            // Matches no operation that is performed.
            Trouble::LeadsTo(_) => self.untroubled(now, request, Plan::default()),
        }
    }

    fn untroubled(&mut self, now: u64, request: &CloudRequest, plan: Plan) -> Reply {
        let answer = self.execute(now, request, plan);
        self.answered(request, answer)
    }

    fn answered(&mut self, request: &CloudRequest, answer: Answer) -> Reply {
        let draw = self.world.draw(&request.session.owner);
        let after_ms = self.config.answers.pick(draw);
        if after_ms < LONGEST {
            Reply {
                after_ms,
                answer: Some(answer),
            }
        } else {
            Reply::LOST
        }
    }

    /// Performs a call that arrived.
    pub(crate) fn execute(&mut self, at: u64, request: &CloudRequest, plan: Plan) -> Answer {
        let CloudRequest {
            session,
            operation,
            arguments,
            ..
        } = request;
        self.authenticate(at, session)?;
        match operation.as_str() {
            machine::CREATE => self.create_machine(at, request, plan.joining),
            "machine.status" => self.machine_status(at, session, arguments),
            "machine.delete" => self.delete_machine(at, request),
            "token.revoke" => self.revoke_token(request),
            router::BOOT => self.boot_router(at, request, &plan),
            "config.push" => self.push_config(at, request, plan),
            _ if router::concerns(operation) => self.router_call(at, request, &plan),
            "api-server.probe" => Ok(self.probe(at)),
            "vm.clone" => self.clone_vm(at, request, plan),
            "vm.find" => self.find(at, session, text(arguments, "instanceUuid")),
            "pool.list" => Ok(self.pools(session)),
            "pool.ensure" => self.ensure_pools(request),
            "pool.machines" => Ok(self.machines(at, session)),
            pool::ADD => self.add_machine(at, request),
            name if pool::TASKS.contains(&name) => self.submit_on_member(at, request, plan),
            name if name.starts_with("node.") => self.on_node(at, request, plan),
            "task.get" => self.task(at, session, text(arguments, "id")),
            _ => match TaskKind::of_operation(operation) {
                Some(kind) => self.change(at, request, kind, plan),
                None => self.read(at, session, operation, text(arguments, "id")),
            },
        }
    }

    fn task(&self, at: u64, session: &Session, id: &str) -> Answer {
        let task = tasks::number(id).and_then(|number| self.world.tasks.get(&number));
        let task = task.filter(|task| self.sees(session, &task.stamp));
        let task = task.ok_or_else(|| Failure::new(Code::NotFound, format!("no task {id:?}")))?;
        owned(&task.stamp, session, id)?;
        Ok(task.describe(at))
    }

    /// The VM of this id, if whoever asks may see it.
    pub(crate) fn vm(&self, session: &Session, id: &str) -> Result<&Vm, Failure> {
        let vm = vm::number(id)
            .and_then(|number| self.world.vms.get(&number))
            .filter(|vm| !vm.creating() && self.sees(session, &vm.stamp));
        let vm = vm.ok_or_else(|| no_vm(id))?;
        owned(&vm.stamp, session, id)?;
        Ok(vm)
    }

    fn read(&mut self, at: u64, session: &Session, operation: &str, id: &str) -> Answer {
        let then = self.look(at, &session.owner);
        let vm = self.vm(session, id)?;
        let version = vm
            .at_least_first(then)
            .filter(|v| !v.gone)
            .ok_or_else(|| no_vm(id))?;
        Ok(match operation {
            "vm.get" => vm.describe(),
            "vm.metadata" => json!({"metadata": version.metadata}),
            "vm.nics" => vm.describe_nics(version, then),
            "vm.power" => json!({"state": version.power}),
            other => {
                return Err(Failure::new(
                    Code::Unimplemented,
                    format!("no operation {other:?}"),
                ));
            }
        })
    }

    fn find(&mut self, at: u64, session: &Session, instance_uuid: &str) -> Answer {
        let then = self.look(at, &session.owner);
        let own = self.world.owner(&session.owner).vms.clone();
        own.iter()
            .map(|number| &self.world.vms[number])
            .filter(|vm| vm.instance_uuid == instance_uuid && self.sees(session, &vm.stamp))
            .find(|vm| vm.as_of(then).is_some_and(|v| !v.gone))
            .map(Vm::describe)
            .ok_or_else(|| {
                let message = format!("no VM with instance UUID {instance_uuid:?}");
                Failure::new(Code::NotFound, message)
            })
    }

    fn change(&mut self, at: u64, request: &CloudRequest, kind: TaskKind, plan: Plan) -> Answer {
        let id = text(&request.arguments, "id");
        let vm = self.vm(&request.session, id)?;
        if !vm.exists() {
            return Err(no_vm(id));
        }
        if let Some(busy) = vm.busy {
            let message = format!("TaskInProgress: task-{busy} is changing {id}");
            return Err(Failure::new(Code::FailedPrecondition, message));
        }
        let (number, name) = (vm.number, vm.name.clone());
        let metadata = request
            .arguments
            .get("metadata")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let task = self.submit(at, request, kind, (number, name), plan, metadata);
        self.world.vms.get_mut(&number).expect("found above").busy = Some(task);
        Ok(json!({"task": format!("task-{task}")}))
    }

    /// Enters a task and when it will end.
    pub(crate) fn submit(
        &mut self,
        at: u64,
        request: &CloudRequest,
        kind: TaskKind,
        (vm, name): (u64, String),
        plan: Plan,
        metadata: Option<String>,
    ) -> u64 {
        let owner = &request.session.owner;
        let (queue, run) = (self.world.draw(owner), self.world.draw(owner));
        let starts = at + self.config.queue.pick(queue);
        let ends = starts + plan.takes.unwrap_or_else(|| self.config.takes(kind).pick(run));
        let number = self.world.number();
        let task = Task {
            number,
            kind,
            vm,
            name,
            stamp: self.stamp(request),
            submitted: at,
            starts,
            ends,
            metadata,
            doomed: plan.doomed,
            ended: None,
        };
        self.note_task(at, &task, Happened::Submitted);
        self.world.tasks.insert(number, task);
        self.world.owner(owner).tasks.insert(number);
        self.world.schedule(ends, Due::End(number));
        self.dirty = true;
        number
    }

    /// On what VM a call is, as far as can be told.
    fn subject<'a>(&self, request: &'a CloudRequest) -> Subject<'a> {
        let CloudRequest {
            session,
            operation,
            arguments,
            ..
        } = request;
        let id = match operation.as_str() {
            "machine.status" | "machine.delete" => machine::id(arguments),
            _ => text(arguments, "id"),
        };
        let by_uuid = |uuid: &str| {
            let owner = self.world.owners.get(&session.owner)?;
            owner
                .vms
                .iter()
                .map(|n| &self.world.vms[n])
                .find(|vm| vm.instance_uuid == uuid)
        };
        let vm = match operation.as_str() {
            "vm.clone" | machine::CREATE | router::BOOT | "router.resource" | "router.delete-ports" => {
                Some(text(arguments, "name").to_owned())
            }
            "router.get" if id.is_empty() => Some(text(arguments, "name").to_owned()),
            "task.get" => tasks::number(id)
                .and_then(|n| self.world.tasks.get(&n))
                .map(|task| task.name.clone()),
            "vm.find" => by_uuid(text(arguments, "instanceUuid")).map(|vm| vm.name.clone()),
            name if ["pool.", "agent.", "kubeadm.", "node."]
                .iter()
                .any(|of| name.starts_with(of)) =>
            {
                self.subject_of_pools(request)
            }
            "machine.status" | "machine.delete" if id.is_empty() => Some(text(arguments, "name").to_owned()),
            _ => vm::number(id)
                .and_then(|n| self.world.vms.get(&n))
                .map(|vm| vm.name.clone()),
        };
        Subject {
            operation,
            session,
            vm,
        }
    }
}

impl Reply {
    /// Cut at the longest duration.
    const LOST: Reply = Reply {
        after_ms: LONGEST,
        answer: None,
    };
}

/// The failure's message, with what a careless cloud repeats in it.
fn echo(message: Option<String>, request: &CloudRequest) -> String {
    let message = message.unwrap_or_else(|| format!("{} failed (by the scenario)", request.operation));
    let sealed = ["userData", "bootstrapToken", "token", "certificateKey"]
        .map(|field| (field, text(&request.arguments, field)));
    let session = request.session.handle.as_deref().unwrap_or_default();
    repeat(message, sealed.into_iter().chain([("session", session)]))
}

/// A text in which `{name}` stands for a value.
pub(crate) fn repeat<'a>(message: String, values: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    values.into_iter().fold(message, |message, (name, value)| {
        message.replace(&format!("{{{name}}}"), value)
    })
}

pub(crate) fn owned(stamp: &Stamp, session: &Session, id: &str) -> Result<(), Failure> {
    match stamp.owner == session.owner && stamp.tenant == session.tenant {
        true => Ok(()),
        false => Err(Failure::new(
            Code::PermissionDenied,
            format!("{id} belongs to another object"),
        )),
    }
}

pub(crate) fn no_vm(id: &str) -> Failure {
    Failure::new(Code::NotFound, format!("no VM {id:?}"))
}

/// A text argument; empty if it is not there.
pub(crate) fn text<'a>(arguments: &'a Value, field: &str) -> &'a str {
    arguments.get(field).and_then(Value::as_str).unwrap_or_default()
}
