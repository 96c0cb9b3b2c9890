//! The scenarios of the specification, (g) 1 to 16, and its errata, (f) 1 to 12: passes one after the other against a
//! small AWS. Each erratum has a test of what the literal reading would get wrong.

#[allow(unreachable_pub, reason = "a module of this test alone")]
mod aws;

use std::collections::BTreeSet;
use std::time::Duration;

use aws::Aws;
use capa_identity::cases;
use polity_sdk::test::{Ended, World, describe};
use polity_sdk::{Code, Next, RetryClass, Verdict};
use serde_json::{Value, json};

const CONTROLLER: &str = "AWSClusterControllerIdentity";
const STATIC: &str = "AWSClusterStaticIdentity";
const ROLE: &str = "AWSClusterRoleIdentity";

/// A cluster and its AWS.
struct Story {
    world: World,
    aws: Aws,
}

impl Story {
    /// A cluster of the namespace `team` with this identity.
    fn of(reference: Option<(&str, &str)>) -> Self {
        Story::with(reference, json!({}))
    }

    fn with(reference: Option<(&str, &str)>, config: Value) -> Self {
        let mut cluster = json!({
            "apiVersion": "capa.polity.dev/v1alpha1", "kind": "AWSCluster",
            "metadata": {"name": "c-1", "namespace": "team", "uid": "uid-c-1", "resourceVersion": "1", "ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c-1", "uid": "uid-capi", "controller": true},
            ]},
            "spec": {"region": "eu-central-1"},
        });
        if let Some((kind, name)) = reference {
            cluster["spec"]["identityRef"] = json!({"kind": kind, "name": name});
        }
        let aws = Aws::default();
        aws.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"env": "prod"}}}));
        Story {
            world: world(cluster, &aws, config),
            aws,
        }
    }

    /// A cluster whose role is assumed from an inner role, which the controller assumes.
    fn chained() -> Self {
        let story = Story::of(Some((ROLE, "outer")));
        story.aws.identity(CONTROLLER, "default", json!({}));
        story.role("outer", Some((ROLE, "inner")));
        story.role("inner", Some((CONTROLLER, "default")));
        story
    }

    /// A cluster with the keys of a Secret.
    fn with_keys() -> Self {
        let story = Story::of(Some((STATIC, "keys")));
        let spec = json!({"secretRef": {"name": "aws-keys"}, "allowedNamespaces": {"list": ["team"]}});
        story.aws.identity(STATIC, "keys", spec);
        story.aws.state().secrets.insert("aws-keys".into(), "d-1".into());
        story
    }

    fn role(&self, name: &str, source: Option<(&str, &str)>) {
        let mut spec = json!({"roleARN": format!("arn:{name}")});
        if let Some((kind, name)) = source {
            spec["sourceIdentityRef"] = json!({"kind": kind, "name": name});
        }
        self.aws.identity(ROLE, name, spec);
    }

    /// A machine of the cluster, of another team's kind. It sees the cluster as it is now.
    fn machine(&self) -> World {
        self.aws.put(self.world.object().unwrap().clone());
        let machine = json!({
            "apiVersion": "mcm.polity.dev/v1alpha1", "kind": "Machine",
            "metadata": {"name": "m-1", "namespace": "team", "uid": "uid-m-1",
                "labels": {"cluster.x-k8s.io/cluster-name": "c-1"}},
            "spec": {"class": "small"},
        });
        world(machine, &self.aws, json!({}))
    }

    fn pass(&mut self) -> Judged {
        judge(&mut self.world)
    }

    fn calls(&self) -> Vec<String> {
        self.aws.state().calls.clone()
    }

    fn condition(&self, kind: &str) -> Value {
        condition(&self.world, kind)
    }
}

fn world(object: Value, aws: &Aws, config: Value) -> World {
    let mut world = World::new(object)
        .config(config)
        .manifest(&capa_identity::manifest())
        .grants(capa_identity::cases::optional());
    let aws = aws.clone();
    world.responds(move |request| aws.answer(request));
    world
}

