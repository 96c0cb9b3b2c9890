//! Guards of core, each tested by itself: the writes that no policy may make, the form of all others, and that a write
//! counts only if the API server kept it.

use std::sync::Arc;

use polity_core::binding::{Binding, Grant, KindGrant, LoadedPolicy, PolicySource};
use polity_core::call::{Call, PendingEntry, Reply, Write};
use polity_core::catalogue::Catalogue;
use polity_core::contract::{
    Act, Answer, Code, Conclusion, Document, Failure, Kind, Mint, Next, ObjectPatch, ObjectRef, Pass,
    Precondition, Requests, Resolution, Role, Step, Verdict,
};
use polity_core::controller::Input;
use polity_core::fault::{FaultKind, StepOutput};
use polity_core::record::Outcome;
use polity_sim::Sim;
use polity_tests::simulation::bindings::{
    self, FINALIZER, MACHINES, WIDGETS, binding, kind, manifest, native, native_machine,
};
use polity_tests::simulation::core_harness::CoreHarness;
use polity_tests::simulation::native::{Cx, Pending, step};
use polity_tests::simulation::store::{Place, merge};
use serde_json::{Value, json};

const SETTLED: Next = Next::Settled(None);
const MINE: &str = "test.polity.example/mine";

fn sim() -> Arc<Catalogue> {
    Sim::new(Default::default(), 0, 0).catalogue().clone()
}

fn widget(name: &str, more: Value) -> Value {
    let metadata = json!({"namespace": "default", "name": name});
    let mut object = json!({"apiVersion": WIDGETS, "kind": "Widget", "metadata": metadata});
    merge(&mut object, &more);
    object
}

fn machine(more: Value) -> Value {
    let metadata = json!({"namespace": "default", "name": "m"});
    let mut object =
        json!({"apiVersion": MACHINES, "kind": "Machine", "metadata": metadata, "spec": {"template": "t"}});
    merge(&mut object, &more);
    object
}

fn at(kind: &str, name: &str) -> Place {
    (kind.to_owned(), "default".to_owned(), name.to_owned())
}

fn there(harness: &CoreHarness, kind: &str, name: &str) -> Value {
    let object = harness.store.get(&at(kind, name)).expect("it is there");
    object.tree()
}

/// A lifecycle policy that declares these writes and has a finalizer.
fn lifecycle(writes: &[&str]) -> LoadedPolicy {
    let mut manifest = manifest("lifecycle", Role::Lifecycle, Vec::new(), writes);
    manifest.finalizer = Some(MINE.to_owned());
    let conditions = json!({"properties": {"conditions": {"type": "array"}}});
    let schema = json!({"openAPIV3Schema": {"properties": {"status": conditions}}});
    manifest.crd = Some(json!({"spec": {"names": {"kind": "Widget"}, "versions": [{"schema": schema}]}}));
    native(manifest)
}

fn widgets(policies: impl IntoIterator<Item = LoadedPolicy>, grants: Vec<Grant>) -> Binding {
    binding("w", (WIDGETS, "Widget"), policies, grants, sim())
}

fn bound(binding: Binding) -> Input {
    Input::Bound(Box::new(binding))
}

/// Concludes with this patch, whatever it is.
fn concluding(verdict: Option<Verdict>, patch: &str) -> StepOutput {
    let conclusion = Conclusion {
        patch: Some(Document::from(patch)),
        events: Vec::new(),
        notes: Vec::new(),
        next: SETTLED,
        used: Vec::new(),
    };
    StepOutput {
        outcome: Ok(Step::Concluded { verdict, conclusion }),
        fuel: 1,
    }
}

/// Patches the object with what its annotation `patch` holds.
fn as_told(verdict: Option<Verdict>) -> impl Fn(&Pass) -> StepOutput {
    move |pass| {
        let object: Value = serde_json::from_str(pass.object.as_deref().unwrap_or("{}")).unwrap_or_default();
        match object["metadata"]["annotations"]["patch"].as_str() {
            Some(patch) => concluding(verdict.clone(), patch),
            None => concluding(verdict.clone(), "{}"),
        }
    }
}

/// Shapes that nobody who reads an object expects.
fn misshapen() -> Vec<&'static str> {
    vec![
        "",
        "null",
        "7",
        "[]",
        "{",
        r#"{"metadata": null}"#,
        r#"{"metadata": "x"}"#,
        r#"{"metadata": []}"#,
        r#"{"metadata": {"finalizers": "x"}}"#,
        r#"{"metadata": {"finalizers": {"a": 1}}}"#,
        r#"{"metadata": {"finalizers": [1]}}"#,
        r#"{"metadata": {"ownerReferences": 7}}"#,
        r#"{"metadata": {"labels": 7}}"#,
        r#"{"metadata": {"annotations": {"a": {}}}}"#,
        r#"{"status": 7}"#,
        r#"{"status": "x"}"#,
        r#"{"status": []}"#,
        r#"{"status": {"conditions": 7}}"#,
        r#"{"status": {"conditions": {"type": "Ready"}}}"#,
        r#"{"status": {"conditions": ["Ready"]}}"#,
        r#"{"status": {"conditions": [{"type": "A"}, {"type": "A"}]}}"#,
        r#"{"status": {"pending": 7}}"#,
        r#"{"status": {"pending": null}}"#,
        r#"{"status": {"pending": {"a": 1}}}"#,
        r#"{"status": {"pending": []}}"#,
    ]
}

