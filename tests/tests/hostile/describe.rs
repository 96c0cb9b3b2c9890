//! Manifests with errors: such a manifest keeps its own binding from running, and nothing else.

use polity::manifests::Manifests;
use polity_core::contract::ObjectRef;
use polity_tests::guests;
use polity_tests::host_fixture::reference;
use serde_json::{Value, json};

use crate::hostile::stage::{Stage, crd, described, manifest, with_retry};

/// A manifest, and what must come of it.
pub(crate) struct Describe {
    /// A word for it: also the name of its binding, file and namespace.
    pub(crate) name: &'static str,
    /// What of it is not as it should be.
    manifest: Value,
    expect: Expect,
}

/// What must come of a manifest.
#[derive(Debug)]
enum Expect {
    /// Its binding is not loaded, and says so with one of these words.
    Unloaded(&'static [&'static str]),
    /// It is loaded, or not: nobody else notices.
    Either,
    /// What it would install is not, and stands as it stood; its binding says why.
    NotInstalled(Installed),
}

/// What a manifest would install or replace.
#[derive(Clone, Copy, Debug)]
struct Installed {
    api_version: &'static str,
    kind: &'static str,
    name: &'static str,
}

const CRD: &str = "apiextensions.k8s.io/v1";

fn definition(name: &'static str) -> Expect {
    Expect::NotInstalled(Installed {
        api_version: CRD,
        kind: "CustomResourceDefinition",
        name,
    })
}

/// A CRD of the own kind, with something that is not as it should be.
fn own(path: &str, value: Value) -> Value {
    let mut own = crd("Waiter");
    *own.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
    own
}

/// A CRD of somebody else's kind.
fn of(group: &str, plural: &str, kind: &str) -> Value {
    let mut of = crd(kind);
    of["metadata"]["name"] = format!("{plural}.{group}").into();
    of["spec"]["group"] = group.into();
    of["spec"]["names"]["plural"] = plural.into();
    of
}

