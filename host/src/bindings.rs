//! Bindings: from a PolicyBinding in the cluster to running policies, and back to its status.

mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use polity_cluster::Cluster;
use polity_core::binding::{self, Binding, BindingSpec, Limits, LoadedPolicy, PolicySource};
use polity_core::call::{Scope, WatchEvent, Write};
use polity_core::catalogue::Catalogue;
use polity_core::contract::{Code, Failure, Manifest, Precondition, Role};
use polity_core::controller::Health;
use polity_core::grants::{self, Grants};
use polity_core::object::Object;
use polity_core::time::{Boot, Now, millis};
use polity_sandbox::Policy;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::binding_objects::kind;
use crate::clouds::Clouds;
use crate::configuration::configuration;
use crate::connections::StampInUse;
use crate::crds;
use crate::display::hex;
use crate::policies::{Policies, Stamp};
use crate::recording::RECORDED;
use crate::selection::Selection;
use crate::single_flight::Later;

/// How often the files of policies are looked at, in real time.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// The most bytes of a manifest's name or version: the same as for a name in Kubernetes.
const NAME: usize = 253;

/// The wait before a status is written again whose write failed. It doubles with each failure.
const REWRITE_AFTER: Duration = Duration::from_secs(2);
/// The longest such wait.
const REWRITE_WITHIN: Duration = Duration::from_mins(1);

/// How often objects are looked at that keep a binding from being loaded, in real time.
const LOOK_AGAIN_EVERY: std::time::Duration = std::time::Duration::from_secs(10);

/// The scope of the watch for bindings.
pub(crate) fn scope() -> Scope {
    Scope {
        kind: kind(),
        namespace: None,
        name: None,
        node: None,
        fields: Vec::new(),
    }
}

/// A binding that can run, and its policies.
pub(crate) struct Ready {
    pub(crate) binding: Binding,
    pub(crate) policies: Vec<(Arc<Policy>, Arc<[u8]>)>,
}

/// The result of loading a binding.
pub(crate) struct Loaded {
    pub(crate) name: String,
    serial: u64,
    result: Result<Ready, Problem>,
}

/// A message about bindings for the event loop.
pub(crate) enum Message {
    /// An event of the watch for bindings.
    Watched(WatchEvent),
    /// The policies of a binding are loaded, or loading failed.
    Loaded(Box<Loaded>),
    /// It is time to check whether policy files were replaced.
    FilesMayHaveChanged,
    /// The write of an Event has ended.
    EventWritten {
        /// The tenant queue whose Event it was.
        tenant_queue: Arc<str>,
        /// When it began.
        began: Now,
        /// Why it was not written.
        failure: Option<Code>,
    },
    /// The write of a binding's status has ended.
    StatusWritten {
        /// The name of the binding.
        binding: String,
        /// Whether it was written, or why not.
        result: Result<(), Failure>,
    },
}

/// The reason why a binding is not loaded.
struct Problem {
    /// The reason of the condition `Loaded`.
    reason: &'static str,
    words: String,
    /// When loading is tried again even though nothing changed.
    again: Option<Instant>,
}

impl Problem {
    fn new(words: String) -> Self {
        Problem {
            reason: "CannotLoad",
            words,
            again: None,
        }
    }
}

/// A cloud does not have what policies need.
#[derive(Debug, thiserror::Error)]
#[error("spec.cloud: {policy} needs {}, which the cloud {cloud} does not have", .missing.join(", "))]
struct Incompatible {
    policy: String,
    missing: Vec<String>,
    cloud: String,
}

/// The bindings of the cluster.
pub(crate) struct Bindings {
    cluster: Arc<Cluster>,
    policies: Arc<Policies>,
    clouds: Arc<Clouds>,
    sender: mpsc::Sender<Message>,
    selection: Selection,
    known: BTreeMap<String, Known>,
    /// The names of the bindings that are being loaded. Only one load per name runs at a time, even if the
    /// binding changes or goes meanwhile.
    busy: BTreeSet<String>,
    /// The names of the bindings whose status is being written. Only one write per name runs at a time, so that an older
    /// status never replaces a newer one.
    writing: BTreeSet<String>,
    serial: u64,
    /// Whether the watch has listed. Before that it is not known which bindings there are.
    listed: bool,
}