/// What stands on the object already when the patch comes.
fn beginnings() -> Vec<Value> {
    let entry = json!({"operation": "vm.clone", "intent": "m", "key": "k", "since": 1, "service": "vm@1", "stamp": 1, "place": ["sim"], "principal": "host"});
    let host = json!({"type": "polity.dev/Slowed", "status": "True"});
    vec![
        json!({}),
        json!({"status": {"pending": [entry]}}),
        json!({"status": {"conditions": [host]}}),
        json!({"status": 7}),
        json!({"status": {"conditions": 7, "pending": 7}}),
        json!({"metadata": {"finalizers": [MINE]}, "status": {"pending": [7]}}),
    ]
}

#[test]
fn a_patch_of_the_wrong_shape_is_a_fault_of_its_role_and_the_host_goes_on() {
    for role in [Role::Lifecycle, Role::Identity] {
        let mut harness = CoreHarness::new();
        harness.policy("lifecycle", as_told(None));
        harness.policy("identity", as_told(Some(Verdict::Denied)));
        let mut policies = vec![lifecycle(&["metadata", "status", "spec"])];
        if role == Role::Identity {
            let identity = manifest("identity", Role::Identity, Vec::new(), &["metadata", "status"]);
            policies.push(native(identity));
        }
        harness.feed(bound(widgets(policies, Vec::new())));
        let mut number = 0;
        for patch in misshapen() {
            for beginning in beginnings() {
                number += 1;
                let name = format!("w-{number}");
                let told = json!({"metadata": {"annotations": {"patch": patch}}});
                let mut object = widget(&name, told);
                merge(&mut object, &beginning);
                harness.create(object);
                let records = harness.records_of(&name);
                let record = records
                    .first()
                    .unwrap_or_else(|| panic!("{patch} on {beginning}: no pass"));
                assert_eq!(record.outcome, Outcome::Faulted, "{patch} on {beginning}");
                let faulty = record.roles.last().expect("a role");
                assert_eq!(faulty.role, role, "{patch}");
                let fault = faulty.fault.as_ref().expect("a fault");
                assert_eq!(fault.kind, FaultKind::BadOutput, "{patch}: {fault}");
                assert_eq!(faulty.conclusion, None);
            }
        }
        harness.create(widget("good", json!({})));
        let good = harness.records_of("good");
        let expected = match role {
            Role::Identity => Outcome::Denied,
            _ => Outcome::Published,
        };
        assert_eq!(good[0].outcome, expected);
    }
}

#[test]
fn an_identity_that_patches_wrongly_is_at_fault_before_its_lifecycle_is_asked() {
    let mut harness = CoreHarness::new();
    harness.policy("lifecycle", |_| panic!("it is not asked"));
    harness.policy("identity", |pass| {
        step(pass, |cx| {
            let plan = "{}".into();
            let credential = cx.ask(polity_core::contract::Question::Credential(plan))?;
            let handle = credential.unwrap_or_default()["handle"].clone();
            cx.verdict = Some(Verdict::Granted(handle.as_str().unwrap_or_default().to_owned()));
            cx.object["spec"] = json!({"by": "identity"});
            Ok(SETTLED)
        })
    });
    let identity = native(manifest("identity", Role::Identity, Vec::new(), &["status"]));
    harness.feed(bound(widgets(
        [lifecycle(&["spec"]), identity],
        vec![Grant::Credential(true)],
    )));
    harness.create(widget("a", json!({})));
    assert_eq!(harness.records[0].outcome, Outcome::Faulted);
    assert_eq!(harness.records[0].roles.len(), 1);
    let fault = harness.records[0].roles[0].fault.as_ref().expect("a fault");
    assert!(fault.message.contains("the policy writes spec.by"), "{fault}");
}

/// What became of one patch under a policy that declares to write everything, with these grants.
fn told(patch: Value, beginning: Value, grants: Vec<Grant>, narrowed: Option<&[&str]>) -> (Outcome, Value) {
    let mut harness = CoreHarness::new();
    harness.policy("lifecycle", as_told(None));
    let writes = [
        "metadata",
        "metadata.finalizers",
        "metadata.ownerReferences",
        "status",
        "spec",
        "kind",
    ];
    let mut binding = widgets([lifecycle(&writes)], grants);
    binding.spec.policies.lifecycle = Some(PolicySource {
        file: None,
        krate: None,
        sha256: None,
        configuration: None,
        writes: narrowed.map(|paths| paths.iter().map(|path| (*path).to_owned()).collect()),
    });
    harness.feed(bound(binding));
    let mut object = widget(
        "a",
        json!({"metadata": {"annotations": {"patch": patch.to_string()}}}),
    );
    merge(&mut object, &beginning);
    harness.create(object);
    (harness.records[0].outcome.clone(), there(&harness, "Widget", "a"))
}

