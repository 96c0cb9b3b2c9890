//! Judges recorded passes: by another version of a policy, or by the versions that decided them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use polity_core::binding::{BindingSpec, LoadedPolicy};
use polity_core::contract::{Json, Manifest, Role};
use polity_core::record::{PassRecord, RetryRecord, RoleRecord};
use polity_sandbox::Policy;
use serde_json::{Value, json};

use super::super::policy;
use super::super::recorded::cut_limits;
use super::{FailOn, Replay, report};
use crate::configuration::configuration;
use crate::judge::{Candidate, Groups, Judged};
use crate::policies::Policies;
use crate::progress::{Format, say};
use crate::recording::{Line, Recording, Unread};

/// So many lines, or lines of so many bytes, are handed to a thread at once.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 1 << 20;
/// The most versions and bindings that are kept. A recording may have one for each pass.
const KNOWN: usize = 32;
/// The most bytes of a configuration with which one is kept.
const CONFIGURATION: usize = 1 << 20;
/// The most bindings that are named.
const TOLD: usize = 16;
/// How often people are told how far the work is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Judges the passes of the recording.
pub(super) fn run(replay: &Replay, format: Format) -> Result<ExitCode> {
    let (folder, recording) = replay.recorded.open(&replay.sessions)?;
    let manifests = recording.manifests()?;
    let judges = Judges {
        by: match &replay.policy {
            Some(path) => By::Chosen(chosen(path, replay, format)?),
            None => By::Recorded(policy::in_folder(&folder.join("policies"), format)?),
        },
        folder: folder.clone(),
        recording,
        manifests,
        format,
        known: Mutex::default(),
        cut: Mutex::default(),
    };
    let judged = judges.all(replay.sessions.all)?;
    replay.sessions.warn_of(format, &folder, &judged.unread);
    if judged.groups.passes() == 0 {
        return judges.nothing(&judged);
    }
    let cut = judges.cut.lock().unwrap_or_else(PoisonError::into_inner);
    report::print(format, &judges.title(), &judged.groups, &judges.edges(), &cut);
    cut.iter().for_each(|cut| say(format, cut));
    say(format, &judged.speed());
    if judges.chosen().is_some() && judged.of_old > 0 {
        let message = format!(
            "{} of the passes were recorded by an older version of polity, which kept no bindings: they are judged with the \
             configuration of then, in place of the defaults of this version",
            judged.of_old
        );
        say(format, &message);
    }
    let groups = &judged.groups;
    let is_found = |what: &FailOn| match what {
        FailOn::Differs => groups.differs > 0,
        FailOn::WouldAsk => groups.would_ask > 0,
        FailOn::Fault => groups.faults > 0,
        FailOn::Unfinished => !groups.unfinished.is_empty(),
    };
    let fails = match replay.policy {
        Some(_) => replay.fail_on.iter().any(is_found),
        None => groups.differs + groups.would_ask + groups.faults > 0,
    };
    Ok(ExitCode::from(u8::from(fails)))
}

/// The version that people want to have judged.
struct Chosen {
    policy: Arc<Policy>,
    /// In place of the configurations in the bindings.
    configuration: Option<Value>,
    binding: Option<String>,
}

fn chosen(path: &Path, replay: &Replay, format: Format) -> Result<Chosen> {
    let given = replay.configuration.as_deref().map(read).transpose()?;
    let (policy, _) = policy::load(path, format)?;
    if let (Some(given), Some(path)) = (&given, &replay.configuration) {
        let manifest = policy.manifest();
        configuration(manifest, Some(given))
            .with_context(|| format!("{} refuses {}", manifest.name, path.display()))?;
    }
    Ok(Chosen {
        policy,
        configuration: given,
        binding: replay.binding.clone(),
    })
}

fn read(path: &Path) -> Result<Value> {
    let at = || format!("cannot read {}", path.display());
    let text = std::fs::read_to_string(path).with_context(at)?;
    serde_saphyr::from_str(&text).with_context(at)
}

/// The versions that judge.
enum By {
    Chosen(Chosen),
    /// Those that decided, from the folder of the recording.
    Recorded(Policies),
}

/// Who judges.
struct Judges {
    by: By,
    folder: PathBuf,
    recording: Recording,
    manifests: BTreeMap<String, Manifest>,
    format: Format,
    known: Mutex<BTreeMap<Under, Arc<Candidate>>>,
    /// What is cut of the limits of bindings, of the first ones.
    cut: Mutex<BTreeSet<String>>,
}

/// A policy under a binding with a configuration, if the binding does not have it.
type Under = (String, Json, Option<Json>);

/// What came of all passes.
#[derive(Default)]
struct Judgement {
    groups: Groups,
    unread: Unread,
    /// The passes without a recorded binding.
    of_old: u64,
    /// The bindings that were seen, each with the kind and the policies of its passes.
    bindings: BTreeSet<(String, String, Role, String)>,
    read: Duration,
    judged: Duration,
    took: Duration,
    threads: usize,
}