struct Known {
    object: Object,
    /// What the object says, read once; `None` if it cannot be read, which loading the binding reports.
    spec: Option<BindingSpec>,
    /// The number of the newest attempt to load the binding. Results of older attempts are dropped.
    serial: u64,
    loading: bool,
    problem: Option<Problem>,
    /// The loaded policies, as the status shows them.
    running: Value,
    made_of: MadeOf,
    /// The status that this host wrote last, or tried to write.
    status: Option<Value>,
    stored: Stored,
}

/// Whether the cluster has the status of a binding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stored {
    /// It is stored, or being written.
    Yes,
    /// This host has not written it since it holds the lease.
    #[default]
    No,
    /// So many writes in a row failed. The next one may begin at this time.
    Failed { times: u32, again: Boot },
}

impl Stored {
    /// The state after one more write failed.
    fn failed(self, now: Boot) -> Self {
        let times = match self {
            Stored::Failed { times, .. } => times.saturating_add(1),
            Stored::Yes | Stored::No => 1,
        };
        let wait = REWRITE_AFTER.saturating_mul(1 << (times - 1).min(16));
        Stored::Failed {
            times,
            again: now + wait.min(REWRITE_WITHIN),
        }
    }
}

impl Bindings {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        policies: Arc<Policies>,
        clouds: Arc<Clouds>,
        sender: mpsc::Sender<Message>,
        selection: Selection,
    ) -> Self {
        Bindings {
            cluster,
            policies,
            clouds,
            sender,
            selection,
            known: BTreeMap::new(),
            busy: BTreeSet::new(),
            writing: BTreeSet::new(),
            serial: 0,
            listed: false,
        }
    }

    /// Sends `FilesMayHaveChanged` once a second.
    pub(crate) fn watch_files(&self) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(LOOK_EVERY);
            loop {
                tick.tick().await;
                if sender.send(Message::FilesMayHaveChanged).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Takes in an event of the watch for bindings. Returns the names of bindings that are gone.
    pub(crate) fn observe(&mut self, event: WatchEvent) -> Vec<String> {
        let mut gone = Vec::new();
        match event {
            WatchEvent::Applied(object) if self.selection.takes(&object) => self.seen(object),
            // What is not for this host any more is gone for it.
            WatchEvent::Applied(object) => gone.push(object.name().to_owned()),
            WatchEvent::Deleted(object) => gone.push(object.name().to_owned()),
            WatchEvent::Listed { mut objects, .. } => {
                objects.retain(|object| self.selection.takes(object));
                self.listed = true;
                gone.extend(
                    self.known
                        .keys()
                        .filter(|n| !objects.iter().any(|o| o.name() == *n))
                        .cloned(),
                );
                objects.into_iter().for_each(|object| self.seen(object));
            }
            WatchEvent::Failed(message) => tracing::warn!(message, "the watch of bindings failed"),
        }
        gone.retain(|name| self.known.remove(name).is_some());
        gone
    }

    fn seen(&mut self, object: Object) {
        let name = object.name().to_owned();
        let same = self.known.get(&name).is_some_and(|known| {
            known.object.uid() == object.uid() && known.object.text_at("spec") == object.text_at("spec")
        });
        match self.known.get_mut(&name) {
            Some(known) if same => known.object = object,
            Some(known) => {
                if known.object.uid() != object.uid() {
                    // The status of another object of this name says nothing of this one.
                    (known.status, known.stored) = (None, Stored::No);
                }
                (known.spec, known.object) = (spec_of(&object), object);
                self.load(&name);
            }
            None => {
                let known = Known {
                    spec: spec_of(&object),
                    object,
                    serial: 0,
                    loading: false,
                    problem: None,
                    running: Value::Null,
                    made_of: MadeOf::default(),
                    status: None,
                    stored: Stored::No,
                };
                self.known.insert(name.clone(), known);
                self.load(&name);
            }
        }
    }

    /// Reloads the bindings whose policy files were replaced or whose connection has changed, and those whose
    /// earlier load failed and is due again.
    pub(crate) fn reload_changed(&mut self) {
        let now = Instant::now();
        let changed: Vec<String> = self
            .known
            .iter()
            .filter(|(_, known)| !known.loading)
            .filter(|(_, known)| {
                let again = known.problem.as_ref().and_then(|problem| problem.again);
                again.is_some_and(|again| again <= now)
                    || known.made_of != made_of(&self.policies, &self.clouds, known.spec.as_ref())
            })
            .map(|(name, _)| name.clone())
            .collect();
        changed.iter().for_each(|name| self.load(name));
    }

    fn load(&mut self, name: &str) {
        self.serial += 1;
        if let Some(known) = self.known.get_mut(name) {
            (known.serial, known.loading) = (self.serial, true);
            self.start(name);
        }
    }

    /// Starts loading a binding as it stands. If an older state of it is being loaded, that ends first.
    fn start(&mut self, name: &str) {
        let Some(known) = self.known.get_mut(name).filter(|_| !self.busy.contains(name)) else {
            return;
        };
        known.made_of = made_of(&self.policies, &self.clouds, known.spec.as_ref());
        let (policies, clouds, sender) = (self.policies.clone(), self.clouds.clone(), self.sender.clone());
        let (name, object, serial) = (name.to_owned(), known.object.clone(), known.serial);
        self.busy.insert(name.clone());
        let (cluster, selection) = (self.cluster.clone(), self.selection.clone());
        tokio::spawn(async move {
            let load = async {
                prepare(&clouds, &object).await?;
                let loading = tokio::task::spawn_blocking(move || load_guarded(&policies, &clouds, &object));
                let stopped = |e| Err(Problem::new(format!("loading was stopped: {e}")));
                let ready = loading.await.unwrap_or_else(stopped)?;
                fits_the_cluster(&cluster, &selection, ready).await
            };
            let result = load.await;
            let loaded = Loaded { name, serial, result };
            let _ = sender.send(Message::Loaded(Box::new(loaded))).await;
        });
    }

    /// Takes in the result of loading a binding. `None` if the binding has changed since that load began, or does not
    /// load for the same reason as before.
    pub(crate) fn loaded(&mut self, loaded: Loaded) -> Option<Result<Ready, String>> {
        self.busy.remove(&loaded.name);
        let known = self.known.get_mut(&loaded.name)?;
        if known.serial != loaded.serial {
            self.start(&loaded.name);
            return None;
        }
        known.loading = false;
        match loaded.result {
            Ok(ready) => {
                known.problem = None;
                known.running = status::running(&ready);
                Some(Ok(ready))
            }
            Err(problem) => {
                let words = problem.words.clone();
                let before = known.problem.replace(problem);
                let is_news = before.is_none_or(|before| before.words != words);
                is_news.then_some(Err(words))
            }
        }
    }

    /// The reasons why bindings are not loaded, by name.
    pub(crate) fn problems(&self) -> BTreeMap<String, String> {
        self.known
            .iter()
            .filter_map(|(name, known)| Some((name.clone(), known.problem.as_ref()?.words.clone())))
            .collect()
    }

    /// The number of bindings that are not tried again before something changes.
    pub(crate) fn refused(&self) -> usize {
        let problems = self.known.values().filter_map(|known| known.problem.as_ref());
        problems.filter(|problem| problem.again.is_none()).count()
    }

    /// The number of bindings that are being loaded.
    pub(crate) fn loading(&self) -> usize {
        self.known.values().filter(|known| known.loading).count() + usize::from(!self.listed)
    }

    /// The writes for all statuses that changed or whose last write failed. The caller tells [`Bindings::status_written`]
    /// how each ended.
    pub(crate) fn statuses(
        &mut self,
        health: impl Fn(&str) -> Option<Health>,
        now: Now,
    ) -> Vec<(String, Write)> {
        let mut writes = Vec::new();
        for (name, known) in &mut self.known {
            let waits = matches!(known.stored, Stored::Failed { again, .. } if now.boot < again);
            if known.loading || waits || self.writing.contains(name) {
                continue;
            }
            let status = status::status(known, &health(name).unwrap_or_default(), now.unix);
            if known.stored == Stored::Yes && known.status.as_ref() == Some(&status) {
                continue;
            }
            // Only the uid is a precondition. Other writers change other fields of the status, and their
            // writes must not make this one fail.
            let precondition = Precondition {
                uid: known.object.uid().to_owned(),
                resource_version: None,
            };
            let write = Write::Patch {
                object: known.object.reference(),
                subresource: Some("status".into()),
                precondition: Some(precondition),
                patch: json!({"status": &status}),
            };
            known.status = Some(status);
            self.writing.insert(name.clone());
            writes.push((name.clone(), write));
        }
        writes
    }

    /// Takes in the end of a write of a status. Returns how many writes in a row have failed now; `None` if the binding is
    /// gone.
    pub(crate) fn status_written(&mut self, name: &str, is_written: bool, now: Boot) -> Option<u32> {
        self.writing.remove(name);
        let known = self.known.get_mut(name)?;
        known.stored = if is_written {
            Stored::Yes
        } else {
            known.stored.failed(now)
        };
        Some(match known.stored {
            Stored::Failed { times, .. } => times,
            Stored::Yes | Stored::No => 0,
        })
    }

    /// Forgets all statuses that this host wrote. Another holder of the lease may have written its own when this host gets
    /// the lease again.
    pub(crate) fn on_lease_lost(&mut self) {
        for known in self.known.values_mut() {
            (known.status, known.stored) = (None, Stored::No);
        }
    }
}

