//! The least RBAC rules that a host needs, derived from the grants of its bindings.
//!
//! The governed kind, and what grants reach in the primary's own namespace, is allowed in all namespaces,
//! unless the binding governs one namespace only. Kubernetes cannot narrow some rules: `create` and a list of
//! minted tokens name no object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use polity_cluster::Cluster;
use polity_core::binding::{API_VERSION, BindingSpec, Grant, KindGrant, SecretGrant};
use polity_core::contract::{Kind, Manifest};
use serde_json::{Value, json};

use crate::sim;

/// The verbs for reading and watching objects.
const LOOK: [&str; 3] = ["get", "list", "watch"];

/// All rules: what is allowed, and where.
#[derive(Debug, Default)]
pub struct Allowed {
    rights: BTreeMap<(Place, Target), BTreeSet<&'static str>>,
    namespaces: Option<Arc<[String]>>,
}

/// Where something is allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// In all namespaces, and for cluster-scoped objects.
    Cluster,
    /// In one namespace.
    Namespace(String),
}

/// The resource, and the name if there is one, that a rule allows access to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    group: String,
    /// `pods`, `pods/eviction`
    resource: String,
    name: Option<String>,
}

/// How the cluster serves a kind.
struct Served {
    group: String,
    plural: String,
    namespaced: bool,
}

impl Allowed {
    /// The rules for any host: bindings, their status, and the lease.
    pub fn for_any_host((namespace, lease): (&str, &str)) -> Self {
        let mut allowed = Allowed::default();
        let (group, _) = API_VERSION.split_once('/').unwrap_or_default();
        let on = |resource: &str, name: Option<&str>| target(group, resource, name);
        allowed.add(Place::Cluster, on("policybindings", None), &LOOK);
        allowed.add(Place::Cluster, on("policybindings/status", None), &["patch"]);
        allowed.add(Place::Cluster, on("cloudconnections", None), &LOOK);
        // Its finalizer, while bindings need it.
        allowed.add(Place::Cluster, on("cloudconnections", None), &["patch"]);
        allowed.add(Place::Cluster, on("cloudconnections/status", None), &["patch"]);
        let leases = |name| target("coordination.k8s.io", "leases", name);
        let there = || Place::Namespace(namespace.to_owned());
        allowed.add(there(), leases(None), &["create"]);
        allowed.add(there(), leases(Some(lease)), &["get", "patch"]);
        allowed
    }

    /// The rules for any node agent: none. Its binding is a local file without a status, and there is no
    /// lease.
    pub fn for_a_node_agent() -> Self {
        Allowed::default()
    }

    /// For a host that is for these namespaces alone: what a binding needs in all of them is said of each.
    #[must_use]
    pub fn within(mut self, namespaces: Option<Arc<[String]>>) -> Self {
        self.namespaces = namespaces;
        self
    }

    /// Adds the rules for a binding. `cluster` tells how kinds are served.
    ///
    /// # Errors
    /// The cluster does not serve a kind.
    pub async fn bind(
        &mut self,
        cluster: &Cluster,
        lease: (&str, &str),
        spec: &BindingSpec,
        manifests: &[&Manifest],
    ) -> Result<()> {
        let namespaces = self.namespaces.clone();
        let own: Vec<&str> = match (&spec.governs.namespace, &namespaces) {
            (Some(namespace), _) => vec![namespace],
            (None, namespaces) => namespaces
                .iter()
                .flat_map(|all| all.iter())
                .map(String::as_str)
                .collect(),
        };
        let governed = served(cluster, &spec.governs.kind()).await?;
        let name = spec.governs.name.as_deref();
        let here = places(None, &own, governed.namespaced);
        for place in &here {
            self.add(place.clone(), governed.on("", name), &LOOK);
            self.add(place.clone(), governed.on("/status", name), &["patch"]);
            if manifests
                .iter()
                .any(|manifest| writes_the_object_itself(manifest))
            {
                self.add(place.clone(), governed.on("", name), &["patch"]);
            }
        }
        // The host reads the CRD to check that it keeps the `status.pending` entries.
        if let Some((group, _)) = spec.governs.api_version.split_once('/') {
            let crd = format!("{}.{group}", governed.plural);
            let definition = target("apiextensions.k8s.io", "customresourcedefinitions", Some(&crd));
            self.add(Place::Cluster, definition, &["get"]);
        }
        // Events stand in the namespace of their object; Events of cluster-scoped objects stand in `default`.
        let beside = if governed.namespaced {
            here
        } else {
            vec![Place::Namespace("default".to_owned())]
        };
        for place in beside {
            self.add(
                place,
                target("events.k8s.io", "events", None),
                &["create", "get", "patch"],
            );
        }
        for grant in &spec.grants {
            self.grant(cluster, lease, &own, grant).await?;
        }
        for (resource, verbs) in sim::rights(spec) {
            self.add(Place::Cluster, target("", resource, None), verbs);
        }
        Ok(())
    }

