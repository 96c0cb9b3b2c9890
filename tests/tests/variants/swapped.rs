//! Policies that are swapped for variants of themselves while their host runs, with an act in doubt and with status that the
//! version before has written. `polity replay` names what is different before.

use polity_tests::host_fixture::reference;
use polity_tests::host_harness::story::Story;
use polity_tests::host_harness::{mcm, rug};
use serde_json::{Value, json};

use super::fixture::{Stage, acts_of, swaps};
use super::{Variant, seeded};
use crate::scenarios::capa::tenancy::{self, Watched};
use crate::scenarios::capv;
use crate::scenarios::mcm::{draining, fixture as machines};
use crate::scenarios::orbiter::fixture::Fixture;
use crate::scenarios::rug::network;

pub(super) static ALL: [&Variant; 5] = [&SOFT, &DELETE_FIRST, &WORKERS_FIRST, &NEVER_REBUILD, &CLOSED];

/// Asks the guest to shut down before it turns its VM off. The page `policies/sdk/CHANGE.md` has the same change.
pub(crate) static SOFT: Variant = Variant {
    name: "capv-soft",
    of: "capv-machine",
    changes: &[(
        "delete.rs",
        "        Power::On | Power::Suspended => (",
        r#"        // The guest reads its metadata, and has until the next pass to stop by itself.
        Power::On if machine.status.phase != Some(Phase::Deleting) => (
            "SOFT-01",
            vm::reconfigure(&vm, "shutdown: requested"),
            "the guest is asked to shut down",
        ),
        Power::On | Power::Suspended => ("#,
    )],
};

/// Deletes the VM of a machine without draining its node first.
static DELETE_FIRST: Variant = Variant {
    name: "mcm-delete-first",
    of: "mcm-machine",
    changes: &[
        (
            "delete.rs",
            r#"[edge, "MCM-D24", "MCM-D26"]"#,
            r#"[edge, "MCM-D26"]"#,
        ),
        (
            "delete.rs",
            r#"NextOp::InitiateDrain, "the node is drained next""#,
            r#"NextOp::InitiateVMDeletion, "the VM is deleted next""#,
        ),
    ],
};

/// Brings packages to the workers first, and then to the control plane.
static WORKERS_FIRST: Variant = Variant {
    name: "orbiter-workers-first",
    of: "orbiter",
    changes: &[(
        "update.rs",
        "    for (index, member) in (0u32..).zip(&fleet.members) {",
        "    let (last, first): (Vec<_>, Vec<_>) =
        (0u32..).zip(&fleet.members).partition(|(_, member)| member.is_control_plane());
    for (index, member) in first.into_iter().chain(last) {",
    )],
};

/// Takes a request for another VM as one for another look.
static NEVER_REBUILD: Variant = Variant {
    name: "rug-never-rebuild",
    of: "rug-router",
    changes: &[(
        "calc.rs",
        "status.action = coalesce(status.action, &mut status.queue);",
        "status.action = match coalesce(status.action, &mut status.queue) {
        Action::Rebuild => Action::Update,
        action => action,
    };",
    )],
};

/// Refuses one account.
static CLOSED: Variant = Variant {
    name: "capa-closed",
    of: "capa-identity",
    changes: &[(
        "account.rs",
        "    let known = [",
        r#"    if credential.attributes.account == "222222222222" {
        let message = "account 222222222222 is closed";
        return Err(Stop::new(ACCOUNT, ConditionStatus::False, "AccountClosed", message));
    }
    let known = ["#,
    )],
};

/// An object like this one with another name, created.
async fn another<'a>(story: &'a Story, like: Value, name: &str) -> Watched<'a> {
    let object = Watched::new(story, named(like, name));
    object.create().await;
    object
}

fn named(mut object: Value, name: &str) -> Value {
    object["metadata"]["name"] = name.into();
    object
}

async fn until_gone(object: &Watched<'_>) {
    object.until("it is gone", Value::is_null).await;
}

/// Waits until an act of the object is in doubt.
async fn until_in_doubt(object: &Watched<'_>) {
    let in_doubt = |object: &Value| object["status"]["pending"][0].is_object();
    object.until("an act is in doubt", in_doubt).await;
}

