//! Checks a specification beyond its shape. EC2 itself checks the rest.

use polity_driver_sdk::prelude::*;

use crate::marks;
use crate::spec::{BlockDevice, Iam, NetworkInterface, Spec, invalid};

/// The name of the root device in classes, whatever its name in the image is.
pub(crate) const ROOT: &str = "/root";

/// Checks the specification of a machine to create.
pub(crate) fn check(spec: &Spec) -> Result<(), Failure> {
    for (path, value) in [("ami", &spec.ami), ("machineType", &spec.machine_type)] {
        present(path, value)?;
    }
    profile(&spec.iam)?;
    if let Some(market) = &spec.instance_market_options {
        present("instanceMarketOptions.marketType", &market.market_type)?;
    }
    disks(&spec.block_devices)?;
    for (nth, interface) in spec.network_interfaces.iter().enumerate() {
        network(&format!("networkInterfaces[{nth}]"), interface)?;
    }
    tags(spec)
}

/// Checks that a text is not empty.
fn present(path: &str, value: &str) -> Result<(), Failure> {
    match value {
        "" => Err(invalid(path, "it must not be empty")),
        _ => Ok(()),
    }
}

/// Checks that the instance profile has one name.
fn profile(iam: &Iam) -> Result<(), Failure> {
    if !iam.name.is_empty() && !iam.arn.is_empty() {
        Err(invalid(
            "iam",
            "it has a name and an arn: only one of them may be given",
        ))
    } else {
        Ok(())
    }
}

/// Checks that no disk is named twice, and that one of several disks is the root device.
fn disks(disks: &[BlockDevice]) -> Result<(), Failure> {
    for (nth, disk) in disks.iter().enumerate() {
        let path = format!("blockDevices[{nth}]");
        if disks.len() > 1 {
            present(&format!("{path}.deviceName"), &disk.device_name)?;
        }
        if disks[..nth]
            .iter()
            .any(|other| other.device_name == disk.device_name)
        {
            let what = format!(
                "{:?} is the name of two disks: each needs another name",
                disk.device_name
            );
            return Err(invalid(&format!("{path}.deviceName"), what));
        }
        if !disk.no_device.is_empty() {
            let what = "it cannot suppress a disk of the image: make an image without that disk";
            return Err(invalid(&format!("{path}.noDevice"), what));
        }
        if !disk.virtual_name.is_empty() {
            let what = "it is for instance stores of the types m3 and older: newer types show their disks without it";
            return Err(invalid(&format!("{path}.virtualName"), what));
        }
        if disk.ebs.volume_size == Some(0) {
            return Err(invalid(
                &format!("{path}.ebs.volumeSize"),
                "it must be at least 1 GiB",
            ));
        }
    }
    if disks.len() > 1 && disks.iter().all(|disk| disk.device_name != ROOT) {
        Err(invalid(
            "blockDevices",
            "one of several disks must have the deviceName \"/root\"",
        ))
    } else {
        Ok(())
    }
}

/// Checks that an interface has a subnet, and no empty security group.
fn network(path: &str, interface: &NetworkInterface) -> Result<(), Failure> {
    present(&format!("{path}.subnetID"), &interface.subnet_id)?;
    for (nth, group) in interface.security_group_ids.iter().enumerate() {
        present(&format!("{path}.securityGroupIDs[{nth}]"), group)?;
    }
    match interface.interface_type.as_deref() {
        None | Some("" | "interface") => Ok(()),
        Some(other) => {
            let what = format!(
                "{other:?} is not supported: EC2 lets nobody switch the source/destination check of such an interface off"
            );
            Err(invalid(&format!("{path}.interfaceType"), what))
        }
    }
}

/// Checks that no tag of the class is reserved, and that the metadata service need not show tags. A key that it shows has no
/// slash: EC2 refuses the whole instance ("Work with instance tags in instance metadata"). Our marks have one.
fn tags(spec: &Spec) -> Result<(), Failure> {
    let options = spec.instance_metadata_options.as_ref();
    let shown = options.and_then(|options| options.instance_metadata_tags.as_deref());
    if !matches!(shown, None | Some("" | "disabled")) {
        let keys = spec.tags.keys().map(String::as_str).chain([marks::OWNER]);
        let with_slash: Vec<&str> = keys.filter(|key| key.contains('/')).collect();
        let what = format!(
            "the metadata service cannot show tags with a slash in their key: set it to \"disabled\" ({})",
            with_slash.join(", ")
        );
        return Err(invalid("instanceMetadataOptions.instanceMetadataTags", what));
    }
    match spec.tags.keys().find(|tag| marks::is_reserved(tag)) {
        Some(tag) => Err(invalid(
            &format!("tags.{tag}"),
            "a class must not set this tag, because it is reserved: remove it",
        )),
        None => Ok(()),
    }
}