/// What a binding is made of beside its own object. When it changes, the binding is loaded again.
#[derive(Default, PartialEq)]
struct MadeOf {
    /// The files of the policies.
    files: Vec<Option<Stamp>>,
    /// The connection, and the file of its driver.
    connection: Option<(Value, Option<Stamp>)>,
}

fn made_of(policies: &Policies, clouds: &Clouds, spec: Option<&BindingSpec>) -> MadeOf {
    let Some(spec) = spec else {
        return MadeOf::default();
    };
    let files = sources(&spec.policies).into_iter();
    let cloud = spec.cloud.as_ref().zip(clouds.connections());
    MadeOf {
        files: files.map(|(_, source)| policies.stamp(source)).collect(),
        connection: cloud.and_then(|(cloud, connections)| connections.stamp(&cloud.name)),
    }
}

fn spec_of(object: &Object) -> Option<BindingSpec> {
    serde_json::from_str(object.text_at("spec").unwrap_or("null")).ok()
}

fn sources(policies: &binding::Policies) -> Vec<(Role, &PolicySource)> {
    [
        (Role::Identity, &policies.identity),
        (Role::Lifecycle, &policies.lifecycle),
        (Role::Retry, &policies.retry),
    ]
    .into_iter()
    .filter_map(|(role, source)| Some((role, source.as_ref()?)))
    .collect()
}

