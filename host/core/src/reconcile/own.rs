//! Own changes: what a write of a pass changes by itself of the answers that the pass used.
//!
//! Between the answers and the write, others may change the same object: its reply, or a watch, shows both changes at
//! once. The change of the pass is what its write makes of the object as it was when the write was sent. All that is
//! seen beyond it is news.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Context;
use crate::call::Scope;
use crate::contract::{Act, ObjectPatch, ObjectRef};
use crate::key::ObjectKey;
use crate::merge;
use crate::object::{Object, reference_of};
use crate::shared::cache::Change;

/// The object of an act, as the watches showed it when the act was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Before {
    /// `None` if the act is not about another object.
    object: Option<ObjectRef>,
    shown: BTreeMap<Scope, Object>,
}

/// An act on another object whose own changes are to be found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Own {
    act: Act,
    before: Before,
    /// The object after the act; `None` if it is gone.
    left: Option<Object>,
    /// The scopes of the answers that the pass used and that may show the object.
    scopes: BTreeSet<Scope>,
}

impl Own {
    /// The bytes of text that are read. Most acts name a version, or are on what the pass looks at through no scope.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |object: &Object| object.json().len() as u64;
        let of_left = self.left.as_ref().map_or(0, bytes);
        let trims = |scope: &&Scope| !scope.fields.is_empty();
        let trimmed = self.scopes.iter().filter(trims).count() as u64;
        let patched: u64 = match is_of_one_version(&self.act) {
            true => 0,
            false => self.before.shown.values().map(bytes).sum(),
        };
        patched.saturating_add(of_left.saturating_mul(trimmed))
    }

    pub(super) fn run(&self) -> Vec<Change> {
        let Some(object) = &self.before.object else {
            return Vec::new();
        };
        changes(object, self.scopes.iter(), |scope| {
            let before = self.before.shown.get(scope);
            let after = outcome(&self.act, before, self.left.as_ref());
            [before.cloned(), after.map(|after| scope.trimmed(&after))]
        })
    }
}

impl Context<'_> {
    /// The object of an act as it is now.
    pub(super) fn before(&self, act: &Act) -> Before {
        let Some(object) = object_of(act) else {
            return Before::default();
        };
        let place = ObjectKey::from(&object);
        let shown = |scope: &Scope| Some((scope.clone(), self.view.cache.last_known(scope, &place)?.clone()));
        let shown = self.scopes_of(&object).into_iter().filter_map(shown).collect();
        Before {
            object: Some(object),
            shown,
        }
    }

    /// What an act on another object changed by itself, to be found. `left` is the object after the act; `None` if it is
    /// gone.
    pub(super) fn own_changes(&self, act: &Act, before: &Before, left: Option<&Object>) -> Own {
        let scopes = before.object.as_ref().map(|object| self.scopes_of(object));
        Own {
            act: act.clone(),
            before: before.clone(),
            left: left.cloned(),
            scopes: scopes.into_iter().flatten().cloned().collect(),
        }
    }

    /// What a write of the primary changed. The API server made it only on top of the version that the pass knew.
    pub(super) fn own_change(&self, before: Option<&Object>, after: &Object) -> Vec<Change> {
        let object = after.reference();
        changes(&object, self.scopes_of(&object).into_iter(), |scope| {
            [before, Some(after)].map(|object| object.map(|object| scope.trimmed(object)))
        })
    }

    /// The scopes of the answers that the pass used and that may show this object.
    fn scopes_of(&self, object: &ObjectRef) -> BTreeSet<&Scope> {
        let place = ObjectKey::from(object);
        let scopes = self
            .work
            .dependencies
            .values()
            .map(|dependency| &dependency.scope);
        scopes
            .filter(|scope| scope.kind == object.kind && scope.covers_place(&place))
            .collect()
    }
}

