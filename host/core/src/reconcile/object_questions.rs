//! Looking: answers a question about objects of the cluster from a watch or from the API server.

use std::sync::Arc;

use super::context::{Command, Context};
use super::frame::{AnswerDelta, CLUSTER_LONGEST, Dependency};
use crate::binding::KindGrant;
use crate::call::{Call, Scope};
use crate::contract::{Code, Failure, Json, ListQuery, Question};
use crate::grants::{self, Answerer};
use crate::key::ObjectKey;
use crate::object::Object;
use crate::render::{Render, RoleQuestion};
use crate::selection::Selection;
use crate::shared::Shared;
use crate::shared::cache::Lookup;
use crate::shared::guards::Guard;

/// The state of a question.
#[derive(Debug)]
pub(super) enum AskState {
    /// The question was not looked at yet, or its list is to be read.
    Due,
    /// The watch of a scope has not listed yet.
    Listing(Scope),
    /// A call reads the answer.
    Reading,
    Answered(Result<Json, Failure>),
    /// The next step renders the answer.
    Named(Arc<Render>),
}

/// What answers a question about objects of the cluster.
pub(super) enum AnswerSource {
    State(AskState),
    /// A list that is to be read.
    List(Box<ObjectQuestion>),
}

impl AskState {
    pub(super) fn is_open(&self) -> bool {
        !matches!(self, AskState::Answered(_) | AskState::Named(_))
    }
}

/// A granted question about objects of the cluster.
#[derive(Debug)]
pub(super) struct ObjectQuestion {
    pub(super) asked: RoleQuestion,
    pub(super) grant: Arc<KindGrant>,
    pub(super) scope: Scope,
    pub(super) selection: Selection,
}

impl ObjectQuestion {
    /// Checks a question. Its selectors are parsed only if they are not known yet.
    pub(super) fn of(
        asked: RoleQuestion,
        parsed: Option<&Selection>,
        context: &Context<'_>,
    ) -> Result<Self, Failure> {
        let (binding, primary) = (&context.frame.binding, context.frame.snapshot.as_ref());
        match grants::check_parsed(binding, asked.0, primary, &asked.1, parsed)? {
            Answerer::Watch(grant, scope, selection) => Ok(ObjectQuestion {
                asked,
                grant,
                scope,
                selection,
            }),
            Answerer::Call => Err(Failure::new(Code::Internal, "no watch answers this")),
        }
    }

    /// Answers from the watch, or starts what will answer. A list that is to be read has to wait for its turn.
    pub(super) fn begin(self, slot: usize, context: &mut Context<'_>) -> AnswerSource {
        if !context.may_watch(&self.scope) {
            return AnswerSource::State(AskState::Answered(Err(too_many_watches(&self.scope))));
        }
        if context.looks_at(&self.scope) || !context.view.cache.is_open(&self.scope) {
            context.command(Command::Watch(self.scope.clone()));
        }
        match &self.asked.1 {
            Question::Object(query) if query.latest => {
                let latest = Question::Object(query.clone());
                context.call(slot, Call::Read(latest), CLUSTER_LONGEST);
                AnswerSource::State(AskState::Reading)
            }
            Question::Objects(query) if query.latest => {
                self.depend(AnswerDelta::default(), context);
                AnswerSource::List(Box::new(self))
            }
            _ => AnswerSource::State(match self.known(context) {
                Some(objects) => {
                    self.depend(AnswerDelta::default(), context);
                    AskState::Named(self.rendering(objects, context).into())
                }
                None => {
                    let scope = self.scope.clone();
                    context.command(Command::AwaitList { slot, scope });
                    AskState::Listing(self.scope)
                }
            }),
        }
    }

