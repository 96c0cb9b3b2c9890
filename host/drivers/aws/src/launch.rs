//! Turns a specification into the fields of `RunInstances`.

use std::fmt::Display;

use polity_driver_sdk::prelude::*;

use crate::instance::{FIELDS, OF_RUN};
use crate::marks;
use crate::query::Query;
use crate::spec::{
    BlockDevice, CapacityReservation, CpuOptions, MetadataOptions, NetworkInterface, Placement, Spec,
};
use crate::validate::ROOT;

/// The action.
pub(crate) const ACTION: &str = "RunInstances";
/// The kinds of resources that get the marks and the tags of the class.
const TAGGED: [&str; 3] = ["instance", "volume", "network-interface"];
/// The placeholder in the user data for the token with which the machine joins.
const TOKEN: &str = "<<BOOTSTRAP_TOKEN>>";
/// The placeholder in the user data for the name of the machine.
const NAME: &str = "<<MACHINE_NAME>>";

/// The request for one instance. While the create is prepared, only the client token and the mark of the key differ.
pub(crate) fn request(cx: &Context, spec: &Spec, root_device: &str) -> Query {
    let mut query = Query::new(ACTION)
        .field("ImageId", &*spec.ami)
        .field("InstanceType", &*spec.machine_type)
        .field("MinCount", "1")
        .field("MaxCount", "1")
        .field("ClientToken", cx.key())
        .keep(OF_RUN, &FIELDS);
    for (nth, kind) in (1..).zip(TAGGED) {
        tags(&mut query, nth, kind, cx, spec);
    }
    for (nth, disk) in (1..).zip(&spec.block_devices) {
        let is_root = spec.block_devices.len() == 1 || disk.device_name == ROOT;
        let device = if is_root { root_device } else { &disk.device_name };
        volume(&mut query, nth, disk, device);
    }
    for (nth, interface) in spec.network_interfaces.iter().enumerate() {
        network(&mut query, nth, interface);
    }
    rights(&mut query, spec);
    options(&mut query, spec);
    if let Some(data) = user_data(cx) {
        query.put("UserData", data);
    }
    query
}

/// The marks and the tags of the class, for one kind of resource.
fn tags(query: &mut Query, nth: usize, kind: &str, cx: &Context, spec: &Spec) {
    let at = format!("TagSpecification.{nth}");
    query.put(format!("{at}.ResourceType"), kind);
    // The name of the machine is its tag Name. A class of machine-controller-manager may have one, which is not used there.
    let of_class = spec.tags.iter().filter(|(key, _)| *key != marks::NAME);
    let of_class = of_class.map(|(key, value)| (&**key, &**value));
    let all = marks::of(cx, cx.argument("name")).into_iter().chain(of_class);
    for (nth, (key, value)) in (1..).zip(all) {
        query.put(format!("{at}.Tag.{nth}.Key"), key);
        query.put(format!("{at}.Tag.{nth}.Value"), value);
    }
}

/// A disk, as the device of this name.
fn volume(query: &mut Query, nth: usize, disk: &BlockDevice, device: &str) {
    let at = format!("BlockDeviceMapping.{nth}");
    query.put(format!("{at}.DeviceName"), device);
    let mut put = |field: &str, value: Option<String>| query.put_some(&format!("{at}.Ebs.{field}"), value);
    let ebs = &disk.ebs;
    put("VolumeSize", text(&ebs.volume_size));
    put("VolumeType", ebs.volume_type.clone());
    put("Encrypted", text(&ebs.encrypted));
    put("KmsKeyId", ebs.kms_key_id.clone());
    put("SnapshotId", ebs.snapshot_id.clone());
    // In classes, 0 means no value.
    put("Iops", text(&ebs.iops.filter(|iops| *iops > 0)));
    put("Throughput", text(&ebs.throughput));
    put(
        "DeleteOnTermination",
        Some(ebs.delete_on_termination.unwrap_or(true).to_string()),
    );
}

/// A network interface.
fn network(query: &mut Query, nth: usize, interface: &NetworkInterface) {
    let at = format!("NetworkInterface.{}", nth + 1);
    for (nth, group) in (1..).zip(&interface.security_group_ids) {
        query.put(format!("{at}.SecurityGroupId.{nth}"), &**group);
    }
    let mut put = |field: &str, value: Option<String>| query.put_some(&format!("{at}.{field}"), value);
    let index = interface
        .device_index
        .map_or(nth.to_string(), |index| index.to_string());
    put("DeviceIndex", Some(index));
    put("NetworkCardIndex", text(&interface.network_card_index));
    put("SubnetId", Some(interface.subnet_id.clone()));
    put(
        "AssociatePublicIpAddress",
        text(&interface.associate_public_ip_address),
    );
    put(
        "DeleteOnTermination",
        Some(interface.delete_on_termination.unwrap_or(true).to_string()),
    );
    put("Description", interface.description.clone());
    // EC2 takes one of the two. As in `core.go` of machine-controller-manager-provider-aws, prefixes beside addresses follow
    // when the machine is initialised.
    if interface.ipv6_address_count.is_some() {
        put("Ipv6AddressCount", text(&interface.ipv6_address_count));
        put(
            "PrimaryIpv6",
            Some(interface.primary_ipv6.unwrap_or(true).to_string()),
        );
    } else {
        put("Ipv6PrefixCount", text(&interface.ipv6_prefix_count));
    }
}

