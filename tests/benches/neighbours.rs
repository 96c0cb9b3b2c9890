//! Measures how long a tenant waits for a pass while two hundred objects of another tenant, or operations of its driver, take all
//! that the rules allow. See `README.md` beside this file.

#![allow(clippy::print_stdout, reason = "a report")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polity::manifests::Manifests;
use polity::observer::Observer;
use polity::recording::{Recorder, RecordingThread};
use polity_clouds::Gateway;
use polity_cluster::Cluster;
use polity_core::binding::PolicyId;
use polity_core::record::{Outcome, PassRecord};
use polity_drivers::DriverCloud;
use polity_sandbox::{Compiler, Confined, Policy, Sandbox, SandboxConfig};
use polity_tests::guests;
use polity_tests::host_fixture::{thing, things};
use polity_tests::host_harness::Site;
use polity_tests::hostile_driver::{self, Server, come_to, fine, ok};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

/// The allocator of the host's own binary.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The threads that call policies.
const THREADS: usize = 2;
/// The objects of the greedy tenant.
const GREEDY: usize = 200;
/// The objects of the greedy tenant where each only waits for changes of one list.
const CROWD: usize = 5_000;
/// The objects of the greedy tenant where each asks in as many words as a step may have.
const ASKING: usize = 50;
/// The time between two changes of what the greedy tenant asks for, where it waits for them.
const CHANGES_EVERY: Duration = Duration::from_millis(10);
/// The operations of a hostile driver at a time.
const OPERATIONS: usize = 4;
/// So many connections each of these uses up at most: one operation takes some tens of milliseconds.
const CONNECTIONS: usize = 40;
/// The objects of the waiting tenant.
const POLITE: usize = 20;
/// The requests for a pass that are measured, and the time between two of them.
const REQUESTS: usize = 400;
const EVERY: Duration = Duration::from_millis(20);
/// Where two tenants are greedy, the namespace of the second.
const SECOND: &str = "greedy-2";

#[derive(Clone)]
struct Waits {
    measured: Arc<Mutex<Measured>>,
    /// Every pass is recorded, as by `polity run`.
    recording: Arc<RecordingThread>,
}

#[derive(Default)]
struct Measured {
    asked: BTreeMap<String, Instant>,
    waits: Vec<Duration>,
    /// How long the API server took to store each request.
    stored: Vec<Duration>,
    polite: usize,
    greedy: usize,
    faults: usize,
    fuel: u64,
    steps: u32,
}

impl Waits {
    fn with<T>(&self, look: impl FnOnce(&mut Measured) -> T) -> T {
        look(&mut self.measured.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Waits {
    fn passed(&mut self, record: &Arc<PassRecord>) {
        let now = Instant::now();
        let wrong = self.recording.pass(record.clone());
        let is_recorded = |why: &String| why.starts_with("passes are recorded");
        assert!(wrong.as_ref().is_none_or(is_recorded), "{wrong:?}");
        self.with(|measured| {
            if record.key.namespace.as_deref() == Some("polite") {
                measured.polite += 1;
                if let Some(asked) = measured.asked.remove(&*record.key.name) {
                    measured.waits.push(now - asked);
                }
                return;
            }
            measured.greedy += 1;
            measured.faults += usize::from(record.outcome == Outcome::Faulted);
            measured.fuel += record.roles.iter().map(|role| role.fuel).sum::<u64>();
            measured.steps += record.roles.iter().map(|role| role.steps).sum::<u32>();
        });
    }

    fn policy_loaded(&mut self, _: &PolicyId, _: &Policy, _: &[u8]) {}

    fn report(&mut self, _: &str) {}
}

/// A value of `/proc/self/status` in KiB.
fn status(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says it");
    let found = status
        .lines()
        .find_map(|one| one.strip_prefix(line)?.strip_prefix(':'));
    let number = found.and_then(|text| text.split_whitespace().next()?.parse().ok());
    number.expect("a number of KiB")
}

fn binding(greed: Option<&str>) -> Value {
    let mut binding = things();
    let maps = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    binding["spec"]["grants"] = json!([{"ask": maps}, {"patch": maps}]);
    // As fast as the host allows.
    binding["spec"]["limits"] = json!({"burst": 1_000_000, "refill": 1, "shortestWait": 1});
    if matches!(
        greed,
        Some(
            "fill"
                | "lists"
                | "asks"
                | "answers"
                | "parts"
                | "changes"
                | "writes"
                | "acts"
                | "documents"
                | "crowd"
                | "nothing"
        )
    ) {
        // Without a fault, which would slow it down.
        binding["spec"]["limits"]["stepFuel"] = json!(100_000_000);
    }
    binding
}

fn in_namespace(namespace: &str, mut object: Value) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    object
}

fn maps() -> Vec<Value> {
    let map = |name: String, size: usize| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "greedy"},
            "data": {"text": "x".repeat(size)}})
    };
    let small = (0..500).map(|n| map(format!("map-{n}"), 1_000));
    let large = (0..16).map(|n| map(format!("large-{n}"), 900_000));
    let many = (0..4).map(|n| {
        let data: Map<String, Value> = (0..20_000).map(|n| (format!("key-{n}"), "text".into())).collect();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("many-{n}"), "namespace": "greedy"},
            "data": data})
    });
    let mut maps: Vec<Value> = small.chain(large).chain(many).collect();
    maps[0]["metadata"]["labels"] = json!({"a": "b"});
    maps
}

