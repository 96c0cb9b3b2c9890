//! Compares the operations that the SDK names with those of the catalogue: names, effects, and arguments by the schemas.
//!
//! The SDK names them a second time, as functions for policies, because it is a package without a path outside itself: it
//! can neither depend on the crate of the catalogue nor read its files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use polity_clouds::catalogue::{self, Named};
use polity_clouds::{CatalogueValidator, Way};
use polity_core::call::{CloudRequest, Session};
use polity_core::catalogue::{Catalogue, OperationEffect};
use polity_sdk::cloud::pool::{Addition, Join, Registration, Tier, Wanted};
use polity_sdk::cloud::router::{self, Port};
use polity_sdk::cloud::vm::{self, VmSpec};
use polity_sdk::cloud::{agent, machine, pool};
use polity_sdk::cluster::sealed;
use polity_sdk::contract::{self, Question};
use polity_sdk::kube::node::Taint;
use polity_sdk::{Act, Ask};
use serde_json::{Map, Value, json};

/// A request of the SDK.
struct Requested {
    operation: String,
    arguments: Value,
    effect: OperationEffect,
    intent: Option<String>,
}

fn asks(ask: impl Ask) -> Requested {
    let Question::Cloud(call) = ask.question(None) else {
        panic!("no question to a cloud")
    };
    Requested {
        operation: call.operation,
        arguments: serde_json::from_str(&call.arguments).expect("JSON"),
        effect: OperationEffect::Read,
        intent: None,
    }
}

fn acts(act: impl Act) -> Requested {
    let contract::Act::Cloud(act) = act.act(None) else {
        panic!("no act on a cloud")
    };
    let effect = match act.intent {
        Some(_) => OperationEffect::Create,
        None => OperationEffect::Change,
    };
    Requested {
        operation: act.operation,
        arguments: serde_json::from_str(&act.arguments).expect("JSON"),
        effect,
        intent: act.intent,
    }
}

/// The operations that a module of the SDK names are those of the catalogue, and each has requests that follow it.
fn agree(named: &[&str], catalogued: Vec<Named>, requests: &[Requested]) {
    let operations: BTreeMap<_, _> = catalogued
        .into_iter()
        .map(|(name, operation)| (name.to_owned(), operation))
        .collect();
    let there: BTreeSet<&str> = operations.keys().map(String::as_str).collect();
    let names: BTreeSet<&str> = named.iter().copied().collect();
    assert_eq!((&names, names.len()), (&there, named.len()));
    let requested: BTreeSet<&str> = requests.iter().map(|request| &*request.operation).collect();
    assert_eq!(requested, there);

    let catalogue = Arc::new(Catalogue {
        operations,
        ..Catalogue::default()
    });
    let validator = CatalogueValidator::new(catalogue).expect("schemas that compile");
    for request in requests {
        follows(&validator, request);
    }
}

/// The effect is that of the catalogue, the arguments follow the schema, and a create is named by its intent.
fn follows(validator: &CatalogueValidator, request: &Requested) {
    let way = match request.effect {
        OperationEffect::Create => Way::Prepare,
        OperationEffect::Read | OperationEffect::Change => Way::Perform,
    };
    let sent = CloudRequest {
        session: session(),
        operation: request.operation.clone(),
        arguments: request.arguments.clone(),
        key: None,
    };
    let operation = validator.validate(&sent, way).expect("it follows the catalogue");
    assert_eq!(operation.effect, request.effect, "{}", request.operation);
    let named = operation
        .intent
        .as_ref()
        .map(|path| request.arguments[path].as_str());
    assert_eq!(
        named.flatten(),
        request.intent.as_deref(),
        "{}",
        request.operation
    );
}

fn session() -> Session {
    Session {
        cloud: "cloud".into(),
        handle: None,
        owner: "uid".into(),
        tenant: "tenant".into(),
        tenant_queue: Arc::from("queue"),
        namespace: None,
    }
}

/// How long what was created may be unseen, which is the word of each cloud.
const VISIBLE_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn what_the_sdk_asks_of_vms_is_what_the_catalogue_has() {
    let least = VmSpec {
        name: "web-1",
        instance_uuid: "9d0c",
        template: "ubuntu",
        cpus: 2,
        cores_per_socket: 1,
        memory_mib: 4_096,
        networks: vec!["net"],
        ..VmSpec::default()
    };
    let most = VmSpec {
        datacenter: Some("dc"),
        folder: Some("folder"),
        datastore: Some("store"),
        resource_pool: Some("pool"),
        disk_gib: Some(40),
        user_data: Some(sealed("secret", "key")),
        ..least.clone()
    };
    let requests = [
        asks(vm::task("task-1")),
        asks(vm::by_instance_uuid("9d0c")),
        asks(vm::get("vm-1")),
        asks(vm::metadata("vm-1")),
        asks(vm::nics("vm-1")),
        asks(vm::power("vm-1")),
        acts(vm::clone_vm(&least)),
        acts(vm::clone_vm(&most)),
        acts(vm::reconfigure("vm-1", "instance-id: web-1")),
        acts(vm::power_on("vm-1")),
        acts(vm::power_off("vm-1")),
        acts(vm::destroy("vm-1")),
    ];
    let catalogued = [
        catalogue::vm::operations(VISIBLE_WITHIN),
        catalogue::task::operations(),
    ];
    agree(&vm::OPERATIONS, catalogued.concat(), &requests);
}

