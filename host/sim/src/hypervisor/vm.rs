//! VMs, and their states of a moment ago.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::event::Call;
use crate::kernel::call::{self, Stamp};
use crate::power::Power;

/// A VM, from the submission of its clone until nobody can see a trace of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Vm {
    pub(crate) number: u64,
    pub(crate) name: String,
    /// The scope in which the name is unique.
    pub(crate) place: String,
    pub(crate) instance_uuid: String,
    pub(crate) bios_uuid: String,
    pub(crate) stamp: Stamp,
    /// The operation that made it.
    pub(crate) made_by: String,
    /// When its clone was submitted.
    pub(crate) submitted: u64,
    pub(crate) nics: Vec<Nic>,
    /// The task that is changing it.
    pub(crate) busy: Option<u64>,
    /// The states, oldest first; empty while the clone runs.
    history: Vec<Version>,
}

/// A NIC as it was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nic {
    pub(crate) network: String,
    pub(crate) dhcp: bool,
    pub(crate) connected: bool,
}

/// The part of a VM that can change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Version {
    pub(crate) at: u64,
    pub(crate) gone: bool,
    pub(crate) power: Power,
    pub(crate) metadata: Option<String>,
    /// For each NIC the time at which it gets its address; empty unless the VM is on.
    pub(crate) leases: Vec<Option<u64>>,
}

impl Vm {
    /// A VM that a call is about to create in this scope, with the UUIDs of the instance and of the BIOS.
    pub(crate) fn new(number: u64, call: &Call, place: String, uuids: [String; 2], at: u64) -> Self {
        let [instance_uuid, bios_uuid] = uuids;
        Vm {
            number,
            name: call.text("name").to_owned(),
            place,
            instance_uuid,
            bios_uuid,
            stamp: call.stamp(),
            made_by: call.operation.clone(),
            submitted: at,
            nics: Vec::new(),
            busy: None,
            history: Vec::new(),
        }
    }

    pub(crate) fn id(&self) -> String {
        id(self.number)
    }

    /// Makes the VM exist, powered off.
    pub(crate) fn create(&mut self, at: u64) {
        self.history.push(Version {
            at,
            gone: false,
            power: Power::Off,
            metadata: None,
            leases: Vec::new(),
        });
    }

    pub(crate) fn creating(&self) -> bool {
        self.history.is_empty()
    }

    /// Whether the VM exists now.
    pub(crate) fn exists(&self) -> bool {
        self.history.last().is_some_and(|v| !v.gone)
    }

    /// The present state.
    pub(crate) fn current(&self) -> Option<&Version> {
        self.history.last()
    }

    /// The state at a time; `None` before the VM was created.
    pub(crate) fn as_of(&self, then: u64) -> Option<&Version> {
        self.history.iter().rev().find(|v| v.at <= then)
    }

    /// The state at a time, or the first state: a caller that knows the id has seen the VM.
    pub(crate) fn at_least_first(&self, then: u64) -> Option<&Version> {
        self.as_of(then).or(self.history.first())
    }

    /// Adds a state. States that no lagging read can see any more are dropped.
    pub(crate) fn change(&mut self, at: u64, lag: u64, edit: impl FnOnce(&mut Version)) {
        let Some(mut version) = self.history.last().cloned() else {
            return;
        };
        version.at = at;
        edit(&mut version);
        self.history.push(version);
        let seen = self
            .history
            .iter()
            .rposition(|v| v.at <= at.saturating_sub(lag))
            .unwrap_or(0);
        self.history.drain(..seen);
    }

    pub(crate) fn describe_nics(&self, version: &Version, then: u64) -> Value {
        let nics: Vec<Value> = (0..self.nics.len())
            .map(|i| self.describe_nic(i, version, then))
            .collect();
        json!({"nics": nics})
    }

    fn describe_nic(&self, index: usize, version: &Version, then: u64) -> Value {
        let nic = &self.nics[index];
        json!({
            "network": nic.network,
            "mac": self.mac(index),
            "connected": nic.connected && version.power == Power::On,
            "ips": self.addresses(index, version, then),
        })
    }

    /// The addresses that the guest reports. The first is link-local, which nobody else can use.
    fn addresses(&self, index: usize, version: &Version, then: u64) -> Vec<String> {
        if version.power != Power::On || !self.nics[index].connected {
            return Vec::new();
        }
        let local = format!("fe80::250:56ff:{:x}:{:x}", self.number & 0xffff, index);
        let lease = version
            .leases
            .get(index)
            .copied()
            .flatten()
            .filter(|ready| *ready <= then);
        std::iter::once(local)
            .chain(lease.map(|_| self.ipv4(index)))
            .collect()
    }

    /// The addresses from leases only.
    pub(crate) fn leased(&self, now: u64) -> Vec<String> {
        let Some(version) = self.history.last().filter(|v| v.power == Power::On) else {
            return Vec::new();
        };
        let ready = |i: &usize| {
            version
                .leases
                .get(*i)
                .copied()
                .flatten()
                .is_some_and(|at| at <= now)
        };
        (0..self.nics.len()).filter(ready).map(|i| self.ipv4(i)).collect()
    }

    /// An address of the network `10.0.0.0/8`: 16 NICs of a million VMs each have their own.
    fn ipv4(&self, index: usize) -> String {
        let host = ((index as u64 & 0xf) << 20) | (self.number & 0xf_ffff);
        format!(
            "10.{}.{}.{}",
            (host >> 16) & 0xff,
            (host >> 8) & 0xff,
            host & 0xff
        )
    }

    fn mac(&self, index: usize) -> String {
        let n = self.number * 16 + index as u64;
        format!(
            "00:50:56:{:02x}:{:02x}:{:02x}",
            (n >> 16) & 0xff,
            (n >> 8) & 0xff,
            n & 0xff
        )
    }
}

/// The id of a VM: `vm-7`.
pub(crate) fn id(number: u64) -> String {
    format!("vm-{number}")
}

/// The number 7 of `vm-7`. Other spellings of the number do not count.
pub(crate) fn number(id: &str) -> Option<u64> {
    call::number(id, "vm-")
}

/// The prefix of the id by which a node names its VM.
const SCHEME: &str = "sim:///";

/// The provider id of a VM: `sim:///vm-7`.
pub(crate) fn provider_id(number: u64) -> String {
    format!("{SCHEME}{}", id(number))
}

/// The id `vm-7` of `sim:///vm-7`; empty for anything else.
pub(crate) fn id_of_provider(id: &str) -> &str {
    id.strip_prefix(SCHEME).unwrap_or_default()
}
