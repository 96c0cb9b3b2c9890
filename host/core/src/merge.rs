//! Merges: turns the patch of a conclusion into writes of the present object.
//!
//! A patch is compared with the snapshot that the pass saw, by the rules of the contract's `merge`. The result is
//! written as JSON merge patches, on the condition that the object still has the known version.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

pub use crate::contract::merge::{EditPath, VALUES, declares, values};
pub use polity_kube_rules::merge_patch::apply;
use serde_json::{Map, Value, json};

use crate::contract::merge::{Present, leaves, merge, merges_by_key, remove};
use crate::object::Object;
use crate::tree::Tree;

/// The parts of a publication, in the order in which they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Metadata and spec, without the removal of finalizers.
    Main,
    /// The status subresource.
    Status,
    /// The removal of finalizers.
    Finalizer,
}

/// The changes that a pass wants for its primary.
#[derive(Clone, Debug)]
pub struct Edits {
    /// The object that the pass saw.
    seen: Object,
    /// Its tree, made when it is first needed: most passes change nothing of it, and an object may be large.
    snapshot: OnceLock<Arc<Value>>,
    /// Shared: a publication is drafted several times.
    patch: Arc<Value>,
    /// The bytes of the patch as text.
    bytes: u64,
}

impl PartialEq for Edits {
    fn eq(&self, other: &Self) -> bool {
        (&self.seen, &self.patch, self.bytes) == (&other.seen, &other.patch, other.bytes)
    }
}

impl Edits {
    /// Takes a merge patch for this object. The patch has so many bytes as text.
    pub fn of(object: &Object, patch: Arc<Value>, bytes: usize) -> Self {
        Edits {
            seen: object.clone(),
            snapshot: OnceLock::new(),
            patch,
            bytes: bytes as u64,
        }
    }

    /// The same edits without the tree of their snapshot, which a thread made and drops: both take long for a large
    /// object.
    pub(crate) fn without_tree(mut self) -> Self {
        self.snapshot.take();
        self
    }

    /// The bytes of the snapshot and the patch as texts.
    pub(crate) fn bytes(&self) -> u64 {
        self.seen.json().len() as u64 + self.bytes
    }

    /// The tree of an object, which often is the snapshot.
    pub(crate) fn tree_of(&self, object: &Object) -> Arc<Value> {
        if self.seen == *object {
            return self.snapshot().clone();
        }
        Arc::new(object.tree())
    }

    /// The object that the pass saw.
    pub fn snapshot(&self) -> &Arc<Value> {
        self.snapshot.get_or_init(|| Arc::new(self.seen.tree()))
    }

    /// Whether the patch contains nothing.
    pub fn is_empty(&self) -> bool {
        self.patch.as_object().is_some_and(Map::is_empty)
    }

    /// The patch, to be changed.
    pub fn patch_mut(&mut self) -> &mut Value {
        Arc::make_mut(&mut self.patch)
    }

    /// These edits and those of another policy for the same snapshot. Their declared write paths do not overlap.
    pub fn and(self, other: &Edits) -> Self {
        if other.is_empty() {
            return self;
        }
        if self.is_empty() {
            return other.clone();
        }
        let mut both = Value::clone(self.snapshot());
        for edits in [&self, other] {
            merge("", &edits.patch, Some(self.snapshot()), &mut both);
        }
        let patch = diff(self.snapshot(), &both).unwrap_or_else(|| json!({}));
        Edits {
            patch: Arc::new(patch),
            bytes: self.bytes + other.bytes,
            ..self
        }
    }

    /// The present object with these edits applied.
    pub fn onto(&self, current: &Value) -> Value {
        let mut desired = current.clone();
        if !self.is_empty() {
            merge("", &self.patch, Some(self.snapshot()), &mut desired);
        }
        desired
    }

    /// The paths of the values that the edits write, element by element, and whether they remove the value.
    pub fn paths(&self) -> Vec<(EditPath, bool)> {
        let mut paths = Vec::new();
        if self.is_empty() {
            return paths;
        }
        leaves("", &self.patch, Some(self.snapshot()), &mut |leaf| {
            paths.push((leaf.path, leaf.wanted.is_none()))
        });
        paths
    }

