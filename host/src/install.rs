//! Puts objects and definitions of kinds into a cluster. A definition that belongs to somebody else is never
//! replaced.

use anyhow::{Result, anyhow};
use polity_cluster::{Cluster, Stands};
use polity_core::contract::{Failure, Kind};
use serde_json::{Value, json};

use crate::crds::{self, Brought};

/// Where manifests are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the embedded API. The host keeps its definitions up to date.
    Standalone,
    /// To a cluster. Its definitions belong to somebody, so they stay as they are unless the person who runs
    /// the host says otherwise.
    Cluster {
        /// Whether existing definitions are replaced by the given ones.
        replace_crds: bool,
    },
}

impl Target {
    fn replaces_crds(self) -> bool {
        self != Target::Cluster { replace_crds: false }
    }
}

/// Installs a definition that is the host's own or that the person who runs the host gave.
pub(crate) async fn install_own(
    cluster: &Cluster,
    definition: &Value,
    target: Target,
    report: &(dyn Fn(&str) + Sync),
) -> Result<()> {
    let merged = |standing: &Value| {
        target.replaces_crds().then(|| {
            let mut definition = definition.clone();
            if crds::installed_for(standing).is_some()
                && let Some(Value::Object(metadata)) = definition.get_mut("metadata")
            {
                // The definition now belongs to the person who gave it, so the mark of a binding is removed:
                // no policy may change it.
                let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
                if let Some(annotations) = annotations.as_object_mut() {
                    annotations.entry(crds::BINDING).or_insert(Value::Null);
                }
            }
            definition
        })
    };
    let stands = cluster.apply_where(definition, merged).await;
    let stands = stands.map_err(|failure| cannot_apply(definition, &failure))?;
    if let Stands::Kept(standing) = stands
        && !crds::says_all(&standing, definition)
    {
        report(&format!(
            "CustomResourceDefinition {}: the cluster has another one, which stays as it is; replace it with \
             --replace-crds",
            name(definition)
        ));
    }
    let served = cluster.wait_established(name(definition)).await;
    served.map_err(|f| anyhow!("{f}"))
}

/// Installs a definition that a policy carries, if the kind has none or its definition was installed for the
/// same binding.
pub(crate) async fn install(cluster: &Cluster, brought: &Brought, target: Target) -> Result<(), String> {
    let definition = &brought.definition;
    let crd = name(definition);
    serves_nothing_else(cluster, definition).await?;
    let own = |standing: &Value| crds::installed_for(standing) == Some(&brought.binding);
    let merged = |standing: &Value| (own(standing) && target.replaces_crds()).then(|| definition.clone());
    let stands = cluster.apply_where(definition, merged).await;
    if let Stands::Kept(standing) = stands.map_err(|failure| format!("{crd}: {failure}"))?
        && !crds::says_all(&standing["spec"], &definition["spec"])
    {
        let binding = &brought.binding;
        return Err(match crds::installed_for(&standing) {
            Some(owner) if owner == binding => format!(
                "{crd}: the cluster has an older definition, which stays as it is; replace it with `polity run --replace-crds`"
            ),
            Some(owner) => format!(
                "{crd}: the cluster has another definition, installed for the binding {owner:?}, which stays as it is; \
                 use policies that agree on the definition in both bindings"
            ),
            None => format!(
                "{crd}: the cluster has another definition, which this host did not install and which stays as it is; to \
                 hand it over to this binding, annotate it with {}={binding}",
                crds::BINDING
            ),
        });
    }
    let served = cluster.wait_established(crd).await;
    served.map_err(|failure| format!("{crd}: {failure}"))
}

/// Refuses a definition if another definition serves the kind already: the API server would not establish it,
/// or would serve it in place of the first.
async fn serves_nothing_else(cluster: &Cluster, definition: &Value) -> Result<(), String> {
    let (group, kind) = crds::defined(definition);
    let plural = &definition["spec"]["names"]["plural"];
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    for version in versions.filter_map(|version| version["name"].as_str()) {
        let kind = Kind {
            api_version: format!("{group}/{version}"),
            kind: kind.clone(),
        };
        if let Ok((served, _)) = cluster.served(&kind).await
            && *plural != *served
        {
            return Err(format!(
                "{}: {} is served already, by the definition {served}.{group}",
                name(definition),
                kind.kind
            ));
        }
    }
    Ok(())
}

/// Applies an object that the person who runs the host gave.
#[cfg(feature = "sim")]
pub(crate) async fn apply_one(
    cluster: &Cluster,
    object: &Value,
    target: Target,
    report: &(dyn Fn(&str) + Sync),
) -> Result<()> {
    if crds::is_crd(object) {
        install_own(cluster, object, target, report).await
    } else {
        apply(cluster, object).await
    }
}

/// Applies an object that is not a definition.
pub(crate) async fn apply(cluster: &Cluster, object: &Value) -> Result<()> {
    let applied = cluster.apply(object).await;
    applied
        .map(|_| ())
        .map_err(|failure| cannot_apply(object, &failure))
}

/// The error for an object that the API server refuses.
pub(crate) fn cannot_apply(object: &Value, failure: &Failure) -> anyhow::Error {
    let kind = object["kind"].as_str().unwrap_or_default();
    anyhow!("{failure}").context(format!("cannot apply {kind} {}", name(object)))
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
