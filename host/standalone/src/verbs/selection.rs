//! Which objects a list, a watch or a collection delete means: namespace, labels and fields.

use polity_kube_rules::{fields::FieldSelector, labels::LabelSelector};

use crate::{
    http::{query::Query, refusal::Refusal, target::Target},
    kinds::{Kind, Rules, core_event_field},
    store::Object,
};

/// Which objects of a kind are meant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// None: all namespaces.
    pub(crate) namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// What a collection request selects; 400 for a selector that is none, or of a field that the kind has not.
    pub(crate) fn of(target: &Target, query: &Query) -> Result<Self, Refusal> {
        let labels = query.get("labelSelector").unwrap_or_default().parse();
        Ok(Self {
            namespace: target.namespace.as_deref().map(str::to_owned),
            labels: labels.map_err(|error| Refusal::bad_request(format!("{error}")))?,
            fields: fields(query.get("fieldSelector").unwrap_or_default(), &target.kind)?,
        })
    }

    /// Whether a stored object is meant.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        let is_there = |wanted: &str| object.at("metadata.namespace").as_str().unwrap_or_default() == wanted;
        let has_labels = || self.labels.matches_labels(&object.at("metadata.labels"));
        self.namespace.as_deref().is_none_or(is_there)
            && (self.labels.is_empty() || has_labels())
            && self.fields.matches_text(object.json())
    }

    /// Whether labels or fields narrow it.
    pub(crate) fn is_narrow(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }
}

/// The field selector that a text is for objects of a kind as they are stored.
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
