//! capa-identity: (g) 1 to 16 of its specification, and what it keeps other teams' policies from.

pub(crate) mod guard;
pub(crate) mod refusals;
pub(crate) mod tenancy;

use std::collections::BTreeSet;
use std::time::Duration;

use polity_core::contract::{Code, Next, RetryClass, Verdict};
use polity_core::record::{Outcome, PassRecord};
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::mcm;
use polity_tests::host_harness::story::Story;
use polity_tests::specified::capa as specified;
use serde_json::{Value, json};

use crate::scenarios::scenarios;
use tenancy::*;

scenarios! {
    scenario_01_by_default_the_controllers_credentials_are_used,
    scenario_02_a_missing_default_identity_is_an_error,
    scenario_04_keys_are_used_from_the_cache_the_second_time,
    scenario_05_a_missing_secret_is_said,
    scenario_06_a_rotated_secret_is_another_session_for_everybody,
    scenario_09_a_chain_that_comes_back_ends,
    scenario_10_another_account_changes_nothing,
    scenario_11_the_account_is_written_once,
    scenario_12_a_principal_that_aws_does_not_know_yet_is_tried_again,
    scenario_14_the_matrix_of_allowed_namespaces,
    scenario_14_what_lives_in_no_namespace_is_allowed_only_with_everybody,
    scenario_15_a_cluster_without_its_identity_cannot_be_deleted,
    scenario_15_unless_the_binding_lets_go_of_what_it_has,
    scenario_16_a_thousand_passes_are_one_session,
    capa_04_a_role_for_the_tokens_of_the_tenants_own_namespace,
    capa_05_a_cluster_does_not_go_with_its_identity,
    capa_05_a_cluster_without_another_owner_is_not_owned,
    capa_05_a_cluster_goes_with_its_only_owner,
    capa_p7_a_chain_of_eight_identities_is_one;
    short:
    scenario_02_a_missing_default_identity_is_made_and_the_next_pass_goes_on,
    scenario_03_a_default_identity_that_allows_nobody_denies_without_a_call,
    scenario_07_a_chain_of_roles_is_one_session_assumed_inner_first,
    scenario_08_a_chain_whose_middle_denies_assumes_nothing,
    scenario_13_a_label_that_is_removed_takes_the_permission_with_it,
    erratum_11_a_source_of_the_same_name_is_a_source,
}

/// Looked at again after ten minutes, or when something that it rests on changes: never hot, and without a call.
fn waits(pass: &PassRecord) -> bool {
    pass.outcome == Outcome::Denied && pass.next == Some(Next::Settled(Some(specified::RESYNC)))
}

fn was_not_called(passes: &[PassRecord]) {
    for pass in passes {
        assert_eq!(calls(pass), [""; 0], "{}", judged(pass));
    }
}

async fn scenario_01_by_default_the_controllers_credentials_are_used(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    story.create(&identity(CONTROLLER, "default", json!({}))).await;
    story.create(&cluster(None)).await;
    passes(&story, 1).await;
    assert_eq!(story.edges(), ["01 11 N2 12 14 16 17 18 19"]);
    let object = story.object().await;
    assert_eq!(object["spec"]["identityRef"], refer((CONTROLLER, "default")));
    assert_eq!(object["status"]["accountID"], HOST);
    assert_eq!(condition(&object, ALLOWED), json!(["True", "Allowed"]));
    assert_eq!(condition(&object, RETRIEVED), json!(["True", "Retrieved"]));

    assert_eq!(
        again(&story, "1").await,
        "01 02 03 05 N2 07a P1 07 09 10 24 16 18 19"
    );
    let [first, second] = &story.passes()[..] else {
        panic!("{:?}", story.edges())
    };
    assert_eq!(session(first)["handle"], session(second)["handle"]);
    // What it writes does not enqueue it, and a pass that finds everything as it was writes nothing.
    assert_eq!(
        again(&story, "2").await,
        "01 02 03 05 N2 07a P1 07 09 10 24 16 18 19"
    );
    assert_eq!(story.passes().len(), 3);
    assert!(story.passes()[2].writes.is_empty());
}

