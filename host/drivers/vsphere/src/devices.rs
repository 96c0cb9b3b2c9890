//! The devices of a VM or template.

use polity_driver_sdk::prelude::*;

use crate::moid::plain;
use crate::properties::{Object, Property};

/// The devices, with the fields of disks and network cards that the driver needs.
pub(crate) const DEVICES: Property = Property::of(
    "config.hardware.device",
    &[
        "VirtualDevice.@type",
        "VirtualDevice.key",
        "VirtualDevice.macAddress",
        "VirtualDevice.addressType",
        "VirtualDevice.capacityInKB",
        "VirtualDevice.controllerKey",
        "VirtualDevice.unitNumber",
        "VirtualDevice.connectable.connected",
        "VirtualDevice.backing.@type",
        "VirtualDevice.backing.fileName",
        "VirtualDevice.backing.diskMode",
        "VirtualDevice.backing.thinProvisioned",
        "VirtualDevice.backing.deviceName",
        "VirtualDevice.backing.port.portgroupKey",
    ],
);

/// A device.
pub(crate) struct Device<'a>(&'a Value);

impl<'a> Device<'a> {
    /// The type: `VirtualDisk`.
    pub(crate) fn kind(&self) -> &'a str {
        plain(self.0.get("@type").and_then(Value::as_str).unwrap_or(""))
    }

    /// The type of the backing: what the device is connected to or stored in.
    pub(crate) fn backing(&self) -> &'a str {
        let backing = tree::first(self.0, "backing");
        plain(
            backing
                .and_then(|backing| backing["@type"].as_str())
                .unwrap_or(""),
        )
    }

    /// A text of the device, by its path.
    pub(crate) fn text(&self, path: &str) -> &'a str {
        tree::text(self.0, path)
    }

    /// A number of the device, by its path.
    pub(crate) fn number(&self, path: &str) -> Option<i64> {
        self.text(path).parse().ok()
    }

    /// Whether the device is a network card. There are many types of network cards, but no other device has an address.
    pub(crate) fn is_card(&self) -> bool {
        ["macAddress", "addressType"]
            .iter()
            .any(|path| !self.text(path).is_empty())
    }

    /// Whether the device is a disk.
    pub(crate) fn is_disk(&self) -> bool {
        self.kind() == "VirtualDisk"
    }
}

/// The devices of a VM whose [`DEVICES`] were read. Every VM has devices, so none is a failure.
pub(crate) fn read(object: &Object) -> Result<Vec<Device<'_>>, Failure> {
    let devices = object.value(&DEVICES)?.ok_or_else(|| {
        let message = format!("vCenter does not show the devices of VM {} now", object.of.id);
        failure(Code::Unavailable, message)
    })?;
    Ok(tree::all(devices, "VirtualDevice")
        .into_iter()
        .map(Device)
        .collect())
}
