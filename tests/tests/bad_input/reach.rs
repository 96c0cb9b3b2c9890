//! The reach of grants: hostile policies name things of others, and tenants write values that the shipped
//! policies follow. Identities are tested in `scenarios/capa`.

use polity_core::contract::{Answer, Code, ObjectRef, Question, Request};
use polity_core::record::{Outcome, PassRecord};
use polity_tests::host_fixture::{HostFixture, condition_of, machine, machines, reference};
use polity_tests::host_harness::backend::Embedded;
use polity_tests::host_harness::mcm;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::wishes::{all_refused, answers, codes, granting, namespace, wish, wishing};

const REFUSED: Option<Code> = Some(Code::PermissionDenied);

fn config_map(namespace: &str, text: &str) -> Value {
    let metadata = json!({"namespace": namespace, "name": "plan"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}})
}

fn plan(namespace: &str) -> ObjectRef {
    reference("v1", "ConfigMap", Some(namespace), "plan")
}

/// A host with the plans of a tenant and of a victim.
async fn with_plans(grants: Value) -> HostFixture {
    let fixture = HostFixture::with(vec![granting(grants)]).await;
    namespace(&fixture, "victim").await;
    fixture.apply(&config_map("default", "mine")).await;
    fixture.apply(&config_map("victim", "theirs")).await;
    fixture
}

fn named(object: &ObjectRef) -> Value {
    serde_json::to_value(object).expect("a reference is JSON")
}

/// A change of an object as it stands: with its right uid.
async fn change(fixture: &HostFixture, object: &ObjectRef, patch: Value) -> Value {
    let uid = &fixture.get(object).await["metadata"]["uid"];
    json!({"object": named(object), "uid": uid, "patch": patch})
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_stays_in_the_own_namespace() {
    let maps = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let fixture = with_plans(json!([{"ask": maps}])).await;
    let mut of_victim = maps.clone();
    of_victim["namespace"] = "victim".into();
    let wishes = json!([
        {"object": named(&plan("victim"))},
        {"latest": named(&plan("victim"))},
        {"objects": of_victim},
        {"object": named(&plan("default"))},
        {"objects": maps},
    ]);
    let answers = wish(&fixture, "curious", wishes).await;
    all_refused(&answers[..3], "not granted");
    assert_eq!(codes(&answers[3..]), [None, None]);
    let seen = format!("{:?}", fixture.host.passes_of("curious"));
    assert!(seen.contains("mine") && !seen.contains("theirs"), "{seen}");
    fixture
        .until_said("things", "Ungranted", "True", "ask for ConfigMap victim/plan")
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_written_stays_in_the_own_namespace() {
    let maps = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let pods = json!({"apiVersion": "v1", "kind": "Pod"});
    let grants =
        json!([{"create": maps}, {"patch": maps}, {"delete": maps}, {"evict": pods}, {"delete": pods}]);
    let fixture = with_plans(grants).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "victim", "name": "web"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    fixture.apply(&pod).await;
    let (theirs, web) = (plan("victim"), reference("v1", "Pod", Some("victim"), "web"));
    let before = (fixture.get(&theirs).await, fixture.get(&web).await);
    let (on_plan, on_pod) = (
        change(&fixture, &theirs, json!({"data": {"text": "changed"}})).await,
        change(&fixture, &web, json!({})).await,
    );
    let mut new = config_map("victim", "planted");
    new["metadata"]["name"] = "planted".into();
    let own = change(&fixture, &plan("default"), json!({"data": {"text": "changed"}})).await;
    let wishes = json!([
        {"create": new}, {"patch": on_plan}, {"delete": on_plan}, {"evict": on_pod}, {"delete": on_pod},
        {"patch": own},
    ]);
    let answers = wish(&fixture, "vandal", wishes).await;
    all_refused(&answers[..5], "not granted");
    assert_eq!(codes(&answers[5..]), [None]);
    assert_eq!((fixture.get(&theirs).await, fixture.get(&web).await), before);
    let planted = reference("v1", "ConfigMap", Some("victim"), "planted");
    assert!(fixture.get(&planted).await.is_null());
    assert_eq!(fixture.get(&plan("default")).await["data"]["text"], "changed");
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_one_name_reaches_no_other() {
    let granted = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "plan"});
    let fixture = with_plans(json!([{"ask": granted}, {"patch": granted}])).await;
    let mut other = config_map("default", "somebody else's");
    other["metadata"]["name"] = "other".into();
    fixture.apply(&other).await;
    let other = reference("v1", "ConfigMap", Some("default"), "other");
    let before = fixture.get(&other).await;
    let wishes = json!([
        {"object": named(&other)},
        {"objects": {"apiVersion": "v1", "kind": "ConfigMap"}},
        {"patch": change(&fixture, &other, json!({"data": {"text": "changed"}})).await},
        {"object": named(&plan("default"))},
    ]);
    let answers = wish(&fixture, "curious", wishes).await;
    all_refused(&answers[..3], "not granted");
    assert_eq!(codes(&answers[3..]), [None]);
    assert_eq!(fixture.get(&other).await, before);
}

#[tokio::test(start_paused = true)]
async fn facts_of_secrets_stay_in_the_own_namespace() {
    let fixture = with_plans(json!([{"secrets": {}}])).await;
    let secret = |namespace: &str| {
        let metadata = json!({"namespace": namespace, "name": "keys"});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {namespace: "x"}})
    };
    fixture.apply(&secret("victim")).await;
    fixture.apply(&secret("default")).await;
    let of = |namespace: &str| {
        let secret = reference("v1", "Secret", Some(namespace), "keys");
        json!({"secret": named(&secret)})
    };
    let answers = wish(
        &fixture,
        "curious",
        json!([of("victim"), of("kube-system"), of("default")]),
    )
    .await;
    all_refused(&answers[..2], "not granted: see Secret keys");
    let facts = answers[2].as_ref().expect("its own");
    assert_eq!(facts["keys"], json!(["default"]));
}

