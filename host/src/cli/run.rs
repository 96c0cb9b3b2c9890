//! `polity run`: the host, standalone or against a cluster.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use polity_clouds::Millis;
use polity_cluster::Cluster;
use polity_sandbox::Allocation;

use super::connection::Connection;
use super::stopping::{Signals, Stopping};
use super::{LEASE, millis};
use crate::applied::Applied;
use crate::clock::{Clock, Speed};
use crate::clouds::Clouds;
use crate::config::Config;
use crate::data::Data;
use crate::host::{self, Host};
use crate::install::Target;
use crate::manifests::Manifests;
use crate::policies::Policies;
use crate::progress::{Format, Progress, say};
use crate::recording::{self, Recorder};
use crate::secrets::ClusterSecrets;
use crate::settled::{LastOutcomes, Settling};
use crate::sim::{self, Position, Running, Scenario};
use crate::standalone;
use crate::timekeeping::{self, Timekeeper};

/// When `--until-settled` gives up without a scenario that says so: an hour of the host's clock.
const DEADLINE: Millis = Millis::seconds(3_600);

/// Run the host.
///
/// Without --kubeconfig, --context or --in-cluster it runs standalone: with an embedded Kubernetes API and a simulated
/// cloud, so that nothing else is needed. The files given are applied first; bindings and their policies' CRDs too.
#[derive(Debug, Args)]
pub(super) struct Run {
    /// Manifests to apply: files, or folders with .yaml, .yml and .json files. One of them may be a Scenario.
    #[arg(value_name = "DIR|FILE")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    connection: Connection,
    /// Keep here what must outlive the process: the simulated cloud, recordings, and the objects of standalone. A restart
    /// on the same folder goes on: a scenario where it stood, and of the manifests only those are applied that changed.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Serve the embedded API on this loopback port (0: any free one) and write a kubeconfig.
    #[arg(long, value_name = "PORT", help_heading = "Standalone")]
    listen: Option<u16>,
    /// Where the kubeconfig of --listen goes.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "polity.kubeconfig",
        help_heading = "Standalone"
    )]
    write_kubeconfig: PathBuf,
    /// How many times as fast as real time the clock runs; the default is the scenario's, otherwise 1. With `max` it jumps
    /// to whatever comes next when nothing is left to be done before: an hour takes as long as what happens in it.
    #[arg(long, value_name = "N|max", help_heading = "Standalone")]
    speed: Option<Speed>,
    /// Replace CustomResourceDefinitions that stand in the cluster: by those of the files, and those that this host
    /// installed for a binding by those of the binding's policies. Without it what stands is left as it is.
    #[arg(long, help_heading = "Cluster")]
    replace_crds: bool,
    /// The folder that bindings name policy files in; the default is the folder of the first DIR or FILE.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Let bindings name policy crates, which cargo builds. Always allowed in standalone.
    #[arg(long)]
    build_crates: bool,
    /// Exit 0 when every governed object is settled, denied or gone, the scenario has nothing left to do and what it
    /// expects holds; exit 1 at the deadline, saying what is stuck and why.
    #[arg(long)]
    until_settled: bool,
    /// When --until-settled gives up, on the host's clock: `10m`. The default is the scenario's, otherwise 1h.
    #[arg(long, value_name = "DURATION", value_parser = millis)]
    deadline: Option<Millis>,
    /// Record every pass here, and keep all of them. Without it the newest 64 MiB are kept: in the data folder, or in a
    /// temporary one that lasts until the next run.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Where the memory of policies comes from.
    #[arg(long, value_enum, default_value_t)]
    sandbox: Memory,
    #[command(flatten)]
    stopping: Stopping,
}

/// Where the memory of policies comes from.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum Memory {
    /// Allocated for each step: scales with cores.
    #[default]
    OnDemand,
    /// From a pool with guard pages, keeping the compiler's mitigations against Spectre.
    Pooling,
}

impl From<Memory> for Allocation {
    fn from(memory: Memory) -> Self {
        match memory {
            Memory::OnDemand => Allocation::OnDemand,
            Memory::Pooling => Allocation::Pooling,
        }
    }
}

/// A host that runs, and what stands around it.
struct Started {
    clock: Arc<Clock>,
    timekeeper: Option<Timekeeper>,
    /// The embedded API of standalone.
    api: Option<polity_standalone::Api>,
    cluster: Arc<Cluster>,
    clouds: Arc<Clouds>,
    scenario: Option<Scenario>,
    running: Option<Running>,
    ends: Arc<LastOutcomes>,
    host: host::Running,
}

