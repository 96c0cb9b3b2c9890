//! The identity policy. It lets machines of another team through as long as their namespace may use the identity, and
//! notices other credentials. Garbage collection respects the owner references that it writes.

use polity_core::contract::{Kind, ObjectRef};
use polity_core::record::{Outcome, PassRecord};
use polity_tests::host_fixture::{condition_of, reference};
use polity_tests::host_harness::capa::{CAPA, grants};
use polity_tests::simulation::bindings::MACHINES;
use serde_json::{Value, json};

use crate::real_stories::scene::{Scene, Setting, alike, calls, changes, condition, named, session, took};
use crate::real_stories::seen::some;

const CAPI: &str = "cluster.x-k8s.io/v1beta2";
/// The account that both access keys are of.
const TEAM: &str = "222222222222";

const ALLOWED: &str = "PrincipalUsageAllowed";
const RETRIEVED: &str = "PrincipalCredentialRetrieved";

/// What a person sees of a cluster.
const CLUSTER: [&str; 3] = ["metadata.ownerReferences", "spec", "status"];
/// What a person sees of a machine; its addresses are drawn from its uid.
const MACHINE: [&str; 4] = ["metadata.finalizers", "spec", "status.phase", "status.conditions"];

#[test]
fn a_machine_comes_up_only_while_its_namespace_may_use_the_identity() {
    alike(guarded, allowed_denied_allowed);
}

#[test]
fn a_secret_that_is_rotated_is_noticed() {
    alike(guarded, rotation);
}

#[test]
fn an_identity_takes_its_secret_along_and_no_cluster() {
    alike(owned, garbage);
}

/// Clusters that are judged, and machines of another team that are guarded.
fn guarded() -> Setting {
    let capv = json!({"file": "capv_machine.wasm", "configuration": {"requeuePeriod": "200ms", "failureBackoff": "1s"}});
    let allowed = [grants(), vec![json!({"cloud": ["vm.*", "task.get"]})]].concat();
    let policies = json!({"identity": identity_policy(), "lifecycle": capv});
    let machines = binding("machines", (MACHINES, "Machine"), policies, allowed);
    let (host, key) = (
        "arn:aws:iam::111111111111:role/controller",
        |id: &str, user: &str| json!({"id": id, "account": TEAM, "arn": format!("arn:aws:iam::{TEAM}:user/{user}")}),
    );
    let keys = [key("AKIAFIRST", "first"), key("AKIASECOND", "second")];
    Setting {
        bindings: vec![clusters(), machines],
        objects: vec![
            namespace("capa-system", json!({})),
            namespace("team", json!({"env": "prod"})),
            access_key("AKIAFIRST"),
        ],
        overrides: json!({"identity": {"host": {"account": "111111111111", "arn": host}, "accessKeys": keys}}),
        mortals: vec![
            kind(CAPA, "AWSCluster"),
            kind("v1", "Secret"),
            kind(CAPA, "AWSClusterStaticIdentity"),
        ],
        ..Setting::default()
    }
}

/// Those, and the clusters of Cluster API, whose infrastructure ours are.
fn owned() -> Setting {
    let mut setting = guarded();
    setting.objects.push(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusters.cluster.x-k8s.io"},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"plural": "clusters", "singular": "cluster", "kind": "Cluster", "listKind": "ClusterList"},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    }));
    setting
}

fn binding(name: &str, (api_version, kind): (&str, &str), policies: Value, grants: Vec<Value>) -> Value {
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": name},
        "spec": {
            "governs": {"apiVersion": api_version, "kind": kind}, "policies": policies,
            "cloud": {"name": "sim"}, "grants": grants,
        },
    })
}

/// Looks again every second: that is how long a Secret may be another one without anybody noticing.
fn identity_policy() -> Value {
    json!({"file": "capa_identity.wasm", "configuration": {"resync": "1s"}})
}

fn clusters() -> Value {
    let policies = json!({"identity": identity_policy()});
    binding("clusters", (CAPA, "AWSCluster"), policies, grants())
}

fn kind(api_version: &str, kind: &str) -> Kind {
    reference(api_version, kind, None, "").kind
}

fn namespace(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn access_key(id: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "capa-system", "name": "access-key"},
        "stringData": {"AccessKeyID": id, "SecretAccessKey": "hunter2"},
    })
}

/// The identity of that Secret, for the namespaces of production.
fn keys() -> Value {
    json!({
        "apiVersion": CAPA, "kind": "AWSClusterStaticIdentity", "metadata": {"name": "keys"},
        "spec": {
            "secretRef": {"name": "access-key"},
            "allowedNamespaces": {"selector": {"matchLabels": {"env": "prod"}}},
        },
    })
}