/// The changes of an object, before and after, in these scopes.
fn changes<'a>(
    object: &ObjectRef,
    scopes: impl Iterator<Item = &'a Scope>,
    change: impl Fn(&Scope) -> [Option<Object>; 2],
) -> Vec<Change> {
    let place = ObjectKey::from(object);
    let change = |scope: &Scope| {
        let [before, after] = change(scope);
        Change {
            scope: scope.clone(),
            place: place.clone(),
            before,
            after,
        }
    };
    scopes.map(change).collect()
}

/// Whether what an act leaves is all its own, whatever it was before.
fn is_of_one_version(act: &Act) -> bool {
    match act {
        Act::Patch(patch) => patch.precondition.resource_version.is_some(),
        Act::Create(_) => true,
        _ => false,
    }
}

/// The other object that an act changes or creates.
fn object_of(act: &Act) -> Option<ObjectRef> {
    match act {
        // The checks have refused what is no object.
        Act::Create(act) => act.object.object("create").ok().map(reference_of),
        Act::Patch(act) => Some(act.object.clone()),
        Act::Delete(act) => Some(act.object.clone()),
        Act::Evict(act) => Some(act.object.clone()),
        Act::Cloud(_) | Act::Mint(_) | Act::Revoke(_) => None,
    }
}

/// What an act makes of an object if nobody else changes it.
fn outcome(act: &Act, before: Option<&Object>, left: Option<&Object>) -> Option<Object> {
    match (act, before, left) {
        // What the pass created is as it made it, also where a watch still shows one that was there before.
        (Act::Create(_), _, left) => left.cloned(),
        (_, None, _) | (_, _, None) => None,
        (_, Some(before), Some(left)) if before.version() == left.version() => Some(before.clone()),
        (act, _, left) if is_of_one_version(act) => left.cloned(),
        (Act::Patch(patch), Some(before), Some(left)) => Some(patched(patch, before, left)),
        (_, Some(before), Some(left)) => {
            let ends = with_metadata(
                before.tree(),
                left,
                &["deletionTimestamp", "deletionGracePeriodSeconds"],
            );
            Some(with_generation(ends, left, 1))
        }
    }
}

fn patched(patch: &ObjectPatch, before: &Object, left: &Object) -> Object {
    let mut tree = before.tree();
    // The checks have refused a patch that is no object.
    let whole = patch.patch.object("patch").ok();
    let part = whole.and_then(|whole| match patch.subresource.as_deref() {
        Some(part) => whole.get(part).map(|value| json!({part: value})),
        None => Some(whole.clone()),
    });
    if let Some(part) = part {
        merge::apply(&part, &mut tree);
    }
    with_generation(tree, left, u64::from(patch.subresource.is_none()))
}

/// An object with the generation of another one, if that is at most so much higher: an API server counts the changes of a
/// spec, and one write is one change. A generation that is higher still tells of changes by others.
pub(super) fn with_generation(tree: Value, of: &Object, most: u64) -> Object {
    let before = tree["metadata"]["generation"].as_u64().unwrap_or_default();
    let is_own = of
        .generation()
        .is_none_or(|now| now <= before.saturating_add(most));
    let names: &[&str] = if is_own { &["generation"] } else { &[] };
    Object::new(with_metadata(tree, of, names))
}

