//! Traces of passes, as an OpenTelemetry collector receives them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use polity_tests::examples;
use prost::Message as _;
use tokio::net::TcpListener;

/// Runs the example of ten machines with its traces sent to this address.
async fn run(endpoint: String) -> Output {
    let run = tokio::task::spawn_blocking(move || {
        let (folder, recording) = (
            examples::copy("capv-machine"),
            tempfile::tempdir().expect("a folder"),
        );
        Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
            .args([
                "run",
                "--until-settled",
                "--speed",
                "60",
                "--otlp-endpoint",
                &endpoint,
                "--record",
            ])
            .arg(recording.path())
            .arg(folder.path())
            .output()
            .expect("it runs")
    });
    run.await.expect("it ends")
}

/// A collector, and the spans that it received. It answers with this status.
async fn collector(status: u16) -> (String, Arc<Mutex<Vec<Span>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let spans = Arc::<Mutex<Vec<Span>>>::default();
    let received = spans.clone();
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.expect("a connection");
            let received = received.clone();
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let received = received.clone();
                async move {
                    assert_eq!(request.uri().path(), "/v1/traces");
                    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
                    let body = request.into_body().collect().await.expect("a body").to_bytes();
                    let export = ExportTraceServiceRequest::decode(body).expect("an export of traces");
                    let of_resource = export.resource_spans.into_iter().flat_map(|of| of.scope_spans);
                    let new = of_resource.flat_map(|of| of.spans);
                    received.lock().expect("no panic").extend(new);
                    let answer = Response::builder()
                        .status(status)
                        .body(Full::new(bytes::Bytes::new()));
                    Ok::<_, Infallible>(answer.expect("an answer"))
                }
            });
            let io = hyper_util::rt::TokioIo::new(connection);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        }
    });
    (address, spans)
}

fn text(span: &Span, attribute: &str) -> String {
    let found = span.attributes.iter().find(|pair| pair.key == attribute);
    let value = found.and_then(|pair| pair.value.as_ref()?.value.as_ref());
    match value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{attribute} of {} is {other:?}", span.name),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pass_is_a_span_with_its_causes_and_a_child_for_each_step_and_call() {
    let (endpoint, spans) = collector(200).await;
    let output = run(endpoint).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("traces"), "{said}");
    let spans = std::mem::take(&mut *spans.lock().expect("no panic"));
    let mut children = BTreeMap::<Vec<u8>, Vec<&Span>>::new();
    for span in spans.iter().filter(|span| !span.parent_span_id.is_empty()) {
        children
            .entry(span.parent_span_id.clone())
            .or_default()
            .push(span);
    }
    let mut passes: Vec<&Span> = spans
        .iter()
        .filter(|span| span.parent_span_id.is_empty())
        .collect();
    passes.retain(|span| text(span, "k8s.object.name") == "machine-01");
    passes.sort_by_key(|span| span.start_time_unix_nano);
    assert!(passes.len() >= 4, "{passes:#?}");
    let notes: Vec<String> = passes.iter().map(|span| text(span, "polity.notes")).collect();
    for edge in ["CAPV-23", "CAPV-29"] {
        assert!(
            notes.iter().any(|notes| notes.contains(edge)),
            "{edge} is missing: {notes:?}"
        );
    }
    assert_eq!(passes[0].name, "pass Machine");
    assert_eq!(text(passes[0], "k8s.namespace.name"), "team-a");
    assert!(!text(passes[0], "polity.causes").is_empty());
    for pass in &passes {
        let children = &children[&pass.span_id];
        let names: Vec<&str> = children.iter().map(|span| &*span.name).collect();
        assert!(names.contains(&"step lifecycle"), "{names:?}");
        for child in children {
            assert_eq!(child.trace_id, pass.trace_id);
            assert!(
                child.start_time_unix_nano >= pass.start_time_unix_nano,
                "{child:?} of {pass:?}"
            );
            assert!(
                child.end_time_unix_nano <= pass.end_time_unix_nano,
                "{child:?} of {pass:?}"
            );
        }
    }
    let clones = spans.iter().filter(|span| span.name == "cloud vm.clone");
    assert!(clones.count() >= 10);
    let failed = spans
        .iter()
        .filter(|span| span.status.as_ref().is_some_and(|status| status.code == 2));
    assert!(
        failed.count() > 0,
        "the lost answer of the clone is the error of a span"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_down_or_refuses_is_reported_once_and_holds_up_nothing() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let down = format!("http://{}", free.local_addr().expect("an address"));
    drop(free);
    let (refuses, _) = collector(503).await;
    for endpoint in [down, refuses] {
        let output = run(endpoint.clone()).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let told = format!("polity: traces cannot be sent to {endpoint}/v1/traces: ");
        assert_eq!(said.matches(&told).count(), 1, "{said}");
        assert!(said.contains("everything is settled"), "{said}");
    }
}

#[test]
fn an_address_that_is_none_is_refused_and_so_is_a_clock_that_jumps() {
    for (options, why) in [
        (
            &["--otlp-endpoint", "collector"][..],
            "traces cannot be sent to collector",
        ),
        (
            &[
                "--otlp-endpoint",
                "http://localhost:4318",
                "--speed",
                "max",
                "--until-settled",
            ],
            "--speed max cannot be used with --otlp-endpoint",
        ),
    ] {
        let folder = examples::copy("capv-machine");
        let output = Command::new(env!("CARGO_BIN_EXE_polity-under-test"))
            .arg("run")
            .args(options)
            .arg(folder.path())
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
