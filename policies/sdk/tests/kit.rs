//! The test kit fails a test that a broken policy would pass.

use std::cell::Cell;

use crate::thing::{self, Thing};
use polity_sdk::cloud::vm;
use polity_sdk::contract::Request;
use polity_sdk::prelude::*;
use polity_sdk::test::{RetryCase, World};
use serde_json::json;

type Cx = Context<Thing>;

/// A world in which every VM is off and everything can be done.
fn world() -> World {
    let mut world = thing::world();
    world.responds(|request| match request {
        Request::Ask(_) => Some(Ok(r#"{"state":"off"}"#.into())),
        Request::Act(_) => Some(Ok(r#"{"task":"t"}"#.into())),
    });
    world
}

#[test]
#[should_panic(expected = "say ask_again")]
fn an_ask_after_an_act_that_is_answered_from_before_it_fails() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        cx.ask(vm::power("a")).await?;
        cx.act(vm::power_on("a")).await?;
        cx.ask(vm::power("a")).await?;
        Ok(Next::settled())
    }
    world().pass(policy);
}

#[test]
fn branches_of_a_batch_may_ask_the_same() {
    async fn start(cx: &Cx, id: &str) -> Result<String, Failure> {
        cx.ask(vm::power("gateway")).await?;
        cx.act(vm::power_on(id)).await
    }
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let (a, b) = join!(start(&cx, "a"), start(&cx, "b"));
        a?;
        b?;
        Ok(Next::settled())
    }
    assert_eq!(world().pass(policy).acts().len(), 2);
}

#[test]
#[should_panic(expected = "was made and never awaited")]
fn a_request_that_is_never_awaited_fails() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        drop(cx.act(vm::power_on("a")));
        Ok(Next::settled())
    }
    world().pass(policy);
}

#[test]
#[should_panic(expected = "dropped without its answer")]
fn a_request_that_is_given_up_fails() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let mut asking = Box::pin(cx.ask(vm::power("a")));
        std::future::poll_fn(|task| {
            let _ = asking.as_mut().poll(task);
            std::task::Poll::Ready(())
        })
        .await;
        Ok(Next::settled())
    }
    world().pass(policy);
}

#[test]
#[should_panic(expected = "an act was performed and not used")]
fn an_act_that_the_end_does_not_rest_on_fails() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let on = cx.ask(vm::power("a")).await;
        // Wrong: once "b" is answered, the policy takes another way and forgets what it did.
        if on.is_ok() && cx.ask(vm::power("b")).await.is_ok() && !told_off(&cx) {
            cx.act(vm::power_on("a")).await?;
        }
        Ok(Next::settled())
    }
    /// State outside of the object, just what a policy must not have.
    fn told_off(cx: &Cx) -> bool {
        thread_local!(static RUNS: Cell<u32> = const { Cell::new(0) });
        let _ = cx;
        RUNS.set(RUNS.get() + 1);
        RUNS.get() > 2
    }
    world().pass(policy);
}

#[test]
#[should_panic(expected = "two runs of the same step differ")]
fn state_outside_of_the_object_fails() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        thread_local!(static RUNS: Cell<u32> = const { Cell::new(0) });
        RUNS.set(RUNS.get() + 1);
        cx.note(RUNS.get().to_string());
        Ok(Next::settled())
    }
    world().pass(policy);
}

#[test]
#[should_panic(expected = "stalled")]
fn waiting_for_nothing_fails() {
    async fn policy(_: Cx) -> Result<Next, Failure> {
        std::future::pending::<()>().await;
        Ok(Next::settled())
    }
    world().pass(policy);
}

#[test]
#[should_panic(expected = "asks for ever")]
fn asking_for_ever_fails() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        for n in 0.. {
            cx.ask(vm::power(&n.to_string())).await?;
        }
        Ok(Next::settled())
    }
    world().pass(policy);
}

#[test]
#[should_panic(expected = "no fact of this test answers vm.power")]
fn an_ask_without_a_fact_fails() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        cx.ask(vm::power("a")).await?;
        Ok(Next::settled())
    }
    thing::world().pass(policy);
}

#[test]
fn a_world_keeps_the_finalizer_before_the_first_act_and_lets_go_of_the_object_after_it() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        if cx.object().metadata.deleting() {
            cx.object_mut().metadata.remove_finalizer("example.com/held");
            return Ok(Next::settled());
        }
        cx.act(vm::power_on("a")).await?;
        Ok(Next::settled())
    }
    let manifest = Manifest::lifecycle("t", "1")
        .finalizer("example.com/held")
        .needs_cloud(["vm.power-on"]);
    let mut world = world().manifest(&manifest);
    world.pass(policy);
    assert_eq!(
        world.object().unwrap()["metadata"]["finalizers"],
        json!(["example.com/held"])
    );
    world.delete();
    assert!(world.object().is_some());
    world.pass(policy);
    assert!(world.object().is_none());
}

fn pod() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "shop", "labels": {"app": "p"}},
        "spec": {"nodeName": "n-1", "terminationGracePeriodSeconds": 10},
    })
}

/// A policy that evicts every pod.
async fn evict(cx: Cx) -> Result<Next, Failure> {
    let pods = cx
        .ask(cluster::objects::<polity_sdk::kube::drain::Pod>().everywhere())
        .await?;
    for pod in &pods {
        if let Err(failure) = cx.act(cluster::evict(pod)).await {
            return Ok(Next::failed(RetryClass::Short, failure));
        }
    }
    Ok(Next::settled())
}

