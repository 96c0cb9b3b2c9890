//! What is counted, and its text for Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use polity_core::contract::{Code, EventType};
use polity_core::controller::WaitReason;
use polity_core::record::{Outcome, PassRecord};
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::engine::View;
use crate::observer::{Called, Target};

/// Seconds of a pass: from one of a settled object to one that waits for a clone.
const PASS_SECONDS: [f64; 10] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];
/// Seconds in the queue: from a free host to one that cannot keep up.
const QUEUE_SECONDS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0, 60.0];
/// Seconds of a call of a cloud or of the API server.
const CALL_SECONDS: [f64; 9] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0];

/// The most reasons of warnings that are told apart for a binding. The shipped policy with the most has twelve.
const REASONS: usize = 64;
/// The most bytes of a reason that is counted by itself: as many as the API takes of the reason of an Event.
const REASON: usize = 128;

/// A series: its name, its help, and its labels.
type Series = (&'static str, &'static str, &'static [&'static str]);

const PASSES: Series = (
    "polity_passes_total",
    "Passes that ended.",
    &["binding", "outcome"],
);
const PASS_DURATION: Series = (
    "polity_pass_duration_seconds",
    "Time from the start of a pass to its end.",
    &["binding"],
);
const QUEUE_DURATION: Series = (
    "polity_queue_duration_seconds",
    "Time that an object is queued before its pass starts.",
    &["binding"],
);
const RETRIES: Series = (
    "polity_retries_total",
    "Passes that try again after a failure.",
    &["binding"],
);
const STEPS: Series = ("polity_steps_total", "Calls of policies.", &["binding", "role"]);
const FUEL: Series = (
    "polity_fuel_total",
    "Fuel that policies used.",
    &["binding", "role"],
);
const FAULTS: Series = (
    "polity_faults_total",
    "Passes in which a policy broke its contract.",
    &["binding", "kind"],
);
const REFUSALS: Series = (
    "polity_refusals_total",
    "Requests of policies that were answered permission-denied.",
    &["binding"],
);
const WARNINGS: Series = (
    "polity_warnings_total",
    "Warnings of policies, by the reason of their Event, also of those that are not written because nothing changed.",
    &["binding", "reason"],
);
const CLOUD_CALLS: Series = (
    "polity_cloud_calls_total",
    "Calls of clouds.",
    &["operation", "code"],
);
const CLOUD_CALL_DURATION: Series = (
    "polity_cloud_call_duration_seconds",
    "Time that calls of clouds took.",
    &["operation"],
);
const API_CALLS: Series = (
    "polity_api_calls_total",
    "Calls of the API server beside watches.",
    &["verb", "code"],
);
const API_CALL_DURATION: Series = (
    "polity_api_call_duration_seconds",
    "Time that calls of the API server took.",
    &["verb"],
);

/// What a host counts.
pub struct Metrics {
    registry: Registry,
    passes: IntCounterVec,
    pass_seconds: HistogramVec,
    queue_seconds: HistogramVec,
    retries: IntCounterVec,
    steps: IntCounterVec,
    fuel: IntCounterVec,
    faults: IntCounterVec,
    refusals: IntCounterVec,
    warnings: IntCounterVec,
    /// The reasons that were counted. A policy can invent reasons without end.
    reasons: Mutex<BTreeMap<String, BTreeSet<String>>>,
    cloud_calls: IntCounterVec,
    cloud_seconds: HistogramVec,
    api_calls: IntCounterVec,
    api_seconds: HistogramVec,
    now: Now,
}

/// What is true at the moment of a scrape.
struct Now {
    up: IntGauge,
    lease: IntGauge,
    bindings: IntGaugeVec,
    objects: IntGaugeVec,
    waiting: IntGaugeVec,
    queue: IntGauge,
    in_flight: IntGauge,
    watches: IntGaugeVec,
    cache_objects: IntGauge,
    cache_bytes: IntGauge,
}

