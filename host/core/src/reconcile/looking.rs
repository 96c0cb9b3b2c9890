//! Looking: answers a question about objects of the cluster from a watch or from the API server.

use std::sync::Arc;
use std::time::Duration;

use super::asking::{AskState, is_list};
use super::frame::{Dependency, Moved, Questions};
use super::{CLUSTER_LONGEST, Command, Context};
use crate::binding::KindGrant;
use crate::call::{Call, Scope};
use crate::contract::{Code, Failure, Json, ListQuery, Question, Role};
use crate::grants::{self, Admitted};
use crate::key::ObjectKey;
use crate::object::Object;
use crate::render::{Render, too_large};
use crate::selection::Selection;
use crate::shared::Shared;
use crate::shared::cache::Lookup;
use crate::shared::guards::Guard;

/// The longest wait for a thread that renders an answer or computes with a large object.
pub(super) const THREAD_LONGEST: Duration = Duration::from_mins(1);

/// A granted question about objects of the cluster.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) asked: Questions,
    pub(super) grant: Arc<KindGrant>,
    pub(super) scope: Scope,
    pub(super) selection: Selection,
}

impl Look {
    /// Checks a question. Its selectors are parsed only if they are not known yet.
    pub(super) fn of(
        role: Role,
        question: &Question,
        parsed: Option<&Selection>,
        context: &Context<'_>,
    ) -> Result<Self, Failure> {
        let (binding, primary) = (&context.frame.binding, context.frame.snapshot.as_ref());
        match grants::check_parsed(binding, role, primary, question, parsed)? {
            Admitted::Watch(grant, scope, selection) => Ok(Look {
                asked: (role, question.clone()),
                grant,
                scope,
                selection,
            }),
            Admitted::Call => Err(Failure::new(Code::Internal, "no watch answers this")),
        }
    }

    /// Starts a read if the question asks for the latest object. Otherwise the question is queued.
    pub(super) fn begin(self, slot: usize, context: &mut Context<'_>) -> AskState {
        if !context.may_watch(&self.scope) {
            return AskState::Answered(Err(too_many_watches(&self.scope)));
        }
        if context.looks_at(&self.scope) || !context.view.cache.is_open(&self.scope) {
            context.command(Command::Watch(self.scope.clone()));
        }
        match &self.asked.1 {
            Question::Object(query) if query.latest => {
                let latest = Question::Object(query.clone());
                context.call(slot, Call::Read(latest), CLUSTER_LONGEST);
                AskState::Reading
            }
            _ => AskState::Queued(Box::new(self)),
        }
    }

    /// Answers from the watch, or starts what will answer.
    pub(super) fn answer(self, slot: usize, room: u64, context: &mut Context<'_>) -> AskState {
        if context.has_looked_enough(self.asked.0, &self.asked.1, 0) {
            return AskState::Answered(Err(context.too_many_questions()));
        }
        if let Question::Objects(query) = &self.asked.1 {
            if room == 0 {
                return AskState::Answered(Err(too_large(room)));
            }
            if query.latest {
                let latest = self.latest(query);
                self.depend(Moved::default(), context);
                context.call(slot, Call::Read(latest), CLUSTER_LONGEST);
                return AskState::Reading;
            }
        }
        match self.known(context) {
            None => self.await_list(slot, context),
            Some(objects) => {
                self.depend(Moved::default(), context);
                self.render(slot, objects, room, context)
            }
        }
    }

    fn await_list(self, slot: usize, context: &mut Context<'_>) -> AskState {
        let scope = self.scope.clone();
        context.command(Command::AwaitList { slot, scope });
        AskState::Listing(self.scope)
    }

    /// The list question for the API server. Its namespace is that of the grant's scope, so that it reads nothing
    /// beyond the grant. It has no limit, because a limit would count objects that the relation of the grant removes
    /// later.
    fn latest(&self, query: &ListQuery) -> Question {
        Question::Objects(ListQuery {
            namespace: self.scope.namespace.clone(),
            limit: 0,
            ..query.clone()
        })
    }