pub(crate) fn rows() -> Vec<Describe> {
    let row = |name, manifest, expect| Describe {
        name,
        manifest,
        expect,
    };
    let unloaded = Expect::Unloaded;
    let installs = |name, crd: Value, expect| row(name, json!({"crd": crd}), expect);
    let mut conversion = crd("Waiter");
    conversion["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://evil.example/convert"}}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [crd("Waiter"), of("test.polity.example", "things", "Thing")]});
    let admin = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "evil"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "cluster-admin"}, "subjects": []});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "evil", "namespace": "default"}});
    let web = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "evil", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let refs = |n: usize| -> Value {
        let level = |n: usize| {
            let next = json!({"$ref": format!("#/$defs/l{}", n + 1)});
            (format!("l{n}"), json!({"allOf": [next, next, next, next]}))
        };
        let mut defs: serde_json::Map<String, Value> = (0..n).map(level).collect();
        defs.insert(format!("l{n}"), json!({"type": "object"}));
        json!({"$ref": "#/$defs/l0", "$defs": defs})
    };
    vec![
        row(
            "describe-loops",
            json!({"$do": "loop"}),
            unloaded(&["describe", "fuel"]),
        ),
        row(
            "describe-panics",
            json!({"$do": "panic"}),
            unloaded(&["describe", "as it was told"]),
        ),
        row(
            "describe-allocates",
            json!({"$do": "allocate"}),
            unloaded(&["describe", "memory"]),
        ),
        row(
            "describe-recurses",
            json!({"$do": "recurse"}),
            unloaded(&["describe", "stack"]),
        ),
        row("no-manifest", json!("nothing"), unloaded(&["describe"])),
        row(
            "a-huge-name",
            json!({"name": {"$text": [["x", 2_000_000]]}}),
            unloaded(&["describe", "name"]),
        ),
        row(
            "many-edges",
            json!({"edges": [{"$times": [{"id": "E-{n}", "meaning": "m", "derivedFrom": null}, 100_000]}]}),
            unloaded(&["describe", "edges"]),
        ),
        row(
            "edges-twice",
            json!({"edges": [{"$times": [{"id": "E-1", "meaning": "m", "derivedFrom": null}, 3]}]}),
            Expect::Either,
        ),
        row(
            "edges-of-controls",
            json!({"edges": [{"id": "\u{1b}[2J\n", "meaning": "\u{202e}", "derivedFrom": "\u{7}"}]}),
            Expect::Either,
        ),
        row(
            "edges-of-themselves",
            json!({"edges": [{"id": "A", "meaning": "m", "derivedFrom": "B"}, {"id": "B", "meaning": "m", "derivedFrom": "A"}]}),
            Expect::Either,
        ),
        row(
            "a-schema-that-is-none",
            json!({"configSchema": "{"}),
            unloaded(&["schema"]),
        ),
        row(
            "a-schema-of-a-number",
            json!({"configSchema": 5}),
            unloaded(&["schema"]),
        ),
        row(
            "a-schema-of-types",
            json!({"configSchema": {"type": "nonsense"}}),
            unloaded(&["schema"]),
        ),
        row(
            "a-schema-of-itself",
            json!({"configSchema": {"$ref": "#"}}),
            Expect::Either,
        ),
        row(
            "a-schema-elsewhere",
            json!({"configSchema": {"$ref": "https://evil.example/schema"}}),
            unloaded(&["schema", "evil"]),
        ),
        row(
            "a-schema-of-a-file",
            json!({"configSchema": {"$ref": "file:///etc/passwd"}}),
            unloaded(&["schema", "passwd"]),
        ),
        row(
            "a-schema-that-grows",
            json!({"configSchema": refs(4)}),
            Expect::Either,
        ),
        row(
            "a-schema-of-a-pattern",
            json!({"configSchema": {"pattern": "(((a{1,100}){1,100}){1,100}){1,100}"}}),
            Expect::Either,
        ),
        row(
            "a-schema-too-deep",
            json!({"$text": [r#"{"name":"deep","version":"1","role":"retry","configSchema":"#,
                ["{\"not\":", 5_000], "{}", ["}", 5_000], "}"]}),
            unloaded(&["manifest"]),
        ),
        row(
            "another-role",
            json!({"role": "lifecycle"}),
            unloaded(&["manifest names the role"]),
        ),
        row(
            "another-kind",
            json!({"governs": [{"apiVersion": "v1", "kind": "Pod"}]}),
            unloaded(&["does not govern"]),
        ),
        row(
            "needs-not-granted",
            json!({"needs": ["secrets", "credential", {"mint": "password"}, {"cloud": "vm.*"}]}),
            unloaded(&["does not grant"]),
        ),
        row(
            "needs-by-the-thousand",
            json!({"needs": [{"$times": [{"cloud": "vm.{n}"}, 20_000]}]}),
            unloaded(&["does not grant", "describe", "needs"]),
        ),
        row(
            "writes-nothing-that-is",
            json!({"writes": ["", ".", "..", "status.conditions[", "[]", "status.pending"]}),
            Expect::Either,
        ),
        row(
            "a-finalizer-that-is-none",
            json!({"finalizer": "not a finalizer\n"}),
            Expect::Either,
        ),
        row(
            "a-finalizer-of-the-host",
            json!({"finalizer": "polity.dev/evil"}),
            unloaded(&["polity.dev/evil"]),
        ),
        row(
            "a-crd-that-is-no-json",
            json!({"$text": [r#"{"name":"broken","version":"1","role":"retry","crd":{"#]}),
            unloaded(&["manifest"]),
        ),
        installs(
            "the-hosts-own-crd",
            of("polity.dev", "policybindings", "PolicyBinding"),
            definition("policybindings.polity.dev"),
        ),
        installs(
            "a-neighbours-crd",
            of("test.polity.example", "things", "Thing"),
            definition("things.test.polity.example"),
        ),
        installs(
            "a-crd-beside-its-own",
            list,
            definition("things.test.polity.example"),
        ),
        installs(
            "a-crd-of-a-closed-group",
            of("rbac.authorization.k8s.io", "roles", "Role"),
            definition("roles.rbac.authorization.k8s.io"),
        ),
        installs(
            "a-crd-that-converts",
            conversion,
            definition("waiters.hostile.polity.example"),
        ),
        installs(
            "a-crd-of-another-kind",
            of("hostile.polity.example", "others", "Other"),
            definition("others.hostile.polity.example"),
        ),
        installs(
            "a-role-binding",
            admin,
            Expect::NotInstalled(Installed {
                api_version: "rbac.authorization.k8s.io/v1",
                kind: "ClusterRoleBinding",
                name: "evil",
            }),
        ),
        installs(
            "a-map-for-a-crd",
            map,
            Expect::NotInstalled(Installed {
                api_version: "v1",
                kind: "ConfigMap",
                name: "evil",
            }),
        ),
        installs(
            "a-pod-for-a-crd",
            web,
            Expect::NotInstalled(Installed {
                api_version: "v1",
                kind: "Pod",
                name: "evil",
            }),
        ),
        installs("a-crd-that-is-a-number", json!(5), Expect::Either),
        installs("a-crd-that-is-empty", json!({}), Expect::Either),
        installs(
            "a-crd-without-versions",
            own("/spec/versions", json!([])),
            Expect::Either,
        ),
        installs(
            "a-crd-with-versions-of-numbers",
            own("/spec/versions", json!([5])),
            Expect::Either,
        ),
        installs(
            "a-crd-with-another-name",
            own("/metadata/name", json!("x.y")),
            Expect::Either,
        ),
    ]
}

/// Puts the policy of a row into the policy folder, and its binding into the cluster as `polity run` does.
async fn install(stage: &Stage, row: &Describe) {
    let whole = match &row.manifest {
        Value::Object(fields) if fields.keys().all(|word| !word.starts_with('$')) => {
            let mut whole = manifest("retry", &[]);
            for (field, value) in fields {
                whole[field] = value.clone();
            }
            whole
        }
        other => other.clone(),
    };
    let file = format!("{}.wasm", row.name);
    stage
        .fixture
        .put(&file, &described(guests::verbatim_retry(), &whole));
    let manifests = Manifests {
        bindings: vec![with_retry(row.name)],
        ..Manifests::default()
    };
    // What it says, the binding's status says too.
    let _ = stage
        .fixture
        .site
        .try_apply(&manifests, polity::install::Target::Standalone)
        .await;
    let _ = stage.fixture.try_apply(&with_retry(row.name)).await;
}

async fn look(stage: &Stage, installed: Installed) -> Value {
    let namespace = ["ConfigMap", "Pod"]
        .contains(&installed.kind)
        .then_some("default");
    let named: ObjectRef = reference(installed.api_version, installed.kind, namespace, installed.name);
    let mut found = stage.fixture.get(&named).await;
    if let Some(metadata) = found["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    found["spec"].take()
}

/// What a binding says of itself.
async fn says(stage: &Stage, name: &str) -> Vec<Value> {
    let object = stage
        .fixture
        .get(&reference("polity.dev/v1alpha1", "PolicyBinding", None, name))
        .await;
    object["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

/// What is wrong with what came of a row.
async fn came_of(stage: &Stage, row: &Describe, before: Option<Value>) -> Result<(), String> {
    let loaded = stage.loaded(row.name).await;
    if loaded.is_null() {
        return Err("its binding says nothing".into());
    }
    let message = loaded["message"].as_str().unwrap_or_default();
    if message.chars().count() > 4_096 {
        return Err(format!("its binding says {} characters", message.chars().count()));
    }
    match &row.expect {
        Expect::Unloaded(words) => {
            let said = words.iter().any(|word| message.contains(word));
            let unloaded = loaded["status"] == "False" && said;
            unloaded.then_some(()).ok_or_else(|| format!("{loaded}"))
        }
        Expect::Either => Ok(()),
        Expect::NotInstalled(installed) => {
            let after = look(stage, *installed).await;
            let stands = before.unwrap_or_default();
            if after != stands {
                return Err(format!("{stands} became {after}"));
            }
            let told = says(stage, row.name).await.iter().any(|condition| {
                let message = condition["message"].as_str().unwrap_or_default();
                message.contains(installed.name) || message.contains(installed.kind)
            });
            told.then_some(())
                .ok_or_else(|| format!("nobody says why: {loaded}"))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_a_policy_says_of_itself_only_its_own_binding_bears_it() {
    let stage = Stage::with(Vec::new()).await;
    let mut wrong = Vec::new();
    let rows = rows();
    for row in rows.iter().filter(|row| crate::hostile::is_chosen(row.name)) {
        let before = match &row.expect {
            Expect::NotInstalled(installed) => Some(look(&stage, *installed).await),
            _ => None,
        };
        install(&stage, row).await;
        if let Err(why) = came_of(&stage, row, before).await {
            wrong.push(format!("{}: {why}", row.name));
        }
    }
    stage.play().await;
    if stage.passes_of_neighbours() != crate::hostile::undisturbed().await {
        wrong.push("the neighbours passed less".into());
    }
    crate::hostile::is_right(&wrong, rows.len());
}