    /// The paths of edited values that another writer has changed since the snapshot.
    pub fn conflicts(&self, fresh: &Value) -> Vec<EditPath> {
        let mut conflicts = Vec::new();
        let mut present = Present::new(fresh);
        leaves("", &self.patch, Some(self.snapshot()), &mut |leaf| {
            let now = present.find(&leaf);
            if now != leaf.base && now != leaf.wanted.as_deref() {
                conflicts.push(leaf.path);
            }
        });
        conflicts
    }

    /// The same edits without the top fields (such as `status.phase`) that contain one of these paths.
    pub fn without(mut self, paths: &[EditPath]) -> Self {
        for path in paths {
            remove(self.patch_mut(), path.split('[').next().unwrap_or(path));
        }
        self
    }
}

/// The merge patch that turns one value into another; `None` if they are equal.
pub fn diff(from: &Value, to: &Value) -> Option<Value> {
    match (from, to) {
        (Value::Object(a), Value::Object(b)) => {
            let mut patch = Map::new();
            for (name, old) in a {
                match b.get(name) {
                    None => {
                        patch.insert(name.clone(), Value::Null);
                    }
                    Some(new) => {
                        if let Some(inner) = diff(old, new) {
                            patch.insert(name.clone(), inner);
                        }
                    }
                }
            }
            for (name, new) in b.iter().filter(|(name, _)| !a.contains_key(*name)) {
                patch.insert(name.clone(), new.clone());
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (a, b) if a == b => None,
        (_, b) => Some(b.clone()),
    }
}

/// The merge patch for one part of a publication; `None` if that part needs no change.
pub fn change(part: Part, now: &Value, desired: &Value) -> Option<Value> {
    match part {
        Part::Main => {
            let mut patch = Tree::new(diff(now, desired).unwrap_or_else(|| json!({})));
            patch.remove(&["status"]);
            let held = &now["metadata"]["finalizers"];
            let kept = Value::from(kept_finalizers(now, desired));
            if held.is_array() {
                patch.remove(&["metadata", "finalizers"]);
                if *held != kept {
                    patch.set(&["metadata", "finalizers"], kept);
                }
            }
            if patch.get(&["metadata"]) == Some(&json!({})) {
                patch.remove(&["metadata"]);
            }
            (patch.value() != &json!({})).then(|| patch.into_value())
        }
        Part::Status => {
            let empty = Value::Object(Map::new());
            diff(
                now.get("status").unwrap_or(&empty),
                desired.get("status").unwrap_or(&empty),
            )
            .map(|status| json!({"status": status}))
        }
        Part::Finalizer => {
            let held = finalizers(now);
            let wanted: BTreeSet<&str> = finalizers(desired).into_iter().collect();
            let kept: Vec<&str> = held.iter().copied().filter(|f| wanted.contains(f)).collect();
            (kept.len() < held.len()).then(|| json!({"metadata": {"finalizers": kept}}))
        }
    }
}

fn finalizers(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["finalizers"].as_array();
    all.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The present finalizers, and those to be added. The removal of finalizers is a later part.
fn kept_finalizers(now: &Value, desired: &Value) -> Vec<Value> {
    let held = finalizers(now);
    // An object may have as many as its size allows.
    let known: BTreeSet<&str> = held.iter().copied().collect();
    let wanted = finalizers(desired);
    let new = wanted.iter().filter(|f| !known.contains(*f));
    held.iter().chain(new).map(|f| json!(f)).collect()
}

/// The paths of values that the API server dropped, defaulted or changed. `answer` is the object in its answer, and
/// `left` the change that would make it the written one.
pub fn not_kept(left: &Value, answer: &Value) -> Vec<EditPath> {
    let mut paths = Vec::new();
    leaves("", left, Some(answer), &mut |leaf| {
        let as_number = |value: Option<&Value>| value.and_then(Value::as_f64);
        // `1.0` and `1` are the same number.
        let wanted = as_number(leaf.wanted.as_deref());
        let same = wanted.is_some() && as_number(leaf.base) == wanted;
        if !same {
            paths.push(leaf.path);
        }
    });
    paths
}

/// Why the shape of a merge patch is wrong: the host and API servers expect objects or lists of a certain form at
/// some paths. `removes` says whether the patch may remove these values with null.
pub fn misshapen(patch: &Value, removes: bool) -> Option<String> {
    if !patch.is_object() {
        return Some("it is not a JSON object".into());
    }
    // A path cannot express an empty field name, and no kind has such a field.
    if has_nameless(patch) {
        return Some("a field has an empty name".into());
    }
    let wrong = |path: &[&str], fits: &dyn Fn(&Value) -> bool, wanted: &str| {
        let value = path.iter().try_fold(patch, |value, field| value.get(*field))?;
        let is_removed = removes && value.is_null() && path != ["metadata"];
        (!is_removed && !fits(value)).then(|| format!("{} is not {wanted}", path.join(".")))
    };
    let texts = |value: &Value| {
        let fields = value.as_object();
        fields.is_some_and(|fields| fields.values().all(|v| v.is_string() || v.is_null()))
    };
    let list = |name: &'static str| move |value: &Value| value.is_array() && merges_by_key(name, Some(value));
    wrong(&["metadata"], &Value::is_object, "an object")
        .or_else(|| wrong(&["metadata", "labels"], &texts, "an object of texts"))
        .or_else(|| wrong(&["metadata", "annotations"], &texts, "an object of texts"))
        .or_else(|| {
            let wanted = "a list of different texts";
            wrong(&["metadata", "finalizers"], &list("finalizers"), wanted)
        })
        .or_else(|| {
            let wanted = "a list of objects with different uids";
            wrong(&["metadata", "ownerReferences"], &list("ownerReferences"), wanted)
        })
        .or_else(|| wrong(&["status"], &Value::is_object, "an object"))
        .or_else(|| {
            let wanted = "a list of objects with different types";
            wrong(&["status", "conditions"], &list("conditions"), wanted)
        })
}

fn has_nameless(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name.is_empty() || has_nameless(value)),
        Value::Array(items) => items.iter().any(has_nameless),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(version: &str, rest: Value) -> Value {
        let mut value = json!({"kind": "Machine", "metadata": {"name": "m", "uid": "u",
            "resourceVersion": version, "finalizers": ["a", "f"]}, "spec": {"x": 1}});
        merge("", &rest, None, &mut value);
        value
    }

    fn edited(snapshot: Value, patch: Value) -> Edits {
        Edits::of(&Object::new(snapshot), patch.into(), 0)
    }

    #[test]
    fn edits_are_the_same_for_the_same_object_alone_and_together_count_the_bytes_of_both() {
        let object = |version| Object::new(machine(version, json!({})));
        let edits = |version, patch: Value, bytes| Edits::of(&object(version), Arc::new(patch), bytes);
        let one = edits("1", json!({"spec": {"x": 2}}), 10);
        assert_eq!(one, edits("1", json!({"spec": {"x": 2}}), 10));
        assert_ne!(one, edits("2", json!({"spec": {"x": 2}}), 10));
        let snapshot = object("1").json().len() as u64;
        let both = one.and(&edits("1", json!({"spec": {"y": 3}}), 20));
        assert_eq!(both.bytes(), snapshot + 30);
    }

    #[test]
    fn a_patch_without_an_edited_value_changes_nothing() {
        let mut now = machine("1", json!({}));
        if let Some(fields) = now.as_object_mut() {
            fields.insert("none".into(), Value::Null);
        }
        for patch in [
            json!({"metadata": {"ownerReferences": []}}),
            json!({"status": {"conditions": []}}),
            json!({"spec": {"node": {"taints": []}}}),
            json!({"metadata": {"finalizers": ["a", "f"]}}),
            json!({"none": {"conditions": []}}),
        ] {
            let edits = edited(now.clone(), patch);
            assert_eq!(edits.paths(), []);
            assert_eq!(edits.onto(&now), now);
        }
        let edits = edited(now.clone(), json!({"spec": {"empty": {}, "list": []}}));
        assert_eq!(edits.paths().len(), 2);
        assert_eq!(edits.onto(&now)["spec"], json!({"x": 1, "empty": {}, "list": []}));
    }

    #[test]
    fn an_object_that_replaces_another_value_is_an_edit_of_it() {
        let now = machine("1", json!({}));
        for inner in [json!({"conditions": []}), json!({"y": null}), json!({"y": 2})] {
            let edits = edited(now.clone(), json!({"spec": {"x": inner}}));
            assert!(edits.paths().contains(&("spec.x".to_owned(), false)), "{inner}");
            let written = edits.onto(&now);
            assert!(written["spec"]["x"].is_object());
            assert_eq!(edits.conflicts(&now), Vec::<EditPath>::new());
            assert_eq!(
                edits.conflicts(&written),
                Vec::<EditPath>::new(),
                "it stands already"
            );
            let theirs = edits.conflicts(&machine("2", json!({"spec": {"x": 7}})));
            assert!(theirs.contains(&"spec.x".to_owned()), "{theirs:?}");
        }
        let edits = edited(now.clone(), json!({"spec": {"x": {"y": 2, "z": null}}}));
        let paths = ["spec.x.y", "spec.x.z", "spec.x"].map(str::to_owned);
        assert_eq!(
            edits.paths(),
            paths.map(|path| (path.clone(), path.ends_with('z'))),
            "what it says below counts, too"
        );
        // Another writer added a value where the snapshot had none. The edit must not replace it unseen.
        let edits = edited(
            now,
            json!({"spec": {"new": {"inner": 1}, "taints": [{"key": "a", "effect": "b"}]}}),
        );
        let theirs = machine("2", json!({"spec": {"new": 5, "taints": "x"}}));
        assert_eq!(edits.conflicts(&theirs), ["spec.new.inner", "spec.taints[a:b]"]);
    }

    #[test]
    fn parts_are_written_one_after_another_and_each_only_if_needed() {
        let now = machine("1", json!({}));
        let edits = edited(
            now.clone(),
            json!({"metadata": {"finalizers": ["a"], "labels": {"l": "1"}}, "status": {"phase": "Gone"}}),
        );
        let desired = edits.onto(&now);
        assert_eq!(
            change(Part::Main, &now, &desired),
            Some(json!({"metadata": {"labels": {"l": "1"}}}))
        );
        assert_eq!(
            change(Part::Status, &now, &desired),
            Some(json!({"status": {"phase": "Gone"}}))
        );
        assert_eq!(
            change(Part::Finalizer, &now, &desired),
            Some(json!({"metadata": {"finalizers": ["a"]}}))
        );
        let labelled = edited(now.clone(), json!({"metadata": {"labels": {"l": "1"}}})).onto(&now);
        assert_eq!(
            change(Part::Main, &now, &labelled),
            Some(json!({"metadata": {"labels": {"l": "1"}}})),
            "without the finalizers, which stay"
        );
        let added = edited(now.clone(), json!({"metadata": {"finalizers": ["f", "g"]}})).onto(&now);
        assert_eq!(
            change(Part::Main, &now, &added),
            Some(json!({"metadata": {"finalizers": ["a", "f", "g"]}})),
            "nobody's goes before the last part"
        );
        let nothing = edited(now.clone(), json!({})).onto(&now);
        for part in [Part::Main, Part::Status, Part::Finalizer] {
            assert_eq!(change(part, &now, &nothing), None);
        }
    }

    #[test]
    fn conditions_of_other_writers_survive() {
        let condition = |t: &str, s: &str| json!({"type": t, "status": s});
        let before = machine(
            "1",
            json!({"status": {"conditions": [condition("Ready", "False")]}}),
        );
        let edits = edited(
            before,
            json!({"status": {"conditions": [condition("Ready", "True"), condition("New", "True")]}}),
        );
        let fresh = machine(
            "2",
            json!({"status": {"conditions": [condition("Ready", "False"), condition("Other", "True")]}}),
        );
        assert!(edits.conflicts(&fresh).is_empty());
        assert_eq!(
            edits.onto(&fresh)["status"]["conditions"],
            json!([
                condition("Ready", "True"),
                condition("Other", "True"),
                condition("New", "True")
            ])
        );
    }

    #[test]
    fn a_list_without_keys_is_a_value_like_any_other() {
        let before = machine(
            "1",
            json!({"spec": {"conditions": [1, 2], "taints": [{"key": "a"}, {"key": "a"}]}}),
        );
        let edits = edited(
            before.clone(),
            json!({"spec": {"conditions": [3, 3], "taints": null}}),
        );
        let after = edits.onto(&before);
        assert_eq!(after["spec"], json!({"x": 1, "conditions": [3, 3]}));
        let paths = edits.paths();
        assert_eq!(
            paths,
            [
                ("spec.conditions".to_owned(), false),
                ("spec.taints".to_owned(), true)
            ]
        );
    }

    #[test]
    fn a_list_that_is_removed_keeps_what_others_added_since() {
        let edits = edited(machine("1", json!({})), json!({"metadata": {"finalizers": null}}));
        let paths: Vec<String> = edits.paths().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["metadata.finalizers[a]", "metadata.finalizers[f]"]);
        let fresh = machine("2", json!({"metadata": {"finalizers": ["a", "f", "theirs"]}}));
        assert_eq!(edits.onto(&fresh)["metadata"]["finalizers"], json!(["theirs"]));
        let gone = edits.onto(&machine("1", json!({})));
        assert_eq!(gone["metadata"].get("finalizers"), None);
    }

    #[test]
    fn a_patch_has_the_shape_that_its_readers_expect() {
        for (patch, wrong) in [
            (json!([]), Some("it is not a JSON object")),
            (
                json!({"": {"status": {"pending": 1}}}),
                Some("a field has an empty name"),
            ),
            (json!({"spec": [{"": 1}]}), Some("a field has an empty name")),
            (json!({"metadata": null}), Some("metadata is not an object")),
            (json!({"metadata": 7}), Some("metadata is not an object")),
            (
                json!({"metadata": {"finalizers": "x"}}),
                Some("metadata.finalizers is not a list of different texts"),
            ),
            (
                json!({"metadata": {"finalizers": ["x", "x"]}}),
                Some("metadata.finalizers is not a list of different texts"),
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                Some("metadata.labels is not an object of texts"),
            ),
            (json!({"status": "x"}), Some("status is not an object")),
            (
                json!({"status": {"conditions": {"type": "Ready"}}}),
                Some("status.conditions is not a list of objects with different types"),
            ),
            (
                json!({"status": {"conditions": ["Ready"]}}),
                Some("status.conditions is not a list of objects with different types"),
            ),
            (
                json!({"status": null, "metadata": {"finalizers": null, "labels": {"a": null}}}),
                None,
            ),
            (json!({"status": {"conditions": []}, "spec": 7}), None),
        ] {
            assert_eq!(misshapen(&patch, true).as_deref(), wrong, "{patch}");
        }
        assert!(misshapen(&json!({"status": null}), false).is_some());
    }

    #[test]
    fn what_an_api_server_does_not_keep_is_named_by_its_path() {
        let answer = machine("2", json!({"status": {"kept": 1, "defaulted": "theirs"}}));
        let desired = json!({"kind": "Machine", "metadata": answer["metadata"], "spec": {"x": 1},
            "status": {"kept": 1.0, "defaulted": "ours", "pruned": {"a": 1}}});
        let left = change(Part::Status, &answer, &desired).expect("a change is left");
        assert_eq!(not_kept(&left, &answer), ["status.defaulted", "status.pruned.a"]);
        assert_eq!(change(Part::Main, &answer, &desired), None);
    }

    #[test]
    fn an_edited_value_that_somebody_else_changed_is_a_conflict() {
        let edits = edited(
            machine("1", json!({})),
            json!({"status": {"phase": "Up", "note": "n"}}),
        );
        let fresh = machine("2", json!({"status": {"phase": "Down"}}));
        assert_eq!(edits.conflicts(&fresh), ["status.phase"]);
        let rest = edits.without(&["status.phase".into()]);
        assert_eq!(rest.onto(&fresh)["status"], json!({"phase": "Down", "note": "n"}));
    }
}
