//! The rules of the journal, seen from a policy.

use crate::thing::{Thing, world};
use polity_sdk::cloud::vm::{self, Power};
use polity_sdk::contract::{Conclusion, IdentityStep, Pass, Request, Step};
use polity_sdk::prelude::*;
use polity_sdk::test::retry_request;
use polity_sdk::{ActInDoubt, Resolution, step};
use serde_json::{Value, json};

type Cx = Context<Thing>;

#[test]
fn asks_awaited_together_are_one_batch() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let (a, b) = join!(cx.ask(vm::power("a")), cx.ask(vm::power("b")));
        let all = join_all(["a", "c"].map(|id| cx.ask(vm::power(id)))).await;
        assert_eq!((a?, b?, all.len()), (Power::On, Power::Off, 2));
        Ok(Next::settled())
    }
    let mut world = world();
    world.answers(vm::power("a"), json!({"state": "on"}));
    world.answers(vm::power("b"), json!({"state": "off"}));
    world.answers(vm::power("c"), json!({"state": "off"}));
    let end = world.pass(policy);
    assert_eq!(
        end.requests(),
        [
            vec![r#"vm.power {"id":"a"}"#, r#"vm.power {"id":"b"}"#],
            vec![r#"vm.power {"id":"c"}"#]
        ]
    );
}

#[test]
fn asks_are_made_in_the_order_of_their_registration_and_each_gets_its_own_answer() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let all = join_all(["z", "a", "m", "a"].map(|id| cx.ask(vm::power(id)))).await;
        let all: Vec<_> = all.into_iter().collect::<Result<_, _>>()?;
        assert_eq!(all, [Power::On, Power::Off, Power::On, Power::Off]);
        Ok(Next::settled())
    }
    let mut world = world();
    for (id, state) in [("z", "on"), ("a", "off"), ("m", "on")] {
        world.answers(vm::power(id), json!({"state": state}));
    }
    let requests = world.pass(policy).requests();
    let power = |id: &str| format!(r#"vm.power {{"id":"{id}"}}"#);
    assert_eq!(requests, [["z", "a", "m"].map(power)]);
}

#[test]
fn equal_asks_share_one_answer() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let (a, b) = join!(cx.ask(vm::power("a")), cx.ask(vm::power("a")));
        assert_eq!(a?, b?);
        cx.ask(vm::power("a")).await?;
        Ok(Next::settled())
    }
    let mut world = world();
    world.answers(vm::power("a"), json!({"state": "on"}));
    assert_eq!(world.pass(policy).requests(), [[r#"vm.power {"id":"a"}"#]]);
}

#[test]
fn a_step_with_an_open_ask_returns_no_act() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let (task, power) = join!(cx.act(vm::power_on("a")), cx.ask(vm::power("b")));
        power?;
        cx.object_mut().status.seen = Some(task?);
        Ok(Next::settled())
    }
    let mut world = world();
    world.answers(vm::power("b"), json!({"state": "on"}));
    world.performs(vm::power_on("a"), json!({"task": "t-1"}));
    let end = world.pass(policy);
    assert_eq!(
        end.requests(),
        [[r#"vm.power {"id":"b"}"#], [r#"vm.power-on {"id":"a"}"#]]
    );
    assert_eq!(end.patch, Some(json!({"status": {"seen": "t-1"}})));
}

#[test]
fn the_nth_of_equal_acts_gets_the_nth_answer() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let (a, b) = join!(cx.act(vm::power_on("a")), cx.act(vm::power_on("a")));
        let third = cx.act(vm::power_on("a")).await?;
        cx.note(format!("{}{}{third}", a?, b?));
        Ok(Next::settled())
    }
    let mut world = world();
    let mut nth = 0;
    world.responds(move |_| {
        nth += 1;
        Some(Ok(json!({"task": nth.to_string()}).to_string()))
    });
    let end = world.pass(policy);
    assert_eq!(end.steps.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(end.notes, ["123"]);
}

#[test]
fn asking_again_is_another_question() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        cx.ask(vm::power("a")).await?;
        cx.act(vm::power_on("a")).await?;
        cx.note(format!("{:?}", cx.ask_again(1, vm::power("a")).await?));
        Ok(Next::settled())
    }
    let mut world = world();
    let mut on = false;
    world.responds(move |request| match request {
        Request::Act(_) => {
            on = true;
            Some(Ok(r#"{"task":"t"}"#.into()))
        }
        Request::Ask(_) => Some(Ok(json!({"state": if on { "on" } else { "off" }}).to_string())),
    });
    let end = world.pass(policy);
    assert_eq!(end.notes, ["On"]);
    assert_eq!(end.requests()[2], [r#"vm.power {"id":"a"} (round 1)"#]);
}

#[test]
fn prefetched_answers_that_go_unused_are_not_named() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        cx.ask(vm::power("b")).await?;
        Ok(Next::settled())
    }
    let ask = |id| {
        let question = polity_sdk::Ask::question(vm::power(id), None);
        Request::Ask(polity_sdk::contract::Ask { round: 0, question })
    };
    let mut pass = pass(&json!({"metadata": {"name": "t"}}));
    for id in ["a", "b"] {
        let answer = Ok(r#"{"state":"on"}"#.to_owned());
        pass.journal.push(polity_sdk::contract::Entry {
            request: ask(id),
            answer,
        });
    }
    assert_eq!(conclusion(step::lifecycle(pass, policy)).used, [1]);
}

#[test]
fn a_failure_ends_the_pass_and_keeps_the_edits() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        cx.object_mut().status.seen = Some("yes".into());
        cx.note("A");
        cx.ask(vm::power("a")).await?;
        Ok(Next::settled())
    }
    let failure = Failure::new(Code::Unavailable, "no route");
    let mut world = world();
    world.fails(vm::power("a"), failure.clone());
    let end = world.pass(policy);
    assert_eq!(end.next, Next::failed(RetryClass::Short, failure));
    assert_eq!(end.patch, Some(json!({"status": {"seen": "yes"}})));
    assert_eq!(end.notes, ["A"]);
}