/// One pass, and the time that it asks for.
fn judge(world: &mut World) -> Judged {
    let (verdict, ended) = world.judge(capa_identity::judge);
    world.wait(&ended.next, Duration::from_secs(1));
    let notes: Vec<&str> = ended
        .notes
        .iter()
        .map(|id| id.trim_start_matches("CAPA-"))
        .collect();
    Judged {
        edges: notes.join(" "),
        verdict,
        ended,
    }
}

fn condition(world: &World, kind: &str) -> Value {
    let conditions = world.status()["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.map_or(Value::Null, |condition| {
        json!([condition["status"], condition["reason"]])
    })
}

struct Judged {
    edges: String,
    verdict: Verdict,
    ended: Ended,
}

impl Judged {
    fn handle(&self) -> &str {
        match &self.verdict {
            Verdict::Granted(handle) => handle,
            other => panic!("{other:?} after {}", self.edges),
        }
    }

    fn is_denied(&self) -> bool {
        self.verdict == Verdict::Denied
    }

    /// Looked at again after ten minutes, or when something that it rests on changes: never hot.
    fn waits(&self) -> bool {
        self.is_denied() && self.ended.next == Next::Settled(Some(600_000))
    }

    /// What it asked for, and what it found there because the last pass had asked for it.
    fn rests_on(&self) -> BTreeSet<String> {
        let entries = self.ended.journal.iter();
        entries.map(|entry| describe(&entry.request)).collect()
    }

    /// What it asked for, in one list.
    fn asked(&self) -> Vec<String> {
        self.ended.requests().concat()
    }
}

#[test]
fn scenario_01_by_default_the_controllers_credentials_are_used() {
    let mut story = Story::of(None);
    story.aws.identity(CONTROLLER, "default", json!({}));
    let first = story.pass();
    assert_eq!(first.edges, "01 11 N2 12 14 16 17 18 19");
    assert_eq!(
        story.world.object().unwrap()["spec"]["identityRef"],
        json!({"kind": CONTROLLER, "name": "default"})
    );
    let second = story.pass();
    assert_eq!(second.edges, "01 02 03 05 N2 07a P1 07 09 10 24 16 18 19");
    assert_eq!(second.handle(), first.handle());
    assert_eq!(
        story.condition("PrincipalUsageAllowed"),
        json!(["True", "Allowed"])
    );
    assert_eq!(
        story.condition("PrincipalCredentialRetrieved"),
        json!(["True", "Retrieved"])
    );
    assert_eq!(story.pass().ended.patch, None);
}

#[test]
fn scenario_02_a_missing_default_identity_is_an_error() {
    let mut story = Story::with(None, json!({"autoCreateControllerIdentity": false}));
    let judged = story.pass();
    assert_eq!(judged.edges, "01 11 06");
    assert!(judged.waits());
    assert!(story.calls().is_empty());
}

#[test]
fn scenario_02_a_missing_default_identity_is_made_and_the_next_pass_goes_on() {
    let mut story = Story::of(None);
    let first = story.pass();
    assert_eq!(first.edges, "01 11 23");
    assert!(first.is_denied() && story.calls().is_empty());
    assert_eq!(first.ended.next, Next::After(1_000));
    let second = story.pass();
    assert_eq!(second.edges, "01 02 03 05 N2 07a P1 07 08 10 14 16 17 18 19");
    second.handle();
}

#[test]
fn scenario_03_a_default_identity_that_allows_nobody_denies_without_a_call() {
    let mut story = Story::of(None);
    story
        .aws
        .identity(CONTROLLER, "default", json!({"allowedNamespaces": null}));
    let judged = story.pass();
    assert_eq!(judged.edges, "01 11 N1 13");
    assert!(judged.waits());
    assert!(story.calls().is_empty());
    assert_eq!(
        story.condition("PrincipalUsageAllowed"),
        json!(["False", "PrincipalUsageUnauthorized"])
    );
}

#[test]
fn scenario_04_keys_are_used_from_the_cache_the_second_time() {
    let mut story = Story::with_keys();
    assert_eq!(
        story.pass().edges,
        "01 02 03 05 N3 07a P2 07 08 10 14 16 17 18 19"
    );
    assert_eq!(story.pass().edges, "01 02 03 05 N3 07a P2 07 09 10 24 16 18 19");
    assert_eq!(story.calls(), ["keys of aws-keys", "caller identity"]);
}

