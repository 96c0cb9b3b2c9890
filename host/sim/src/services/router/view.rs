//! The state of routers that only a simulation can show.

use serde_json::Value;

use super::Routers;
use crate::hypervisor::Hypervisor;
use crate::hypervisor::vm::Vm;

/// The VM of a router.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterView {
    /// `vm-7`
    pub id: String,
    /// The router's name: the intent of its boot.
    pub name: String,
    /// The primary's uid.
    pub owner: String,
    /// The tenant that the primary belonged to.
    pub tenant: String,
    /// The image from which it was booted.
    pub image: String,
    /// Whether it is being removed.
    pub leaving: bool,
    /// The last configuration that it was sent.
    pub config: Option<Value>,
    /// The MAC addresses that the VM shows.
    pub macs: Vec<String>,
}

/// A port that a router has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortView {
    /// The network.
    pub network: String,
    /// Its MAC address, in lower case.
    pub mac: String,
    /// The router's name.
    pub router: String,
    /// The primary's uid.
    pub owner: String,
}

impl Routers {
    /// The routers' VMs, the oldest first.
    pub(crate) fn views(&self, vms: &Hypervisor, now: u64) -> Vec<RouterView> {
        let routers = self.routers.iter();
        let there = routers.filter_map(|(number, router)| Some((vms.get(*number)?, router)));
        let there = there.filter(|(vm, _): &(&Vm, _)| vm.exists());
        let view = |(vm, router): (&Vm, &super::Router)| {
            let shown = router.plugged.iter().filter(|port| port.is_shown(now));
            RouterView {
                id: vm.id(),
                name: vm.name.clone(),
                owner: vm.stamp.owner.clone(),
                tenant: vm.stamp.tenant.clone(),
                image: router.image.clone(),
                leaving: router.leaving.is_some(),
                config: router.config.clone(),
                macs: shown.map(|port| port.mac.clone()).collect(),
            }
        };
        there.map(view).collect()
    }

    /// The ports that routers have.
    pub(crate) fn port_views(&self) -> Vec<PortView> {
        let view = |port: &super::Port| PortView {
            network: port.network.clone(),
            mac: port.mac.clone(),
            router: port.router.clone(),
            owner: port.stamp.owner.clone(),
        };
        self.ports.values().map(view).collect()
    }
}
