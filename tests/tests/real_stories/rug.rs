//! Virtual routers: each has one VM, which is booted, restarted, plugged and rebuilt, and which is removed before its
//! router.

use polity_core::contract::{Next, ObjectRef};
use polity_sim::{RouterView, Sim, Simulated as _};
use polity_tests::host_fixture::reference;
use polity_tests::host_harness::rug::{self, RUG, binding, mac, port, ports, router};
use serde_json::{Value, json};

use crate::real_stories::scene::{Scene, Setting, alike, changes, condition, named};
use crate::real_stories::seen::some;

/// What a person sees of a router. Which VM it is the cloud draws.
const ROUTER: [&str; 14] = [
    "metadata.finalizers",
    "metadata.annotations",
    "spec",
    "status.machineState",
    "status.action",
    "status.vm",
    "status.queue",
    "status.neutronStatus",
    "status.rebuildImageUUID",
    "status.rebuildRequest",
    "status.readRequest",
    "status.ports",
    "status.withheld",
    "status.conditions",
];
/// Edges of polls, and of looks at what takes its time: how many there are is nobody's agreement.
const WAITS: [&str; 8] = ["02", "04", "11", "16", "18", "28", "X10", "X14"];

#[test]
fn a_router_comes_back_is_changed_and_is_gone_after_its_vm() {
    alike(routers, lives);
}

#[test]
fn a_router_without_its_image_is_given_up_and_one_without_its_port_waits_for_it() {
    alike(routers, is_refused);
}

/// Routers whose policy waits for a second at most, but where a slow machine would be taken for a failure.
fn routers() -> Setting {
    let configuration = json!({
        "retryDelay": "100ms", "healthCheckPeriod": "1s", "errorStateCooldown": "1s", "hotplugTimeout": "5m",
    });
    let mut routers = binding(configuration);
    routers["spec"]["limits"] = json!({"burst": 100, "refill": 50});
    let short = json!({"min": "100ms", "max": "100ms"});
    Setting {
        bindings: vec![routers],
        overrides: json!({
            "images": [{"id": "image-1"}, {"id": "image-2"}],
            "routers": {"build": short, "boot": short, "plug": short, "stop": short}, "tasks": {"push": short},
        }),
        mortals: vec![reference(RUG, "Router", None, "").kind],
        ..Setting::default()
    }
}

/// Its VM is alive and configured, and nothing is left to do but to look again.
fn rests(router: &Value) -> bool {
    let status = &router["status"];
    status["machineState"] == "CALC_ACTION"
        && status["queue"] == json!([])
        && status["vm"] == "C"
        && status["observedGeneration"] == router["metadata"]["generation"]
}

async fn until_it_rests(scene: &Scene, of: &ObjectRef, holds: impl Fn(&Value) -> bool) -> Value {
    let router = scene.until(of, |router| rests(router) && holds(router)).await;
    // It is seen before the pass that wrote it has ended.
    scene
        .until_last_pass(of, |pass| matches!(pass.next, Some(Next::Settled(_))))
        .await;
    router
}

/// The edges that a router took after so many passes, without waits.
fn way(scene: &Scene, of: &ObjectRef, after: usize) -> Vec<String> {
    let passes = scene.passes_of(of);
    let edges = passes[after..].iter().flat_map(|pass| pass.notes());
    let edges = edges.map(|edge| edge.trim_start_matches("RUG-").to_owned());
    edges.filter(|edge| !WAITS.contains(&edge.as_str())).collect()
}

fn done(scene: &Scene, of: &ObjectRef) -> usize {
    scene.passes_of(of).len()
}

fn vms(scene: &Scene) -> Vec<RouterView> {
    simulated(scene, Sim::routers)
}

/// The only VM.
fn vm(scene: &Scene) -> RouterView {
    let vms = vms(scene);
    assert_eq!(vms.len(), 1, "{vms:?}");
    vms[0].clone()
}

fn simulated<T>(scene: &Scene, at: impl FnOnce(&mut Sim, u64) -> T) -> T {
    let clouds = scene.site.clouds.all();
    let mut simulated = clouds.iter().filter_map(|cloud| cloud.simulation());
    simulated.next().expect("a simulated cloud").inspect(at)
}

async fn annotate(scene: &Scene, of: &ObjectRef, annotations: Value) {
    let patch = json!({"metadata": {"annotations": annotations}});
    scene.edit(of, None, patch).await;
}