#[test]
fn scenario_05_a_missing_secret_is_said() {
    let mut story = Story::with_keys();
    story.aws.state().secrets.clear();
    let judged = story.pass();
    assert_eq!(judged.edges, "01 02 03 05 N3 07a 06");
    assert!(judged.waits());
    assert_eq!(
        story.condition("PrincipalCredentialRetrieved"),
        json!(["False", "PrincipalCredentialRetrievalFailed"])
    );
    assert!(story.calls().is_empty());
}

#[test]
fn scenario_06_a_rotated_secret_is_another_session_for_everybody() {
    let mut story = Story::with_keys();
    let mut machine = story.machine();
    let before = story.pass().handle().to_owned();
    assert_eq!(judge(&mut machine).handle(), before);
    story.aws.state().secrets.insert("aws-keys".into(), "d-2".into());
    let cluster = story.pass();
    assert_eq!(cluster.edges, "01 02 03 05 N3 07a P2 07 08 10 14 16 18 19");
    assert_ne!(cluster.handle(), before);
    assert_eq!(judge(&mut machine).handle(), cluster.handle());
}

#[test]
fn scenario_07_a_chain_of_roles_is_one_session_assumed_inner_first() {
    let mut story = Story::chained();
    assert_eq!(
        story.pass().edges,
        "01 02 03 05 N2 07a P3 N2 P8 P3 N2 P8 P1 07 08 10 14 16 17 18 19"
    );
    assert_eq!(
        story.calls(),
        ["assume arn:inner", "assume arn:outer", "caller identity"]
    );
    assert_eq!(story.aws.state().sessions.len(), 1);
}

#[test]
fn scenario_08_a_chain_whose_middle_denies_assumes_nothing() {
    let mut story = Story::chained();
    story.aws.identity(
        ROLE,
        "inner",
        json!({
            "roleARN": "arn:inner", "allowedNamespaces": {"list": ["other"]},
            "sourceIdentityRef": {"kind": CONTROLLER, "name": "default"},
        }),
    );
    let judged = story.pass();
    assert_eq!(judged.edges, "01 02 03 05 N2 07a P3 N4 P8 P6");
    assert!(judged.waits());
    assert_eq!(
        story.condition("PrincipalUsageAllowed"),
        json!(["False", "SourcePrincipalUsageUnauthorized"])
    );
    assert!(story.calls().is_empty());
}

#[test]
fn scenario_09_a_chain_that_comes_back_ends() {
    let mut story = Story::chained();
    story.role("inner", Some((ROLE, "outer")));
    let judged = story.pass();
    assert_eq!(judged.edges, "01 02 03 05 N2 07a P3 N2 P8 P3 P7");
    assert!(judged.waits());
    assert_eq!(
        story.condition("PrincipalCredentialRetrieved"),
        json!(["False", "IdentityChainCycle"])
    );
    assert!(story.calls().is_empty());
}

#[test]
fn scenario_10_another_account_changes_nothing() {
    let mut story = Story::chained();
    story.pass();
    assert_eq!(story.world.status()["accountID"], "111");
    story
        .aws
        .state()
        .accounts
        .insert("arn:other".into(), "222".into());
    story.aws.identity(ROLE, "outer", json!({"roleARN": "arn:other"}));
    let before = story.world.object().unwrap().clone();
    let judged = story.pass();
    assert!(judged.edges.ends_with("P4 07 08 10 14 15"), "{}", judged.edges);
    assert!(judged.waits());
    assert_eq!(
        story.condition("AccountMatches"),
        json!(["False", "AccountMismatch"])
    );
    for unchanged in ["/spec", "/metadata", "/status/accountID"] {
        assert_eq!(
            story.world.object().unwrap().pointer(unchanged),
            before.pointer(unchanged)
        );
    }
    assert!(judge(&mut story.machine()).is_denied());
    story.role("outer", Some((ROLE, "inner")));
    story.pass().handle();
    assert_eq!(
        story.condition("AccountMatches"),
        json!(["True", "AccountMatches"])
    );
}

