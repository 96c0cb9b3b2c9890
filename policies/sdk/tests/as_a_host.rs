//! The test kit does with a policy what a host does: it takes nothing that the manifest does not declare, hands over what
//! a watch knows, fills the configuration in, and merges what is concluded.

use crate::thing::{self, Thing};
use polity_sdk::cloud::vm;

use polity_sdk::kube::drain::Pod;
use polity_sdk::prelude::*;
use polity_sdk::test::World;
use polity_sdk::{ActInDoubt, Resolution};
use serde_json::{Value, json};

type Cx = Context<Thing, Value>;

fn manifest() -> Manifest {
    Manifest::lifecycle("thing", "1").governs::<Thing>()
}

/// A world whose policy has this manifest, in which every act can be done.
fn world(manifest: &Manifest) -> World {
    let mut world = thing::world().manifest(manifest);
    world.performs(vm::power_on("a"), json!({"task": "t"}));
    world
}

async fn sees(cx: Cx) -> Result<Next, Failure> {
    cx.object_mut().status.seen = Some("it".into());
    Ok(Next::settled())
}

#[test]
#[should_panic(
    expected = "the policy writes status.seen, which its manifest does not declare: add it to Manifest::writes"
)]
fn a_path_that_the_manifest_does_not_declare_is_not_written() {
    world(&manifest().writes(["status.mode", "status.see"])).pass(sees);
}

#[test]
fn a_path_below_a_declared_one_is_written() {
    let mut world = world(&manifest().writes(["status"]));
    world.pass(sees);
    assert_eq!(world.status()["seen"], "it");
}

/// Whatever is declared.
fn told(path: &'static str) -> impl Fn(Cx) -> std::future::Ready<Result<Next, Failure>> {
    move |cx| {
        let (mut thing, now) = (cx.object_mut(), cx.now());
        match path {
            "metadata.name" => thing.metadata.name = "other".into(),
            kind => {
                let status = ConditionStatus::True;
                thing.status.conditions.set(now, kind, status, "Because", "");
            }
        }
        std::future::ready(Ok(Next::settled()))
    }
}

#[test]
#[should_panic(expected = "the policy writes status.conditions[polity.dev/Slowed], which is the host's")]
fn a_condition_of_the_host_is_not_written_even_if_it_is_declared() {
    world(&manifest().writes(["status"])).pass(told("polity.dev/Slowed"));
}

#[test]
#[should_panic(expected = "the policy writes metadata.name, which is the API server's")]
fn a_field_of_the_api_server_is_not_written_even_if_it_is_declared() {
    world(&manifest().writes(["metadata"])).pass(told("metadata.name"));
}

#[test]
#[should_panic(expected = "the policy writes status.conditions[Ready], which its manifest does not declare")]
fn a_condition_is_declared_by_its_type() {
    world(&manifest().writes(["status.conditions[Reachable]"])).pass(told("Ready"));
}

async fn powers_on(cx: Cx) -> Result<Next, Failure> {
    cx.act(vm::power_on("a")).await?;
    Ok(Next::settled())
}

#[test]
#[should_panic(
    expected = r#"the policy requests vm.power-on {"id":"a"}, which its manifest does not declare: add Need::Cloud("vm.power-on") to Manifest::needs"#
)]
fn an_operation_that_the_manifest_does_not_declare_is_not_performed() {
    world(&manifest().needs_cloud(["vm.power", "vm.power-off"])).pass(powers_on);
}

#[test]
fn an_operation_is_declared_by_its_name_or_how_it_begins_or_granted_by_the_binding() {
    let acts = |mut world: World| world.pass(powers_on).acts().len();
    assert_eq!(acts(world(&manifest().needs_cloud(["vm.power-on"]))), 1);
    assert_eq!(acts(world(&manifest().needs_cloud(["vm.*"]))), 1);
    let granted = [Need::Cloud("vm.power-on".into())];
    assert_eq!(acts(world(&manifest()).grants(granted)), 1);
}

async fn looks(cx: Cx) -> Result<Next, Failure> {
    let pods = cx.ask(cluster::objects::<Pod>().everywhere()).await?;
    cx.note(pods.len().to_string());
    Ok(Next::settled())
}

#[test]
#[should_panic(expected = "the policy requests list Pod, which its manifest does not declare")]
fn a_kind_that_the_manifest_does_not_declare_is_not_looked_at() {
    world(&manifest().needs(Need::Evict)).pass(looks);
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": {}})
}

