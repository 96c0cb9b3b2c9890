//! Traces of passes over OTLP: a span for each pass with its causes, and a child for each step and each call.
//!
//! Spans are made when a pass has ended, from its recording. The exporter sends them in batches from a thread of
//! its own. If its queue is full, spans are dropped: a collector that is slow or down never slows down a host. Of
//! a second, a bounded number of passes is traced, so that neither does a host that has much to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::trace::{
    Span as _, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use polity_core::key::PassId;
use polity_core::record::{Outcome, PassRecord};
use polity_core::time::Unix;

use crate::display::then;
use crate::observer::{Called, Target};
use crate::progress::{Format, say};

/// The longest time of one export.
const LONGEST: Duration = Duration::from_secs(10);
/// The most bytes of a collector's answer that are read.
const ANSWER: usize = 64 << 10;
/// The most calls of one pass that become spans.
const CALLS: usize = 512;
/// The most passes whose calls are kept. A call that comes back after its pass has ended is kept until then too.
const KEPT: usize = 10_000;
/// The most passes that are traced of those that end in one second. Each has some spans of some microseconds, and
/// a busy host makes thousands of passes a second (`benches/host.rs` measures what is left of the cost).
const PASSES: u32 = 100;

/// Makes spans of passes.
pub struct Traces {
    tracer: SdkTracer,
    /// The calls of passes in flight.
    calls: BTreeMap<PassId, Vec<Called>>,
    /// The second in which the last pass ended, and how many of it are traced.
    second: (u64, u32),
    /// The passes since the last one that was traced.
    untraced: u64,
}

impl Traces {
    /// Sends traces to a collector: `http://localhost:4318`. The path `/v1/traces` is added.
    ///
    /// # Errors
    /// The address is none.
    pub fn to(endpoint: &str, format: Format) -> Result<(Self, Export)> {
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let cannot = || format!("traces cannot be sent to {endpoint}");
        let uri: http::Uri = url.parse().with_context(cannot)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            bail!("{}: http://HOST:PORT or https://HOST:PORT is needed", cannot());
        }
        let connector = HttpsConnectorBuilder::new().with_tls_config(polity_http::roots::client_config());
        let connector = connector.https_or_http().enable_http1().build();
        let collector = Collector {
            runtime: tokio::runtime::Handle::current(),
            client: Client::builder(TokioExecutor::new()).build(connector),
            url: url.clone().into(),
            is_down: Arc::default(),
            format,
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&url)
            .with_timeout(LONGEST)
            .build()
            .with_context(cannot)?;
        let resource = Resource::builder()
            .with_service_name("polity")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        let traces = Traces {
            tracer: provider.tracer("polity"),
            calls: BTreeMap::new(),
            second: (0, 0),
            untraced: 0,
        };
        Ok((traces, Export(provider)))
    }

    /// Takes in a call that ended.
    pub(super) fn called(&mut self, call: &Called) {
        if let Some(pass) = call.pass {
            let calls = self.calls.entry(pass).or_default();
            if calls.len() < CALLS {
                calls.push(call.clone());
            }
        }
        if self.calls.len() > KEPT {
            self.calls.pop_first();
        }
    }

    /// Whether a pass that ends now is one of those that are traced.
    fn has_room(&mut self, now: Unix) -> bool {
        let second = now.0 / 1_000;
        if self.second.0 != second {
            self.second = (second, 0);
        }
        self.second.1 += 1;
        self.second.1 <= PASSES
    }

    /// Makes the spans of a pass that ended.
    pub(super) fn passed(&mut self, record: &PassRecord) {
        let calls = self.calls.remove(&record.pass).unwrap_or_default();
        if !self.has_room(record.ended.unix) {
            self.untraced += 1;
            return;
        }
        let name = format!("pass {}", record.kind.kind);
        let span = self.tracer.span_builder(name);
        let span = span
            .with_start_time(time(record.started.unix))
            .with_attributes(attributes(record, std::mem::take(&mut self.untraced)));
        let mut span = span.start_with_context(&self.tracer, &Context::new());
        if let Some(why) = failure(record) {
            span.set_status(Status::error(why));
        }
        let pass = Context::new().with_span(span);
        for call in calls {
            self.call(&call, &pass);
        }
        pass.span().end_with_timestamp(time(record.ended.unix));
    }

    fn call(&self, call: &Called, pass: &Context) {
        let (kind, name) = match &call.target {
            Target::Step(role) => (SpanKind::Internal, format!("step {}", role.as_str())),
            Target::Retry => (SpanKind::Internal, "retry".to_owned()),
            Target::Draft => (SpanKind::Internal, "draft".to_owned()),
            Target::Cloud(operation) => (SpanKind::Client, format!("cloud {operation}")),
            Target::Api(verb) => (SpanKind::Client, format!("api {verb}")),
        };
        let span = self.tracer.span_builder(name).with_kind(kind);
        let mut span = span
            .with_start_time(time(call.began))
            .start_with_context(&self.tracer, pass);
        if let Some(code) = call.failure {
            span.set_status(Status::error(code.as_str()));
        }
        span.end_with_timestamp(time(call.began + call.took));
    }
}

