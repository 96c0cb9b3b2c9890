//! What `capa-identity` keeps the lifecycle policies of other teams from: a Machine that may not act is left alone in
//! every account, and only the binding of its cluster writes the cluster.

use std::time::Duration;

use polity_core::record::{Outcome, PassRecord};
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::tenancy::*;
use crate::scenarios::scenarios;

scenarios! {
    a_machine_of_aws_is_judged_by_its_cluster_and_says_so_on_itself_alone,
    a_machine_of_capv_acts_in_the_account_of_its_cluster_and_writes_nothing_on_it,
    a_machine_of_capv_that_may_not_act_makes_no_call_and_leaves_no_trace,
    a_machine_of_capv_that_may_not_act_any_more_is_left_as_it_is,
    a_machine_of_capv_makes_no_second_vm_in_another_account,
    a_machine_of_mcm_acts_in_the_account_of_its_cluster_and_writes_nothing_on_it,
    a_machine_of_mcm_that_may_not_act_makes_no_call_and_leaves_no_trace,
    a_machine_of_mcm_that_may_not_act_any_more_is_left_as_it_is,
    a_machine_of_mcm_makes_no_second_vm_in_another_account,
    a_machine_whose_identity_is_gone_waits_with_its_vm,
    a_machine_whose_identity_is_gone_is_let_go_where_the_binding_says_so,
    a_machine_that_names_the_cluster_of_another_namespace_has_none,
    a_session_that_the_cloud_does_not_take_any_more_is_opened_anew,
}

/// A policy of another team, and its Machine.
struct Team {
    binding: fn(Value) -> Value,
    machine: fn() -> Value,
    /// What the machine is made from.
    belongings: fn() -> Vec<Value>,
    /// Where it says that the machine runs.
    phase: &'static str,
    finalizer: &'static str,
}

const CAPV: Team = Team {
    binding: capv_machines,
    machine: capv_machine,
    belongings: Vec::new,
    phase: "status.phase",
    finalizer: "capv.polity.dev/machine",
};

const MCM: Team = Team {
    binding: mcm_machines,
    machine: mcm_machine,
    belongings: mcm_belongings,
    phase: "status.currentStatus.phase",
    finalizer: "mcm.polity.dev/machine",
};

fn is_denied(pass: &PassRecord) -> bool {
    pass.outcome == Outcome::Denied && !lifecycle_ran(pass)
}

/// The host with a team's binding alone, and a cluster whose role namespaces with the label `env: prod` may assume.
async fn begin_as(team: &Team, on: &dyn Backend, overrides: Value, configuration: Value) -> Story {
    let story = begin_with(on, overrides, (team.binding)(configuration)).await;
    let labelled = json!({"selector": {"matchLabels": {"env": "prod"}}});
    let spec = json!({"roleARN": INNER, "allowedNamespaces": labelled});
    story.create(&identity(ROLE, "tenants", spec)).await;
    story.create(&cluster(Some((ROLE, "tenants")))).await;
    story.site.play_kubelets();
    for object in (team.belongings)() {
        story.create(&object).await;
    }
    story
}

/// The Machine of a team, created.
async fn machine<'a>(story: &'a Story, team: &Team) -> Watched<'a> {
    story.create(&(team.machine)()).await;
    Watched::new(story, (team.machine)())
}

/// The Machine of a team, which runs.
async fn running<'a>(story: &'a Story, team: &Team) -> Watched<'a> {
    let machine = machine(story, team).await;
    machine.until_is(team.phase, "Running").await;
    machine
}

/// The namespace loses what locks it to use the identity, or gets it back.
async fn lock(story: &Story, env: Option<&str>) {
    let labels = json!({"metadata": {"labels": {"env": env}}});
    edit(story, &namespace("team", ""), labels).await;
}

async fn a_machine_of_aws_is_judged_by_its_cluster_and_says_so_on_itself_alone(on: &dyn Backend) {
    let like = json!({
        "apiVersion": "capa.polity.dev/v1alpha1", "kind": "AWSMachine",
        "metadata": {"namespace": "team", "name": "m-1"}, "spec": {"clusterName": "c-1"},
    });
    let story = begin_with(on, json!({}), judged_alone("AWSMachine", json!({}))).await;
    story.create(&role("tenants", INNER, None)).await;
    story.create(&cluster(Some((ROLE, "tenants")))).await;
    let before = story.object().await;
    story.create(&like).await;
    let machine = Watched::new(&story, like);
    let granted = machine.passes_after(0).await.remove(0);
    assert_eq!(judged(&granted), "01 02 03 N2 07a P4 07 08 10 14 16 18 19");
    let object = machine
        .until("it says so", |machine| !machine["status"].is_null())
        .await;
    assert_eq!(condition(&object, ALLOWED), json!(["True", "Allowed"]));
    assert_eq!(condition(&object, RETRIEVED), json!(["True", "Retrieved"]));
    assert_eq!(
        object["status"].as_object().map(|status| status.len()),
        Some(1),
        "{object}"
    );
    assert_eq!(story.object().await, before);
}

