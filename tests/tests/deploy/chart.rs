//! The Helm chart as text: the values that it accepts, and that it renders the same objects as the kustomize base.

use std::collections::BTreeMap;
use std::fs;

use polity_tests::kubernetes::Assets;
use polity_tests::tools::Tools;
use serde_json::Value;

use crate::deploy::rendered::{CHART, WATCHED, chart, kustomized, objects, only, template};
use crate::deploy::site::succeeded;

/// An object without its names and labels, as text.
fn bare(mut object: Value) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let named = ["metadata", "matchLabels", "roleRef", "policyName"];
                fields.retain(|name, _| !named.contains(&name.as_str()));
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut object);
    if object["kind"] == "Service"
        && let Some(Value::Object(spec)) = object.get_mut("spec")
    {
        spec.remove("selector");
    }
    object.to_string()
}

#[test]
fn the_chart_and_the_kustomize_base_say_the_same_but_for_names_and_labels() {
    let (assets, tools) = match Assets::find().and_then(|assets| Ok((assets, Tools::find()?))) {
        Ok(found) => found,
        Err(skip) => return skip.print(),
    };
    let mut of_base = kustomized(&assets);
    // Helm makes no namespace: `--create-namespace` does.
    of_base.retain(|object| object["kind"] != "Namespace");
    let of_chart = chart(&tools, "polity", "polity-system", &[WATCHED]);
    let sorted = |objects: Vec<Value>| {
        let texts = objects
            .into_iter()
            .map(|object| (object["kind"].to_string(), bare(object)));
        texts.collect::<BTreeMap<String, String>>()
    };
    let dashboard = only(&of_chart, "ConfigMap")["metadata"]["labels"].clone();
    assert_eq!(
        dashboard["grafana_dashboard"],
        only(&of_base, "ConfigMap")["metadata"]["labels"]["grafana_dashboard"]
    );
    assert_eq!(of_chart.len(), of_base.len());
    let (of_chart, of_base) = (sorted(of_chart), sorted(of_base));
    assert!(of_chart.keys().eq(of_base.keys()), "{:?}", of_chart.keys());
    assert_eq!(of_chart.len(), 14, "one object of each kind");
    for (kind, said) in &of_chart {
        assert!(*said == of_base[kind], "{kind}:\n{said}\n{}", of_base[kind]);
    }
}

#[test]
fn who_may_use_the_identity_of_the_host_is_a_value_of_the_chart() {
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(skip) => return skip.print(),
    };
    let subject = |field: &str| format!("connectionAdmission.hostIdentity[0].{field}");
    let values = [
        format!("{}=Group", subject("kind")),
        format!("{}=platform", subject("name")),
    ];
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let objects = chart(&tools, "polity", "polity-system", &values);
    let named = |kind: &str| {
        let mut objects = objects.iter();
        let is_it = |object: &&Value| {
            let name = object["metadata"]["name"].as_str();
            object["kind"] == kind && name.is_some_and(|name| name.ends_with(":host-identity"))
        };
        objects.find(is_it).expect("it is there").clone()
    };
    let (role, bound) = (named("ClusterRole"), named("ClusterRoleBinding"));
    assert_eq!(role["rules"][0]["resources"][0], "hostidentities");
    assert_eq!(bound["roleRef"]["name"], role["metadata"]["name"]);
    assert_eq!(bound["subjects"][0]["name"], "platform");
}

#[test]
fn a_wrong_value_is_refused_with_its_path() {
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(skip) => return skip.print(),
    };
    let cases: [(&[&str], &[&str]); 8] = [
        (
            &["replica=2"],
            &["at '': additional properties 'replica' not allowed"],
        ),
        (
            &["lease.nam=a"],
            &["at '/lease': additional properties 'nam' not allowed"],
        ),
        (&["replicas=two"], &["at '/replicas': got string, want integer"]),
        (
            &["namespaces={red,Red}"],
            &["at '/namespaces/1': 'Red' does not match pattern"],
        ),
        (
            &["policies.configMaps={a}", "policies.volumeClaim=b"],
            &["at '/policies': maxProperties: got 2, want 1"],
        ),
        (
            &["policies.image.pullPolicy=Always"],
            &["at '/policies/image': missing property 'reference'"],
        ),
        (
            &["monitoring.rules.enabled=yes"],
            &["at '/monitoring/rules/enabled': got string, want boolean"],
        ),
        // Two mistakes are said at once.
        (
            &["image.pullPolicy=Sometimes", "resources.limits.memori=1Gi"],
            &[
                "at '/image/pullPolicy': value must be one of",
                "at '/resources/limits': additional properties 'memori'",
            ],
        ),
    ];
    for (settings, wanted) in cases {
        let refused = template(&tools, "red", "team-red", settings);
        assert!(!refused.status.success(), "{settings:?} is taken");
        let said = String::from_utf8_lossy(&refused.stderr);
        for wanted in wanted {
            assert!(
                said.contains(wanted),
                "{settings:?}: {wanted} is not said in\n{said}"
            );
        }
    }
}

/// Every value of a schema, by its path: each is described, and an object takes nothing else.
fn closed(schema: &Value, path: &str) {
    assert!(
        schema["description"].is_string() || path.ends_with("{}"),
        "{path} is not described"
    );
    if schema["type"] == "object" {
        let closed = schema["additionalProperties"] == false;
        let typed = schema["additionalProperties"]["type"] != Value::Null;
        assert!(
            closed || (typed && schema.get("properties").is_none()),
            "{path} is open"
        );
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        closed(property, &format!("{path}/{name}"));
    }
    if let Some(items) = schema.get("items") {
        closed(items, &format!("{path}[]"));
    }
}