/// Builds the crates that a binding, or a patch of one, names. Loading the binding then takes no build time.
pub(crate) fn build(policies: &Policies, object: &Value) {
    let named = object["spec"]["policies"].clone();
    let Ok(named) = serde_json::from_value::<binding::Policies>(named) else {
        return;
    };
    for (_, source) in sources(&named)
        .iter()
        .filter(|(_, source)| source.krate.is_some())
    {
        let _ = policies.load(source);
    }
}

/// Compiles the policies that a binding, or a patch of one, names. Errors are reported when the binding is
/// loaded.
pub(crate) fn compile(policies: &Policies, object: &Value) {
    let named = object["spec"]["policies"].clone();
    let named = serde_json::from_value::<binding::Policies>(named).unwrap_or_default();
    for (_, source) in sources(&named) {
        let _ = policies.load(source);
    }
}

/// Checks that the cluster has what the binding's policies need. If that cannot be read now, the first write
/// will show it.
async fn fits_the_cluster(
    cluster: &Cluster,
    selection: &Selection,
    mut ready: Ready,
) -> Result<Ready, Problem> {
    if let Some(words) = selection.problem(cluster, &ready.binding.spec).await {
        return Err(Problem::new(words));
    }
    ready.binding.namespaces = selection.namespaces.clone();
    let Binding { spec, catalogue, .. } = &ready.binding;
    let crd = match cluster.definition(&spec.governs.kind()).await {
        Ok(crd) => crd,
        Err(failure) => {
            tracing::debug!(binding = ready.binding.name, %failure, "its CRD cannot be looked at");
            None
        }
    };
    let mut policies = ready.binding.policies.values();
    let wrong = crd.and_then(|crd| {
        policies.find_map(|policy| grants::check_definition(spec, catalogue, &policy.manifest, &crd))
    });
    match wrong {
        None => Ok(ready),
        Some(words) => Err(Problem {
            again: Some(Instant::now() + LOOK_AGAIN_EVERY),
            ..Problem::new(words)
        }),
    }
}

/// Holds the connection that a binding names, and looks at what its change has to regard.
async fn prepare(clouds: &Clouds, object: &Object) -> Result<(), Problem> {
    let Some((connections, cloud)) = clouds.connections().zip(object.str_at("spec.cloud.name")) else {
        return Ok(());
    };
    let prepared = connections.prepare(&cloud).await;
    prepared.map_err(|failure| Problem {
        again: Some(Instant::now() + LOOK_AGAIN_EVERY),
        ..Problem::new(format!("spec.cloud: {failure}"))
    })
}