async fn scenario_02_a_missing_default_identity_is_an_error(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({"autoCreateControllerIdentity": false})).await;
    story.create(&cluster(None)).await;
    let before = passes(&story, 1).await;
    assert_eq!(story.edges(), ["01 11 06"]);
    assert!(waits(&before[0]));
    was_not_called(&before);
    // It is enqueued when there is one.
    story.create(&identity(CONTROLLER, "default", json!({}))).await;
    let after = passes(&story, 2).await;
    assert_eq!(judged(&after[1]), "01 02 03 05 N2 07a P1 07 08 10 14 16 17 18 19");
    assert!(after[1].started.boot - before[0].ended.boot < Duration::from_secs(10));
}

async fn scenario_02_a_missing_default_identity_is_made_and_the_next_pass_goes_on(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    story.create(&cluster(None)).await;
    let passes = passes(&story, 2).await;
    assert_eq!(
        story.edges(),
        ["01 11 23", "01 02 03 05 N2 07a P1 07 08 10 14 16 17 18 19"]
    );
    was_not_called(&passes[..1]);
    let made = get(&story, &identity(CONTROLLER, "default", json!({}))).await;
    assert_eq!(made["spec"], json!({"allowedNamespaces": {}}));
}

async fn scenario_03_a_default_identity_that_allows_nobody_denies_without_a_call(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    let nobody = identity(CONTROLLER, "default", json!({"allowedNamespaces": null}));
    story.create(&nobody).await;
    story.create(&cluster(None)).await;
    let passes = passes(&story, 1).await;
    assert_eq!(story.edges(), ["01 11 N1 13"]);
    assert!(waits(&passes[0]));
    was_not_called(&passes);
    let object = story.object().await;
    assert_eq!(
        condition(&object, ALLOWED),
        json!(["False", "PrincipalUsageUnauthorized"])
    );
    assert_eq!(object["status"]["accountID"], Value::Null);
}

async fn scenario_04_keys_are_used_from_the_cache_the_second_time(on: &dyn Backend) {
    let story = with_keys(on, json!({})).await;
    assert_eq!(story.edges(), ["01 02 03 05 N3 07a P2 07 08 10 14 16 17 18 19"]);
    assert_eq!(
        again(&story, "1").await,
        "01 02 03 05 N3 07a P2 07 09 10 24 16 18 19"
    );
    assert_eq!(story.object().await["status"]["accountID"], TEAM);
    let owners = story.object().await["metadata"]["ownerReferences"].clone();
    let owned = |of: &Value| json!([of["kind"], of["controller"], of["blockOwnerDeletion"]]);
    assert_eq!(owned(&owners[0]), json!(["Cluster", true, null]));
    assert_eq!(owned(&owners[1]), json!([STATIC, false, false]));
}

async fn scenario_05_a_missing_secret_is_said(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    story.create(&keys(json!({"list": ["team"]}))).await;
    story.create(&cluster(Some((STATIC, "keys")))).await;
    let before = passes(&story, 1).await;
    assert_eq!(story.edges(), ["01 02 03 05 N3 07a 06"]);
    assert!(waits(&before[0]));
    was_not_called(&before);
    assert_eq!(
        condition(&story.object().await, RETRIEVED),
        json!(["False", "PrincipalCredentialRetrievalFailed"])
    );
    // Nobody watches Secrets: it is missed until the next look.
    story.create(&access_key("AKIAFIRST")).await;
    let after = passes(&story, 2).await;
    assert!(judged(&after[1]).ends_with("P2 07 08 10 14 16 17 18 19"));
    assert!(after[1].started.boot - before[0].ended.boot >= Duration::from_millis(specified::RESYNC));
}

