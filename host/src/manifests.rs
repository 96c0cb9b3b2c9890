//! Reads and applies the manifest files that `run` is given.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use polity_cluster::Cluster;
use polity_core::contract::Code;
use polity_core::object::Object;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::applied::Applied;
use crate::binding_objects::{is_binding, standing};
use crate::bindings::{self, Ready};
use crate::clouds::Clouds;
use crate::connections;
use crate::crds::{self, Brought};
use crate::install::{Target, apply, cannot_apply, install, install_own, name};
use crate::policies::Policies;
use crate::private::folder_of;
use crate::sim::Scenario;
use crate::single_flight::Later;

/// The content of the given files.
#[derive(Default)]
pub struct Manifests {
    /// Bindings.
    pub bindings: Vec<Value>,
    /// All other objects, in the order of the files.
    pub objects: Vec<Value>,
    /// The scenario, if there is one.
    pub scenario: Option<Scenario>,
    /// The folder from which relative paths in bindings start: that of the first argument.
    pub folder: Option<PathBuf>,
}

impl Manifests {
    /// Reads files, and in folders all `.yaml`, `.yml` and `.json` files in the order of their names.
    pub fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut all = Manifests::default();
        for path in paths {
            let folder: &Path = if path.is_dir() { path } else { folder_of(path) };
            all.folder.get_or_insert(folder.to_owned());
            for file in files(path)? {
                all.read_file(&file)?;
            }
        }
        Ok(all)
    }

    fn read_file(&mut self, file: &Path) -> Result<()> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        for (number, document) in serde_saphyr::read::<_, Value>(&mut text.as_bytes()).enumerate() {
            let at = || format!("{}, document {}", file.display(), number + 1);
            let value = document.with_context(at)?;
            if value.is_null() {
                continue;
            }
            if is_scenario(&value) {
                let scenario = Scenario::read(value, &text).with_context(at)?;
                if self.scenario.replace(scenario).is_some() {
                    bail!("{}: this is a second scenario; give only one", at());
                }
            } else if is_binding(&value) {
                self.bindings.push(value);
            } else if value["kind"].is_string() && value["metadata"]["name"].is_string() {
                self.objects.push(value);
            } else {
                bail!(
                    "{}: not an object: it needs apiVersion, kind and metadata.name",
                    at()
                );
            }
        }
        Ok(())
    }
}

impl Manifests {
    /// Checks that all manifests can run against a cluster. `builds` says whether policy crates may be built.
    ///
    /// # Errors
    /// What prevents it, and what to do about it. Nothing has been built or applied yet.
    pub fn check_for_a_cluster(&self, builds: bool) -> Result<()> {
        if let Some(speed) = self.scenario.as_ref().and_then(Scenario::speed) {
            bail!(
                "the scenario's `speed: {speed}` is for standalone, because a cluster has its own time: name only the \
                 other files, or remove the speed from the scenario"
            );
        }
        let later = self.scenario.iter().flat_map(Scenario::bindings);
        for binding in self.bindings.iter().chain(later).filter(|_| !builds) {
            let roles = binding["spec"]["policies"].as_object().into_iter().flatten();
            if let Some(krate) = roles.filter_map(|(_, policy)| policy["crate"].as_str()).next() {
                bail!(
                    "binding {} names the policy crate {krate}: add --build-crates to have it built here, or name a \
                     ready wasm file with `file` in place of `crate`",
                    name(binding)
                );
            }
        }
        Ok(())
    }

    /// Builds the crates that bindings name, now or later in the scenario. A build error is reported when the
    /// binding is applied.
    pub async fn build(&self, policies: &Arc<Policies>) {
        let later = self.scenario.iter().flat_map(Scenario::bindings);
        for binding in self.bindings.iter().chain(later) {
            let (policies, binding) = (policies.clone(), binding.clone());
            let built = tokio::task::spawn_blocking(move || bindings::build(&policies, &binding));
            // If this panics, the same panic comes again when the binding is loaded, and is reported there.
            let _ = built.await;
        }
    }

