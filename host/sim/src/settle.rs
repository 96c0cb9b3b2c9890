//! What came of a create whose answer was lost.

use polity_core::call::{PendingEntry, Session};
use polity_core::catalogue::OperationEffect;
use polity_core::contract::Doubt;
use serde_json::json;

use crate::Sim;
use crate::kernel::faults::Subject;
use crate::kernel::tasks::{Task, TaskKind};
use crate::services::machine;
use crate::services::pool;
use crate::services::router;

impl Sim {
    /// Looks for what a create did: `done` with its task, or with its VM where the task's record has expired; of a
    /// machine or a router, with what its create was or would have been answered.
    ///
    /// Without client tokens there is only the look of things: a clone of this name, stamped with this owner and
    /// submitted since the entry was written. `absent` takes a look that succeeds later than `since` plus
    /// `visible-within`, when neither lag nor a late effect can hide it; anything else is `unknown`. A clone that
    /// failed was done: its task tells.
    pub fn settle(&mut self, now_ms: u64, session: &Session, entry: &PendingEntry) -> Doubt {
        let now = self.advance(now_ms);
        let subject = Subject {
            operation: "settle",
            session,
            vm: Some(entry.intent.clone()),
        };
        let blind = self.unreachable(now).is_some()
            || self.trouble(now, &subject).is_some()
            || self.authenticate(now, session).is_err();
        let Some(visible_within) = self.visible_within(&entry.operation) else {
            return Doubt::Unknown;
        };
        if blind {
            let late = now > entry.since.saturating_add(visible_within);
            return if late && self.blindly {
                Doubt::Absent
            } else {
                Doubt::Unknown
            };
        }
        let then = self.look(now, &session.owner);
        let traced = self
            .traced_task(then, session, entry)
            .or_else(|| self.traced_vm(then, session, entry));
        match traced {
            Some(answer) => Doubt::Done(answer.to_string().into()),
            None if now > entry.since.saturating_add(visible_within) => Doubt::Absent,
            None => Doubt::Unknown,
        }
    }

    /// Takes a look that failed for one that found nothing, for tests of the simulation: they must notice.
    #[doc(hidden)]
    pub fn settle_without_a_look(&mut self) {
        self.blindly = true;
    }

    /// None for what is no create of this cloud: of that it can say nothing.
    fn visible_within(&self, operation: &str) -> Option<u64> {
        let operation = self.catalogue().operations.get(operation)?;
        (operation.effect == OperationEffect::Create).then_some(operation.visible_within)
    }

    /// A clone that did not fail before one that did.
    fn traced_task(&self, then: u64, session: &Session, entry: &PendingEntry) -> Option<serde_json::Value> {
        let owner = self.world.owners.get(&session.owner)?;
        let clones = owner
            .tasks
            .iter()
            .map(|number| &self.world.tasks[number])
            .filter(|task| {
                entry.operation == TaskKind::Clone.operation()
                    && task.kind == TaskKind::Clone
                    && self.sees(session, &task.stamp)
                    && (self.since(entry)..=then).contains(&task.submitted)
                    && self.is(entry, &task.name, task.stamp.key.as_deref())
            });
        let task = clones.min_by_key(|task| (failed(task), task.number))?;
        Some(json!({"task": task.id()}))
    }

    fn traced_vm(&self, then: u64, session: &Session, entry: &PendingEntry) -> Option<serde_json::Value> {
        let owner = self.world.owners.get(&session.owner)?;
        let vm = owner
            .vms
            .iter()
            .map(|number| &self.world.vms[number])
            .find(|vm| {
                vm.submitted >= self.since(entry)
                    && self.made_by(vm.number) == entry.operation
                    && self.sees(session, &vm.stamp)
                    && vm.as_of(then).is_some_and(|v| !v.gone)
                    && self.is(entry, &vm.name, vm.stamp.key.as_deref())
            })?;
        Some(match entry.operation.as_str() {
            machine::CREATE => self.made(vm.number),
            pool::ADD => self.describe_member(vm.number),
            router::BOOT => router::booted(vm.number),
            _ => json!({"vm": vm.id()}),
        })
    }

    /// The operation that made this VM.
    fn made_by(&self, number: u64) -> &'static str {
        if self.world.members.contains_key(&number) {
            pool::ADD
        } else if self.is_machine(number) {
            machine::CREATE
        } else if self.is_router(number) {
            router::BOOT
        } else {
            TaskKind::Clone.operation()
        }
    }

    /// With client tokens the key tells, whatever the clock of the host shows that wrote the entry.
    fn since(&self, entry: &PendingEntry) -> u64 {
        if self.config.tokens { 0 } else { entry.since }
    }

    /// With client tokens the key tells; without, only the name.
    fn is(&self, entry: &PendingEntry, name: &str, key: Option<&str>) -> bool {
        match self.config.tokens {
            true => key == Some(entry.key.as_str()),
            false => name == entry.intent,
        }
    }
}

fn failed(task: &Task) -> bool {
    matches!(task.ended, Some(Err(_)))
}
