//! The objects that a list, a watch or a collection delete selects: by namespace, labels and fields.

use polity_kube_rules::{fields::FieldSelector, labels::LabelSelector};

use crate::{
    http::{query::Query, refusal::Refusal, target::Target},
    kinds::{Kind, Rules, core_event_field},
    store::Object,
};

/// A selection of objects of a kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// `None` selects all namespaces.
    pub(crate) namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// The selection of a request for a collection; 400 if a selector is invalid or names a field that the
    /// kind does not have.
    pub(crate) fn of(target: &Target, query: &Query) -> Result<Self, Refusal> {
        let labels = query.get("labelSelector").unwrap_or_default().parse();
        Ok(Self {
            namespace: target.namespace.as_deref().map(str::to_owned),
            labels: labels.map_err(|error| Refusal::bad_request(format!("{error}")))?,
            fields: fields(query.get("fieldSelector").unwrap_or_default(), &target.kind)?,
        })
    }

    /// Whether a stored object is selected.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        let is_there = |wanted: &str| object.at("metadata.namespace").as_str().unwrap_or_default() == wanted;
        let has_labels = || self.labels.matches_labels(&object.at("metadata.labels"));
        self.namespace.as_deref().is_none_or(is_there)
            && (self.labels.is_empty() || has_labels())
            && self.fields.matches_text(object.json())
    }

    /// Whether labels or fields restrict it.
    pub(crate) fn is_narrow(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }
}

/// The field selector of a text, for objects of a kind in their stored form.
fn fields(text: &str, kind: &Kind) -> Result<FieldSelector, Refusal> {
    let selector: FieldSelector = text
        .parse()
        .map_err(|error| Refusal::bad_request(format!("{error}")))?;
    selector.with_fields(|field| {
        let stored = stored_field(kind, field);
        let is_selectable = matches!(stored.as_str(), "metadata.name" | "metadata.namespace")
            || kind.selectable.contains(&stored);
        if is_selectable {
            return Ok(stored);
        }
        Err(Refusal::bad_request(format!(
            "field label not supported: {field}"
        )))
    })
}

fn stored_field(kind: &Kind, field: &str) -> String {
    let renamed = (kind.rules == Rules::NewEvent)
        .then(|| core_event_field(field))
        .flatten();
    renamed.unwrap_or_else(|| field.to_owned())
}