#[test]
fn not_found_is_told_from_a_failure_to_look() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        cx.note(format!("{:?}", cx.ask(vm::get("a")).await.found()?.is_some()));
        cx.ask(vm::get("b")).await.found()?;
        Ok(Next::settled())
    }
    let mut world = world();
    world.lacks(vm::get("a"));
    world.fails(vm::get("b"), Failure::new(Code::Unavailable, "no route"));
    let end = world.pass(policy);
    assert_eq!(end.notes, ["false"]);
    assert!(matches!(end.next, Next::Retry(_)));
}

#[test]
fn an_object_that_does_not_decode_waits_long_and_names_the_field() {
    async fn policy(_: Cx) -> Result<Next, Failure> {
        panic!("not called")
    }
    let undecodable = pass(&json!({"metadata": {"name": "t"}, "spec": {"size": "large"}}));
    let Next::Retry(retry) = conclusion(step::lifecycle(undecodable, policy)).next else {
        panic!("not a retry")
    };
    let failure = retry.failure.expect("a failure");
    assert_eq!(
        (retry.class, failure.code),
        (RetryClass::Long, Code::InvalidArgument)
    );
    assert!(
        failure
            .message
            .starts_with("the object does not decode at spec.size: "),
        "{}",
        failure.message
    );
}

#[test]
fn a_pass_without_its_object_is_settled_without_a_call() {
    async fn policy(_: Cx) -> Result<Next, Failure> {
        panic!("not called")
    }
    let mut absent = pass(&Value::Null);
    absent.object = None;
    assert_eq!(conclusion(step::lifecycle(absent, policy)).next, Next::settled());
}

#[test]
fn a_policy_may_run_while_its_object_is_absent() {
    #[derive(Clone, PartialEq, Serialize, Deserialize)]
    struct Node {
        metadata: Metadata,
    }
    impl Kind for Node {
        const API_VERSION: &'static str = "v1";
        const KIND: &'static str = "Node";
        const NAMESPACED: bool = false;
        const RUNS_WHILE_ABSENT: bool = true;
        fn metadata(&self) -> &Metadata {
            &self.metadata
        }
    }
    async fn policy(cx: Context<Node>) -> Result<Next, Failure> {
        assert!(cx.object_if_present().is_none());
        Ok(Next::after(Duration::from_secs(1)))
    }
    assert_eq!(
        polity_sdk::test::World::absent().pass(policy).next,
        Next::After(1000)
    );
}