#[test]
fn what_the_last_pass_used_is_in_the_journal_from_the_start_as_it_is_now() {
    let mut world = world(&manifest().needs(Need::objects_of::<Pod>()));
    world.exists(pod("a"));
    let first = world.pass(looks);
    assert_eq!(
        (first.requests().concat().len(), first.notes),
        (1, vec!["1".to_owned()])
    );
    world.exists(pod("b"));
    let second = world.pass(looks);
    assert_eq!((second.steps.len(), second.notes), (0, vec!["2".to_owned()]));
}

#[test]
#[should_panic(expected = "is answered from before the act: say ask_again")]
fn a_look_after_an_act_is_answered_from_before_it_once_a_watch_knows_the_answer() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        cx.act(vm::power_on("a")).await?;
        cx.ask(cluster::object::<Pod>("a").namespace("shop")).await?;
        Ok(Next::settled())
    }
    let mut world = world(&manifest().needs(Need::objects_of::<Pod>()).needs_cloud(["vm.*"]));
    world.exists(pod("a"));
    // In the first pass nobody has asked for it before.
    assert_eq!(world.pass(policy).acts().len(), 1);
    world.pass(policy);
}

#[derive(JsonSchema)]
#[allow(dead_code, reason = "its schema is looked at")]
struct Settings {
    #[schemars(default = "period")]
    period: String,
    #[schemars(default)]
    size: Option<u32>,
}

fn period() -> String {
    "30s".into()
}

#[test]
fn a_configuration_has_the_defaults_of_its_schema() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        cx.note(cx.config().to_string());
        Ok(Next::settled())
    }
    let world = || world(&manifest().config::<Settings>());
    assert_eq!(world().pass(policy).notes, [r#"{"period":"30s"}"#]);
    let given = json!({"period": "1m", "size": 3});
    assert_eq!(
        world().config(given.clone()).pass(policy).notes,
        [given.to_string()]
    );
}

#[test]
fn a_list_with_keys_is_merged_so_that_the_hosts_finalizer_stays() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        cx.act(vm::power_on("a")).await?;
        cx.object_mut()
            .metadata
            .finalizers
            .push("example.com/mine".into());
        Ok(Next::settled())
    }
    let manifest = manifest()
        .needs_cloud(["vm.power-on"])
        .finalizer("example.com/held")
        .writes(["metadata.finalizers"]);
    let mut world = world(&manifest);
    world.edit(json!({"metadata": {"finalizers": ["example.com/theirs"]}}));
    world.pass(policy);
    assert_eq!(
        world.object().expect("it stands")["metadata"]["finalizers"],
        json!(["example.com/theirs", "example.com/held", "example.com/mine"])
    );
}

#[test]
fn a_pass_with_a_create_in_doubt_keeps_its_finalizer_and_the_next_one_removes_it() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let mut thing = cx.object_mut();
        thing
            .metadata
            .finalizers
            .retain(|held| held != "example.com/held");
        Ok(Next::settled())
    }
    let manifest = manifest().finalizer("example.com/held");
    for (resolution, is_kept) in [
        (Resolution::Done("{}".into()), true),
        (Resolution::Unknown("the cloud is down".into()), true),
        (Resolution::Absent, false),
    ] {
        let mut world = world(&manifest);
        world.edit(json!({"metadata": {"finalizers": ["example.com/held", "example.com/theirs"]}}));
        world.set_pending(vec![ActInDoubt {
            operation: "vm.clone".into(),
            intent: "t".into(),
            since: 0,
            resolution,
        }]);
        let held = |world: &World| {
            let object = world.object().expect("it stands");
            object["metadata"]["finalizers"]
                .to_string()
                .contains("example.com/held")
        };
        let next = world.pass(policy).next;
        assert_eq!(held(&world), is_kept);
        assert_eq!(next == Next::retry(RetryClass::Medium), is_kept, "{next:?}");
        world.pass(policy);
        assert!(!held(&world));
    }
}

#[test]
fn the_clusters_selectors_are_those_of_kubernetes() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let pods = cx
            .ask(cluster::objects::<Pod>().everywhere().labels("app in (a,b),!old"))
            .await?;
        cx.note(pods.len().to_string());
        Ok(Next::settled())
    }
    let mut world = world(&manifest().needs(Need::objects_of::<Pod>()));
    for (name, labels) in [
        ("a", json!({"app": "a"})),
        ("b", json!({"app": "b", "old": ""})),
        ("c", json!({"app": "c"})),
    ] {
        let mut pod = pod(name);
        pod["metadata"]["labels"] = labels;
        world.exists(pod);
    }
    assert_eq!(world.pass(policy).notes, ["1"]);
}