    /// Reads a list from the API server.
    pub(super) fn read_list(self, slot: usize, context: &mut Context<'_>) {
        if let Question::Objects(query) = &self.asked.1 {
            let latest = self.latest(query);
            self.depend(AnswerDelta::default(), context);
            context.call(slot, Call::Read(latest), CLUSTER_LONGEST);
        }
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
    fn known(&self, context: &Context<'_>) -> Option<Arc<[Object]>> {
        let cache = &context.view.cache;
        match &self.asked.1 {
            Question::Object(query) => match cache.get(&self.scope, &ObjectKey::from(&query.object)) {
                Lookup::Known(object) => Some(object.into_iter().collect()),
                _ => (!context.is_guarded(Guard::NotFoundNeedsASyncedWatch))
                    .then(|| Arc::new([]) as Arc<[Object]>),
            },
            Question::Objects(query) => match cache.list(&self.scope, query.namespace.as_deref()) {
                Lookup::Known(objects) => Some(objects),
                _ => None,
            },
            _ => None,
        }
    }

    /// Handles what the API server answered. The objects enter the cache, so that later answers are not older.
    pub(super) fn read(self, objects: Vec<Object>, context: &mut Context<'_>) -> Result<Render, Failure> {
        // Others may have been answered meanwhile.
        if context.has_looked_enough(&self.asked) {
            return Err(context.too_many_questions());
        }
        if let Question::Object(query) = &self.asked.1 {
            let place = ObjectKey::from(&query.object);
            let known = context.view.cache.last_known(&self.scope, &place);
            let found = objects.first().map(Object::version);
            // If the watch has already shown a later version, the dependency counts as changed.
            let is_behind = known.is_some_and(|known| found.is_some_and(|found| known.version() > found));
            let delta = if is_behind {
                AnswerDelta::UNKNOWN
            } else {
                AnswerDelta::default()
            };
            self.depend(delta, context);
        }
        context.command(Command::Saw {
            objects: objects.clone(),
            answers: Some(self.asked.clone()),
        });
        Ok(self.rendering(objects, context))
    }

    fn rendering(&self, objects: impl Into<Arc<[Object]>>, context: &Context<'_>) -> Render {
        let primary = context.frame.snapshot.clone();
        let asked = (self.asked.clone(), self.selection.clone());
        Render::new(objects, primary, self.grant.clone(), asked)
    }

    /// Makes the answer a dependency of the pass.
    fn depend(&self, delta: AnswerDelta, context: &mut Context<'_>) {
        let dependency = Dependency {
            delta,
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

    /// Whether the pass has asked the largest number of questions about objects.
    pub(super) fn has_looked_enough(&self, asked: &RoleQuestion) -> bool {
        let known = &self.work.dependencies;
        let limit = self.frame.binding.spec.limits.dependencies as usize;
        known.len() >= limit && !known.contains_key(asked)
    }

    pub(super) fn too_many_questions(&self) -> Failure {
        let limit = self.frame.binding.spec.limits.dependencies;
        let message = format!("more than {limit} questions about objects in one pass");
        Failure::new(Code::ResourceExhausted, message)
    }
}

/// Whether a question is about objects of the cluster: its answer can be a dependency.
pub(super) fn is_of_cluster(question: &Question) -> bool {
    matches!(question, Question::Object(_) | Question::Objects(_))
}

fn too_many_watches(scope: &Scope) -> Failure {
    let message = format!(
        "{scope}: this binding and tenant have as many watches open as the host allows; ask about fewer \
         namespaces and nodes, or again when some are closed"
    );
    Failure::new(Code::ResourceExhausted, message)
}

/// The present answer, from a watch, to a question that an earlier pass used; `None` if no watch has it.
pub(super) fn remembered(
    asked: &RoleQuestion,
    parsed: &Selection,
    context: &mut Context<'_>,
) -> Option<Render> {
    let look = ObjectQuestion::of(asked.clone(), Some(parsed), context).ok()?;
    let objects = look.known(context)?;
    look.depend(AnswerDelta::default(), context);
    Some(look.rendering(objects, context))
}
