//! The CustomResourceDefinitions that policies carry: which of them are installed, and how the others are
//! reported.

use polity::crds;
use polity::install::Target;
use polity::manifests::Manifests;
use polity_core::contract::ObjectRef;
use polity_tests::guests;
use polity_tests::host_fixture::{HostFixture, condition_of, machine, machines, reference};
use serde_json::{Value, json};

const CLUSTER: Target = Target::Cluster { replace_crds: false };
const REPLACING: Target = Target::Cluster { replace_crds: true };

/// A definition of `KIND.GROUP`, whose objects have this beside their metadata.
fn definition(group: &str, kind: &str, properties: &Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
            }],
        },
    })
}

fn gadgets(field: &str) -> Value {
    definition("team-a.example", "Gadget", &json!({field: {"type": "string"}}))
}

/// Governs Gadgets by the policy in this file.
fn binding(name: &str, file: &str) -> Value {
    json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "PolicyBinding", "metadata": {"name": name},
        "spec": {
            "governs": {"apiVersion": "team-a.example/v1", "kind": "Gadget"},
            "policies": {"lifecycle": {"file": file}},
        },
    })
}

fn crd(name: &str) -> ObjectRef {
    reference("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, name)
}

fn manifests(bindings: Vec<Value>, objects: Vec<Value>) -> Manifests {
    Manifests {
        bindings,
        objects,
        ..Manifests::default()
    }
}

/// The fields that the definition of a kind knows.
async fn fields(fixture: &HostFixture, name: &str) -> Vec<String> {
    let standing = fixture.get(&crd(name)).await;
    let properties = standing.pointer("/spec/versions/0/schema/openAPIV3Schema/properties");
    let properties = properties.and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(field, _)| field.clone())
        .collect()
}

async fn until_condition(fixture: &HostFixture, name: &str, kind: &str) -> Option<Value> {
    let at = reference("polity.dev/v1alpha1", "PolicyBinding", None, name);
    fixture
        .until("the status of the binding", async || {
            let binding = fixture.get(&at).await;
            condition_of(&binding, "Loaded")?;
            Some(condition_of(&binding, kind).cloned())
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn what_no_manifest_may_carry_keeps_its_policy_from_loading_and_the_others_go_on() {
    let with = |changes: &[(&str, Value)]| {
        let mut crd = gadgets("size");
        for (at, value) in changes {
            let (parent, field) = at.rsplit_once('/').expect("a path");
            crd.pointer_mut(parent).expect("it is there")[field] = value.clone();
        }
        crd
    };
    let mut bindings_own = crds::policy_binding();
    bindings_own["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object"});
    let webhook = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://thief.example"},
    }});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}],
    });
    let closed = |group: &str| definition(group, "Gadget", &json!({}));
    let refused = [
        (bindings_own, "closed"),
        (closed("rbac.authorization.k8s.io"), "closed"),
        (closed("storage.k8s.io"), "closed"),
        (closed("x.kubernetes.io"), "closed"),
        (closed("K8S.IO"), "closed"),
        (closed("apps"), "closed"),
        (with(&[("/spec/conversion", webhook)]), "conversion"),
        (
            with(&[("/spec/conversion", json!({"strategy": "Other"}))]),
            "conversion",
        ),
        (
            with(&[("/metadata/name", json!("machines.capv.polity.dev"))]),
            "must be called",
        ),
        (with(&[("/spec/group", json!(5))]), "must be called"),
        (with(&[("/metadata", json!("x"))]), "must be called"),
        (with(&[("/spec", json!([]))]), "must be called"),
        (role.clone(), "expected a CustomResourceDefinition"),
        (
            json!({"apiVersion": "v1", "kind": "List", "items": [gadgets("size"), role]}),
            "expected a",
        ),
        (
            json!({"apiVersion": "v1", "kind": "List", "items": 7}),
            "without items",
        ),
        (
            with(&[("/apiVersion", json!("apiextensions.k8s.io/v1beta1"))]),
            "expected a",
        ),
        (json!("x"), "expected a"),
        (
            json!({"apiVersion": "v1", "kind": "List", "items": [gadgets("a"), gadgets("b")]}),
            "twice",
        ),
        (with(&[("/spec/versions", json!({}))]), "versions"),
        (
            with(&[("/spec/versions", json!(vec![json!({"name": "v1"}); 17]))]),
            "versions",
        ),
    ];
    let fixture = HostFixture::with(vec![machines()]).await;
    let before = fixture.get(&crd("policybindings.polity.dev")).await;
    let mut bindings = Vec::new();
    for (number, (crd, _)) in refused.iter().enumerate() {
        let file = format!("{number}.wasm");
        fixture.put(&file, &guests::hostile_manifest(crd));
        bindings.push(binding(&format!("refused-{number}"), &file));
    }
    let gadget = json!({
        "apiVersion": "team-a.example/v1", "kind": "Gadget", "metadata": {"name": "one", "namespace": "default"},
    });
    let given = manifests(bindings, vec![gadget, machine("default", "vm")]);
    let said = fixture
        .site
        .try_apply(&given, Target::Standalone)
        .await
        .expect("it goes on");
    // The object that nobody serves now. What is not loaded, the host says.
    assert_eq!(said.len(), 1, "{said:#?}");
    for (number, (_, words)) in refused.iter().enumerate() {
        fixture
            .until_said(&format!("refused-{number}"), "Loaded", "False", words)
            .await;
    }
    fixture.until_machines_run().await;
    let after = fixture.get(&crd("policybindings.polity.dev")).await;
    assert_eq!(before["spec"], after["spec"]);
    assert!(fixture.get(&crd("gadgets.team-a.example")).await.is_null());
    let roles = reference("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", None, "all");
    assert!(fixture.site.get(&roles).await.is_none_or(|role| role.is_null()));
}

