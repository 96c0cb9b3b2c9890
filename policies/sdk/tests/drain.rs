//! Draining a node, pass by pass.

use std::time::Duration;

use polity_sdk::contract::{Act, Question, Request};
use polity_sdk::kube::drain::{Drain, Options, Pod, Progress};
use polity_sdk::kube::node::{self, Node, Taint};
use polity_sdk::prelude::*;
use polity_sdk::test::World;
use serde_json::{Value, json};

/// A machine that drains its node and says how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Host {
    metadata: Metadata,
    #[serde(default)]
    status: HostStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct HostStatus {
    drain: Drain,
    progress: String,
}

impl Kind for Host {
    const API_VERSION: &'static str = "example.com/v1";
    const KIND: &'static str = "Host";
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    force: bool,
    eviction_grace: Option<u64>,
    delete_late: bool,
}

async fn policy(cx: Context<Host, Config>) -> Result<Next, Failure> {
    let mut host = cx.object_mut();
    let mut node = cx.ask(cluster::object::<Node>("n-1")).await?;
    let options = Options {
        force: cx.config().force,
        eviction_grace: cx.config().eviction_grace.map(Duration::from_secs),
        delete_late: cx.config().delete_late,
        ..Options::default()
    };
    let progress = host.status.drain.pass(&cx, &mut node, &options).await?;
    host.status.progress = match &progress {
        Progress::Done => "done".to_owned(),
        Progress::Refused { left, failure } => format!("refused, {left} left: {}", failure.message),
        Progress::Ending { left } => format!("{left} ending"),
        Progress::Volumes => "volumes".to_owned(),
        Progress::Failed(failure) => format!("failed: {}", failure.message),
    };
    Ok(match progress {
        Progress::Done => Next::settled(),
        Progress::Refused { failure, .. } | Progress::Failed(failure) => {
            Next::failed(RetryClass::Short, failure)
        }
        Progress::Ending { .. } | Progress::Volumes => Next::after(Duration::from_secs(5)),
    })
}

fn world(force: bool) -> World {
    let mut world = World::new(json!({
        "apiVersion": "example.com/v1", "kind": "Host",
        "metadata": {"name": "h", "namespace": "home", "uid": "u"},
    }))
    .config(json!({"force": force}));
    world.exists(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-1"}}));
    world
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
        "spec": {"nodeName": "n-1"},
    })
}

fn pod_with_volume(name: &str) -> Value {
    let mut pod = pod(name);
    let claim = json!({"claimName": format!("claim-{name}")});
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": claim}]);
    pod
}

/// The claim of a pod, and its volume attached to a node.
fn attach(world: &mut World, name: &str, node: &str) {
    world.exists(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("claim-{name}"), "namespace": "shop"},
        "spec": {"volumeName": format!("pv-{name}")},
    }));
    world.exists(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": format!("{name}-{node}")},
        "spec": {"nodeName": node, "source": {"persistentVolumeName": format!("pv-{name}")}},
        "status": {"attached": true},
    }));
}

fn budget(name: &str, allowed: u32, desired: u32) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": name}}},
        "status": {"disruptionsAllowed": allowed, "expectedPods": 2, "desiredHealthy": desired},
    })
}

/// A pass, the time it asks for (5 s for a retry), and how far the drain is.
fn pass(world: &mut World) -> (Vec<String>, String) {
    let ended = world.pass(policy);
    world.wait(&ended.next, Duration::from_secs(5));
    let short = |act: String| act.split(" {").next().unwrap_or_default().to_owned();
    let acts = ended.acts().into_iter().map(short);
    (
        acts.collect(),
        world.status()["progress"].as_str().unwrap_or_default().to_owned(),
    )
}

fn expect(world: &mut World, acts: &[&str], progress: &str) {
    let (did, said) = pass(world);
    assert_eq!(
        (
            did.iter().map(String::as_str).collect::<Vec<_>>().as_slice(),
            said.as_str()
        ),
        (acts, progress)
    );
}

#[test]
fn an_empty_node_is_cordoned_and_drained_in_one_pass() {
    let mut world = world(false);
    expect(&mut world, &["patch Node n-1"], "done");
    let node = world.cluster().get("Node", "n-1").unwrap();
    assert_eq!(node["spec"]["unschedulable"], true);
    expect(&mut world, &[], "done");
}

