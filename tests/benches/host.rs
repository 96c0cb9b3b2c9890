//! Measures the passes per second of the whole host in memory: engine, cache, queue, sandbox and simulated
//! cloud, assembled as by `polity run`. See `README.md` beside this file.

#![allow(clippy::print_stdout, reason = "a report")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use polity::manifests::Manifests;
use polity::observer::{Called, Observer};
use polity::progress::Format;
use polity::telemetry::{Metrics, Traces, Watched};
use polity_core::binding::PolicyId;
use polity_core::contract::Next;
use polity_core::controller::{Guard, Guards};
use polity_core::key::Key;
use polity_core::record::PassRecord;
use polity_sandbox::Policy;
use polity_sim::{Between, Millis, SimConfig};
use polity_tests::all_workflows::scenario::identities;
use polity_tests::all_workflows::setting;
use polity_tests::host_harness::Site;
use polity_tests::host_harness::seeds::binding;
use serde_json::{Value, json};

/// The allocator of the host's own binary.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Machines that are driven at once.
const MACHINES: usize = 200;
/// How long passes are counted.
const COUNTED: Duration = Duration::from_secs(5);
/// How often each kind of telemetry is measured, in turns.
const ROUNDS: usize = 40;
/// How long a turn lasts before it is measured: what the turn before has left over is done by then.
const BEFORE: Duration = Duration::from_millis(150);
/// How long a turn is measured.
const TURN: Duration = Duration::from_millis(350);
/// How long the exporter waits until it sends what it has, in milliseconds. As a rule it is 5,000, which is longer than a turn.
const EXPORT: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "50");
/// The argument with which this program is the collector of traces.
const COLLECTOR: &str = "collector";
/// The argument with which nothing else is measured.
const TELEMETRY: &str = "telemetry";

#[derive(Clone, Default)]
struct Counts {
    passes: Arc<AtomicU64>,
    steps: Arc<AtomicU64>,
}

impl Observer for Counts {
    fn passed(&mut self, record: &Arc<PassRecord>) {
        self.passes.fetch_add(1, Ordering::Relaxed);
        let steps: u32 = record.roles.iter().map(|role| role.steps).sum();
        self.steps.fetch_add(steps.into(), Ordering::Relaxed);
    }

    fn policy_loaded(&mut self, _: &PolicyId, _: &Policy, _: &[u8]) {}

    fn report(&mut self, _: &str) {}
}

impl Counts {
    /// Waits until every machine had some passes.
    async fn warm_up(&self) {
        while self.passes.load(Ordering::Relaxed) < 4 * MACHINES as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The passes, the steps, and the processor time of this process in seconds.
    fn read(&self) -> (u64, u64, f64) {
        (
            self.passes.load(Ordering::Relaxed),
            self.steps.load(Ordering::Relaxed),
            cpu(),
        )
    }
}

/// Machines whose clones take an hour, with a pass after pass: each pass asks for the task and writes
/// nothing.
async fn cloning() -> Site {
    let cloud = json!({
        "lag": "0ms", "answers": {"min": "0ms", "max": "0ms"}, "queue": {"min": "0ms", "max": "0ms"},
        "tasks": {"clone": {"min": "1h", "max": "1h"}},
    });
    let site = Site::new(1, Some(cloud));
    let mut binding = binding();
    binding["spec"]["policies"]["lifecycle"]["configuration"] = json!({"requeuePeriod": "1ms"});
    binding["spec"]["limits"] = nothing_limits();
    let manifests = Manifests {
        bindings: vec![binding],
        objects: (0..10).map(namespace).chain((0..MACHINES).map(machine)).collect(),
        ..Manifests::default()
    };
    site.apply(&manifests).await;
    site
}

/// Clusters whose identity is a role that another identity assumes. Each pass reads the cluster's namespace
/// and both identities, and asks whose the session is.
async fn judging() -> Site {
    let mut cloud = SimConfig::default();
    identities(&mut cloud);
    cloud.answers = Between {
        min: Millis(0),
        max: Millis(0),
    };
    let site = Site::new(
        1,
        Some(serde_json::to_value(cloud).expect("a configuration is JSON")),
    );
    let mut binding = setting::clusters();
    binding["spec"]["policies"]["identity"]["configuration"]["resync"] = json!("1ms");
    binding["spec"]["limits"] = nothing_limits();
    let cluster = |number| setting::cluster(setting::TRUSTED, &format!("cluster-{number}"));
    let objects = setting::tenants().into_iter().chain((0..MACHINES).map(cluster));
    setting::apply(&site, vec![binding], objects.collect()).await;
    site
}

/// Without this, a key gets one pass a second in the long run. Here the host must be the limit.
fn nothing_limits() -> Value {
    json!({"burst": 1_000_000, "refill": 1, "cloudCalls": 1_000})
}

/// Runs a host on these objects, prints its speed, and returns its passes a second of processor time.
async fn measure(name: &str, site: &Site, threads: usize) -> f64 {
    let counts = Counts::default();
    let (host, _) = site.drive(threads, Box::new(counts.clone()));
    counts.warm_up().await;
    let (started, before) = (Instant::now(), counts.read());
    tokio::time::sleep(COUNTED).await;
    let (seconds, after) = (started.elapsed().as_secs_f64(), counts.read());
    host.abort();
    let (passes, steps) = (after.0 - before.0, after.1 - before.1);
    println!(
        "{name}: {:>8.0} passes/s, {:.1} steps a pass, {:.2} cores busy, {:>8.0} passes/s a core",
        passes as f64 / seconds,
        steps as f64 / passes as f64,
        (after.2 - before.2) / seconds,
        passes as f64 / (after.2 - before.2),
    );
    passes as f64 / (after.2 - before.2)
}

/// One host that is watched in turns: not at all, with metrics, with metrics and traces.
struct InTurns {
    turn: Arc<AtomicUsize>,
    none: Counts,
    metrics: Watched<Counts>,
    both: Watched<Counts>,
}

impl InTurns {
    fn observer(&mut self) -> &mut dyn Observer {
        match self.turn.load(Ordering::Relaxed) {
            0 => &mut self.none,
            1 => &mut self.metrics,
            _ => &mut self.both,
        }
    }
}

impl Observer for InTurns {
    fn passed(&mut self, record: &Arc<PassRecord>) {
        self.observer().passed(record);
    }

