//! The objects in the vCenter.

use std::collections::BTreeMap;

use polity_driver_sdk::test::Reply;

use super::{Ended, Texts};

/// The id of the VM that belongs to the owner of the tests.
pub(crate) const OWN_VM: &str = "vm-42";

/// A VM or template.
#[derive(Clone, Debug)]
pub(crate) struct Vm {
    pub(crate) id: String,
    /// The name in the inventory.
    pub(crate) name: String,
    pub(crate) folder: String,
    pub(crate) is_template: bool,
    /// Whether its configuration can be read.
    pub(crate) is_configured: bool,
    pub(crate) instance_uuid: String,
    pub(crate) options: Vec<(String, String)>,
    pub(crate) power: String,
    /// The text of the question that it asks (`VirtualMachineQuestionInfo`).
    pub(crate) question: Option<String>,
    /// As XML.
    pub(crate) devices: Vec<String>,
    /// As XML.
    pub(crate) guest: Vec<String>,
    pub(crate) networks: Vec<String>,
    pub(crate) created: Option<String>,
    /// The fault that vCenter reports for a property, by its path. If it is empty, the property is unset.
    pub(crate) withheld: Texts,
}

/// A task.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) description: String,
    pub(crate) entity: String,
    pub(crate) state: String,
    pub(crate) activation: String,
    pub(crate) result: Option<String>,
    /// As XML.
    pub(crate) error: Option<String>,
    pub(crate) withheld: Option<String>,
}

/// A network.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    pub(crate) name: String,
}

/// The server.
pub(crate) struct VCenter {
    pub(crate) api_version: String,
    /// The type and id of the object at each path, without the VMs.
    pub(crate) inventory: BTreeMap<String, (String, String)>,
    pub(crate) vms: Vec<Vm>,
    pub(crate) networks: Vec<Network>,
    pub(crate) tasks: Vec<Task>,
    /// The answer of a method in place of the usual one.
    pub(crate) instead: BTreeMap<String, Reply>,
    /// The number of the request with which the session has ended.
    pub(crate) ends_at: Option<usize>,
    pub(crate) ended: Ended,
    pub(crate) requests: usize,
    /// How many objects a page has.
    pub(crate) page: usize,
    /// The rest of a result, by its token.
    pub(crate) rest: BTreeMap<String, Vec<String>>,
    /// The last response of the property collector.
    pub(crate) said: String,
}

impl VCenter {
    /// A server with a template, networks, a pool, and a VM of the owner.
    pub(crate) fn new() -> Self {
        let inventory = [
            ("DC0", "Datacenter", "datacenter-2"),
            ("DC0/vm", "Folder", "group-v3"),
            ("DC0/vm/team-a", "Folder", "group-v10"),
            ("DC0/host/C0", "ClusterComputeResource", "domain-c7"),
            ("DC0/host/C0/Resources", "ResourcePool", "resgroup-8"),
            ("DC0/host/C0/Resources/team-a", "ResourcePool", "resgroup-9"),
            ("DC0/datastore/ds1", "Datastore", "datastore-11"),
            ("DC0/network/VM Network", "Network", "network-12"),
            (
                "DC0/network/prod",
                "DistributedVirtualPortgroup",
                "dvportgroup-13",
            ),
            ("DC0/network/a%2fb", "Network", "network-15"),
            ("DC0/network/nsx", "OpaqueNetwork", "network-o16"),
        ];
        let network = |kind, id: &str, name: &str| Network {
            kind,
            id: id.to_owned(),
            name: name.to_owned(),
        };
        VCenter {
            api_version: "8.0.1.0".to_owned(),
            inventory: inventory
                .map(|(path, kind, id)| (path.to_owned(), (kind.to_owned(), id.to_owned())))
                .into(),
            vms: vec![template(), own_vm()],
            networks: vec![
                network("Network", "network-12", "VM Network"),
                network("DistributedVirtualPortgroup", "dvportgroup-13", "prod"),
                network("DistributedVirtualPortgroup", "dvportgroup-17", "b%2fc & <d>"),
            ],
            tasks: Vec::new(),
            instead: BTreeMap::new(),
            ends_at: None,
            ended: Ended::Missing,
            requests: 0,
            page: usize::MAX,
            rest: BTreeMap::new(),
            said: String::new(),
        }
    }