/// The export of spans, which ends after the host.
pub struct Export(SdkTracerProvider);

impl Export {
    /// Sends what was not sent yet.
    pub async fn end(self) {
        // The exporter's requests are made by this runtime, so its threads must not wait for them.
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(LONGEST));
        if let Ok(Err(e)) = ended.await {
            tracing::debug!(%e, "the last traces are not sent");
        }
    }
}

/// What a span says of its pass, after so many passes that are not traced.
fn attributes(record: &PassRecord, untraced: u64) -> Vec<KeyValue> {
    let causes: Vec<String> = record.causes.iter().map(ToString::to_string).collect();
    let mut all = vec![
        KeyValue::new("polity.binding", record.key.binding.to_string()),
        KeyValue::new("k8s.object.kind", record.kind.kind.clone()),
        KeyValue::new("k8s.object.name", record.key.name.to_string()),
        KeyValue::new("k8s.object.uid", record.uid.clone()),
        KeyValue::new("polity.pass", i64::try_from(record.pass.0).unwrap_or(i64::MAX)),
        KeyValue::new("polity.untraced", i64::try_from(untraced).unwrap_or(i64::MAX)),
        KeyValue::new("polity.causes", causes.join(", ")),
        KeyValue::new("polity.attempt", i64::from(record.attempt)),
        KeyValue::new("polity.notes", record.notes().collect::<Vec<_>>().join(" ")),
        KeyValue::new("polity.then", then(record).to_string()),
    ];
    if let Some(namespace) = &record.key.namespace {
        all.push(KeyValue::new("k8s.namespace.name", namespace.to_string()));
    }
    all
}

/// Why a pass did not end as it should; `None` if it did.
fn failure(record: &PassRecord) -> Option<String> {
    let is_fine = record.outcome.is_concluded() || matches!(record.outcome, Outcome::Discarded(_));
    (!is_fine).then(|| then(record).to_string())
}

fn time(unix: Unix) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(unix.0)
}

/// The collector, reached through the host's own runtime.
#[derive(Clone, Debug)]
struct Collector {
    runtime: tokio::runtime::Handle,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: Arc<str>,
    /// Whether the last export failed, so that it is reported once.
    is_down: Arc<AtomicBool>,
    format: Format,
}

impl Collector {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        // The exporter's thread has no runtime, so the request is made on the host's.
        let sent = self.runtime.spawn(async move {
            let answer = client.request(request.map(Full::new)).await?;
            let (head, body) = answer.into_parts();
            let body = http_body_util::Limited::new(body, ANSWER)
                .collect()
                .await?
                .to_bytes();
            Ok::<_, HttpError>(Response::from_parts(head, body))
        });
        let answer = sent.await??;
        if answer.status().is_success() {
            Ok(answer)
        } else {
            Err(format!("it answers {}", answer.status()).into())
        }
    }

    fn tell(&self, wrong: Option<&HttpError>) {
        let was_down = self.is_down.swap(wrong.is_some(), Ordering::Relaxed);
        match (was_down, wrong) {
            (false, Some(why)) => say(
                self.format,
                &format!(
                    "traces cannot be sent to {}: {why}; the host goes on without them",
                    self.url
                ),
            ),
            (true, None) => say(self.format, &format!("traces are sent to {} again", self.url)),
            _ => {}
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.send(request).await;
        self.tell(sent.as_ref().err());
        sent
    }
}
