//! Finds the EBS volumes among persistent volumes. This needs no request.

use polity_driver_sdk::prelude::*;
use serde::Deserialize;

/// The CSI driver for EBS.
const DRIVER: &str = "ebs.csi.aws.com";

/// The part of the specification of a PersistentVolume that the driver reads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    /// A volume of the in-tree plugin, from before CSI.
    aws_elastic_block_store: Option<BlockStore>,
    /// A volume of CSI.
    csi: Option<Csi>,
}

/// A volume of the in-tree plugin.
#[derive(Deserialize)]
struct BlockStore {
    /// `vol-…`, or `aws://ZONE/vol-…`.
    #[serde(rename = "volumeID")]
    volume_id: String,
}

/// A volume of a CSI driver.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Csi {
    driver: String,
    volume_handle: String,
}

/// The arguments.
#[derive(Deserialize)]
struct Arguments {
    volumes: Vec<Volume>,
}

/// Names the volumes.
pub(crate) fn perform(cx: &Context) -> Result<Value, Failure> {
    let arguments: Arguments = cx.read()?;
    let ids: Vec<&str> = arguments.volumes.iter().filter_map(id).collect();
    Ok(json!({"volumeIDs": ids}))
}

/// The id of a volume; `None` if it is not a volume of EBS.
fn id(volume: &Volume) -> Option<&str> {
    match (&volume.aws_elastic_block_store, &volume.csi) {
        (Some(volume), _) => {
            let id = volume.volume_id.strip_prefix("aws://");
            let id = id.map_or(Some(&*volume.volume_id), |rest| {
                rest.rsplit_once('/').map(|(_, id)| id)
            });
            id.filter(|id| id.starts_with("vol-") && !id.contains('/'))
        }
        (None, Some(csi)) => Some(&*csi.volume_handle).filter(|id| csi.driver == DRIVER && !id.is_empty()),
        (None, None) => None,
    }
}