#[test]
fn an_eviction_respects_budgets_and_its_pod_ends_after_its_grace_period() {
    let mut world = thing::world();
    world.exists(pod());
    world.exists(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "p"}}}, "status": {"disruptionsAllowed": 0},
    }));
    let Next::Retry(refused) = world.pass(evict).next else {
        panic!("evicted past its budget")
    };
    assert_eq!(
        refused.failure.map(|failure| failure.code),
        Some(Code::ResourceExhausted)
    );
    world.cluster().edit(
        "PodDisruptionBudget",
        "b",
        json!({"status": {"disruptionsAllowed": 1}}),
    );
    assert_eq!(world.pass(evict).next, Next::settled());
    assert_eq!(
        world.cluster().get("Pod", "p").unwrap()["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:10Z"
    );
    world.advance(std::time::Duration::from_secs(10));
    world.pass(evict);
    assert!(world.cluster().get("Pod", "p").is_none());
}

#[test]
fn an_act_on_an_object_that_somebody_else_has_written_is_aborted() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let pod = cx
            .ask(cluster::object::<polity_sdk::kube::drain::Pod>("p").namespace("shop"))
            .await?;
        cx.act(cluster::patch(&pod, json!({"metadata": {"labels": {"a": "b"}}})))
            .await?;
        // With the version from before the patch.
        cx.act(cluster::delete(&pod)).await?;
        Ok(Next::settled())
    }
    let mut world = thing::world();
    world.exists(pod());
    let Next::Retry(retry) = world.pass(policy).next else {
        panic!("not aborted")
    };
    assert_eq!(retry.failure.map(|failure| failure.code), Some(Code::Aborted));
    assert_eq!(
        world.cluster().get("Pod", "p").unwrap()["metadata"]["labels"]["a"],
        "b"
    );
}

#[test]
fn an_identity_that_needs_no_cloud_grants_the_session_that_opens_none() {
    async fn judge(cx: Cx) -> Result<Judgement, Failure> {
        let none = cx.ask(cloud::no_session()).await?;
        Ok(Judgement::granted(none.handle, Next::settled()))
    }
    let manifest = Manifest::identity("tenancy", "1");
    let (verdict, ended) = thing::world().manifest(&manifest).judge(judge);
    assert_eq!(verdict, Verdict::Granted("none".to_owned()));
    assert_eq!(ended.requests(), [["credential null"]]);
}

/// A policy whose configuration is a number of at most three.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct AtMostThree {
    #[schemars(range(max = 3))]
    times: u32,
}

fn configured(times: serde_json::Value) -> World {
    let manifest = Manifest::lifecycle("thing", "1").config::<AtMostThree>();
    thing::world()
        .manifest(&manifest)
        .config(json!({ "times": times }))
}

async fn idle(_: Context<Thing, AtMostThree>) -> Result<Next, Failure> {
    Ok(Next::settled())
}

#[test]
#[should_panic(expected = "the host refuses this configuration: times: must be 3 or less")]
fn a_configuration_that_the_host_refuses_fails() {
    configured(json!(3)).pass(idle);
    configured(json!(4)).pass(idle);
}

#[test]
#[should_panic(expected = r#"the note "T-02" is no edge of the manifest"#)]
fn a_note_that_is_no_edge_fails() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        cx.note("T-01");
        cx.note("T-02");
        Ok(Next::settled())
    }
    thing::world()
        .manifest(&Manifest::lifecycle("thing", "1"))
        .pass(policy);
    let edge = Edge::noted("T-01", "it is so");
    thing::world()
        .manifest(&Manifest::lifecycle("thing", "1").edges([edge]))
        .pass(policy);
}

#[test]
fn a_secret_of_the_world_shows_its_keys_and_a_digest_that_changes_with_its_values() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let facts = cx.ask(cluster::secret("login")).await?;
        let digest = facts.digest.unwrap_or_default();
        cx.note(format!("{} {} {digest}", facts.exists, facts.keys.join(",")));
        Ok(Next::settled())
    }
    let mut world = thing::world();
    let mut told = |values: &[(&str, &str)]| {
        world.secret("login", values.iter().copied());
        world.pass(policy).notes.remove(0)
    };
    let first = told(&[("user", "a"), ("password", "b")]);
    assert!(first.starts_with("true password,user "), "{first}");
    assert_ne!(told(&[("user", "a"), ("password", "c")]), first);
    assert_eq!(told(&[("user", "a"), ("password", "b")]), first);
    world.cluster().remove("Secret", "login");
    world.exists(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other", "namespace": "elsewhere"}}));
    assert_eq!(world.pass(policy).notes, ["false  "]);
}

#[test]
fn a_retry_case_names_the_operation_that_failed() {
    let case = RetryCase::new(RetryClass::Short)
        .operation("vm.clone")
        .code(Code::Unavailable);
    let failure = case.request().failure.expect("a failure");
    assert_eq!(
        (failure.operation.as_deref(), failure.code),
        (Some("vm.clone"), Code::Unavailable)
    );
}

#[test]
#[should_panic(expected = "the wait, in milliseconds, for")]
fn a_wait_for_a_change_is_no_wait_for_a_time() {
    let waits = RetryCase::new(RetryClass::Short).decides(Wait::on_change());
    waits.check(Wait::on_change());
    waits.check(Wait::after(Duration::ZERO));
}

#[test]
#[should_panic(expected = "before vm.power-on {\"id\":\"a\"} the policy writes status.seen")]
fn an_edit_that_is_not_declared_fails_before_the_act_that_follows_it() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        cx.object_mut().status.seen = Some("now".to_owned());
        cx.act(vm::power_on("a")).await?;
        panic!("the act was made");
    }
    let manifest = Manifest::lifecycle("thing", "1").needs_cloud(["vm.power-on"]);
    world().manifest(&manifest).pass(policy);
}