/// A cloud in which what is created at last is not answered, and nobody can say what came of it until it is calm.
fn doubts(operation: &str, nth: u32) -> Value {
    json!({"faults": [
        {"operation": operation, "nth": nth, "then": "loseAnswer"},
        {"operation": "resolve", "then": {"fail": {"code": "unavailable"}}},
    ]})
}

#[tokio::test(start_paused = true)]
async fn capv_asks_guests_to_shut_down_before_it_turns_their_vms_off() {
    let stage = Stage::of(&["capv-machine"]);
    let mut cloud = doubts("vm.clone", 5);
    let fails = json!({"operation": "vm.clone", "nth": 3, "then": {"failTask": {"fault": "InsufficientResourcesFault"}}});
    cloud["faults"].as_array_mut().expect("faults").push(fails);
    let story = capv::begin(&stage, cloud, json!({})).await;
    let machines =
        ["first", "second", "third"].map(|name| Watched::new(&story, named(capv::machine(), name)));
    for machine in &machines {
        machine.create().await;
        machine.until_is("status.phase", "Running").await;
    }
    let [first, second, third] = &machines;
    first.delete().await;
    until_gone(first).await;
    let doubted = another(&story, capv::machine(), "doubted").await;
    until_in_doubt(&doubted).await;
    second.delete().await;
    second.until_is("status.phase", "Deleting").await;
    story.between_passes().await;

    let asks = r#"would-act vm.reconfigure: - → {"id":"vm-*","metadata":"shutdown: requested"}"#;
    assert_eq!(stage.replayed(&SOFT), [asks]);
    seeded::each_is_named(&stage, "capv-machine");
    stage.swap(&story, &SOFT, "lifecycle", &["capv-machine"]).await;
    story.site.calm();
    third.delete().await;
    until_gone(second).await;
    until_gone(third).await;
    doubted.until_is("status.phase", "Running").await;

    let made = ["vm.clone", "vm.reconfigure", "vm.power-on"];
    let hard = ["vm.power-off", "vm.destroy"];
    assert_eq!(acts_of(&story, "first"), [&made[..], &hard].concat());
    assert_eq!(
        acts_of(&story, "second"),
        [&made[..], &hard].concat(),
        "its VM was being stopped"
    );
    assert_eq!(
        acts_of(&story, "third"),
        [&["vm.clone"], &made[..], &["vm.reconfigure"], &hard].concat()
    );
    assert_eq!(acts_of(&story, "doubted"), made);
    assert_eq!(story.site.vms().len(), 1);
    assert_eq!(swaps(&story, "lifecycle", "capv-machine"), 1);
}

#[tokio::test(start_paused = true)]
async fn mcm_deletes_vms_before_it_drains_their_nodes() {
    let stage = Stage::of(&["mcm-machine", "mcm-safety", "mcm-retry"]);
    let story = machines::begin(&stage, doubts("machine.create", 4), json!({})).await;
    for name in ["first", "second", "third"] {
        machines::another(&story, name).await;
    }
    let [first, second, third] =
        ["first", "second", "third"].map(|name| Watched::new(&story, mcm::machine(name)));
    for (pod, node) in [("web-2", "node-second"), ("web-3", "node-third")] {
        draining::pod(&story, pod, node, json!({})).await;
    }
    draining::budget(&story, 2).await;
    first.delete().await;
    until_gone(&first).await;
    let doubted = another(&story, mcm::machine(""), "doubted").await;
    until_in_doubt(&doubted).await;
    second.delete().await;
    second
        .until_is("status.lastOperation.errorCode", "failed-precondition")
        .await;
    story.between_passes().await;

    assert_eq!(
        stage.replayed(&DELETE_FIRST),
        [
            "note MCM-D24: said → -",
            "patch status.lastOperation.description: the node is drained next → the VM is deleted next",
            "patch status.lastOperation.nextOp: InitiateDrain → InitiateVMDeletion",
        ]
    );
    seeded::each_is_named(&stage, "mcm-retry");
    stage
        .swap(&story, &DELETE_FIRST, "lifecycle", &["machines"])
        .await;
    story.site.calm();
    third.delete().await;
    until_gone(&third).await;
    let budget = reference("policy/v1", "PodDisruptionBudget", Some("default"), "web");
    story.site.delete(&budget, None).await.expect("it is there");
    until_gone(&second).await;
    doubted.until_is(machines::PHASE, "Running").await;

    assert_eq!(acts_of(&story, "first"), ["machine.create", "machine.delete"]);
    assert_eq!(acts_of(&story, "third"), ["machine.create", "machine.delete"]);
    let mut second = acts_of(&story, "second");
    second.dedup();
    assert_eq!(
        second,
        ["machine.create", "evict", "machine.delete"],
        "it was being drained"
    );
    assert_eq!(story.site.vms().len(), 1);
    assert_eq!(swaps(&story, "lifecycle", "machines"), 1);
}