#[tokio::test(start_paused = true)]
async fn of_a_manifest_only_what_its_binding_names_is_installed() {
    let other = |kind: &str| definition("team-a.example", kind, &json!({}));
    let kinds = ["Gadget", "Asked", "Listed", "Unknown"];
    let items: Vec<Value> = kinds.iter().map(|kind| other(kind)).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let fixture = HostFixture::with(Vec::new()).await;
    fixture.put("gadgets.wasm", &guests::hostile_manifest(&list));
    let mut one = binding("gadgets", "gadgets.wasm");
    one["spec"]["grants"] = json!([{"ask": {"apiVersion": "team-a.example/v1", "kind": "Asked"}}]);
    one["spec"]["crds"] = json!([{"group": "team-a.example", "kind": "Listed"}]);
    fixture
        .site
        .apply(&manifests(vec![one.clone()], Vec::new()))
        .await;
    for kind in ["gadget", "asked", "listed"] {
        let standing = fixture.get(&crd(&format!("{kind}s.team-a.example"))).await;
        assert_eq!(
            standing["metadata"]["annotations"],
            json!({crds::BINDING: "gadgets"})
        );
    }
    assert!(fixture.get(&crd("unknowns.team-a.example")).await.is_null());
    let message = fixture
        .until_said(
            "gadgets",
            "CustomResourceDefinitions",
            "False",
            "unknowns.team-a.example",
        )
        .await;
    assert!(message.contains("spec.crds"), "{message}");

    // Once it is named, nothing is said any more.
    let crds = one["spec"]["crds"].as_array_mut().expect("a list");
    crds.push(json!({"group": "team-a.example", "kind": "Unknown"}));
    fixture.site.apply(&manifests(vec![one], Vec::new())).await;
    assert!(!fixture.get(&crd("unknowns.team-a.example")).await.is_null());
    fixture
        .until("the condition is gone", async || {
            let said = until_condition(&fixture, "gadgets", "CustomResourceDefinitions").await;
            said.is_none().then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn nobody_s_definition_is_replaced_by_another_binding_s_policy() {
    let fixture = HostFixture::with(vec![machines()]).await;
    let widgets = |field: &str| definition("team-b.example", "Widget", &json!({field: {"type": "string"}}));
    let sneaky = json!({"apiVersion": "v1", "kind": "List", "items": [
        gadgets("size"),
        widgets("forged"),
        // Another plural would come before the one that stands.
        definition("capv.polity.dev", "Machine", &json!({})),
    ]});
    let mut second = sneaky["items"][2].clone();
    second["metadata"]["name"] = json!("zmachines.capv.polity.dev");
    second["spec"]["names"]["plural"] = json!("zmachines");
    second["spec"]["versions"][0]["name"] = json!("v1alpha1");
    let sneaky = json!({"apiVersion": "v1", "kind": "List", "items": [sneaky["items"][0], sneaky["items"][1], second]});
    fixture.put("sneaky.wasm", &guests::hostile_manifest(&sneaky));
    fixture.put("honest.wasm", &guests::hostile_manifest(&widgets("honest")));
    let mut thief = binding("a-thief", "sneaky.wasm");
    thief["spec"]["grants"] = json!([
        {"ask": {"apiVersion": "team-b.example/v1", "kind": "Widget"}},
        {"ask": {"apiVersion": "capv.polity.dev/v1alpha1", "kind": "Machine"}},
    ]);
    let mut owner = binding("owner", "honest.wasm");
    owner["spec"]["governs"] = json!({"apiVersion": "team-b.example/v1", "kind": "Widget"});
    // It comes first, and is granted something of the kind: who governs it defines it all the same.
    let given = manifests(vec![thief, owner], vec![machine("default", "vm")]);
    let warned = fixture
        .site
        .try_apply(&given, Target::Standalone)
        .await
        .expect("it goes on");
    assert_eq!(warned.len(), 2, "{warned:?}");
    assert!(
        warned
            .iter()
            .all(|warned| warned.starts_with("binding a-thief: ")),
        "{warned:?}"
    );
    assert_eq!(fields(&fixture, "widgets.team-b.example").await, ["honest"]);
    assert!(fixture.get(&crd("zmachines.capv.polity.dev")).await.is_null());
    let said = fixture
        .until_said(
            "a-thief",
            "CustomResourceDefinitions",
            "False",
            "installed for the binding \"owner\"",
        )
        .await;
    assert!(said.contains("Machine is served already"), "{said}");
    let of_owner = until_condition(&fixture, "owner", "CustomResourceDefinitions").await;
    assert_eq!(of_owner, None);
    fixture.until_machines_run().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_person_defined_stays_until_they_hand_it_over() {
    let fixture = HostFixture::with(Vec::new()).await;
    fixture.apply(&gadgets("mine")).await;
    fixture.put("gadgets.wasm", &guests::hostile_manifest(&gadgets("theirs")));
    let one = || manifests(vec![binding("gadgets", "gadgets.wasm")], Vec::new());
    let warned = fixture
        .site
        .try_apply(&one(), Target::Standalone)
        .await
        .expect("it goes on");
    assert!(warned[0].contains("did not install"), "{warned:?}");
    assert_eq!(fields(&fixture, "gadgets.team-a.example").await, ["mine"]);
    fixture
        .until_said(
            "gadgets",
            "CustomResourceDefinitions",
            "False",
            "polity.dev/binding=gadgets",
        )
        .await;

    let mut handed_over = gadgets("mine");
    handed_over["metadata"]["annotations"] = json!({crds::BINDING: "gadgets"});
    fixture.apply(&handed_over).await;
    fixture.site.apply(&one()).await;
    assert_eq!(fields(&fixture, "gadgets.team-a.example").await, ["theirs"]);

    // Given as a file it is the person's again.
    let both = manifests(vec![binding("gadgets", "gadgets.wasm")], vec![gadgets("mine")]);
    let warned = fixture
        .site
        .try_apply(&both, Target::Standalone)
        .await
        .expect("it goes on");
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert_eq!(fields(&fixture, "gadgets.team-a.example").await, ["mine"]);
    let standing = fixture.get(&crd("gadgets.team-a.example")).await;
    assert_eq!(standing["metadata"]["annotations"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_binding_s_own_definition_is_kept_up_to_date() {
    let fixture = HostFixture::with(Vec::new()).await;
    let one = || manifests(vec![binding("gadgets", "gadgets.wasm")], Vec::new());
    for field in ["first", "second"] {
        fixture.put("gadgets.wasm", &guests::hostile_manifest(&gadgets(field)));
        fixture.site.apply(&one()).await;
        assert_eq!(fields(&fixture, "gadgets.team-a.example").await, [field]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_the_server_refuses_is_its_binding_s_problem() {
    let mut broken = gadgets("size");
    broken["spec"]["versions"][0]["storage"] = json!(false);
    let fixture = HostFixture::with(vec![machines()]).await;
    fixture.put("broken.wasm", &guests::hostile_manifest(&broken));
    let gadget = json!({
        "apiVersion": "team-a.example/v1", "kind": "Gadget", "metadata": {"name": "one", "namespace": "default"},
    });
    let given = manifests(
        vec![binding("gadgets", "broken.wasm")],
        vec![gadget, machine("default", "vm")],
    );
    let said = fixture
        .site
        .try_apply(&given, Target::Standalone)
        .await
        .expect("it goes on");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].contains("cannot apply Gadget one"), "{said:?}");
    fixture
        .until_said("gadgets", "CustomResourceDefinitions", "False", "storage version")
        .await;
    fixture.until_machines_run().await;
}

#[tokio::test(start_paused = true)]
async fn in_a_cluster_a_definition_that_stands_is_left_alone_unless_somebody_says_otherwise() {
    let fixture = HostFixture::with(Vec::new()).await;
    let selectable = |definition: &Value| definition["spec"]["versions"][0]["selectableFields"].clone();
    let mut mine = gadgets("size");
    mine["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".size"}]);
    fixture.apply(&mine).await;
    fixture.put("gadgets.wasm", &guests::hostile_manifest(&gadgets("size")));
    // What stands says all that is wanted, and more.
    let given = manifests(vec![binding("gadgets", "gadgets.wasm")], vec![gadgets("size")]);
    assert_eq!(fixture.site.try_apply(&given, CLUSTER).await, Ok(Vec::new()));
    let standing = fixture.get(&crd("gadgets.team-a.example")).await;
    assert_eq!(selectable(&standing), selectable(&mine));

    let other = manifests(Vec::new(), vec![gadgets("weight")]);
    let said = fixture.site.try_apply(&other, CLUSTER).await.expect("it goes on");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("--replace-crds"), "{said:?}");
    assert_eq!(fields(&fixture, "gadgets.team-a.example").await, ["size"]);
    assert_eq!(fixture.site.try_apply(&other, REPLACING).await, Ok(Vec::new()));
    assert_eq!(fields(&fixture, "gadgets.team-a.example").await, ["weight"]);
}

#[tokio::test(start_paused = true)]
async fn in_a_cluster_a_binding_s_own_definition_waits_for_somebody_to_say_so_too() {
    let fixture = HostFixture::with(Vec::new()).await;
    let one = || manifests(vec![binding("gadgets", "gadgets.wasm")], Vec::new());
    for (field, target, stands, warnings) in [
        ("first", CLUSTER, "first", 0),
        ("second", CLUSTER, "first", 1),
        ("second", REPLACING, "second", 0),
    ] {
        fixture.put("gadgets.wasm", &guests::hostile_manifest(&gadgets(field)));
        let warned = fixture.site.try_apply(&one(), target).await.expect("it goes on");
        assert_eq!(warned.len(), warnings, "{warned:?}");
        assert!(
            warned.iter().all(|warned| warned.contains("--replace-crds")),
            "{warned:?}"
        );
        assert_eq!(fields(&fixture, "gadgets.team-a.example").await, [stands]);
    }
}
