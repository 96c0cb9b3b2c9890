//! Creates and starts a machine (CAPV-23 to CAPV-30, CAPV-42, CAPV-44, CAPV-46, CAPV-49, CAPV-51).

use std::net::IpAddr;
use std::ops::ControlFlow::{Break, Continue};

use polity_sdk::cloud::vm::{self, Nic, Power, VmSpec};
use polity_sdk::prelude::*;

use crate::backoff::{Change, submit};
use crate::object::{Machine, NicStatus, Phase, TaskKind};
use crate::{Cx, bootstrap, metadata};

/// Clones, configures, starts, and waits for addresses: one of them in each pass.
pub(crate) async fn bring_up(cx: &Cx, machine: &mut Machine) -> Result<Next, Failure> {
    let Some(vm) = machine.status.machine_ref.clone() else {
        return clone(cx, machine).await;
    };
    machine.compare_with_clone(cx);

    let (given, nics) = join!(cx.ask(vm::metadata(&vm)), cx.ask(vm::nics(&vm)));
    let (given, nics) = (given?, nics?);
    cx.note("CAPV-24");
    let wanted = metadata::of(machine, &nics);
    if given.as_deref() != Some(wanted.as_str()) {
        let change = Change {
            edge: "CAPV-25",
            submit: vm::reconfigure(&vm, &wanted),
            kind: TaskKind::Reconfigure,
            phase: Phase::Reconfiguring,
            reason: "Reconfiguring",
            message: "the VM is being given its metadata",
        };
        return submit(cx, machine, change).await;
    }

    cx.note("CAPV-26");
    record_interfaces(machine, &nics);
    if cx.ask(vm::power(&vm)).await? != Power::On {
        machine.forget_addresses();
        let change = Change {
            edge: "CAPV-27",
            submit: vm::power_on(&vm),
            kind: TaskKind::Power,
            phase: Phase::PoweringOn,
            reason: "PoweringOn",
            message: "the VM is being started",
        };
        return submit(cx, machine, change).await;
    }

    cx.note("CAPV-28");
    machine.status.retry_after = None;
    Ok(await_addresses(cx, machine, &nics))
}

/// Waits until the VM can be reached. One address is enough (`reconcileNormal` of `controllers/vspherevm_controller.go` in the
/// original), and the others are waited for.
fn await_addresses(cx: &Cx, machine: &mut Machine, nics: &[Nic]) -> Next {
    let config = cx.config();
    let wait = Next::after(config.ip_wait.unwrap_or(config.requeue_period));
    record_addresses(machine, nics);
    if machine.status.addresses.is_empty() {
        cx.note("CAPV-30");
        let message = "the VM runs and has no addresses yet";
        machine.not_yet(cx, Phase::WaitingForAddresses, "WaitingForIP", message);
        return wait;
    }
    machine.provisioned(cx);
    if lacks_addresses(machine, nics) {
        cx.note("CAPV-51");
        return wait;
    }
    cx.note("CAPV-29");
    Next::settled_for(config.resync)
}

