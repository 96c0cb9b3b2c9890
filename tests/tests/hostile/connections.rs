//! Drivers whose manifests have errors, and connections whose status somebody invented: such a connection keeps the bindings that
//! name it from running, or not even these, and nothing else.

use std::time::Duration;

use polity::manifests::Manifests;
use polity_core::contract::ObjectRef;
use polity_tests::guests;
use polity_tests::host_fixture::reference;
use serde_json::{Map, Value, json};

use crate::hostile::stage::{PUPPETS, Stage, binding, crd};

/// Fields of a driver's manifest, and words of what a binding says of a connection of this driver; none if it goes well.
struct Row {
    name: &'static str,
    fields: Value,
    says: &'static str,
}

/// As many as other replicas whose words a host takes, and itself.
const REPLICAS: usize = 16;

fn rows() -> Vec<Row> {
    let row = |name, fields, says| Row { name, fields, says };
    let schema = |name, schema, says| Row {
        name,
        fields: json!({"configSchema": schema}),
        says,
    };
    let twice = |below: Value| json!({"anyOf": [below.clone(), below]});
    let alternatives = std::iter::repeat_n(json!({"const": 1}), 900).chain([json!({})]);
    let costly = json!({"properties": {"steps": {"items": {"anyOf": alternatives.collect::<Value>()}}}});
    let of_service = |service: &str| json!({"login": "aws-sigv4", "endpoints": {"api": {"service": service}, "appliance": {}}});
    let refusing = |path: &str, code: &str| {
        let refusals = json!({"codeAt": path, "codes": {"5xx": [code]}});
        json!({"login": "aws-sigv4", "endpoints": {"api": {"service": "ec2", "refusals": refusals}, "appliance": {}}})
    };
    vec![
        row(
            "a-refusal-after-an-effect",
            refusing("Response.Errors.Error.Code", "InternalError"),
            "\"InternalError\" may come after a change that happened",
        ),
        row(
            "a-refusal-in-a-message",
            refusing("Response.Errors.Error.Message", "RequestLimitExceeded"),
            "AWS writes its codes at Response.Errors.Error.Code",
        ),
        schema(
            "a-deep-schema",
            (0..70).fold(json!({}), |below, _| json!({"not": below})),
            "schemas nest at most 64 deep",
        ),
        schema(
            "a-wide-schema",
            (0..8).fold(json!({"required": ["z"]}), |below, _| twice(below)),
            "(document): must match",
        ),
        schema(
            "a-schema-of-a-large-pattern",
            json!({"properties": {"steps": {"pattern": "(\\pL{1000}){1000}"}}}),
            "configSchema.properties[steps].pattern: Invalid value",
        ),
        schema(
            "a-schema-that-tracks-back",
            json!({"pattern": "^(?=a)(a|aa)+$"}),
            "must be a valid regular expression",
        ),
        schema(
            "a-schema-of-itself",
            json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}),
            "references are not followed: a schema inlines",
        ),
        schema(
            "a-long-schema",
            json!({"xBytes": 10 << 20}),
            "bytes; the limit is 2097152",
        ),
        schema(
            "a-costly-schema",
            costly,
            "is too much to check: the schema takes more than",
        ),
        row(
            "a-server-for-a-service",
            of_service("localhost:9/"),
            "a service has at most 40 small letters",
        ),
        row(
            "a-user-for-a-service",
            of_service("ec2@evil.example"),
            "a service has at most 40 small letters",
        ),
        row(
            "a-service-without-end",
            of_service(&"x".repeat(10_000)),
            "a service has at most 40 small letters",
        ),
        row(
            "a-service-that-hands-out-credentials",
            of_service("sts"),
            "may name ec2",
        ),
        row(
            "a-service-of-openstack-that-hands-out-credentials",
            json!({"login": "keystone", "endpoints": {"api": {"service": "identity"}, "appliance": {}}}),
            "may name compute, network, image",
        ),
        row("a-name-without-end", json!({"name": "x".repeat(10_000)}), "name"),
        row("invented-replicas", json!({}), ""),
    ]
}