    /// Compiles the policies that the scenario brings later, and those of the bindings that stand in the
    /// cluster. Compiling takes real time, which a fast clock would turn into hours. Errors are reported when
    /// the policy is loaded.
    pub(crate) async fn compile(&self, cluster: &Cluster, policies: &Arc<Policies>) {
        let standing = standing(cluster).await.unwrap_or_default();
        let later = self.scenario.iter().flat_map(Scenario::bindings);
        let compile = |binding: &Value| {
            let (policies, binding) = (policies.clone(), binding.clone());
            tokio::task::spawn_blocking(move || bindings::compile(&policies, &binding))
        };
        let all = standing.iter().chain(later).map(compile);
        futures::future::join_all(all).await;
    }

    /// Applies everything but the scenario. CRDs come first, those of the bindings' policies among them. A
    /// problem with one of those is reported on its binding, and everything else is still applied.
    pub async fn apply(
        &self,
        cluster: &Arc<Cluster>,
        policies: &Arc<Policies>,
        clouds: &Arc<Clouds>,
        target: Target,
        report: &(dyn Fn(&str) + Sync),
    ) -> Result<()> {
        let mut before = Applied::default();
        self.apply_beside(&mut before, cluster, policies, clouds, target, report)
            .await
    }

    /// Applies everything but the scenario and the manifests that were applied before. Newly applied
    /// manifests are noted. Definitions are always brought up to date.
    pub(crate) async fn apply_beside(
        &self,
        before: &mut Applied,
        cluster: &Arc<Cluster>,
        policies: &Arc<Policies>,
        clouds: &Arc<Clouds>,
        target: Target,
        report: &(dyn Fn(&str) + Sync),
    ) -> Result<()> {
        let mut brought = Vec::new();
        let mut problems = Problems::default();
        let mut unloaded = Vec::new();
        self.define_connections(clouds);
        for (binding, loaded) in self.bindings.iter().zip(self.load(policies, clouds).await?) {
            // A binding that does not load is applied all the same: its status then shows the problem.
            match loaded {
                Ok(ready) => {
                    let (let_in, left_out) = crds::brought(&ready.binding);
                    brought.extend(let_in);
                    for left_out in left_out {
                        problems.add(name(binding), left_out.kind, left_out.why);
                    }
                }
                Err(e) => {
                    problems.unserved.extend(mentioned(binding));
                    unloaded.push(format!("binding {} is not loaded: {e:#}", name(binding)));
                    if let Some(later) = e.downcast_ref::<Later>() {
                        let (cluster, policies, clouds) = (cluster.clone(), policies.clone(), clouds.clone());
                        let binding = binding.clone();
                        tokio::spawn(follow(cluster, policies, clouds, binding, target, later.at));
                    }
                }
            }
        }
        let applied = self
            .apply_loaded(before, brought, problems, cluster, target, report)
            .await;
        // The host says it when it loads the bindings, unless it does not start.
        if applied.is_err() {
            unloaded.iter().for_each(|why| report(why));
        }
        applied
    }

    /// Applies everything but the scenario, after the bindings were loaded for the definitions that they bring.
    async fn apply_loaded(
        &self,
        before: &mut Applied,
        mut brought: Vec<Brought>,
        mut problems: Problems,
        cluster: &Arc<Cluster>,
        target: Target,
        report: &(dyn Fn(&str) + Sync),
    ) -> Result<()> {
        // Definitions given by the person who runs the host come before those of policies, which find them
        // standing.
        let own = [crds::policy_binding(), crds::cloud_connection()];
        let own = own
            .iter()
            .filter(|_| target == Target::Standalone || !self.bindings.is_empty());
        let given = self.objects.iter().filter(|object| rank(object) == CRD);
        for definition in own.chain(given) {
            install_own(cluster, definition, target, report).await?;
        }
        // The definition of the binding that governs a kind comes before those of bindings that are only
        // granted access to it.
        brought.sort_by_key(|one| !one.governed);
        for one in &brought {
            let kind = crds::defined(&one.definition);
            if !one.governed && problems.refused.contains(&kind) {
                continue;
            }
            if let Err(problem) = install(cluster, one, target).await {
                report(&format!("binding {}: {problem}", one.binding));
                problems.refused.insert(kind.clone());
                problems.add(&one.binding, kind, problem);
            }
        }
        self.apply_objects(before, cluster, &problems, report).await
    }

