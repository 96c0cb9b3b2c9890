//! Alerts and the dashboard, checked by promtool and against the metrics that a host prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use polity_tests::served::Host;
use polity_tests::tools::Tools;
use polity_tests::{examples, guests};
use serde_json::Value;

use crate::deploy::rendered::MONITORING;
use crate::deploy::site::succeeded;

const CASES: &str = include_str!("alerts.yaml");
const OPERATING: &str = include_str!("../../../host/deploy/OPERATING.md");

/// A policy that panics, for an object of its own.
const FAULTY: &str = "
apiVersion: polity.dev/v1alpha1
kind: PolicyBinding
metadata: {name: hostile}
spec:
  governs: {apiVersion: test.polity.example/v1, kind: Thing}
  policies: {lifecycle: {file: hostile.wasm, configuration: {mischief: panic}}}
---
apiVersion: test.polity.example/v1
kind: Thing
metadata: {name: thing, namespace: team-a}
";

/// What Prometheus adds to each series from its target.
const OF_TARGETS: [&str; 3] = ["namespace", "job", "pod"];

/// The alerts, as Prometheus reads them.
fn rules() -> Value {
    let text = fs::read_to_string(format!("{MONITORING}/rules.yaml")).expect("read");
    let mut rules: Value = serde_saphyr::from_str(&text).expect("YAML");
    rules["spec"].take()
}

fn dashboard() -> Value {
    let text = fs::read_to_string(format!("{MONITORING}/dashboard.json")).expect("read");
    serde_json::from_str(&text).expect("JSON")
}

/// All texts under this field, in any depth.
fn texts<'a>(value: &'a Value, field: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(field).and_then(Value::as_str));
            fields.values().for_each(|value| texts(value, field, found));
        }
        Value::Array(items) => items.iter().for_each(|value| texts(value, field, found)),
        _ => {}
    }
}

#[test]
fn every_alert_fires_for_its_reason_and_is_quiet_otherwise() {
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(skip) => return skip.print(),
    };
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("rules.yaml"), rules().to_string()).expect("written");
    fs::write(folder.path().join("alerts.yaml"), CASES).expect("written");
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "alerts.yaml"]] {
        let mut promtool = tools.promtool();
        let run = promtool.args(arguments).current_dir(folder.path()).output();
        let run = run.expect("promtool runs");
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(
            run.status.success(),
            "{said}\n{}",
            String::from_utf8_lossy(&run.stderr)
        );
    }
}

#[test]
fn every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let cases: Value = serde_saphyr::from_str(CASES).expect("YAML");
    let mut fires = BTreeSet::new();
    let mut is_quiet = BTreeSet::new();
    for case in cases["tests"].as_array().expect("tests") {
        for expected in case["alert_rule_test"].as_array().expect("expectations") {
            let name = expected["alertname"].as_str().expect("a name");
            let alerts = expected["exp_alerts"].as_array().expect("alerts");
            if alerts.is_empty() {
                is_quiet.insert(name)
            } else {
                fires.insert(name)
            };
        }
    }
    let rules = rules();
    let mut alerts = Vec::new();
    texts(&rules, "alert", &mut alerts);
    let alerts: BTreeSet<&str> = alerts.into_iter().collect();
    assert!(alerts.len() > 5, "{alerts:?}");
    assert_eq!(fires, alerts);
    assert_eq!(is_quiet, alerts);
}

#[test]
fn every_alert_leads_to_a_heading_that_says_what_to_do() {
    let headings: BTreeSet<String> = OPERATING
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(str::to_lowercase)
        .collect();
    let rules = rules();
    let (mut alerts, mut links) = (Vec::new(), Vec::new());
    texts(&rules, "alert", &mut alerts);
    texts(&rules, "runbook_url", &mut links);
    let named = links.iter().map(|link| {
        let heading = link.strip_prefix("https://polity.dev/polity/host/deploy/OPERATING.md#");
        heading.unwrap_or_else(|| panic!("{link}")).to_owned()
    });
    let of_alerts: BTreeSet<String> = alerts.iter().map(|alert| alert.to_lowercase()).collect();
    assert_eq!(named.collect::<BTreeSet<_>>(), of_alerts);
    assert_eq!(headings, of_alerts);
}

