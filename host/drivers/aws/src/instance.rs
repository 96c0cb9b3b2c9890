//! An instance as EC2 shows it.

use polity_driver_sdk::Effect;
use polity_driver_sdk::prelude::*;

use crate::error;
use crate::interfaces;
use crate::marks;
use crate::provider_id::{self, ProviderId};

/// The path of the instances in an answer. `RunInstances` answers one reservation, `DescribeInstances` a list of
/// reservations.
pub(crate) const OF_RUN: &str = "instancesSet.item.";
/// The path of the instances in an answer of `DescribeInstances`.
pub(crate) const OF_DESCRIBE: &str = "reservationSet.item.instancesSet.item.";
/// The fields of an instance that are kept: all that the driver needs. Its user data is not part of these answers.
pub(crate) const FIELDS: [&str; 11] = [
    "instanceId",
    "clientToken",
    "instanceState.name",
    "placement.availabilityZone",
    "privateDnsName",
    "sourceDestCheck",
    "networkInterfaceSet.item.networkInterfaceId",
    "networkInterfaceSet.item.attachment.deviceIndex",
    "networkInterfaceSet.item.ipv6PrefixSet.item.ipv6Prefix",
    "tagSet.item.key",
    "tagSet.item.value",
];
/// The states of an instance that exists. The other states are `shutting-down` and `terminated`; no instance leaves them.
pub(crate) const LIVE: [&str; 4] = ["pending", "running", "stopping", "stopped"];
/// The states of an instance that is gone, or that is being terminated.
const GONE: [&str; 2] = ["shutting-down", "terminated"];

/// An instance: a row of an answer that has the fields of every instance.
#[derive(Clone, Copy)]
pub(crate) struct Instance<'a> {
    row: &'a Value,
}

impl<'a> Instance<'a> {
    /// The instances at a path of an answer. If one row cannot be read, the whole answer is unreadable: an incomplete list
    /// must not count as a complete one.
    pub(crate) fn all(
        root: &'a Value,
        path: &str,
        action: &str,
        effect: Effect,
    ) -> Result<Vec<Self>, Failure> {
        let path = path.trim_end_matches('.').replace('.', "/");
        let rows = tree::all(root, &path);
        rows.into_iter()
            .map(|row| Self::read(row, action, effect))
            .collect()
    }

    /// A row, if it has an id, a state and, as long as it exists, a zone.
    fn read(row: &'a Value, action: &str, effect: Effect) -> Result<Self, Failure> {
        let instance = Instance { row };
        let (id, state) = (instance.id(), instance.state());
        if !provider_id::is_instance(id) {
            return Err(error::unreadable(action, "an instance without an id", effect));
        }
        if !LIVE.contains(&state) && !GONE.contains(&state) {
            return Err(error::unreadable(
                action,
                &format!("{id} without a known state"),
                effect,
            ));
        }
        // EC2 removes the fields of a terminated instance one after the other, and the driver needs none of them.
        if !instance.is_gone() && !provider_id::is_zone(instance.zone()) {
            return Err(error::unreadable(
                action,
                &format!("{id} without an availability zone"),
                effect,
            ));
        }
        Ok(instance)
    }

    /// The id: `i-0123456789abcdef0`.
    pub(crate) fn id(self) -> &'a str {
        tree::text(self.row, "instanceId")
    }

    /// The availability zone: `eu-central-1a`.
    fn zone(self) -> &'a str {
        tree::text(self.row, "placement/availabilityZone")
    }

    /// The state: one of [`LIVE`] or [`GONE`].
    fn state(self) -> &'a str {
        tree::text(self.row, "instanceState/name")
    }

    /// Whether the instance is gone, or is being terminated.
    pub(crate) fn is_gone(self) -> bool {
        GONE.contains(&self.state())
    }

    /// The client token of the request that created the instance.
    pub(crate) fn client_token(self) -> &'a str {
        tree::text(self.row, "clientToken")
    }

    /// Whether the source/destination check is on: the instance then drops packets that are neither from it nor for it.
    /// `None` if the answer does not say.
    pub(crate) fn source_dest_check(self) -> Option<bool> {
        match tree::text(self.row, "sourceDestCheck") {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The number of network interfaces of the instance.
    pub(crate) fn interfaces(self) -> usize {
        tree::all(self.row, "networkInterfaceSet/item").len()
    }

    /// Whether the interface with this device index has at least so many IPv6 prefixes.
    pub(crate) fn has_prefixes(self, index: u32, count: usize) -> bool {
        let mut interfaces = tree::all(self.row, "networkInterfaceSet/item").into_iter();
        interfaces.any(|row| interfaces::index(row) == Some(index) && interfaces::prefixes(row) >= count)
    }

    /// The value of a tag; `None` if the instance has no such tag.
    pub(crate) fn tag(self, key: &str) -> Option<&'a str> {
        marks::tag(self.row, key)
    }

    /// Whether the instance carries the marks of the operation's owner and tenant.
    pub(crate) fn is_of(self, cx: &Context) -> bool {
        self.owned(cx).is_ok()
    }

    /// The id of the instance as [`Owned`], if its marks name the operation's owner and tenant.
    pub(crate) fn owned(self, cx: &Context) -> Result<Owned<'a>, Failure> {
        marks::owned(cx, self.id(), self.row)
    }

    /// The id of the instance as [`Owned`], if its marks name the operation's tenant and the gone owner in its arguments.
    pub(crate) fn orphaned(self, cx: &Context) -> Result<Owned<'a>, Failure> {
        marks::orphaned(cx, self.id(), self.row)
    }

    /// The provider's id.
    pub(crate) fn provider_id(self) -> ProviderId<'a> {
        ProviderId {
            zone: self.zone(),
            instance: self.id(),
        }
    }

    /// The machine in an answer: its provider ID, and the name of its node.
    pub(crate) fn machine(self) -> Value {
        let mut machine = json!({"providerID": self.provider_id().to_string()});
        let node = tree::text(self.row, "privateDnsName");
        if !node.is_empty() {
            machine["nodeName"] = node.into();
        }
        machine
    }

    /// The answer of a create. It contains nothing that changes later, so a resolved create has the same answer.
    pub(crate) fn created(self) -> Value {
        let mut machine = self.machine();
        machine["lastKnownState"] = format!("made as {}", self.id()).into();
        machine
    }
}