fn node(name: &str, provider_id: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": provider_id},
    })
}

fn node_at(name: &str) -> ObjectRef {
    reference("v1", "Node", None, name)
}

/// The Node that names the Thing: in a policy for machines that is the one that names the VM on record.
fn related() -> Value {
    let relation = json!({"theirs": "spec.providerID", "ours": "metadata.labels.vm"});
    json!({"apiVersion": "v1", "kind": "Node", "relation": relation})
}

/// A Thing whose label names a VM.
fn with_vm(name: &str, vm: &str, wishes: &Value) -> Value {
    let mut thing = wishing(name, wishes);
    thing["metadata"]["labels"] = json!({"vm": vm});
    thing
}

async fn wish_of(fixture: &HostFixture, thing: &Value) -> Vec<Answer> {
    fixture.apply(thing).await;
    let name = thing["metadata"]["name"].as_str().expect("a name");
    let pass = fixture.until_passed(name, 0, &Outcome::Published).await;
    answers(&pass)
}

#[tokio::test(start_paused = true)]
async fn what_lives_in_no_namespace_is_reached_by_name_or_by_relation_only() {
    let any = json!({"apiVersion": "v1", "kind": "Node"});
    let mut one = any.clone();
    one["name"] = "granted".into();
    let fixture = HostFixture::with(vec![granting(
        json!([{"ask": any}, {"patch": any}, {"delete": any}, {"ask": one}]),
    )])
    .await;
    fixture.apply(&node("victim", "vm-2")).await;
    fixture.apply(&node("granted", "vm-1")).await;
    let before = fixture.get(&node_at("victim")).await;
    let on_victim = change(
        &fixture,
        &node_at("victim"),
        json!({"spec": {"unschedulable": true}}),
    )
    .await;
    let wishes = json!([
        {"object": named(&node_at("victim"))}, {"patch": on_victim}, {"delete": on_victim},
        {"object": named(&node_at("granted"))}, {"objects": any},
    ]);
    let answers = wish(&fixture, "curious", wishes).await;
    all_refused(&answers[..3], "not granted");
    assert_eq!(
        answers[3].as_ref().map(|node| node["metadata"]["name"].clone()),
        Ok(json!("granted"))
    );
    // A list goes through one grant, and this one reaches no Node: what another one names is no part of it.
    assert_eq!(answers[4], Ok(json!([])));
    assert_eq!(fixture.get(&node_at("victim")).await, before);
}

