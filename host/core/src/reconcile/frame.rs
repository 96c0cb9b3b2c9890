//! The state that stays the same during a pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::binding::{Binding, KindGrant};
use crate::call::{Scope, Session};
use crate::contract::{Cause, Question, Role};
use crate::key::{Key, ObjectKey, PassId};
use crate::object::Object;
use crate::render::{RoleQuestion, limit};
use crate::selection::Selection;
use crate::time::{Boot, Now};

/// The longest time for a read or write of the cluster. A call that takes longer is cut. No act may take longer.
pub(crate) const CLUSTER_LONGEST: Duration = Duration::from_secs(5);

/// The state that stays the same during a pass.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) id: PassId,
    pub(crate) key: Key,
    pub(crate) tenant: Arc<str>,
    /// The fair-queueing group of the key: its binding and tenant.
    pub(crate) tenant_queue: Arc<str>,
    /// The binding when the pass began. A later change of the binding takes effect in the next pass.
    pub(crate) binding: Arc<Binding>,
    pub(crate) started: Now,
    /// How long the key was queued before.
    pub(crate) queued: Duration,
    pub(crate) causes: Vec<Cause>,
    /// The number of failed passes in a row before this one.
    pub(crate) attempt: u32,
    /// The number of faults in a row before this pass.
    pub(crate) faults: u32,
    /// Whether the pass was delayed because the rate limit of the key had no token.
    pub(crate) slowed: bool,
    /// The primary as the pass read it.
    pub(crate) snapshot: Option<Object>,
    pub(crate) last: LastPass,
}

/// What a key remembers of its earlier passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastPass {
    /// The questions that the last concluded pass used, and how their answers changed since.
    pub(crate) used: Arc<[(RoleQuestion, Dependency)]>,
    /// Since when the passes of the key fail.
    pub(crate) failing_since: Option<Boot>,
    /// How long the key waited after the last pass, if that pass had to be retried.
    pub(crate) waited: Option<Duration>,
}

/// An answer that a pass depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dependency {
    /// The grant through which the pass asked.
    pub(crate) grant: Arc<KindGrant>,
    pub(crate) scope: Scope,
    /// The selectors of the question.
    pub(crate) selection: Selection,
    /// The number of objects that the answer counted.
    pub(crate) count: u64,
    /// How the answer changed since it was given.
    pub(crate) delta: AnswerDelta,
}

/// The change of an answer: the digests of its items after each change, minus those before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerDelta {
    sum: u128,
    count: i64,
}

impl AnswerDelta {
    /// A change that is known to exist, but not as a difference of digests.
    pub(crate) const UNKNOWN: AnswerDelta = AnswerDelta { sum: 1, count: 0 };

    /// Adds the change of one item.
    pub(crate) fn by(&mut self, before: Option<u128>, after: Option<u128>) {
        let value = |digest: Option<u128>| digest.unwrap_or_default();
        self.sum = self.sum.wrapping_sub(value(before)).wrapping_add(value(after));
        self.count += i64::from(after.is_some()) - i64::from(before.is_some());
    }

    /// Adds another change.
    pub(crate) fn add(&mut self, other: AnswerDelta) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.count += other.count;
    }
}

impl Dependency {
    pub(super) fn new(grant: Arc<KindGrant>, scope: Scope, selection: Selection) -> Self {
        Dependency {
            grant,
            scope,
            selection,
            count: 0,
            delta: AnswerDelta::default(),
        }
    }

    /// Enters how a change altered the answer, and what of it the pass did itself. The pass knows the latter, so it
    /// counts as if it had been answered.
    pub(crate) fn change_by(&mut self, [delta, own]: [AnswerDelta; 2]) {
        self.count = self.count.saturating_add_signed(own.count);
        self.delta.add(delta);
        self.delta.sum = self.delta.sum.wrapping_sub(own.sum);
        self.delta.count -= own.count;
    }

    /// Whether the answer of the question has changed. A list that was too long and still is too long has the same
    /// answer.
    pub(crate) fn is_other(&self, question: &Question, delta: AnswerDelta) -> bool {
        let is_too_long = |count: u64| match question {
            Question::Objects(query) => count > limit(query),
            _ => false,
        };
        let now = self.count.saturating_add_signed(delta.count);
        delta != AnswerDelta::default() && !(is_too_long(self.count) && is_too_long(now))
    }
}

/// The answers that a pass depends on, by role and question.
pub(super) type Dependencies = BTreeMap<RoleQuestion, Dependency>;

impl Frame {
    pub(crate) fn place(&self) -> ObjectKey {
        ObjectKey::from(&self.key)
    }

