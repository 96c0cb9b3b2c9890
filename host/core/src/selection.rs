//! Whether a query for a list selects an object.

use std::borrow::Borrow;
use std::sync::Arc;

use polity_kube_rules::fields::{FieldSelector, Requirement};
use polity_kube_rules::labels::LabelSelector;
use serde_json::Value;

use crate::contract::{Code, Failure, ListQuery, Question};
use crate::object::Object;

/// To look whether an object belongs to an answer takes as long as to read this many bytes, beside what is read for it.
pub(crate) const LOOK: u64 = 100;

/// The selectors of a query, parsed once for many objects. Copies share them; a query without selectors has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection(Option<Arc<Selectors>>);

#[derive(Debug, PartialEq)]
struct Selectors {
    labels: Option<LabelSelector>,
    fields: Option<FieldSelector>,
    /// The bytes of their text.
    length: usize,
}

impl Selection {
    /// Parses the selectors of a question; a question about one object has none.
    pub(crate) fn of(question: &Question) -> Result<Self, Failure> {
        let Question::Objects(query) = question else {
            return Ok(Selection::default());
        };
        let texts = [query.label_selector.as_deref(), query.field_selector.as_deref()];
        let [labels, fields] = texts;
        let selectors = Selectors {
            labels: parsed(labels, LabelSelector::parse)?,
            fields: parsed(fields, |text| text.parse().ok())?,
            length: texts.into_iter().flatten().map(str::len).sum(),
        };
        let is_some = selectors.labels.is_some() || selectors.fields.is_some();
        Ok(Selection(is_some.then(|| Arc::new(selectors))))
    }

    /// Whether the query, of which these are the selectors, selects an object. The caller has compared the kind. `labels`
    /// returns those of the object ([`labels`]): the caller may have parsed them for another query.
    pub(crate) fn selects<L: Borrow<Value>>(
        &self,
        query: &ListQuery,
        object: &Object,
        labels: impl FnOnce() -> L,
    ) -> bool {
        let namespace = query.namespace.as_deref();
        namespace.is_none_or(|namespace| object.namespace() == Some(namespace))
            && self.0.as_ref().is_none_or(|selectors| {
                let (by_labels, by_fields) = (selectors.labels.as_ref(), selectors.fields.as_ref());
                by_labels.is_none_or(|by| by.matches_labels(labels().borrow()))
                    && by_fields.is_none_or(|by| by.matches_text(object.json()))
            })
    }

    /// The requirements of the field selector.
    pub(crate) fn fields(&self) -> &[Requirement] {
        let fields = self.0.as_ref().and_then(|selectors| selectors.fields.as_ref());
        fields.map_or(&[], FieldSelector::requirements)
    }

    /// A label that all selected objects have, with its value; `None` if the selectors name none.
    pub(crate) fn required_label(&self) -> Option<(&str, &str)> {
        self.0.as_ref()?.labels.as_ref()?.required()
    }

    /// The bytes of text that are compared to find out whether an object is selected: the selectors, and the labels.
    pub(crate) fn compares(&self, object: &Object) -> u64 {
        let compared = |selectors: &Arc<Selectors>| {
            let labels = selectors.labels.as_ref().map_or(0, |_| object.labels().len());
            (selectors.length + labels) as u64
        };
        self.0.as_ref().map_or(0, compared)
    }

    /// Whether it takes reading an object to find out whether it is selected.
    pub(crate) fn reads_fields(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|selectors| selectors.fields.is_some())
    }
}

fn parsed<T>(text: Option<&str>, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let parsed = parse(text).ok_or_else(|| {
        let text: String = text.chars().take(80).collect();
        let message = format!("no valid selector: {}", text.escape_debug());
        Failure::new(Code::InvalidArgument, message)
    });
    parsed.map(Some)
}

/// The labels of an object, as [`Selection::selects`] takes them.
pub(crate) fn labels(object: &Object) -> Value {
    match object.labels() {
        "" => Value::Null,
        labels => serde_json::from_str(labels).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_query_selects_by_labels_and_fields_as_an_api_server_does() {
        let pod = Object::new(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "a", "labels": {"app": "web"}},
            "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}));
        let query = |label: Option<&str>, field: Option<&str>| ListQuery {
            namespace: Some("a".into()),
            label_selector: label.map(str::to_owned),
            field_selector: field.map(str::to_owned),
            ..ListQuery::all(pod.kind())
        };
        let selects = |query: &ListQuery| {
            let selection = Selection::of(&Question::Objects(query.clone()));
            selection.map(|selection| selection.selects(query, &pod, || labels(&pod)))
        };
        for (label, field, expected) in [
            (None, None, Some(true)),
            (Some("app in (web,api)"), Some("spec.nodeName=n"), Some(true)),
            (Some("!app"), None, Some(false)),
            (Some("no selector"), None, None),
            (
                None,
                Some("status.phase!=Succeeded,status.phase!=Failed"),
                Some(true),
            ),
            (None, Some("status.phase!=Running"), Some(false)),
            (None, Some("spec.hostNetwork=false"), Some(true)),
            (None, Some("no selector"), None),
        ] {
            let selected = selects(&query(label, field));
            let code = selected.as_ref().err().map(|failure| failure.code);
            assert_eq!(selected.ok(), expected, "{label:?} {field:?}");
            assert_eq!(code.is_some(), expected.is_none(), "{code:?}");
        }
        let elsewhere = ListQuery {
            namespace: Some("b".into()),
            ..query(None, None)
        };
        assert_eq!(selects(&elsewhere), Ok(false));
    }

    #[test]
    fn what_a_selection_takes_are_the_selectors_and_the_labels_and_for_fields_the_object() {
        let object = Object::new(json!({"metadata": {"labels": {"a": "b"}}}));
        let labels = object.labels().len() as u64;
        for (label, field, compares, reads_fields) in [
            (None, None, 0, false),
            (Some("a=b"), None, 3 + labels, false),
            (None, Some("data=x"), 6, true),
            (Some("a=b"), Some("data=x"), 9 + labels, true),
        ] {
            let query = ListQuery {
                label_selector: label.map(str::to_owned),
                field_selector: field.map(str::to_owned),
                ..ListQuery::all(object.kind())
            };
            let selection = Selection::of(&Question::Objects(query)).expect("selectors");
            assert_eq!(selection.required_label(), label.map(|_| ("a", "b")));
            let taken = (selection.compares(&object), selection.reads_fields());
            assert_eq!(taken, (compares, reads_fields), "{label:?} {field:?}");
        }
    }
}