/// An object with this metadata of another one: the API server sets it.
fn with_metadata(mut tree: Value, of: &Object, names: &[&str]) -> Value {
    for name in names {
        let value = of.at(&format!("metadata.{name}")).unwrap_or_default();
        merge::apply(&json!({"metadata": {*name: value}}), &mut tree);
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Eviction, Precondition};

    fn pod(version: u32, rest: Value) -> Object {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": "p",
            "uid": "u", "resourceVersion": version.to_string(), "generation": 1}, "spec": {"a": 1}, "status": {"b": 1}});
        merge::apply(&rest, &mut pod);
        Object::new(pod)
    }

    fn patch(subresource: Option<&str>, patch: Value) -> Act {
        Act::Patch(ObjectPatch {
            object: pod(1, json!({})).reference(),
            precondition: Precondition {
                uid: "u".into(),
                resource_version: None,
            },
            subresource: subresource.map(str::to_owned),
            patch: patch.to_string().into(),
        })
    }

    #[test]
    fn what_is_read_is_what_a_scope_trims_and_what_a_patch_without_a_version_changes() {
        let (before, left) = (pod(1, json!({})), pod(2, json!({"spec": {"a": 22}})));
        let [of_before, of_left] = [&before, &left].map(|pod| pod.json().len() as u64);
        let scope = |fields: &[&str]| Scope {
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
            ..crate::reconcile::fixture::config_maps()
        };
        let own = |version: Option<&str>, fields: &[&str], left: Option<&Object>| {
            let mut act = patch(None, json!({}));
            if let Act::Patch(act) = &mut act {
                act.precondition.resource_version = version.map(str::to_owned);
            }
            Own {
                act,
                before: Before {
                    object: Some(before.reference()),
                    shown: BTreeMap::from([(scope(fields), before.clone())]),
                },
                left: left.cloned(),
                scopes: BTreeSet::from([scope(fields)]),
            }
        };
        assert_eq!(own(None, &[], Some(&left)).bytes(), of_before);
        assert_eq!(own(None, &["spec"], Some(&left)).bytes(), of_before + of_left);
        assert_eq!(own(None, &["spec"], None).bytes(), of_before);
        assert_eq!(own(Some("1"), &["spec"], Some(&left)).bytes(), of_left);
        assert_eq!(own(Some("1"), &[], Some(&left)).bytes(), 0);
    }

    #[test]
    fn a_write_changes_what_it_names_and_what_the_api_server_sets_for_it() {
        let evict = Act::Evict(Eviction {
            object: pod(1, json!({})).reference(),
            precondition: Precondition {
                uid: "u".into(),
                resource_version: None,
            },
            grace_period_seconds: None,
        });
        let both = json!({"spec": {"a": 2}, "status": {"b": 2}});
        let ends = json!({"metadata": {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 30, "generation": 2}});
        let ends_and = |mut rest: Value| {
            merge::apply(&ends, &mut rest);
            rest
        };
        let next = json!({"metadata": {"generation": 2}, "spec": {"a": 2}});
        let of_generation = |generation: u64, mut rest: Value| {
            merge::apply(&json!({"metadata": {"generation": generation}}), &mut rest);
            rest
        };
        for (act, left, own) in [
            (
                patch(Some("status"), both.clone()),
                both.clone(),
                json!({"status": {"b": 2}}),
            ),
            (
                patch(Some("status"), json!({"spec": {"a": 2}})),
                both.clone(),
                json!({}),
            ),
            (patch(None, both.clone()), both.clone(), both.clone()),
            // Others changed the spec and changed it back.
            (
                patch(None, both.clone()),
                of_generation(3, both.clone()),
                both.clone(),
            ),
            (
                patch(Some("status"), both.clone()),
                of_generation(2, both.clone()),
                json!({"status": {"b": 2}}),
            ),
            (
                evict.clone(),
                of_generation(3, ends.clone()),
                of_generation(1, ends.clone()),
            ),
            (patch(None, json!({"spec": {"a": 2}})), next.clone(), next),
            (evict.clone(), ends.clone(), ends.clone()),
            (evict, ends_and(json!({"status": {"b": 2}})), ends),
        ] {
            let before = pod(1, json!({}));
            let alone = outcome(&act, Some(&before), Some(&pod(3, left))).expect("it is there");
            assert!(alone.says_the_same(&pod(3, own)), "{act:?} {}", alone.json());
        }
    }

    #[test]
    fn what_was_not_there_before_was_changed_by_another_one_and_what_is_gone_by_the_pass() {
        let act = patch(None, json!({"spec": {"a": 2}}));
        let known = pod(1, json!({}));
        assert!(outcome(&act, None, Some(&known)).is_none());
        assert!(outcome(&act, Some(&known), None).is_none());
    }
}
