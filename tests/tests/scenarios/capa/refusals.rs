//! Bad input for `capa-identity`: identities that do not exist or whose chain leads nowhere or elsewhere, and an
//! identity policy that breaks its contract. A running Machine stays as it is, the cloud gets no request, and both
//! objects give the reason.

use std::time::Duration;

use polity_core::contract::Code;
use polity_core::fault::FaultKind;
use polity_core::merge::Part;
use polity_core::record::{Outcome, PassRecord, WritePurpose};
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::story::Story;
use polity_tests::specified::capa as specified;
use serde_json::{Value, json};

use super::tenancy::*;
use crate::scenarios::scenarios;

scenarios! {
    an_unknown_kind_of_identity_is_refused,
    an_unknown_identity_is_refused,
    an_identity_of_another_namespace_is_refused,
    a_chain_that_loops_is_refused,
    a_chain_that_is_too_long_is_refused,
    a_source_of_an_unknown_kind_is_refused,
    a_secret_that_lacks_a_key_is_refused,
    a_controller_identity_of_another_name_is_refused,
    a_misspelt_field_never_gets_into_the_cluster,
    an_identity_policy_that_faults_lets_nothing_through,
}

const HOUR: Duration = Duration::from_secs(3_600);

/// The tenant's cluster with a chain of identities, and a Machine in it that runs.
async fn running(on: &dyn Backend) -> Story {
    let story = chained(on, json!({})).await;
    bind(&story, capv_machines(json!({}))).await;
    story.create(&capv_machine()).await;
    Watched::new(&story, capv_machine())
        .until_is("status.phase", "Running")
        .await;
    story
}

/// Somebody makes the identity what it should not be, and, in the end, what it was.
async fn is_refused(story: Story, of: &Value, bad: Value, good: Value, edges: &str, reason: &str) {
    let machine = Watched::new(&story, capv_machine());
    let before = accounts(&story);
    let (seen, of_machine) = (story.passes().len(), machine.passes().len());
    edit(&story, of, json!({"spec": bad})).await;
    let wanted = json!(["False", reason]);
    story
        .until(reason, |cluster| condition(cluster, RETRIEVED) == wanted)
        .await;
    machine
        .until(reason, |machine| condition(machine, RETRIEVED) == wanted)
        .await;
    story.sleep(HOUR).await;

    let passes = [
        story.passes().split_off(seen),
        machine.passes().split_off(of_machine),
    ];
    let own = [edges.to_owned(), edges.replacen("05 ", "", 1)];
    for (passes, edges) in passes.into_iter().zip(own) {
        assert!(
            (6..=9).contains(&passes.len()),
            "every ten minutes: {}",
            passes.len()
        );
        for pass in &passes {
            assert_eq!((&pass.outcome, judged(pass)), (&Outcome::Denied, edges.clone()));
            assert_eq!(pass.wait, Some(Duration::from_millis(specified::RESYNC)));
            assert!(calls(pass).is_empty() && !lifecycle_ran(pass));
        }
    }
    assert_eq!(accounts(&story), before);
    let object = machine.object().await;
    assert_eq!(object["metadata"]["deletionTimestamp"], Value::Null);
    assert_eq!(object["status"]["phase"], "Running");

    edit(&story, of, json!({"spec": good})).await;
    let granted = |object: &Value| condition(object, RETRIEVED) == json!(["True", "Retrieved"]);
    story.until("the cluster may go on", granted).await;
    machine.until("the machine may go on", granted).await;
    assert_eq!(accounts(&story), before);
}

/// The cluster names an identity that it should not.
async fn names(on: &dyn Backend, bad: Value, edges: &str, reason: &str) {
    let good = json!({"identityRef": {"kind": ROLE, "name": "outer", "namespace": null}});
    let bad = json!({"identityRef": bad});
    is_refused(running(on).await, &cluster(None), bad, good, edges, reason).await;
}

async fn an_unknown_kind_of_identity_is_refused(on: &dyn Backend) {
    let secret = json!({"kind": "Secret", "name": "outer"});
    names(on, secret, "01 02 04 06 P5", "UnknownIdentityKind").await;
}

async fn an_unknown_identity_is_refused(on: &dyn Backend) {
    let nobody = json!({"kind": ROLE, "name": "nobody"});
    names(on, nobody, "01 02 03 06", "PrincipalCredentialRetrievalFailed").await;
}

async fn an_identity_of_another_namespace_is_refused(on: &dyn Backend) {
    let theirs = json!({"kind": ROLE, "name": "outer", "namespace": "rivals"});
    names(on, theirs, "01 02 03 06", "IdentityInOtherNamespace").await;
}

async fn a_controller_identity_of_another_name_is_refused(on: &dyn Backend) {
    let second = json!({"kind": CONTROLLER, "name": "second"});
    names(on, second, "01 02 03 06", "PrincipalCredentialRetrievalFailed").await;
}

/// The source of the inner identity is one that it should not be.
async fn leads_to(on: &dyn Backend, bad: Value, edges: &str, reason: &str) {
    leads_to_those(on, &[], bad, edges, reason).await;
}