    fn called(&mut self, call: &Called) {
        self.observer().called(call);
    }

    fn policy_loaded(&mut self, _: &PolicyId, _: &Policy, _: &[u8]) {}

    fn report(&mut self, _: &str) {}
}

/// The microseconds of processor time of a pass, for each turn of each round.
async fn watched(site: &Site, collector: &str) -> [Vec<f64>; 3] {
    let counts = Counts::default();
    let metrics = Arc::new(Metrics::new().expect("no two have one name"));
    let (traces, export) = Traces::to(collector, Format::Text).expect("an address");
    let turn = Arc::new(AtomicUsize::new(0));
    let observer = InTurns {
        turn: turn.clone(),
        none: counts.clone(),
        metrics: Watched::new(counts.clone(), metrics.clone(), None),
        both: Watched::new(counts.clone(), metrics, Some(traces)),
    };
    let (host, _) = site.drive(1, Box::new(observer));
    counts.warm_up().await;
    let mut costs = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (number, costs) in costs.iter_mut().enumerate() {
            turn.store(number, Ordering::Relaxed);
            tokio::time::sleep(BEFORE).await;
            let before = counts.read();
            tokio::time::sleep(TURN).await;
            let after = counts.read();
            costs.push((after.2 - before.2) * 1e6 / (after.0 - before.0) as f64);
        }
    }
    host.abort();
    export.end().await;
    costs
}

/// A collector in a process of its own, which swallows what it gets. Its address is printed.
fn collect() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("http://{}", listener.local_addr().expect("it has one"));
    for stream in listener.incoming() {
        let mut stream = BufReader::new(stream.expect("somebody"));
        std::thread::spawn(move || while answer(&mut stream).is_some() {});
    }
}

/// Reads a request and says that all is well. `None` after the last one.
fn answer(stream: &mut BufReader<TcpStream>) -> Option<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        match stream.read_line(&mut line) {
            Ok(1..) => {}
            _ => return None,
        }
        let line = line.trim().to_ascii_lowercase();
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink()).ok()?;
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    stream.get_mut().write_all(head).ok()
}

/// What metrics, and traces to a collector, take of the processor.
fn watch_and_compare() {
    if std::env::var_os(EXPORT.0).is_none() {
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        let ended = again.arg(TELEMETRY).env(EXPORT.0, EXPORT.1).status();
        assert!(ended.expect("it starts").success(), "{TELEMETRY} failed");
        return;
    }
    let mut collector = Command::new(std::env::current_exe().expect("this program"))
        .arg(COLLECTOR)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut address = String::new();
    let said = collector.stdout.take().expect("it is piped");
    BufReader::new(said)
        .read_line(&mut address)
        .expect("it says where it is");
    let mut costs = [const { Vec::new() }; 3];
    on_threads(2, async {
        let site = cloning().await;
        costs = watched(&site, address.trim()).await;
    });
    // It has nothing to lose.
    let _ = collector.kill().and_then(|()| collector.wait());
    let [none, metrics, both] = &costs;
    println!(
        "processor time of a pass, {ROUNDS} turns each: {:.1} µs without",
        mean(none).0
    );
    for (name, costs) in [("with metrics", metrics), ("with metrics and traces", both)] {
        let shares: Vec<f64> = none
            .iter()
            .zip(costs)
            .map(|(none, some)| (some / none - 1.0) * 100.0)
            .collect();
        let (share, error) = mean(&shares);
        println!("{name}: {share:+.1} % (standard error {error:.1})");
    }
}

/// The mean and its standard error.
fn mean(all: &[f64]) -> (f64, f64) {
    let count = all.len() as f64;
    let mean = all.iter().sum::<f64>() / count;
    let variance = all.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}

