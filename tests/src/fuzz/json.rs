//! Merge patches, edits of a publication, projections and label selectors.

use polity_core::merge::{self, Edits, Part};
use polity_core::object::Object;
use polity_core::projection::{digest, get, project};
use polity_kube_rules::labels::LabelSelector;
use polity_kube_rules::text;
use serde_json::{Value, json};

use super::{Choices, weird};

/// Runs one of them, with values and texts from these bytes.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.below(5) {
        0 => patches(&mut choices),
        1 => edits(&mut choices),
        2 => projections(&mut choices),
        3 => selectors(choices),
        _ => parsed(choices),
    }
}

/// `apply` does what `diff` finds.
fn patches(choices: &mut Choices<'_>) {
    let (a, b) = (weird::value(choices, 4), weird::value(choices, 4));
    there_and_back(&a, &b);
    there_and_back(&b, &a);
    assert_eq!(merge::diff(&a, &a), None, "{a}");
}

fn there_and_back(a: &Value, b: &Value) {
    // A merge patch cannot say that a field is null.
    let b = without_nulls(b);
    let mut result = a.clone();
    match merge::diff(a, &b) {
        None => assert_eq!(*a, b, "no difference"),
        Some(patch) => {
            merge::apply(&patch, &mut result);
            assert_eq!(result, b, "{patch} on {a}");
            let once = result.clone();
            merge::apply(&patch, &mut result);
            assert_eq!(result, once, "{patch} twice on {a}");
        }
    }
}

/// A value without null fields, in lists too, because a patch replaces lists as a whole.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, field)| !field.is_null())
            .map(|(name, field)| (name.clone(), without_nulls(field)))
            .collect(),
        other => other.clone(),
    }
}

/// Edits are applied once, whatever the object is by then, and writing the parts gives the wanted object.
fn edits(choices: &mut Choices<'_>) {
    let (seen, fresh) = (Object::new(object(choices)), object(choices));
    let snapshot = seen.tree();
    // A patch that is not an object is found before anything is merged.
    let patch = weird::patch(choices);
    if !patch.is_object() {
        return;
    }
    let edits_of = |patch: Value| Edits::of(&seen, patch.into(), 0);
    let edits = edits_of(patch.clone());
    let once = edits.onto(&fresh);
    assert_eq!(edits.onto(&once), once, "{patch} twice onto {fresh}");
    // A patch that the host refuses may mean anything, as long as nothing panics.
    let is_refused = merge::misshapen(&patch, true).is_some();
    assert!(
        is_refused || edits.conflicts(&snapshot).is_empty(),
        "{patch} conflicts with its own snapshot {snapshot}"
    );
    let paths: Vec<String> = edits.paths().into_iter().map(|(path, _)| path).collect();
    if !is_refused && let Some(change) = merge::diff(&snapshot, &edits.onto(&snapshot)) {
        let covers =
            |path: &str, changed: &str| merge::declares(path, changed) || merge::declares(changed, path);
        for (changed, _) in edits_of(change).paths() {
            let named = paths.iter().any(|path| covers(path, &changed));
            assert!(named, "{patch} changes {changed} of {snapshot} unsaid");
        }
    }
    let conflicts = edits.conflicts(&fresh);
    for conflict in &conflicts {
        assert!(paths.contains(conflict), "{conflict} is not edited by {patch}");
    }
    for path in &paths {
        assert!(merge::declares(path, path), "{path}");
    }
    let rest = edits.clone().without(&conflicts);
    let left = rest.onto(&fresh);
    let main = merge::change(Part::Main, &fresh, &left);
    if !is_refused {
        assert_eq!(main, main_part(&fresh, &left), "{left} of {fresh}");
    }
    for part in [Part::Main, Part::Status, Part::Finalizer] {
        if let Some(write) = merge::change(part, &fresh, &left) {
            let mut written = fresh.clone();
            merge::apply(&write, &mut written);
        }
    }
    let other = weird::patch(choices);
    if other.is_object() {
        let _ = edits.and(&edits_of(other));
    }
}

/// The main part of a publication, by its definition: the status stays, and no finalizer goes.
fn main_part(now: &Value, desired: &Value) -> Option<Value> {
    let listed = |object: &Value| object["metadata"]["finalizers"].as_array().cloned();
    let (held, wanted) = (listed(now), listed(desired).unwrap_or_default());
    let texts = |list: Vec<Value>| list.into_iter().filter(Value::is_string);
    let mut kept: Vec<Value> = texts(held.clone().unwrap_or_default()).collect();
    let added: Vec<Value> = texts(wanted).filter(|name| !kept.contains(name)).collect();
    kept.extend(added);
    let mut main = desired.clone();
    match now.get("status") {
        Some(status) => main["status"] = status.clone(),
        None => {
            main.as_object_mut()?.remove("status");
        }
    }
    if held.is_some() || !kept.is_empty() {
        main["metadata"]["finalizers"] = kept.into();
    }
    merge::diff(now, &main)
}

