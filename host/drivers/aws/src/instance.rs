//! An instance as EC2 shows it.

use polity_driver_sdk::Effect;
use polity_driver_sdk::prelude::*;

use crate::error;
use crate::marks;
use crate::provider_id::{self, ProviderId};

/// Where the instances of an answer are: `RunInstances` answers one reservation, `DescribeInstances` a list of them.
pub(crate) const OF_RUN: &str = "instancesSet.item.";
/// The same for `DescribeInstances`.
pub(crate) const OF_DESCRIBE: &str = "reservationSet.item.instancesSet.item.";
/// What is kept of an instance. Its user data is not part of these answers, and nothing else is needed.
pub(crate) const FIELDS: [&str; 9] = [
    "instanceId",
    "clientToken",
    "instanceState.name",
    "placement.availabilityZone",
    "privateDnsName",
    "sourceDestCheck",
    "networkInterfaceSet.item.networkInterfaceId",
    "tagSet.item.key",
    "tagSet.item.value",
];
/// The states of an instance that exists. The others are `shutting-down` and `terminated`; none comes back from them.
pub(crate) const LIVE: [&str; 4] = ["pending", "running", "stopping", "stopped"];
/// The states of an instance that is gone or goes.
const GONE: [&str; 2] = ["shutting-down", "terminated"];

/// An instance: a row of an answer that has what every instance has.
#[derive(Clone, Copy)]
pub(crate) struct Instance<'a> {
    row: &'a Value,
}

impl<'a> Instance<'a> {
    /// The instances at a path of an answer. A row that cannot be read makes the answer unreadable: a look that
    /// leaves something out must not say what is there.
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
        // What is gone loses its parts one after the other, and nobody needs them.
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

    /// Whether it is gone, or goes for good.
    pub(crate) fn is_gone(self) -> bool {
        GONE.contains(&self.state())
    }

    /// The token of the request that made it.
    pub(crate) fn client_token(self) -> &'a str {
        tree::text(self.row, "clientToken")
    }

    /// Whether it drops what is neither from nor for it. `None` if the answer does not say.
    pub(crate) fn source_dest_check(self) -> Option<bool> {
        match tree::text(self.row, "sourceDestCheck") {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The number of its network interfaces.
    pub(crate) fn interfaces(self) -> usize {
        tree::all(self.row, "networkInterfaceSet/item").len()
    }

    /// The value of a tag; `None` if it has no such tag.
    pub(crate) fn tag(self, key: &str) -> Option<&'a str> {
        marks::tag(self.row, key)
    }

    /// Whether it carries the marks of the operation's owner and tenant.
    pub(crate) fn is_of(self, cx: &Context) -> bool {
        self.owned(cx).is_ok()
    }

    /// Its id as one that may be changed, if its marks are those of the operation's owner and tenant.
    pub(crate) fn owned(self, cx: &Context) -> Result<Owned<'a>, Failure> {
        marks::owned(cx, self.id(), self.row)
    }

    /// The provider's id.
    pub(crate) fn provider_id(self) -> ProviderId<'a> {
        ProviderId {
            zone: self.zone(),
            instance: self.id(),
        }
    }

    /// The machine as an answer names it: its id, and the name with which its node joins.
    pub(crate) fn machine(self) -> Value {
        let mut machine = json!({"providerID": self.provider_id().to_string()});
        let node = tree::text(self.row, "privateDnsName");
        if !node.is_empty() {
            machine["nodeName"] = node.into();
        }
        machine
    }

    /// What a create answers. It says nothing that changes, so a resolved create answers the same.
    pub(crate) fn created(self) -> Value {
        let mut machine = self.machine();
        machine["lastKnownState"] = format!("made as {}", self.id()).into();
        machine
    }
}