#[test]
fn pods_are_evicted_together_and_waited_for() {
    let mut world = world(false);
    world.exists(pod("a")).exists(pod("b"));
    expect(&mut world, &["patch Node n-1", "evict a", "evict b"], "2 ending");
    expect(&mut world, &[], "2 ending");
    world.advance(Duration::from_secs(30));
    expect(&mut world, &[], "done");
}

#[test]
fn pods_of_daemon_sets_and_of_the_kubelet_stay() {
    for force in [false, true] {
        let mut world = world(force);
        let mut of_set = pod("logs");
        of_set["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "d", "controller": true}]);
        let mut of_kubelet = pod("proxy");
        of_kubelet["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        world.exists(of_set).exists(of_kubelet);
        expect(&mut world, &["patch Node n-1"], "done");
    }
}

#[test]
fn a_pod_of_another_node_stays() {
    let mut world = world(false);
    let mut other = pod("a");
    other["spec"]["nodeName"] = "n-2".into();
    world.exists(other);
    expect(&mut world, &["patch Node n-1"], "done");
}

#[test]
fn a_refused_eviction_is_tried_again_and_counted() {
    let mut world = world(false);
    world.exists(pod("a")).exists(budget("a", 0, 1));
    for times in 1..=3 {
        let ended = world.pass(policy);
        let Next::Retry(retry) = &ended.next else {
            panic!("{}", ended.next)
        };
        assert_eq!(retry.failure.as_ref().unwrap().retry_after, Some(20_000));
        assert_eq!(world.status()["drain"]["refused"], json!({"uid-a": times}));
    }
    let drain: Drain = serde_json::from_value(world.status()["drain"].clone()).unwrap();
    assert!(drain.is_exhausted(3) && !drain.is_exhausted(4));
    world.cluster().edit(
        "PodDisruptionBudget",
        "a",
        json!({"status": {"disruptionsAllowed": 1}}),
    );
    expect(&mut world, &["evict a"], "1 ending");
    assert_eq!(world.status()["drain"], json!({}));
}

/// Or an outage would end in a drain that is forced.
#[test]
fn a_server_that_cannot_evict_just_now_is_no_budget_that_refuses() {
    let mut world = world(false);
    world.exists(pod("a")).responds(|request| match request {
        Request::Act(Act::Evict(_)) => Some(Err(Failure::new(Code::Unavailable, "too busy"))),
        _ => None,
    });
    expect(&mut world, &["patch Node n-1", "evict a"], "failed: too busy");
    assert_eq!(world.status()["drain"]["refused"], Value::Null);
}

#[test]
fn a_budget_that_never_allows_fails_at_once_and_the_others_go() {
    let mut world = world(false);
    world.exists(pod("a")).exists(pod("b")).exists(budget("a", 0, 2));
    expect(
        &mut world,
        &["patch Node n-1", "evict a", "evict b"],
        "failed: pod shop/a cannot be evicted: the disruption budget a never allows it",
    );
    // Its status is about an older version of it: nothing is known.
    world
        .cluster()
        .edit("PodDisruptionBudget", "a", json!({"metadata": {"generation": 2}}));
    expect(
        &mut world,
        &["evict a"],
        "refused, 2 left: the disruption budget a is still being processed by the server",
    );
}

/// A pod in this phase, and whether it is ready.
fn pod_in(phase: &str, ready: bool) -> Value {
    let mut pod = pod("a");
    let ready = if ready { "True" } else { "False" };
    pod["status"] = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
    pod
}

/// A budget of two pods that must both stay, with this policy for those that are not ready.
fn strict(policy: Option<&str>, healthy: u32) -> Value {
    let mut budget = budget("a", 0, 2);
    budget["spec"]["unhealthyPodEvictionPolicy"] = json!(policy);
    budget["status"]["currentHealthy"] = healthy.into();
    budget
}

/// What the API server says about the same pods: `tests/tests/evictions.rs`.
#[test]
fn a_pod_that_the_api_server_evicts_is_not_held_back_by_a_budget_that_never_allows() {
    let never = "failed: pod shop/a cannot be evicted: the disruption budget a never allows it";
    for (phase, ready, policy, healthy, said) in [
        ("Pending", false, None, 1, "1 ending"),
        ("Succeeded", false, None, 1, "1 ending"),
        ("Failed", false, None, 1, "1 ending"),
        ("Failed", true, Some("IfHealthyBudget"), 2, "1 ending"),
        ("Running", false, Some("AlwaysAllow"), 1, "1 ending"),
        ("Running", true, Some("AlwaysAllow"), 2, never),
        ("Running", false, Some("IfHealthyBudget"), 2, "1 ending"),
        ("Running", false, Some("IfHealthyBudget"), 1, never),
        ("Running", false, None, 2, "1 ending"),
        ("Running", false, None, 1, never),
        ("Running", true, None, 2, never),
    ] {
        let mut world = world(false);
        world.exists(pod_in(phase, ready)).exists(strict(policy, healthy));
        let (did, progress) = pass(&mut world);
        assert_eq!(did, ["patch Node n-1", "evict a"], "{phase} {ready} {policy:?}");
        assert_eq!(progress, said, "{phase} {ready} {policy:?} {healthy}");
        if said != never {
            world.advance(Duration::from_secs(30));
            expect(&mut world, &[], "done");
        }
    }
}

#[test]
fn no_budget_is_looked_at_before_it_has_refused_a_pod() {
    let mut world = world(false);
    world.exists(pod("a")).responds(|request| match request {
        Request::Ask(ask) => match &ask.question {
            Question::Objects(query) if query.kind == "PodDisruptionBudget" => {
                Some(Err(Failure::new(Code::ResourceExhausted, "too many")))
            }
            _ => None,
        },
        Request::Act(_) => None,
    });
    expect(&mut world, &["patch Node n-1", "evict a"], "1 ending");
}

#[test]
fn a_pod_that_does_not_end_fails_the_drain_after_its_time() {
    let mut world = world(false);
    let mut stuck = pod("a");
    stuck["metadata"]["finalizers"] = json!(["example.com/never"]);
    world.exists(stuck);
    expect(&mut world, &["patch Node n-1", "evict a"], "1 ending");
    world.advance(Duration::from_secs(30 + 170));
    expect(&mut world, &[], "1 ending");
    world.advance(Duration::from_secs(10));
    expect(&mut world, &[], "failed: pod shop/a does not end");
}

#[test]
fn pods_with_volumes_leave_one_after_the_other() {
    let mut world = world(false);
    world.exists(pod_with_volume("a")).exists(pod_with_volume("b"));
    attach(&mut world, "a", "n-1");
    attach(&mut world, "b", "n-1");
    expect(&mut world, &["patch Node n-1", "evict a"], "2 ending");
    world.advance(Duration::from_secs(30));
    expect(&mut world, &[], "1 ending");
    assert_eq!(world.status()["drain"]["moving"]["stage"], "Detaching");
    world.cluster().remove("VolumeAttachment", "a-n-1");
    expect(&mut world, &[], "1 ending");
    assert_eq!(world.status()["drain"]["moving"]["stage"], "Reattaching");
    attach(&mut world, "a", "n-2");
    expect(&mut world, &["evict b"], "1 ending");
    world.advance(Duration::from_secs(30));
    world.cluster().remove("VolumeAttachment", "b-n-1");
    expect(&mut world, &[], "volumes");
    // Nobody makes the pod anew: the drain does not wait for ever.
    world.advance(Duration::from_secs(90));
    expect(&mut world, &[], "done");
}

#[test]
fn a_refused_pod_with_volumes_holds_no_other_back() {
    for desired in [1, 2] {
        let mut world = world(false);
        world
            .exists(pod_with_volume("a"))
            .exists(pod_with_volume("b"))
            .exists(pod_with_volume("c"))
            .exists(budget("a", 0, desired));
        let (did, _) = pass(&mut world);
        assert_eq!(did, ["patch Node n-1", "evict a", "evict b"]);
        world.advance(Duration::from_secs(30));
        let (did, _) = pass(&mut world);
        assert_eq!(did.last().map(String::as_str), Some("evict c"), "{did:?}");
    }
}

#[test]
fn refused_pods_with_volumes_that_are_too_many_for_a_pass_take_turns() {
    let mut world = world(false);
    for number in 0..40 {
        let name = format!("p-{number:02}");
        world.exists(pod_with_volume(&name)).exists(budget(&name, 0, 1));
    }
    let (first, _) = pass(&mut world);
    assert_eq!(first.len(), 1 + 32, "{first:?}");
    let (second, _) = pass(&mut world);
    let others: Vec<String> = (32..40).map(|number| format!("evict p-{number}")).collect();
    assert_eq!(second[..8], others[..]);
}

#[test]
fn pods_go_by_priority() {
    let mut world = world(false);
    let ranked = |mut pod: Value, priority: i32| {
        pod["spec"]["priority"] = priority.into();
        pod
    };
    world
        .exists(pod_with_volume("a"))
        .exists(ranked(pod_with_volume("b"), 7))
        .exists(ranked(pod_with_volume("c"), -7))
        .exists(pod("d"))
        .exists(ranked(pod("e"), 7));
    expect(
        &mut world,
        &["patch Node n-1", "evict e", "evict d", "evict b"],
        "5 ending",
    );
    world.advance(Duration::from_secs(30));
    expect(&mut world, &["evict a"], "2 ending");
    world.advance(Duration::from_secs(30));
    expect(&mut world, &["evict c"], "1 ending");
}

#[test]
fn a_volume_that_another_pod_on_the_node_has_is_not_waited_for() {
    let mut world = world(false);
    let mut sharing = pod_with_volume("b");
    sharing["spec"]["volumes"] = pod_with_volume("a")["spec"]["volumes"].clone();
    let mut elsewhere = pod_with_volume("a");
    elsewhere["metadata"] = json!({"name": "c", "namespace": "zoo"});
    elsewhere["spec"]["nodeName"] = "n-1".into();
    world.exists(pod_with_volume("a")).exists(sharing);
    attach(&mut world, "a", "n-1");
    expect(&mut world, &["patch Node n-1", "evict a"], "2 ending");
    assert_eq!(world.status()["drain"]["moving"], Value::Null);
    world.advance(Duration::from_secs(30));
    // The last of its pods takes it away, whatever a claim of the same name is elsewhere.
    world.exists(elsewhere);
    expect(&mut world, &["evict b"], "2 ending");
    assert_eq!(world.status()["drain"]["moving"]["volumes"], json!(["pv-a"]));
}

#[test]
fn a_pod_with_volumes_that_does_not_end_holds_the_others_back_no_longer_than_its_volumes_might() {
    let mut world = world(false);
    let mut stuck = pod_with_volume("a");
    stuck["metadata"]["finalizers"] = json!(["example.com/never"]);
    world.exists(stuck).exists(pod_with_volume("b"));
    attach(&mut world, "a", "n-1");
    attach(&mut world, "b", "n-1");
    expect(&mut world, &["patch Node n-1", "evict a"], "2 ending");
    // Its grace period, half a minute more, and two minutes for its volumes.
    world.advance(Duration::from_secs(30 + 30 + 120 - 10));
    expect(&mut world, &[], "failed: pod shop/a does not end");
    world.advance(Duration::from_secs(10));
    expect(&mut world, &["evict b"], "failed: pod shop/a does not end");
    assert_eq!(world.status()["drain"]["moving"]["uid"], "uid-b");
}

#[test]
fn volumes_that_do_not_detach_fail_the_drain_once() {
    let mut world = world(false);
    world.exists(pod_with_volume("a"));
    attach(&mut world, "a", "n-1");
    expect(&mut world, &["patch Node n-1", "evict a"], "1 ending");
    world.advance(Duration::from_secs(30));
    expect(&mut world, &[], "volumes");
    world.advance(Duration::from_secs(120));
    expect(&mut world, &[], "failed: the volumes of pod shop/a do not detach");
    expect(&mut world, &[], "done");
}

#[test]
fn a_node_has_a_volume_by_the_whole_id_of_the_cloud_and_no_part_of_one() {
    let mut node = Node::default();
    for name in [
        "kubernetes.io/csi/d^vol-1",
        "kubernetes.io/aws-ebs/aws://eu-west-1a/vol-2",
    ] {
        node.status.volumes_attached.push(node::AttachedVolume {
            name: name.to_owned(),
            device_path: String::new(),
        });
    }
    let has = ["vol-1", "vol-2", "ol-1", "vol", "vol-3", ""].map(|id| node.has_attached(id));
    assert_eq!(has, [true, true, false, false, false, false]);
}

#[test]
fn a_volume_that_is_attached_nowhere_is_not_waited_for() {
    let mut world = world(false);
    world.exists(pod_with_volume("a"));
    expect(&mut world, &["patch Node n-1", "evict a"], "1 ending");
    assert_eq!(world.status()["drain"]["moving"], Value::Null);
}

#[test]
fn a_forced_drain_deletes_without_grace_whatever_the_budget() {
    let mut world = world(true);
    world
        .exists(pod("a"))
        .exists(pod_with_volume("b"))
        .exists(budget("a", 0, 2));
    expect(
        &mut world,
        &["patch Node n-1", "delete Pod a", "delete Pod b"],
        "2 ending",
    );
    expect(&mut world, &[], "done");
}

#[test]
fn a_forced_drain_gives_up_after_its_time() {
    let mut world = world(true);
    let mut stuck = pod("a");
    stuck["metadata"]["finalizers"] = json!(["example.com/never"]);
    world.exists(stuck);
    expect(&mut world, &["patch Node n-1", "delete Pod a"], "1 ending");
    world.advance(Duration::from_secs(60));
    expect(&mut world, &[], "failed: 1 pods are left");
}

#[test]
fn a_pod_that_does_not_end_is_an_error_or_deleted_as_the_policy_says() {
    for (delete_late, acts, said) in [
        (false, &[][..], "failed: pod shop/a does not end"),
        (true, &["delete Pod a"][..], "1 ending"),
    ] {
        let mut world = world(false).config(json!({"delete_late": delete_late}));
        let mut held = pod("a");
        held["metadata"]["finalizers"] = json!(["example.com/never"]);
        world.exists(held);
        expect(&mut world, &["patch Node n-1", "evict a"], "1 ending");
        // Its own half a minute, and three minutes more.
        world.advance(Duration::from_secs(30 + 180 - 10));
        expect(&mut world, &[], "1 ending");
        world.advance(Duration::from_secs(10));
        expect(&mut world, acts, said);
    }
}

#[test]
fn evicted_pods_are_given_the_time_that_the_policy_says() {
    let mut world = world(false).config(json!({"eviction_grace": 7}));
    world.exists(pod("a"));
    expect(&mut world, &["patch Node n-1", "evict a"], "1 ending");
    world.advance(Duration::from_secs(2));
    expect(&mut world, &[], "done");
}

#[test]
fn a_node_that_was_cordoned_with_a_mark_is_uncordoned_by_it() {
    let mark = Taint {
        key: "example.com/mine".to_owned(),
        effect: "PreferNoSchedule".to_owned(),
        ..Taint::default()
    };
    let other = Taint {
        effect: "NoSchedule".to_owned(),
        ..mark.clone()
    };
    let mut node = Node::default();
    node.spec.taints = vec![mark.clone(), other.clone()];
    let _ = node::cordon_marked(&mut node, mark.clone());
    assert!(node.spec.unschedulable && node.has_taint("example.com/mine", "PreferNoSchedule"));
    assert_eq!(node.spec.taints, [other.clone(), mark.clone()]);
    assert_eq!(
        node::uncordoned(&node, &mark),
        json!({"unschedulable": null, "taints": [other]})
    );
}

/// The refusals of evictions are those of `wit/ERRORS.md`.
#[test]
fn the_kit_refuses_evictions_as_an_api_server_does() {
    async fn evict(cx: Context<Host, Config>) -> Result<Next, Failure> {
        let pod = cx.ask(cluster::object::<Pod>("a").namespace("shop")).await?;
        cx.act(cluster::evict(&pod)).await?;
        Ok(Next::settled())
    }
    let refused = |budgets: &[Value]| {
        let mut world = world(false);
        world.exists(pod("a"));
        for budget in budgets {
            world.exists(budget);
        }
        match world.pass(evict).next {
            Next::Retry(retry) => retry.failure.map(|failure| (failure.code, failure.retry_after)),
            _ => None,
        }
    };
    let mut stale = budget("a", 1, 1);
    stale["metadata"]["generation"] = 2.into();
    let mut second = budget("a", 1, 1);
    second["metadata"]["name"] = "b".into();
    assert_eq!(refused(&[budget("a", 1, 1)]), None);
    assert_eq!(
        refused(&[budget("a", 0, 1)]),
        Some((Code::ResourceExhausted, None))
    );
    assert_eq!(refused(&[stale]), Some((Code::ResourceExhausted, Some(10_000))));
    assert_eq!(
        refused(&[budget("a", 1, 1), second]),
        Some((Code::FailedPrecondition, None))
    );
}