impl Run {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let runtime = match self.speed {
            Some(Speed::Max) => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
            _ => tokio::runtime::Builder::new_multi_thread().enable_all().build()?,
        };
        let code = runtime.block_on(async {
            let mut signals = Signals::catch()?;
            tokio::select! {
                host = self.start(format) => self.until_its_end(host?, &mut signals, format).await,
                () = signals.next() => {
                    say(format, "stopped before it began");
                    Ok(ExitCode::SUCCESS)
                }
            }
        });
        // A policy that is being built or compiled is not waited for.
        runtime.shutdown_background();
        code
    }

    fn is_standalone(&self) -> bool {
        !self.connection.is_given()
    }

    fn target(&self) -> Target {
        match self.is_standalone() {
            true => Target::Standalone,
            false => Target::Cluster {
                replace_crds: self.replace_crds,
            },
        }
    }

    fn speed(&self, scenario: Option<&Scenario>) -> Result<Speed> {
        if !self.is_standalone() {
            return Ok(Speed::REAL);
        }
        let Some(speed) = self.speed else {
            let speed = scenario.and_then(Scenario::speed).map(Speed::times);
            let speed = speed
                .transpose()
                .map_err(|why| anyhow!("the scenario's speed: {why}"));
            return Ok(speed?.unwrap_or(Speed::REAL));
        };
        if speed == Speed::Max && !self.until_settled {
            bail!("--speed max goes with --until-settled: without an end the clock would jump on for ever");
        }
        if speed == Speed::Max && self.listen.is_some() {
            bail!("--speed max does not go with --listen: whoever connects lives in real time");
        }
        Ok(speed)
    }

    /// Applies what is given and starts the host.
    async fn start(&self, format: Format) -> Result<Started> {
        let manifests = Manifests::read(&self.paths)?;
        let scenario = manifests.scenario.clone();
        if self.is_standalone() && self.replace_crds {
            bail!(
                "--replace-crds goes with a cluster; standalone keeps its definitions up to date by itself"
            );
        }
        if !self.is_standalone() {
            if self.listen.is_some() || self.speed.is_some() {
                bail!("--listen and --speed are for standalone; they do not go with a cluster");
            }
            manifests.check_for_a_cluster(self.build_crates)?;
        }
        let data = self.data.as_deref().map(Data::open).transpose()?.map(Arc::new);
        let speed = self.speed(scenario.as_ref())?;
        let sandbox = super::sandbox(self.sandbox.into())?;
        let folder = self
            .policies
            .clone()
            .or(manifests.folder.clone())
            .unwrap_or_else(|| PathBuf::from("."));
        let builds = self.build_crates || self.is_standalone();
        let policies = Arc::new(Policies::new(
            sandbox.clone(),
            &folder,
            builds,
            Box::new(move |m| say(format, m)),
        ));
        // Building takes real time, of which a fast clock would make hours: the world begins afterwards.
        manifests.build(&policies).await;
        let saved = match self.is_standalone() {
            true => timekeeping::saved(data.as_deref(), speed)?,
            false => 0,
        };
        // It stands still until everything is ready: compiling takes real time too.
        let clock = Arc::new(match self.is_standalone() {
            true => Clock::standing(speed, saved),
            false => Clock::real(),
        });
        let timekeeper = data.clone().filter(|_| self.is_standalone()).map(|data| {
            let says = move |message: &str| say(format, message);
            Timekeeper::start(data, clock.clone(), says)
        });
        let (cluster, api) = self.cluster(&clock, data.as_deref(), format).await?;
        let cluster = Arc::new(cluster);
        let seed = scenario.as_ref().map_or_else(unpredictable, Scenario::seed);
        let cloud = scenario.as_ref().and_then(|s| s.cloud().cloned());
        let secrets = Arc::new(ClusterSecrets::new(cluster.clone()));
        let mut clouds = Clouds::new(clock.clone(), secrets, data.clone(), seed, cloud);
        if !self.is_standalone() {
            clouds = clouds.among_real_objects(move |message| say(format, message));
        }
        let clouds = Arc::new(clouds);

        let target = self.target();
        let says = |message: &str| say(format, message);
        // In a cluster, what is given is what shall stand.
        let kept = data.as_deref().filter(|_| self.is_standalone());
        let mut applied = kept.map(Applied::read).transpose()?.unwrap_or_default();
        manifests
            .apply_beside(&mut applied, &cluster, &policies, &clouds, target, &says)
            .await?;
        if let Some(data) = kept {
            applied.save(data)?;
        }
        if self.is_standalone() {
            manifests.compile(&cluster, &policies).await;
        }

        let recorder = recorder(self.record.as_deref(), data.as_deref(), &sandbox.engine_version())?;
        let ends = Arc::new(LastOutcomes::default());
        let now = clock.now();
        let position = scenario.as_ref().map(|s| s.position(data.as_deref(), now.unix));
        let position = position.transpose()?;
        sim::begin(&clouds, position.as_ref().map_or(now.unix, Position::start));
        let started = now.boot;
        let says: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(move |message: &str| say(format, message));
        let running = match (&scenario, position) {
            (Some(scenario), Some(position)) => {
                let with = (&clock, &cluster);
                Some(scenario.go_on(position, with, target, says, data.clone()).await)
            }
            _ => None,
        };
        let host = Host::start(Config {
            identity: identity(),
            clock: clock.clone(),
            cluster: cluster.clone(),
            clouds: clouds.clone(),
            policies,
            // Beside a clock that jumps nothing may happen that it does not know of.
            threads: match speed {
                Speed::Max => 0,
                Speed::Times(_) => std::thread::available_parallelism().map_or(1, |n| n.get()),
            },
            observer: Box::new(Progress::new(format, started, ends.clone(), Some(recorder))),
            local: None,
            kubelets: true,
        });
        Ok(Started {
            clock,
            timekeeper,
            api,
            cluster,
            clouds,
            scenario,
            running,
            ends,
            host,
        })
    }

    async fn until_its_end(
        &self,
        mut run: Started,
        signals: &mut Signals,
        format: Format,
    ) -> Result<ExitCode> {
        let deadline = self
            .deadline
            .or(run.scenario.as_ref().and_then(Scenario::deadline));
        let deadline = deadline.unwrap_or(DEADLINE);
        let handle = run.host.handle().clone();
        let end = Settling {
            handle: &handle,
            ends: &run.ends,
            clouds: &run.clouds,
            running: run.running.as_ref(),
        };
        let code = tokio::select! {
            stuck = end.wait(&run.clock, deadline), if self.until_settled => {
                let scenario = run.scenario.as_ref();
                let ended = report(stuck, scenario, &run.cluster, &run.clouds, deadline, format).await?;
                match run.running.as_ref().map_or(0, Running::steps_failed) {
                    0 => ended,
                    failed => {
                        say(format, &format!("{failed} steps of the scenario failed"));
                        ExitCode::FAILURE
                    }
                }
            }
            () = signals.next() => {
                say(format, "stopping: what is in flight is finished first");
                ExitCode::SUCCESS
            }
            failure = run.host.ended_by_itself() => return Err(failure),
            why = lost(run.api.as_ref()) => bail!("{why}: nothing is stored any more, so the host ends"),
        };
        self.stopping.stop(run.host, signals, format).await?;
        if let Some(timekeeper) = run.timekeeper {
            timekeeper.stop().await?;
        }
        Ok(code)
    }

    async fn cluster(
        &self,
        clock: &Arc<Clock>,
        data: Option<&Data>,
        format: Format,
    ) -> Result<(Cluster, Option<polity_standalone::Api>)> {
        if !self.is_standalone() {
            return Ok((self.connection.connect().await?, None));
        }
        let api = standalone::open(clock, data)?;
        if let Some(port) = self.listen {
            let served = standalone::serve(api.clone(), port, &self.write_kubeconfig).await?;
            let kubeconfig = served.kubeconfig.display().to_string();
            say(
                format,
                &format!(
                    "serving https://{}: kubectl --kubeconfig {kubeconfig} get machines",
                    served.address
                ),
            );
        }
        let cluster = Cluster::new(kube::Client::new(api.clone(), "default"), LEASE);
        Ok((cluster, Some(api)))
    }
}