async fn lives(scene: &mut Scene) {
    let r1 = named(&scene.create(&router("r-1", &[1])).await);
    let made = until_it_rests(scene, &r1, |_| true).await;
    scene.sees("it runs", some(&made, &ROUTER));
    assert_eq!(way(scene, &r1, 0), ["01", "03", "13", "17", "21"]);
    assert_eq!(made["status"]["instance"], *vm(scene).id);

    let first = made["status"]["instance"].clone();
    let before = done(scene, &r1);
    rug::remove(&scene.site, &vm(scene));
    let back = until_it_rests(scene, &r1, |router| router["status"]["instance"] != first).await;
    scene.sees("another VM runs", some(&back, &ROUTER));
    assert_eq!(way(scene, &r1, before), ["08", "13", "17", "21"]);
    assert_eq!(back["status"]["instance"], *vm(scene).id);

    let before = done(scene, &r1);
    let added = json!({"spec": {"ports": ports(&[1, 2])}});
    scene.edit(&r1, None, added).await;
    let plugged = until_it_rests(scene, &r1, |_| true).await;
    scene.sees("it has another network", some(&plugged, &ROUTER));
    assert_eq!(way(scene, &r1, before), ["09", "22", "24", "21"]);
    let running = vm(scene);
    assert_eq!(running.macs, [mac(1), mac(2)]);
    assert_eq!(running.config, Some(json!({"ports": [port(1), port(2)]})));
    assert_eq!(back["status"]["instance"], *running.id, "it ran on");

    let before = done(scene, &r1);
    let rebuild = json!({"rug.polity.dev/rebuild-image": "image-2", "request.polity.dev/rebuild": "1"});
    annotate(scene, &r1, rebuild).await;
    let rebuilt = until_it_rests(scene, &r1, |router| router["status"]["rebuildRequest"] == "1").await;
    scene.sees("it runs from another image", some(&rebuilt, &ROUTER));
    assert_eq!(way(scene, &r1, before), ["05", "29", "13", "17", "21"]);
    assert_eq!(vm(scene).image, "image-2");

    let before = done(scene, &r1);
    annotate(scene, &r1, json!({"request.polity.dev/read": "1"})).await;
    let read = until_it_rests(scene, &r1, |router| {
        router["status"]["readRequest"] == "1" && router["status"]["trafficTime"].is_string()
    });
    let read = read.await;
    scene.sees("its traffic was read", some(&read, &ROUTER));
    assert_eq!(way(scene, &r1, before), ["10", "26"]);
    assert_eq!(read["status"]["traffic"][1]["mac"], mac(2));

    let before = done(scene, &r1);
    scene.delete(&r1).await;
    scene.until_gone(&r1).await;
    scene
        .until_last_pass(&r1, |pass| pass.notes().any(|edge| edge == "RUG-X12"))
        .await;
    assert_eq!(way(scene, &r1, before), ["06", "31", "X12"]);
    assert_eq!(vms(scene), []);
    assert_eq!(simulated(scene, |sim, _| sim.router_ports()), []);
    let passes = scene.passes_of(&r1);
    let boots = passes.iter().flat_map(changes).filter(|act| act == "router.boot");
    assert_eq!(boots.count(), 3);
}

async fn is_refused(scene: &mut Scene) {
    let mut object = router("r-1", &[1]);
    object["spec"]["imageUUID"] = json!("image-9");
    let r1 = named(&scene.create(&object).await);
    let given_up = scene.until(&r1, |router| router["status"]["vm"] == "E").await;
    scene.sees("it is given up", some(&given_up, &ROUTER));
    let routers = format!("/apis/{RUG}/namespaces/default/routers");
    scene.sees_table("kubectl get routers", &routers).await;
    assert_eq!(condition(&given_up, "Ready"), json!(["False", "ImageNotFound"]));
    assert!(scene.passes_of(&r1).iter().all(|pass| changes(pass).is_empty()));

    let before = done(scene, &r1);
    scene
        .edit(&r1, None, json!({"spec": {"imageUUID": "image-1"}}))
        .await;
    let runs = until_it_rests(scene, &r1, |_| true).await;
    scene.sees("it runs from an image that is there", some(&runs, &ROUTER));
    let goes_on = way(scene, &r1, before);
    assert!(
        goes_on.ends_with(&["07", "27", "03", "13", "17", "21"].map(str::to_owned)),
        "{goes_on:?}"
    );

    // Another one wants its port as well.
    let r2 = named(&scene.create(&router("r-2", &[2, 1])).await);
    let without = until_it_rests(scene, &r2, |_| true).await;
    scene.sees("it runs without the port", some(&without, &ROUTER));
    let withheld = json!(["False", "PortOfAnotherRouter"]);
    assert_eq!(condition(&without, "PortsPlugged"), withheld);
    let macs = |scene: &Scene| vms(scene).into_iter().map(|vm| vm.macs).collect::<Vec<_>>();
    assert_eq!(macs(scene), [[mac(1)], [mac(2)]]);

    let before = done(scene, &r2);
    scene.delete(&r1).await;
    scene.until_gone(&r1).await;
    let plugged = until_it_rests(scene, &r2, |router| {
        condition(router, "PortsPlugged").is_null() && router["status"]["withheld"] == json!([])
    });
    let plugged = plugged.await;
    scene.sees("it has the port", some(&plugged, &ROUTER));
    assert_eq!(way(scene, &r2, before), ["09", "22", "24", "21"]);
    assert_eq!(macs(scene), [[mac(2), mac(1)]]);
    let passes = scene.passes_of(&r2);
    let acts: Vec<String> = passes.iter().flat_map(changes).collect();
    assert_eq!(acts, ["router.boot", "config.push", "port.attach", "config.push"]);
}
