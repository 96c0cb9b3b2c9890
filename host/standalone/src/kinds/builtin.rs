//! The kinds that exist without a CRD. Their schemas hold the fields by which this server decides. `spec` and
//! `status` of nodes and pods are stored as they come, because nothing here runs them.

mod budget;
mod volumes;

use polity_kube_rules::schema::{Dialect, compile};
use serde_json::{Value, json};

use super::{Kind, Rules, Version, api_version, meta, resource_name};
use crate::http::table::Column;

/// All builtin kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        namespace(),
        secret(),
        config_map(),
        node(),
        pod(),
        event("", "v1"),
        event("events.k8s.io", "v1"),
        lease(),
        crd(),
        budget::budget(),
        volumes::volume(),
        volumes::claim(),
        volumes::attachment(),
    ]
}

/// A builtin kind: group, version, kind, plural.
struct Name(&'static str, &'static str, &'static str, &'static str);

impl Name {
    fn kind(self, fields: Value) -> Kind {
        self.shaped(&json!({ "type": "object", "properties": fields }))
    }

    /// The same, with required fields at the root.
    fn shaped(self, schema: &Value) -> Kind {
        let Self(group, version, kind, plural) = self;
        let schema =
            compile(Dialect::Structural, "", schema).expect("the schemas of builtin kinds are our own");
        Kind {
            group: group.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            versions: vec![Version {
                name: version.to_owned(),
                schema: meta::rooted(schema),
                source: Value::Null,
                status: false,
                scale: None,
                columns: vec![Column::age()],
            }],
            unserved: Vec::new(),
            storage: resource_name(group, plural).into(),
            storage_version: api_version(group, version),
            selectable: Vec::new(),
            rules: Rules::Plain,
            terminating: false,
        }
    }
}

impl Kind {
    fn short(mut self, name: &str) -> Self {
        self.short_names.push(name.to_owned());
        self
    }

    fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    fn with_status(mut self) -> Self {
        self.versions.iter_mut().for_each(|version| version.status = true);
        self
    }

    fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    fn selectable(mut self, fields: &[&str]) -> Self {
        self.selectable = fields.iter().map(|field| (*field).to_owned()).collect();
        self
    }