async fn scenario_06_a_rotated_secret_is_another_session_for_everybody(on: &dyn Backend) {
    let story = with_keys(on, json!({})).await;
    bind(&story, capv_machines(json!({}))).await;
    story.create(&capv_machine()).await;
    let machine = Watched::new(&story, capv_machine());
    machine.until_is("status.phase", "Running").await;
    let first = format!("arn:aws:iam::{TEAM}:user/first");
    for pass in [machine.passes(), story.passes()].concat() {
        assert_eq!(session(&pass)["attributes"]["principal"], *first);
    }

    edit(
        &story,
        &access_key(""),
        json!({"stringData": {"AccessKeyID": "AKIASECOND"}}),
    )
    .await;
    assert_eq!(
        again(&story, "1").await,
        "01 02 03 05 N3 07a P2 07 08 10 14 16 18 19"
    );
    let second = format!("arn:aws:iam::{TEAM}:user/second");
    assert_eq!(session(&story.passes()[1])["attributes"]["principal"], *second);
    let pass = machine.again("1").await;
    assert_eq!(judged(&pass), "01 02 03 N3 07a P2 07 09 10 24 16 18 19");
    assert_eq!(session(&pass)["attributes"]["principal"], *second);
}

async fn scenario_07_a_chain_of_roles_is_one_session_assumed_inner_first(on: &dyn Backend) {
    let story = chained(on, json!({})).await;
    // The outer role trusts the inner one alone, and that one the host: in another order nobody becomes anybody.
    assert_eq!(
        story.edges(),
        ["01 02 03 05 N2 07a P3 N2 P8 P3 N2 P8 P1 07 08 10 14 16 17 18 19"]
    );
    let session = session(&story.passes()[0]);
    let outer = format!("arn:aws:sts::{TEAM}:assumed-role/outer/polity");
    assert_eq!(
        (
            &session["attributes"]["principal"],
            &session["attributes"]["account"]
        ),
        (&json!(outer), &json!(TEAM))
    );
    again(&story, "1").await;
    assert_eq!(sessions(&story.passes()).len(), 1);
}

async fn scenario_08_a_chain_whose_middle_denies_assumes_nothing(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    chain(&story).await;
    let inner = role("inner", INNER, None);
    edit(
        &story,
        &inner,
        json!({"spec": {"allowedNamespaces": {"list": ["other"]}}}),
    )
    .await;
    story.create(&cluster(Some((ROLE, "outer")))).await;
    let passes = passes(&story, 1).await;
    assert_eq!(story.edges(), ["01 02 03 05 N2 07a P3 N4 P8 P6"]);
    assert!(waits(&passes[0]));
    was_not_called(&passes);
    assert_eq!(
        condition(&story.object().await, ALLOWED),
        json!(["False", "SourcePrincipalUsageUnauthorized"])
    );
}

async fn scenario_09_a_chain_that_comes_back_ends(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    story.create(&role("outer", OUTER, Some((ROLE, "inner")))).await;
    story.create(&role("inner", INNER, Some((ROLE, "outer")))).await;
    story.create(&cluster(Some((ROLE, "outer")))).await;
    let passes = passes(&story, 1).await;
    assert_eq!(story.edges(), ["01 02 03 05 N2 07a P3 N2 P8 P3 P7"]);
    assert!(waits(&passes[0]));
    was_not_called(&passes);
    assert_eq!(
        condition(&story.object().await, RETRIEVED),
        json!(["False", "IdentityChainCycle"])
    );
}

async fn scenario_10_another_account_changes_nothing(on: &dyn Backend) {
    let story = chained(on, json!({})).await;
    let before = story.object().await;
    assert_eq!(before["status"]["accountID"], TEAM);
    let outer = role("outer", OUTER, None);
    let away = json!({"spec": {"roleARN": AWAY, "sourceIdentityRef": refer((CONTROLLER, "default"))}});
    edit(&story, &outer, away).await;
    let denied = passes(&story, 2).await.pop().expect("a pass");
    assert_eq!(judged(&denied), "01 02 03 05 N2 07a P3 N2 P8 P1 07 08 10 14 15");
    assert!(waits(&denied));
    assert_eq!(calls(&denied), ["credential"]);
    let after = story.object().await;
    assert_eq!(condition(&after, ACCOUNT), json!(["False", "AccountMismatch"]));
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(
        after["metadata"]["ownerReferences"],
        before["metadata"]["ownerReferences"]
    );
    assert_eq!(after["status"]["accountID"], TEAM);
    story.sleep(Duration::from_secs(3_600)).await;
    assert!(story.passes()[1..].iter().all(waits), "{:?}", story.edges());

    let back = json!({"spec": {"roleARN": OUTER, "sourceIdentityRef": refer((ROLE, "inner"))}});
    edit(&story, &outer, back).await;
    story
        .until("its own account is led to again", |object| {
            condition(object, ACCOUNT) == json!(["True", "AccountMatches"])
        })
        .await;
}