#[test]
fn a_policy_writes_nothing_of_its_primary_that_is_the_hosts_or_somebody_elses() {
    let held = json!({"metadata": {"finalizers": ["theirs/x", MINE], "ownerReferences": [{"uid": "o-1"}]},
        "status": {"conditions": [{"type": "polity.dev/Slowed", "status": "True"}]}});
    for patch in [
        json!({"metadata": {"finalizers": [MINE]}}),
        json!({"metadata": {"finalizers": null}}),
        json!({"metadata": {"finalizers": ["theirs/x", MINE, "foregroundDeletion"]}}),
        json!({"metadata": {"ownerReferences": [{"uid": "o-1"}, {"uid": "forged"}]}}),
        json!({"metadata": {"ownerReferences": null}}),
        json!({"metadata": {"uid": "another"}}),
        json!({"metadata": {"resourceVersion": "1"}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"metadata": {"name": "b"}}),
        json!({"kind": "Gadget"}),
        json!({"status": {"pending": [{"operation": "vm.clone", "intent": "m", "key": "k", "since": 1, "service": "vm@1", "stamp": 1, "place": ["sim"], "principal": "host"}]}}),
        json!({"status": {"conditions": [{"type": "polity.dev/Slowed", "status": "False"}]}}),
        json!({"status": {"conditions": [{"type": "polity.dev/Quarantined", "status": "True"}]}}),
    ] {
        let (outcome, after) = told(patch.clone(), held.clone(), Vec::new(), None);
        assert_eq!(outcome, Outcome::Faulted, "{patch}");
        for field in ["finalizers", "ownerReferences", "uid", "name"] {
            let before = match field {
                "uid" | "name" => continue,
                field => &held["metadata"][field],
            };
            assert_eq!(&after["metadata"][field], before, "{patch}");
        }
    }
    // Its own finalizer it may take and give back.
    let (outcome, after) = told(
        json!({"metadata": {"finalizers": ["theirs/x"]}}),
        held,
        Vec::new(),
        None,
    );
    assert_eq!(outcome, Outcome::Published);
    assert_eq!(after["metadata"]["finalizers"], json!(["theirs/x"]));
}

#[test]
fn what_a_grant_names_may_be_written_and_what_a_binding_leaves_out_may_not() {
    let held = json!({"metadata": {"finalizers": ["theirs/x", "more/y"]}});
    let grant = |path: &str| vec![Grant::Write(vec![path.to_owned()])];
    let patch = json!({"metadata": {"finalizers": ["more/y"]}});
    let (outcome, after) = told(
        patch.clone(),
        held.clone(),
        grant("metadata.finalizers[theirs/x]"),
        None,
    );
    assert_eq!(outcome, Outcome::Published);
    assert_eq!(after["metadata"]["finalizers"], json!(["more/y"]));
    for other in [
        "metadata.finalizers[more/y]",
        "metadata",
        "metadata.ownerReferences",
    ] {
        let (outcome, _) = told(patch.clone(), held.clone(), grant(other), None);
        assert_eq!(outcome, Outcome::Faulted, "{other}");
    }
    let owned = json!({"metadata": {"ownerReferences": [{"uid": "o"}]}});
    assert_eq!(
        told(owned, json!({}), grant("metadata.ownerReferences"), None).0,
        Outcome::Published
    );

    let phase = json!({"status": {"phase": "up"}});
    let narrowed = |paths: &[&str]| told(phase.clone(), json!({}), Vec::new(), Some(paths)).0;
    assert_eq!(narrowed(&["status.phase"]), Outcome::Published);
    assert_eq!(narrowed(&["status"]), Outcome::Published);
    assert_eq!(narrowed(&["status.other", "metadata"]), Outcome::Faulted);
    assert_eq!(narrowed(&[]), Outcome::Faulted);
}

#[test]
fn a_policy_that_replaces_the_whole_list_leaves_the_hosts_conditions_standing() {
    // One that knows nothing of them is not at fault: they are the host's to take away.
    let held = json!({"status": {"conditions": [{"type": "polity.dev/Slowed", "status": "True"}]}});
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let (outcome, after) = told(patch, held, Vec::new(), None);
    assert_eq!(outcome, Outcome::Published);
    // Nothing slows this object down, so the host takes it away in the same write.
    assert_eq!(
        after["status"]["conditions"],
        json!([{"type": "Ready", "status": "True"}])
    );
}