#[test]
fn scenario_11_the_account_is_written_once() {
    let mut story = Story::with_keys();
    assert!(story.pass().edges.contains(" 17 "));
    for _ in 0..3 {
        let judged = story.pass();
        assert!(!judged.edges.contains(" 17 "));
        assert_eq!(judged.ended.patch, None);
    }
}

#[test]
fn scenario_12_a_principal_that_aws_does_not_know_yet_is_tried_again() {
    let mut story = Story::with_keys();
    story.aws.state().failing = Some(Code::Unauthenticated);
    let judged = story.pass();
    assert_eq!(judged.edges, "01 02 03 05 N3 07a P2 07 21");
    assert!(judged.is_denied());
    let Next::Retry(retry) = &judged.ended.next else {
        panic!("{}", judged.ended.next)
    };
    assert_eq!(retry.class, RetryClass::Short);
    assert_eq!(
        story.condition("PrincipalCredentialRetrieved"),
        json!(["Unknown", "CredentialProviderBuildFailed"])
    );
    assert_eq!(
        story.condition("PrincipalUsageAllowed"),
        json!(["True", "Allowed"])
    );
    assert_eq!(story.world.status()["accountID"], Value::Null);
    story.aws.state().failing = None;
    assert_eq!(
        story.pass().edges,
        "01 02 03 05 N3 07a P2 07 08 10 14 16 17 18 19"
    );
    assert_eq!(
        story.condition("PrincipalCredentialRetrieved"),
        json!(["True", "Retrieved"])
    );
}

#[test]
fn scenario_13_a_label_that_is_removed_takes_the_permission_with_it() {
    let mut story = Story::with_keys();
    let selector = json!({"selector": {"matchLabels": {"env": "prod"}}});
    story.aws.identity(
        STATIC,
        "keys",
        json!({"secretRef": {"name": "aws-keys"}, "allowedNamespaces": selector}),
    );
    let judged = story.pass();
    assert_eq!(judged.edges, "01 02 03 05 N7 07a P2 07 08 10 14 16 17 18 19");
    assert!(judged.asked().contains(&"Namespace team".to_owned()));
    story.aws.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"env": "test"}}}));
    let judged = story.pass();
    // The cached session is there, and is not asked for.
    assert_eq!(judged.edges, "01 02 03 05 N8 07b");
    assert!(judged.waits());
    assert_eq!(story.aws.state().sessions.len(), 1);
    assert!(judge(&mut story.machine()).is_denied());
}