impl Metrics {
    /// Metrics that nothing was counted in.
    ///
    /// # Errors
    /// A name that is none or is there twice: a bug of ours.
    pub fn new() -> Result<Metrics> {
        let r = &Registry::new();
        let all = || {
            Ok::<_, prometheus::Error>(Metrics {
                passes: counter(r, &PASSES)?,
                pass_seconds: seconds(r, &PASS_DURATION, &PASS_SECONDS)?,
                queue_seconds: seconds(r, &QUEUE_DURATION, &QUEUE_SECONDS)?,
                retries: counter(r, &RETRIES)?,
                steps: counter(r, &STEPS)?,
                fuel: counter(r, &FUEL)?,
                faults: counter(r, &FAULTS)?,
                refusals: counter(r, &REFUSALS)?,
                warnings: counter(r, &WARNINGS)?,
                reasons: Mutex::default(),
                cloud_calls: counter(r, &CLOUD_CALLS)?,
                cloud_seconds: seconds(r, &CLOUD_CALL_DURATION, &CALL_SECONDS)?,
                api_calls: counter(r, &API_CALLS)?,
                api_seconds: seconds(r, &API_CALL_DURATION, &CALL_SECONDS)?,
                now: Now::new(r)?,
                registry: r.clone(),
            })
        };
        all().context("the metrics cannot be registered; this is a bug of Polity")
    }

    /// A pass ended.
    pub(super) fn passed(&self, record: &PassRecord) {
        let binding: &str = &record.key.binding;
        let outcome = outcome(&record.outcome);
        self.passes.with_label_values(&[binding, outcome]).inc();
        self.pass_seconds
            .with_label_values(&[binding])
            .observe((record.ended.boot - record.started.boot).as_secs_f64());
        self.queue_seconds
            .with_label_values(&[binding])
            .observe(record.queued.as_secs_f64());
        if record.attempt > 0 {
            self.retries.with_label_values(&[binding]).inc();
        }
        for role in &record.roles {
            let labels = [binding, role.role.as_str()];
            self.steps.with_label_values(&labels).inc_by(role.steps.into());
            self.fuel.with_label_values(&labels).inc_by(role.fuel);
            if let Some(fault) = &role.fault {
                let kind = kebab(&format!("{:?}", fault.kind));
                self.faults.with_label_values(&[binding, &kind]).inc();
            }
            let denied = |answer: &Result<_, polity_core::contract::Failure>| matches!(answer, Err(failure) if failure.code == Code::PermissionDenied);
            let refused = role.journal.iter().filter(|entry| denied(&entry.answer)).count();
            self.refusals.with_label_values(&[binding]).inc_by(refused as u64);
            let events = role.conclusion.iter().flat_map(|conclusion| &conclusion.events);
            for event in events.filter(|event| event.kind == EventType::Warning) {
                self.warned(binding, &event.reason);
            }
        }
    }

    /// Counts a warning of a policy; those of further reasons as one.
    fn warned(&self, binding: &str, reason: &str) {
        let mut counted = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = counted.entry(binding.to_owned()).or_default();
        let is_known = counted.contains(reason);
        let counts = is_known || counted.len() < REASONS && reason.len() <= REASON;
        if counts && !is_known {
            counted.insert(reason.to_owned());
        }
        let reason = if counts { reason } else { "Other" };
        self.warnings.with_label_values(&[binding, reason]).inc();
    }

    /// A call came back.
    pub(super) fn called(&self, call: &Called) {
        let (calls, seconds, what) = match &call.target {
            Target::Cloud(operation) => (&self.cloud_calls, &self.cloud_seconds, operation.as_str()),
            Target::Api(verb) => (&self.api_calls, &self.api_seconds, *verb),
            // The recording of the pass has the steps.
            Target::Step(_) | Target::Retry | Target::Draft => return,
        };
        let code = call.failure.map_or("ok", Code::as_str);
        calls.with_label_values(&[what, code]).inc();
        seconds
            .with_label_values(&[what])
            .observe(call.took.as_secs_f64());
    }