    /// Bindings are loaded before the connections that they name are applied.
    fn define_connections(&self, clouds: &Clouds) {
        let Some(connections) = clouds.connections() else {
            return;
        };
        for object in self
            .objects
            .iter()
            .filter(|object| connections::is_connection(object))
        {
            connections.define(name(object), &object["spec"]);
        }
    }

    async fn apply_objects(
        &self,
        before: &mut Applied,
        cluster: &Cluster,
        problems: &Problems,
        report: &(dyn Fn(&str) + Sync),
    ) -> Result<()> {
        let of = |wanted| self.objects.iter().filter(move |object| rank(object) == wanted);
        let known = before.clone();
        let is_new = |object: &&Value| !known.has(object);
        let mut unchanged: Vec<&Value> = self.objects.iter().filter(|object| known.has(object)).collect();
        for object in of(NAMESPACE).filter(is_new) {
            apply(cluster, object).await?;
            before.note(object);
        }
        for binding in &self.bindings {
            let none = Vec::new();
            let problems = problems.of_crds.get(name(binding)).unwrap_or(&none);
            let fresh = crds::with_problems(binding, problems, None);
            if known.has(&fresh) {
                unchanged.push(binding);
                continue;
            }
            let merged = |standing: &Value| Some(crds::with_problems(binding, problems, Some(standing)));
            let applied = cluster.apply_where(&fresh, merged).await;
            applied.map_err(|failure| cannot_apply(binding, &failure))?;
            before.note(&fresh);
        }
        for object in of(REST).filter(is_new) {
            match cluster.apply(object).await {
                Err(failure) if failure.code == Code::Unimplemented && problems.explain(object) => {
                    report(&format!("{:#}", cannot_apply(object, &failure)));
                }
                applied => {
                    applied.map_err(|failure| cannot_apply(object, &failure))?;
                    before.note(object);
                }
            }
        }
        report_unchanged(&unchanged, cluster, report).await;
        Ok(())
    }
}