/// The metrics that an expression names, with the labels that it selects by.
fn named(expression: &str) -> Vec<(String, Vec<String>)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = expression.match_indices("polity_").map(|(at, _)| at);
    starts
        .map(|at| {
            let rest = &expression[at..];
            let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
            let selector = rest[end..]
                .strip_prefix('{')
                .and_then(|rest| rest.split_once('}'));
            let labels = selector.map_or(Vec::new(), |(selector, _)| {
                let labels = selector
                    .split(',')
                    .filter_map(|matcher| matcher.split(['=', '!']).next());
                labels.map(str::to_owned).collect()
            });
            (rest[..end].to_owned(), labels)
        })
        .collect()
}

/// The manifests of a host in which everything happens that is counted.
fn eventful() -> tempfile::TempDir {
    let folder = examples::copy("capv-machine");
    fs::write(folder.path().join("hostile.yaml"), FAULTY).expect("written");
    fs::write(folder.path().join("hostile.wasm"), guests::hostile()).expect("written");
    folder
}

/// The names of the series, with the labels that they have.
fn series(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut series: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).expect("a name");
        let labels = series.entry(line[..end].to_owned()).or_default();
        let selector = line[end..]
            .strip_prefix('{')
            .and_then(|rest| rest.rsplit_once('}'));
        let matchers = selector.into_iter().flat_map(|(labels, _)| labels.split("\","));
        labels.extend(
            matchers
                .filter_map(|one| one.split_once('='))
                .map(|(name, _)| name.to_owned()),
        );
    }
    series
}

/// A series that a host has as soon as anything is counted in it: the last ones to come in the example.
const LATE: [&str; 3] = [
    "polity_faults_total{",
    "polity_retries_total{",
    "polity_cloud_calls_total{",
];

#[test]
fn alerts_and_the_dashboard_name_what_a_host_prints_and_promtool_has_no_complaint() {
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(skip) => return skip.print(),
    };
    let folder = eventful();
    let host = Host::start(env!("CARGO_BIN_EXE_polity-under-test"), [folder.path()]);
    let text = loop {
        let text = host.metrics();
        if LATE.iter().all(|late| text.contains(late)) {
            break text;
        }
        std::thread::yield_now();
    };
    check_metrics(&tools, &text);

    let printed = series(&text);
    let (rules, dashboard) = (rules(), dashboard());
    let mut expressions = Vec::new();
    texts(&rules, "expr", &mut expressions);
    texts(&dashboard, "expr", &mut expressions);
    texts(&dashboard, "definition", &mut expressions);
    assert!(expressions.len() > 40, "{}", expressions.len());
    let mut used = BTreeSet::new();
    for expression in expressions {
        let named = named(expression);
        assert!(!named.is_empty(), "{expression}");
        for (name, labels) in named {
            let Some(has) = printed.get(&name) else {
                panic!("{expression}: a host has no {name}: {:?}", printed.keys());
            };
            for label in labels {
                let known = has.contains(&label) || OF_TARGETS.contains(&label.as_str());
                assert!(known, "{expression}: {name} has no label {label}");
            }
            used.insert(name);
        }
    }
    let is_shown =
        |name: &&String| used.contains(*name) || name.ends_with("_sum") || name.ends_with("_count");
    let hidden: Vec<&String> = printed.keys().filter(|name| !is_shown(name)).collect();
    assert!(hidden.is_empty(), "nobody sees {hidden:?}");
}

fn check_metrics(tools: &Tools, text: &str) {
    let mut promtool = tools.promtool();
    let promtool = promtool.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut check = promtool
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    let mut input = check.stdin.take().expect("its input");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    let checked = check.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    succeeded(checked);
    assert_eq!(said, "", "complaints");
}

#[test]
fn panels_of_the_dashboard_have_places_of_their_own_and_say_what_they_show() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    let mut places = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}");
        let at = &panel["gridPos"];
        assert!(places.insert((at["x"].as_u64(), at["y"].as_u64())), "{panel}");
        if panel["type"] != "row" {
            assert!(panel["description"].is_string() && panel["fieldConfig"]["defaults"]["unit"].is_string());
        }
    }
    let uses = Path::new(MONITORING).join("kustomization.yaml");
    assert!(fs::read_to_string(uses).expect("read").contains("dashboard.json"));
}