    /// Everything as Prometheus reads it; none: the event loop does not say how it stands.
    ///
    /// # Errors
    /// What was counted cannot be written down: a bug of ours.
    pub fn text(&self, view: Option<&View>) -> Result<String> {
        self.now.up.set(view.is_some().into());
        if let Some(view) = view {
            self.now.show(view);
        }
        let families = self.registry.gather();
        TextEncoder::new()
            .encode_to_string(&families)
            .context("the metrics cannot be written; this is a bug of Polity")
    }
}

impl Now {
    fn new(r: &Registry) -> prometheus::Result<Now> {
        Ok(Now {
            up: gauge(
                r,
                "polity_event_loop_up",
                "1 while the event loop answers questions about its state.",
            )?,
            lease: gauge(r, "polity_lease_held", "1 while this host holds its lease.")?,
            bindings: gauges(r, "polity_bindings", "Bindings of this host.", "state")?,
            objects: gauges(r, "polity_objects", "Objects that are governed.", "binding")?,
            waiting: gauges(r, "polity_objects_waiting", "What objects wait for.", "reason")?,
            queue: gauge(r, "polity_queue_depth", "Objects whose pass waits for its turn.")?,
            in_flight: gauge(r, "polity_passes_in_flight", "Passes under way.")?,
            watches: gauges(r, "polity_watches", "Watches of the API server.", "state")?,
            cache_objects: gauge(r, "polity_cache_objects", "Objects that the cache holds.")?,
            cache_bytes: gauge(
                r,
                "polity_cache_bytes",
                "Bytes of the text of the objects that the cache holds.",
            )?,
        })
    }

    fn show(&self, view: &View) {
        let (unloaded, loading) = (view.unloaded.len(), view.loading);
        let states = [
            ("loaded", view.health.len()),
            ("not-loaded", unloaded),
            ("loading", loading),
        ];
        show(
            &self.bindings,
            states.map(|(state, count)| (state.to_owned(), count)),
        );
        let mut objects: BTreeMap<String, usize> = BTreeMap::new();
        let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
        for (key, state) in &view.keys {
            *objects.entry(key.binding.to_string()).or_default() += 1;
            *waiting.entry(reason(&state.waiting).to_owned()).or_default() += 1;
        }
        show(&self.objects, objects);
        show(&self.waiting, waiting);
        let queued = view.keys.iter().filter(|(_, state)| state.queued);
        self.queue.set(number(queued.count()));
        self.in_flight.set(number(view.passes));
        self.lease.set(view.holder.into());
        let states = [("synced", view.cache.synced), ("failing", view.cache.failing)];
        show(
            &self.watches,
            states.map(|(state, count)| (state.to_owned(), count)),
        );
        self.cache_objects.set(number(view.cache.objects));
        self.cache_bytes.set(number(view.cache.bytes));
    }
}

/// What is not there any more has no series.
fn show(gauges: &IntGaugeVec, of: impl IntoIterator<Item = (String, usize)>) {
    gauges.reset();
    for (label, count) in of {
        gauges.with_label_values(&[&label]).set(number(count));
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Published => "published",
        Outcome::Denied => "denied",
        Outcome::Released => "released",
        Outcome::Discarded(_) => "discarded",
        Outcome::Faulted => "faulted",
        Outcome::Failed(_) => "failed",
        Outcome::LeaseLost => "lease-lost",
        Outcome::Stopped => "stopped",
        Outcome::Bug(_) => "bug",
    }
}

