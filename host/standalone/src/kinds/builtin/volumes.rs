//! Volumes, claims and attachments, as far as a drain reads them. Nothing here binds or attaches. A claim and
//! a volume stay `Pending`, and an attachment stays as it is, until somebody writes their status. They do not
//! get the finalizers `kubernetes.io/pv-protection` and `kubernetes.io/pvc-protection`, because the
//! controllers of these are not here.

use serde_json::json;

use super::{Name, open, text, texts};
use crate::kinds::{Kind, Rules};

/// core/v1
pub(super) fn volume() -> Kind {
    Name("", "v1", "PersistentVolume", "persistentvolumes")
        .kind(json!({ "spec": open(), "status": open() }))
        .cluster_scoped()
        .with_status()
        .short("pv")
        .columns(&[
            ("Capacity", "string", ".spec.capacity.storage"),
            ("Access Modes", "string", ".spec.accessModes[*]"),
            ("Reclaim Policy", "string", ".spec.persistentVolumeReclaimPolicy"),
            ("Status", "string", ".status.phase"),
            ("Claim", "string", ".spec.claimRef.name"),
            ("StorageClass", "string", ".spec.storageClassName"),
            ("Reason", "string", ".status.reason"),
        ])
        .rules(Rules::Volume)
}

/// core/v1
pub(super) fn claim() -> Kind {
    Name("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
        .kind(json!({ "spec": open(), "status": open() }))
        .with_status()
        .short("pvc")
        .columns(&[
            ("Status", "string", ".status.phase"),
            ("Volume", "string", ".spec.volumeName"),
            ("Capacity", "string", ".status.capacity.storage"),
            ("Access Modes", "string", ".status.accessModes[*]"),
            ("StorageClass", "string", ".spec.storageClassName"),
        ])
        .rules(Rules::Volume)
}

/// storage.k8s.io/v1. Its spec never changes; its source is one of two.
pub(super) fn attachment() -> Kind {
    let name = json!({ "type": "string", "minLength": 1 });
    let either = |field: &str| json!({ "required": [field] });
    let source = json!({
        "type": "object",
        "properties": { "persistentVolumeName": name, "inlineVolumeSpec": open() },
        "oneOf": [either("persistentVolumeName"), either("inlineVolumeSpec")],
    });
    let spec = json!({
        "type": "object",
        "required": ["attacher", "nodeName", "source"],
        "properties": { "attacher": name, "nodeName": name, "source": source },
    });
    let error = json!({
        "type": "object",
        "nullable": true,
        "properties": {
            "time": { "type": "string", "nullable": true, "format": "date-time" },
            "message": text(),
            "errorCode": { "type": "integer" },
        },
    });
    let status = json!({
        "type": "object",
        "required": ["attached"],
        "properties": {
            "attached": { "type": "boolean" },
            "attachmentMetadata": texts(),
            "attachError": error,
            "detachError": error,
        },
    });
    let mut kind = Name("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments")
        .shaped(&json!({
            "type": "object",
            "required": ["spec"],
            "properties": { "spec": spec, "status": status },
        }))
        .cluster_scoped()
        .with_status()
        .columns(&[
            ("Attacher", "string", ".spec.attacher"),
            ("PV", "string", ".spec.source.persistentVolumeName"),
            ("Node", "string", ".spec.nodeName"),
            ("Attached", "boolean", ".status.attached"),
        ])
        .rules(Rules::Attachment);
    for version in &mut kind.versions {
        version.columns[0].format = "name".to_owned();
    }
    kind
}
