//! Asks: answered from the cache where a watch knows, by a call otherwise. Indexed before answered.

use std::sync::Arc;

use serde_json::{Value, json};

use super::call::CLUSTER_LONGEST;
use super::pass::{PassState, Purpose};
use super::{Dependency, Machine, Output, Target};
use crate::binding::Grant;
use crate::cache::Sight;
use crate::call::{Call, CloudRequest, Scope};
use crate::contract::{Answer, Code, Failure, Json, Kind, ListQuery, ObjectQuery, Question, Request, Role};
use crate::fault::{Fault, FaultKind};
use crate::grants;
use crate::object::Object;
use crate::path;

/// Objects that a list may hold when the policy sets no limit of its own.
const LIST_LIMIT: usize = 10_000;

impl Machine {
    /// Begins to answer the asks of a step, all at once.
    pub(super) fn ask(&mut self, mut pass: Box<PassState>, requests: Vec<Request>) {
        let known = |request: &Request| pass.run.journal.iter().any(|entry| entry.request == *request);
        if requests.iter().all(known) {
            let message = "it asks only for what its journal already holds";
            return self.fault(pass, Fault::new(FaultKind::Stalled, message));
        }
        let mut batch: Vec<Request> = Vec::with_capacity(requests.len());
        for request in requests {
            if !known(&request) && !batch.contains(&request) {
                batch.push(request);
            }
        }
        pass.answers = vec![None; batch.len()];
        pass.batch = batch;
        for index in 0..pass.batch.len() {
            let Request::Ask(ask) = &pass.batch[index] else {
                continue;
            };
            let question = ask.question.clone();
            if let Some(answer) = self.answer_or_call(&mut pass, index, &question) {
                pass.answers[index] = Some(answer);
            }
        }
        self.asks_answered(pass);
    }

    /// An answer of a call came in.
    pub(super) fn asked(&mut self, mut pass: Box<PassState>, index: usize, answer: Answer) {
        let Some(Request::Ask(ask)) = pass.batch.get(index) else {
            return self.suspend(pass);
        };
        let question = ask.question.clone();
        let answer = match (&question, answer) {
            (Question::Object(query), Ok(object)) => {
                self.looked_up(&mut pass, query, Some(Object::new(object)))
            }
            (Question::Object(query), Err(failure)) if failure.code == Code::NotFound => {
                self.looked_up(&mut pass, query, None)
            }
            (Question::Objects(query), Ok(Value::Array(items))) => {
                let objects = items.into_iter().map(Object::new).collect();
                self.listed(&mut pass, query, objects)
            }
            (Question::Credential(_), Ok(credential)) => {
                if let Some(handle) = credential["handle"].as_str() {
                    pass.run.handles.insert(handle.to_owned());
                }
                Ok(credential)
            }
            (_, answer) => answer,
        };
        pass.answers[index] = Some(answer);
        self.asks_answered(pass);
    }

    /// The watch that an ask waited for has listed.
    pub(super) fn watch_answered(&mut self, mut pass: Box<PassState>, index: usize) {
        let Some(Request::Ask(ask)) = pass.batch.get(index) else {
            return self.suspend(pass);
        };
        let question = ask.question.clone();
        if let Some(answer) = self.answer_or_call(&mut pass, index, &question) {
            pass.answers[index] = Some(answer);
        }
        self.asks_answered(pass);
    }

    /// Goes on once every ask has its answer.
    fn asks_answered(&mut self, mut pass: Box<PassState>) {
        if pass.answers.iter().any(Option::is_none) {
            return self.suspend(pass);
        }
        let limits = pass.binding.spec.limits.clone();
        let answers = std::mem::take(&mut pass.answers);
        for (request, answer) in std::mem::take(&mut pass.batch)
            .into_iter()
            .zip(answers.into_iter().flatten())
        {
            let answer = answer.map(|value| Json::from(value.to_string()));
            let room = limits.journal.saturating_sub(pass.run.journal_bytes);
            pass.run.append(request, answer, limits.answer.min(room));
        }
        self.call_policy(pass);
    }