fn cluster(name: &str) -> Value {
    json!({
        "apiVersion": CAPA, "kind": "AWSCluster", "metadata": {"namespace": "team", "name": name},
        "spec": {"region": "eu-central-1", "identityRef": {"kind": "AWSClusterStaticIdentity", "name": "keys"}},
    })
}

/// A machine of another team's policy, in the cluster `c-1`.
fn machine(name: &str) -> Value {
    json!({
        "apiVersion": MACHINES, "kind": "Machine",
        "metadata": {"namespace": "team", "name": name, "labels": {"cluster.x-k8s.io/cluster-name": "c-1"}},
        "spec": {"template": "ubuntu", "network": {"devices": [{"networkName": "net", "dhcp4": true}]}},
    })
}

async fn label(scene: &Scene, env: Value) {
    let team = named(&namespace("team", json!({})));
    scene
        .edit(&team, None, json!({"metadata": {"labels": {"env": env}}}))
        .await;
}

/// Waits until this is the status and the reason of a condition.
async fn until_said(scene: &Scene, object: &ObjectRef, of: &str, said: [&str; 2]) -> Value {
    scene
        .until(object, |object| condition(object, of) == json!(said))
        .await
}

async fn comes_up(scene: &Scene, name: &str) -> ObjectRef {
    let machine = named(&machine(name));
    scene
        .until(&machine, |machine| {
            machine["status"]["phase"] == "Running"
                && condition(machine, ALLOWED) == json!(["True", "Allowed"])
        })
        .await;
    machine
}

fn is_denied(pass: &PassRecord) -> bool {
    pass.outcome == Outcome::Denied
}

async fn allowed_denied_allowed(scene: &mut Scene) {
    let c1 = named(&cluster("c-1"));
    for object in [keys(), cluster("c-1"), machine("m-1")] {
        scene.create(&object).await;
    }
    let m1 = comes_up(scene, "m-1").await;
    let allowed = until_said(scene, &c1, RETRIEVED, ["True", "Retrieved"]).await;
    scene.sees("the cluster may use the identity", some(&allowed, &CLUSTER));
    scene.sees("its machine runs", some(&scene.get(&m1).await, &MACHINE));
    scene
        .sees_table(
            "kubectl get awsclusters",
            &format!("/apis/{CAPA}/namespaces/team/awsclusters"),
        )
        .await;

    label(scene, Value::Null).await;
    for object in [&c1, &m1] {
        let denied = until_said(scene, object, ALLOWED, ["False", "PrincipalUsageUnauthorized"]).await;
        let turn = format!("{} is denied", object.name);
        scene.sees(
            &turn,
            some(
                &denied,
                &["metadata.finalizers", "status.phase", "status.conditions"],
            ),
        );
    }
    scene.create(&machine("m-2")).await;
    let m2 = named(&machine("m-2"));
    let denied = until_said(scene, &m2, ALLOWED, ["False", "PrincipalUsageUnauthorized"]).await;
    scene.sees("a new machine is denied", some(&denied, &MACHINE));
    scene.until_last_pass(&m2, is_denied).await;
    for pass in scene.passes_of(&m2) {
        assert_eq!((calls(&pass), session(&pass)), (Vec::new(), Value::Null));
        assert!(took(&pass, "CAPA-07b") && took(&pass, "CAPA-N8"), "{pass:?}");
    }
    assert_eq!(scene.site.vms().len(), 1, "what there was stays");

    label(scene, json!("prod")).await;
    comes_up(scene, "m-1").await;
    comes_up(scene, "m-2").await;
    until_said(scene, &c1, ALLOWED, ["True", "Allowed"]).await;
    scene.sees("the new machine runs", some(&scene.get(&m2).await, &MACHINE));
    assert_eq!(scene.site.vms().len(), 2);
    let clones = |machine| {
        scene
            .passes_of(machine)
            .iter()
            .flat_map(changes)
            .filter(|done| done == "vm.clone")
            .count()
    };
    assert_eq!((clones(&m1), clones(&m2)), (1, 1));
}

