//! Calls: what each operation does.

use polity_core::call::{CloudRequest, Session};
use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fault::Subject;
use super::scenario::Trouble;
use super::task::{self, Task, TaskError, TaskKind};
use super::view::Happened;
use super::vm::{self, Stamp, Vm};
use super::world::Due;
use super::{LONGEST, Reply, Sim};

/// How a task that is about to start will go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) doomed: Option<TaskError>,
    /// Milliseconds; none: as the configuration says.
    pub(crate) takes: Option<u64>,
}

/// A call that is still on its way. Resolved secrets stay out of it: it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Late {
    session: Session,
    operation: String,
    arguments: Value,
    key: Option<String>,
}

impl From<&CloudRequest> for Late {
    fn from(request: &CloudRequest) -> Self {
        let mut arguments = request.arguments.clone();
        if let Some(arguments) = arguments.as_object_mut() {
            arguments.remove("userData");
        }
        let CloudRequest {
            session,
            operation,
            key,
            ..
        } = request.clone();
        Late {
            session,
            operation,
            arguments,
            key,
        }
    }
}

impl From<Late> for CloudRequest {
    fn from(late: Late) -> Self {
        let Late {
            session,
            operation,
            arguments,
            key,
        } = late;
        CloudRequest {
            session,
            operation,
            arguments,
            key,
        }
    }
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
                self.world.schedule(now + by.0, Due::Arrive(request.into()));
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
                    takes: None,
                };
                self.untroubled(now, request, plan)
            }
            Trouble::TaskTakes(time) => self.untroubled(
                now,
                request,
                Plan {
                    doomed: None,
                    takes: Some(time.0),
                },
            ),
            Trouble::TaskState(state) => {
                let answer = self.execute(now, request, Plan::default()).map(|mut task| {
                    task["state"] = state.into();
                    task
                });
                self.answered(request, answer)
            }
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
        self.authenticate(session)?;
        match operation.as_str() {
            "vm.clone" => self.clone_vm(at, request, plan),
            "vm.find" => self.find(at, session, text(arguments, "instanceUuid")),
            "task.get" => self.task(at, session, text(arguments, "id")),
            _ => match TaskKind::of_operation(operation) {
                Some(kind) => self.change(at, request, kind, plan),
                None => self.read(at, session, operation, text(arguments, "id")),
            },
        }
    }

    /// A handle that this cloud gave to this owner, or none at all.
    pub(crate) fn authenticate(&self, session: &Session) -> Result<(), Failure> {
        let Some(handle) = &session.handle else {
            return Ok(());
        };
        match self.world.handles.get(handle) {
            Some(known) if known.owner == session.owner => Ok(()),
            _ => Err(Failure::new(
                Code::Unauthenticated,
                "the session's handle is not valid here",
            )),
        }
    }

    fn task(&self, at: u64, session: &Session, id: &str) -> Answer {
        let task = task::number(id).and_then(|number| self.world.tasks.get(&number));
        let task = task.ok_or_else(|| Failure::new(Code::NotFound, format!("no task {id:?}")))?;
        owned(&task.stamp, session, id)?;
        Ok(task.describe(at))
    }

    /// The VM of this id, if whoever asks may see it.
    fn vm(&self, session: &Session, id: &str) -> Result<&Vm, Failure> {
        let vm = vm::number(id)
            .and_then(|number| self.world.vms.get(&number))
            .filter(|vm| !vm.creating());
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
            .filter(|vm| vm.instance_uuid == instance_uuid)
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
        let ends = starts + plan.takes.unwrap_or_else(|| self.config.tasks.of(kind).pick(run));
        let number = self.world.number();
        let task = Task {
            number,
            kind,
            vm,
            name,
            stamp: stamp(request),
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
        let id = text(arguments, "id");
        let by_uuid = |uuid: &str| {
            let owner = self.world.owners.get(&session.owner)?;
            owner
                .vms
                .iter()
                .map(|n| &self.world.vms[n])
                .find(|vm| vm.instance_uuid == uuid)
        };
        let vm = match operation.as_str() {
            "vm.clone" => Some(text(arguments, "name").to_owned()),
            "task.get" => task::number(id)
                .and_then(|n| self.world.tasks.get(&n))
                .map(|task| task.name.clone()),
            "vm.find" => by_uuid(text(arguments, "instanceUuid")).map(|vm| vm.name.clone()),
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
    message.replace("{userData}", text(&request.arguments, "userData"))
}

pub(crate) fn stamp(request: &CloudRequest) -> Stamp {
    let Session { owner, tenant, .. } = request.session.clone();
    Stamp {
        owner,
        tenant,
        key: request.key.clone(),
    }
}

fn owned(stamp: &Stamp, session: &Session, id: &str) -> Result<(), Failure> {
    match stamp.owner == session.owner {
        true => Ok(()),
        false => Err(Failure::new(
            Code::PermissionDenied,
            format!("{id} belongs to another object"),
        )),
    }
}

fn no_vm(id: &str) -> Failure {
    Failure::new(Code::NotFound, format!("no VM {id:?}"))
}

/// A text argument; empty if it is not there.
pub(crate) fn text<'a>(arguments: &'a Value, field: &str) -> &'a str {
    arguments.get(field).and_then(Value::as_str).unwrap_or_default()
}
