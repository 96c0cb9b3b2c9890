//! Tasks: work that takes longer than a call.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Kernel;
use super::between::Between;
use super::call::{Call, Stamp, TaskError, number};
use super::due::Due;

/// A task, from its submission until its record expires. Times are Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Task {
    pub(crate) number: u64,
    /// The operation that started it.
    pub(crate) operation: String,
    /// The number of the thing that it works on.
    pub(crate) about: u64,
    /// The name of that thing, even if the thing will never exist.
    pub(crate) name: String,
    pub(crate) stamp: Stamp,
    pub(crate) submitted: u64,
    pub(crate) starts: u64,
    pub(crate) ends: u64,
    /// What the service needs to know when the task ends, without secrets.
    pub(crate) told: Value,
    /// The error in which it will end, set by a fault or at submission.
    pub(crate) doomed: Option<TaskError>,
    /// The result; `None` until it has ended.
    pub(crate) ended: Option<Result<(), TaskError>>,
}

/// What a task works on, and how long it takes.
pub(crate) struct Work {
    pub(crate) about: u64,
    pub(crate) name: String,
    /// How long it takes, unless the scenario says otherwise.
    pub(crate) takes: Between,
    pub(crate) told: Value,
}

impl Task {
    pub(crate) fn id(&self) -> String {
        format!("{PREFIX}{}", self.number)
    }

    /// The state of the task.
    pub(crate) fn state(&self, now: u64) -> &'static str {
        match &self.ended {
            None if now < self.starts => "queued",
            None => "running",
            Some(Ok(())) => "success",
            Some(Err(_)) => "error",
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.ended, Some(Err(_)))
    }
}

/// The prefix of a task's id.
const PREFIX: &str = "task-";

/// The id of a task: `task-7`.
pub(crate) fn id(number: u64) -> String {
    format!("{PREFIX}{number}")
}

impl<E, Q> Kernel<E, Q> {
    /// Adds a task and schedules its end.
    pub(crate) fn submit(&mut self, at: u64, call: &Call<Q>, work: Work) -> &Task {
        let owner = &call.caller.owner;
        let (queue, run) = (self.draw_for(owner), self.draw_for(owner));
        let starts = at + self.settings.queue.pick(queue);
        let ends = starts + call.plan.takes.unwrap_or_else(|| work.takes.pick(run));
        let number = self.number();
        let task = Task {
            number,
            operation: call.operation.clone(),
            about: work.about,
            name: work.name,
            stamp: call.stamp(),
            submitted: at,
            starts,
            ends,
            told: work.told,
            doomed: call.plan.doomed.clone(),
            ended: None,
        };
        self.tasks.insert(number, task);
        self.owned.get_or_default(owner.clone()).insert(number);
        self.enter(ends, Due::End(number));
        self.dirty = true;
        &self.tasks[&number]
    }

    /// All tasks whose records have not expired, the oldest first.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// The tasks of one owner, oldest first.
    pub(crate) fn tasks_of(&self, owner: &str) -> impl Iterator<Item = &Task> {
        let own = self.owned.get(owner).into_iter().flatten();
        own.map(|number| &self.tasks[number])
    }

    pub(crate) fn task(&self, number: u64) -> Option<&Task> {
        self.tasks.get(&number)
    }

    /// The task of an id such as `task-7`.
    pub(crate) fn task_by_id(&self, id: &str) -> Option<&Task> {
        self.task(number(id, PREFIX)?)
    }

    /// Ends a task with a result. Its record expires later.
    pub(crate) fn end_task(&mut self, at: u64, number: u64, ended: Result<(), TaskError>) {
        if let Some(task) = self.tasks.get_mut(&number) {
            task.ended = Some(ended);
            let expires = at + self.settings.retention;
            self.enter(expires, Due::Expire(number));
        }
    }

    /// Removes the record of a task.
    pub(crate) fn forget_task(&mut self, number: u64) {
        if let Some(task) = self.tasks.remove(&number) {
            self.owned.get_or_default(task.stamp.owner).remove(&number);
        }
    }
}