/// What a policy of Widgets was answered to one act, with the host's own Machine `m` at hand; and what was written.
fn acted(act: Act, grants: Vec<Grant>, machine_status: Value) -> (Answer, Vec<Act>) {
    let mut harness = CoreHarness::new();
    // The Machine's own pass waits for its policy: what the host said of it stands.
    let waits = |call: &Call| matches!(call, Call::Step { policy, .. } if &*policy.0 == "machine");
    harness.hold = Box::new(move |call| waits(call) || matches!(call, Call::Write(Write::Act(_))));
    harness.feed(bound(bindings::machines(native_machine(), sim())));
    harness.create(machine(json!({"status": machine_status})));
    let said = act.clone();
    harness.policy("lifecycle", move |pass| {
        step(pass, |cx: &mut Cx<'_>| -> Result<Next, Pending> {
            if let Act::Patch(ObjectPatch { object, .. }) = &said {
                let namespace = object.namespace.clone().unwrap_or_default();
                let _ = cx.object(
                    &object.kind.api_version,
                    &object.kind.kind,
                    &namespace,
                    &object.name,
                )?;
            }
            let answer = cx.act(said.clone())?;
            cx.object["status"]["answer"] = json!(answer.map_or_else(|f| f.to_string(), |_| "ok".into()));
            Ok(SETTLED)
        })
    });
    let mut policy = lifecycle(&["status"]);
    Arc::make_mut(&mut policy.manifest).finalizer = None;
    harness.feed(bound(widgets([policy], grants)));
    harness.create(widget("a", json!({})));
    let mut written = Vec::new();
    let is_act = |(_, call): &(_, Call)| matches!(call, Call::Write(Write::Act(_)));
    while let Some(index) = harness.held.iter().position(is_act) {
        let (call, what) = harness.held.remove(index);
        if let Call::Write(Write::Act(act)) = what {
            written.push(act);
        }
        let reply = Reply::objects(Ok(json!({"metadata": {"uid": "u"}})));
        harness.feed(Input::Returned { call, reply });
    }
    let answer = harness.records_of("a")[0].roles[0]
        .journal
        .last()
        .expect("an act")
        .answer
        .clone();
    (
        answer.map(|json| serde_json::from_str(&json).expect("JSON")),
        written,
    )
}

fn reference(api_version: &str, kind: &str, name: &str) -> ObjectRef {
    ObjectRef {
        cluster: None,
        kind: Kind {
            api_version: api_version.into(),
            kind: kind.into(),
        },
        namespace: Some("default".into()),
        name: name.into(),
    }
}

fn patch(api_version: &str, kind: &str, name: &str, subresource: Option<&str>, patch: Value) -> Act {
    Act::Patch(ObjectPatch {
        object: reference(api_version, kind, name),
        precondition: Precondition {
            uid: "u".into(),
            resource_version: None,
        },
        subresource: subresource.map(str::to_owned),
        patch: patch.to_string().into(),
    })
}

fn of_machine(subresource: Option<&str>, content: Value) -> Act {
    patch(MACHINES, "Machine", "m", subresource, content)
}

/// Asks for and patches everything of a kind, with more in the grant to patch.
fn patching(api_version: &str, of: &str, more: impl Fn(&mut KindGrant)) -> Vec<Grant> {
    let mut grant = kind(api_version, of);
    more(&mut grant);
    vec![Grant::Ask(kind(api_version, of)), Grant::Patch(grant)]
}

#[test]
fn an_act_writes_nothing_of_another_object_that_is_the_hosts() {
    let host = json!({"type": "polity.dev/Slowed", "status": "True"});
    let ready = json!({"type": "Ready", "status": "True"});
    let status = json!({"conditions": [host, ready]});
    let everything = |grant: &mut KindGrant| {
        grant.metadata = Some(vec!["finalizers".into(), "ownerReferences".into()]);
        grant.subresources = Some(vec!["anything".into()]);
    };
    let entry = json!({"operation": "vm.clone", "intent": "m", "key": "k", "since": 1, "service": "vm@1", "stamp": 1, "place": ["sim"], "principal": "host"});
    for content in [
        json!({"status": {"pending": [entry]}}),
        json!({"status": {"pending": null}}),
        json!({"status": {"conditions": [ready]}}),
        json!({"status": {"conditions": [{"type": "polity.dev/Slowed", "status": "False"}, ready]}}),
        json!({"status": {"conditions": [host, {"type": "polity.dev/Quarantined", "status": "True"}]}}),
    ] {
        for subresource in [None, Some("status")] {
            let act = of_machine(subresource, content.clone());
            let (answer, written) = acted(act, patching(MACHINES, "Machine", everything), status.clone());
            let refusal = answer.expect_err("refused");
            assert_eq!(refusal.code, Code::PermissionDenied, "{content}: {refusal}");
            assert!(written.is_empty(), "{content}");
        }
    }
    for content in [
        json!({"status": null}),
        json!({"status": []}),
        json!({"metadata": null}),
        json!([]),
    ] {
        let act = of_machine(Some("status"), content.clone());
        let (answer, written) = acted(act, patching(MACHINES, "Machine", everything), status.clone());
        assert_eq!(
            answer.expect_err("refused").code,
            Code::InvalidArgument,
            "{content}"
        );
        assert!(written.is_empty());
    }
    // A list that keeps what the host said goes to the version on which it was compared.
    let kept = json!({"status": {"conditions": [host, {"type": "Ready", "status": "False"}]}});
    let (answer, written) = acted(
        of_machine(Some("status"), kept),
        patching(MACHINES, "Machine", |_| {}),
        status,
    );
    assert!(answer.is_ok(), "{answer:?}");
    let Act::Patch(sent) = &written[0] else {
        panic!("a patch")
    };
    assert!(sent.precondition.resource_version.is_some(), "{sent:?}");
}

