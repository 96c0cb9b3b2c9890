//! The `providerSpec` of a class, which describes its machines. It has the shape of the `AWSProviderSpec` of
//! machine-controller-manager-provider-aws.
//!
//! Classes of that project can be used as they are, unless they use a field that this driver does not have. The driver
//! refuses such a field, because a machine that silently lacks something is worse than no machine.

use std::collections::BTreeMap;

use polity_driver_sdk::prelude::*;
use serde::Deserialize;

use crate::validate;

/// The specification of a class's machines.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Spec {
    /// The version of the shape. The driver does not need it.
    pub(crate) api_version: String,
    /// The image: `ami-…`.
    pub(crate) ami: String,
    /// The type of the instance: `m5.large`.
    pub(crate) machine_type: String,
    /// The region. It must be the region of the connection.
    pub(crate) region: String,
    /// The key pair for SSH.
    pub(crate) key_name: Option<String>,
    /// The disks. If there are none, the image decides.
    pub(crate) block_devices: Vec<BlockDevice>,
    /// The role of the machine.
    pub(crate) iam: Iam,
    /// The network interfaces. If there are none, the instance is in the default subnet.
    pub(crate) network_interfaces: Vec<NetworkInterface>,
    /// `false` switches the source/destination check off. The default is true.
    pub(crate) src_and_dst_checks_enabled: Option<bool>,
    /// Tags of the instance, its volumes and its network interfaces.
    pub(crate) tags: BTreeMap<String, String>,
    /// How the instance is bought. It comes before `spot_price`.
    pub(crate) instance_market_options: Option<MarketOptions>,
    /// Makes the instance a spot instance with this maximum price; an empty text sets no maximum.
    pub(crate) spot_price: Option<String>,
    /// Whether the instance has dedicated bandwidth for its volumes.
    pub(crate) ebs_optimized: bool,
    /// Whether EC2 sends metrics each minute.
    pub(crate) monitoring: bool,
    /// The reserved capacity to use.
    pub(crate) capacity_reservation: Option<CapacityReservation>,
    /// The metadata service of the instance.
    pub(crate) instance_metadata_options: Option<MetadataOptions>,
    /// The processors.
    pub(crate) cpu_options: Option<CpuOptions>,
    /// Where EC2 places the instance.
    pub(crate) placement: Option<Placement>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct BlockDevice {
    /// The device, such as `/dev/sdf`. `/root` is the root device of the image. A single disk is always the root device.
    pub(crate) device_name: String,
    /// The volume.
    pub(crate) ebs: Ebs,
    /// Not supported: see [`validate`].
    pub(crate) no_device: String,
    /// Not supported: see [`validate`].
    pub(crate) virtual_name: String,
}

/// How an instance is bought.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct MarketOptions {
    /// `spot`, `capacity-block` or `interruptible-capacity-reservation`.
    pub(crate) market_type: String,
}

/// A volume of EBS.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Ebs {
    /// The size in GiB.
    pub(crate) volume_size: Option<u32>,
    pub(crate) volume_type: Option<String>,
    pub(crate) encrypted: Option<bool>,
    #[serde(rename = "kmsKeyID")]
    pub(crate) kms_key_id: Option<String>,
    #[serde(rename = "snapshotID")]
    pub(crate) snapshot_id: Option<String>,
    pub(crate) iops: Option<u32>,
    /// The throughput in MiB a second.
    pub(crate) throughput: Option<u32>,
    /// The default is true.
    pub(crate) delete_on_termination: Option<bool>,
}

