//! A small OpenAPI v3: the verbs of every kind, that fields are validated here, and the fields of custom
//! kinds.
//!
//! The fields of builtin kinds are left out, because not all of them are known here. If a schema lacks a
//! field, `kubectl explain` says that the field does not exist.

use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::{
    http::{
        path::Route,
        reply::{self, Body},
    },
    kinds::{Kind, Registry, Version, api_version, object_meta_source},
};

/// Answers an OpenAPI request; `None` if the route is none, or the version is not served.
pub(crate) fn answer(registry: &Registry, route: &Route) -> Option<Response<Body>> {
    let value = match route {
        Route::OpenApiIndex => index(registry),
        Route::OpenApi(group, version) => document(registry, group, version)?,
        _ => return None,
    };
    Some(reply::json(StatusCode::OK, value.to_string()))
}

fn base(group: &str, version: &str) -> String {
    let root = if group.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", api_version(group, version))
}

fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, versions) in registry.groups() {
        for version in versions {
            let base = base(group, version);
            paths.insert(
                base.clone(),
                json!({ "serverRelativeURL": format!("/openapi/v3/{base}") }),
            );
        }
    }
    json!({ "paths": paths })
}

fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for kind in registry.of_group(group) {
        let Some(served) = kind.version(version) else {
            continue;
        };
        let name = schema_name(kind, version);
        let schema = schema(kind, served);
        describe(kind, served, schema.is_some().then_some(&name), &mut paths);
        schemas.extend(schema.map(|schema| (name, schema)));
    }
    (!paths.is_empty()).then(|| {
        json!({
            "openapi": "3.0.0",
            "info": { "title": "Polity standalone", "version": "v1.36.3" },
            "paths": paths,
            "components": { "schemas": schemas },
        })
    })
}

/// The name of a schema in the manner of `io.k8s.api.core.v1.Pod`: the group reversed, the version, the kind.
fn schema_name(kind: &Kind, version: &str) -> String {
    let group = if kind.group.is_empty() {
        "core"
    } else {
        &kind.group
    };
    let reversed: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{version}.{}", reversed.join("."), kind.kind)
}

/// The schema of a custom kind, with the fields of every object; `None` for a builtin kind.
fn schema(kind: &Kind, version: &Version) -> Option<Value> {
    let mut schema = version.source.clone();
    if !schema.is_object() {
        return None;
    }
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    for field in ["apiVersion", "kind"] {
        schema["properties"][field] = json!({ "type": "string" });
    }
    schema["properties"]["metadata"] = object_meta_source();
    schema["x-kubernetes-group-version-kind"] = json!([gvk(kind, &version.name)]);
    Some(schema)
}

fn gvk(kind: &Kind, version: &str) -> Value {
    json!({ "group": kind.group, "version": version, "kind": kind.kind })
}

fn describe(kind: &Kind, served: &Version, schema: Option<&String>, paths: &mut Map<String, Value>) {
    let version = &served.name;
    let base = base(&kind.group, version);
    let collection = if kind.namespaced {
        format!("/{base}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        format!("/{base}/{}", kind.plural)
    };
    let about = About {
        gvk: gvk(kind, version),
        schema,
        namespaced: kind.namespaced,
    };
    if kind.namespaced {
        paths.insert(
            format!("/{base}/{}", kind.plural),
            json!({ "get": about.operation("list", &[]) }),
        );
    }
    let object = format!("{collection}/{{name}}");
    paths.insert(
        collection,
        json!({
            "get": about.operation("list", &["labelSelector", "fieldSelector", "limit", "continue", "watch"]),
            "post": about.operation("post", &["fieldManager", "fieldValidation"]),
            "delete": about.operation("deletecollection", &["labelSelector", "fieldSelector"]),
        }),
    );
    let mut methods = about.changes();
    if served.status {
        paths.insert(format!("{object}/status"), methods.clone());
    }
    let part = |group: &str, kind_of_part: &str| About {
        gvk: json!({ "group": group, "version": "v1", "kind": kind_of_part }),
        schema: None,
        namespaced: kind.namespaced,
    };
    if served.scale.is_some() {
        paths.insert(format!("{object}/scale"), part("autoscaling", "Scale").changes());
    }
    if kind.is_evicted() {
        let eviction = part("policy", "Eviction");
        paths.insert(
            format!("{object}/eviction"),
            json!({ "post": eviction.operation("post", &["fieldManager", "fieldValidation"]) }),
        );
    }
    methods["delete"] = about.operation("delete", &["gracePeriodSeconds", "propagationPolicy"]);
    paths.insert(object, methods);
}

struct About<'a> {
    gvk: Value,
    schema: Option<&'a String>,
    namespaced: bool,
}

impl About<'_> {
    /// The operations by which one object, or a part of it, is read and changed.
    fn changes(&self) -> Value {
        json!({
            "get": self.operation("get", &[]),
            "put": self.operation("put", &["fieldManager", "fieldValidation"]),
            "patch": self.operation("patch", &["fieldManager", "fieldValidation"]),
        })
    }

    fn operation(&self, action: &str, parameters: &[&str]) -> Value {
        let query = parameters.iter().map(|name| {
            json!({ "name": name, "in": "query", "schema": { "type": "string", "uniqueItems": true } })
        });
        let namespace = self.namespaced.then(
            || json!({ "name": "namespace", "in": "path", "required": true, "schema": { "type": "string" } }),
        );
        let parameters: Vec<Value> = query.chain(namespace).collect();
        let schema = match self.schema {
            Some(name) => json!({ "$ref": format!("#/components/schemas/{name}") }),
            None => json!({ "type": "object" }),
        };
        json!({
            "parameters": parameters,
            "responses": { "200": { "description": "OK", "content": { "application/json": { "schema": schema } } } },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.gvk,
        })
    }
}