#[tokio::test(start_paused = true)]
async fn orbiter_changes_the_workers_before_the_control_plane() {
    let stage = Stage::of(&["orbiter", "orbiter-node-agent", "mcm-retry"]);
    let fixture = Fixture::running(&stage, doubts("pool.add-machine", 4), json!({}), 2).await;
    let containerd = |version: &str| json!({"spec": {"versions": {"containerd": version}}});
    let prepared = fixture.begun("node.ensure").len();
    fixture.edit(containerd("1.7.2")).await;
    changed(&fixture).await;
    assert_eq!(
        fixture.begun("node.ensure")[prepared..],
        ["o-cp-0", "o-w-0", "o-w-1"]
    );
    fixture.pod("web", "o-w-0").await;
    fixture.budget("web", 1).await;
    fixture.edit(containerd("1.7.3")).await;
    fixture.until_reason("DrainFailed").await;
    fixture.workers(3).await;
    fixture
        .until("an addition is in doubt", |orb| {
            orb["status"]["pending"][0].is_object()
        })
        .await;
    fixture.between_passes().await;

    assert_eq!(
        stage.replayed(&WORKERS_FIRST),
        [
            // The control plane is done at once only where it comes first.
            "note ORB-15n: said → -",
            "patch status.changing.node: o-cp-* → o-w-*",
            "patch status.changing.uid: * → *",
            "patch status.conditions[Ready].message: node o-cp-* is changed next → node o-w-* is changed next",
            "patch status.cursor: 0 → 1",
        ]
    );
    stage.swap(&fixture, &WORKERS_FIRST, "lifecycle", &["orbs"]).await;
    fixture.site.calm();
    let budget = reference("policy/v1", "PodDisruptionBudget", Some("default"), "web");
    fixture.site.delete(&budget, None).await.expect("it is there");
    fixture.start_agent("o-w-2").await;
    changed(&fixture).await;
    let before = fixture.begun("node.ensure");
    // The control plane was done before, and `o-w-2` is prepared as it joins.
    assert_eq!(before[prepared + 3..], ["o-cp-0", "o-w-2", "o-w-0", "o-w-1"]);
    fixture.edit(containerd("1.7.4")).await;
    changed(&fixture).await;
    assert_eq!(
        fixture.begun("node.ensure")[before.len()..],
        ["o-w-0", "o-w-1", "o-w-2", "o-cp-0"]
    );
    assert_eq!(fixture.machines().len(), 4);
    assert_eq!(swaps(&fixture, "lifecycle", "orbs"), 1);
}

/// Waits until no node is being changed and none has to be.
async fn changed(fixture: &Fixture) {
    let done = fixture.passes().len();
    fixture.until_passes(|passes| passes.len() > done).await;
    fixture.until_fine().await;
}