/// The key pair and the instance profile.
fn rights(query: &mut Query, spec: &Spec) {
    query.put_some("KeyName", filled(&spec.key_name));
    match (&*spec.iam.name, &*spec.iam.arn) {
        ("", "") => {}
        ("", arn) => query.put("IamInstanceProfile.Arn", arn),
        (name, _) => query.put("IamInstanceProfile.Name", name),
    }
}

/// The options of the instance.
fn options(query: &mut Query, spec: &Spec) {
    query.put_some("EbsOptimized", Some("true").filter(|_| spec.ebs_optimized));
    query.put_some("Monitoring.Enabled", Some("true").filter(|_| spec.monitoring));
    if let Some(market) = &spec.instance_market_options {
        query.put("InstanceMarketOptions.MarketType", &*market.market_type);
    } else if let Some(price) = &spec.spot_price {
        query.put("InstanceMarketOptions.MarketType", "spot");
        query.put("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time");
        query.put_some(
            "InstanceMarketOptions.SpotOptions.MaxPrice",
            Some(price).filter(|price| !price.is_empty()),
        );
    }
    spec.capacity_reservation
        .iter()
        .for_each(|of| reservation(query, of));
    spec.instance_metadata_options
        .iter()
        .for_each(|of| metadata(query, of));
    // An account may turn them on for every new instance, and EC2 refuses then what has our marks.
    query.put("MetadataOptions.InstanceMetadataTags", "disabled");
    spec.cpu_options.iter().for_each(|of| processors(query, of));
    spec.placement.iter().for_each(|of| placement(query, of));
}

/// The capacity reservation.
fn reservation(query: &mut Query, of: &CapacityReservation) {
    let mut put =
        |field: &str, value| query.put_some(&format!("CapacityReservationSpecification.{field}"), value);
    put(
        "CapacityReservationPreference",
        filled(&of.capacity_reservation_preference),
    );
    put(
        "CapacityReservationTarget.CapacityReservationId",
        filled(&of.capacity_reservation_id),
    );
    put(
        "CapacityReservationTarget.CapacityReservationResourceGroupArn",
        filled(&of.capacity_reservation_resource_group_arn),
    );
}

/// The metadata service.
fn metadata(query: &mut Query, of: &MetadataOptions) {
    let mut put =
        |field: &str, value: Option<String>| query.put_some(&format!("MetadataOptions.{field}"), value);
    put("HttpEndpoint", filled(&of.http_endpoint));
    put("HttpPutResponseHopLimit", text(&of.http_put_response_hop_limit));
    put("HttpTokens", filled(&of.http_tokens));
    put("HttpProtocolIpv6", filled(&of.http_protocol_ipv6));
}

/// The processors.
fn processors(query: &mut Query, of: &CpuOptions) {
    query.put_some("CpuOptions.CoreCount", of.core_count);
    query.put_some("CpuOptions.ThreadsPerCore", of.threads_per_core);
    query.put_some("CpuOptions.AmdSevSnp", filled(&of.amd_sev_snp));
}

/// The placement.
fn placement(query: &mut Query, of: &Placement) {
    let mut put = |field: &str, value: Option<String>| query.put_some(&format!("Placement.{field}"), value);
    put("GroupId", filled(&of.group_id));
    put("Tenancy", filled(&of.tenancy));
    put("HostId", filled(&of.host_id));
    put("PartitionNumber", text(&of.partition_number));
    put("Affinity", filled(&of.affinity));
}

/// The user data. The driver does not see it: the host puts the name and the token in, and encodes it as base64.
///
/// Source: `userdata.go` of machine-controller-manager, which replaces both placeholders, also as a URL encodes them.
fn user_data(cx: &Context) -> Option<Text> {
    let data = cx.sealed("userData")?.replacing(NAME, "name");
    let data = if cx.has("bootstrapToken") {
        data.replacing(TOKEN, "bootstrapToken")
    } else {
        data
    };
    Some(data.base64())
}

/// A value as text.
fn text(value: &Option<impl Display>) -> Option<String> {
    value.as_ref().map(ToString::to_string)
}

/// A text, unless it is empty. In classes, an empty text means no value.
fn filled(value: &Option<String>) -> Option<String> {
    value.clone().filter(|value| !value.is_empty())
}