fn namespaces() -> impl Iterator<Item = Value> {
    let namespace = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    ["polite", "greedy", SECOND].map(namespace).into_iter()
}

async fn apply(site: &Site, object: &Value) {
    site.cluster.apply(object).await.expect("it is applied");
}

/// What a hostile driver does without end, a few operations at a time.
struct Operated {
    greed: &'static str,
    operation: &'static str,
    steps: Value,
    /// The value of the sealed argument.
    sealed: String,
    /// What its server answers.
    says: String,
}

fn operated() -> [Operated; 3] {
    let create = |greed, then: Value, sealed: String| {
        let wish = json!({"effect": "create", "seals": "userData", "then": then});
        Operated {
            greed,
            operation: "machine.create",
            steps: json!([{"send": [wish]}, fine()]),
            sealed,
            says: ok(&json!({"text": "x".repeat(1 << 20)}).to_string()),
        }
    };
    [
        create("secret", json!([["base64", 1]]), hostile_driver::lines()),
        create("growth", json!([["json", 3]]), "\\".repeat(65_000)),
        Operated {
            greed: "keep",
            operation: "machine.status",
            steps: json!([{"send": [{"paths": [255, 200]}]}, fine()]),
            sealed: String::new(),
            says: ok(&hostile_driver::fields()),
        },
    ]
}

/// What its server is told to be, in a process of its own: `serve` and the name of the greed.
const SERVE: &str = "serve";

/// Serves what a driver asks for, until its process ends.
fn serve(greed: &str) {
    let operated = operated().into_iter().find(|operated| operated.greed == greed);
    let server = Server::saying(operated.expect("one of them").says);
    println!("{}", server.address);
    loop {
        std::thread::park();
    }
}

/// A server in a process of its own, and its address. Elsewhere it has its own processors, so here it has what all others leave.
fn server(greed: &str) -> (Child, String) {
    let program = std::env::current_exe().expect("this one");
    let mut command = Command::new("chrt");
    let mut child = command
        .args(["--idle", "0"])
        .arg(program)
        .args([SERVE, greed])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut address = String::new();
    let said = child.stdout.as_mut().expect("it is piped");
    BufReader::new(said).read_line(&mut address).expect("its address");
    (child, address.trim().to_owned())
}

/// Connections, made before anything is measured.
async fn connections(operated: &Arc<Operated>, address: &Arc<str>) -> Vec<Gateway<DriverCloud>> {
    let (of, address) = (operated.clone(), address.clone());
    let connect = move || hostile_driver::unpaced(&address, &of.steps, &of.sealed);
    let all = move || (0..CONNECTIONS).map(|_| connect()).collect();
    tokio::task::spawn_blocking(all).await.expect("connections")
}

async fn operate(operated: Arc<Operated>, connections: Vec<Gateway<DriverCloud>>, waits: Waits) {
    // The next one follows where a driver broke its contract, because that one waits then.
    for cloud in connections {
        let mut is_broken = false;
        while !is_broken {
            is_broken = come_to(&cloud, operated.operation).await.is_err();
            waits.with(|measured| {
                measured.greedy += 1;
                measured.faults += usize::from(is_broken);
            });
        }
    }
}

/// Changes the ConfigMap that the greedy tenant waits for, without end.
async fn change(cluster: Arc<Cluster>) {
    let mut map = maps().swap_remove(0);
    for change in 0_u64.. {
        map["data"]["text"] = change.to_string().into();
        cluster.apply(&map).await.expect("it is applied");
        tokio::time::sleep(CHANGES_EVERY).await;
    }
}