    /// A VM, to change it.
    pub(crate) fn vm(&mut self, id: &str) -> &mut Vm {
        self.vms.iter_mut().find(|vm| vm.id == id).expect("a VM")
    }
}

/// Options of a VM.
pub(crate) fn options(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// The VM of the owner of the tests: off, with one interface.
pub(crate) fn own_vm() -> Vm {
    Vm {
        id: OWN_VM.to_owned(),
        name: "m-1".to_owned(),
        folder: "DC0/vm/team-a".to_owned(),
        is_template: false,
        is_configured: true,
        instance_uuid: "owner-1".to_owned(),
        options: options(&[
            ("svga.vramSize", "1"),
            ("polity.owner", "owner-1"),
            ("polity.tenant", "tenant-1"),
            ("polity.key", "key-1"),
        ]),
        power: "poweredOff".to_owned(),
        question: None,
        devices: vec![
            disk(),
            card(4000, "00:50:56:00:00:01", &distributed("dvportgroup-13"), true),
        ],
        guest: Vec::new(),
        networks: vec!["dvportgroup-13".to_owned()],
        created: Some("2026-09-21T14:00:00.5Z".to_owned()),
        withheld: Texts::new(),
    }
}

fn template() -> Vm {
    let on_network = r#"<backing xsi:type="VirtualEthernetCardNetworkBackingInfo"><deviceName>VM Network</deviceName></backing>"#;
    Vm {
        id: "vm-20".to_owned(),
        name: "ubuntu".to_owned(),
        folder: "DC0/vm".to_owned(),
        is_template: true,
        instance_uuid: "of-the-template".to_owned(),
        options: Vec::new(),
        devices: vec![disk(), card(4000, "00:50:56:00:00:20", on_network, false)],
        ..own_vm()
    }
}

/// A disk of 10 GiB.
fn disk() -> String {
    concat!(
        r#"<VirtualDisk-element><key>2000</key><deviceInfo><label>Hard disk 1</label></deviceInfo>"#,
        r#"<backing xsi:type="VirtualDiskFlatVer2BackingInfo"><fileName>[ds1] ubuntu/ubuntu.vmdk</fileName>"#,
        r#"<diskMode>persistent</diskMode><thinProvisioned>true</thinProvisioned><uuid>u</uuid></backing>"#,
        r#"<controllerKey>1000</controllerKey><unitNumber>0</unitNumber><capacityInKB>10485760</capacityInKB>"#,
        r#"</VirtualDisk-element>"#
    )
    .replace("<VirtualDisk-element>", r#"<VirtualDevice xsi:type="VirtualDisk">"#)
    .replace("</VirtualDisk-element>", "</VirtualDevice>")
}

/// A network card.
pub(crate) fn card(key: u32, mac: &str, backing: &str, connected: bool) -> String {
    format!(
        r#"<VirtualDevice xsi:type="VirtualVmxnet3"><key>{key}</key>{backing}<connectable><startConnected>true</startConnected><connected>{connected}</connected></connectable><addressType>assigned</addressType><macAddress>{mac}</macAddress></VirtualDevice>"#
    )
}

/// The backing of a card on a portgroup.
pub(crate) fn distributed(key: &str) -> String {
    format!(
        r#"<backing xsi:type="VirtualEthernetCardDistributedVirtualPortBackingInfo"><port><switchUuid>50 2a</switchUuid><portgroupKey>{key}</portgroupKey></port></backing>"#
    )
}

/// A task that clones, with the key of the tests.
pub(crate) fn clone_task(state: &str) -> Task {
    Task {
        id: "task-7".to_owned(),
        description: "VirtualMachine.clone".to_owned(),
        entity: "vm-20".to_owned(),
        state: state.to_owned(),
        activation: "key-1".to_owned(),
        result: (state == "success").then(|| OWN_VM.to_owned()),
        error: None,
        withheld: None,
    }
}