/// The processor time of this process in seconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The resident memory of this process in kilobytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The number of machines that are created to compare ways of storing them.
const MADE: usize = 2_000;

/// Which machines are as they shall be.
#[derive(Clone, Default)]
struct Settled {
    machines: Arc<Mutex<BTreeSet<Key>>>,
    passes: Arc<AtomicU64>,
}

impl Observer for Settled {
    fn passed(&mut self, record: &Arc<PassRecord>) {
        self.passes.fetch_add(1, Ordering::Relaxed);
        let mut machines = self.machines.lock().expect("nobody panicked");
        match record.next {
            Some(Next::Settled(_)) => machines.insert(record.key.clone()),
            _ => machines.remove(&record.key),
        };
    }

    fn policy_loaded(&mut self, _: &PolicyId, _: &Policy, _: &[u8]) {}

    fn report(&mut self, _: &str) {}
}

/// Where the state of a row is stored.
#[derive(Clone, Copy)]
enum Kept {
    Nothing,
    Cloud,
    Everything,
}

/// Creates machines, from nothing to running, in a cloud without delays. Returns the seconds.
async fn make(name: &str, kept: Kept) -> f64 {
    let exactly = |ms: u64| json!({"min": ms, "max": ms});
    let kinds = ["clone", "reconfigure", "powerOn", "powerOff", "destroy"];
    let tasks: serde_json::Map<String, Value> = kinds
        .map(|kind| (kind.to_owned(), exactly(0)))
        .into_iter()
        .collect();
    let cloud = json!({
        "lag": 0, "answers": exactly(0), "queue": exactly(0), "tasks": tasks, "dhcp": exactly(0),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let site = match kept {
        Kept::Nothing => Site::new(1, Some(cloud)),
        Kept::Cloud | Kept::Everything => {
            let data = Arc::new(polity::Data::open(&folder.path().join("data")).expect("a data folder"));
            Site::kept(1, Some(cloud), &data, matches!(kept, Kept::Everything))
        }
    };
    let mut binding = binding();
    binding["spec"]["policies"]["lifecycle"]["configuration"] = json!({"requeuePeriod": "100ms"});
    binding["spec"]["limits"] = nothing_limits();
    let manifests = Manifests {
        bindings: vec![binding],
        objects: (0..10).map(namespace).chain((0..MADE).map(machine)).collect(),
        ..Manifests::default()
    };
    site.apply(&manifests).await;
    let settled = Settled::default();
    let (started, used, resident_before) = (Instant::now(), cpu(), resident());
    let (host, _) = site.drive(2, Box::new(settled.clone()));
    while settled.machines.lock().expect("nobody panicked").len() < MADE {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    let (used, memory) = (cpu() - used, resident().saturating_sub(resident_before));
    host.abort();
    let passes = settled.passes.load(Ordering::Relaxed);
    println!(
        "{name}: {seconds:>6.1} s, {passes} passes, {:>6.0} passes/s; a machine: {:.2} ms of processor time, {:.1} KB",
        passes as f64 / seconds,
        used * 1_000.0 / MADE as f64,
        memory as f64 / MADE as f64
    );
    seconds
}

fn namespace(number: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{number}")}})
}

fn machine(number: usize) -> Value {
    json!({
        "apiVersion": "capv.polity.dev/v1alpha1", "kind": "Machine",
        "metadata": {"namespace": format!("team-{}", number % 10), "name": format!("m-{number}")},
        "spec": {"template": "ubuntu", "network": {"devices": [{"networkName": "prod", "dhcp4": true}]}},
    })
}

fn on_threads(threads: usize, work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(work);
    runtime.shutdown_background();
}

fn main() {
    if std::env::args().any(|argument| argument == COLLECTOR) {
        return collect();
    }
    if std::env::args().any(|argument| argument == TELEMETRY) {
        return watch_and_compare();
    }
    println!("{MADE} machines are made, and what they do is kept:");
    on_threads(2, async {
        let memory = make("in memory", Kept::Nothing).await;
        let cloud = make("the cloud on the disk", Kept::Cloud).await;
        let all = make("cloud and objects on the disk", Kept::Everything).await;
        println!(
            "times in memory: {:.2} with the cloud on the disk, {:.2} with all",
            cloud / memory,
            all / memory
        );
    });
    println!("the whole host in memory, {MACHINES} machines with a running task, looked at again at once:");
    for threads in [1, 2] {
        on_threads(threads, async {
            let site = cloning().await;
            measure(&format!("{threads} policy threads"), &site, threads).await;
        });
    }
    println!("the same, {MACHINES} clusters whose identity is judged again at once:");
    for prefetch in [true, false] {
        on_threads(1, async {
            let mut site = judging().await;
            if !prefetch {
                site.without(Guards::without(Guard::Prefetch));
            }
            let name = if prefetch {
                "with prefetch"
            } else {
                "without prefetch"
            };
            measure(name, &site, 1).await;
        });
    }
    println!("the same machines, watched:");
    watch_and_compare();
}