/// Loads a binding and catches panics. A bug that one binding triggers must not stop the others.
fn load_guarded(policies: &Policies, clouds: &Clouds, object: &Object) -> Result<Ready, Problem> {
    let load = || load(policies, clouds, object);
    let loaded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(load));
    loaded
        .unwrap_or_else(|_| bail!("loading failed; this is a bug of Polity"))
        .map_err(|e| Problem {
            reason: if e.is::<Incompatible>() {
                "Incompatible"
            } else {
                "CannotLoad"
            },
            again: match e.downcast_ref::<Later>() {
                Some(later) => Some(later.at),
                None => e.is::<StampInUse>().then(|| Instant::now() + LOOK_AGAIN_EVERY),
            },
            ..Problem::new(format!("{e:#}"))
        })
}

/// Loads all that a binding names, and checks that it fits together.
pub(crate) fn load(policies: &Policies, clouds: &Clouds, object: &Object) -> Result<Ready> {
    let spec = object.at("spec").unwrap_or_default();
    let mut spec: BindingSpec = serde_path_to_error::deserialize(spec).map_err(|e| {
        let path = e.path().to_string();
        anyhow!("spec.{path}: {}", e.into_inner())
    })?;
    if spec.policies.lifecycle.is_none() && spec.policies.identity.is_none() {
        bail!("spec.policies: name a lifecycle policy, an identity policy, or both");
    }
    check_limits(&spec.limits)?;
    spec.limits = within_reason(spec.limits);
    let (mut loaded, mut kept, mut wrong) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (role, source) in sources(&spec.policies) {
        match load_policy(policies, role, source) {
            Ok((policy, code)) => {
                loaded.insert(role, policy);
                kept.push(code);
            }
            // It is loaded again later, and the others with it.
            Err(e) if e.is::<Later>() => return Err(e),
            Err(e) => wrong.push(format!("{e:#}")),
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("; "));
    }
    // The cloud is opened last: bindings that name a cloud must agree on its configuration, so a binding that
    // cannot run must not fix it for the others.
    let catalogue = match &spec.cloud {
        Some(cloud) => clouds.open(cloud).context("spec.cloud")?.catalogue().clone(),
        None => Arc::default(),
    };
    let manifests: Vec<&Manifest> = loaded.values().map(|policy| &*policy.manifest).collect();
    fit_together(&spec, &catalogue, &manifests)?;
    let connection = spec.cloud.as_ref().zip(clouds.connections());
    let connection = connection.and_then(|(cloud, connections)| connections.stamp(&cloud.name));
    let binding = Binding {
        name: object.name().to_owned(),
        digest: hex(&Sha256::digest(serde_json::to_vec(&spec)?)).into(),
        created: created(object),
        grants: Grants::compile(&spec.grants).into(),
        spec,
        policies: loaded,
        catalogue,
        connection: connection.map_or("".into(), |(spec, _)| spec.to_string().into()),
        namespaces: None,
    };
    Ok(Ready {
        binding,
        policies: kept,
    })
}

/// A policy as core knows it, with its code and bytes.
type WithCode = (LoadedPolicy, (Arc<Policy>, Arc<[u8]>));

/// Loads the policy of a role, and checks its manifest and its configuration.
fn load_policy(policies: &Policies, role: Role, source: &PolicySource) -> Result<WithCode> {
    let at = || format!("spec.policies.{}", role.as_str());
    let (policy, bytes) = policies.load(source).with_context(at)?;
    let manifest = policy.manifest().clone();
    if manifest.role != role {
        bail!(
            "{}: {} is a policy for the role {}",
            at(),
            manifest.name,
            manifest.role.as_str()
        );
    }
    for (what, text) in [("name", &manifest.name), ("version", &manifest.version)] {
        if text.len() > NAME {
            let bytes = text.len();
            bail!(
                "{}: describe: {what} has {bytes} bytes; the limit is {NAME}",
                at()
            );
        }
    }
    crds::carried(&manifest).map_err(|why| anyhow!("{}: {}: {why}", at(), manifest.name))?;
    let config = configuration(&manifest, source.configuration.as_ref())
        .with_context(|| format!("{}.configuration", at()))?;
    let loaded = LoadedPolicy {
        id: policy.id().clone(),
        manifest,
        config: config.to_string().into(),
    };
    Ok((loaded, (policy, bytes)))
}