    /// Answers at once, or calls and answers later (none).
    fn answer_or_call(&mut self, pass: &mut PassState, index: usize, question: &Question) -> Option<Answer> {
        let primary = pass.snapshot.as_ref();
        let scope = match grants::check_question(&pass.binding, pass.run.role, primary, question) {
            Ok(scope) => scope,
            Err(failure) => {
                self.ungranted(&pass.key.binding.clone(), &failure);
                return Some(Err(failure));
            }
        };
        let purpose = Purpose::Answer {
            index,
            act: false,
            synced: true,
        };
        match question {
            Question::Object(ObjectQuery { latest, .. }) | Question::Objects(ListQuery { latest, .. }) => {
                let scope = scope?;
                if self.cache.open(&scope) {
                    self.out.push(Output::Watch(scope.clone()));
                }
                self.dependents
                    .entry(scope.clone())
                    .or_default()
                    .insert(pass.key.clone());
                pass.asked.insert(scope.clone());
                if *latest {
                    let call = Call::Read(question.clone());
                    self.emit(Target::Pass(pass.id, purpose), call, CLUSTER_LONGEST);
                    return None;
                }
                match self.see(pass, question, &scope) {
                    Sight::Known(answer) => Some(answer),
                    _ => {
                        let purpose = Purpose::Answer {
                            index,
                            act: false,
                            synced: false,
                        };
                        let id = self.expect(Target::Pass(pass.id, purpose), CLUSTER_LONGEST, None);
                        self.unsynced.entry(scope).or_default().push(id);
                        None
                    }
                }
            }
            Question::Secret(_) => {
                self.emit(
                    Target::Pass(pass.id, purpose),
                    Call::Read(question.clone()),
                    CLUSTER_LONGEST,
                );
                None
            }
            Question::Cloud(call) => {
                let arguments = match call.arguments.tree(&call.operation) {
                    Ok(arguments) => arguments.clone(),
                    Err(failure) => return Some(Err(failure)),
                };
                let longest = pass
                    .binding
                    .catalogue
                    .operations
                    .get(&call.operation)
                    .map(|o| o.longest);
                let request = CloudRequest {
                    session: pass.session(),
                    operation: call.operation.clone(),
                    arguments,
                    key: None,
                };
                self.ask_cloud(
                    pass,
                    purpose,
                    Call::Cloud(request),
                    longest.unwrap_or(CLUSTER_LONGEST),
                );
                None
            }
            Question::Permit(name) => {
                let held = self.permits.take(&pass.key.binding, &pass.tenant, name, pass.id);
                let held = held || !self.guards.permits_exclude;
                Some(Ok(json!(if held { "held" } else { "busy" })))
            }
            Question::Credential(plan) => {
                let session = pass.session();
                let call = Call::Credential {
                    cloud: session.cloud,
                    owner: session.owner,
                    plan: plan.clone(),
                };
                self.ask_cloud(pass, purpose, call, CLUSTER_LONGEST);
                None
            }
        }
    }

    /// What a watch knows of a question; its digest becomes a dependency.
    fn see(&mut self, pass: &mut PassState, question: &Question, scope: &Scope) -> Sight<Answer> {
        match question {
            Question::Object(query) => {
                let place = (query.object.namespace.clone(), query.object.name.clone());
                match self.cache.get(scope, &place) {
                    Sight::Known(object) => Sight::Known(self.looked_up(pass, query, object)),
                    Sight::Unsynced if !self.guards.not_found_needs_a_synced_watch => {
                        Sight::Known(self.looked_up(pass, query, None))
                    }
                    Sight::Unsynced => Sight::Unsynced,
                    Sight::Unwatched => Sight::Unwatched,
                }
            }
            Question::Objects(query) => match self.cache.list(scope, query) {
                Sight::Known(objects) => Sight::Known(self.listed(pass, query, objects)),
                Sight::Unsynced => Sight::Unsynced,
                Sight::Unwatched => Sight::Unwatched,
            },
            _ => Sight::Unwatched,
        }
    }

    /// What the cache knows now of a question that an earlier pass used; none if it does not.
    pub(super) fn watched_answer(
        &mut self,
        pass: &mut PassState,
        question: &Question,
    ) -> Option<Result<Json, Failure>> {
        let primary = pass.snapshot.as_ref();
        let scope = grants::check_question(&pass.binding, pass.run.role, primary, question).ok()??;
        match self.see(pass, question, &scope) {
            Sight::Known(answer) => Some(answer.map(|value| value.to_string().into())),
            _ => None,
        }
    }

    fn looked_up(&mut self, pass: &mut PassState, query: &ObjectQuery, found: Option<Object>) -> Answer {
        let answer = object_answer(pass, query, found.as_ref());
        self.depend(pass, Question::Object(query.clone()), &answer);
        answer
    }

    fn listed(&mut self, pass: &mut PassState, query: &ListQuery, found: Vec<Object>) -> Answer {
        let answer = list_answer(pass, query, &found);
        self.depend(pass, Question::Objects(query.clone()), &answer);
        answer
    }