async fn scenario_11_the_account_is_written_once(on: &dyn Backend) {
    let story = with_keys(on, json!({})).await;
    assert_eq!(story.object().await["status"]["accountID"], TEAM);
    for nonce in ["1", "2", "3"] {
        again(&story, nonce).await;
    }
    let edges = story.edges();
    assert!(edges[0].contains(" 17 "), "{edges:?}");
    assert!(
        !edges[1..].iter().any(|edges| edges.contains(" 17 ")),
        "{edges:?}"
    );
    assert!(story.passes()[1..].iter().all(|pass| pass.writes.is_empty()));
}

async fn scenario_12_a_principal_that_aws_does_not_know_yet_is_tried_again(on: &dyn Backend) {
    let unknown = json!({"fail": {"code": "unauthenticated", "message": "InvalidClientTokenId: not yet"}});
    let fault = json!({"operation": "sts.get-caller-identity", "count": 2, "then": unknown});
    let story = begin(on, json!({"faults": [fault]}), json!({})).await;
    story.create(&access_key("AKIAFIRST")).await;
    story.create(&keys(json!({"list": ["team"]}))).await;
    story.create(&cluster(Some((STATIC, "keys")))).await;
    let object = story
        .until("its credentials fail", |object| {
            !condition(object, RETRIEVED).is_null()
        })
        .await;
    assert_eq!(
        condition(&object, RETRIEVED),
        json!(["Unknown", "CredentialProviderBuildFailed"])
    );
    assert_eq!(condition(&object, ALLOWED), json!(["True", "Allowed"]));
    assert_eq!(object["status"]["accountID"], Value::Null);
    let passes = passes(&story, 3).await;
    let failed = "01 02 03 05 N3 07a P2 07 21";
    assert_eq!(
        story.edges(),
        [failed, failed, "01 02 03 05 N3 07a P2 07 08 10 14 16 17 18 19"]
    );
    for pass in &passes[..2] {
        assert_eq!(pass.outcome, Outcome::Denied);
        let Some(Next::Retry {
            class,
            failure: Some(failure),
        }) = &pass.next
        else {
            panic!("{:?}", pass.next)
        };
        assert_eq!((*class, failure.code), (RetryClass::Short, Code::Unauthenticated));
        assert!(
            pass.wait.is_some_and(|wait| wait < Duration::from_secs(10)),
            "{:?}",
            pass.wait
        );
    }
    let object = story.object().await;
    assert_eq!(condition(&object, RETRIEVED), json!(["True", "Retrieved"]));
}

async fn scenario_13_a_label_that_is_removed_takes_the_permission_with_it(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    story.create(&access_key("AKIAFIRST")).await;
    story
        .create(&keys(json!({"selector": {"matchLabels": {"env": "prod"}}})))
        .await;
    story.create(&cluster(Some((STATIC, "keys")))).await;
    let granted = passes(&story, 1).await.pop().expect("a pass");
    assert_eq!(judged(&granted), "01 02 03 05 N7 07a P2 07 08 10 14 16 17 18 19");

    let team = namespace("team", "prod");
    edit(&story, &team, json!({"metadata": {"labels": {"env": null}}})).await;
    let denied = passes(&story, 2).await.pop().expect("a pass");
    // At once. The cached session is there, and is not asked for.
    assert!(denied.started.boot - granted.ended.boot < Duration::from_secs(10));
    assert_eq!(judged(&denied), "01 02 03 05 N8 07b");
    assert!(waits(&denied));
    was_not_called(&[denied]);

    edit(&story, &team, json!({"metadata": {"labels": {"env": "prod"}}})).await;
    let granted = passes(&story, 3).await.pop().expect("a pass");
    assert_eq!(judged(&granted), "01 02 03 05 N7 07a P2 07 09 10 24 16 18 19");
}