/// Checks that the policies of a binding, its grants and its cloud fit together.
fn fit_together(spec: &BindingSpec, catalogue: &Catalogue, manifests: &[&Manifest]) -> Result<()> {
    let mut wrong = Vec::new();
    for (index, manifest) in manifests.iter().enumerate() {
        wrong.extend(grants::check_load(spec, catalogue, manifest, &manifests[..index]));
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("; "));
    }
    let Some(cloud) = &spec.cloud else {
        return Ok(());
    };
    for manifest in manifests {
        let missing: Vec<String> = catalogue.missing(&manifest.needs).map(str::to_owned).collect();
        if !missing.is_empty() {
            let (policy, cloud) = (manifest.name.clone(), cloud.name.clone());
            bail!(Incompatible {
                policy,
                missing,
                cloud
            });
        }
    }
    Ok(())
}

/// Refuses limits of zero, limits that make a recording unreadable, and waits that contradict each other. A limit of
/// zero would block this binding for ever; zero for `passesPerTenant` would block other bindings too.
fn check_limits(limits: &Limits) -> Result<()> {
    let bounds = [
        ("stepFuel", limits.step_fuel),
        ("passFuel", limits.pass_fuel),
        ("memory", limits.memory),
        ("stepWall", millis(limits.step_wall)),
        ("steps", limits.steps.into()),
        ("entries", limits.entries.into()),
        ("journal", limits.journal),
        ("answer", limits.answer),
        ("output", limits.output),
        ("passesPerTenant", limits.passes_per_tenant.into()),
        ("burst", limits.burst.into()),
        ("dependencies", limits.dependencies.into()),
        ("cloudCalls", limits.cloud_calls.into()),
        ("longestWait", millis(limits.longest_wait)),
    ];
    if let Some((name, _)) = bounds.iter().find(|(_, bound)| *bound == 0) {
        bail!("spec.limits.{name}: 0 would stop every pass; use 1 or more");
    }
    for (name, bound) in [("journal", limits.journal), ("output", limits.output)] {
        if bound > RECORDED {
            bail!(
                "spec.limits.{name}: the recording of a pass has no room for {bound} bytes; use {RECORDED} or less"
            );
        }
    }
    let (shortest, longest) = (limits.shortest_wait, limits.longest_wait);
    if shortest > longest {
        let (shortest, longest) = (millis(shortest), millis(longest));
        bail!(
            "spec.limits.shortestWait: {shortest} ms is more than longestWait ({longest} ms); lower shortestWait or raise longestWait"
        );
    }
    Ok(())
}

/// Larger limits count as this one: thousands of years in milliseconds, and more bytes and instructions than
/// any machine has. Sums and products with such limits do not overflow.
const REASON: u64 = 1 << 48;

fn within_reason(mut limits: Limits) -> Limits {
    for limit in [
        &mut limits.step_fuel,
        &mut limits.pass_fuel,
        &mut limits.memory,
        &mut limits.answer,
    ] {
        *limit = (*limit).min(REASON);
    }
    for length in [
        &mut limits.step_wall,
        &mut limits.refill,
        &mut limits.shortest_wait,
        &mut limits.longest_wait,
    ] {
        *length = (*length).min(Duration::from_millis(REASON));
    }
    limits
}

/// The creation time as a number that sorts: Kubernetes gives it in seconds, in fourteen digits. Objects of
/// the same second are sorted by name.
fn created(object: &Object) -> u64 {
    let text = object.str_at("metadata.creationTimestamp");
    text.unwrap_or_default()
        .bytes()
        .filter(u8::is_ascii_digit)
        .take(14)
        .fold(0, |n, digit| n * 10 + u64::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_whose_write_fails_again_and_again_is_written_more_and_more_seldom() {
        let now = Boot(1_000);
        let mut stored = Stored::No;
        let mut waits = Vec::new();
        for _ in 0..40 {
            stored = stored.failed(now);
            if let Stored::Failed { again, .. } = stored {
                waits.push((again - now).as_secs());
            }
        }
        assert_eq!(waits[..6], [2, 4, 8, 16, 32, 60]);
        assert_eq!(waits.last(), Some(&60));
        assert_eq!(
            Stored::Yes.failed(now),
            Stored::No.failed(now),
            "a success ends the row"
        );
    }

    #[test]
    fn a_limit_with_which_recordings_could_not_be_read_is_refused() {
        let at_most = Limits {
            journal: RECORDED,
            output: RECORDED,
            ..Limits::default()
        };
        check_limits(&at_most).expect("as much as a recording takes");
        let more = Limits {
            journal: RECORDED + 1,
            ..Limits::default()
        };
        let refused = check_limits(&more).expect_err("more than a recording takes");
        assert_eq!(
            refused.to_string(),
            "spec.limits.journal: the recording of a pass has no room for 33554433 bytes; use 33554432 or less"
        );
    }
}