    fn depend(&mut self, pass: &mut PassState, question: Question, answer: &Answer) {
        let primary = pass.snapshot.as_ref();
        if let Ok(Some(scope)) = grants::check_question(&pass.binding, pass.run.role, primary, &question) {
            let digest = digest_of(answer);
            pass.deps
                .insert((pass.run.role, question), Dependency { scope, digest });
        }
    }

    /// After an own write of this object, up to this version: what a pass of this key used looks like this now, and that is
    /// no news to it, unless something was shown meanwhile that it did not write.
    pub(super) fn absorb_own_write(&mut self, pass: &mut PassState, kind: &Kind, uid: &str, version: u64) {
        pass.shown.retain(|(_, shown, at)| shown != uid || *at > version);
        let disturbed = |scope: &Scope| pass.shown.iter().any(|(shown, ..)| shown == scope);
        let touched: Vec<(Role, Question)> = pass
            .deps
            .iter()
            .filter(|(_, dep)| dep.scope.kind == *kind && !disturbed(&dep.scope))
            .map(|(key, _)| key.clone())
            .collect();
        for (role, question) in touched {
            let Some(dep) = pass.deps.get(&(role, question.clone())) else {
                continue;
            };
            if let Some(digest) = self.current_digest(pass, &question, &dep.scope.clone())
                && let Some(dep) = pass.deps.get_mut(&(role, question))
            {
                dep.digest = digest;
            }
        }
    }

    fn current_digest(&self, pass: &PassState, question: &Question, scope: &Scope) -> Option<path::Digest> {
        let answer = match question {
            Question::Object(query) => {
                let place = (query.object.namespace.clone(), query.object.name.clone());
                match self.cache.get(scope, &place) {
                    Sight::Known(found) => object_answer(pass, query, found.as_ref()),
                    _ => return None,
                }
            }
            Question::Objects(query) => match self.cache.list(scope, query) {
                Sight::Known(found) => list_answer(pass, query, &found),
                _ => return None,
            },
            _ => return None,
        };
        Some(digest_of(&answer))
    }
}

/// The answer to a question about one object, without a pass at hand: as the wake rules compare it.
pub(super) fn object_answer(pass: &PassState, query: &ObjectQuery, found: Option<&Object>) -> Answer {
    answer_object(&pass.binding, pass.snapshot.as_ref(), query, found)
}

/// The answer that a primary of a binding gets about one object.
pub(super) fn answer_object(
    binding: &crate::binding::Binding,
    primary: Option<&Object>,
    query: &ObjectQuery,
    found: Option<&Object>,
) -> Answer {
    let Some(found) = found else {
        let object = &query.object;
        return Err(Failure::new(
            Code::NotFound,
            format!("{} {} not found", object.kind.kind, object.name),
        ));
    };
    grants::check_relation(binding, primary, |grant| matches!(grant, Grant::Ask(_)), found)?;
    Ok(path::project(found.value(), &query.projection))
}

fn list_answer(pass: &PassState, query: &ListQuery, found: &[Object]) -> Answer {
    answer_list(&pass.binding, pass.snapshot.as_ref(), query, found)
}

/// The answer that a primary of a binding gets about a list.
pub(super) fn answer_list(
    binding: &crate::binding::Binding,
    primary: Option<&Object>,
    query: &ListQuery,
    found: &[Object],
) -> Answer {
    let limit = if query.limit == 0 {
        LIST_LIMIT
    } else {
        query.limit as usize
    };
    let related: Vec<&Object> = found
        .iter()
        .filter(|object| {
            grants::check_relation(binding, primary, |grant| matches!(grant, Grant::Ask(_)), object).is_ok()
        })
        .collect();
    if related.len() > limit {
        let message = format!(
            "{} {} objects, at most {limit} were asked for",
            related.len(),
            query.kind.kind
        );
        return Err(Failure::new(Code::ResourceExhausted, message));
    }
    Ok(related
        .iter()
        .map(|object| path::project(object.value(), &query.projection))
        .collect())
}

/// The digest of an answer; of a failure, its code.
pub(super) fn digest_of(answer: &Answer) -> path::Digest {
    match answer {
        Ok(value) => path::digest(value),
        Err(failure) => path::digest(&json!(failure.code.as_str())),
    }
}

pub(super) fn bad_json(what: &str, e: &serde_json::Error) -> Failure {
    Failure::new(
        Code::InvalidArgument,
        format!("{what}: its arguments are not JSON: {e}"),
    )
}

/// Shares a name as the maps of the machine hold it.
pub(super) fn shared(name: &str) -> Arc<str> {
    Arc::from(name)
}