async fn acts_in_its_account(on: &dyn Backend, team: &Team) {
    let story = begin_as(team, on, json!({}), json!({})).await;
    let before = story.object().await;
    let machine = running(&story, team).await;
    let vms = story.site.vms();
    assert_eq!(vms.len(), 1);
    assert_eq!(vms[0].account.as_deref(), Some(TEAM));
    assert!(!story.site.effects().is_empty(), "what happens there is seen");
    let object = machine.object().await;
    assert_eq!(condition(&object, ALLOWED), json!(["True", "Allowed"]));
    assert_eq!(condition(&object, RETRIEVED), json!(["True", "Retrieved"]));
    let edges = "01 02 03 N7 07a P4 07 08 10 14 16 18 19";
    assert_eq!(judged(&machine.passes()[0]), edges);
    // Nobody governs clusters here: this one is as it was created, to the last version.
    assert_eq!(story.object().await, before);
}

async fn a_machine_of_capv_acts_in_the_account_of_its_cluster_and_writes_nothing_on_it(on: &dyn Backend) {
    acts_in_its_account(on, &CAPV).await;
}

async fn a_machine_of_mcm_acts_in_the_account_of_its_cluster_and_writes_nothing_on_it(on: &dyn Backend) {
    acts_in_its_account(on, &MCM).await;
}

async fn leaves_no_trace(on: &dyn Backend, team: &Team) {
    let story = begin_as(team, on, json!({}), json!({})).await;
    lock(&story, None).await;
    let before = story.object().await;
    let machine = machine(&story, team).await;
    machine.passes_after(0).await;
    machine.again("1").await;
    story.sleep(Duration::from_secs(3_600)).await;
    for pass in machine.passes() {
        assert!(is_denied(&pass), "{:?}", pass.outcome);
        assert_eq!(
            (judged(&pass).as_str(), calls(&pass)),
            ("01 02 03 N8 07b", vec![])
        );
    }
    assert!(machine.passes().len() >= 7, "it is looked at every ten minutes");
    let object = machine.object().await;
    assert_eq!(
        condition(&object, ALLOWED),
        json!(["False", "PrincipalUsageUnauthorized"])
    );
    assert_eq!(object["metadata"]["finalizers"], Value::Null);
    assert_eq!(
        object["status"].as_object().map(|status| status.len()),
        Some(1),
        "{object}"
    );
    assert_eq!(accounts(&story), (vec![], vec![]));
    assert_eq!(story.object().await, before);
    machine.delete().await;
    machine.until("it is gone", Value::is_null).await;
}

async fn a_machine_of_capv_that_may_not_act_makes_no_call_and_leaves_no_trace(on: &dyn Backend) {
    leaves_no_trace(on, &CAPV).await;
}

async fn a_machine_of_mcm_that_may_not_act_makes_no_call_and_leaves_no_trace(on: &dyn Backend) {
    leaves_no_trace(on, &MCM).await;
}

async fn is_left_as_it_is(on: &dyn Backend, team: &Team) {
    let story = begin_as(team, on, json!({}), json!({})).await;
    let machine = running(&story, team).await;
    let (before, seen) = (accounts(&story), machine.passes().len());
    lock(&story, None).await;
    machine.until_pass(seen, is_denied).await;
    let seen = machine.passes().len();
    machine.again("1").await;
    machine.delete().await;
    story.sleep(Duration::from_secs(3_600)).await;
    for pass in machine.passes().split_off(seen) {
        assert!(is_denied(&pass) && calls(&pass).is_empty(), "{:?}", pass.outcome);
    }
    assert_eq!(accounts(&story), before);
    assert_eq!(
        machine.object().await["metadata"]["finalizers"],
        json!([team.finalizer])
    );

    lock(&story, Some("prod")).await;
    machine.until("it is gone", Value::is_null).await;
    assert!(story.site.vms().is_empty());
}

async fn a_machine_of_capv_that_may_not_act_any_more_is_left_as_it_is(on: &dyn Backend) {
    is_left_as_it_is(on, &CAPV).await;
}

async fn a_machine_of_mcm_that_may_not_act_any_more_is_left_as_it_is(on: &dyn Backend) {
    is_left_as_it_is(on, &MCM).await;
}

/// From the other account the VM cannot be seen: a policy that is let through makes it anew.
async fn makes_no_second_vm(on: &dyn Backend, team: &Team) {
    let story = begin_as(team, on, json!({}), json!({})).await;
    story.edit_status(json!({"accountID": TEAM})).await;
    let machine = running(&story, team).await;
    let (before, seen) = (accounts(&story), machine.passes().len());
    edit(
        &story,
        &role("tenants", "", None),
        json!({"spec": {"roleARN": AWAY}}),
    )
    .await;
    let denied = machine.until_pass(seen, is_denied).await;
    assert_eq!(judged(&denied), "01 02 03 N7 07a P4 07 08 10 14 15");
    let seen = machine.passes().len();
    story.sleep(Duration::from_secs(3_600)).await;
    for pass in machine.passes().split_off(seen) {
        assert!(is_denied(&pass));
        assert_eq!(calls(&pass), ["credential"]);
    }
    let object = machine.object().await;
    assert_eq!(condition(&object, ACCOUNT), json!(["False", "AccountMismatch"]));
    assert_eq!(accounts(&story), before);
}