/// Says how many manifests are not applied again, and names those whose object is gone.
async fn report_unchanged(unchanged: &[&Value], cluster: &Cluster, report: &(dyn Fn(&str) + Sync)) {
    if unchanged.is_empty() {
        return;
    }
    let mut gone = Vec::new();
    for manifest in unchanged {
        // A failure to look is no reason to stop: a binding whose kind is not served says so itself.
        if cluster.exists(manifest).await == Ok(false) {
            let kind = manifest["kind"].as_str().unwrap_or_default();
            gone.push(format!("{kind} {}", name(manifest)));
        }
    }
    let count = unchanged.len();
    report(&format!(
        "{count} manifests did not change since they were applied: they are not applied again"
    ));
    if !gone.is_empty() {
        let more = gone.len().saturating_sub(NAMED);
        gone.truncate(NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let gone = gone.join(", ");
        report(&format!(
            "deleted since they were applied, so they stay away: {gone}{more} (change a manifest to have its object back)"
        ));
    }
}

/// The most objects that are named because they are gone.
const NAMED: usize = 20;

/// Whether a manifest is a scenario. A scenario is no object of the cluster.
fn is_scenario(manifest: &Value) -> bool {
    manifest["apiVersion"] == "polity.dev/v1alpha1" && manifest["kind"] == "Scenario"
}

/// Problems with bindings and their definitions. They do not keep other manifests from being applied.
#[derive(Default)]
struct Problems {
    /// The problems with each binding's definitions.
    of_crds: BTreeMap<String, Vec<String>>,
    /// Kinds, as group and kind, whose governing binding brought a definition that was refused.
    refused: BTreeSet<(String, String)>,
    /// Kinds that may not be served because of a problem.
    unserved: BTreeSet<(String, String)>,
}

impl Problems {
    fn add(&mut self, binding: &str, kind: (String, String), why: String) {
        self.of_crds.entry(binding.to_owned()).or_default().push(why);
        self.unserved.insert(kind);
    }

    /// Whether the problems may be the reason why the kind of an object is not served.
    fn explain(&self, object: &Value) -> bool {
        self.unserved.contains(&group_kind(object))
    }
}

/// The kinds that a binding names. It is used for bindings that cannot be parsed.
fn mentioned(binding: &Value) -> impl Iterator<Item = (String, String)> {
    let spec = &binding["spec"];
    let grants = spec["grants"].as_array().into_iter().flatten();
    let granted = grants.filter_map(Value::as_object).flat_map(Map::values);
    [&spec["governs"]].into_iter().chain(granted).map(group_kind)
}

/// The group and the kind of a value with `apiVersion` and `kind`.
fn group_kind(of: &Value) -> (String, String) {
    let group = of["apiVersion"]
        .as_str()
        .and_then(|version| version.split_once('/'));
    let kind = of["kind"].as_str().unwrap_or_default();
    (group.map_or("", |(group, _)| group).to_owned(), kind.to_owned())
}

impl Manifests {
    /// Loads all bindings at the same time, so that none waits for another. A load that is stopped is not
    /// tried again here.
    async fn load(&self, policies: &Arc<Policies>, clouds: &Arc<Clouds>) -> Result<Vec<Result<Ready>>> {
        let loads = self
            .bindings
            .iter()
            .map(|binding| load(policies, clouds, binding));
        futures::future::try_join_all(loads).await
    }
}

/// Loads a binding on a thread for blocking work. The outer error is a bug of Polity.
async fn load(policies: &Arc<Policies>, clouds: &Arc<Clouds>, binding: &Value) -> Result<Result<Ready>> {
    let (policies, clouds, object) = (policies.clone(), clouds.clone(), Object::new(binding.clone()));
    Ok(tokio::task::spawn_blocking(move || bindings::load(&policies, &clouds, &object)).await?)
}

/// Loads a binding again whose load was stopped, until it ends, and then applies the definitions of its
/// policies.
async fn follow(
    cluster: Arc<Cluster>,
    policies: Arc<Policies>,
    clouds: Arc<Clouds>,
    binding: Value,
    target: Target,
    mut at: Instant,
) {
    loop {
        tokio::time::sleep_until(at).await;
        match load(&policies, &clouds, &binding).await {
            Ok(Ok(ready)) => {
                for one in crds::brought(&ready.binding).0 {
                    if let Err(problem) = install(&cluster, &one, target).await {
                        tracing::warn!(binding = one.binding, problem, "a definition is not installed");
                    }
                }
                return;
            }
            Ok(Err(e)) => match e.downcast_ref::<Later>() {
                Some(later) => at = later.at,
                None => return,
            },
            Err(_) => return,
        }
    }
}

/// The order in which objects are applied.
const CRD: u8 = 0;
const NAMESPACE: u8 = 1;
const REST: u8 = 2;

fn rank(object: &Value) -> u8 {
    match object["kind"].as_str() {
        _ if crds::is_crd(object) => CRD,
        Some("Namespace") => NAMESPACE,
        _ => REST,
    }
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries =
        std::fs::read_dir(path).with_context(|| format!("cannot read the folder {}", path.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| {
            file.extension()
                .is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
        })
        .collect();
    files.sort();
    if files.is_empty() {
        bail!("{} holds no manifests (.yaml, .yml, .json)", path.display())
    } else {
        Ok(files)
    }
}
