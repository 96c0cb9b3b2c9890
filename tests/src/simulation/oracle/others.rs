//! Rules about objects other than the primary of a pass, and about locks that only one object may hold.

use polity_core::contract::{Pass, Request};
use serde_json::Value;

use super::{Oracle, Rule, Verdict, ensure};
use crate::simulation::bindings::FINALIZER;
use crate::simulation::kinds::site::is_mark;
use crate::simulation::store::Change;

/// The node of Pods that nobody drains.
pub const KEPT: &str = "kept";

impl Oracle {
    /// A host changed an object that may be another one than it has a pass for.
    pub(super) fn done_to_another(&mut self, change: &Change) -> Verdict {
        let told = |what: &str| format!("{} {what}: {change:?}", change.author);
        match (change.place.0.as_str(), &change.before, &change.after) {
            ("ConfigMap", None, Some(made)) => {
                let pried = !made.tree()["metadata"]["labels"]["pried"].is_null();
                ensure(!pried, Rule::Ungranted, || told("made what is not granted"))
            }
            ("ConfigMap", Some(before), Some(after)) if !is_mark(change) => {
                // The patch says which version it is meant for.
                let meant = after.str_at("data.on");
                let stood = before.version().0.to_string();
                ensure(meant.as_deref() == Some(stood.as_str()), Rule::Others, || {
                    told("patched another version than its policy saw")
                })
            }
            ("ConfigMap", Some(before), None) => {
                let own = !before.tree()["metadata"]["labels"]["site"].is_null();
                ensure(own, Rule::Others, || {
                    told("deleted what had been taken from its Site")
                })
            }
            ("Pod", Some(before), None) => {
                let kept = before.tree()["spec"]["nodeName"] == KEPT;
                ensure(!kept, Rule::Others, || {
                    told("evicted another Pod than its policy saw")
                })
            }
            _ => Ok(()),
        }
    }

    /// One Site of a namespace has its turn, and a Site that is gone leaves no ConfigMaps.
    pub(super) fn turns(&mut self, change: &Change, log: &[Change]) -> Verdict {
        if change.place.0 == "Guest" && change.after.is_none() {
            let let_go = crate::simulation::kinds::guest::may_leave_machines(&change.shown.tree());
            self.let_go.extend(let_go.then(|| change.shown.uid().to_owned()));
        }
        // A writer other than a host that removes the host's finalizer lets the object go.
        if let (Some(before), Some(after)) = (&change.before, &change.after)
            && before.has_finalizer(FINALIZER)
            && !after.has_finalizer(FINALIZER)
            && !self.hosts.contains_key(&change.author)
        {
            self.let_go.insert(before.uid().to_owned());
        }
        if let (Some(before), None) = (&change.before, &change.after)
            && before.kind().kind == "Site"
        {
            let owner = before.uid();
            let owned = |object: &Value| object["metadata"]["labels"]["owner"] == *owner;
            let left: Vec<_> = standing(log).filter(owned).collect();
            ensure(left.is_empty(), Rule::NoLeak, || {
                format!("{:?} is gone, and {left:?} are left", change.place)
            })?;
        }
        let holds = |object: &Value| object["kind"] == "Site" && object["status"]["holds"] == true;
        if !change.after.as_ref().is_some_and(|after| holds(&after.tree())) {
            return Ok(());
        }
        self.reached.insert("a lock was held");
        let beside = |object: &Value| holds(object) && object["metadata"]["namespace"] == *change.place.1;
        let holders: Vec<_> = standing(log)
            .filter(beside)
            .map(|o| o["metadata"]["name"].clone())
            .collect();
        ensure(holders.len() <= 1, Rule::Lock, || {
            format!("{holders:?} of {} have their turn at once", change.place.1)
        })
    }

    /// What a pass is answered about objects that its key wrote before is never older than that.
    pub(super) fn sees_own_writes(&self, host: &str, uid: &str, began: u64, pass: &Pass) -> Verdict {
        let Some(seen) = self.hosts.get(host).filter(|_| !self.wild) else {
            return Ok(());
        };
        let last = pass.journal.last();
        for entry in last.into_iter().chain(pass.journal.first()) {
            let (Request::Ask(_), Ok(answer)) = (&entry.request, &entry.answer) else {
                continue;
            };
            let answer: Value = serde_json::from_str(answer).unwrap_or_default();
            let objects = answer.as_array().cloned().unwrap_or_else(|| vec![answer]);
            for object in &objects {
                let metadata = &object["metadata"];
                if metadata["labels"]["owner"] != *uid {
                    continue;
                }
                let (made, version) = (metadata["uid"].as_str(), metadata["resourceVersion"].as_str());
                let version = version.and_then(|version| version.parse::<u64>().ok());
                let (Some(made), Some(version)) = (made, version) else {
                    continue;
                };
                let own = seen.acknowledged.get(made).into_iter().flatten();
                let newest = own.filter(|own| own.now < began).map(|own| own.version).max();
                ensure(newest.is_none_or(|newest| newest <= version), Rule::Stale, || {
                    format!("{host} was shown {object} and had written version {newest:?} of it before")
                })?;
            }
        }
        Ok(())
    }
}

/// The objects that stand after these changes.
fn standing(log: &[Change]) -> impl Iterator<Item = Value> {
    let mut last = std::collections::BTreeMap::new();
    for change in log {
        last.insert(&change.place, change);
    }
    last.into_values()
        .filter_map(|change| change.after.as_ref())
        .map(|object| object.tree())
}