#[test]
fn scenario_14_the_matrix_of_allowed_namespaces() {
    let matches = json!({"matchLabels": {"env": "prod"}});
    let other = json!({"matchLabels": {"env": "test"}});
    let invalid = json!({"matchExpressions": [{"key": "env", "operator": "Like"}]});
    for (allowed, rows, granted) in [
        (json!(null), "N1", false),
        (json!({}), "N2", true),
        (json!({"list": ["team"]}), "N3", true),
        (json!({"list": ["other"]}), "N4", false),
        (json!({"list": []}), "N5", false),
        (json!({"selector": {}}), "N5", false),
        (json!({"selector": {"matchLabels": {}}}), "N6", false),
        (json!({"selector": matches}), "N7", true),
        (json!({"selector": other}), "N8", false),
        (json!({"selector": invalid}), "N9", false),
        (json!({"list": ["team"], "selector": other}), "N3", true),
        (json!({"list": ["other"], "selector": matches}), "N10 N7", true),
        (json!({"list": ["other"], "selector": other}), "N10 N8", false),
        (json!({"lst": ["team"]}), "N12", false),
        (json!({"list": ["team"], "selektor": {}}), "N12", false),
        (json!({"selector": {"matchLabel": {"env": "prod"}}}), "N9", false),
    ] {
        let mut story = Story::of(None);
        story
            .aws
            .identity(CONTROLLER, "default", json!({"allowedNamespaces": allowed}));
        let judged = story.pass();
        assert!(
            judged.edges.starts_with(&format!("01 11 {rows}")),
            "{allowed}: {}",
            judged.edges
        );
        assert_eq!(
            matches!(judged.verdict, Verdict::Granted(_)),
            granted,
            "{allowed}"
        );
        assert_eq!(story.calls().is_empty(), !granted, "{allowed}");
    }
    for (allowed, rows) in [
        (json!({}), "N2"),
        (json!({"list": [""], "selector": matches}), "N11"),
    ] {
        let aws = Aws::default();
        aws.identity(CONTROLLER, "default", json!({"allowedNamespaces": allowed}));
        let fleet = json!({"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "f", "uid": "uid-f"}});
        let judged = judge(&mut world(fleet, &aws, json!({})));
        assert!(
            judged.edges.starts_with(&format!("01 11 {rows}")),
            "{}",
            judged.edges
        );
    }
}

#[test]
fn scenario_15_a_cluster_without_its_identity_cannot_be_deleted() {
    let mut story = Story::chained();
    story
        .world
        .edit(json!({"metadata": {"finalizers": ["other.example.com/held"]}}));
    story.pass();
    story.aws.remove(ROLE, "inner");
    story.world.delete();
    for _ in 0..3 {
        assert!(story.pass().waits());
    }
    // It can be once the identity is back.
    story.role("inner", Some((CONTROLLER, "default")));
    story.pass().handle();
}

#[test]
fn scenario_15_unless_the_binding_lets_go_of_what_it_has() {
    let mut story = Story::with(Some((ROLE, "outer")), json!({"orphanOnMissingIdentity": true}));
    story
        .world
        .edit(json!({"metadata": {"finalizers": ["other.example.com/held"]}}));
    assert!(
        story.pass().waits(),
        "nothing is let go that is not being deleted"
    );
    story.world.delete();
    let judged = story.pass();
    assert_eq!(
        (judged.edges.as_str(), &judged.verdict),
        ("01 02 03 06 22", &Verdict::Released)
    );
}

#[test]
fn scenario_16_a_thousand_passes_are_one_session() {
    let mut story = Story::chained();
    for version in 0..1_000 {
        let version = version.to_string();
        for object in &mut story.aws.state().objects {
            object["metadata"]["resourceVersion"] = version.as_str().into();
        }
        story
            .world
            .edit(json!({"metadata": {"resourceVersion": version}}));
        story.pass().handle();
    }
    assert_eq!(story.aws.state().sessions.len(), 1);
    assert_eq!(story.calls().len(), 3);
}

/// Literally, the yes-branch of the drawing uses whatever identity is named: any tenant uses any role.
#[test]
fn erratum_01_a_named_identity_must_allow_the_namespace_as_well() {
    let mut story = Story::of(Some((ROLE, "admin")));
    story.aws.identity(
        ROLE,
        "admin",
        json!({"roleARN": "arn:admin", "allowedNamespaces": {"list": ["admins"]}}),
    );
    assert!(story.pass().waits());
    assert!(judge(&mut story.machine()).waits());
    assert!(story.calls().is_empty());
}

/// Literally, the no-branch checks `allowedNamespaces` of an identity that it never fetched.
#[test]
fn erratum_02_the_default_identity_is_fetched_before_it_is_checked() {
    let mut story = Story::of(None);
    story.aws.identity(
        CONTROLLER,
        "default",
        json!({"allowedNamespaces": {"list": ["other"]}}),
    );
    let judged = story.pass();
    assert_eq!(judged.asked(), ["AWSClusterControllerIdentity default"]);
    assert!(judged.waits());
}

/// Once the default is written down, the other branch is taken: it must lead to the same session.
#[test]
fn erratum_03_the_default_that_was_written_down_leads_to_the_same_session() {
    let mut story = Story::of(None);
    story.aws.identity(CONTROLLER, "default", json!({}));
    let (first, second) = (story.pass(), story.pass());
    assert_eq!(first.asked().last(), second.asked().last());
    assert_eq!(first.handle(), second.handle());
    assert_eq!(story.aws.state().sessions.len(), 1);
}

/// Garbage collection deletes an object once none of its owners exists: literally, an identity that is the only owner
/// of a cluster takes it along, infrastructure and all.
#[test]
fn erratum_04_no_cluster_goes_with_its_identity() {
    let collected = |object: &Value, gone: &str| {
        let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
        !owners.is_empty() && owners.iter().all(|owner| owner["uid"] == gone)
    };
    let mut story = Story::with_keys();
    story.pass();
    let object = story.world.object().unwrap().clone();
    let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 2);
    assert_eq!(
        (&owners[0]["kind"], &owners[0]["controller"]),
        (&json!("Cluster"), &json!(true))
    );
    assert_eq!(
        (&owners[1]["uid"], &owners[1]["controller"]),
        (&json!("uid-keys"), &json!(false))
    );
    assert_eq!(owners[1]["blockOwnerDeletion"], false);
    assert!(!collected(&object, "uid-keys"));

    let mut story = Story::with_keys();
    story.world.edit(json!({"metadata": {"ownerReferences": []}}));
    story.pass().handle();
    assert!(!collected(story.world.object().unwrap(), "uid-keys"));
}

/// Literally, only the owner reference can fail. A fetch that fails must stop the pass as well.
#[test]
fn erratum_05_a_failed_fetch_stops_before_the_provider() {
    let mut story = Story::of(Some((STATIC, "keys")));
    let judged = story.pass();
    assert_eq!(judged.asked(), ["AWSClusterStaticIdentity keys"]);
    assert_eq!(judged.edges, "01 02 03 06");
}

/// Read as a type with defaults, an empty selector alone is nothing at all, which allows everybody; the documentation
/// says that it allows nobody.
#[test]
fn erratum_06_an_empty_selector_alone_allows_nobody() {
    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(default)]
    struct Typed {
        list: Option<Vec<String>>,
        selector: polity_sdk::LabelSelector,
    }
    let stored = json!({"selector": {}});
    assert_eq!(
        serde_json::from_value::<Typed>(stored.clone()).unwrap(),
        Typed::default()
    );
    let mut story = Story::of(None);
    story
        .aws
        .identity(CONTROLLER, "default", json!({"allowedNamespaces": stored}));
    assert!(story.pass().waits());
}