/// An object as an API server serves it: its metadata is valid, the rest is arbitrary.
fn object(choices: &mut Choices<'_>) -> Value {
    let mut value = weird::object(choices, "v1", "Thing", "t");
    if !value["metadata"].is_object() {
        value["metadata"] = json!({});
    }
    let metadata = &mut value["metadata"];
    for (field, right) in [
        ("finalizers", Value::is_array as fn(&Value) -> bool),
        ("ownerReferences", Value::is_array),
        ("labels", Value::is_object),
        ("annotations", Value::is_object),
    ] {
        if !metadata.get(field).is_none_or(right) {
            metadata[field] = Value::Null;
        }
    }
    metadata["uid"] = json!("u");
    metadata["resourceVersion"] = json!(choices.byte().to_string());
    value
}

/// A projection keeps only what exists, and the digest covers what it keeps.
fn projections(choices: &mut Choices<'_>) {
    let (a, b) = (weird::value(choices, 4), weird::value(choices, 4));
    let len = choices.below(4);
    let paths: Vec<String> = (0..len)
        .map(|_| {
            if choices.chance(100) {
                choices.text()
            } else {
                choices
                    .pick(&[
                        "spec.a.b",
                        "metadata",
                        "metadata.labels",
                        "status",
                        ".",
                        "",
                        "a..b",
                    ])
                    .to_owned()
            }
        })
        .collect();
    let (a, b) = (Object::new(a), Object::new(b));
    let projected = |text: &str| project(text, paths.iter().map(String::as_str));
    let kept = projected(a.json());
    assert_eq!(projected(&kept), kept, "{paths:?} twice of {}", a.json());
    assert_eq!(
        text::canonical(text::tree(&kept)),
        kept,
        "{paths:?} of {}",
        a.json()
    );
    let (whole, part) = (a.tree(), text::tree(&kept));
    for path in &paths {
        let stands = get(&whole, path);
        assert_eq!(a.at(path).as_ref(), stands, "{path} of {whole}");
        if whole.is_object() && !path.is_empty() {
            assert_eq!(get(&part, path), stands, "{path} of {part}");
        }
    }
    assert!(a.says_the_same(&a));
    assert_eq!(a.says_the_same(&b), b.says_the_same(&a), "{a:?} and {b:?}");
    let _ = a.reference();
}

fn selectors(choices: Choices<'_>) {
    let text = String::from_utf8_lossy(choices.rest()).into_owned();
    let labels = json!({"metadata": {"labels": {"app": "web", "tier": "a", "": "x", "n": 1}}});
    if let Some(selector) = LabelSelector::parse(&text) {
        let all = selector.matches(&labels);
        assert_eq!(all, selector.matches(&labels));
        let _ = selector.matches(&Value::Null);
        // A conjunction with itself is the same selector.
        if let Some(twice) = LabelSelector::parse(&format!("{text},{text}")) {
            assert!(!twice.matches(&labels) || all, "{text}");
        }
    }
}

/// Texts that are JSON, as they are.
fn parsed(choices: Choices<'_>) {
    let bytes = choices.rest();
    served(bytes);
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut documents = text.splitn(2, '\n');
    let mut next = || serde_json::from_str::<Value>(documents.next().unwrap_or_default());
    if let (Ok(a), Ok(b)) = (next(), next()) {
        there_and_back(&a, &b);
        let edits = Edits::of(&Object::new(a.clone()), b.into(), 0);
        let _ = (edits.paths(), edits.onto(&a), digest(&a));
    }
}

/// What a server sends is the same object by its text and by its tree.
fn served(bytes: &[u8]) {
    // As deep as a tree may be.
    let by_text = Object::read(bytes, 127);
    match serde_json::from_slice::<Value>(bytes) {
        Ok(tree) => {
            let by_tree = Object::new(tree);
            let by_text = by_text.expect("it is JSON");
            assert_eq!(by_text.json(), by_tree.json());
            let of = |object: &Object| (object.reference(), object.uid().to_owned(), object.version());
            assert_eq!(of(&by_text), of(&by_tree));
        }
        // A text that nests deeper has no tree.
        Err(_) => drop(by_text),
    }
}
