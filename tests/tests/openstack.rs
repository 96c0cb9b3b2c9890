//! The policy of routers on OpenStack: the driver is a component, the host a process, and the services of the cloud are
//! those that OpenStack publishes.

use std::collections::BTreeSet;
use std::time::Duration;

use polity_core::contract::Kind;
use polity_tests::openstack::{OpenStack, PASSWORD, Service, TOKEN_BEGINS};
use polity_tests::simulation::seed::Chance;
use serde_json::{Value, json};

use crate::process::{LOOK_EVERY, Process, has_none_of};

/// What the cloud has from the beginning, as `tests/assets/openstack/seed.py` says.
pub(crate) const OFFICE: &str = "70617274-0000-4000-8000-000000000002";
const GUESTS: &str = "70617274-0000-4000-8000-000000000003";
const SECOND_IMAGE: &str = "70617274-0000-4000-8000-000000000012";
/// How many ports it has.
const PORTS: usize = 4;

pub(crate) fn kind() -> Kind {
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
pub(crate) fn rests(router: &Value) -> bool {
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

/// Deletes all routers, and waits until nothing of them is left.
async fn clean_up(cloud: &OpenStack, host: &mut Process) {
    for router in host.objects(&kind()).await {
        host.delete(&kind(), &router).await;
    }
    host.until(&kind(), <[Value]>::is_empty).await;
    nothing_is_left(cloud);
    assert_eq!(beside_another(cloud), Vec::<String>::new());
    let recorded = host.recorded();
    assert!(recorded.contains("router.boot"));
    has_none_of(&recorded, &[PASSWORD, TOKEN_BEGINS]);
}

#[tokio::test]
async fn routers_come_and_go_on_openstack_however_often_the_host_is_killed() {
    let cloud = match OpenStack::start() {
        Ok(cloud) => cloud,
        Err(skip) => return skip.print(),
    };
    let mut host = begin(&cloud).await;
    // Nova has taken a boot, and the host does not know it yet, or has just been told. Of a boot that was not sent, the
    // next host is sure only when nova cannot go on with it any more.
    let in_doubt = |routers: &[Value]| {
        let mut routers = routers.iter();
        let is_in_doubt = |router: &Value| router["status"]["pending"][0].is_object();
        let is_told = |router: &Value| router["status"]["instance"].is_string();
        let servers = cloud.servers();
        routers.any(|router| {
            let name = &router["metadata"]["name"];
            let is_taken = servers.iter().any(|server| server["name"] == *name);
            is_told(router) || is_in_doubt(router) && is_taken
        })
    };
    host.until(&kind(), in_doubt).await;
    host.kill().await;
    let routers = host.until(&kind(), all_rest).await;
    assert_eq!(cloud.servers().len(), 2, "one for each router");
    a_port_is_plugged_in_while_the_server_runs(&cloud, &mut host, named(&routers, "edge")).await;
    a_server_is_replaced_by_one_of_another_image(&cloud, &mut host, named(&routers, "branch")).await;
    for router in &routers {
        host.delete(&kind(), router).await;
    }
    host.kill().await;
    clean_up(&cloud, &mut host).await;
    assert_eq!(cloud.deleted_servers().len(), 3);
}

fn ports_of_edge() -> Value {
    json!([{"network": OFFICE, "mac": "fa:16:3e:00:00:01"}, {"network": GUESTS, "mac": "fa:16:3e:00:00:02"}])
}

fn has_both(routers: &[Value]) -> bool {
    let edge = named(routers, "edge");
    let ports = edge["status"]["ports"].as_array();
    rests(edge) && ports.is_some_and(|ports| ports.len() == 2)
}

async fn a_port_is_plugged_in_while_the_server_runs(cloud: &OpenStack, host: &mut Process, edge: &Value) {
    let server = edge["status"]["instance"].as_str().expect("an id");
    let ports = ports_of_edge();
    let patch = json!({
        "metadata": {"annotations": {"request.polity.dev/read": "1"}},
        "spec": {"ports": ports},
    });
    host.patch(edge, patch).await;
    let plugs = |routers: &[Value]| named(routers, "edge")["status"]["machineState"] == "REPLUG_VM";
    host.until(&kind(), plugs).await;
    host.kill().await;
    let routers = host.until(&kind(), has_both).await;
    let status = &named(&routers, "edge")["status"];
    assert_eq!(status["instance"], server, "it runs all the time");
    assert_eq!(macs(&status["traffic"]), macs(&ports));
    assert_eq!(macs(&cloud.configuration(server)["ports"]), macs(&ports));
}

async fn a_server_is_replaced_by_one_of_another_image(cloud: &OpenStack, host: &mut Process, branch: &Value) {
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

#[tokio::test]
async fn a_slow_attach_is_cut_and_looked_for_and_takes_no_server_down() {
    let cloud = match OpenStack::start() {
        Ok(cloud) => cloud,
        Err(skip) => return skip.print(),
    };
    let mut host = begin(&cloud).await;
    let routers = host.until(&kind(), all_rest).await;
    let edge = named(&routers, "edge");
    let server = edge["status"]["instance"].as_str().expect("an id");
    let slow = json!({"metadata": {"attach-seconds": "15"}});
    let path = format!("/servers/{server}/metadata");
    let (status, answer) = cloud.send(Service::Compute, "POST", &path, Some(&slow));
    assert_eq!(status, 200, "nova takes it: {answer}");
    host.patch(edge, json!({"spec": {"ports": ports_of_edge()}}))
        .await;
    let routers = host.until(&kind(), has_both).await;
    let status = &named(&routers, "edge")["status"];
    assert_eq!(status["instance"], server, "it runs all the time");
    assert_eq!(
        macs(&cloud.configuration(server)["ports"]),
        macs(&ports_of_edge())
    );
    clean_up(&cloud, &mut host).await;
    assert_eq!(cloud.deleted_servers().len(), 2);
}

/// Boots a server with these networks, as the driver does, and returns its id. Its spawn takes some seconds.
pub(crate) fn boot(cloud: &OpenStack, name: &str, networks: &Value) -> Value {
    let wanted = json!({"server": {
        "name": name, "imageRef": SECOND_IMAGE, "flavorRef": "router-small", "networks": networks,
        "metadata": {"spawn-seconds": "5"},
    }});
    let (status, answer) = cloud.send(Service::Compute, "POST", "/servers", Some(&wanted));
    assert_eq!(status, 202, "nova takes it: {answer}");
    answer["server"]["id"].clone()
}

/// Waits until a server is built, and returns its status.
async fn until_built(cloud: &OpenStack, server: &Value) -> Value {
    loop {
        let servers = cloud.servers();
        let built = servers
            .iter()
            .find(|row| row["id"] == *server && row["status"] != "BUILD");
        match built {
            Some(row) => return row["status"].clone(),
            None => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

#[tokio::test]
async fn two_boots_with_the_same_port_leave_a_server_without_it_so_the_host_must_not_send_a_second_one() {
    let cloud = match OpenStack::start() {
        Ok(cloud) => cloud,
        Err(skip) => return skip.print(),
    };
    let port = || {
        let mut ports = cloud.ports().into_iter();
        ports
            .find(|port| port["mac_address"] == "fa:16:3e:00:00:01")
            .expect("it is there")
    };
    let boot = || boot(&cloud, "twice", &json!([{"port": port()["id"]}]));
    let servers = [boot(), boot()];
    let mut works = Vec::new();
    for server in servers {
        if until_built(&cloud, &server).await == "ACTIVE" {
            works.push(server);
        }
    }
    // Usually one ends in ERROR, and gives back the port of the other one.
    let has_lost_it = |server: &Value| port()["device_id"] != *server;
    assert!(works.iter().any(has_lost_it), "a server works without its port");
    assert_eq!(beside_another(&cloud).len(), 1, "the stories would have seen it");
}

/// What people want in a round: other ports of one router, and the other one anew or gone.
async fn wish(host: &mut Process, first: &[Value], round: usize, chance: &mut Chance) {
    let routers = host.objects(&kind()).await;
    let with = |name: &str| routers.iter().find(|router| router["metadata"]["name"] == name);
    let edge = with("edge").expect("nobody deletes it");
    let ports = [
        json!({"network": OFFICE, "mac": "fa:16:3e:00:00:01"}),
        json!({"network": GUESTS, "mac": "fa:16:3e:00:00:02"}),
    ];
    let ports = &ports[..1 + round % 2];
    host.patch(edge, json!({"spec": {"ports": ports}})).await;
    match with("branch") {
        None => {
            let branch = named(first, "branch");
            let made = json!({
                "apiVersion": branch["apiVersion"], "kind": branch["kind"], "spec": branch["spec"],
                "metadata": {"name": "branch", "namespace": "team-a"},
            });
            host.cluster.apply(&made).await.expect("made again");
        }
        Some(branch) if chance.between(0, 2) == 0 => host.delete(&kind(), branch).await,
        Some(branch) => {
            let request = json!({"request.polity.dev/rebuild": round.to_string()});
            host.patch(branch, json!({"metadata": {"annotations": request}}))
                .await;
        }
    }
}

/// Waits until the host has worked for people's last wish.
async fn until_it_works(host: &mut Process) {
    let status = |routers: &[Value]| {
        routers
            .iter()
            .map(|router| router["status"].clone())
            .collect::<Vec<_>>()
    };
    let before = status(&host.objects(&kind()).await);
    host.until(&kind(), |routers| status(routers) != before).await;
}

#[tokio::test]
#[ignore = "it takes minutes: twenty kills, each at a moment by chance"]
async fn twenty_kills_at_any_moment_leave_one_server_for_each_router_and_nothing_in_the_end() {
    let cloud = match OpenStack::start() {
        Ok(cloud) => cloud,
        Err(skip) => return skip.print(),
    };
    let mut chance = Chance::new(7, 0);
    let mut host = begin(&cloud).await;
    let first = host.until(&kind(), |routers| routers.len() == 2).await;
    until_it_works(&mut host).await;
    for round in 1..=20 {
        let moment = Duration::from_millis(chance.between(0, 5_999));
        // The moment of the kill is what the test is about.
        tokio::time::sleep(moment).await;
        let shown: Vec<String> = host.objects(&kind()).await.iter().map(shown).collect();
        eprintln!("kill {round} after {moment:?}: {}", shown.join(", "));
        host.kill().await;
        wish(&mut host, &first, round, &mut chance).await;
        until_it_works(&mut host).await;
    }
    let routers = host.until(&kind(), |routers| routers.iter().all(rests)).await;
    for router in &routers {
        let server = router["status"]["instance"].as_str().expect("it has one");
        let configured = cloud.configuration(server);
        assert_eq!(macs(&configured["ports"]), macs(&router["spec"]["ports"]));
    }
    assert_eq!(cloud.servers().len(), routers.len());
    eprintln!("{} servers came and went", cloud.deleted_servers().len());
    clean_up(&cloud, &mut host).await;
}

/// A router as a line shows it.
fn shown(router: &Value) -> String {
    let status = &router["status"];
    let doubt = if is_empty(&status["pending"]) {
        ""
    } else {
        " in doubt"
    };
    let name = router["metadata"]["name"].as_str().unwrap_or_default();
    format!("{name} {}{doubt}", status["machineState"].as_str().unwrap_or("-"))
}