    async fn grant(
        &mut self,
        cluster: &Cluster,
        lease: (&str, &str),
        own: &[&str],
        grant: &Grant,
    ) -> Result<()> {
        let object = || vec![String::new()];
        let (kind, subresources, verbs): (&KindGrant, Vec<String>, &[&'static str]) = match grant {
            Grant::Ask(kind) => (kind, object(), &LOOK),
            Grant::Create(kind) => (kind, object(), &["create"]),
            Grant::Patch(kind) => {
                let named = kind.subresources.iter().flatten().map(|name| format!("/{name}"));
                let all = ["".to_owned(), "/status".to_owned()].into_iter().chain(named);
                (kind, all.collect(), &["patch"])
            }
            Grant::Delete(kind) => (kind, object(), &["delete"]),
            Grant::Evict(kind) => (kind, vec!["/eviction".to_owned()], &["create"]),
            Grant::Secrets(secrets) => {
                self.secrets(lease, own, secrets);
                return Ok(());
            }
            Grant::Mint(_) => {
                let there = Place::Namespace(lease.0.to_owned());
                let verbs = ["create", "delete", "get", "list"];
                self.add(there, target("", "secrets", None), &verbs);
                return Ok(());
            }
            // Every account may ask an API server whether it is ready (`system:public-info-viewer`), so this
            // needs no rule.
            Grant::ServiceAccounts(names) => {
                self.tokens(own, names);
                return Ok(());
            }
            Grant::Reachable(_)
            | Grant::Cloud(_)
            | Grant::Lock(_)
            | Grant::Credential(_)
            | Grant::Write(_) => return Ok(()),
        };
        let served = served(cluster, &kind.kind()).await?;
        for place in places(kind.namespaces.as_deref(), own, served.namespaced) {
            for subresource in &subresources {
                // A `create` names no object yet, so Kubernetes cannot compare a name.
                let name = kind.name.as_deref().filter(|_| !verbs.contains(&"create"));
                self.add(place.clone(), served.on(subresource, name), verbs);
            }
            if matches!(grant, Grant::Evict(_)) {
                // An eviction is answered with a Status, so the host reads the pod afterwards.
                self.add(place, served.on("", None), &["get"]);
            }
        }
        Ok(())
    }

    /// Adds the Secrets of a grant.
    fn secrets(&mut self, lease: (&str, &str), own: &[&str], grant: &SecretGrant) {
        for place in places(grant.namespaces.as_deref(), own, true) {
            self.add(place, target("", "secrets", grant.name.as_deref()), &["get"]);
        }
        self.key_of_digests(lease);
    }

    /// Adds the host's own Secret with the key of the digests of Secrets. Whoever reads a Secret needs the key.
    fn key_of_digests(&mut self, (namespace, lease): (&str, &str)) {
        let there = || Place::Namespace(namespace.to_owned());
        let installation = format!("{lease}-installation");
        self.add(there(), target("", "secrets", Some(&installation)), &["get"]);
        self.add(there(), target("", "secrets", None), &["create"]);
    }

    /// Adds the tokens of service accounts. Where a name is a prefix, Kubernetes cannot compare it.
    fn tokens(&mut self, own: &[&str], names: &[String]) {
        for place in places(None, own, true) {
            for name in names {
                let name = (!name.ends_with('*')).then_some(name.as_str());
                self.add(
                    place.clone(),
                    target("", "serviceaccounts/token", name),
                    &["create"],
                );
            }
        }
    }

    /// Adds what a connection names: its Secret, and where its certificates stand.
    pub fn connection(&mut self, lease: (&str, &str), spec: &Value) {
        for (at, resource) in [
            ("/credentials", "secrets"),
            ("/caBundle/secret", "secrets"),
            ("/caBundle/configMap", "configmaps"),
            ("/clientCertificate", "secrets"),
        ] {
            let text = |field: &str| spec.pointer(&format!("{at}/{field}"))?.as_str();
            if let (Some(namespace), Some(name)) = (text("namespace"), text("name")) {
                let place = Place::Namespace(namespace.to_owned());
                self.add(place, target("", resource, Some(name)), &["get"]);
                if resource == "secrets" {
                    self.key_of_digests(lease);
                }
            }
        }
    }

    fn add(&mut self, place: Place, target: Target, verbs: &[&'static str]) {
        self.rights.entry((place, target)).or_default().extend(verbs);
    }

    /// The ClusterRole and Roles, and their bindings to a service account.
    pub fn objects(&self, name: &str, (namespace, account): (&str, &str)) -> Vec<Value> {
        let places: BTreeSet<&Place> = self.rights.keys().map(|(place, _)| place).collect();
        let subject = json!({"kind": "ServiceAccount", "namespace": namespace, "name": account});
        let mut objects = Vec::new();
        for place in places {
            let (role, mut metadata) = match place {
                Place::Cluster => ("ClusterRole", json!({})),
                Place::Namespace(namespace) => ("Role", json!({"namespace": namespace})),
            };
            metadata["name"] = json!(name);
            let api_version = "rbac.authorization.k8s.io/v1";
            objects.push(json!({
                "apiVersion": api_version, "kind": role, "metadata": metadata, "rules": self.rules(place),
            }));
            objects.push(json!({
                "apiVersion": api_version, "kind": format!("{role}Binding"), "metadata": metadata,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
                "subjects": [subject],
            }));
        }
        objects
    }

    /// The rules of one place. Resources with the same name and verbs share a rule.
    fn rules(&self, place: &Place) -> Vec<Value> {
        let mut rules: BTreeMap<Same<'_>, Vec<&str>> = BTreeMap::new();
        for ((_, target), verbs) in self.rights.iter().filter(|((at, _), _)| at == place) {
            let verbs = verbs
                .iter()
                .filter(|verb| !self.is_said_already(place, target, verb));
            let verbs: Vec<&str> = verbs.copied().collect();
            if !verbs.is_empty() {
                let same = (target.group.as_str(), target.name.as_deref(), verbs);
                rules.entry(same).or_default().push(&target.resource);
            }
        }
        let rules = rules.into_iter().map(|((group, name, verbs), resources)| {
            let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
            if let Some(name) = name {
                rule["resourceNames"] = json!([name]);
            }
            rule
        });
        rules.collect()
    }

    /// Whether a rule is covered already: by one for the whole cluster, or by one for all objects of the
    /// resource.
    fn is_said_already(&self, place: &Place, target: &Target, verb: &str) -> bool {
        let all = Target {
            name: None,
            ..target.clone()
        };
        let mut broader = vec![(Place::Cluster, target.clone()), (Place::Cluster, all.clone())];
        broader.push((place.clone(), all));
        broader.retain(|(at, what)| at != place || what != target);
        let says = |said: &(Place, Target)| self.rights.get(said).is_some_and(|verbs| verbs.contains(verb));
        broader.iter().any(says)
    }
}

/// Group, name and verbs, which all resources of one rule share.
type Same<'a> = (&'a str, Option<&'a str>, Vec<&'a str>);

impl Served {
    fn on(&self, subresource: &str, name: Option<&str>) -> Target {
        target(&self.group, &format!("{}{subresource}", self.plural), name)
    }
}

fn target(group: &str, resource: &str, name: Option<&str>) -> Target {
    Target {
        group: group.to_owned(),
        resource: resource.to_owned(),
        name: name.map(str::to_owned),
    }
}

async fn served(cluster: &Cluster, kind: &Kind) -> Result<Served> {
    let (plural, namespaced) = cluster
        .served(kind)
        .await
        .map_err(|failure| anyhow!("{}", failure.message))?;
    let (group, _) = kind.api_version.split_once('/').unwrap_or_default();
    Ok(Served {
        group: group.to_owned(),
        plural,
        namespaced,
    })
}

/// The places that a grant reaches: the primary's own namespace, the named namespaces, or all.
fn places(namespaces: Option<&[String]>, own: &[&str], namespaced: bool) -> Vec<Place> {
    let named: Vec<&str> = match namespaces {
        None => own.to_vec(),
        Some(namespaces) => namespaces.iter().map(String::as_str).collect(),
    };
    if !namespaced || named.is_empty() || named.contains(&"*") {
        vec![Place::Cluster]
    } else {
        named
            .into_iter()
            .map(|namespace| Place::Namespace(namespace.to_owned()))
            .collect()
    }
}

/// Whether the policy writes more of a primary than its status: a finalizer or other paths.
fn writes_the_object_itself(manifest: &Manifest) -> bool {
    let beside_status = |path: &String| path != "status" && !path.starts_with("status.");
    manifest.finalizer.is_some() || manifest.writes.iter().any(beside_status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allowed: &Allowed, kind: &str) -> Value {
        let objects = allowed.objects("polity", ("polity-system", "polity"));
        let role = objects.into_iter().find(|object| object["kind"] == kind);
        role.map(|mut role| role["rules"].take()).unwrap_or_default()
    }

    #[test]
    fn a_connection_takes_the_right_to_its_own_secret_and_certificates() {
        let mut allowed = Allowed::default();
        let bundle = json!({"configMap": {"namespace": "trust", "name": "ca"}});
        let spec = json!({
            "credentials": {"namespace": "keys", "name": "aws"}, "caBundle": bundle,
            "clientCertificate": {"namespace": "own", "name": "tls"},
        });
        allowed.connection(("leases", "polity"), &spec);
        let objects = allowed.objects("polity", ("polity-system", "polity"));
        let roles = objects.iter().filter(|object| object["kind"] == "Role");
        let rules: Value = roles
            .map(|role| json!([role["metadata"]["namespace"], role["rules"]]))
            .collect();
        let rule = |resource: &str, name: &str| json!([{"apiGroups": [""], "resources": [resource], "resourceNames": [name], "verbs": ["get"]}]);
        let expected = json!([
            ["keys", rule("secrets", "aws")],
            // The key of the digests of Secrets, which the host makes if it is missing.
            ["leases", [
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
                rule("secrets", "polity-installation")[0],
            ]],
            ["own", rule("secrets", "tls")],
            ["trust", rule("configmaps", "ca")]
        ]);
        assert_eq!(rules, expected);
    }

    #[test]
    fn tokens_are_asked_for_where_the_objects_are_and_of_the_named_accounts() {
        let rules = |account: &str| {
            let mut allowed = Allowed::default();
            allowed.tokens(&["team-a"], &[account.to_owned()]);
            rules(&allowed, "Role")
        };
        let mut rule =
            json!({"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]});
        assert_eq!(rules("web-*"), json!([rule]), "Kubernetes compares no prefixes");
        rule["resourceNames"] = json!(["builder"]);
        assert_eq!(rules("builder"), json!([rule]));
    }

    #[test]
    fn what_is_allowed_for_every_object_is_not_said_again_for_one() {
        let mut allowed = Allowed::default();
        let node = |name| target("", "nodes", name);
        allowed.add(Place::Cluster, node(Some("node-1")), &["get", "patch"]);
        allowed.add(Place::Cluster, node(None), &["get"]);
        let expected = json!([
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"], "resourceNames": ["node-1"]},
        ]);
        assert_eq!(rules(&allowed, "ClusterRole"), expected);
    }

    #[test]
    fn what_is_allowed_everywhere_is_not_said_again_for_a_namespace() {
        let mut allowed = Allowed::default();
        let secrets = || target("", "secrets", None);
        allowed.add(Place::Cluster, secrets(), &["get"]);
        allowed.add(
            Place::Namespace("kube-system".into()),
            secrets(),
            &["get", "create"],
        );
        let expected = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]);
        assert_eq!(rules(&allowed, "Role"), expected);
    }

    #[test]
    fn resources_of_which_the_same_is_allowed_share_a_rule() {
        let mut allowed = Allowed::default();
        for resource in ["pods", "nodes"] {
            allowed.add(Place::Cluster, target("", resource, None), &LOOK);
        }
        let expected = json!([
            {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
        ]);
        assert_eq!(rules(&allowed, "ClusterRole"), expected);
    }
}
