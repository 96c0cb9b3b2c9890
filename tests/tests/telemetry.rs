//! The health and the metrics of a running host: `--metrics-listen`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use polity_tests::served::{self, Host};

const PROGRAM: &str = env!("CARGO_BIN_EXE_polity-under-test");

/// The arguments of a host without manifests.
fn keeping(folder: &Path) -> [&OsStr; 2] {
    ["--data".as_ref(), folder.as_os_str()]
}

#[test]
fn a_host_that_runs_is_healthy_and_ready_and_has_metrics() {
    let folder = tempfile::tempdir().expect("a folder");
    // A host that serves its API has a lease.
    let kubeconfig = folder.path().join("kubeconfig");
    let mut arguments: Vec<_> = keeping(&folder.path().join("data")).map(OsStr::to_owned).into();
    arguments.extend(["--listen", "0", "--write-kubeconfig"].map(Into::into));
    arguments.push(kubeconfig.into());
    let host = Host::start(PROGRAM, arguments);
    assert_eq!(host.until("/readyz", 200), "ready\n");
    assert_eq!(host.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(host.get("/elsewhere").0, 404);
    // The first call of the API server is that for the lease, which a host is ready without.
    let lease = "polity_api_calls_total{code=\"ok\",verb=\"lease\"} ";
    let text = loop {
        let (code, text) = host.get("/metrics");
        assert_eq!(code, 200);
        if text.contains(lease) {
            break text;
        }
    };
    let problems = lint(&text);
    assert!(problems.is_empty(), "{problems:#?}\n{text}");
    for line in ["polity_event_loop_up 1", "polity_queue_depth 0"] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing in\n{text}"
        );
    }
}

#[test]
fn clients_that_never_read_take_no_probe_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = Host::start(PROGRAM, keeping(folder.path()));
    host.until("/readyz", 200);
    let pipelined = "GET /metrics HTTP/1.1\r\nhost: polity\r\n\r\n".repeat(200);
    let mut open = Vec::new();
    for number in 0..200 {
        let mut client = host.connect();
        // Those that say nothing at all take places, too.
        if number % 2 == 0 {
            let _ = client.write_all(pipelined.as_bytes());
        }
        open.push(client);
        if number % 20 == 0 {
            assert_eq!(host.get("/healthz"), (200, "ok\n".to_owned()), "{number}");
            assert_eq!(host.get("/readyz").0, 200, "{number}");
        }
    }
}

#[test]
fn a_port_that_is_taken_is_said_before_anything_begins() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let Output { status, stderr, .. } = served::run(PROGRAM, &address, keeping(folder.path()))
        .output()
        .expect("it ends");
    let said = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(2), "{said}");
    let named = format!("--metrics-listen {address} cannot be had");
    assert!(said.contains(&named), "{said}");
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 0, "nothing was begun");
}

/// What a linter of Prometheus finds wrong with a text of the format 0.0.4.
fn lint(text: &str) -> Vec<String> {
    let (mut types, mut problems) = (BTreeMap::new(), Vec::new());
    let mut helped = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap_or((help, ""));
            helped.insert(name.to_owned());
            if words.is_empty() {
                problems.push(format!("{name} has no help"));
            }
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a type");
            if types.insert(name.to_owned(), kind.to_owned()).is_some() {
                problems.push(format!("{name} is there twice"));
            }
        } else {
            problems.extend(wrong_with(line, &types));
        }
    }
    for (name, kind) in &types {
        if !helped.contains(name) {
            problems.push(format!("{name} has no help"));
        }
        if !name.starts_with("polity_") {
            problems.push(format!("{name} says not whose it is"));
        }
        if (kind == "counter") != name.ends_with("_total") {
            problems.push(format!("{name} is a {kind}"));
        }
        if kind == "histogram" && !name.ends_with("_seconds") {
            problems.push(format!("{name} has no unit"));
        }
    }
    problems
}

/// What is wrong with a sample.
fn wrong_with(line: &str, types: &BTreeMap<String, String>) -> Option<String> {
    /// Names of objects are no labels: a tenant makes as many of them as it likes.
    const LABELS: [&str; 9] = [
        "binding",
        "code",
        "kind",
        "le",
        "operation",
        "outcome",
        "reason",
        "state",
        "verb",
    ];
    let (series, value) = line.rsplit_once(' ')?;
    if value.parse::<f64>().is_err() {
        return Some(format!("{line}: no number"));
    }
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let of_histogram = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|end| name.strip_suffix(end));
    if !types.contains_key(of_histogram.unwrap_or(name)) {
        return Some(format!("{line}: no type"));
    }
    let labels = labels
        .trim_end_matches('}')
        .split("\",")
        .filter(|label| !label.is_empty());
    labels
        .map(|label| label.split_once('=').map_or(label, |(name, _)| name))
        .find(|label| !LABELS.contains(label) && *label != "role")
        .map(|label| format!("{line}: the label {label}"))
}

#[test]
fn the_linter_finds_what_is_wrong() {
    for wrong in [
        "polity_passes_total 1\n",
        "# HELP polity_passes Passes.\n# TYPE polity_passes counter\npolity_passes 1\n",
        "# HELP polity_x_total X.\n# TYPE polity_x_total counter\npolity_x_total{object=\"a\"} 1\n",
        "# TYPE polity_x gauge\npolity_x 1\n",
    ] {
        assert!(!lint(wrong).is_empty(), "{wrong}");
    }
}