fn reason(waits: &WaitReason) -> &'static str {
    match waits {
        WaitReason::Watch(..) => "watch",
        WaitReason::Lease => "lease",
        WaitReason::Renewal => "renewal",
        WaitReason::Capacity(_) => "capacity",
        WaitReason::Call => "call",
        WaitReason::Refresh => "refresh",
        WaitReason::Lock(..) => "lock",
        WaitReason::Time(_) => "time",
        WaitReason::Turn => "turn",
        WaitReason::Change => "change",
    }
}

/// `OutOfFuel` as the contract spells it.
fn kebab(word: &str) -> String {
    let mut kebab = String::new();
    for (at, letter) in word.char_indices() {
        if letter.is_uppercase() && at > 0 {
            kebab.push('-');
        }
        kebab.extend(letter.to_lowercase());
    }
    kebab
}

fn counter(r: &Registry, (name, help, labels): &Series) -> prometheus::Result<IntCounterVec> {
    let counter = IntCounterVec::new(Opts::new(*name, *help), labels)?;
    r.register(Box::new(counter.clone()))?;
    Ok(counter)
}

fn seconds(r: &Registry, (name, help, labels): &Series, buckets: &[f64]) -> prometheus::Result<HistogramVec> {
    let opts = HistogramOpts::new(*name, *help).buckets(buckets.to_vec());
    let histogram = HistogramVec::new(opts, labels)?;
    r.register(Box::new(histogram.clone()))?;
    Ok(histogram)
}

fn gauges(r: &Registry, name: &str, help: &str, label: &str) -> prometheus::Result<IntGaugeVec> {
    let gauges = IntGaugeVec::new(Opts::new(name, help), &[label])?;
    r.register(Box::new(gauges.clone()))?;
    Ok(gauges)
}

fn gauge(r: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    let gauge = IntGauge::new(name, help)?;
    r.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_operation_and_code() {
        let metrics = Metrics::new().expect("metrics");
        let call = |failure| Called {
            target: Target::Cloud("vm.clone".into()),
            pass: None,
            began: polity_core::time::Unix(0),
            failure,
            took: std::time::Duration::from_millis(250),
        };
        metrics.called(&call(None));
        metrics.called(&call(None));
        metrics.called(&call(Some(Code::Unavailable)));
        let text = metrics.text(Some(&View::default())).expect("text");
        for line in [
            "polity_cloud_calls_total{code=\"ok\",operation=\"vm.clone\"} 2",
            "polity_cloud_calls_total{code=\"unavailable\",operation=\"vm.clone\"} 1",
            "polity_cloud_call_duration_seconds_bucket{operation=\"vm.clone\",le=\"0.5\"} 3",
            "polity_cloud_call_duration_seconds_bucket{operation=\"vm.clone\",le=\"0.1\"} 0",
            "polity_event_loop_up 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn warnings_are_counted_by_a_bounded_number_of_reasons() {
        let metrics = Metrics::new().expect("metrics");
        for number in 0..REASONS + 2 {
            metrics.warned("m", &format!("Reason{number}"));
        }
        metrics.warned("m", "Reason0");
        metrics.warned("m", &"x".repeat(REASON + 1));
        let text = metrics.text(None).expect("text");
        for line in [
            "polity_warnings_total{binding=\"m\",reason=\"Reason0\"} 2",
            "polity_warnings_total{binding=\"m\",reason=\"Other\"} 3",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert_eq!(text.matches("polity_warnings_total{").count(), REASONS + 1);
    }

    #[test]
    fn what_is_gone_has_no_series_any_more() {
        let metrics = Metrics::new().expect("metrics");
        show(&metrics.now.objects, [("a".to_owned(), 1)]);
        assert!(metrics.text(None).expect("text").contains("binding=\"a\""));
        let text = metrics.text(Some(&View::default())).expect("text");
        assert!(!text.contains("binding=\"a\""), "{text}");
    }

    #[test]
    fn faults_are_called_what_the_contract_calls_them() {
        assert_eq!(kebab("OutOfFuel"), "out-of-fuel");
        assert_eq!(kebab("Trap"), "trap");
    }
}