fn connection(name: &str) -> ObjectRef {
    reference("polity.dev/v1alpha1", "CloudConnection", None, name)
}

/// Puts the driver of a row into the folder, and a connection and a binding of Waiters that name it into the cluster.
async fn install(stage: &Stage, row: &Row) {
    let file = format!("{}.wasm", row.name);
    stage
        .fixture
        .put(&file, &guests::hostile_driver_with(&row.fields));
    let connection = json!({
        "apiVersion": "polity.dev/v1alpha1", "kind": "CloudConnection", "metadata": {"name": row.name},
        "spec": {
            "driver": {"file": file, "configuration": {"steps": vec!["panic"; 900]}},
            "endpoints": {"api": "http://127.0.0.1:9"},
            "credentials": {"namespace": "default", "name": "none"},
        },
    });
    let governs = json!({"apiVersion": PUPPETS, "kind": "Waiter", "namespace": row.name});
    let policies = json!({"lifecycle": {"file": "puppets.wasm"}, "retry": {"file": "retry.wasm"}});
    let mut binding = binding(row.name, governs, policies, json!([]));
    binding["spec"]["cloud"] = json!({"name": row.name});
    let manifests = Manifests {
        bindings: vec![binding],
        objects: vec![connection],
        ..Manifests::default()
    };
    // What it says, the binding's status says too.
    let target = polity::install::Target::Standalone;
    let applied = stage.fixture.site.try_apply(&manifests, target).await;
    applied.expect("the manifests are applied");
}

/// A thousand replicas, each of which asked of late and has much to say.
async fn invent(stage: &Stage, name: &str) {
    let now = polity_kube_rules::time::rfc3339(stage.fixture.site.clock.now().unix.0);
    let entry = json!({"seen": now, "asked": now, "failure": "x".repeat(1_000)});
    let replicas: Map<String, Value> = (0..1_000)
        .map(|n| (format!("invented-{n:05}"), entry.clone()))
        .collect();
    stage
        .fixture
        .write_status(&connection(name), &json!({"replicas": replicas}))
        .await;
}

/// How many of the replicas are left within five minutes, in which each replica writes its entry anew.
async fn replicas(stage: &Stage) -> usize {
    let mut left = 0;
    for _ in 0..600 {
        let object = stage.fixture.get(&connection("invented-replicas")).await;
        left = object["status"]["replicas"].as_object().map_or(0, Map::len);
        if left <= REPLICAS {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    left
}

/// What is wrong with what came of a row.
async fn came_of(stage: &Stage, row: &Row) -> Result<(), String> {
    let loaded = stage.loaded(row.name).await;
    let message = loaded["message"].as_str().unwrap_or_default();
    let expected = if row.says.is_empty() { "True" } else { "False" };
    if loaded["status"] != expected || !message.contains(row.says) || message.chars().count() > 1_500 {
        return Err(loaded.to_string());
    }
    let own = stage.said_loaded(&connection(row.name)).await;
    let says = own["message"].as_str().unwrap_or_default().contains(row.says);
    if own["status"] != expected || !says {
        return Err(format!("the connection says {own}"));
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn whatever_a_driver_says_of_itself_only_its_own_connections_bear_it() {
    let stage = Stage::with(Vec::new()).await;
    stage.fixture.apply(&crd("Waiter")).await;
    let mut wrong = Vec::new();
    let rows = rows();
    for row in rows.iter().filter(|row| crate::hostile::is_chosen(row.name)) {
        install(&stage, row).await;
        if let Err(why) = came_of(&stage, row).await {
            wrong.push(format!("{}: {why}", row.name));
        }
        if row.name.starts_with("invented") {
            invent(&stage, row.name).await;
        }
    }
    stage.play().await;
    if crate::hostile::is_chosen("invented-replicas") && replicas(&stage).await > REPLICAS {
        wrong.push("the invented replicas are left".into());
    }
    if stage.passes_of_neighbours() != crate::hostile::undisturbed().await {
        wrong.push("the neighbours passed less".into());
    }
    crate::hostile::is_right(&wrong, rows.len());
}