/// The waits of the polite tenant while the other one is greedy in this way.
async fn measure(greed: Option<&str>) -> Measured {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("hostile.wasm"), guests::hostile()).expect("written");
    let mut site = Site::new(1, None);
    let sandbox = Sandbox::new(SandboxConfig::new(Compiler::Child(Confined::program(env!(
        "CARGO_BIN_EXE_polity-under-test"
    )))));
    site.load_with(Arc::new(sandbox.expect("an engine")), folder.path());
    let polite = (0..POLITE).map(|n| in_namespace("polite", thing(&format!("polite-{n}"), "behave")));
    site.apply(&Manifests {
        bindings: vec![binding(greed)],
        objects: namespaces().chain(polite).chain(maps()).collect(),
        ..Manifests::default()
    })
    .await;
    let recorder = Recorder::open(&folder.path().join("recording"), false, "bench").expect("a recording");
    let waits = Waits {
        measured: Arc::default(),
        recording: Arc::new(RecordingThread::start(recorder).expect("a thread")),
    };
    let (host, _) = site.drive(THREADS, Box::new(waits.clone()));
    while waits.with(|measured| measured.polite) < POLITE {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut operating = JoinSet::new();
    let is_operated = |operated: &Operated| Some(operated.greed) == greed;
    let mut served = None;
    if let Some(operated) = operated().into_iter().find(is_operated).map(Arc::new) {
        let (child, address) = server(operated.greed);
        served = Some(child);
        let address: Arc<str> = address.into();
        for _ in 0..OPERATIONS {
            let connections = connections(&operated, &address).await;
            operating.spawn(operate(operated.clone(), connections, waits.clone()));
        }
    }
    let objects = match greed {
        None => 0,
        Some("crowd") => CROWD,
        Some("asks") => ASKING,
        Some(_) if operating.is_empty() => GREEDY,
        Some(_) => 0,
    };
    for n in 0..objects {
        let (namespace, behaviour) = match greed {
            Some("both") => (["greedy", SECOND][n % 2], "steps"),
            greed => ("greedy", greed.unwrap_or_default()),
        };
        let mut greedy = in_namespace(namespace, thing(&format!("greedy-{n}"), behaviour));
        if greed == Some("writes") {
            let bulk: Map<String, Value> = (0..20_000).map(|n| (format!("number-{n}"), n.into())).collect();
            greedy["spec"] = bulk.into();
        }
        apply(&site, &greedy).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let changing =
        matches!(greed, Some("crowd" | "nothing")).then(|| tokio::spawn(change(site.cluster.clone())));
    for request in 0..REQUESTS {
        let name = format!("polite-{}", request % POLITE);
        let mut asking = in_namespace("polite", thing(&name, "behave"));
        asking["metadata"]["annotations"]["request.polity.dev/bench"] = request.to_string().into();
        let began = Instant::now();
        waits.with(|measured| {
            measured.asked.entry(name).or_insert(began);
        });
        apply(&site, &asking).await;
        waits.with(|measured| measured.stored.push(began.elapsed()));
        tokio::time::sleep(EVERY).await;
    }
    host.abort();
    if let Some(changing) = changing {
        changing.abort();
    }
    if let Some(mut child) = served {
        // It may have ended.
        let _ = child.kill();
        let _ = child.wait();
    }
    waits.with(std::mem::take)
}

/// The time below which so many of a hundred are, in milliseconds.
fn at(part: usize, times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    let time = times.get(times.len() * part / 100);
    time.map_or(0.0, Duration::as_secs_f64) * 1e3
}

fn main() {
    let named: Vec<String> = std::env::args().collect();
    if let Some(place) = named.iter().position(|name| name == SERVE) {
        return serve(named.get(place + 1).map_or("", String::as_str));
    }
    println!("{GREEDY} objects of one tenant beside {POLITE} of another, {THREADS} threads for policies:");
    hostile_driver::driver();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut quiet = None;
    let greeds = [
        "burn",
        "spikes",
        "steps",
        "fill",
        "lists",
        "asks",
        "answers",
        "parts",
        "writes",
        "acts",
        "documents",
        "changes",
        "crowd",
        "nothing",
        "both",
        "loop",
        "secret",
        "growth",
        "keep",
    ];
    // `cargo bench … -- lists` measures this greed alone.
    let chosen: Vec<&str> = greeds
        .into_iter()
        .filter(|greed| named.iter().any(|name| name == greed))
        .collect();
    let greeds = if chosen.is_empty() {
        greeds.to_vec()
    } else {
        chosen
    };
    let greeds = greeds.into_iter().map(Some);
    for greed in [None].into_iter().chain(greeds).chain([None]) {
        // From here on the kernel records the peak.
        std::fs::write("/proc/self/clear_refs", "5").expect("Linux lets it be reset");
        let mut measured = runtime.block_on(measure(greed));
        let (half, most) = (at(50, &mut measured.waits), at(99, &mut measured.waits));
        let stored = at(99, &mut measured.stored);
        let (calm, memory) = *quiet.get_or_insert((most, status("VmHWM")));
        println!(
            "{:8} {} waits, p50 {half:.1} ms, p99 {most:.1} ms, {:.1} times quiet; stored within {stored:.1} ms; at worst {} MiB above quiet; {} greedy passes, {} faults, {} fuel a step",
            greed.unwrap_or("quiet"),
            measured.waits.len(),
            most / calm,
            status("VmHWM").saturating_sub(memory) >> 10,
            measured.greedy,
            measured.faults,
            measured.fuel / u64::from(measured.steps.max(1)),
        );
    }
    runtime.shutdown_background();
}