/// Every value has a place in the schema. (What is absent from `values.yaml` has no default.)
fn described(values: &Value, schema: &Value, path: &str) {
    for (name, value) in values.as_object().into_iter().flatten() {
        let at = format!("{path}/{name}");
        let is_map = schema["additionalProperties"].is_object();
        let property = schema["properties"].get(name);
        assert!(is_map || property.is_some(), "{at} is not in the schema");
        if let Some(property) = property {
            described(value, property, &at);
        }
    }
}

#[test]
fn the_schema_describes_every_value_and_takes_no_other() {
    let read = |file: &str| fs::read_to_string(format!("{CHART}/{file}")).expect("read");
    let schema: Value = serde_json::from_str(&read("values.schema.json")).expect("JSON");
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).expect("YAML");
    closed(&schema, "");
    described(&values, &schema, "");
    let of = |value: &Value| {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    let mut properties = of(&schema["properties"]);
    // Helm's own, for charts within charts.
    properties.retain(|name| name != "global");
    let mut names = of(&values);
    properties.sort();
    names.sort();
    assert_eq!(names, properties, "each value has a default");
}

#[test]
fn the_chart_has_the_version_of_the_host() {
    let text = fs::read_to_string(format!("{CHART}/Chart.yaml")).expect("read");
    let chart: Value = serde_saphyr::from_str(&text).expect("YAML");
    for version in ["version", "appVersion"] {
        assert_eq!(chart[version], env!("CARGO_PKG_VERSION"));
    }
}

/// The kubelet makes a volume for root, and a host refuses a folder of somebody else.
#[test]
fn a_host_keeps_its_data_and_its_code_in_folders_that_it_makes_itself() {
    let (assets, tools) = match Assets::find().and_then(|assets| Ok((assets, Tools::find()?))) {
        Ok(found) => found,
        Err(skip) => return skip.print(),
    };
    let claimed = chart(&tools, "polity", "red", &["dataVolumeClaim=recordings"]);
    for objects in [chart(&tools, "polity", "red", &[]), kustomized(&assets), claimed] {
        let container = &only(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        let arguments = container["args"].as_array().expect("arguments").iter();
        let data = arguments.filter_map(|argument| argument.as_str()?.strip_prefix("--data="));
        let variables = container["env"].as_array().expect("variables").iter();
        let code = variables.filter(|variable| variable["name"] == "POLITY_COMPILED");
        let code = code.filter_map(|variable| variable["value"].as_str());
        let folders: Vec<&str> = data.chain(code).collect();
        assert_eq!(folders.len(), 2, "{container}");
        for folder in folders {
            let (volume, own) = folder.rsplit_once('/').expect("a path");
            assert!(
                !own.is_empty() && mounts.iter().any(|mount| mount["mountPath"] == volume),
                "{folder}"
            );
        }
    }
}

/// Where the variable of this name comes from in the pod of a host.
fn field(objects: &[Value], name: &str) -> Value {
    let container = &only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let mut variables = container["env"].as_array().expect("variables").iter();
    let variable = variables.find(|variable| variable["name"] == name);
    variable.expect("it is there")["valueFrom"]["fieldRef"]["fieldPath"].clone()
}

#[test]
fn a_host_is_told_the_addresses_of_its_node() {
    let (assets, tools) = match Assets::find().and_then(|assets| Ok((assets, Tools::find()?))) {
        Ok(found) => found,
        Err(skip) => return skip.print(),
    };
    for objects in [chart(&tools, "polity", "red", &[]), kustomized(&assets)] {
        assert_eq!(field(&objects, "POLITY_NODE_ADDRESSES"), "status.hostIPs");
    }
    // An older API server refuses a pod with a field that it does not know.
    let home = tempfile::tempdir().expect("a folder");
    let mut helm = tools.helm(home.path(), None);
    helm.args(["template", "polity", CHART, "--kube-version", "1.28.0"]);
    let older = objects(&succeeded(helm.output().expect("helm runs")));
    assert_eq!(field(&older, "POLITY_NODE_ADDRESSES"), "status.hostIP");
}

#[test]
fn a_setting_reaches_the_host() {
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(skip) => return skip.print(),
    };
    let settings = [
        "namespaces={red-dev,red-prod}",
        "bindingSelector=team in (red\\,blue)",
        "lease.namespace=leases",
        "lease.name=reds",
        "logLevel=info",
        "replicas=1",
        "policies.volumeClaim=policies",
        "networkPolicy.enabled=false",
    ];
    let objects = chart(&tools, "red", "team-red", &settings);
    let pod = &only(&objects, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments = container["args"].as_array().expect("arguments");
    for wanted in [
        "--namespace=red-dev",
        "--namespace=red-prod",
        "--binding-selector=team in (red,blue)",
        "--lease=leases/reds",
    ] {
        assert!(
            arguments.iter().any(|argument| argument == wanted),
            "{wanted} in {arguments:?}"
        );
    }
    let environment = container["env"].as_array().expect("variables");
    let log = environment
        .iter()
        .find(|variable| variable["name"] == "POLITY_LOG");
    assert_eq!(log.expect("the levels")["value"], "info");
    assert_eq!(
        pod["volumes"][0]["persistentVolumeClaim"]["claimName"],
        "policies"
    );
    let role = only(&objects, "Role");
    assert_eq!(role["metadata"]["namespace"], "leases");
    assert_eq!(role["rules"][1]["resourceNames"][0], "reds");
    // One alone could not leave its node under a budget.
    let kinds: Vec<&Value> = objects.iter().map(|object| &object["kind"]).collect();
    assert!(
        !kinds
            .iter()
            .any(|kind| *kind == "PodDisruptionBudget" || *kind == "NetworkPolicy")
    );
}