    pub(crate) fn uid(&self) -> &str {
        self.snapshot.as_ref().map_or("", Object::uid)
    }

    /// The session for calls of the cloud: on whose behalf they are made, with the handle that the identity policy
    /// granted.
    pub(super) fn session(&self, handle: Option<&str>) -> Session {
        let cloud = self.binding.spec.cloud.as_ref();
        let namespace = self.snapshot.as_ref().and_then(Object::namespace);
        Session {
            cloud: cloud.map_or_else(String::new, |cloud| cloud.name.clone()),
            handle: handle.map(str::to_owned),
            owner: self.uid().to_owned(),
            tenant: self.tenant.to_string(),
            tenant_queue: self.tenant_queue.clone(),
            namespace: namespace.map(str::to_owned),
        }
    }

    /// The finalizer in the manifest of the lifecycle policy.
    pub(super) fn finalizer(&self) -> Option<&str> {
        let policy = self.binding.policy(Role::Lifecycle)?;
        policy.manifest.finalizer.as_deref()
    }

    /// The longest time that an operation of the binding's cloud takes.
    pub(super) fn longest(&self, operation: &str) -> Duration {
        let operation = self.binding.catalogue.operations.get(operation);
        operation.map_or(CLUSTER_LONGEST, |operation| operation.longest)
    }
}

/// The scopes in which a binding watches its governed kind: one, or one for each namespace that the host was started
/// for.
pub(crate) fn primary_scopes(binding: &Binding) -> Vec<Scope> {
    match (&binding.spec.governs.namespace, &binding.namespaces) {
        (None, Some(namespaces)) => namespaces
            .iter()
            .map(|namespace| scope_in(binding, Some(namespace)))
            .collect(),
        (namespace, _) => vec![scope_in(binding, namespace.as_deref())],
    }
}

/// The scope among [`primary_scopes`] that holds this object.
pub(crate) fn primary_scope(binding: &Binding, place: &ObjectKey) -> Scope {
    match (&binding.spec.governs.namespace, &binding.namespaces) {
        (None, Some(_)) => scope_in(binding, place.namespace.as_deref()),
        (namespace, _) => scope_in(binding, namespace.as_deref()),
    }
}

/// Whether a binding governs objects with this namespace and name. Other bindings of the same kind are not considered
/// here.
pub(crate) fn reaches(binding: &Binding, place: &ObjectKey) -> bool {
    let governs = &binding.spec.governs;
    let here = place.namespace.as_deref();
    let in_namespace = match (&governs.namespace, &binding.namespaces) {
        (Some(namespace), _) => here == Some(namespace),
        (None, Some(namespaces)) => namespaces.iter().any(|namespace| here == Some(namespace)),
        (None, None) => true,
    };
    in_namespace && governs.name.as_deref().is_none_or(|name| *name == *place.name)
}

fn scope_in(binding: &Binding, namespace: Option<&str>) -> Scope {
    Scope {
        kind: binding.spec.governs.kind(),
        namespace: namespace.map(str::to_owned),
        name: binding.spec.governs.name.clone(),
        node: None,
        fields: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ListQuery;
    use crate::reconcile::fixture::binding;
    use serde_json::json;

    #[test]
    fn a_list_that_was_too_long_and_still_is_has_the_same_answer() {
        let grant = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        let grant: KindGrant = serde_json::from_value(grant).expect("a grant");
        let question = Question::Objects(ListQuery {
            limit: 2,
            ..ListQuery::all(grant.kind())
        });
        let delta = |before: Option<u128>, after: Option<u128>| {
            let mut delta = AnswerDelta::default();
            delta.by(before, after);
            delta
        };
        let (changed, more, less) = (
            delta(Some(1), Some(2)),
            delta(None, Some(3)),
            delta(Some(3), None),
        );
        for (count, delta, is_other) in [
            (1, AnswerDelta::default(), false),
            (1, changed, true),
            (2, changed, true),
            (2, more, true),
            (3, changed, false),
            (3, more, false),
            (3, less, true),
        ] {
            let scope = primary_scopes(&binding(&[])).remove(0);
            let mut dependency = Dependency::new(grant.clone().into(), scope, Selection::default());
            dependency.count = count;
            assert_eq!(
                dependency.is_other(&question, delta),
                is_other,
                "{count} {delta:?}"
            );
            let lock = Question::Lock("one".into());
            assert_eq!(dependency.is_other(&lock, delta), delta != AnswerDelta::default());
            dependency.change_by([delta, delta]);
            assert_eq!(dependency.count, count.saturating_add_signed(delta.count));
            assert_eq!(dependency.delta, AnswerDelta::default());
        }
    }
}