/// Literally, the account is written in every pass. That would follow the credentials into another account.
#[test]
fn erratum_07_the_account_that_is_known_is_not_written_again() {
    let mut story = Story::chained();
    story.pass();
    story.world.edit(json!({"status": {"accountID": "999"}}));
    assert!(story.pass().waits());
    assert_eq!(story.world.status()["accountID"], "999");
}

/// Literally, a machine's pass writes owner reference, identity and account on the cluster, as the cluster's own does.
#[test]
fn erratum_08_a_machines_pass_writes_nothing_on_the_cluster() {
    let story = Story::of(None);
    story.aws.identity(CONTROLLER, "default", json!({}));
    let judged = judge(&mut story.machine());
    judged.handle();
    assert!(judged.ended.acts().is_empty());
    let patch = judged.ended.patch.unwrap();
    assert_eq!(patch.as_object().unwrap().keys().collect::<Vec<_>>(), ["status"]);
    assert_eq!(
        patch["status"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["conditions"]
    );
}

/// Literally, STS is called in every pass. The policy asks one question a pass, always the same, so that the host can
/// answer it for as long as the credentials live.
#[test]
fn erratum_09_equal_passes_ask_the_same_and_only_the_first_calls() {
    let mut story = Story::with_keys();
    let first = story.pass();
    let second = story.pass();
    assert_eq!(first.rests_on(), second.rests_on());
    assert_eq!(
        first
            .asked()
            .iter()
            .filter(|ask| ask.starts_with("credential"))
            .count(),
        1
    );
    assert_eq!(
        story
            .calls()
            .iter()
            .filter(|call| *call == "caller identity")
            .count(),
        1
    );
}

/// The real code touches the Secret first, and so tells a tenant that may not use the identity whether it exists.
#[test]
fn erratum_10_the_secret_is_looked_at_only_for_those_who_may_use_the_identity() {
    let mut story = Story::with_keys();
    let spec = json!({"secretRef": {"name": "aws-keys"}, "allowedNamespaces": {"list": ["other"]}});
    story.aws.identity(STATIC, "keys", spec);
    assert_eq!(story.pass().asked(), ["AWSClusterStaticIdentity keys"]);
}

/// Compared by name alone, a source that is called like the cluster's own identity gets the wrong reason.
#[test]
fn erratum_11_a_source_of_the_same_name_is_a_source() {
    let mut story = Story::of(Some((ROLE, "same")));
    story.role("same", Some((STATIC, "same")));
    let spec = json!({"secretRef": {"name": "aws-keys"}, "allowedNamespaces": {"list": ["other"]}});
    story.aws.identity(STATIC, "same", spec);
    assert!(story.pass().waits());
    assert_eq!(
        story.condition("PrincipalUsageAllowed"),
        json!(["False", "SourcePrincipalUsageUnauthorized"])
    );
    story.aws.identity(
        ROLE,
        "same",
        json!({"roleARN": "arn:same", "allowedNamespaces": {"list": ["other"]}}),
    );
    assert!(story.pass().waits());
    assert_eq!(
        story.condition("PrincipalUsageAllowed"),
        json!(["False", "PrincipalUsageUnauthorized"])
    );
}

/// Literally, whatever is not cluster-scoped is fetched from the namespace: a tenant would choose what is looked at.
#[test]
fn erratum_12_only_kinds_of_identity_are_fetched_from_a_namespace() {
    let irsa = json!({
        "apiVersion": "capa.polity.dev/v1alpha1", "kind": "AWSServiceAccountIdentity",
        "metadata": {"name": "irsa", "namespace": "team", "uid": "uid-irsa"},
        "spec": {"roleARN": "arn:irsa", "allowedNamespaces": {}},
    });
    for (kind, config, edges) in [
        (
            "ConfigMap",
            json!({"serviceAccountIdentities": true}),
            "01 02 04 06 P5",
        ),
        ("AWSServiceAccountIdentity", json!({}), "01 02 04 06 P5"),
        (
            "AWSServiceAccountIdentity",
            json!({"serviceAccountIdentities": true}),
            "01 02 04 05 N2 07a P9 07 08 10 14 16 17 18 19",
        ),
    ] {
        let mut story = Story::with(Some((kind, "irsa")), config);
        story.aws.put(irsa.clone());
        let judged = story.pass();
        assert_eq!(judged.edges, edges);
        assert_eq!(judged.asked().is_empty(), judged.is_denied());
    }
}

/// Eight identities are a chain, nine are none, and none of them is asked for in vain.
#[test]
fn a_chain_has_at_most_eight_identities() {
    for (length, granted) in [(8, true), (9, false)] {
        let mut story = Story::of(Some((ROLE, "r-1")));
        for n in 1..length {
            let source = format!("r-{}", n + 1);
            story.role(&format!("r-{n}"), Some((ROLE, &source)));
        }
        story.role(&format!("r-{length}"), None);
        let judged = story.pass();
        assert_eq!(matches!(judged.verdict, Verdict::Granted(_)), granted);
        assert_eq!(judged.edges.ends_with("P7"), !granted);
        assert_eq!(story.calls().is_empty(), !granted);
    }
}

#[test]
fn every_edge_is_taken_by_a_case_and_every_note_is_an_edge() {
    let manifest = capa_identity::manifest();
    let edges = &manifest.as_contract().edges;
    let ids: BTreeSet<&str> = edges.iter().map(|edge| edge.id.as_str()).collect();
    assert_eq!(ids.len(), edges.len());
    for (prefix, count) in [("CAPA-N", 12), ("CAPA-P", 9)] {
        for n in 1..=count {
            assert!(ids.contains(format!("{prefix}{n}").as_str()), "{prefix}{n}");
        }
    }
    for n in 1..=25 {
        assert!(ids.contains(format!("CAPA-{n:02}").as_str()), "CAPA-{n:02}");
    }
    let mut taken = BTreeSet::new();
    for (name, case) in cases::all() {
        let (_, ended) = case.judge(|pass| polity_sdk::step::identity(pass, capa_identity::judge));
        for note in ended.notes {
            assert!(ids.contains(note.as_str()), "{name} takes {note}");
            taken.insert(note);
        }
    }
    for edge in edges {
        match &edge.derived_from {
            None => assert!(taken.contains(&edge.id), "no case takes {}", edge.id),
            Some(from) => assert!(from.split(' ').any(|from| taken.contains(from)), "{}", edge.id),
        }
    }
}

/// No verdict but `granted` is reached with a session in hand, and none at all is hot.
#[test]
fn no_case_is_denied_into_a_hot_loop() {
    for (name, case) in cases::all() {
        let (verdict, ended) = case.judge(|pass| polity_sdk::step::identity(pass, capa_identity::judge));
        let hot = matches!(ended.next, Next::Settled(Some(ms)) | Next::After(ms) if ms < 1_000);
        assert!(!hot, "{name}: {}", ended.next);
        let denied = verdict == Verdict::Denied;
        assert_eq!(
            denied,
            !ended.events.is_empty(),
            "{name}: a denial says why, and nothing else does"
        );
    }
}

#[test]
fn the_crds_are_a_list_of_every_kind() {
    let manifest = capa_identity::manifest();
    let list: Value = manifest.as_contract().crd.clone().unwrap();
    let kinds: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|crd| crd["spec"]["names"]["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "AWSCluster",
            "AWSMachine",
            CONTROLLER,
            STATIC,
            ROLE,
            "AWSServiceAccountIdentity"
        ]
    );
    let schema =
        |n: usize| &list["items"][n]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let cluster = &schema(0)["spec"]["properties"];
    assert_eq!(
        cluster["accountID"],
        json!({"type": "string", "nullable": true,
        "description": "The account that the credentials must lead to; whichever they lead to first if it is not set."})
    );
    assert!(cluster.get("clusterName").is_none());
    let allowed = &schema(2)["spec"]["properties"]["allowedNamespaces"];
    assert_eq!(
        (&allowed["type"], &allowed["nullable"]),
        (&json!("object"), &json!(true))
    );
    assert_eq!(
        allowed["properties"]["selector"]["properties"]["matchLabels"]["additionalProperties"]["type"],
        "string"
    );
    let seconds = &schema(4)["spec"]["properties"]["durationSeconds"];
    assert_eq!(
        (&seconds["minimum"], &seconds["maximum"]),
        (&json!(900), &json!(43_200))
    );
}

