//! The version that is needed now: the next step on the way to the version that a person wants.

use orbiter_api::{Config, Fleet, Member, NoStep, Orb, Release, Stop, UPGRADE, Versions, next_step};
use polity_sdk::cloud::agent::Upgrade;
use serde_json::Value;

/// The package that shows which release of Kubernetes a node has.
pub(crate) const KUBELET: &str = "kubelet";
/// The package with which Kubernetes is upgraded.
const KUBEADM: &str = "kubeadm";

/// The versions that every node needs now.
pub(crate) fn needed(orb: &Orb, config: &Config, fleet: &Fleet) -> Result<Versions, Stop> {
    let mut have = Vec::new();
    for member in &fleet.members {
        have.extend(kubelet(member)?);
    }
    let from = orb
        .status
        .changing
        .as_ref()
        .and_then(|changing| changing.from.as_ref());
    have.extend(from.and_then(|from| from.parse::<Release>().ok()));
    let wanted = orb.kubernetes();
    match next_step(&have, wanted, &config.kubernetes_releases) {
        Ok(version) => Ok(orb.packages(config, version)),
        Err(NoStep::Backwards(has)) => Err(Stop::refuse(
            "DowngradeRefused",
            format!("{wanted} is wanted, but a node has {has}: a minor version never goes back"),
        )),
        Err(NoStep::Unknown(has)) => Err(Stop::refuse(
            "NoPath",
            format!("kubernetesReleases names no release that follows {has} on the way to {wanted}: add one"),
        )),
    }
}

/// The first versions of a machine: the versions that every node needs, but no kubelet that is newer than a control plane.
pub(crate) fn first(orb: &Orb, config: &Config, fleet: &Fleet) -> Result<Versions, Stop> {
    let mut versions = needed(orb, config, fleet)?;
    let release = |version: &String| version.parse::<Release>().ok();
    let control_planes = fleet.members.iter().filter(|member| member.is_control_plane());
    let theirs = control_planes.filter_map(|member| member.metadata.current.get(KUBELET));
    let oldest = theirs
        .filter_map(|version| Some((release(version)?, version)))
        .min();
    if let Some((_, version)) = oldest.filter(|(old, _)| versions.get(KUBELET).and_then(release) > Some(*old))
    {
        versions.extend(config.of_kubernetes(version));
    }
    Ok(versions)
}

/// The annotation that says what kubeadm does on a node that gets these versions: the first control plane that gets
/// them upgrades the cluster. Without kubeadm among them it is removed.
pub(crate) fn upgrade(fleet: &Fleet, member: &Member, needed: &Versions) -> Option<(String, Value)> {
    if !needed.contains_key(KUBEADM) {
        let annotations = &member.node.as_ref()?.metadata.annotations;
        return annotations
            .get(UPGRADE)
            .map(|_| (UPGRADE.to_owned(), Value::Null));
    }
    let mut control_planes = fleet.members.iter().filter(|member| member.is_control_plane());
    let has_it = |member: &Member| member.metadata.current.get(KUBELET) == needed.get(KUBELET);
    let upgrade = if member.is_control_plane() && !control_planes.any(has_it) {
        Upgrade::Apply
    } else {
        Upgrade::Node
    };
    Some((UPGRADE.to_owned(), upgrade.as_str().into()))
}

/// The release of a node's kubelet; `None` until its agent has reported it.
fn kubelet(member: &Member) -> Result<Option<Release>, Stop> {
    let garbage = |version: &String| {
        let node = &member.machine.node_name;
        Stop::refuse(
            "NodeMetadataInvalid",
            format!("node {node}: {version:?} is not a version of {KUBELET}"),
        )
    };
    let version = member.metadata.current.get(KUBELET);
    version
        .map(|version| version.parse().map_err(|_| garbage(version)))
        .transpose()
}