    fn columns(mut self, columns: &[(&str, &str, &str)]) -> Self {
        for version in &mut self.versions {
            let shown = columns
                .iter()
                .map(|(name, kind, path)| Column::new(name, kind, path));
            version.columns = shown.chain([Column::age()]).collect();
        }
        self
    }
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn texts() -> Value {
    json!({ "type": "object", "nullable": true, "additionalProperties": text() })
}

fn bytes() -> Value {
    let one = json!({ "type": "string", "format": "byte" });
    json!({ "type": "object", "nullable": true, "additionalProperties": one })
}

fn open() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn namespace() -> Kind {
    let finalizers = json!({ "type": "array", "items": text() });
    let spec = json!({ "type": "object", "properties": { "finalizers": finalizers } });
    Name("", "v1", "Namespace", "namespaces")
        .kind(json!({ "spec": spec, "status": open() }))
        .cluster_scoped()
        .with_status()
        .short("ns")
        .selectable(&["status.phase"])
        .columns(&[("Status", "string", ".status.phase")])
        .rules(Rules::Namespace)
}

fn secret() -> Kind {
    let kind = json!({ "type": "string", "default": "Opaque" });
    let immutable = json!({ "type": "boolean", "nullable": true });
    Name("", "v1", "Secret", "secrets")
        .kind(json!({ "type": kind, "immutable": immutable, "data": bytes(), "stringData": texts() }))
        .selectable(&["type"])
        .columns(&[("Type", "string", ".type")])
        .rules(Rules::Secret)
}

fn config_map() -> Kind {
    let immutable = json!({ "type": "boolean", "nullable": true });
    Name("", "v1", "ConfigMap", "configmaps")
        .kind(json!({ "immutable": immutable, "data": texts(), "binaryData": bytes() }))
        .short("cm")
}

fn node() -> Kind {
    Name("", "v1", "Node", "nodes")
        .kind(json!({ "spec": open(), "status": open() }))
        .cluster_scoped()
        .with_status()
        .short("no")
        .selectable(&["spec.unschedulable"])
        .columns(&[
            (
                "Ready",
                "string",
                ".status.conditions[?(@.type==\"Ready\")].status",
            ),
            ("Version", "string", ".status.nodeInfo.kubeletVersion"),
        ])
        .rules(Rules::Node)
}

fn pod() -> Kind {
    Name("", "v1", "Pod", "pods")
        .kind(json!({ "spec": open(), "status": open() }))
        .with_status()
        .short("po")
        .selectable(&[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ])
        .columns(&[
            ("Status", "string", ".status.phase"),
            ("Node", "string", ".spec.nodeName"),
        ])
        .rules(Rules::Pod)
}

/// Both kinds of events are stored, validated and selected in the form of core/v1.
fn event(group: &'static str, version: &'static str) -> Kind {
    let time = json!({ "type": "string", "nullable": true, "format": "date-time" });
    let count = json!({ "type": "integer" });
    let reference: Value = [
        "kind",
        "namespace",
        "name",
        "uid",
        "apiVersion",
        "resourceVersion",
        "fieldPath",
    ]
    .into_iter()
    .map(|field| (field.to_owned(), text()))
    .collect();
    let reference = json!({ "type": "object", "properties": reference });
    let source = json!({ "type": "object", "properties": { "component": text(), "host": text() } });
    let series = json!({
        "type": "object",
        "nullable": true,
        "properties": { "count": count, "lastObservedTime": time },
    });
    let mut related = reference.clone();
    related["nullable"] = json!(true);
    let fields = json!({
        "involvedObject": reference,
        "reason": text(),
        "message": text(),
        "source": source,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": count,
        "type": text(),
        "eventTime": time,
        "series": series,
        "action": text(),
        "related": related,
        "reportingComponent": text(),
        "reportingInstance": text(),
    });
    let kind = Name(group, version, "Event", "events")
        .kind(fields)
        .short("ev")
        .selectable(&[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ])
        .columns(&[
            ("Type", "string", ".type"),
            ("Reason", "string", ".reason"),
            ("Kind", "string", ".involvedObject.kind"),
            ("Object", "string", ".involvedObject.name"),
            ("Message", "string", ".message"),
        ]);
    if group.is_empty() {
        return kind;
    }
    Kind {
        storage: "events".into(),
        storage_version: "v1".to_owned(),
        ..kind.rules(Rules::NewEvent)
    }
}

fn lease() -> Kind {
    let time = json!({ "type": "string", "nullable": true, "format": "date-time" });
    let count = json!({ "type": "integer", "nullable": true });
    let nullable = json!({ "type": "string", "nullable": true });
    let spec = json!({
        "type": "object",
        "properties": {
            "holderIdentity": nullable,
            "leaseDurationSeconds": count,
            "acquireTime": time,
            "renewTime": time,
            "leaseTransitions": count,
            "strategy": nullable,
            "preferredHolder": nullable,
        },
    });
    Name("coordination.k8s.io", "v1", "Lease", "leases")
        .kind(json!({ "spec": spec }))
        .columns(&[("Holder", "string", ".spec.holderIdentity")])
        .rules(Rules::Versioned)
}

fn crd() -> Kind {
    Name(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    )
    .kind(json!({ "spec": open(), "status": open() }))
    .cluster_scoped()
    .with_status()
    .short("crd")
    .columns(&[])
    .rules(Rules::Crd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_kind_compiles() {
        assert_eq!(kinds().len(), 13);
    }

    #[test]
    fn an_unknown_field_of_a_builtin_kind_is_pruned() {
        let kind = config_map();
        let schema = &kind.versions[0].schema;
        let mut object = json!({ "data": { "a": "b" }, "dta": 1, "metadata": { "nme": "x" } });
        assert_eq!(schema.prune(&mut object), ["dta", "metadata.nme"]);
        assert_eq!(object, json!({ "data": { "a": "b" }, "metadata": {} }));
    }
}