/// A CRD that nobody has installed looks like a slow watch otherwise.
#[tokio::test(start_paused = true)]
async fn a_kind_that_nothing_serves_is_unavailable_and_says_why() {
    let gadgets = json!({"apiVersion": "test.polity.example/v1", "kind": "Gadget"});
    let fixture = HostFixture::with(vec![granting(json!([{"ask": gadgets}]))]).await;
    let mut one = gadgets.clone();
    one["namespace"] = "default".into();
    one["name"] = "g".into();
    let answers = wish(&fixture, "seeker", json!([{"object": one}])).await;
    let refusal = answers[0].as_ref().expect_err("no gadget");
    assert_eq!(refusal.code, Code::Unavailable);
    let why = "the watch of Gadget has not listed: unimplemented: the API server does not serve Gadget";
    assert!(refusal.message.starts_with(why), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_vm_is_not_related() {
    let node_grant = related();
    let grants =
        json!([{"ask": node_grant}, {"patch": node_grant}, {"delete": node_grant}, {"create": node_grant}]);
    let fixture = HostFixture::with(vec![granting(grants)]).await;
    for (name, vm) in [("mine", "vm-1"), ("victim", "vm-2"), ("nobodys", "")] {
        fixture.apply(&node(name, vm)).await;
    }
    let before = fixture.get(&node_at("victim")).await;
    let cordoned = json!({"spec": {"unschedulable": true}});
    let on_victim = change(&fixture, &node_at("victim"), cordoned.clone()).await;
    let on_mine = change(&fixture, &node_at("mine"), cordoned).await;
    let wishes = json!([
        {"objects": {"apiVersion": "v1", "kind": "Node"}},
        {"object": named(&node_at("mine"))}, {"patch": on_mine}, {"create": node("second", "vm-1")},
        {"object": named(&node_at("victim"))}, {"latest": named(&node_at("victim"))},
        {"patch": on_victim}, {"delete": on_victim}, {"create": node("fake", "vm-2")},
    ]);
    let answers = wish_of(&fixture, &with_vm("tenant", "vm-1", &wishes)).await;
    let listed = answers[0].as_ref().expect("a list");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(codes(&answers[1..4]), [None, None, None]);
    all_refused(&answers[4..], "not granted");
    assert_eq!(fixture.get(&node_at("victim")).await, before);
    assert!(fixture.get(&node_at("fake")).await.is_null());
    assert_eq!(fixture.get(&node_at("mine")).await["spec"]["unschedulable"], true);
    fixture
        .until_said("things", "Ungranted", "True", "Node victim: not related")
        .await;

    // An object that names no VM is not related to a node that names none.
    let wishes =
        json!([{"objects": {"apiVersion": "v1", "kind": "Node"}}, {"object": named(&node_at("nobodys"))}]);
    let answers = wish_of(&fixture, &with_vm("empty", "", &wishes)).await;
    assert_eq!(answers[0], Ok(json!([])));
    assert_eq!(codes(&answers[1..]), [REFUSED]);
}

/// A uid is no secret. What no watch shows may belong to anybody.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_not_looked_at_is_not_changed() {
    let node_grant = related();
    let fixture = HostFixture::with(vec![granting(
        json!([{"patch": node_grant}, {"delete": node_grant}]),
    )])
    .await;
    fixture.apply(&node("victim", "vm-2")).await;
    let before = fixture.get(&node_at("victim")).await;
    let on_victim = change(
        &fixture,
        &node_at("victim"),
        json!({"spec": {"unschedulable": true}}),
    )
    .await;
    let wishes = json!([{"patch": on_victim}, {"delete": on_victim}]);
    let answers = wish_of(&fixture, &with_vm("tenant", "vm-1", &wishes)).await;
    assert_eq!(codes(&answers), [Some(Code::Unavailable); 2]);
    assert_eq!(fixture.get(&node_at("victim")).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_vm_of_another_object_answers_no_policy() {
    let fixture = HostFixture::with(vec![
        granting(json!([{"cloud": ["vm.*", "task.get"]}])),
        machines(),
    ])
    .await;
    fixture.apply(&machine("default", "web")).await;
    fixture.until_machines_run().await;
    let before = fixture.site.vms();
    let id = json!({"id": before[0].id});
    let operation = |name: &str, arguments: &Value| json!({"operation": name, "arguments": arguments});
    let mut wishes: Vec<Value> = ["vm.get", "vm.metadata", "vm.nics", "vm.power"]
        .iter()
        .map(|name| json!({"cloud": operation(name, &id)}))
        .collect();
    let task = fixture
        .site
        .effects()
        .iter()
        .find_map(|effect| effect.task.clone());
    wishes.push(json!({"cloud": operation("task.get", &json!({"id": task.expect("a task")}))}));
    for name in ["vm.power-off", "vm.destroy", "vm.power-on"] {
        wishes.push(json!({"act": operation(name, &id)}));
    }
    let metadata = json!({"id": before[0].id, "metadata": "mine now"});
    wishes.push(json!({"act": operation("vm.reconfigure", &metadata)}));
    let answers = wish(&fixture, "thief", wishes.into()).await;
    all_refused(&answers, "belongs to another object");
    // By its UUID it is not even there.
    let uuid = json!({"instanceUuid": before[0].instance_uuid});
    let found = wish(
        &fixture,
        "seeker",
        json!([{"cloud": operation("vm.find", &uuid)}]),
    )
    .await;
    assert_eq!(codes(&found), [Some(Code::NotFound)]);
    assert_eq!(fixture.site.vms(), before);
}

#[tokio::test(start_paused = true)]
async fn what_is_sealed_is_of_the_own_namespace_and_granted() {
    let grants =
        json!([{"cloud": ["machine.create"]}, {"secrets": {"name": "mine"}}, {"mint": ["bootstrap-token"]}]);
    let fixture = HostFixture::with(vec![granting(grants)]).await;
    for name in ["mine", "victims"] {
        let metadata = json!({"namespace": "default", "name": name});
        let data = json!({"token": "abcdef.0123456789abcdef"});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
        fixture.apply(&secret).await;
    }
    let create = |name: &str, token: Value| {
        let arguments = json!({"name": name, "bootstrapToken": token});
        json!({"act": {"operation": "machine.create", "arguments": arguments, "intent": name}})
    };
    let sealed = |name: &str| json!({"$secret": {"name": name, "key": "token"}});
    let refused = wish(&fixture, "thief", json!([create("a", sealed("victims"))])).await;
    all_refused(&refused, "not granted: unseal Secret victims");
    // A token that the host made is of use to the object alone for which it was made.
    let minted = wish(&fixture, "owner", json!([{"mint": "bootstrap-token"}]))
        .await
        .remove(0);
    let minted = minted.expect("a token");
    let foreign = wish(&fixture, "impostor", json!([create("b", minted)])).await;
    assert_eq!(codes(&foreign), [Some(Code::FailedPrecondition)]);
    assert!(fixture.site.vms().is_empty(), "the cloud was told nothing");
    let own = wish(&fixture, "honest", json!([create("c", sealed("mine"))])).await;
    assert_eq!(codes(&own), [None]);
}

#[tokio::test(start_paused = true)]
async fn a_minted_token_is_revoked_by_its_owner_and_by_nobody_else() {
    let fixture = HostFixture::with(vec![granting(json!([{"mint": ["bootstrap-token"]}]))]).await;
    let minted = wish(&fixture, "owner", json!([{"mint": "bootstrap-token"}]))
        .await
        .remove(0);
    let minted = minted.expect("a token");
    let revoke = json!([{"revoke": minted}]);
    let foreign = wish(&fixture, "impostor", revoke.clone()).await;
    assert_eq!(codes(&foreign), [Some(Code::NotFound)]);
    let odd = json!([{"revoke": {"$secret": {"name": "mine", "key": "token"}}}, {"revoke": "x"}]);
    let odd = wish(&fixture, "odd", odd).await;
    assert_eq!(
        codes(&odd),
        [Some(Code::InvalidArgument), Some(Code::InvalidArgument)]
    );
    let fixture = HostFixture::with(vec![granting(json!([]))]).await;
    all_refused(
        &wish(&fixture, "thief", revoke).await,
        "not granted: revoke a token",
    );
}

#[tokio::test(start_paused = true)]
async fn whether_the_api_server_answers_is_told_to_whom_it_is_granted() {
    let asks = json!([{"reachable": null}]);
    let fixture = HostFixture::with(vec![granting(json!([{"reachable": true}]))]).await;
    let told = wish(&fixture, "asks", asks.clone()).await.remove(0);
    assert_eq!(told, Ok(json!(true)));
    let fixture = HostFixture::with(vec![granting(json!([]))]).await;
    all_refused(
        &wish(&fixture, "asks", asks).await,
        "not granted: ask whether the API server answers",
    );
}

#[tokio::test(start_paused = true)]
async fn locks_tokens_and_credentials_are_what_the_binding_grants() {
    let grants = json!([{"lock": ["deployment/*"]}, {"mint": ["bootstrap-token"]}, {"credential": true}]);
    let fixture = HostFixture::with(vec![granting(grants)]).await;
    let wishes = json!([
        {"lock": "cluster/a"}, {"mint": "password"}, {"credential": {"chain": []}},
        {"cloud": {"operation": "vm.power", "arguments": {"id": "vm-1"}}},
        {"lock": "deployment/a"}, {"mint": "bootstrap-token"},
    ]);
    let answers = wish(&fixture, "greedy", wishes).await;
    // A credential is for identity policies, whatever is granted.
    all_refused(&answers[..4], "not granted");
    assert_eq!(codes(&answers[4..]), [None, None]);
    for words in [
        "lock cluster/a",
        "mint password",
        "credential",
        "cloud operation vm.power",
    ] {
        fixture.until_said("things", "Ungranted", "True", words).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_identity_policy_names_no_credentials_of_others() {
    let mut binding = granting(json!([{"credential": true}, {"secrets": {"namespaces": ["system"]}}]));
    binding["spec"]["policies"]["identity"] = json!({"file": "hostile-identity.wasm"});
    let fixture = HostFixture::with(vec![binding]).await;
    namespace(&fixture, "system").await;
    namespace(&fixture, "victim").await;
    let identity = json!({"kind": "K", "name": "n", "uid": "u"});
    let keys = |namespace: &str| {
        let secret = json!({"identity": identity, "namespace": namespace, "name": "keys", "digest": "d"});
        json!({"credential": {"chain": [{"secret": secret}]}})
    };
    let token = |namespace: &str| {
        let role = json!({
            "identity": identity, "namespace": namespace, "arn": "arn:aws:iam::1:role/r", "audiences": ["sts"],
            "expirationSeconds": 600,
        });
        json!({"credential": {"chain": [{"webIdentity": role}]}})
    };
    let wishes = json!([keys("victim"), keys("default"), token("victim"), keys("system")]);
    let mut thing = wishing("impostor", &wishes);
    thing["metadata"]["annotations"]["identity"] = "wish".into();
    fixture.apply(&thing).await;
    let pass = fixture.until_passed("impostor", 0, &Outcome::Denied).await;
    let answers = answers(&pass);
    all_refused(&answers[..3], "not granted: credential");
    // Granted, and not there.
    assert_ne!(codes(&answers[3..]), [REFUSED]);
    assert!(fixture.site.vms().is_empty());
}

/// What a tenant may clone is the cloud's to say.
#[tokio::test(start_paused = true)]
async fn a_template_of_another_tenant_makes_no_vm() {
    let mut binding = machines();
    let templates = json!([{"name": "ubuntu", "tenants": ["owner"]}]);
    binding["spec"]["cloud"]["configuration"] = json!({"templates": templates});
    let fixture = HostFixture::with(vec![binding]).await;
    namespace(&fixture, "owner").await;
    namespace(&fixture, "thief").await;
    fixture.apply(&machine("owner", "web")).await;
    fixture.apply(&machine("thief", "copy")).await;
    let said = fixture
        .until("the refusal", async || {
            let mut events = fixture.events_of("copy").await.into_iter();
            events
                .find(|(reason, _)| reason == "NotAccepted")
                .map(|(_, said)| said)
        })
        .await;
    assert_eq!(said, "tenant \"thief\" may not clone template \"ubuntu\"");
    fixture.until_machines_run_but("copy").await;
    let vms = fixture.site.vms();
    assert_eq!(vms.iter().map(|vm| &*vm.tenant).collect::<Vec<_>>(), ["owner"]);
}

/// The machine of a victim that runs, with a pod on its node, and a namespace for the rival.
async fn victim() -> Story {
    let ten = json!({"min": "10s", "max": "10s"});
    let cloud = json!({"lag": "0ms", "machines": {"boot": ten, "join": ten}});
    let machines = mcm::machines(json!({"safety": ""}));
    let story = Story::begin(
        &Embedded { recordings: None },
        cloud,
        vec![machines],
        &rival("rival"),
    )
    .await;
    let rivals = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rivals"}});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": "web"},
        "spec": {"nodeName": "node-m-1", "containers": [{"name": "c", "image": "i"}]},
    });
    story.site.play_kubelets();
    for object in [
        &rivals,
        &mcm::user_data("#cloud-config\nruncmd: []"),
        &mcm::class(),
        &mcm::machine("m-1"),
    ] {
        story.create(object).await;
    }
    while phase(&story, &m_1()).await != "Running" {
        story.sleep(std::time::Duration::from_secs(1)).await;
    }
    story.create(&pod).await;
    story
}

fn m_1() -> ObjectRef {
    reference(mcm::MCM, "Machine", Some("default"), "m-1")
}

async fn phase(story: &Story, machine: &ObjectRef) -> Value {
    story.site.get(machine).await.unwrap_or_default()["status"]["currentStatus"]["phase"].clone()
}

/// A Machine of another namespace, of the same class by name.
fn rival(name: &str) -> Value {
    in_rivals(mcm::machine(name))
}

fn in_rivals(mut object: Value) -> Value {
    object["metadata"]["namespace"] = "rivals".into();
    object
}

/// The rival's own class and Secret.
async fn own_class(story: &Story) {
    story
        .create(&in_rivals(mcm::user_data("#cloud-config of rivals")))
        .await;
    story.create(&in_rivals(mcm::class())).await;
}

/// What the victim has: its VM, its node but for what kubelets write, its pod, and its phase.
async fn belongings(story: &Story) -> (Value, Value, Value, Value) {
    let vms = story.site.vms();
    let vm = vms.iter().find(|vm| vm.name == "m-1");
    let mut node = story.site.get(&node_at("node-m-1")).await.unwrap_or_default();
    node["status"] = Value::Null;
    node["metadata"] = json!({"uid": node["metadata"]["uid"], "labels": node["metadata"]["labels"]});
    let pod = story
        .site
        .get(&reference("v1", "Pod", Some("default"), "web"))
        .await;
    let phase = phase(story, &m_1()).await;
    (json!(format!("{vm:?}")), node, pod.unwrap_or_default(), phase)
}

fn of_rival(pass: &&PassRecord) -> bool {
    pass.key.namespace.as_deref() == Some("rivals")
}

/// Nothing was asked of the cloud for the rival, and nothing done.
fn no_call(story: &Story) {
    let passes = story.passes();
    for entry in passes
        .iter()
        .filter(of_rival)
        .flat_map(|pass| &pass.roles[0].journal)
    {
        let called = match &entry.request {
            Request::Ask(ask) => matches!(ask.question, Question::Cloud(_)),
            Request::Act(_) => true,
        };
        assert!(!called, "{:?}", entry.request);
    }
}

fn class_problem(object: &Value) -> Value {
    let condition = condition_of(object, "ClassValid").cloned().unwrap_or_default();
    json!([condition["status"], condition["reason"], condition["message"]])
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_names_the_node_of_another_leaves_it_alone() {
    let story = victim().await;
    own_class(&story).await;
    let before = belongings(&story).await;
    let mut thief = rival("rival");
    thief["metadata"]["labels"]["node"] = "node-m-1".into();
    // What its node is to carry, as far as it reaches.
    thief["spec"]["nodeTemplate"] = json!({
        "metadata": {"labels": {"stolen": "yes"}},
        "spec": {"taints": [{"key": "stolen", "effect": "NoExecute"}]},
    });
    story.create(&thief).await;
    story
        .until("its VM is made", |machine| {
            machine["status"]["providerID"].is_string()
        })
        .await;
    let label = json!({"metadata": {"labels": {"node": "node-m-1"}}});
    story.edit(label.clone()).await;
    story.sleep(std::time::Duration::from_secs(1_800)).await;
    story.edit(label).await;
    assert_eq!(belongings(&story).await, before);

    // Taken down by force, with whatever stands on "its" node.
    story
        .edit(json!({"metadata": {"labels": {"node": "node-m-1", "force-deletion": "True"}}}))
        .await;
    story.delete().await;
    story.until("it is gone", Value::is_null).await;
    story.sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(belongings(&story).await, before);
    let vms = story.site.vms();
    assert_eq!(vms.iter().map(|vm| &*vm.name).collect::<Vec<_>>(), ["m-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_class_of_another_namespace_makes_no_machine() {
    let story = victim().await;
    story.create(&rival("rival")).await;
    let said = json!(["False", "ClassMissing", "MachineClass small does not exist"]);
    story
        .until("the refusal", |machine| class_problem(machine) == said)
        .await;
    story.sleep(std::time::Duration::from_secs(1_800)).await;
    no_call(&story);
    assert_eq!(story.site.vms().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_another_namespace_boots_no_machine() {
    let story = victim().await;
    story.create(&in_rivals(mcm::class())).await;
    story.create(&rival("rival")).await;
    let said = json!(["False", "SecretInvalid", "Secret user-data does not exist"]);
    story
        .until("the refusal", |machine| class_problem(machine) == said)
        .await;
    story.sleep(std::time::Duration::from_secs(1_800)).await;
    no_call(&story);
    assert_eq!(story.site.vms().len(), 1);
}

/// Only the policy of a machine may write its status. A tenant who writes it nevertheless gets the node of the VM in the
/// status, but not the VM.
#[tokio::test(start_paused = true)]
async fn a_machine_with_the_vm_of_another_on_record_is_refused_by_its_driver() {
    let story = victim().await;
    own_class(&story).await;
    story.create(&rival("rival")).await;
    story.until_is("status.currentStatus.phase", "Running").await;
    let before = belongings(&story).await;
    let victim = story.site.get(&m_1()).await.unwrap_or_default();
    let stolen = json!({"providerID": victim["status"]["providerID"], "node": null});
    story.edit_status(stolen).await;
    story.delete().await;
    let failed = |machine: &Value| {
        let last = &machine["status"]["lastOperation"];
        last["state"] == "Failed"
            && last["description"]
                .to_string()
                .contains("belongs to another object")
    };
    let machine = story.until("the refusal", failed).await;
    assert_eq!(
        machine["status"]["lastOperation"]["errorCode"],
        "permission-denied"
    );
    story.sleep(std::time::Duration::from_secs(3_600)).await;
    assert_eq!(belongings(&story).await, before);
    let events = story.site.list("v1", "Event").await;
    let told =
        |event: &Value| event["reason"] == "DeletionFailed" && event["involvedObject"]["name"] == "rival";
    assert!(events.iter().any(told), "{events:#?}");
}

/// A lock is the tenant's own: nobody else's deployment of that name waits for it.
#[tokio::test(start_paused = true)]
async fn a_lock_of_another_tenant_stands_in_nobodys_way() {
    let slow = json!({"min": "4s", "max": "4s"});
    let mut binding = granting(json!([{"lock": ["deployment/*"]}, {"cloud": ["vm.power"]}]));
    binding["spec"]["cloud"]["configuration"] = json!({"answers": slow});
    let fixture = HostFixture::with(vec![binding]).await;
    namespace(&fixture, "victim").await;
    let long =
        json!([{"lock": "deployment/a"}, {"cloud": {"operation": "vm.power", "arguments": {"id": "vm-1"}}}]);
    let mut other = wishing("victim", &long);
    other["metadata"]["namespace"] = "victim".into();
    fixture.apply(&wishing("hog", &long)).await;
    let in_flight = async || {
        fixture
            .host
            .handle
            .view()
            .await
            .filter(|view| view.passes > 0)
            .map(|_| ())
    };
    fixture.until("a pass that holds the lock", in_flight).await;
    fixture.apply(&other).await;
    fixture.apply(&wishing("neighbour", &long)).await;
    for (name, held) in [("hog", "held"), ("victim", "held"), ("neighbour", "busy")] {
        let pass = fixture.until_passed(name, 0, &Outcome::Published).await;
        assert_eq!(answers(&pass)[0], Ok(json!(held)), "{name}");
    }
}