/// As [`leads_to`], where that leads to these.
async fn leads_to_those(on: &dyn Backend, there: &[Value], bad: Value, edges: &str, reason: &str) {
    let story = running(on).await;
    for object in there {
        story.create(object).await;
    }
    let good = json!({"sourceIdentityRef": refer((CONTROLLER, "default"))});
    let bad = json!({"sourceIdentityRef": bad});
    let inner = role("inner", INNER, None);
    let edges = format!("01 02 03 05 N2 07a P3 N2 P8 P3 {edges}");
    is_refused(story, &inner, bad, good, &edges, reason).await;
}

async fn a_chain_that_loops_is_refused(on: &dyn Backend) {
    leads_to(on, refer((ROLE, "outer")), "P7", "IdentityChainCycle").await;
}

async fn a_source_of_an_unknown_kind_is_refused(on: &dyn Backend) {
    leads_to(on, refer(("Secret", "keys")), "P5", "UnknownIdentityKind").await;
}

async fn a_chain_that_is_too_long_is_refused(on: &dyn Backend) {
    // With the two that stand before them, nine.
    let far: Vec<Value> = (3..=9)
        .map(|n| {
            let source = format!("r-{}", n + 1);
            role(
                &format!("r-{n}"),
                OUTER,
                (n < 9).then_some((ROLE, source.as_str())),
            )
        })
        .collect();
    let edges = format!("{}P7", "N2 P8 P3 ".repeat(6));
    leads_to_those(on, &far, refer((ROLE, "r-3")), &edges, "IdentityChainCycle").await;
}

async fn a_secret_that_lacks_a_key_is_refused(on: &dyn Backend) {
    let mut half = access_key("AKIAFIRST");
    half["stringData"] = json!({"AccessKeyID": "AKIAFIRST"});
    let there = [half, keys(json!({}))];
    let reason = "PrincipalCredentialRetrievalFailed";
    leads_to_those(on, &there, refer((STATIC, "keys")), "N2 P8 06", reason).await;
}

/// A field that was dropped instead would leave what says something else: everybody may use the identity, say.
async fn a_misspelt_field_never_gets_into_the_cluster(on: &dyn Backend) {
    let story = running(on).await;
    let before = accounts(&story);
    let allowed = |allowed: Value| json!({"roleARN": INNER, "allowedNamespaces": allowed});
    let mut elsewhere = cluster(Some((ROLE, "outer")));
    elsewhere["spec"]["identityReff"] = elsewhere["spec"]["identityRef"].take();
    for (misspelt, at) in [
        (
            identity(ROLE, "typo", allowed(json!({"lst": ["rivals"]}))),
            "spec.allowedNamespaces",
        ),
        (
            identity(
                ROLE,
                "typo",
                allowed(json!({"selector": {"matchLabel": {"env": "prod"}}})),
            ),
            "spec.allowedNamespaces.selector",
        ),
        (
            identity(ROLE, "typo", json!({"roleARN": INNER, "inlinePolcy": "{}"})),
            "spec",
        ),
        (elsewhere, "spec"),
    ] {
        let refused = story
            .site
            .cluster
            .apply(&misspelt)
            .await
            .expect_err("it is refused");
        assert_eq!(refused.code, Code::InvalidArgument, "{misspelt}");
        assert!(refused.message.contains(at), "{}: {misspelt}", refused.message);
    }
    assert_eq!(accounts(&story), before);
}

/// Fewer steps than it takes: every pass of the binding breaks off in the middle of the identity policy.
async fn an_identity_policy_that_faults_lets_nothing_through(on: &dyn Backend) {
    let story = running(on).await;
    let machine = Watched::new(&story, capv_machine());
    let (before, seen) = (accounts(&story), machine.passes().len());
    let mut binding = capv_machines(json!({}));
    binding["spec"]["limits"] = json!({"steps": 1});
    story.create(&binding).await;
    let said =
        |kind: &'static str, status: &'static str| move |object: &Value| condition(object, kind)[0] == status;
    // A changed limit enqueues nothing.
    let faulted = |pass: &PassRecord| pass.outcome == Outcome::Faulted;
    let mut nonce = 0;
    while !machine.passes().split_off(seen).iter().any(faulted) {
        nonce += 1;
        machine.again(&nonce.to_string()).await;
    }
    let of_binding = Watched::new(&story, binding.clone());
    of_binding
        .until("the binding says so", said("Healthy", "False"))
        .await;
    machine
        .until("the machine says so", said("polity.dev/Quarantined", "True"))
        .await;
    machine.edit(json!({"spec": {"numCPUs": 8}})).await;
    machine.delete().await;
    story.sleep(HOUR).await;
    let passes = machine.passes();
    let first = passes.iter().position(faulted).expect("a fault");
    for pass in &passes[first..] {
        assert_eq!(pass.outcome, Outcome::Faulted);
        let fault = pass.roles.iter().find_map(|role| role.fault.as_ref());
        assert_eq!(fault.map(|fault| fault.kind), Some(FaultKind::TooLong));
        // Nothing is written but the condition that says so.
        let says_so = WritePurpose::Publish(Part::Status);
        assert!(!lifecycle_ran(pass) && pass.writes.iter().all(|write| write.purpose == says_so));
    }
    assert_eq!(accounts(&story), before);

    binding["spec"]["limits"]["steps"] = 64.into();
    story.create(&binding).await;
    machine.until("it is gone", Value::is_null).await;
    assert!(story.site.vms().is_empty());
}
