//! Tests of the manifest, and of rules for all operations.

use std::collections::BTreeSet;
use std::time::Duration;

use polity_clouds::catalogue;
use polity_driver_openstack::OpenStack;
use polity_driver_sdk::{Code, Driver, Effect, Login, Manifest};
use polity_kube_rules::schema::{Dialect, compile};
use serde_json::{Value, json};

use crate::bench::{Bench, boot, by_id, plug, port};
use crate::cloud::MANAGEMENT;
use crate::cloud::neutron::mac;

#[test]
fn the_driver_has_every_operation_of_routers_and_the_look_at_tasks() {
    let manifest = OpenStack::manifest();
    let of = |service: &str| -> BTreeSet<String> {
        let mut services = manifest.implements.iter();
        let found = services
            .find(|known| known.service == service)
            .expect("a service");
        found.operations.iter().cloned().collect()
    };
    let operations = catalogue::router::operations(Duration::from_secs(90));
    let catalogued: BTreeSet<String> = operations.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(of("router@1"), catalogued);
    assert_eq!(of("task@1"), BTreeSet::from(["task.get".to_owned()]));
    assert!(
        operations
            .iter()
            .all(|(_, operation)| operation.service == "router@1")
    );
    let lingers = manifest.implements[0].lingers.iter().collect::<Vec<_>>();
    assert_eq!(lingers, [(&"router.boot".to_owned(), &75_000)]);
    let mut bench = Bench::new();
    for operation in catalogued {
        let answer = bench.perform(&operation, json!({}));
        assert!(
            !matches!(answer, Err(failure) if failure.code == Code::Unimplemented),
            "{operation}"
        );
    }
    assert_eq!(
        bench.perform("vm.get", json!({})).unwrap_err().code,
        Code::Unimplemented
    );
}

#[test]
fn the_manifest_names_the_endpoints_of_keystone_and_the_appliance() {
    let manifest = OpenStack::manifest();
    assert_eq!(manifest.login, Login::Keystone);
    for name in ["compute", "network", "image"] {
        let endpoint = &manifest.endpoints[name];
        assert_eq!(
            (endpoint.service.as_str(), endpoint.dynamic, endpoint.soap),
            (name, None, false)
        );
    }
    assert_eq!(manifest.endpoints["appliance"].dynamic, Some(5_000));
    assert_eq!((manifest.stamp, &manifest.stamps[..]), (1, &[1][..]));
    let read: Manifest = serde_json::from_str(&manifest.to_json()).unwrap();
    assert_eq!(read, manifest);
}

#[test]
fn the_schema_of_the_configuration_says_what_the_driver_reads() {
    let schema = OpenStack::manifest().config_schema;
    let schema = compile(Dialect::Json, "", &schema).unwrap();
    let is_valid = |value: &Value| schema.check(value).is_ok();
    let whole = json!({
        "managementNetwork": MANAGEMENT, "tagPrefix": "p", "routers": "objects", "clockSkewSeconds": 5,
    });
    assert!(is_valid(&whole) && is_valid(&json!({"managementNetwork": "m"})));
    for wrong in [
        json!({}),
        json!({"managementNetwork": ""}),
        json!({"managementNetwork": "m", "other": 1}),
        json!({"managementNetwork": "m", "routers": "nowhere"}),
        json!({"managementNetwork": "m", "clockSkewSeconds": -1}),
        json!({"managementNetwork": "m", "tagPrefix": ""}),
    ] {
        assert!(!is_valid(&wrong), "{wrong}");
    }
}

#[test]
fn operations_that_read_change_nothing_and_the_others_send_what_they_are() {
    let mut bench = Bench::new();
    bench.cloud().port_for("net-1", 1, "edge");
    bench.cloud().port_for("net-2", 2, "edge");
    bench.cloud().router("edge", &["polity-tenant:tenant-1"]);
    let id = bench.call("router.boot", boot("edge", &[1])).unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    bench.cloud().row(&id)["status"] = json!("ACTIVE");
    let counted = json!([{"lladdr": mac(1), "rx_bytes": 1, "tx_bytes": 2}]);
    bench.cloud().appliance_at("10.0.0.90", counted);
    let named = json!({"name": "edge"});
    for (operation, arguments, changes) in [
        ("image.get", json!({"image": "image-1"}), 0),
        ("port.get", port(1), 0),
        ("router.resource", named.clone(), 0),
        ("router.get", named.clone(), 0),
        ("router.alive", by_id(&id), 0),
        ("router.interfaces", by_id(&id), 0),
        ("router.stats", by_id(&id), 0),
        ("config.push", json!({"id": id, "config": {}}), 1),
        ("port.attach", plug(&id, 2), 1),
        ("port.detach", plug(&id, 2), 1),
        ("router.delete-ports", named, 1),
        ("router.delete", by_id(&id), 1),
    ] {
        bench.call(operation, arguments).unwrap();
        let sent: Vec<Effect> = bench.play.changes().map(|request| request.effect).collect();
        assert_eq!(sent, vec![Effect::Change; changes], "{operation}");
        let reads = bench
            .play
            .sent
            .iter()
            .filter(|request| request.effect == Effect::Read);
        assert!(
            reads.into_iter().all(|request| request.method == "GET"),
            "{operation}"
        );
    }
}

#[test]
fn no_secret_reaches_the_driver() {
    let mut bench = Bench::new();
    bench.cloud().server("edge");
    bench.call("router.get", json!({"name": "edge"})).unwrap();
    // The fake shows user data, a profile and a password. The driver keeps only the fields that it reads.
    for request in &bench.play.sent {
        let of_server = |path: &&String| path.starts_with("servers.") || path.starts_with("ports.");
        let kept: Vec<&String> = request.keep.iter().filter(of_server).collect();
        assert!(!kept.is_empty());
        assert!(
            !kept
                .iter()
                .any(|path| path.ends_with("metadata") || path.contains("profile")),
            "{kept:?}"
        );
    }
}

#[test]
fn a_router_and_its_ports_are_left_alone_by_everybody_but_its_owner() {
    let mut bench = Bench::new();
    bench.cloud().port_for("net-1", 1, "edge");
    bench.cloud().port_for("net-2", 2, "edge");
    bench.cloud().router("edge", &["polity-tenant:tenant-1"]);
    let booted = bench.call("router.boot", boot("edge", &[1])).unwrap();
    let id = booted["id"].as_str().unwrap().to_owned();
    bench.cloud().row(&id)["status"] = json!("ACTIVE");
    bench.cloud().appliance_at("10.0.0.90", json!([]));
    let named = json!({"name": "edge"});
    let names = [
        ("router.boot", boot("edge", &[1, 2])),
        ("port.get", port(1)),
        ("router.resource", named.clone()),
        ("router.get", named.clone()),
        ("router.alive", by_id(&id)),
        ("router.interfaces", by_id(&id)),
        ("router.stats", by_id(&id)),
        ("config.push", json!({"id": id, "config": {}})),
        ("port.attach", plug(&id, 2)),
        ("port.detach", plug(&id, 1)),
        ("router.delete-ports", named),
        ("router.delete", by_id(&id)),
    ];
    // Images have no owner, and a task is only read.
    bench
        .play
        .is_left_alone_by_others::<OpenStack>(&names, &["image.get", "task.get"]);
}
