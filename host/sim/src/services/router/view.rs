//! What only a simulation can tell of routers.

use serde_json::Value;

use crate::Sim;
use crate::hypervisor::vm::{self, Vm};

/// A router's VM that exists.
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
    /// What it was booted from.
    pub image: String,
    /// It is being removed.
    pub leaving: bool,
    /// What it was told last.
    pub config: Option<Value>,
    /// The MAC addresses that it shows.
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

impl Sim {
    /// The routers' VMs at this moment, the oldest first.
    pub fn routers(&mut self, now_ms: u64) -> Vec<RouterView> {
        let now = self.advance(now_ms);
        let there = |number: &u64| self.world.vms.get(number).filter(|vm: &&Vm| vm.exists());
        let routers = self.world.routers.iter();
        routers
            .filter_map(|(number, router)| there(number).map(|vm| (vm, router)))
            .map(|(vm, router)| RouterView {
                id: vm::id(vm.number),
                name: vm.name.clone(),
                owner: vm.stamp.owner.clone(),
                tenant: vm.stamp.tenant.clone(),
                image: router.image.clone(),
                leaving: router.leaving.is_some(),
                config: router.config.clone(),
                macs: router
                    .plugged
                    .iter()
                    .filter(|port| port.is_shown(now))
                    .map(|port| port.mac.clone())
                    .collect(),
            })
            .collect()
    }

    /// The ports that routers have.
    pub fn router_ports(&self) -> Vec<PortView> {
        let ports = self.world.ports.values();
        ports
            .map(|port| PortView {
                network: port.network.clone(),
                mac: port.mac.clone(),
                router: port.router.clone(),
                owner: port.stamp.owner.clone(),
            })
            .collect()
    }
}