impl Judges {
    /// The version that people want to have judged, if they named one.
    fn chosen(&self) -> Option<&Chosen> {
        match &self.by {
            By::Chosen(chosen) => Some(chosen),
            By::Recorded(_) => None,
        }
    }

    /// Judges all passes, on all processors.
    fn all(&self, all_sessions: bool) -> Result<Judgement> {
        let began = Instant::now();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (sender, lines) = sync_channel::<Vec<Line>>(2 * threads);
        let lines = Mutex::new(lines);
        let mut all = Judgement {
            threads,
            ..Judgement::default()
        };
        std::thread::scope(|scope| {
            let judging: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.some(&lines))).collect();
            let (mut batch, mut bytes, mut told, mut count) = (Vec::new(), 0, Instant::now(), 0_u64);
            let unread = self.recording.lines(all_sessions, |line| {
                bytes += line.bytes();
                batch.push(line);
                count += 1;
                if batch.len() >= BATCH || bytes >= BATCH_BYTES {
                    bytes = 0;
                    // If a thread has ended, it says why.
                    let _ = sender.send(std::mem::take(&mut batch));
                }
                if told.elapsed() >= TELL_EVERY {
                    told = Instant::now();
                    say(self.format, &format!("{count} passes are read"));
                }
            });
            let _ = sender.send(batch);
            drop(sender);
            for thread in judging {
                let some = thread
                    .join()
                    .map_err(|_| anyhow!("a thread of replay ended; this is a bug of Polity"))??;
                all.add(some);
            }
            all.unread.add(unread?);
            all.groups.not_judged(&all.unread.left_out);
            anyhow::Ok(())
        })?;
        all.took = began.elapsed();
        Ok(all)
    }

    /// Judges lines until there are no more.
    fn some(&self, lines: &Mutex<Receiver<Vec<Line>>>) -> Result<Judgement> {
        let mut some = Judgement::default();
        let next = || lines.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let mut failed = None;
        while let Ok(batch) = next() {
            for line in batch {
                let began = Instant::now();
                let pass = line.pass(&mut some.unread);
                let read = Instant::now();
                some.read += read - began;
                // If one failed, what is left is taken, so that the reader does not wait for ever.
                if let Some(pass) = pass.filter(|_| failed.is_none()) {
                    failed = self.pass(&pass, &mut some).err();
                }
                some.judged += read.elapsed();
            }
        }
        failed.map_or(Ok(some), Err)
    }

    fn pass(&self, pass: &PassRecord, judgement: &mut Judgement) -> Result<()> {
        for role in &pass.roles {
            judgement.saw(pass, role.role, self.name(&role.policy.0));
            if self.judges(pass, role.role, &role.policy.0) {
                let judged = self.role(pass, role)?;
                judgement.count(pass, judged);
            }
        }
        if let Some(retry) = &pass.retry {
            judgement.saw(pass, Role::Retry, self.name(&retry.policy.0));
            if self.judges(pass, Role::Retry, &retry.policy.0) {
                let judged = self.retry(pass, retry)?;
                judgement.count(pass, judged);
            }
        }
        Ok(())
    }

    /// Whether this role of a pass is judged.
    fn judges(&self, pass: &PassRecord, role: Role, recorded: &str) -> bool {
        let Some(candidate) = self.chosen() else {
            return true;
        };
        let manifest = candidate.policy.manifest();
        role == manifest.role
            && match &candidate.binding {
                Some(name) => **name == *pass.key.binding,
                None => self.name(recorded) == manifest.name || manifest.governs.contains(&pass.kind),
            }
    }

    fn role(&self, pass: &PassRecord, role: &RoleRecord) -> Result<Judged> {
        let candidate = self.candidate(pass, role.role, &role.policy.0, &role.config)?;
        Ok(candidate.judge(pass, role, self.chosen().is_none()))
    }

    fn retry(&self, pass: &PassRecord, retry: &RetryRecord) -> Result<Judged> {
        let candidate = self.candidate(pass, Role::Retry, &retry.policy.0, &retry.request.config)?;
        Ok(candidate.judge_retry(pass, retry))
    }

    /// The version that judges a role of a pass.
    fn candidate(
        &self,
        pass: &PassRecord,
        role: Role,
        recorded: &str,
        config: &Json,
    ) -> Result<Arc<Candidate>> {
        let of_pass = pass.binding.is_empty().then(|| config.clone());
        let id = match self.chosen() {
            Some(candidate) => candidate.policy.id().0.to_string(),
            None => recorded.to_owned(),
        };
        let under: Under = (id, pass.binding.clone(), of_pass);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&under) {
            return Ok(known.clone());
        }
        let policy = match &self.by {
            By::Chosen(chosen) => chosen.policy.clone(),
            By::Recorded(policies) => policies.load(&policy::of_digest(recorded))?.0,
        };
        let candidate = Arc::new(self.under(policy, pass, role, config)?);
        if known.len() >= KNOWN {
            known.clear();
        }
        if config.len() <= CONFIGURATION {
            known.insert(under, candidate.clone());
        }
        Ok(candidate)
    }

    /// A policy under the binding of a pass, with the defaults of the policy.
    fn under(&self, policy: Arc<Policy>, pass: &PassRecord, role: Role, config: &Json) -> Result<Candidate> {
        let given = self
            .chosen()
            .and_then(|candidate| candidate.configuration.as_ref());
        let spec = self.recording.binding(&pass.binding)?;
        let manifest = policy.manifest();
        let refused = || {
            format!(
                "{} refuses the configuration of binding {}",
                manifest.name, pass.key.binding
            )
        };
        let config: Json = match (&spec, given) {
            (_, Some(given)) => configuration(manifest, Some(given))?.to_string().into(),
            (Some((spec, _)), None) => {
                let source = spec.policies.source(role);
                let given = source.and_then(|source| source.configuration.as_ref());
                configuration(manifest, given)
                    .with_context(refused)?
                    .to_string()
                    .into()
            }
            (None, None) => config.clone(),
        };
        let (spec, cut) = match spec {
            Some(spec) => spec,
            None => (without_binding(pass)?, Vec::new()),
        };
        let mut told = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        if !cut.is_empty() && told.len() < TOLD {
            told.insert(cut_limits(&pass.key.binding, &cut));
        }
        let loaded = LoadedPolicy {
            id: policy.id().clone(),
            manifest: policy.manifest().clone(),
            config,
        };
        Ok(Candidate::new(policy, loaded, &spec, !cut.is_empty()))
    }

    fn name(&self, digest: &str) -> &str {
        self.manifests
            .get(digest)
            .map_or("", |manifest| manifest.name.as_str())
    }

    /// The meanings of edges, by id.
    fn edges(&self) -> BTreeMap<&str, &str> {
        let own = self
            .chosen()
            .into_iter()
            .flat_map(|candidate| &candidate.policy.manifest().edges);
        let recorded = self.manifests.values().flat_map(|manifest| &manifest.edges);
        recorded
            .chain(own)
            .map(|edge| (&*edge.id, &*edge.meaning))
            .collect()
    }

    fn title(&self) -> String {
        match self.chosen() {
            Some(candidate) => {
                let manifest = candidate.policy.manifest();
                let Manifest { name, version, .. } = &**manifest;
                format!(
                    "{} {name} {version} ({:.12})",
                    manifest.role.as_str(),
                    candidate.policy.id().0
                )
            }
            None => "the recorded policies".to_owned(),
        }
    }

    /// Says that there is nothing to judge, and what there is.
    fn nothing(&self, judgement: &Judgement) -> Result<ExitCode> {
        let there = judgement
            .bindings
            .iter()
            .map(|(binding, kind, role, policy)| format!("{binding} ({} {policy} of {kind})", role.as_str()));
        let there: Vec<String> = there.collect();
        let folder = self.folder.display();
        if there.is_empty() {
            bail!(
                "{folder} has no passes to judge; --all also reads the sessions before the last start of a host"
            );
        }
        bail!(
            "{folder} has no pass of {}; --binding names one of its bindings: {}",
            self.title(),
            there.join(", ")
        )
    }
}