#[test]
fn unknown_fields_of_the_object_are_not_in_the_patch() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let mut thing = cx.object_mut();
        thing
            .status
            .conditions
            .set(cx.now(), "Ready", ConditionStatus::True, "Done", "");
        thing.metadata.finalizers.retain(|finalizer| finalizer != "mine");
        Ok(Next::settled())
    }
    let mut world = world();
    world.edit(json!({
        "metadata": {"finalizers": ["mine", "theirs"], "managedFields": [{}]},
        "spec": {"unknown": {"deep": 1}},
        "status": {"foreign": 1, "conditions": [{"type": "Other", "status": "False", "reason": "R", "observedGeneration": 4}]},
    }));
    let end = world.pass(policy);
    assert_eq!(
        end.patch,
        Some(json!({
            "metadata": {"finalizers": ["theirs"]},
            "status": {"conditions": [
                {"type": "Other", "status": "False", "reason": "R", "observedGeneration": 4},
                {"type": "Ready", "status": "True", "reason": "Done", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        }))
    );
    assert_eq!(world.pass(policy).patch, None);
}

#[test]
fn acts_in_doubt_are_handed_to_the_policy() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        for act in cx.pending() {
            cx.note(format!("{} {} {:?}", act.operation, act.intent, act.resolution));
        }
        Ok(Next::settled())
    }
    let mut world = world();
    world.set_pending(vec![ActInDoubt {
        operation: "vm.clone".into(),
        intent: "t".into(),
        since: 0,
        resolution: Resolution::Absent,
    }]);
    assert_eq!(world.pass(policy).notes, ["vm.clone t Resolution::Absent"]);
}

#[test]
fn what_a_permit_protects_is_asked_for_latest() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let Some(lock) = cx.lock("deployment/a").await? else {
            return Ok(Next::retry(RetryClass::Short));
        };
        let siblings = lock.objects(cluster::objects::<Thing>().labels("of=a")).await?;
        cx.note(siblings.len().to_string());
        Ok(Next::settled())
    }
    let lock = polity_sdk::contract::Question::Lock("deployment/a".into());
    let mut world = world();
    world.answers(lock.clone(), "busy");
    assert_eq!(world.pass(policy).next, Next::retry(RetryClass::Short));
    world.answers(lock, "held");
    for (name, of) in [("x", "a"), ("y", "b"), ("z", "a")] {
        let metadata = json!({"name": name, "namespace": "home", "labels": {"of": of}});
        world.exists(json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata}));
    }
    let end = world.pass(policy);
    assert_eq!(end.notes, ["2"]);
    assert_eq!(
        end.requests()[1],
        ["list Thing namespace=home labels=of=a (latest)"]
    );
}

