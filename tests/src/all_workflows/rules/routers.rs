//! Rules about routers, once everything is settled.

use serde_json::{Value, json};

use super::Verdicts;
use crate::all_workflows::snapshot::{Snapshot, is_deleting};

/// Each router is alive and configured, with the ports that it wants and no other; or it has ended, and nothing is left.
pub fn compare(snapshot: &Snapshot) -> Verdicts {
    let uids: Vec<&Value> = snapshot
        .routers
        .iter()
        .map(|router| &router["metadata"]["uid"])
        .collect();
    if let Some(port) = snapshot
        .router_ports
        .iter()
        .find(|port| !uids.contains(&&json!(port.owner)))
    {
        return Err(format!("the port {} of {} has no object", port.mac, port.router));
    }
    snapshot
        .routers
        .iter()
        .try_for_each(|router| is_fine(snapshot, router))
}

fn is_fine(snapshot: &Snapshot, router: &Value) -> Verdicts {
    let (metadata, spec, status) = (&router["metadata"], &router["spec"], &router["status"]);
    let wrong = |what: &str| Err(format!("router {} settled {what}: {status}", metadata["name"]));
    let own = |owner: &str| metadata["uid"] == *owner;
    let ports = snapshot.router_ports.iter().filter(|port| own(&port.owner));
    let mut ports: Vec<&str> = ports.map(|port| port.mac.as_str()).collect();
    ports.sort_unstable();
    let vm = snapshot.router_vms.iter().find(|vm| own(&vm.owner));
    if is_deleting(router) {
        return wrong("while it is being deleted");
    }
    if status["machineState"] == "EXIT" {
        return match (vm, ports.is_empty()) {
            (None, true) => Ok(()),
            _ => wrong("with something left"),
        };
    }
    if status["machineState"] != "CALC_ACTION" || status["vm"] != "C" || status["queue"] != json!([]) {
        return wrong("in the middle");
    }
    let wanted = spec["ports"].as_array().into_iter().flatten();
    let mut wanted: Vec<&str> = wanted.filter_map(|port| port["mac"].as_str()).collect();
    wanted.sort_unstable();
    let Some(vm) = vm.filter(|vm| !vm.leaving) else {
        return wrong("without a VM");
    };
    let mut shown: Vec<&str> = vm.macs.iter().map(String::as_str).collect();
    shown.sort_unstable();
    match (shown == wanted, ports == wanted, &vm.config) {
        (true, true, Some(config)) if config["ports"] == spec["ports"] => Ok(()),
        _ => wrong(&format!(
            "with {shown:?}, {ports:?} and {:?}, wanted {wanted:?}",
            vm.config
        )),
    }
}