/// The binding of a pass whose recording kept none: its kind, and all defaults.
fn without_binding(pass: &PassRecord) -> Result<BindingSpec> {
    let spec = json!({"governs": pass.kind, "policies": {}});
    serde_json::from_value(spec).context("the pass has no kind")
}

impl Judgement {
    fn saw(&mut self, pass: &PassRecord, role: Role, policy: &str) {
        if self.bindings.len() < TOLD {
            let (binding, kind) = (pass.key.binding.to_string(), pass.kind.kind.clone());
            self.bindings.insert((binding, kind, role, policy.to_owned()));
        }
    }

    fn count(&mut self, pass: &PassRecord, judged: Judged) {
        self.of_old += u64::from(pass.binding.is_empty());
        self.groups.add(pass, judged);
    }

    fn add(&mut self, other: Judgement) {
        self.groups.merge(other.groups);
        self.bindings.extend(other.bindings);
        self.unread.add(other.unread);
        self.of_old += other.of_old;
        self.read += other.read;
        self.judged += other.judged;
    }

    /// How fast it was: for one thread, to read a pass and to judge it, and for all.
    fn speed(&self) -> String {
        let passes = self.groups.passes().max(1);
        let each = |time: Duration| time.as_micros() / u128::from(passes);
        format!(
            "{passes} passes judged in {:.1}s, {:.0} a second on {} threads; reading one took {} µs, judging it {} µs",
            self.took.as_secs_f64(),
            passes as f64 / self.took.as_secs_f64().max(0.001),
            self.threads,
            each(self.read),
            each(self.judged),
        )
    }
}