#[test]
fn writes_to_other_objects_carry_what_was_seen() {
    async fn policy(cx: Cx) -> Result<Next, Failure> {
        let other = cx.ask(cluster::object::<Thing>("other")).await?;
        cx.act(cluster::patch(&other, json!({"spec": {"size": 2}})))
            .await?;
        Ok(Next::settled())
    }
    let mut world = world();
    let metadata = json!({"name": "other", "namespace": "home", "uid": "u-2", "resourceVersion": "7"});
    world.exists(json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata}));
    world.responds(|request| match request {
        Request::Act(polity_sdk::contract::Act::Patch(patch)) => {
            assert_eq!(
                (
                    patch.precondition.uid.as_str(),
                    patch.precondition.resource_version.as_deref()
                ),
                ("u-2", Some("7"))
            );
            Some(Ok(r#"{"uid":"u-2","resourceVersion":"8"}"#.into()))
        }
        _ => None,
    });
    assert_eq!(
        world.pass(policy).acts(),
        [r#"patch Thing other {"spec":{"size":2}}"#]
    );
}

#[test]
fn an_identity_policy_that_fails_denies() {
    async fn policy(cx: Cx) -> Result<Judgement, Failure> {
        let session = cx.ask(cloud::credential::<Value>(&json!({"role": "r"}))).await?;
        Ok(Judgement::granted(session.handle, Next::settled()))
    }
    let plan = || cloud::credential::<Value>(&json!({"role": "r"}));
    let mut world = world();
    world.answers(
        plan(),
        json!({"handle": "h-1", "reused": false, "attributes": {"principal": "p"}}),
    );
    assert_eq!(world.judge(policy).0, Verdict::Granted("h-1".into()));
    world.fails(plan(), Failure::new(Code::PermissionDenied, "no"));
    let (verdict, end) = world.judge(policy);
    assert_eq!(verdict, Verdict::Denied);
    assert!(matches!(end.next, Next::Retry(_)));
    let undecodable = pass(&json!({"metadata": {"name": "t"}, "spec": 1}));
    let IdentityStep::Concluded(judgement) = step::identity(undecodable, policy) else {
        panic!("pending")
    };
    assert!(matches!(
        judgement.verdict,
        polity_sdk::bindings::exports::polity::policy::identity::Verdict::Denied
    ));
}

#[test]
fn a_retry_policy_is_asked_with_its_configuration() {
    #[derive(Deserialize)]
    struct Config {
        base: Period,
    }
    fn decide(request: RetryRequest<Config>) -> Wait {
        match request.code() {
            Some(Code::NotFound) => Wait::on_change_within(request.failing_for),
            _ => Wait::after(Duration::from(request.config.base) * (request.attempt + 1)),
        }
    }
    let failed = |code| polity_sdk::contract::RetryRequest {
        failure: Some(Failure::new(code, "said the cloud")),
        attempt: 2,
        failing_for: 9_000,
        config: r#"{"base":"2s"}"#.into(),
        ..retry_request(RetryClass::Short)
    };
    let asked = step::retry(failed(Code::Unavailable), decide);
    assert_eq!(asked, Wait::After(6_000));
    let asked = step::retry(failed(Code::NotFound), decide);
    assert_eq!(asked, Wait::OnChange(Some(9_000)));
}

#[test]
fn a_crd_is_made_from_rust_types() {
    let crd = Crd::of::<Thing>("things")
        .short_name("th")
        .column("Seen", ".status.seen")
        .json();
    let version = &crd["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    assert_eq!(crd["metadata"]["name"], "things.example.com");
    assert_eq!(version["additionalPrinterColumns"][0]["jsonPath"], ".status.seen");
    assert_eq!(schema["properties"]["metadata"], json!({"type": "object"}));
    let size = &schema["properties"]["spec"]["properties"]["size"];
    assert_eq!(
        *size,
        json!({"type": "integer", "format": "int64", "minimum": 0, "default": 0})
    );
    let status = &schema["properties"]["status"]["properties"];
    assert_eq!(status["seen"], json!({"type": "string", "nullable": true}));
    assert_eq!(
        status["mode"],
        json!({"type": "string", "enum": ["Slow", "Fast"], "nullable": true})
    );
    assert_eq!(
        status["conditions"]["x-kubernetes-list-map-keys"],
        json!(["type"])
    );
    assert_eq!(
        status["pending"]["items"]["properties"]["since"]["format"],
        "int64"
    );
    let text = crd.to_string();
    for absent in [
        "$ref",
        "$schema",
        "oneOf",
        "anyOf",
        "\"null\"",
        "additionalProperties",
        "const",
    ] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
}

#[test]
fn every_code_has_a_name_of_its_own() {
    let mut names = Code::ALL.map(Code::as_str);
    assert_eq!((names[0], names[15]), ("cancelled", "unauthenticated"));
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn several_crds_are_one_list() {
    let manifest =
        Manifest::identity("t", "1").crds([Crd::of::<Thing>("things"), Crd::of::<Thing>("others")]);
    let crd: Value = manifest.as_contract().crd.clone().unwrap();
    assert_eq!((&crd["apiVersion"], &crd["kind"]), (&json!("v1"), &json!("List")));
    assert_eq!(crd["items"][1]["metadata"]["name"], "others.example.com");
}

fn pass(object: &Value) -> Pass {
    Pass {
        object: Some(object.to_string()),
        now: 0,
        causes: Vec::new(),
        attempt: 0,
        config: "{}".into(),
        pending: Vec::new(),
        journal: Vec::new(),
    }
}

fn conclusion(step: Step) -> Conclusion {
    match step {
        Step::Concluded(conclusion) => conclusion,
        Step::Pending(requests) => panic!("pending {requests:?}"),
    }
}