#[test]
fn what_decides_whether_an_object_goes_on_to_exist_takes_a_grant_that_names_it() {
    for (field, value) in [
        ("finalizers", json!(["x/y"])),
        ("finalizers", json!(null)),
        ("ownerReferences", json!([{"uid": "forged"}])),
    ] {
        let act = || patch("v1", "ConfigMap", "c", None, json!({"metadata": {field: value}}));
        for (named, allowed) in [(field, value.is_array()), ("labels", false)] {
            let grants = patching("v1", "ConfigMap", |grant| {
                grant.metadata = Some(vec![named.into()])
            });
            let (answer, written) = acted(act(), grants, json!({}));
            assert_eq!(answer.is_ok(), allowed, "{field} {value} by {named}: {answer:?}");
            assert_eq!(written.len(), usize::from(allowed));
        }
        let (answer, _) = acted(act(), patching("v1", "ConfigMap", |_| {}), json!({}));
        assert!(answer.is_err(), "{field}");
    }
}

#[test]
fn one_grant_has_to_name_everything_that_an_act_needs() {
    // One that reaches the object and one that names the field are not together a grant to write it there.
    let mut elsewhere = kind("v1", "ConfigMap");
    elsewhere.name = Some("other".into());
    elsewhere.metadata = Some(vec!["finalizers".into()]);
    let mut grants = patching("v1", "ConfigMap", |_| {});
    grants.push(Grant::Patch(elsewhere));
    let act = patch(
        "v1",
        "ConfigMap",
        "c",
        None,
        json!({"metadata": {"finalizers": ["x/y"]}}),
    );
    let (answer, written) = acted(act, grants, json!({}));
    assert_eq!(answer.expect_err("refused").code, Code::PermissionDenied);
    assert!(written.is_empty());
}

#[test]
fn a_subresource_takes_a_grant_that_names_it() {
    let act = |name: &str| patch("v1", "Pod", "p", Some(name), json!({"spec": {}}));
    for (name, code) in [
        ("ephemeralcontainers", Some(Code::PermissionDenied)),
        ("binding", Some(Code::PermissionDenied)),
        ("token", Some(Code::PermissionDenied)),
        ("status/../exec", Some(Code::InvalidArgument)),
        ("", Some(Code::InvalidArgument)),
        ("status", None),
        ("scale", None),
        ("resize", None),
    ] {
        let grants = patching("v1", "Pod", |grant| {
            grant.subresources = Some(vec!["resize".into()])
        });
        let (answer, written) = acted(act(name), grants, json!({}));
        assert_eq!(answer.err().map(|failure| failure.code), code, "{name}");
        assert_eq!(written.len(), usize::from(code.is_none()), "{name}");
    }
}

#[test]
fn what_is_created_announces_no_create_and_says_nothing_for_the_host() {
    let create = |more: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}});
        merge(&mut object, &more);
        Act::create(object.to_string())
    };
    let grants = || vec![Grant::Create(kind("v1", "ConfigMap"))];
    for more in [
        json!({"status": {"pending": [{"operation": "vm.clone", "intent": "m", "key": "k", "since": 1, "service": "vm@1", "stamp": 1, "place": ["sim"], "principal": "host"}]}}),
        json!({"status": {"conditions": [{"type": "polity.dev/Slowed"}]}}),
        json!({"metadata": {"finalizers": ["x/y"]}}),
    ] {
        let (answer, written) = acted(create(more.clone()), grants(), json!({}));
        assert_eq!(
            answer.expect_err("refused").code,
            Code::PermissionDenied,
            "{more}"
        );
        assert!(written.is_empty());
    }
    let owned = json!({"metadata": {"ownerReferences": [{"uid": "o"}], "finalizers": []}});
    assert!(acted(create(owned), grants(), json!({})).0.is_ok());
}