#[test]
fn what_the_sdk_asks_of_drivers_of_machines_is_what_the_catalogue_has() {
    let specification = Map::from_iter([("size".to_owned(), json!("small"))]);
    let least = machine::Known {
        name: "web-1",
        provider_id: None,
        provider_spec: None,
        user_data: None,
    };
    let most = machine::Known {
        provider_id: Some("cloud:///web-1"),
        provider_spec: Some(&specification),
        user_data: Some(sealed("secret", "key")),
        ..least
    };
    let creation = machine::Creation {
        name: "web-1",
        provider_spec: Some(&specification),
        user_data: Some(sealed("secret", "key")),
        bootstrap_token: Some(sealed("token", "key")),
    };
    let requests = [
        asks(machine::status(&least)),
        asks(machine::status(&most)),
        asks(machine::list()),
        asks(machine::volumes(&[json!({"csi": {}})])),
        acts(machine::create(&creation)),
        acts(machine::delete(&most)),
        acts(machine::initialize(&most)),
        acts(machine::delete_orphan(&machine::Row {
            name: "web-1".to_owned(),
            provider_id: "cloud:///web-1".to_owned(),
            owner: "u-1".to_owned(),
        })),
    ];
    let catalogued = catalogue::machine::operations(VISIBLE_WITHIN);
    // That of orphans is for whoever sweeps, and not among those that a policy of machines needs.
    let named = [&machine::OPERATIONS[..], &[machine::DELETE_ORPHAN]].concat();
    agree(&named, catalogued, &requests);
}

#[test]
fn what_the_sdk_asks_of_providers_of_pools_is_what_the_catalogue_has() {
    let texts = BTreeMap::from([("containerd".to_owned(), "1.7.1".to_owned())]);
    let tier = Tier::ControlPlane;
    let taints = [Taint {
        key: "a".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    }];
    let node = Registration {
        machine: "m-1",
        labels: &texts,
        taints: &taints,
    };
    let join = Join {
        node,
        role: tier,
        token: sealed("token", "key"),
        certificate_key: Some(sealed("token", "certificate")),
    };
    let wanted = Wanted {
        pool: "cp",
        provider: "static",
        tier,
    };
    let addition = Addition {
        name: "cp-0",
        pool: "cp",
        tier,
    };
    let requests = [
        asks(pool::list()),
        asks(pool::machines()),
        asks(vm::task("task-1")),
        acts(pool::ensure(&[wanted])),
        acts(pool::add(&addition)),
        acts(pool::remove("m-1")),
        acts(pool::install_agent("m-1", &texts, Some("v1"))),
        acts(pool::init(&node)),
        acts(pool::join(&join)),
    ];
    let catalogued = [
        catalogue::pool::operations(VISIBLE_WITHIN),
        catalogue::cluster::operations(),
        catalogue::task::operations(),
    ];
    agree(&pool::OPERATIONS, catalogued.concat(), &requests);
}

#[test]
fn what_the_sdk_asks_of_routers_is_what_the_catalogue_has() {
    let port = Port {
        network: "net".into(),
        mac: "fa:16:3e:00:00:01".into(),
    };
    let ports = [port.clone()];
    let creation = router::Creation {
        name: "edge",
        image: "image-1",
        flavor: "small",
        ports: &ports,
    };
    let named = router::Named {
        name: "edge",
        id: Some("server-1"),
    };
    let requests = [
        asks(router::resource("edge")),
        asks(router::instance(named)),
        asks(router::instance(router::Named { id: None, ..named })),
        asks(router::alive("server-1")),
        asks(router::interfaces("server-1")),
        asks(router::stats("server-1")),
        asks(router::image("image-1")),
        asks(router::port(&port)),
        asks(vm::task("task-1")),
        acts(router::boot(&creation)),
        acts(router::delete("server-1")),
        acts(router::delete_ports("edge")),
        acts(router::push("server-1", &ports)),
        acts(router::attach("server-1", &port)),
        acts(router::detach("server-1", &port)),
    ];
    let catalogued = [
        catalogue::router::operations(VISIBLE_WITHIN),
        catalogue::task::operations(),
    ];
    agree(&router::OPERATIONS, catalogued.concat(), &requests);
}

#[test]
fn what_the_sdk_asks_of_the_machine_of_an_agent_is_what_the_catalogue_has() {
    let versions = agent::Versions::from([("containerd".to_owned(), "1.7.1".to_owned())]);
    let requests = [
        asks(agent::seed("node-1")),
        asks(agent::versions("node-1", versions.keys())),
        asks(agent::work("node-1")),
        asks(agent::reboot_required("node-1")),
        acts(agent::ensure("node-1", &versions, None)),
        acts(agent::ensure("node-1", &versions, Some(agent::Upgrade::Apply))),
        acts(agent::ensure("node-1", &versions, Some(agent::Upgrade::Node))),
        acts(agent::initialized("node-1")),
        acts(agent::reboot("node-1", "boot-1")),
    ];
    agree(&agent::OPERATIONS, catalogue::node::operations(), &requests);
}
