//! The Machine: the fields that people write, and those that this policy writes.
//!
//! `status` records which VM and which task belong to a machine, because a tenant can write `spec`.

use polity_sdk::prelude::*;

use crate::Cx;

/// The finalizer that keeps a Machine until its VM is gone.
pub(crate) const FINALIZER: &str = "capv.polity.dev/machine";
/// While this annotation is present, the policy makes no requests.
const MAINTENANCE: &str = "capv.polity.dev/maintenance";
/// The condition that the VM is as it should be.
const PROVISIONED: &str = "VMProvisioned";
/// The condition that the VM was cloned from what the spec says; the name is Cluster API's.
const UP_TO_DATE: &str = "UpToDate";

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// The metadata. Name and uid are the VM's name and its instance UUID.
    pub metadata: Metadata,
    /// The wanted state.
    pub spec: MachineSpec,
    /// The observed state.
    #[serde(default)]
    pub status: MachineStatus,
}

impl Kind for Machine {
    const API_VERSION: &'static str = "capv.polity.dev/v1alpha1";
    const KIND: &'static str = "Machine";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn conditions_mut(&mut self) -> Option<&mut Conditions> {
        Some(&mut self.status.conditions)
    }
}

/// The wanted state of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// The template that is cloned.
    pub template: String,
    /// The datacenter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    /// The inventory folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The datastore of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastore: Option<String>,
    /// The resource pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<String>,
    /// The number of processors; at least 2.
    #[serde(default, rename = "numCPUs", skip_serializing_if = "Option::is_none")]
    pub num_cpus: Option<u32>,
    /// The number of cores of a socket; by default as many as processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_cores_per_socket: Option<u32>,
    /// The memory in MiB; 2048 by default.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// The size of the disk in GiB; by default the size of the template's disk.
    #[serde(default, rename = "diskGiB", skip_serializing_if = "Option::is_none")]
    pub disk_gib: Option<u64>,
    /// The network.
    #[serde(default)]
    pub network: NetworkSpec,
    /// The data with which the guest sets itself up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
    /// How long a task may run before passes fail. The task goes on and is still waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_timeout: Option<Period>,
}

/// What a VM was cloned from, where, and its hardware: the fields of the spec with these names, which a VM keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "named as the fields of the spec are")]
pub struct CloneSpec {
    pub template: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastore: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<String>,
    #[serde(default, rename = "numCPUs", skip_serializing_if = "Option::is_none")]
    pub num_cpus: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_cores_per_socket: Option<u32>,
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    #[serde(default, rename = "diskGiB", skip_serializing_if = "Option::is_none")]
    pub disk_gib: Option<u64>,
}

impl MachineSpec {
    /// What a clone is made from now.
    pub(crate) fn clone_spec(&self) -> CloneSpec {
        CloneSpec {
            template: self.template.clone(),
            datacenter: self.datacenter.clone(),
            folder: self.folder.clone(),
            datastore: self.datastore.clone(),
            resource_pool: self.resource_pool.clone(),
            num_cpus: self.num_cpus,
            num_cores_per_socket: self.num_cores_per_socket,
            memory_mib: self.memory_mib,
            disk_gib: self.disk_gib,
        }
    }
}

/// The data with which a guest sets itself up at its first start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// The Secret in the machine's namespace whose `value` is the user data. The template is not cloned before the
    /// Secret exists. Later changes of the Secret do not change a VM.
    #[schemars(length(min = 1))]
    pub data_secret_name: String,
}

/// The network of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NetworkSpec {
    /// The network interfaces, in order.
    pub devices: Vec<Device>,
}

/// The configuration of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The network to which it is connected.
    pub network_name: String,
    /// Whether it gets an IPv4 address by DHCP.
    #[serde(default)]
    pub dhcp4: bool,
    /// Whether it gets an IPv6 address by DHCP.
    #[serde(default)]
    pub dhcp6: bool,
    /// Fixed addresses: `10.0.0.5/24`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_addrs: Vec<String>,
    /// The IPv4 gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway4: Option<String>,
    /// The IPv6 gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway6: Option<String>,
    /// The largest packet in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Further routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The domains in which names are looked up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search_domains: Vec<String>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// The destination: `10.1.0.0/16`.
    pub to: String,
    /// The gateway.
    pub via: String,
    /// The priority. A lower metric comes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// The observed state of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// The phase, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The cloud's id of the VM; absent while no VM is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_ref: Option<String>,
    /// What the latest clone was made from; absent for a VM that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloned: Option<CloneSpec>,
    /// The UUID that the guest sees.
    #[serde(rename = "biosUUID", skip_serializing_if = "Option::is_none")]
    pub bios_uuid: Option<String>,
    /// The task in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_ref: Option<String>,
    /// The kind of that task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_kind: Option<TaskKind>,
    /// When the task was submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_since: Option<Time>,
    /// The network interfaces of the VM.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<NicStatus>,
    /// The addresses at which the VM can be reached now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// After a failed task: the time before which nothing is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Time>,
    /// `VMProvisioned`, `UpToDate` once the spec differs from what was cloned, and `Reconciled` from the first failed pass
    /// on.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
}

