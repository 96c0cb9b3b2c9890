//! Discovery: the groups, versions and kinds that are served, and their verbs.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    http::{
        path::Route,
        refusal::Refusal,
        reply::{self, Body},
        view::{Accepted, accepted},
    },
    kinds::{Kind, Registry, Version, api_version},
};

/// The Kubernetes version of this API. kubectl compares it with its own.
const GIT_VERSION: &str = "v1.36.3+polity";

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// The verbs of a kind whose CRD is being deleted.
const LAST_VERBS: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];
/// The verbs of `status` and `scale`.
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The media type of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers a discovery request.
pub(crate) fn answer(
    registry: &Registry,
    route: &Route,
    accept: Option<&str>,
) -> Result<Response<Body>, Refusal> {
    let forms = accepted(accept);
    let aggregated = forms.first() == Some(&Accepted::Discovery);
    if forms.is_empty() {
        return Err(Refusal::not_acceptable());
    }
    let value = match route {
        Route::Version => version(),
        Route::CoreVersions if aggregated => return Ok(reply::typed(AGGREGATED, &aggregate(registry, true))),
        Route::Groups if aggregated => return Ok(reply::typed(AGGREGATED, &aggregate(registry, false))),
        Route::CoreVersions => json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }),
        Route::Groups => groups(registry),
        Route::Group(name) => group(registry, name).ok_or_else(Refusal::no_such_path)?,
        Route::Resources(group, version) => {
            resources(registry, group, version).ok_or_else(Refusal::no_such_path)?
        }
        _ => return Err(Refusal::no_such_path()),
    };
    Ok(reply::json(StatusCode::OK, value.to_string()))
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn groups(registry: &Registry) -> Value {
    let names = registry.groups().into_keys().filter(|name| !name.is_empty());
    let groups: Vec<Value> = names.filter_map(|name| group(registry, name)).collect();
    let groups: Vec<Value> = groups.into_iter().map(without_type).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

fn without_type(mut group: Value) -> Value {
    if let Some(fields) = group.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    group
}

fn group(registry: &Registry, name: &str) -> Option<Value> {
    let groups = registry.groups();
    let served = groups.get(name).filter(|_| !name.is_empty())?;
    let versions: Vec<Value> = served
        .iter()
        .map(|version| json!({ "groupVersion": api_version(name, version), "version": version }))
        .collect();
    Some(json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "preferredVersion": versions.first(),
        "versions": versions,
    }))
}

fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for (kind, served) in of_version(registry, group, version) {
        resources.push(json!({
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": verbs(kind),
            "shortNames": kind.short_names,
            "categories": kind.categories,
        }));
        if served.status {
            resources.push(json!({
                "name": format!("{}/status", kind.plural),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": STATUS_VERBS,
            }));
        }
        if served.scale.is_some() {
            resources.push(json!({
                "name": format!("{}/scale", kind.plural),
                "singularName": "",
                "namespaced": kind.namespaced,
                "group": "autoscaling",
                "version": "v1",
                "kind": "Scale",
                "verbs": STATUS_VERBS,
            }));
        }
        if kind.is_evicted() {
            resources.push(json!({
                "name": format!("{}/eviction", kind.plural),
                "singularName": "",
                "namespaced": kind.namespaced,
                "group": "policy",
                "version": "v1",
                "kind": "Eviction",
                "verbs": ["create"],
            }));
        }
    }
    (!resources.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version(group, version),
            "resources": resources,
        })
    })
}

fn verbs(kind: &Kind) -> &'static [&'static str] {
    if kind.terminating { &LAST_VERBS } else { &VERBS }
}

fn of_version<'a>(
    registry: &'a Registry,
    group: &str,
    version: &str,
) -> impl Iterator<Item = (&'a Kind, &'a Version)> {
    registry
        .of_group(group)
        .filter_map(move |kind| Some((&**kind, kind.version(version)?)))
}

/// All of discovery in one document: of the core group, or of all other groups.
fn aggregate(registry: &Registry, core: bool) -> Value {
    let groups = registry.groups();
    let wanted = groups.iter().filter(|(name, _)| name.is_empty() == core);
    let items: Vec<Value> = wanted
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| aggregate_version(registry, group, version))
                .collect();
            let metadata = if core { json!({}) } else { json!({ "name": group }) };
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregate_version(registry: &Registry, group: &str, version: &str) -> Value {
    let resources: Vec<Value> = of_version(registry, group, version)
        .map(|(kind, served)| {
            let response = json!({ "group": group, "version": version, "kind": kind.kind });
            let mut subresources = Vec::new();
            if served.status {
                subresources.push(json!({
                    "subresource": "status",
                    "responseKind": response,
                    "verbs": STATUS_VERBS,
                }));
            }
            if served.scale.is_some() {
                subresources.push(json!({
                    "subresource": "scale",
                    "responseKind": { "group": "autoscaling", "version": "v1", "kind": "Scale" },
                    "verbs": STATUS_VERBS,
                }));
            }
            if kind.is_evicted() {
                subresources.push(json!({
                    "subresource": "eviction",
                    "responseKind": { "group": "policy", "version": "v1", "kind": "Eviction" },
                    "verbs": ["create"],
                }));
            }
            json!({
                "resource": kind.plural,
                "responseKind": response,
                "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": kind.singular,
                "verbs": verbs(kind),
                "shortNames": kind.short_names,
                "categories": kind.categories,
                "subresources": subresources,
            })
        })
        .collect();
    json!({ "version": version, "freshness": "Current", "resources": resources })
}