#[test]
fn the_crds_are_closed_wherever_people_write() {
    /// Whether these fields fit a closed schema, as an API server counts them.
    fn fits(schema: &Value, fields: &[&str]) -> bool {
        let has = |name: &Value| fields.iter().any(|field| name == field);
        let whole = |choice: &Value| {
            let required = choice["required"].as_array();
            required.is_none_or(|names| names.iter().all(has))
                && choice["maxProperties"]
                    .as_u64()
                    .is_none_or(|most| fields.len() as u64 <= most)
        };
        let choices = schema["anyOf"].as_array();
        assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true, "{schema}");
        whole(schema) && choices.is_none_or(|choices| choices.iter().any(whole))
    }

    let manifest = capa_identity::manifest();
    let list: Value = manifest.as_contract().crd.clone().unwrap();
    let crds = list["items"].as_array().unwrap().iter();
    let specs = crds.map(|crd| {
        let version = &crd["spec"]["versions"][0];
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        (
            kind,
            version["schema"]["openAPIV3Schema"]["properties"]["spec"].clone(),
        )
    });
    let mut closed = 0;
    for (kind, spec) in specs {
        let allowed = &spec["properties"]["allowedNamespaces"];
        let selector = &allowed["properties"]["selector"];
        let expression = &selector["properties"]["matchExpressions"]["items"];
        let references =
            ["identityRef", "sourceIdentityRef", "secretRef"].map(|name| &spec["properties"][name]);
        let all = [&spec, allowed, selector, expression]
            .into_iter()
            .chain(references);
        for schema in all.filter(|schema| !schema.is_null()) {
            let known: Vec<&str> = schema["properties"]
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            let required = schema["required"].as_array().into_iter().flatten();
            let required: Vec<&str> = required.filter_map(Value::as_str).collect();
            assert!(
                fits(schema, &known) && fits(schema, &required),
                "{kind}: {schema}"
            );
            for fields in [&known, &required] {
                let typo = [&fields[..], &["tpyo"]].concat();
                assert!(!fits(schema, &typo), "{kind}: {typo:?}");
            }
            closed += 1;
        }
    }
    assert_eq!(closed, 6 + 4 * 3 + 3);
}