/// The phase of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The Secret with its user data does not exist yet.
    WaitingForBootstrapData,
    /// Its template is being cloned.
    Cloning,
    /// The VM is getting other metadata.
    Reconfiguring,
    /// The VM is being turned on.
    PoweringOn,
    /// The VM runs and has no addresses yet.
    WaitingForAddresses,
    /// The VM runs and has an address.
    Running,
    /// A task failed. Nothing is changed for a while.
    BackingOff,
    /// The VM has vanished and is not created again.
    Missing,
    /// Another VM has its name in the folder. The clone is tried again later.
    NameTaken,
    /// The machine is being deleted.
    Deleting,
}

/// The kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// Creates the VM.
    Clone,
    /// Sets its metadata.
    Reconfigure,
    /// Turns it on.
    Power,
    /// Turns it off or removes it, because the machine is being deleted.
    Delete,
}

/// A network interface as the VM reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicStatus {
    /// The network to which it is connected.
    pub network_name: String,
    /// Its MAC address.
    pub mac: String,
    /// Whether it is connected.
    #[serde(default)]
    pub connected: bool,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_addrs: Vec<String>,
}

impl Machine {
    /// Whether a person works on the VM.
    pub(crate) fn in_maintenance(&self) -> bool {
        self.metadata.annotations.contains_key(MAINTENANCE)
    }

    /// Records the task in flight.
    pub(crate) fn track(&mut self, task: String, kind: TaskKind, since: Time) {
        self.status.task_ref = Some(task);
        self.status.task_kind = Some(kind);
        self.status.task_since = Some(since);
    }

    /// Forgets the task.
    pub(crate) fn forget_task(&mut self) {
        self.status.task_ref = None;
        self.status.task_kind = None;
        self.status.task_since = None;
    }

    /// Forgets the VM and everything that was known of it.
    pub(crate) fn forget_vm(&mut self) {
        self.status.machine_ref = None;
        self.status.cloned = None;
        self.status.bios_uuid = None;
        self.status.network.clear();
        self.status.addresses.clear();
    }

    /// Forgets the addresses of a VM that is off: another VM may get them.
    pub(crate) fn forget_addresses(&mut self) {
        self.status.addresses.clear();
        for nic in &mut self.status.network {
            nic.ip_addrs.clear();
        }
    }

    /// Records that the VM is not as it should be yet, with the reason.
    pub(crate) fn not_yet(&mut self, cx: &Cx, phase: Phase, reason: &str, message: impl Into<String>) {
        self.status.phase = Some(phase);
        self.status
            .conditions
            .set(cx.now(), PROVISIONED, ConditionStatus::False, reason, message);
    }

    /// Reports a problem that ends a pass. The phase stays, and the Event is written once.
    pub(crate) fn report(&mut self, cx: &Cx, reason: &str, message: &str) {
        let (conditions, no) = (&mut self.status.conditions, ConditionStatus::False);
        if conditions.announce(cx.now(), PROVISIONED, no, reason, message) {
            cx.event(EventType::Warning, reason, message);
        }
    }

    /// Records that the VM is as it should be.
    pub(crate) fn provisioned(&mut self, cx: &Cx) {
        if !self.status.conditions.is_true(PROVISIONED) {
            let message = format!("the VM runs with {}", self.status.addresses.join(", "));
            cx.event(EventType::Normal, "Provisioned", message);
        }
        self.status.phase = Some(Phase::Running);
        self.status
            .conditions
            .set(cx.now(), PROVISIONED, ConditionStatus::True, "Provisioned", "");
    }

    /// Reports a spec that differs from what the VM was cloned from (CAPV-46), and the end of the difference.
    pub(crate) fn compare_with_clone(&mut self, cx: &Cx) {
        let cloned = self.status.cloned.as_ref();
        let same = cloned.is_none_or(|cloned| *cloned == self.spec.clone_spec());
        if same {
            self.status.conditions.heal(cx.now(), UP_TO_DATE, "UpToDate");
            return;
        }
        cx.note("CAPV-46");
        let message = "the spec has changed since the VM was cloned, and the VM keeps what status.cloned says: \
            set the spec back, or delete the Machine and create it again";
        let (conditions, no) = (&mut self.status.conditions, ConditionStatus::False);
        if conditions.announce(cx.now(), UP_TO_DATE, no, "SpecChanged", message) {
            cx.event(EventType::Warning, "SpecChanged", message);
        }
    }
}
