//! The policy of routers on OpenStack: the driver as a component, the host as a process, and all services of the cloud as
//! OpenStack publishes them.

use std::collections::BTreeSet;

use polity_core::contract::Kind;
use polity_tests::openstack::{OpenStack, PASSWORD, TOKEN_BEGINS};
use serde_json::{Value, json};

use crate::process::Process;

/// What the cloud has from the beginning, as `tests/assets/openstack/seed.py` says.
const OFFICE: &str = "70617274-0000-4000-8000-000000000002";
const GUESTS: &str = "70617274-0000-4000-8000-000000000003";
const SECOND_IMAGE: &str = "70617274-0000-4000-8000-000000000012";
/// How many ports it has.
const PORTS: usize = 4;

fn kind() -> Kind {
    Kind {
        api_version: "rug.polity.dev/v1alpha1".into(),
        kind: "Router".into(),
    }
}

async fn begin(cloud: &OpenStack) -> Process {
    let own = [("http://127.0.0.1:35357/v3", cloud.identity())];
    Process::begin("openstack-routers", &own).await
}

/// A router that is alive and configured, and has nothing to do.
fn rests(router: &Value) -> bool {
    let status = &router["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    let is_new = status["observedGeneration"] == router["metadata"]["generation"];
    is_new
        && status["machineState"] == "CALC_ACTION"
        && is_empty(&status["queue"])
        && is_empty(&status["pending"])
        && ready.any(|ready| ready["status"] == "True")
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

fn all_rest(routers: &[Value]) -> bool {
    routers.len() == 2 && routers.iter().all(rests)
}

fn named<'a>(routers: &'a [Value], name: &str) -> &'a Value {
    let mut routers = routers.iter();
    routers
        .find(|router| router["metadata"]["name"] == name)
        .expect("it is there")
}

/// The MAC addresses of a list of ports.
fn macs(ports: &Value) -> BTreeSet<&str> {
    let ports = ports.as_array().into_iter().flatten();
    ports.filter_map(|port| port["mac"].as_str()).collect()
}

/// The servers of a name, those that are gone included, that were there beside another one.
fn beside_another(cloud: &OpenStack) -> Vec<String> {
    let mut servers = cloud.deleted_servers();
    servers.extend(cloud.servers());
    let text = |server: &Value, field: &str| server[field].as_str().unwrap_or_default().to_owned();
    servers.sort_by_key(|server| (text(server, "name"), text(server, "created")));
    let mut beside = Vec::new();
    for two in servers.windows(2) {
        let [before, after] = two else { continue };
        if before["name"] != after["name"] {
            continue;
        }
        // To the second, as `2026-11-21T10:00:00`.
        let began: String = text(after, "created").chars().take(19).collect();
        let ended: String = text(before, "OS-SRV-USG:terminated_at")
            .chars()
            .take(19)
            .collect();
        if ended.is_empty() || ended > began {
            beside.push(format!(
                "{} until {ended:?}, {} from {began}",
                before["id"], after["id"]
            ));
        }
    }
    beside
}

/// Nothing is left in the cloud that was not there before.
fn nothing_is_left(cloud: &OpenStack) {
    assert_eq!(cloud.servers(), Vec::<Value>::new());
    let ports = cloud.ports();
    assert_eq!(ports.len(), PORTS);
    for port in ports {
        assert_eq!(port["device_id"], "", "{port}");
    }
}

#[tokio::test]
async fn routers_come_and_go_on_openstack_however_often_the_host_is_killed() {
    let cloud = match OpenStack::start() {
        Ok(cloud) => cloud,
        Err(skip) => return skip.print(),
    };
    let mut host = begin(&cloud).await;
    // A boot is on its way, and may have been sent.
    let in_doubt = |routers: &[Value]| {
        let mut routers = routers.iter();
        routers.any(|router| router["status"]["pending"][0].is_object())
    };
    host.until(&kind(), in_doubt).await;
    host.kill().await;
    let routers = host.until(&kind(), all_rest).await;
    assert_eq!(cloud.servers().len(), 2, "one for each router");
    a_port_is_plugged_in_while_the_server_runs(&cloud, &mut host, named(&routers, "edge")).await;
    a_server_is_replaced_by_one_of_another_image(&cloud, &host, named(&routers, "branch")).await;
    for router in &routers {
        host.delete(&kind(), router).await;
    }
    host.kill().await;
    host.until(&kind(), <[Value]>::is_empty).await;
    nothing_is_left(&cloud);
    assert_eq!(cloud.deleted_servers().len(), 3);
    assert_eq!(beside_another(&cloud), Vec::<String>::new());
    let recorded = host.recorded();
    assert!(recorded.contains("router.boot"));
    for secret in [PASSWORD, TOKEN_BEGINS] {
        assert!(!recorded.contains(secret), "{secret}");
    }
}

async fn a_port_is_plugged_in_while_the_server_runs(cloud: &OpenStack, host: &mut Process, edge: &Value) {
    let server = edge["status"]["instance"].as_str().expect("an id");
    let ports = json!([{"network": OFFICE, "mac": "fa:16:3e:00:00:01"}, {"network": GUESTS, "mac": "fa:16:3e:00:00:02"}]);
    let patch = json!({
        "metadata": {"annotations": {"request.polity.dev/read": "1"}},
        "spec": {"ports": ports},
    });
    host.patch(edge, patch).await;
    let plugs = |routers: &[Value]| named(routers, "edge")["status"]["machineState"] == "REPLUG_VM";
    host.until(&kind(), plugs).await;
    host.kill().await;
    let has_both = |routers: &[Value]| {
        let edge = named(routers, "edge");
        rests(edge)
            && edge["status"]["ports"]
                .as_array()
                .is_some_and(|ports| ports.len() == 2)
    };
    let routers = host.until(&kind(), has_both).await;
    let status = &named(&routers, "edge")["status"];
    assert_eq!(status["instance"], server, "it runs all the time");
    assert_eq!(macs(&status["traffic"]), macs(&ports));
    assert_eq!(macs(&cloud.configuration(server)["ports"]), macs(&ports));
}

async fn a_server_is_replaced_by_one_of_another_image(cloud: &OpenStack, host: &Process, branch: &Value) {
    let server = &branch["status"]["instance"];
    let annotations =
        json!({"rug.polity.dev/rebuild-image": SECOND_IMAGE, "request.polity.dev/rebuild": "1"});
    host.patch(branch, json!({"metadata": {"annotations": annotations}}))
        .await;
    let is_replaced = |routers: &[Value]| {
        let branch = named(routers, "branch");
        rests(branch) && branch["status"]["instance"] != *server
    };
    host.until(&kind(), is_replaced).await;
    let servers = cloud.servers();
    assert_eq!(servers.len(), 2);
    let of_branch = servers.iter().find(|server| server["name"] == "branch");
    assert_eq!(of_branch.expect("it is there")["image"]["id"], SECOND_IMAGE);
}