async fn scenario_14_the_matrix_of_allowed_namespaces(on: &dyn Backend) {
    let matches = json!({"matchLabels": {"env": "prod"}});
    let other = json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]});
    let invalid = json!({"matchExpressions": [{"key": "env", "operator": "In"}]});
    let story = begin(on, json!({}), json!({})).await;
    for (row, (allowed, edges, granted)) in [
        (json!(null), "N1", false),
        (json!({}), "N2", true),
        (json!({"list": ["team"]}), "N3", true),
        (json!({"list": ["other"]}), "N4", false),
        (json!({"list": ["other"], "selector": {}}), "N4", false),
        (json!({"list": []}), "N5", false),
        (json!({"selector": {}}), "N5", false),
        (json!({"selector": {"matchLabels": {}}}), "N6", false),
        (json!({"selector": matches}), "N7", true),
        (json!({"selector": other}), "N8", false),
        (json!({"selector": invalid}), "N9", false),
        (json!({"list": ["team"], "selector": other}), "N3", true),
        (json!({"list": ["other"], "selector": matches}), "N10 N7", true),
        (json!({"list": ["other"], "selector": other}), "N10 N8", false),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("row-{row}");
        let spec = json!({"roleARN": INNER, "allowedNamespaces": allowed});
        story.create(&identity(ROLE, &name, spec)).await;
        let cluster = Watched::new(&story, cluster_named(&name, Some((ROLE, &name))));
        story.create(&cluster_named(&name, Some((ROLE, &name)))).await;
        let pass = cluster.passes_after(0).await.pop().expect("a pass");
        let after = match (granted, edges) {
            (true, _) => "07a P4 07 08 10 14 16 17 18 19",
            (false, "N9") => "",
            (false, _) => "07b",
        };
        let expected = format!("01 02 03 05 {edges} {after}");
        assert_eq!(judged(&pass), expected.trim(), "{allowed}");
        assert_eq!(calls(&pass).is_empty(), !granted, "{allowed}");
        assert_eq!(waits(&pass), !granted, "{allowed}");
        let reason = match (granted, edges) {
            (true, _) => json!(["True", "Allowed"]),
            (false, "N9") => json!(["Unknown", "AllowedNamespacesInvalid"]),
            (false, _) => json!(["False", "PrincipalUsageUnauthorized"]),
        };
        assert_eq!(condition(&cluster.object().await, ALLOWED), reason, "{allowed}");
    }
}

async fn scenario_14_what_lives_in_no_namespace_is_allowed_only_with_everybody(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    bind(&story, guarded(mcm::safeties(), json!({}))).await;
    let controller = identity(CONTROLLER, "default", json!({}));
    story.create(&controller).await;
    story.create(&mcm::safety()).await;
    let switch = Watched::new(&story, mcm::safety());
    let granted = switch.passes_after(0).await;
    assert!(
        judged(&granted[0]).starts_with("01 11 N2 12"),
        "{}",
        judged(&granted[0])
    );
    assert!(lifecycle_ran(&granted[0]));

    let seen = switch.passes().len();
    edit(
        &story,
        &controller,
        json!({"spec": {"allowedNamespaces": {"list": [""]}}}),
    )
    .await;
    let denied = switch
        .until_pass(seen, |pass| pass.outcome == Outcome::Denied)
        .await;
    assert_eq!(judged(&denied), "01 11 N11 13");
    assert!(!lifecycle_ran(&denied));
    was_not_called(&[denied]);
}

/// A cluster that somebody else's finalizer keeps.
async fn held(on: &dyn Backend, configuration: Value) -> Story {
    let story = begin(on, json!({}), configuration).await;
    chain(&story).await;
    let mut cluster = cluster(Some((ROLE, "outer")));
    cluster["metadata"]["finalizers"] = json!(["other.example.com/held"]);
    story.create(&cluster).await;
    passes(&story, 1).await;
    delete(&story, &role("inner", INNER, None)).await;
    let missing = passes(&story, 2).await.pop().expect("a pass");
    assert_eq!(judged(&missing), "01 02 03 05 N2 07a P3 06");
    assert!(waits(&missing), "nothing is let go that is not being deleted");
    story
}

