//! A CustomResourceDefinition made from Rust types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::Kind;

/// A CustomResourceDefinition (`apiextensions.k8s.io/v1`) with a status subresource, and with a scale if
/// [`scale`](Self::scale) names its numbers.
///
/// The schema is a structural one, as Kubernetes demands: it is inlined, without `$ref`, and `null` becomes
/// `nullable`. `status.pending` is added, in which the host enters creates before it performs them. A type
/// that denies unknown fields (`deny_unknown_fields` of serde or schemars) is closed: the API server refuses
/// an object with an unknown field instead of dropping the field.
#[derive(Clone, Debug)]
pub struct Crd {
    group: String,
    version: String,
    kind: String,
    plural: String,
    short_names: Vec<String>,
    namespaced: bool,
    columns: Vec<Column>,
    subresources: Value,
    schema: Value,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug)]
pub struct Column {
    name: String,
    json_path: String,
    kind: &'static str,
}

impl Crd {
    /// A definition from the kind's Rust type. `plural` is the name in `kubectl get PLURAL`.
    pub fn of<K: Kind + JsonSchema>(plural: &str) -> Self {
        let (group, version) = K::API_VERSION.split_once('/').unwrap_or(("", K::API_VERSION));
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let mut schema = settings.into_generator().into_root_schema_for::<K>().to_value();
        structural(&mut schema);
        add_pending(&mut schema);
        Crd {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: K::KIND.to_owned(),
            plural: plural.to_owned(),
            short_names: Vec::new(),
            namespaced: K::NAMESPACED,
            columns: Vec::new(),
            subresources: json!({ "status": {} }),
            schema,
        }
    }

    /// A short name for kubectl.
    pub fn short_name(mut self, name: &str) -> Self {
        self.short_names.push(name.to_owned());
        self
    }

    /// A text column.
    pub fn column(mut self, name: &str, json_path: &str) -> Self {
        self.columns.push(Column {
            name: name.to_owned(),
            json_path: json_path.to_owned(),
            kind: "string",
        });
        self
    }

    /// A column with the age of a time, for example `.metadata.creationTimestamp`.
    pub fn age_column(mut self, name: &str, json_path: &str) -> Self {
        self.columns.push(Column {
            name: name.to_owned(),
            json_path: json_path.to_owned(),
            kind: "date",
        });
        self
    }

    /// The subresource `scale`, by which `kubectl scale` and autoscalers change a number: the paths of the
    /// wanted number and of the observed one, for example `.spec.replicas` and `.status.replicas`.
    pub fn scale(mut self, spec_replicas: &str, status_replicas: &str) -> Self {
        self.subresources["scale"] =
            json!({ "specReplicasPath": spec_replicas, "statusReplicasPath": status_replicas });
        self
    }

    /// The manifest of the CustomResourceDefinition.
    pub fn json(&self) -> Value {
        let columns: Vec<Value> = self
            .columns
            .iter()
            .map(|column| json!({ "name": column.name, "type": column.kind, "jsonPath": column.json_path }))
            .collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{}.{}", self.plural, self.group) },
            "spec": {
                "group": self.group,
                "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
                "names": {
                    "kind": self.kind,
                    "listKind": format!("{}List", self.kind),
                    "plural": self.plural,
                    "singular": self.kind.to_ascii_lowercase(),
                    "shortNames": self.short_names,
                },
                "versions": [{
                    "name": self.version,
                    "served": true,
                    "storage": true,
                    "subresources": self.subresources,
                    "additionalPrinterColumns": columns,
                    "schema": { "openAPIV3Schema": self.schema },
                }],
            },
        })
    }
}

/// Adds `status.pending`, and the fields that every API object has.
fn add_pending(schema: &mut Value) {
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({ "type": "string" });
    properties["kind"] = json!({ "type": "string" });
    properties["metadata"] = json!({ "type": "object" });
    let status = &mut properties["status"];
    status["type"] = "object".into();
    status["properties"]["pending"] = json!({
        "description": "Creates that were begun and whose outcome is not published yet. Written by the host.",
        "type": "array",
        "items": {
            "type": "object",
            // A newer host may write more fields. An older one must not lose them.
            "x-kubernetes-preserve-unknown-fields": true,
            "required": ["operation", "intent", "key", "since"],
            "properties": {
                "operation": { "type": "string" },
                "service": { "type": "string" },
                "intent": { "type": "string" },
                "key": { "type": "string" },
                "stamp": { "type": "integer", "format": "int64" },
                "place": { "type": "array", "items": { "type": "string" } },
                "principal": { "type": "string" },
                "since": { "type": "integer", "format": "int64" },
                "waited": { "type": "integer", "format": "int64" },
            },
        },
    });
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|field| field == "spec");
    }
}