/// Waits until the embedded API stores nothing any more, and says why.
async fn lost(api: Option<&polity_standalone::Api>) -> String {
    match api {
        Some(api) => api.lost().await,
        None => std::future::pending().await,
    }
}

/// Records into this folder, or beside the data, or into a temporary folder.
pub(super) fn recorder(record: Option<&Path>, data: Option<&Data>, engine: &str) -> Result<Recorder> {
    let recorder = match (record, data) {
        (Some(folder), _) => Recorder::open(folder, true, engine)?,
        (None, Some(data)) => Recorder::open(&data.path().join("recordings"), false, engine)?,
        (None, None) => Recorder::temporary(engine)?,
    };
    let folder = recorder.path();
    // Somebody else may sit where it is remembered: then `explain` is told where to look, and everything else goes on.
    if let Err(e) = recording::remember_latest(&std::path::absolute(folder)?) {
        tracing::warn!("{e:#}: polity explain needs --recordings {}", folder.display());
    }
    Ok(recorder)
}

/// Says whether everything settled and what the scenario expects holds.
async fn report(
    stuck: Vec<String>,
    scenario: Option<&Scenario>,
    cluster: &Cluster,
    clouds: &Clouds,
    deadline: Millis,
    format: Format,
) -> Result<ExitCode> {
    if !stuck.is_empty() {
        say(
            format,
            &format!("not settled after {}:", crate::display::duration(deadline.0)),
        );
        stuck.iter().for_each(|one| say(format, &format!("  {one}")));
        return Ok(ExitCode::FAILURE);
    }
    say(format, "everything is settled");
    let mut holds = true;
    let verdicts = match scenario {
        Some(scenario) => scenario.verdicts(cluster, clouds).await?,
        None => Vec::new(),
    };
    for verdict in verdicts {
        if verdict.wrong().is_empty() {
            say(format, &format!("  as expected: {}", verdict.that()));
            continue;
        }
        holds = false;
        say(format, &format!("  not as expected: {}", verdict.that()));
        let wrong = verdict.wrong().iter();
        wrong.for_each(|why| say(format, &format!("    {why}")));
    }
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Nobody can tell the handles that are made from it.
pub(super) fn unpredictable() -> u64 {
    let mut random = [0; 8];
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(random)
}

/// Differs between processes: two hosts of one name must not share a lease.
pub(super) fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut random = [0; 4];
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    format!("{host}-{}-{}", std::process::id(), crate::display::hex(&random))
}