async fn scenario_15_a_cluster_without_its_identity_cannot_be_deleted(on: &dyn Backend) {
    let story = held(on, json!({})).await;
    story.delete().await;
    story.sleep(Duration::from_secs(3_600)).await;
    assert!(story.passes()[1..].iter().all(waits), "{:?}", story.edges());
    // It can be once the identity is back.
    story
        .create(&role("inner", INNER, Some((CONTROLLER, "default"))))
        .await;
    let granted = |pass: &PassRecord| matches!(pass.roles[0].verdict, Some(Verdict::Granted(_)));
    story
        .until_passes(|passes| passes.last().is_some_and(granted))
        .await;
}

async fn scenario_15_unless_the_binding_lets_go_of_what_it_has(on: &dyn Backend) {
    let story = held(on, json!({"orphanOnMissingIdentity": true})).await;
    story.delete().await;
    let released = passes(&story, 3).await.pop().expect("a pass");
    assert_eq!(released.outcome, Outcome::Released);
    assert_eq!(judged(&released), "01 02 03 05 N2 07a P3 06 22");
    story.sleep(Duration::from_secs(3_600)).await;
    assert!(
        story.passes().len() < 12,
        "it is let go once, and not in a loop: {:?}",
        story.edges()
    );
}

async fn scenario_16_a_thousand_passes_are_one_session(on: &dyn Backend) {
    let story = with_keys(on, json!({})).await;
    let keys = keys(Value::Null);
    let passed = || story.host.records.lock().expect("a lock").len();
    for nonce in 2..=1_000 {
        let touched = json!({"metadata": {"annotations": {"example.com/touched": nonce.to_string()}}});
        edit(&story, &keys, touched).await;
        story.request(&nonce.to_string()).await;
        let end = story.site.clock.now().boot + Duration::from_mins(1);
        while passed() < nonce {
            assert!(story.site.clock.now().boot < end, "pass {nonce} does not come");
            story.sleep(Duration::from_millis(50)).await;
        }
    }
    let passes = story.passes();
    assert_eq!(passes.len(), 1_000);
    let mut reused = passes.iter().map(|pass| session(pass)["reused"].clone());
    assert_eq!(reused.next(), Some(json!(false)));
    assert!(reused.all(|reused| reused == true));
    assert_eq!(sessions(&passes).len(), 1);
}

async fn capa_04_a_role_for_the_tokens_of_the_tenants_own_namespace(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({"serviceAccountIdentities": true})).await;
    let pods = |namespace: &str| {
        let spec = json!({"roleARN": format!("arn:aws:iam::{TEAM}:role/pods"), "audiences": ["sts"], "allowedNamespaces": {}});
        let mut identity = identity("AWSServiceAccountIdentity", "pods", spec);
        identity["metadata"]["namespace"] = namespace.into();
        identity
    };
    // That of another namespace is nobody's here.
    story.create(&pods("rivals")).await;
    story
        .create(&cluster(Some(("AWSServiceAccountIdentity", "pods"))))
        .await;
    passes(&story, 1).await;
    assert_eq!(story.edges(), ["01 02 04 06"]);
    story.create(&pods("team")).await;
    let granted = passes(&story, 2).await.pop().expect("a pass");
    assert_eq!(judged(&granted), "01 02 04 05 N2 07a P9 07 08 10 14 16 17 18 19");
    assert_eq!(session(&granted)["attributes"]["account"], TEAM);
}

async fn capa_05_a_cluster_does_not_go_with_its_identity(on: &dyn Backend) {
    let story = with_keys(on, json!({})).await;
    let owners = async || {
        let owners = story.object().await["metadata"]["ownerReferences"].clone();
        let uids = owners
            .as_array()
            .into_iter()
            .flatten()
            .map(|owner| owner["uid"].clone());
        uids.collect::<Vec<_>>()
    };
    let keys = keys(json!({"list": ["team"]}));
    let uid = async || get(&story, &keys).await["metadata"]["uid"].clone();
    assert_eq!(owners().await, [json!("uid-capi"), uid().await]);

    delete(&story, &keys).await;
    let denied = passes(&story, 2).await.pop().expect("a pass");
    assert_eq!(judged(&denied), "01 02 03 06");
    story.sleep(Duration::from_secs(3_600)).await;
    assert_eq!(owners().await[0], "uid-capi", "it is there, and is its maker's");

    // One that is made anew is another one: another owner, and another session.
    story.create(&keys).await;
    let granted = |pass: &&PassRecord| judged(pass).contains("P2 07 08 10");
    story
        .until_passes(|passes| passes.iter().filter(granted).count() == 2)
        .await;
    assert_eq!(owners().await, [json!("uid-capi"), uid().await]);
}