/// An instance profile, by one of its two names.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Iam {
    pub(crate) name: String,
    pub(crate) arn: String,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct NetworkInterface {
    #[serde(rename = "subnetID")]
    pub(crate) subnet_id: String,
    #[serde(rename = "securityGroupIDs")]
    pub(crate) security_group_ids: Vec<String>,
    #[serde(rename = "associatePublicIPAddress")]
    pub(crate) associate_public_ip_address: Option<bool>,
    /// The default is true.
    pub(crate) delete_on_termination: Option<bool>,
    pub(crate) description: Option<String>,
    /// How many IPv6 addresses the interface gets when the instance is launched.
    pub(crate) ipv6_address_count: Option<u32>,
    /// How many IPv6 prefixes it gets: at the launch, or with addresses beside them when the machine is initialised.
    pub(crate) ipv6_prefix_count: Option<u32>,
    /// Whether the first IPv6 address is the primary one. The default is true.
    pub(crate) primary_ipv6: Option<bool>,
    /// The default is the place in the list.
    pub(crate) device_index: Option<u32>,
    pub(crate) network_card_index: Option<u32>,
    /// `interface`, which is the default. Others are not supported: see [`validate`].
    pub(crate) interface_type: Option<String>,
}

/// Reserved capacity: a preference, or a certain reservation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct CapacityReservation {
    pub(crate) capacity_reservation_preference: Option<String>,
    pub(crate) capacity_reservation_id: Option<String>,
    pub(crate) capacity_reservation_resource_group_arn: Option<String>,
}

/// The metadata service of the instance.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct MetadataOptions {
    pub(crate) http_endpoint: Option<String>,
    pub(crate) http_put_response_hop_limit: Option<u32>,
    pub(crate) http_tokens: Option<String>,
    pub(crate) http_protocol_ipv6: Option<String>,
    /// Whether the service shows the tags of the instance. It cannot: see [`validate`].
    pub(crate) instance_metadata_tags: Option<String>,
}

/// The processors.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct CpuOptions {
    pub(crate) core_count: Option<u32>,
    pub(crate) threads_per_core: Option<u32>,
    pub(crate) amd_sev_snp: Option<String>,
}

/// Where EC2 places the instance.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Placement {
    pub(crate) group_id: Option<String>,
    pub(crate) tenancy: Option<String>,
    pub(crate) host_id: Option<String>,
    pub(crate) partition_number: Option<u32>,
    pub(crate) affinity: Option<String>,
}

impl Spec {
    /// The complete specification of a machine to create.
    pub(crate) fn complete(cx: &Context) -> Result<Self, Failure> {
        let spec = Self::given(cx)?.ok_or_else(|| {
            invalid(
                "",
                "the field is missing: a machine needs an ami and a machineType",
            )
        })?;
        validate::check(&spec)?;
        Ok(spec)
    }

    /// The specification among the arguments, if there is one.
    pub(crate) fn given(cx: &Context) -> Result<Option<Self>, Failure> {
        if !cx.has("providerSpec") {
            return Ok(None);
        }
        let given = &cx.arguments()["providerSpec"];
        let spec = serde_path_to_error::deserialize(given);
        spec.map(Some).map_err(|e| {
            let path = e.path().to_string();
            invalid(if path == "." { "" } else { &path }, e.inner())
        })
    }

    /// The device index of each interface that gets IPv6 prefixes when the machine is initialised, and their number: those beside
    /// addresses, because a launch takes one of the two.
    pub(crate) fn later_prefixes(&self) -> Vec<(u32, u32)> {
        let interfaces = (0..).zip(&self.network_interfaces);
        let later = interfaces.filter(|(_, interface)| interface.ipv6_address_count.is_some());
        later
            .filter_map(|(nth, interface)| {
                let index = interface.device_index.unwrap_or(nth);
                Some((index, interface.ipv6_prefix_count.filter(|count| *count > 0)?))
            })
            .collect()
    }

    /// Whether the source/destination check of the machine must be off. That is so only if the class says it.
    ///
    /// Source: `pkg/aws/core.go` and `pkg/aws/apis/aws_provider_spec.go` of machine-controller-manager-provider-aws.
    pub(crate) fn drops_source_dest_check(&self) -> bool {
        self.src_and_dst_checks_enabled == Some(false)
    }
}

/// A failure that names the field.
pub(crate) fn invalid(path: &str, what: impl std::fmt::Display) -> Failure {
    let dot = if path.is_empty() { "" } else { "." };
    failure(Code::InvalidArgument, format!("providerSpec{dot}{path}: {what}"))
}
