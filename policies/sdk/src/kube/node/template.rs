//! Labels, annotations and taints that a policy keeps on a Node. The merge has three sides: the wanted template,
//! the template that was applied last, and the present Node. Values that were never applied are never touched.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Node, Taint};
use crate::contract::{Code, Failure};

/// Labels, annotations and taints of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeTemplate {
    /// Labels and annotations.
    pub metadata: TemplateMetadata,
    /// Taints.
    pub spec: TemplateSpec,
}

/// Labels and annotations of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Taints of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TemplateSpec {
    /// Taints, recognised by key and effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// The changes that a node needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merge {
    /// Whether a value is removed that was applied before and is no longer wanted.
    pub removed: bool,
    /// Whether a label or an annotation is set.
    pub set: bool,
    /// Whether a taint is set.
    pub tainted: bool,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    taints: Vec<Taint>,
    retainted: bool,
}

impl NodeTemplate {
    /// The template that was applied last, from this annotation of the node; empty if the annotation is
    /// missing.
    pub fn last_applied(node: &Node, annotation: &str) -> Result<NodeTemplate, Failure> {
        let Some(text) = node.metadata.annotations.get(annotation) else {
            return Ok(NodeTemplate::default());
        };
        serde_json::from_str(text).map_err(|error| {
            let message = format!("the annotation {annotation} of the node does not decode: {error}");
            Failure::new(Code::InvalidArgument, message)
        })
    }

    /// The changes that a node needs to carry this template, if `applied` was applied last.
    pub fn merge(&self, applied: &NodeTemplate, node: &Node) -> Merge {
        let (wanted, was, is) = (&self.metadata, &applied.metadata, &node.metadata);
        let labels = changes(&wanted.labels, &was.labels, &is.labels);
        let annotations = changes(&wanted.annotations, &was.annotations, &is.annotations);
        let kept = without(&node.spec.taints, &applied.spec.taints, &self.spec.taints);
        let untainted = kept.len() < node.spec.taints.len();
        let taints = with(kept.clone(), &self.spec.taints);
        let any = |is: fn(&Value) -> bool| labels.values().chain(annotations.values()).any(is);
        Merge {
            removed: any(Value::is_null) || untainted,
            set: any(Value::is_string),
            tainted: taints != kept,
            retainted: untainted || taints != kept,
            labels,
            annotations,
            taints,
        }
    }
}

impl Merge {
    /// Whether nothing has to change.
    pub fn is_empty(&self) -> bool {
        !(self.removed || self.set || self.tainted)
    }

    /// The merge patch of the node. It also records the applied template in this annotation.
    pub fn patch(mut self, annotation: &str, template: &NodeTemplate) -> Value {
        let text = serde_json::to_string(template).expect("a template has a JSON form");
        self.annotations.insert(annotation.to_owned(), text.into());
        let mut patch = json!({"metadata": {"annotations": self.annotations}});
        if !self.labels.is_empty() {
            patch["metadata"]["labels"] = self.labels.into();
        }
        if self.retainted {
            patch["spec"] = json!({"taints": self.taints});
        }
        patch
    }
}

type Strings = BTreeMap<String, String>;

/// The changes of labels or annotations. A null removes one.
fn changes(wanted: &Strings, applied: &Strings, here: &Strings) -> Map<String, Value> {
    let stray = |key: &&String| !wanted.contains_key(*key) && here.contains_key(*key);
    let removed = applied.keys().filter(stray).map(|key| (key.clone(), Value::Null));
    let missing = |(key, value): &(&String, &String)| here.get(*key) != Some(*value);
    let set = wanted.iter().filter(missing);
    removed
        .chain(set.map(|(key, value)| (key.clone(), value.as_str().into())))
        .collect()
}

fn without(here: &[Taint], applied: &[Taint], wanted: &[Taint]) -> Vec<Taint> {
    let is_in = |list: &[Taint], taint: &Taint| list.iter().any(|other| other.is(taint));
    let stays = |taint: &&Taint| is_in(wanted, taint) || !is_in(applied, taint);
    here.iter().filter(stays).cloned().collect()
}

fn with(mut taints: Vec<Taint>, wanted: &[Taint]) -> Vec<Taint> {
    for taint in wanted {
        match taints.iter_mut().find(|there| there.is(taint)) {
            Some(there) => there.clone_from(taint),
            None => taints.push(taint.clone()),
        }
    }
    taints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(json: Value) -> NodeTemplate {
        serde_json::from_value(json).unwrap()
    }

    fn node(json: Value) -> Node {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn what_is_there_already_needs_no_change() {
        let wanted = template(json!({"metadata": {"labels": {"a": "1"}}}));
        let node = node(json!({"metadata": {"labels": {"a": "1", "theirs": "x"}}}));
        assert!(wanted.merge(&NodeTemplate::default(), &node).is_empty());
    }

    #[test]
    fn only_what_was_applied_is_taken_away() {
        let applied = template(json!({
            "metadata": {"labels": {"old": "1", "gone": "1"}},
            "spec": {"taints": [{"key": "ours", "effect": "NoSchedule"}]},
        }));
        let node = node(json!({
            "metadata": {"labels": {"old": "changed by somebody", "theirs": "x"}},
            "spec": {"taints": [{"key": "ours", "effect": "NoSchedule", "value": "v"},
                {"key": "ours", "effect": "NoExecute"}]},
        }));
        let merge = NodeTemplate::default().merge(&applied, &node);
        assert_eq!((merge.removed, merge.set, merge.tainted), (true, false, false));
        assert_eq!(
            merge.patch("last", &NodeTemplate::default()),
            json!({
                "metadata": {"labels": {"old": null}, "annotations": {"last": r#"{"metadata":{},"spec":{}}"#}},
                "spec": {"taints": [{"key": "ours", "effect": "NoExecute"}]},
            })
        );
    }

    #[test]
    fn a_taint_with_another_value_is_replaced() {
        let wanted =
            template(json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule", "value": "new"}]}}));
        let node = node(json!({
            "metadata": {}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule", "value": "old"}]},
        }));
        let merge = wanted.merge(&NodeTemplate::default(), &node);
        assert_eq!((merge.removed, merge.set, merge.tainted), (false, false, true));
        assert_eq!(merge.patch("last", &wanted)["spec"]["taints"][0]["value"], "new");
    }
}
