//! VMs and what they were a moment ago.

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
    /// Where the name is unique.
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
    /// Oldest first; empty while the clone runs.
    history: Vec<Version>,
}

/// A NIC as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Nic {
    pub(crate) network: String,
    pub(crate) dhcp: bool,
    pub(crate) connected: bool,
}

/// What can change about a VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Version {
    pub(crate) at: u64,
    pub(crate) gone: bool,
    pub(crate) power: Power,
    pub(crate) metadata: Option<String>,
    /// For each NIC the time it gets its address; empty unless on.
    pub(crate) leases: Vec<Option<u64>>,
}

impl Vm {
    /// What a call is about to make in this place, with the UUIDs of the instance and of the BIOS.
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

    /// It is there, powered off.
    pub(crate) fn appear(&mut self, at: u64) {
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

    /// It is there, now.
    pub(crate) fn exists(&self) -> bool {
        self.history.last().is_some_and(|v| !v.gone)
    }

    /// As it is.
    pub(crate) fn current(&self) -> Option<&Version> {
        self.history.last()
    }

    /// As it was; none before it appeared.
    pub(crate) fn as_of(&self, then: u64) -> Option<&Version> {
        self.history.iter().rev().find(|v| v.at <= then)
    }

    /// As it was, or as it was at first: who knows its id has seen it.
    pub(crate) fn at_least_first(&self, then: u64) -> Option<&Version> {
        self.as_of(then).or(self.history.first())
    }

    /// Writes a version. What no lagging read can see any more is dropped.
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

    /// What the guest reports: its link-local address first, which is no address that anybody can use.
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

    /// The addresses of leases only.
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

    /// From the network `10.0.0.0/8`: 16 NICs of a million VMs each have one of their own.
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

/// `vm-7`
pub(crate) fn id(number: u64) -> String {
    format!("vm-{number}")
}

/// 7 of `vm-7`, spelled so and not otherwise.
pub(crate) fn number(id: &str) -> Option<u64> {
    call::number(id, "vm-")
}

/// What stands before a VM's id in the id by which its node names it.
const SCHEME: &str = "sim:///";

/// `sim:///vm-7`
pub(crate) fn provider_id(number: u64) -> String {
    format!("{SCHEME}{}", id(number))
}

/// `vm-7` of `sim:///vm-7`; empty of anything else.
pub(crate) fn id_of_provider(id: &str) -> &str {
    id.strip_prefix(SCHEME).unwrap_or_default()
}