#[test]
fn a_token_is_minted_for_as_long_as_its_grant_says() {
    let mint = |ttl| {
        Act::Mint(Mint {
            cluster: None,
            kind: "password".into(),
            ttl,
        })
    };
    let grants = |text: Value| vec![Grant::Mint(serde_json::from_value(text).expect("a grant"))];
    let plain = || grants(json!(["password"]));
    let bounded = || grants(json!([{"kind": "password", "longestTtl": 1_000, "count": 1}]));
    let day = 24 * 3_600_000;
    for (ttl, grants, code) in [
        (u64::MAX, plain(), Code::InvalidArgument),
        (day + 1, plain(), Code::InvalidArgument),
        (0, plain(), Code::InvalidArgument),
        (1_001, bounded(), Code::InvalidArgument),
        (1_000, grants(json!(["bootstrap-token"])), Code::PermissionDenied),
    ] {
        let (answer, _) = acted(mint(ttl), grants, json!({}));
        assert_eq!(answer.expect_err("refused").code, code, "{ttl}");
    }
}

/// A clone whose user data is what a test says, in the very words.
fn sealed(user_data: &str) -> Act {
    let arguments = format!(
        r#"{{"name": "m", "instanceUuid": "u", "template": "t", "cpus": 2, "coresPerSocket": 2, "memoryMiB": 2048,
            "networks": [], "userData": {user_data}}}"#
    );
    Act::Cloud(polity_core::contract::CloudAct {
        operation: "vm.clone".into(),
        arguments: arguments.as_str().into(),
        intent: Some("m".into()),
    })
}