/// A cluster without any other owner, whose identity goes; whether it went too.
async fn goes_with_its_identity(on: &dyn Backend, owner_reference: &str) -> bool {
    let story = begin(on, json!({}), json!({"ownerReference": owner_reference})).await;
    let role = role("inner", INNER, None);
    story.create(&role).await;
    let mut cluster = cluster(Some((ROLE, "inner")));
    cluster["metadata"]["ownerReferences"] = json!([]);
    story.create(&cluster).await;
    let granted = passes(&story, 1).await.pop().expect("a pass");
    let owned = judged(&granted).contains(" 05 ");
    delete(&story, &role).await;
    story.sleep(Duration::from_secs(60)).await;
    assert_eq!(story.object().await.is_null(), owned);
    owned
}

async fn capa_05_a_cluster_without_another_owner_is_not_owned(on: &dyn Backend) {
    assert!(!goes_with_its_identity(on, "WithOtherOwner").await);
}

/// The drawing, literally: the identity becomes an owner even if there is no other owner.
async fn capa_05_a_cluster_goes_with_its_only_owner(on: &dyn Backend) {
    assert!(goes_with_its_identity(on, "Always").await);
}

/// Eight identities are a chain, and one session. Nine are refused (`refusals`).
async fn capa_p7_a_chain_of_eight_identities_is_one(on: &dyn Backend) {
    let names: Vec<String> = (1..=8).map(|n| format!("r-{n}")).collect();
    let arn = |role: &str| format!("arn:aws:iam::{TEAM}:role/{role}");
    let host = format!("arn:aws:iam::{HOST}:role/controller");
    let trusts = names.iter().enumerate().map(|(n, name)| {
        let source = names.get(n + 1).map_or(host.clone(), |source| arn(source));
        json!({"arn": arn(name), "trusts": [source]})
    });
    let roles: Vec<Value> = trusts.collect();
    let story = begin(on, json!({"identity": {"roles": roles}}), json!({})).await;
    for (n, name) in names.iter().enumerate() {
        let source = names.get(n + 1).map(|source| (ROLE, source.as_str()));
        story.create(&role(name, &arn(name), source)).await;
    }
    story.create(&cluster(Some((ROLE, "r-1")))).await;
    let pass = passes(&story, 1).await.remove(0);
    assert!(
        judged(&pass).ends_with("07 08 10 14 16 17 18 19"),
        "{}",
        judged(&pass)
    );
    let first = format!("arn:aws:sts::{TEAM}:assumed-role/r-1/polity");
    assert_eq!(session(&pass)["attributes"]["principal"], first);
}

/// Compared by name alone, a source that is called like the cluster's own identity gets the wrong reason.
async fn erratum_11_a_source_of_the_same_name_is_a_source(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    let others = json!({"list": ["other"]});
    let source = json!({"secretRef": {"name": "access-key"}, "allowedNamespaces": others});
    story.create(&identity(STATIC, "same", source)).await;
    let own = role("same", OUTER, Some((STATIC, "same")));
    story.create(&own).await;
    story.create(&cluster(Some((ROLE, "same")))).await;
    let denied = passes(&story, 1).await;
    assert!(waits(&denied[0]));
    let why = condition(&story.object().await, ALLOWED);
    assert_eq!(why, json!(["False", "SourcePrincipalUsageUnauthorized"]));
    let spec = json!({"spec": {"allowedNamespaces": others}});
    edit(&story, &own, spec).await;
    passes(&story, 2).await;
    let why = condition(&story.object().await, ALLOWED);
    assert_eq!(why, json!(["False", "PrincipalUsageUnauthorized"]));
}

/// The handles of the sessions that passes were answered.
fn sessions(passes: &[PassRecord]) -> BTreeSet<String> {
    passes
        .iter()
        .map(|pass| session(pass)["handle"].to_string())
        .collect()
}
