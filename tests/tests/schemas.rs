//! Every schema that is shipped is one that the host understands: those of the configurations of policies and drivers, of the
//! clouds that a binding names, and of the catalogue.

use std::time::Duration;

use polity_clouds::catalogue::{Named, cluster, credential_plan, machine, pool, router, task, vm};
use polity_clouds::node;
use polity_kube_rules::schema::{Dialect, compile};
use polity_tests::guests;
use serde_json::{Value, json};

const POLICIES: [&str; 12] = [
    "capv-machine",
    "capa-identity",
    "mcm-machine",
    "mcm-machineclass",
    "mcm-machineset",
    "mcm-identity",
    "mcm-safety",
    "orbiter",
    "orbiter-node-agent",
    "rug-router",
    "mcm-retry",
    "backoff-retry",
];
const DRIVERS: [&str; 3] = ["aws", "vsphere", "openstack"];

fn understood(what: &str, schema: &Value) {
    if let Err(causes) = compile(Dialect::Json, "", schema) {
        panic!("{what}: {causes}");
    }
}

#[test]
fn the_configurations_of_policies_and_drivers_have_schemas_that_the_host_understands() {
    for policy in POLICIES {
        understood(policy, &guests::load(policy).manifest().config_schema);
    }
    for driver in DRIVERS {
        let file = guests::folder().join(format!("polity_driver_{driver}.wasm"));
        let driver = guests::sandbox().load_driver(&std::fs::read(file).expect("it is compiled"));
        let manifest = driver.expect("it loads").manifest().to_owned();
        let manifest: Value = serde_json::from_str(&manifest).expect("it is JSON");
        understood(&manifest["name"].to_string(), &manifest["configSchema"]);
    }
}

#[test]
fn the_clouds_that_bindings_name_have_schemas_that_the_host_understands() {
    for adapter in [polity_sim::ADAPTER, node::ADAPTER] {
        understood(adapter.name, &(adapter.schema)());
        (adapter.check)(Some(&json!({"no such field": 1}))).expect_err("the schema refuses it");
    }
}

#[test]
fn the_catalogue_has_schemas_that_the_host_understands() {
    let later = Duration::ZERO;
    let services: [Vec<Named>; 7] = [
        cluster::operations(),
        machine::operations(later),
        polity_clouds::catalogue::node::operations(),
        pool::operations(later),
        router::operations(later),
        task::operations(),
        vm::operations(later),
    ];
    for (name, operation) in services.into_iter().flatten() {
        understood(name, &operation.arguments);
        understood(name, &operation.answer);
    }
    understood("credential", &credential_plan().schema);
}