/// Turns a JSON Schema into a structural schema, in place.
fn structural(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for field in ["$schema", "$defs", "title", "examples"] {
        fields.remove(field);
    }
    nullable_by_type(fields);
    nullable_by_choice(fields);
    enumerate(fields);
    number_format(fields);
    if matches!(
        fields.get("default"),
        Some(Value::Null | Value::Object(_) | Value::Array(_))
    ) {
        fields.remove("default");
    }
    match fields.get("additionalProperties") {
        Some(Value::Bool(false)) => close(fields),
        Some(Value::Bool(true)) => _ = fields.remove("additionalProperties"),
        _ => {}
    }
    for field in ["items", "additionalProperties"] {
        fields.get_mut(field).into_iter().for_each(structural);
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(structural);
        properties
            .get_mut("conditions")
            .into_iter()
            .for_each(keyed_by_type);
    }
}

/// The most optional fields of a closed type: each of them doubles the size of its schema.
const MOST_OPTIONAL: u32 = 8;

/// Expresses `additionalProperties: false`, which a structural schema must not contain: an API server drops
/// unknown fields, and what is left of `{tpyo: x}` is `{}`. So unknown fields are kept, and the number of
/// fields is limited: for some choice of optional fields all of these exist, and there are no more fields
/// than these and the required ones.
///
/// # Panics
/// There are more than [`MOST_OPTIONAL`] optional fields.
fn close(fields: &mut Map<String, Value>) {
    fields.remove("additionalProperties");
    let names = |value: Option<&Value>| -> Vec<String> {
        match value {
            Some(Value::Object(properties)) => properties.keys().cloned().collect(),
            Some(Value::Array(names)) => names
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            _ => Vec::new(),
        }
    };
    let required = names(fields.get("required"));
    let mut optional = names(fields.get("properties"));
    optional.retain(|name| !required.contains(name));
    let count = u32::try_from(optional.len()).unwrap_or(u32::MAX);
    assert!(
        count <= MOST_OPTIONAL,
        "a closed type has {MOST_OPTIONAL} optional fields at most, this one has {count}: {optional:?}"
    );
    // A refusal quotes the first choice. It should say that there are too many fields, and not that all
    // optional fields are required.
    let choices = (0..1u32 << count).map(|choice| {
        let chosen = (0..).zip(&optional).filter(|(bit, _)| choice & (1 << bit) != 0);
        let chosen: Vec<&String> = chosen.map(|(_, name)| name).collect();
        let most = required.len() + chosen.len();
        if chosen.is_empty() {
            json!({ "maxProperties": most })
        } else {
            json!({ "required": chosen, "maxProperties": most })
        }
    });
    let choices: Vec<Value> = choices.collect();
    fields.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    match choices.as_slice() {
        [only] => fields.extend(only.as_object().cloned().unwrap_or_default()),
        _ => _ = fields.insert("anyOf".to_owned(), choices.into()),
    }
}

/// `type: [X, "null"]`
fn nullable_by_type(fields: &mut Map<String, Value>) {
    let Some(Value::Array(types)) = fields.get_mut("type") else {
        return;
    };
    let had = types.len();
    types.retain(|name| name != "null");
    if let (true, [only]) = (types.len() < had, types.as_slice()) {
        let only = only.clone();
        fields.insert("type".to_owned(), only);
        fields.insert("nullable".to_owned(), true.into());
        if let Some(Value::Array(values)) = fields.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
    }
}

/// `anyOf: [X, {type: null}]`
fn nullable_by_choice(fields: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = fields.get_mut("anyOf") else {
        return;
    };
    choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
    if let [Value::Object(only)] = choices.as_slice() {
        let only = only.clone();
        fields.remove("anyOf");
        for (field, value) in only {
            fields.entry(field).or_insert(value);
        }
        fields.insert("nullable".to_owned(), true.into());
    }
}

/// `oneOf: [{const: A}, …]`, which is how variants with documentation come: `enum: [A, …]`.
fn enumerate(fields: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = fields.get("oneOf") else {
        return;
    };
    let values: Option<Vec<Vec<Value>>> = choices
        .iter()
        .map(|choice| match (choice.get("const"), choice.get("enum")) {
            (Some(value), _) => Some(vec![value.clone()]),
            (None, Some(Value::Array(values))) => Some(values.clone()),
            _ => None,
        })
        .collect();
    if let Some(values) = values {
        fields.remove("oneOf");
        fields.insert("type".to_owned(), "string".into());
        fields.insert("enum".to_owned(), values.concat().into());
    }
}

/// Kubernetes knows `int32` and `int64`.
fn number_format(fields: &mut Map<String, Value>) {
    let format = match fields.get("format").and_then(Value::as_str) {
        Some("uint8" | "int8" | "uint16" | "int16") => "int32",
        Some("uint" | "int" | "uint32" | "uint64") => "int64",
        _ => return,
    };
    fields.insert("format".to_owned(), format.into());
}

fn keyed_by_type(list: &mut Value) {
    if list.pointer("/items/properties/type").is_some() {
        list["x-kubernetes-list-type"] = "map".into();
        list["x-kubernetes-list-map-keys"] = json!(["type"]);
    }
}
