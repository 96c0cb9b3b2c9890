//! Persistent volumes and where they are attached.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Pod;
use crate::contract::Failure;
use crate::join::join_all;
use crate::kube::node::Node;
use crate::{Context, Found, Kind, Metadata, cluster};

/// A PersistentVolumeClaim, with the fields that a drain reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Its name.
    pub metadata: Metadata,
    /// The specification, with the volume.
    #[serde(default)]
    pub spec: ClaimSpec,
}

/// The volume to which a claim is bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    /// The persistent volume.
    pub volume_name: String,
}

impl Kind for Claim {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "PersistentVolumeClaim";
    const PROJECTION: &'static [&'static str] = &["spec.volumeName"];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// A PersistentVolume. Which fields its specification has depends on the driver of the volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// Its name.
    pub metadata: Metadata,
    /// The specification.
    #[serde(default)]
    pub spec: Value,
}

impl Kind for Volume {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "PersistentVolume";
    const NAMESPACED: bool = false;
    const PROJECTION: &'static [&'static str] = &["spec"];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// A VolumeAttachment: a volume that is attached to a node, or is to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// Its name.
    pub metadata: Metadata,
    /// The volume and the node.
    #[serde(default)]
    pub spec: AttachmentSpec,
    /// Whether it is attached.
    #[serde(default)]
    pub status: AttachmentStatus,
}

/// The volume and the node of an attachment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSpec {
    /// The node.
    pub node_name: String,
    /// The volume.
    pub source: AttachmentSource,
}

/// The volume of an attachment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSource {
    /// The persistent volume; `None` for an inline volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_name: Option<String>,
}

/// Whether a volume is attached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachmentStatus {
    /// Whether the volume is attached.
    pub attached: bool,
}

impl Kind for Attachment {
    const API_VERSION: &'static str = "storage.k8s.io/v1";
    const KIND: &'static str = "VolumeAttachment";
    const NAMESPACED: bool = false;
    const PROJECTION: &'static [&'static str] = &[
        "metadata.deletionTimestamp",
        "spec.nodeName",
        "spec.source",
        "status.attached",
    ];

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl Attachment {
    /// Whether it attaches this volume.
    pub fn is_for(&self, volume: &str) -> bool {
        self.spec.source.persistent_volume_name.as_deref() == Some(volume)
    }

    /// Whether it attaches this volume to this node.
    pub fn holds(&self, volume: &str, node: &str) -> bool {
        self.spec.node_name == node && self.is_for(volume)
    }
}

/// Deletes the attachments of a node whose kubelet is not expected to release its volumes. Returns how many
/// it deleted: zero if there are none, or all are being deleted.
pub async fn detach_volumes<T: Kind, C>(cx: &Context<T, C>, node: &Node) -> Result<usize, Failure> {
    if node.status.volumes_attached.is_empty() {
        return Ok(0);
    }
    let mut live = attachments_of(cx, &node.metadata.name).await?;
    live.retain(|attachment| !attachment.metadata.deleting());
    let deletions = live
        .iter()
        .map(|attachment| cx.act(cluster::delete(attachment).any_version()));
    for deleted in join_all(deletions).await {
        deleted.found()?;
    }
    Ok(live.len())
}

/// The specifications of these persistent volumes, as far as they exist.
pub async fn specifications<T: Kind, C>(
    cx: &Context<T, C>,
    volumes: &[String],
) -> Result<Vec<Value>, Failure> {
    let volumes = volumes.iter().map(|name| cx.ask(cluster::object::<Volume>(name)));
    let mut specifications = Vec::new();
    for volume in join_all(volumes).await {
        specifications.extend(volume.found()?.map(|volume| volume.spec));
    }
    Ok(specifications)
}

/// The attachments of a node.
async fn attachments_of<T: Kind, C>(cx: &Context<T, C>, node: &str) -> Result<Vec<Attachment>, Failure> {
    let mut all = cx.ask(cluster::objects::<Attachment>()).await?;
    all.retain(|attachment| attachment.spec.node_name == node);
    Ok(all)
}

/// The pod's volumes that are attached to the node and that none of these pods shares. A volume that is not
/// attached, such as NFS, needs no waiting.
pub(super) async fn attached_for<T: Kind, C>(
    cx: &Context<T, C>,
    node: &Node,
    pod: &Pod,
    pods: &[Pod],
) -> Result<Vec<String>, Failure> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let claims = pod
        .own_claims(pods)
        .map(|name| cx.ask(cluster::object::<Claim>(name).namespace(namespace)));
    let mut volumes = Vec::new();
    for claim in join_all(claims).await {
        volumes.extend(claim.found()?.map(|claim| claim.spec.volume_name));
    }
    let attachments = attachments_of(cx, &node.metadata.name).await?;
    volumes.retain(|volume| attachments.iter().any(|attachment| attachment.is_for(volume)));
    Ok(volumes)
}