async fn a_machine_of_capv_makes_no_second_vm_in_another_account(on: &dyn Backend) {
    makes_no_second_vm(on, &CAPV).await;
}

async fn a_machine_of_mcm_makes_no_second_vm_in_another_account(on: &dyn Backend) {
    makes_no_second_vm(on, &MCM).await;
}

async fn a_machine_whose_identity_is_gone_waits_with_its_vm(on: &dyn Backend) {
    let story = begin_as(&CAPV, on, json!({}), json!({})).await;
    let machine = running(&story, &CAPV).await;
    let before = accounts(&story);
    delete(&story, &role("tenants", "", None)).await;
    let seen = machine.passes().len();
    machine.delete().await;
    story.sleep(Duration::from_secs(3_600)).await;
    for pass in machine.passes().split_off(seen) {
        assert!(is_denied(&pass) && calls(&pass).is_empty(), "{:?}", pass.outcome);
    }
    assert_eq!(accounts(&story), before);
    assert_eq!(
        condition(&machine.object().await, RETRIEVED),
        json!(["False", "PrincipalCredentialRetrievalFailed"])
    );
}

async fn a_machine_whose_identity_is_gone_is_let_go_where_the_binding_says_so(on: &dyn Backend) {
    let orphans = json!({"orphanOnMissingIdentity": true});
    let story = begin_as(&CAPV, on, json!({}), orphans).await;
    let machine = running(&story, &CAPV).await;
    let (before, seen) = (accounts(&story), machine.passes().len());
    delete(&story, &role("tenants", "", None)).await;
    // Nothing is let go that is not being deleted.
    machine.until_pass(seen, is_denied).await;
    machine.delete().await;
    machine.until("it is gone", Value::is_null).await;
    let released = machine.passes().pop().expect("a pass");
    assert_eq!(
        (&released.outcome, judged(&released).as_str()),
        (&Outcome::Released, "01 02 03 06 22")
    );
    assert!(!lifecycle_ran(&released) && calls(&released).is_empty());
    assert_eq!(accounts(&story), before, "its VM has remained");
    let events = story.site.list("v1", "Event").await;
    let said = |event: &Value| event["reason"] == "Released" && event["involvedObject"]["name"] == "m-1";
    assert!(events.iter().any(said), "{events:#?}");
}

async fn a_machine_that_names_the_cluster_of_another_namespace_has_none(on: &dyn Backend) {
    let story = begin_as(&CAPV, on, json!({}), json!({})).await;
    let mut foreign = cluster_named("theirs", Some((ROLE, "tenants")));
    foreign["metadata"]["namespace"] = "rivals".into();
    story.create(&foreign).await;
    let mut machine = capv_machine();
    machine["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "theirs"});
    story.create(&machine).await;
    let machine = Watched::new(&story, machine);
    let pass = machine.passes_after(0).await.remove(0);
    assert!(is_denied(&pass) && calls(&pass).is_empty());
    assert_eq!(judged(&pass), "01");
    let object = machine.object().await;
    assert_eq!(condition(&object, ALLOWED), json!(["False", "ClusterNotFound"]));

    machine
        .edit(json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": null}}}))
        .await;
    let what = "it belongs to no cluster";
    let unknown = |object: &Value| condition(object, ALLOWED) == json!(["False", "ClusterUnknown"]);
    machine.until(what, unknown).await;
    // It need not wait: it is enqueued when it belongs to one that may act.
    machine
        .edit(json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "c-1"}}}))
        .await;
    machine.until_is("status.phase", "Running").await;
    assert_eq!(story.site.vms()[0].account.as_deref(), Some(TEAM));
}

async fn a_session_that_the_cloud_does_not_take_any_more_is_opened_anew(on: &dyn Backend) {
    let revoked = json!({"fail": {"code": "unauthenticated", "message": "ExpiredToken: revoked"}});
    let fault = json!({"operation": "vm.reconfigure", "count": 1, "then": revoked});
    let story = begin_as(&CAPV, on, json!({"faults": [fault]}), json!({})).await;
    let machine = running(&story, &CAPV).await;
    let passes = machine.passes();
    let opened: Vec<usize> = (0..passes.len())
        .filter(|index| session(&passes[*index])["reused"] == false)
        .collect();
    let refused = passes
        .iter()
        .position(|pass| calls(pass).contains(&"vm.reconfigure".to_owned()));
    assert_eq!(opened, [0, refused.expect("it was refused") + 1]);
    assert_eq!(story.site.vms().len(), 1);
}