#[test]
fn a_sealed_reference_is_checked_at_the_path_where_it_is_used_however_it_is_spelled() {
    let secrets = |name: &str| {
        Grant::Secrets(polity_core::binding::SecretGrant {
            namespaces: None,
            name: Some(name.into()),
        })
    };
    let cloud = || Grant::Cloud(vec!["vm.*".into()]);
    let spellings = [
        r#"{"$secret": {"name": "victim", "key": "k"}}"#,
        r#"{"\u0024secret": {"name": "victim", "key": "k"}}"#,
        r#"{"\u0024\u0073ecret": {"na\u006de": "vic\u0074im", "key": "k"}}"#,
        r#"{"$secret": {"name": "mine", "key": "k"}, "\u0024secret": {"name": "victim", "key": "k"}}"#,
    ];
    for spelling in spellings {
        let (answer, _) = acted(sealed(spelling), vec![cloud(), secrets("mine")], json!({}));
        let refusal = answer.expect_err("refused");
        assert_eq!(refusal.code, Code::PermissionDenied, "{spelling}: {refusal}");
        assert_eq!(refusal.message, "not granted: unseal Secret victim");
    }
    for (odd, code) in [
        (r#""$secret""#, Code::InvalidArgument),
        (r#"{"$secret": "victim"}"#, Code::InvalidArgument),
        (
            r#"{"$secret": {"name": "victim", "key": "k", "namespace": "x"}}"#,
            Code::InvalidArgument,
        ),
        (
            r#"{"$secret": {"name": "../victim", "key": "k"}}"#,
            Code::InvalidArgument,
        ),
        (
            r#"[{"$secret": {"name": "victim", "key": "k"}}]"#,
            Code::InvalidArgument,
        ),
        ("null", Code::InvalidArgument),
        ("{", Code::InvalidArgument),
    ] {
        let (answer, _) = acted(sealed(odd), vec![cloud(), secrets("victim")], json!({}));
        assert_eq!(answer.expect_err("refused").code, code, "{odd}");
    }
}

/// A harness with Machines whose policy clones in its first pass, and does nothing once it has.
fn cloning() -> CoreHarness {
    let mut harness = CoreHarness::new();
    harness.policy("machine", |pass| {
        step(pass, |cx| {
            if cx.object["status"]["task"].is_null() {
                let arguments = json!({"name": "m", "instanceUuid": "u", "template": "t", "cpus": 2,
                    "coresPerSocket": 2, "memoryMiB": 2048, "networks": []});
                let answer = cx.change("vm.clone", arguments, Some("m"))?;
                let said = answer.map_or_else(|failure| failure.to_string(), |_| "cloned".into());
                cx.notes.push(said);
            }
            Ok(Next::After(60_000))
        })
    });
    harness.cloud = Box::new(|_| Ok(json!({"task": "task-1"})));
    harness.feed(bound(bindings::machines(native_machine(), sim())));
    harness
}

/// Answers the writes of the host as a server that loses a field of the status.
fn answer_without(harness: &mut CoreHarness, path: &[&str]) {
    let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
    while let Some((call, what)) = harness.held.pop() {
        let Call::Write(Write::Patch {
            object,
            subresource,
            precondition,
            patch,
        }) = what
        else {
            unreachable!("only patches are held")
        };
        let mut kept = patch.clone();
        let (last, parents) = path.split_last().expect("a path");
        let parent = parents
            .iter()
            .try_fold(&mut kept, |value, part| value.get_mut(part));
        if let Some(Value::Object(fields)) = parent {
            fields.remove(last);
        }
        let place = at(&object.kind.kind, &object.name);
        let written = harness
            .store
            .patch("me", &place, subresource.as_deref(), precondition.as_ref(), &kept);
        let reply = Reply::Objects(written.map(|object| vec![object]));
        harness.feed(Input::Returned { call, reply });
    }
}

#[test]
fn a_create_is_not_sent_where_its_entry_does_not_stand() {
    let mut harness = cloning();
    harness.hold = Box::new(|call| matches!(call, Call::Write(Write::Patch { .. })));
    harness.create(machine(json!({})));
    answer_without(&mut harness, &["status", "pending"]);
    assert!(harness.performed.is_empty(), "{:?}", harness.performed);
    let note = harness.records[0].notes().next().expect("a note").to_owned();
    assert!(
        note.starts_with("failed-precondition: ") && note.contains("status.pending"),
        "{note}"
    );
    let health = harness.controller.health("machines").expect("its health");
    assert!(health.not_kept.contains_key("status.pending"), "{health:?}");
}

#[test]
fn nothing_is_acted_on_an_object_that_does_not_keep_the_finalizer() {
    let mut harness = cloning();
    harness.hold = Box::new(|call| matches!(call, Call::Write(Write::Patch { .. })));
    harness.create(machine(json!({})));
    answer_without(&mut harness, &["metadata", "finalizers"]);
    assert!(harness.performed.is_empty(), "{:?}", harness.performed);
    let note = harness.records[0].notes().next().expect("a note").to_owned();
    assert!(
        note.starts_with("failed-precondition: ") && note.contains("finalizers"),
        "{note}"
    );
}

#[test]
fn an_entry_that_this_host_cannot_read_refuses_every_create_and_stays_as_it_is() {
    let entry = json!({"operation": "vm.clone", "intent": "x", "key": "k", "since": 1, "service": "vm@1", "stamp": 1, "place": ["sim"], "principal": "host"});
    let mut newer = entry.clone();
    newer["cell"] = json!(2);
    for odd in [
        json!([newer]),
        json!([7]),
        json!([{"operation": "vm.clone"}]),
        json!([entry, "x"]),
        json!({"a": {"b": 1}}),
        json!("x"),
    ] {
        let mut harness = cloning();
        harness.doubt = Box::new(|_| Resolution::Absent);
        harness.create(machine(
            json!({"metadata": {"finalizers": [FINALIZER]}, "status": {"pending": odd}}),
        ));
        harness.sleep(3_600_000);
        assert!(harness.performed.is_empty(), "{odd}");
        let note = harness.records[0].notes().next().expect("a note").to_owned();
        assert!(note.starts_with("failed-precondition: "), "{odd}: {note}");
        let stands = there(&harness, "Machine", "m");
        let left = match odd.as_array() {
            // What can be read is resolved.
            Some(entries) if entries.len() > 1 => json!(["x"]),
            _ => odd.clone(),
        };
        assert_eq!(stands["status"]["pending"], left, "{odd}");
        let conditions = stands["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        assert!(
            conditions
                .iter()
                .any(|c| c["type"] == "polity.dev/PendingUnreadable"),
            "{odd}: {conditions:?}"
        );
        // And the object does not go while nobody knows what it announces.
        harness.delete(&at("Machine", "m"));
        harness.sleep(3_600_000);
        assert_eq!(
            there(&harness, "Machine", "m")["metadata"]["finalizers"],
            json!([FINALIZER])
        );
    }
}

#[test]
fn only_a_process_that_wrote_an_entry_and_never_sent_its_create_knows_without_asking() {
    let asked = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = asked.clone();
    let mut harness = cloning();
    harness.doubt = Box::new(move |_: &PendingEntry| {
        count.set(count.get() + 1);
        Resolution::unknown("nobody looked")
    });
    // The entry is written, and the lease is lost before its create is sent.
    harness.hold = Box::new(|call| {
        matches!(
            call,
            Call::Write(Write::Patch {
                subresource: Some(_),
                ..
            })
        )
    });
    harness.create(machine(json!({})));
    harness.leased = false;
    harness.sleep(20_000);
    assert!(harness.performed.is_empty());
    assert!(
        harness.held.is_empty(),
        "the lost lease cancels it: {:?}",
        harness.held
    );
    harness.hold = Box::new(|_| false);
    // As if the cancelled write had reached the server.
    let entry = json!({"operation": "vm.clone", "intent": "m", "key": "from elsewhere", "since": 1, "service": "vm@1", "stamp": 1, "place": ["sim"], "principal": "host"});
    harness.patch(
        &at("Machine", "m"),
        Some("status"),
        json!({"status": {"pending": [entry]}}),
    );
    harness.leased = true;
    harness.sleep(30_000);
    assert_eq!(
        harness.performed.len(),
        0,
        "an entry of another process is asked for"
    );
    assert!(asked.get() > 0);
}

#[test]
fn what_an_api_server_does_not_keep_is_said_once_and_not_repaired_for_ever() {
    let mut harness = CoreHarness::new();
    harness.policy("lifecycle", |pass| {
        step(pass, |cx| {
            cx.object["status"]["kept"] = json!(1);
            cx.object["status"]["lost"] = json!("here");
            Ok(Next::After(1_000))
        })
    });
    harness.feed(bound(widgets([lifecycle(&["status"])], Vec::new())));
    harness.hold = Box::new(|call| matches!(call, Call::Write(Write::Patch { .. })));
    harness.create(widget("a", json!({})));
    for _ in 0..10 {
        answer_without(&mut harness, &["status", "lost"]);
        harness.sleep(2_000);
    }
    let records = harness.records_of("a");
    let writes: usize = records.iter().map(|record| record.writes.len()).sum();
    assert!(records.len() >= 10, "{}", records.len());
    // The second write is of what the first one lost, and changes nothing.
    assert_eq!(writes, 2, "{records:#?}");
    let health = harness.controller.health("w").expect("its health");
    let lost: Vec<&String> = health.not_kept.keys().collect();
    assert_eq!(lost, ["status.lost"]);
}

#[test]
fn an_act_with_arguments_that_are_not_json_is_refused_and_a_thousand_of_them_are_no_depth() {
    let mut harness = CoreHarness::new();
    harness.policy("lifecycle", |pass| {
        if !pass.journal.is_empty() {
            let used = (0..pass.journal.len() as u32).collect();
            let mut stepped = concluding(None, "{}");
            if let Ok(Step::Concluded { conclusion, .. }) = &mut stepped.outcome {
                conclusion.used = used;
            }
            return stepped;
        }
        let act = |n: usize| {
            let arguments = if n.is_multiple_of(2) {
                "{"
            } else {
                r#"{"id": "vm-1"}"#
            };
            Act::Cloud(polity_core::contract::CloudAct {
                operation: "vm.power-off".into(),
                arguments: arguments.into(),
                intent: None,
            })
        };
        StepOutput {
            outcome: Ok(Step::Pending(Requests::Acts((0..1_000).map(act).collect()))),
            fuel: 1,
        }
    });
    harness.cloud = Box::new(|_| Err(Failure::new(Code::NotFound, "no such VM")));
    let mut policy = lifecycle(&[]);
    Arc::make_mut(&mut policy.manifest).finalizer = None;
    harness.feed(bound(widgets([policy], vec![Grant::Cloud(vec!["vm.*".into()])])));
    harness.create(widget("a", json!({})));
    let record = harness.records_of("a")[0];
    assert_eq!(record.outcome, Outcome::Published);
    let codes: Vec<Code> = record.roles[0]
        .journal
        .iter()
        .filter_map(|entry| entry.answer.as_ref().err().map(|failure| failure.code))
        .collect();
    let refused = codes
        .iter()
        .filter(|code| **code == Code::InvalidArgument)
        .count();
    assert_eq!((codes.len(), refused, harness.performed.len()), (1_000, 500, 500));
}

#[test]
fn what_a_policy_says_of_a_question_is_bounded_and_so_is_all_that_it_requests() {
    let list = |selector: String, projection: Vec<String>| {
        polity_core::contract::Question::Objects(polity_core::contract::ListQuery {
            namespace: Some("default".into()),
            label_selector: Some(selector),
            projection,
            ..polity_core::contract::ListQuery::all(Kind {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
            })
        })
    };
    let mut harness = CoreHarness::new();
    harness.policy("lifecycle", move |pass| {
        step(pass, |cx| {
            for question in [
                list("a=b,".repeat(2_000), Vec::new()),
                list("a=b".into(), vec!["spec".into(); 2_000]),
                list("a=b".into(), vec!["spec".into()]),
            ] {
                let answer = cx.ask(question)?;
                cx.notes
                    .push(answer.map_or_else(|failure| failure.code.as_str().into(), |_| "ok".into()));
            }
            for number in 0..100 {
                let name = format!("{number}-{}", "x".repeat(1 << 20));
                let _ = cx.ask(polity_core::contract::Question::Lock(name))?;
            }
            Ok(SETTLED)
        })
    });
    let grants = || vec![Grant::Ask(kind("v1", "ConfigMap")), Grant::Lock(vec!["*".into()])];
    harness.feed(bound(widgets([lifecycle(&[])], grants())));
    harness.create(widget("a", json!({})));
    let record = &harness.records[0];
    let fault = record.roles[0].fault.as_ref().expect("a fault");
    assert_eq!(fault.kind, FaultKind::TooLong, "{fault}");
    let answers = record.roles[0].journal.iter().take(3);
    let codes: Vec<Option<Code>> = answers
        .map(|entry| entry.answer.as_ref().err().map(|failure| failure.code))
        .collect();
    assert_eq!(
        codes,
        [Some(Code::InvalidArgument), Some(Code::InvalidArgument), None]
    );
}