#[tokio::test(start_paused = true)]
async fn rug_never_rebuilds() {
    let stage = Stage::of(&["rug-router", "mcm-retry"]);
    let mut cloud = doubts("router.boot", 5);
    cloud["routers"] = json!({"stop": {"min": "30s", "max": "30s"}});
    let story = network::begin(&stage, cloud, json!({})).await;
    let routers = [("first", 1), ("second", 2), ("third", 3)].map(|(name, port)| rug::router(name, &[port]));
    let routers = routers.map(|router| Watched::new(&story, router));
    for router in &routers {
        router.create().await;
        router.until("it is active", is_active).await;
    }
    let [first, second, third] = &routers;
    let rebuild = json!({"metadata": {"annotations": {"request.polity.dev/rebuild": "1"}}});
    first.edit(rebuild.clone()).await;
    first.until_is("status.machineState", "REBUILD_VM").await;
    first.until("it is active", is_active).await;
    let doubted = another(&story, rug::router("", &[4]), "doubted").await;
    until_in_doubt(&doubted).await;
    second.edit(rebuild.clone()).await;
    second.until_is("status.machineState", "REBUILD_VM").await;
    story.between_passes().await;

    assert_eq!(
        stage.replayed(&NEVER_REBUILD),
        [
            "note RUG-02: - → said",
            "note RUG-05: said → -",
            "patch status.action: E → U",
            "patch status.conditions[Ready].reason: Stopping → Configured",
            "patch status.conditions[Ready].status: False → True",
            "patch status.machineState: REBUILD_VM → ALIVE",
        ]
    );
    seeded::each_is_named(&stage, "rug-router");
    let vm = third.object().await["status"]["instance"].clone();
    stage
        .swap(&story, &NEVER_REBUILD, "lifecycle", &["routers"])
        .await;
    story.site.calm();
    third.edit(rebuild).await;
    third.until_is("status.rebuildRequest", "1").await;
    for router in [second, third, &doubted] {
        router.until("it is active", is_active).await;
    }
    assert_eq!(third.object().await["status"]["instance"], vm);
    let boots = |name| {
        acts_of(&story, name)
            .iter()
            .filter(|act| *act == "router.boot")
            .count()
    };
    assert_eq!(["first", "second", "third", "doubted"].map(boots), [2, 2, 1, 1]);
    assert_eq!(story.site.vms().len(), 4);
    assert_eq!(swaps(&story, "lifecycle", "routers"), 1);
}

fn is_active(router: &Value) -> bool {
    let status = &router["status"];
    status["neutronStatus"] == "ACTIVE"
        && status["machineState"] == "CALC_ACTION"
        && status["queue"] == json!([])
}

#[tokio::test(start_paused = true)]
async fn capa_refuses_one_more_account() {
    let stage = Stage::of(&["capa-identity", "capv-machine"]);
    let story = tenancy::begin(&stage, doubts("vm.clone", 3), json!({})).await;
    tenancy::bind(&story, tenancy::capv_machines(json!({}))).await;
    for object in [
        tenancy::identity(tenancy::CONTROLLER, "default", json!({})),
        tenancy::role("tenants", tenancy::INNER, None),
        tenancy::cluster(Some((tenancy::ROLE, "tenants"))),
        tenancy::cluster_named("c-2", None),
    ] {
        story.create(&object).await;
    }
    let mut elsewhere = tenancy::capv_machine();
    elsewhere["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = "c-2".into();
    let closed = another(&story, tenancy::capv_machine(), "m-1").await;
    let open = another(&story, elsewhere, "m-2").await;
    for machine in [&closed, &open] {
        machine.until_is("status.phase", "Running").await;
    }
    let doubted = another(&story, tenancy::capv_machine(), "m-3").await;
    until_in_doubt(&doubted).await;
    story.between_passes().await;

    assert_eq!(
        stage.replayed(&CLOSED),
        [
            "event Warning AccountClosed: account * is closed: - → said",
            "note CAPA-16: said → -",
            "note CAPA-17: said → -",
            "note CAPA-18: said → -",
            "note CAPA-19: said → -",
            "patch status.accountID: * → -",
            r#"patch status.conditions[AccountMatches]: - → {"lastTransitionTime":"<time>","message":"account * is close…"#,
            "verdict : granted → denied",
        ]
    );
    let bindings = ["awscluster", "capv-machine"];
    stage.swap(&story, &CLOSED, "identity", &bindings).await;
    story.site.calm();
    for machine in [&closed, &doubted] {
        let is_denied = |object: &Value| {
            tenancy::condition(object, tenancy::ACCOUNT) == json!(["False", "AccountClosed"])
        };
        machine.until("its account is closed", is_denied).await;
        machine.delete().await;
    }
    open.delete().await;
    until_gone(&open).await;
    let made = ["vm.clone", "vm.reconfigure", "vm.power-on"];
    assert_eq!(
        acts_of(&story, "m-1"),
        made,
        "nothing more is done in its account"
    );
    assert_eq!(acts_of(&story, "m-3"), ["vm.clone"]);
    assert_eq!(story.site.vms().len(), 2);

    stage.swap_back(&story, &CLOSED, "identity", &bindings).await;
    until_gone(&closed).await;
    until_gone(&doubted).await;
    assert!(story.site.vms().is_empty());
    for binding in bindings {
        assert_eq!(swaps(&story, "identity", binding), 2);
    }
}