async fn clone(cx: &Cx, machine: &mut Machine) -> Result<Next, Failure> {
    if machine.status.phase == Some(Phase::Missing) && !cx.config().recreate_missing {
        // A person decides about this machine. If the VM is seen again, CAPV-13 adopts it.
        cx.note("CAPV-44");
        return Ok(Next::settled_for(cx.config().resync));
    }
    // The backoff is that of the clone which has just failed.
    if machine.status.phase == Some(Phase::NameTaken) && machine.status.retry_after.is_some() {
        return Ok(name_taken(cx, machine));
    }
    let user_data = match bootstrap::user_data(cx, machine).await? {
        Break(wait) => return Ok(wait),
        Continue(user_data) => user_data,
    };
    let (name, spec) = (&machine.metadata.name, &machine.spec);
    let cpus = spec.num_cpus.unwrap_or(2).max(2);
    let vm = VmSpec {
        name,
        instance_uuid: &machine.metadata.uid,
        template: &spec.template,
        datacenter: spec.datacenter.as_deref(),
        folder: spec.folder.as_deref(),
        datastore: spec.datastore.as_deref(),
        resource_pool: spec.resource_pool.as_deref(),
        cpus,
        cores_per_socket: spec.num_cores_per_socket.unwrap_or(cpus),
        memory_mib: spec.memory_mib.unwrap_or(2048),
        disk_gib: spec.disk_gib,
        networks: spec
            .network
            .devices
            .iter()
            .map(|device| device.network_name.as_str())
            .collect(),
        user_data,
    };
    let change = Change {
        edge: "CAPV-23",
        submit: vm::clone_vm(&vm),
        kind: TaskKind::Clone,
        phase: Phase::Cloning,
        reason: "WaitingForClone",
        message: "the template is being cloned",
    };
    let next = match submit(cx, machine, change).await {
        Err(failure) if failure.code == Code::AlreadyExists => return Ok(name_taken(cx, machine)),
        submitted => submitted?,
    };
    if machine.status.task_ref.is_some() {
        machine.status.cloned = Some(machine.spec.clone_spec());
    }
    Ok(next)
}

/// Fails the pass, because a VM that is not the machine's has its name (CAPV-49). The retry policy decides when the clone is tried
/// again, but not before the backoff has ended: the name may be free then. The original tries each failed task again
/// (`checkAndRetryTask` of `pkg/services/govmomi/util.go`). If the VM is the machine's after all and only could not be seen yet,
/// CAPV-13 adopts it.
fn name_taken(cx: &Cx, machine: &mut Machine) -> Next {
    cx.note("CAPV-49");
    let message = format!(
        "another VM has the name {} in the folder, so none can be made before it is renamed or removed",
        machine.metadata.name
    );
    machine.status.phase = Some(Phase::NameTaken);
    machine.status.retry_after = None;
    machine.report(cx, "NameTaken", &message);
    let backoff = Duration::from(cx.config().failure_backoff);
    let failure = Failure {
        retry_after: u64::try_from(backoff.as_millis()).ok(),
        ..Failure::new(Code::AlreadyExists, message)
    };
    Next::failed(RetryClass::Medium, failure)
}

/// Records the interfaces with the addresses that the guest reports now.
fn record_interfaces(machine: &mut Machine, nics: &[Nic]) {
    let status = |nic: &Nic| NicStatus {
        network_name: nic.network.clone(),
        mac: nic.mac.clone(),
        connected: nic.connected,
        ip_addrs: nic.ips.clone(),
    };
    machine.status.network = nics.iter().map(status).collect();
}

/// Records the addresses at which the VM can be reached.
fn record_addresses(machine: &mut Machine, nics: &[Nic]) {
    let mut addresses: Vec<String> = Vec::new();
    for ip in nics.iter().filter(|nic| nic.connected).flat_map(|nic| &nic.ips) {
        if is_reachable(ip) && !addresses.contains(ip) {
            addresses.push(ip.clone());
        }
    }
    machine.status.addresses = addresses;
}

/// Whether a connected interface has no address yet, although its device asks for one. `waitForIPAddresses` of
/// `pkg/services/govmomi/util.go` waits for these.
fn lacks_addresses(machine: &Machine, nics: &[Nic]) -> bool {
    let devices = &machine.spec.network.devices;
    let mut interfaces = devices.iter().zip(metadata::interfaces(devices, nics));
    interfaces.any(|(device, nic)| {
        let asks = device.dhcp4 || device.dhcp6 || !device.ip_addrs.is_empty();
        asks && nic.is_some_and(|nic| nic.connected && !nic.ips.iter().any(|ip| is_reachable(ip)))
    })
}

/// Other machines cannot reach loopback and link-local addresses.
fn is_reachable(ip: &str) -> bool {
    match ip.parse() {
        Ok(IpAddr::V4(ip)) => !(ip.is_loopback() || ip.is_link_local() || ip.is_unspecified()),
        Ok(IpAddr::V6(ip)) => !(ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified()),
        Err(_) => false,
    }
}