    /// The objects that the answer may be about, as the watch shows them; `None` if it has not listed.
    fn known(&self, context: &Context<'_>) -> Option<Vec<Object>> {
        let cache = &context.view.cache;
        match &self.asked.1 {
            Question::Object(query) => match cache.get(&self.scope, &ObjectKey::from(&query.object)) {
                Lookup::Known(object) => Some(object.into_iter().collect()),
                _ => (!context.is_guarded(Guard::NotFoundNeedsASyncedWatch)).then(Vec::new),
            },
            Question::Objects(query) => match cache.list(&self.scope, query.namespace.as_deref()) {
                Lookup::Known(objects) => Some(objects),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the answer is a list from so many objects that a thread renders it. A pass that begins asks that of all that
    /// the last one used, so it is known before the objects are collected.
    fn is_long_list(&self, context: &Context<'_>) -> bool {
        let Shared { cache, rooms, .. } = context.view;
        let namespace = match &self.asked.1 {
            Question::Objects(query) => query.namespace.as_deref(),
            _ => return false,
        };
        cache.is_synced(&self.scope) && cache.holds_more(&self.scope, namespace, rooms.short_list())
    }

    /// Handles what the API server answered. The objects enter the cache, so that later answers are not older.
    pub(super) fn read(
        self,
        slot: usize,
        objects: Vec<Object>,
        room: u64,
        context: &mut Context<'_>,
    ) -> AskState {
        let (seen, answers) = (objects.clone(), Some(self.asked.clone()));
        let saw = Command::Saw {
            objects: seen,
            answers,
        };
        let Question::Object(query) = &self.asked.1 else {
            context.command(saw);
            return self.render(slot, objects, room, context);
        };
        let place = ObjectKey::from(&query.object);
        let known = context.view.cache.last_known(&self.scope, &place).cloned();
        let found = objects.first().map(Object::version);
        // If the watch has already shown a later version, the dependency counts as changed.
        let is_behind = known
            .as_ref()
            .is_some_and(|known| found.is_some_and(|found| known.version() > found));
        let moved = match is_behind {
            true => Moved::SOMEHOW,
            false => Moved::default(),
        };
        self.depend(moved, context);
        context.command(saw);
        let render = self.rendering(objects, room, context);
        if context.is_short(&render) {
            return AskState::Answered(self.run(&render, context));
        }
        // Many objects that were read would wait for a thread at the same time. So only those may that the cache holds
        // anyway.
        match known.filter(|known| found == Some(known.version())) {
            Some(known) => self.render(slot, vec![known], room, context),
            None => AskState::Answered(self.run(&render, context)),
        }
    }

    /// Renders an answer at once, or sends it to a thread if much text is read for it.
    fn render(self, slot: usize, objects: Vec<Object>, room: u64, context: &mut Context<'_>) -> AskState {
        let render = self.rendering(objects, room, context);
        match context.is_short(&render) {
            true => AskState::Answered(self.run(&render, context)),
            false => {
                context.call(slot, Call::Render(Box::new(render)), THREAD_LONGEST);
                AskState::Rendering
            }
        }
    }

    fn rendering(&self, objects: Vec<Object>, room: u64, context: &Context<'_>) -> Render {
        let primary = context.frame.snapshot.clone();
        let asked = (self.asked.1.clone(), self.selection.clone());
        Render::new(objects, primary, self.grant.clone(), asked, room)
    }

    fn run(&self, render: &Render, context: &mut Context<'_>) -> Result<Json, Failure> {
        let rendered = render.run();
        context.read = context.read.saturating_add(rendered.read);
        context.counted(&self.asked, rendered.count);
        rendered.answer
    }

    /// Makes the answer a dependency of the pass.
    fn depend(&self, moved: Moved, context: &mut Context<'_>) {
        let dependency = Dependency {
            moved,
            ..Dependency::new(self.grant.clone(), self.scope.clone(), self.selection.clone())
        };
        context.looks_at(&self.scope);
        if !context.work.answered.contains(&self.scope) {
            context.work.answered.insert(self.scope.clone());
        }
        context.work.dependencies.insert(self.asked.clone(), dependency);
    }
}

impl Context<'_> {
    /// Whether the pass may watch a scope: the scope is open, or its tenant queue may open another one. Scopes that the
    /// pass has just asked for are opened only when its handler has returned.
    fn may_watch(&self, scope: &Scope) -> bool {
        let Shared { cache, watches, .. } = self.view;
        let (asked, tenant_queue) = (&self.work.looked_at, &self.frame.tenant_queue);
        // Counting takes long for a pass that asks much, and is needed only where room is scarce.
        if cache.is_open(scope) || asked.contains(scope) || watches.has_room(tenant_queue, asked.len()) {
            return true;
        }
        let to_be_opened = asked.iter().filter(|scope| !cache.is_open(scope)).count();
        watches.has_room(tenant_queue, to_be_opened)
    }

    /// Stores that the pass looks at a scope. Returns whether it had not before.
    fn looks_at(&mut self, scope: &Scope) -> bool {
        let is_new = !self.work.looked_at.contains(scope);
        if is_new {
            self.work.looked_at.insert(scope.clone());
        }
        is_new
    }

    /// Whether the pass has asked the largest number of questions about objects. `under_way` counts the questions that
    /// have no answer yet.
    pub(super) fn has_looked_enough(&self, role: Role, question: &Question, under_way: usize) -> bool {
        let known = &self.work.dependencies;
        let limit = self.frame.binding.spec.limits.dependencies as usize;
        known.len() + under_way >= limit && !known.contains_key(&(role, question.clone()))
    }

    pub(super) fn too_many_questions(&self) -> Failure {
        let limit = self.frame.binding.spec.limits.dependencies;
        let message = format!("more than {limit} questions about objects in one pass");
        Failure::new(Code::ResourceExhausted, message)
    }

    /// Whether the journals of the tenant queue, and all journals, leave room for another answer.
    pub(super) fn may_hold_more(&self) -> bool {
        let guarded = self.is_guarded(Guard::RoomsAreBounded);
        self.view
            .journals
            .may_hold_more(&self.frame.tenant_queue, self.frame.id)
            || !guarded
    }

    /// Whether an answer is short enough to be rendered here.
    fn is_short(&self, render: &Render) -> bool {
        self.view.rooms.is_short(render, self.read)
    }

    /// Stores how many objects an answer counted.
    pub(super) fn counted(&mut self, asked: &Questions, count: u64) {
        if let Some(dependency) = self.work.dependencies.get_mut(asked) {
            dependency.count = count;
        }
    }
}

fn too_many_watches(scope: &Scope) -> Failure {
    let message = format!(
        "{scope}: this binding and tenant have as many watches open as the host allows; ask about fewer \
         namespaces and nodes, or again when some are closed"
    );
    Failure::new(Code::ResourceExhausted, message)
}

/// The present answer, from a watch, to a question that an earlier pass used.
pub(super) enum Remembered {
    /// The answer.
    Answer(Result<Json, Failure>),
    /// Much text is read for the answer. A thread must render it before the first step.
    Long,
    /// No watch has the answer.
    Unknown,
}

/// Answers a question that an earlier pass used, from the watch.
pub(super) fn remembered(
    (role, question): &Questions,
    parsed: &Selection,
    room: u64,
    context: &mut Context<'_>,
) -> Remembered {
    let Ok(look) = Look::of(*role, question, Some(parsed), context) else {
        return Remembered::Unknown;
    };
    if look.is_long_list(context) {
        return Remembered::Long;
    }
    let Some(objects) = look.known(context) else {
        return Remembered::Unknown;
    };
    if room == 0 && is_list(question) {
        return Remembered::Answer(Err(too_large(room)));
    }
    let render = look.rendering(objects, room, context);
    if !context.is_short(&render) {
        return Remembered::Long;
    }
    look.depend(Moved::default(), context);
    Remembered::Answer(look.run(&render, context))
}