async fn rotation(scene: &mut Scene) {
    let c1 = named(&cluster("c-1"));
    for object in [keys(), cluster("c-1"), machine("m-1")] {
        scene.create(&object).await;
    }
    let m1 = comes_up(scene, "m-1").await;
    let user = |name: &str| json!(format!("arn:aws:iam::{TEAM}:user/{name}"));
    let is = |name: &str| {
        let user = user(name);
        move |pass: &PassRecord| session(pass)["attributes"]["principal"] == user
    };
    scene.until_last_pass(&c1, is("first")).await;
    let first = scene.get(&c1).await;
    assert_eq!(first["status"]["accountID"], TEAM);

    // Nobody says that anything changed: the next look finds out.
    let rotated = scene.passes_of(&c1).len();
    scene.create(&access_key("AKIASECOND")).await;
    let pass = scene.until_pass(&c1, rotated, is("second")).await;
    assert!(
        took(&pass, "CAPA-08") && session(&pass)["reused"] == false,
        "{pass:?}"
    );
    let (looked, look) = (
        scene.passes_of(&m1).len(),
        json!({"request.polity.dev/look": "1"}),
    );
    scene
        .edit(&m1, None, json!({"metadata": {"annotations": look}}))
        .await;
    let pass = scene.until_pass(&m1, looked, is("second")).await;
    assert!(took(&pass, "CAPA-09"), "the session is shared: {pass:?}");
    scene.sees("nobody else has noticed", some(&scene.get(&c1).await, &CLUSTER));

    scene.create(&access_key("AKIANOBODY")).await;
    let unknown = ["Unknown", "CredentialProviderBuildFailed"];
    let denied = until_said(scene, &c1, RETRIEVED, unknown).await;
    scene.sees("nobody's key opens no session", some(&denied, &CLUSTER));
    assert_eq!(scene.site.vms().len(), 1);
    scene.create(&access_key("AKIAFIRST")).await;
    until_said(scene, &c1, RETRIEVED, ["True", "Retrieved"]).await;
    scene.until_last_pass(&c1, is("first")).await;
}

/// The kinds of an object's owners, and whether they control it and block its deletion.
fn owners(object: &Value) -> Value {
    let owners = object["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten();
    owners
        .map(|owner| {
            json!([
                owner["kind"],
                owner["name"],
                owner["controller"],
                owner["blockOwnerDeletion"]
            ])
        })
        .collect()
}

async fn garbage(scene: &mut Scene) {
    let owner =
        json!({"apiVersion": CAPI, "kind": "Cluster", "metadata": {"namespace": "team", "name": "c-1"}});
    let made = scene.create(&owner).await;
    let mut c1 = cluster("c-1");
    c1["metadata"]["ownerReferences"] = json!([{
        "apiVersion": CAPI, "kind": "Cluster", "name": "c-1", "uid": made["metadata"]["uid"], "controller": true,
    }]);
    let identity = scene.create(&keys()).await;
    // What moves with its identity belongs to it: as tools like clusterctl want it written down.
    let mut secret = access_key("AKIAFIRST");
    secret["metadata"]["ownerReferences"] = json!([{
        "apiVersion": CAPA, "kind": "AWSClusterStaticIdentity", "name": "keys", "uid": identity["metadata"]["uid"],
    }]);
    scene.create(&secret).await;
    let (c1, c2) = (scene.create(&c1).await, scene.create(&cluster("c-2")).await);
    let (c1, c2) = (named(&c1), named(&c2));
    for cluster in [&c1, &c2] {
        until_said(scene, cluster, RETRIEVED, ["True", "Retrieved"]).await;
    }
    // Beside another owner the identity is one too; alone it would take the cluster with it.
    let owned = scene
        .until(&c1, |cluster| {
            owners(cluster).as_array().is_some_and(|all| all.len() == 2)
        })
        .await;
    scene.sees("the identity is an owner of the cluster", some(&owned, &CLUSTER));
    assert_eq!(
        owners(&owned)[1],
        json!(["AWSClusterStaticIdentity", "keys", false, false])
    );
    assert_eq!(owners(&scene.get(&c2).await), json!([]));

    // No cluster stands in its way, although it would wait for those who say so.
    scene.delete_last(&named(&keys())).await;
    scene.until_gone(&named(&keys())).await;
    scene.until_gone(&named(&secret)).await;
    for cluster in [&c1, &c2] {
        // Its Secret may be missed first: that goes before who waits for it.
        let stranded = scene
            .until(cluster, |cluster| {
                let retrieved = condition_of(cluster, RETRIEVED);
                retrieved
                    .is_some_and(|said| said["message"] == "AWSClusterStaticIdentity keys does not exist")
            })
            .await;
        let turn = format!("{} has no identity", cluster.name);
        scene.sees(&turn, some(&stranded, &["spec", "status.conditions"]));
    }
    let left = scene
        .until(&c1, |cluster| {
            owners(cluster).as_array().is_some_and(|all| all.len() == 1)
        })
        .await;
    scene.sees("its real owner is left", owners(&left));

    // With its last owner the cluster goes; the one that has none stays.
    scene.delete(&named(&owner)).await;
    scene.until_gone(&c1).await;
    assert!(scene.get(&c2).await.is_object());
}
