//! Writes of the primary, and own changes: what a write of a pass changes by itself of the answers that the pass used.
//!
//! Versions tell. A change is the pass's own if it leads from the version that the write named to the one that was
//! answered, if it is what the write made, or if it removes what the write removed. All else is news, also what a write
//! did that named no version: others may have changed the object before it.

use std::collections::{BTreeMap, BTreeSet};

use super::context::{Command, Context};
use crate::call::{ReadResult, Scope};
use crate::contract::{Act, Code, Effect, Failure, ObjectRef, Precondition};
use crate::key::ObjectKey;
use crate::object::{Object, reference_of};
use crate::record::{WritePurpose, WriteRecord};
use crate::shared::cache::Change;
use crate::shared::guards::Guard;

/// The object of an act, as the watches showed it when the act was asked for.
#[derive(Debug, Default)]
pub(super) struct ObjectBefore {
    /// `None` if the act is not about another object.
    object: Option<ObjectRef>,
    shown: BTreeMap<Scope, Object>,
}

impl Context<'_> {
    /// The precondition of a write of the primary: the version that the pass knows.
    pub(super) fn precondition(&self, current: &Object) -> Precondition {
        let mut precondition = current.precondition();
        if !self.is_guarded(Guard::Precondition) {
            precondition.resource_version = None;
        }
        precondition
    }

    /// Records a write of the primary. Its result enters the cache, so that the watch event of the same write does
    /// not enqueue the key.
    pub(super) fn primary_written(
        &mut self,
        purpose: WritePurpose,
        found: ReadResult,
    ) -> Result<(), Failure> {
        // A successful write answers with the object that it wrote.
        let answer = found.and_then(|mut found| {
            let gone = || Failure::new(Code::NotFound, "the object is gone");
            found.pop().ok_or_else(gone)
        });
        let (version, failure) = match &answer {
            Ok(object) => (Some(object.version().0), None),
            Err(failure) => (None, Some(failure.clone())),
        };
        self.work.writes.push(WriteRecord {
            purpose,
            version,
            failure,
        });
        let known = self.work.current.as_ref().map(Object::version);
        self.work.behind = match &answer {
            Err(failure) if is_outdated(failure) => known,
            _ => None,
        };
        let object = answer?;
        let before = self.work.current.replace(object.clone());
        let own = self.own_change(before.as_ref(), &object);
        self.command(Command::Wrote { object, own });
        Ok(())
    }

    /// The object of an act as it is now.
    pub(super) fn before(&self, act: &Act) -> ObjectBefore {
        let Some(object) = object_of(act) else {
            return ObjectBefore::default();
        };
        let place = ObjectKey::from(&object);
        let shown = |scope: &Scope| Some((scope.clone(), self.view.cache.last_known(scope, &place)?.clone()));
        let shown = self.scopes_of(&object).into_iter().filter_map(shown).collect();
        ObjectBefore {
            object: Some(object),
            shown,
        }
    }

    /// What an act on another object changed by itself. `left` is the object after the act; `None` if it is gone.
    pub(super) fn own_changes(&self, act: &Act, before: &ObjectBefore, left: Option<&Object>) -> Vec<Change> {
        let Some(object) = &before.object else {
            return Vec::new();
        };
        let any = !self.is_guarded(Guard::OwnByBothVersions);
        let own = |scope: &Scope| {
            let shown = before.shown.get(scope);
            (any || is_own(act, shown, left)).then_some([shown, left])
        };
        changes(object, self.scopes_of(object), own)
    }

    /// What a write of the primary changed. The API server made it only on top of the version that the pass knew.
    pub(super) fn own_change(&self, before: Option<&Object>, after: &Object) -> Vec<Change> {
        let object = after.reference();
        changes(&object, self.scopes_of(&object), |_| Some([before, Some(after)]))
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

/// Whether a write of the primary failed because the version that the pass knows may no longer be the present one: another
/// writer came first, or nobody knows what became of the write.
pub(super) fn is_outdated(failure: &Failure) -> bool {
    failure.code == Code::Aborted || failure.effect == Effect::Unknown
}

/// The changes of an object, before and after, in those of these scopes in which `change` says that there is one.
fn changes<'o>(
    object: &ObjectRef,
    scopes: BTreeSet<&Scope>,
    change: impl Fn(&Scope) -> Option<[Option<&'o Object>; 2]>,
) -> Vec<Change> {
    let place = ObjectKey::from(object);
    let change = |scope: &Scope| {
        let [before, after] = change(scope)?.map(|object| object.map(|object| scope.trimmed(object)));
        Some(Change {
            scope: scope.clone(),
            place: place.clone(),
            before,
            after,
        })
    };
    scopes.into_iter().filter_map(change).collect()
}

/// Whether an act alone led from the object that was shown to the one that it left.
fn is_own(act: &Act, shown: Option<&Object>, left: Option<&Object>) -> bool {
    let named = match act {
        Act::Patch(act) => &act.precondition,
        Act::Delete(act) => &act.precondition,
        Act::Evict(act) => &act.precondition,
        // Also where a watch still shows one that was there before.
        Act::Create(_) => return true,
        Act::Cloud(_) | Act::Mint(_) | Act::Revoke(_) => return false,
    };
    let Some(shown) = shown else { return false };
    match left {
        Some(_) => named.resource_version == Some(shown.version().0.to_string()),
        None => named.uid == shown.uid(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Eviction, ObjectPatch, Precondition};
    use serde_json::json;

    fn pod(version: u64) -> Object {
        Object::new(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": "p",
            "uid": "u", "resourceVersion": version.to_string()}}),
        )
    }

    fn on(version: Option<&str>) -> Precondition {
        Precondition {
            uid: "u".into(),
            resource_version: version.map(str::to_owned),
        }
    }

    fn patch(version: Option<&str>) -> Act {
        Act::Patch(ObjectPatch {
            object: pod(1).reference(),
            precondition: on(version),
            subresource: None,
            patch: "{}".into(),
        })
    }

    fn evict(precondition: Precondition) -> Act {
        Act::Evict(Eviction {
            object: pod(1).reference(),
            precondition,
            grace_period_seconds: None,
        })
    }

    #[test]
    fn a_write_did_what_leads_from_the_version_that_it_named_and_the_removal_of_what_it_removed() {
        let (shown, left) = (pod(1), pod(3));
        for (act, shown, left, own) in [
            (patch(Some("1")), Some(&shown), Some(&left), true),
            (patch(Some("2")), Some(&shown), Some(&left), false),
            (patch(None), Some(&shown), Some(&left), false),
            (patch(Some("1")), None, Some(&left), false),
            (evict(on(Some("1"))), Some(&shown), Some(&left), true),
            (evict(on(None)), Some(&shown), Some(&left), false),
            (evict(on(None)), Some(&shown), None, true),
            (
                evict(Precondition {
                    uid: "v".into(),
                    ..on(None)
                }),
                Some(&shown),
                None,
                false,
            ),
        ] {
            assert_eq!(is_own(&act, shown, left), own, "{act:?} {left:?}");
        }
    }
}
