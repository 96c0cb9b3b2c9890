//! `polity run`: the host, standalone or against a cluster.

mod start;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use polity_clouds::Millis;
use polity_cluster::Cluster;
use polity_kube_rules::labels::LabelSelector;
use polity_sandbox::Allocation;

use super::connection::Connection;
use super::millis;
use super::settings::{Domain, label_selector};
use super::stopping::{Signals, Stopping};
use crate::clock::{Clock, Speed};
use crate::clouds::Clouds;
use crate::data::{Data, HOLDER};
use crate::host;
use crate::install::Target;
use crate::live::LiveTable;
use crate::overview::Overview;
use crate::progress::{Format, say};
use crate::recording::{self, Recorder};
use crate::selection::Selection;
use crate::settled::{NotSettled, Settling};
use crate::sim::{Running, Scenario};
use crate::standalone;
use crate::telemetry::{Endpoint, Export, Traces};
use crate::timekeeping::Timekeeper;
use crate::waiting::WaitingFile;

/// The default deadline of `--until-settled`: an hour of the host's clock.
const DEADLINE: Millis = Millis::seconds(3_600);

const EXIT_CODES: &str = "\
Exit codes:
  0  a signal stopped the host, or --until-settled: everything is settled and as expected
  1  --until-settled: something is not settled or not as expected, or a step failed
  2  wrong arguments or manifests, or the host could not start or go on";

/// The highest speed at which the embedded API is served. The lease lasts for 13 s of the host's clock.
const SERVED: f64 = 100.0;

// The feature `sim` adds its own sentences to the help texts. A build without it does not mention the simulation.
/// Run the host: standalone with an embedded API, or against a cluster.
///
/// Without --kubeconfig, --context or --in-cluster the host runs standalone, with an embedded Kubernetes API.
/// The host first applies the given files and the CustomResourceDefinitions of the bindings' policies.
#[cfg_attr(
    feature = "sim",
    doc = "",
    doc = " The cloud `sim` is a simulation. With it, standalone needs nothing else."
)]
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Run {
    /// Manifests to apply: files, or folders with .yaml, .yml and .json files.
    #[cfg_attr(feature = "sim", doc = " One manifest may be a Scenario.")]
    #[arg(value_name = "DIR|FILE")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    domain: Domain,
    /// Take the PolicyBindings with these labels, and leave the others to other hosts: `team=red`.
    #[arg(long, value_name = "SELECTOR", value_parser = label_selector, help_heading = "Cluster")]
    binding_selector: Option<LabelSelector>,
    /// Keep the state in this folder: recordings, and in standalone all objects. A restart with the same folder
    /// continues: only manifests that changed are applied again.
    #[cfg_attr(
        feature = "sim",
        doc = " The simulated cloud is kept, too, and a scenario goes on where it stood."
    )]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Serve the embedded API on this loopback port (0: any free port) and write a kubeconfig.
    #[arg(long, value_name = "PORT", help_heading = "Standalone")]
    listen: Option<u16>,
    /// The file for the kubeconfig of --listen.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "polity.kubeconfig",
        help_heading = "Standalone"
    )]
    write_kubeconfig: PathBuf,
    /// The speed of the clock, as a multiple of real time. The default is 1. With `max` the clock jumps to the
    /// next event whenever nothing is left to do: an hour takes only as long as the work in it.
    #[cfg_attr(feature = "sim", doc = " A scenario can have another default.")]
    #[arg(long, value_name = "N|max", help_heading = "Standalone")]
    speed: Option<Speed>,
    /// Replace existing CustomResourceDefinitions of the cluster: by those in the given files, and for those
    /// that this host installed for a binding, by those of the binding's policies. Without this option
    /// existing definitions stay as they are.
    #[arg(long, help_heading = "Cluster")]
    replace_crds: bool,
    /// The folder in which the bindings' policy files are. The default is the folder of the first DIR or
    /// FILE.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Allow bindings to name policy crates, which cargo builds. Standalone always allows it.
    #[arg(long)]
    build_crates: bool,
    /// Exit 0 when every governed object is settled, denied or gone. Exit 1 at the deadline, or as soon as nothing can
    /// change any more because a binding is refused, and print what is stuck and why.
    #[cfg_attr(
        feature = "sim",
        doc = " For a scenario, exit 0 only if all its steps are done and its expectations hold, and exit 1 as soon as a step fails."
    )]
    #[arg(long)]
    until_settled: bool,
    /// When --until-settled gives up, by the host's clock, for example `10m`. The default is 1h.
    #[cfg_attr(feature = "sim", doc = " A scenario can have another default.")]
    #[arg(long, value_name = "DURATION", value_parser = millis)]
    deadline: Option<Millis>,
    /// Record every pass in this folder and keep them all; each start begins a new session in it. Without it the
    /// newest 64 MiB are kept: in the data folder, or in a temporary folder that lasts until the next run.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// How memory for policies is allocated.
    #[arg(long, value_enum, default_value_t)]
    sandbox: Memory,
    /// Serve /healthz, /readyz and /metrics here, without TLS or login: `0.0.0.0:9090`. Port 0 is any free port.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
    /// Send a trace of every pass to this OpenTelemetry collector, over OTLP with HTTP: `http://localhost:4318`.
    /// The default is OTEL_EXPORTER_OTLP_ENDPOINT. Without either there are no traces.
    #[arg(
        long,
        value_name = "URL",
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        hide_env = true
    )]
    otlp_endpoint: Option<String>,
    /// Print a line for each change of an object, also on a terminal. Without it a terminal shows a live table.
    #[arg(long)]
    lines: bool,
    /// Add the ids of the edges that a pass took to its line. JSON always has them.
    #[arg(long)]
    ids: bool,
    #[command(flatten)]
    stopping: Stopping,
}

/// How memory for policies is allocated.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum Memory {
    /// Allocate memory for each step. This scales with the number of cores.
    #[default]
    OnDemand,
    /// Use a pool with guard pages: compiling takes two thirds of the time.
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

/// A running host, and the parts around it that end with the command.
struct Started {
    clock: Arc<Clock>,
    timekeeper: Option<Timekeeper>,
    /// The embedded API; `None` with a cluster.
    api: Option<polity_standalone::Api>,
    cluster: Arc<Cluster>,
    clouds: Arc<Clouds>,
    scenario: Option<Scenario>,
    running: Option<Running>,
    export: Option<Export>,
    table: Option<LiveTable>,
    waiting: Option<WaitingFile>,
    overview: Arc<Overview>,
    host: host::Running,
}

impl Started {
    /// Shows for the last time how the objects stand: in the live table, if there is one, and in the file for `explain`.
    async fn end_of_shown(&mut self) {
        if let Some(table) = self.table.take() {
            table.end().await;
        }
        if let Some(waiting) = self.waiting.take() {
            waiting.end().await;
        }
    }
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
        if self.is_standalone() {
            Target::Standalone
        } else {
            Target::Cluster {
                replace_crds: self.replace_crds,
            }
        }
    }

    /// Whether a live table is shown: on a terminal, and with a clock that people can follow.
    fn shows_table(&self, format: Format, speed: Speed) -> bool {
        let is_terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        is_terminal && !self.lines && format == Format::Text && speed != Speed::Max
    }

    /// Where the host tells how it stands; taken first, so that a port that is taken stops everything.
    async fn endpoint(&self, format: Format) -> Result<Option<Endpoint>> {
        let Some(address) = self.metrics_listen else {
            return Ok(None);
        };
        let endpoint = Endpoint::bind(address).await?;
        let address = endpoint.address()?;
        say(
            format,
            &format!("serving http://{address}: /healthz, /readyz, /metrics"),
        );
        Ok(Some(endpoint))
    }

    /// Where traces are sent. An empty variable counts as one that is not set, as OpenTelemetry demands.
    fn collector(&self) -> Option<&str> {
        self.otlp_endpoint
            .as_deref()
            .filter(|endpoint| !endpoint.is_empty())
    }

    /// What sends traces; made first, so that a wrong address stops everything.
    fn traces(&self, format: Format) -> Result<(Option<Traces>, Option<Export>)> {
        let traces = self.collector().map(|to| Traces::to(to, format));
        Ok(traces.transpose()?.unzip())
    }

    fn selection(&self) -> Selection {
        let bindings = self.binding_selector.clone();
        self.domain.selection(bindings.unwrap_or_default())
    }

    fn speed(&self, scenario: Option<&Scenario>) -> Result<Speed> {
        if !self.is_standalone() {
            return Ok(Speed::REAL);
        }
        let scenario = || scenario.and_then(Scenario::speed).map(Speed::times).transpose();
        let speed = match self.speed {
            Some(speed) => speed,
            None => scenario()
                .map_err(|why| anyhow!("the scenario's speed: {why}"))?
                .unwrap_or(Speed::REAL),
        };
        if let (Speed::Times(times), true) = (speed, self.listen.is_some())
            && times > SERVED
        {
            bail!(
                "--listen goes with a speed of at most {SERVED}: other hosts may connect, and at a higher speed the lease \
                 ends before it is renewed"
            );
        }
        if speed == Speed::Max && !self.until_settled {
            bail!("--speed max needs --until-settled: without an end the clock would jump for ever");
        }
        let endpoints = [
            ("--listen", self.listen.is_some()),
            ("--metrics-listen", self.metrics_listen.is_some()),
            ("--otlp-endpoint", self.collector().is_some()),
        ];
        if let Some((endpoint, _)) = endpoints.iter().find(|(_, given)| *given && speed == Speed::Max) {
            bail!("--speed max cannot be used with {endpoint}: clients that connect live in real time");
        }
        Ok(speed)
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
            overview: &run.overview,
            clouds: &run.clouds,
            running: run.running.as_ref(),
            is_open: !self.is_standalone() || self.listen.is_some(),
        };
        let code = tokio::select! {
            stuck = end.wait(&run.clock, deadline), if self.until_settled => {
                run.end_of_shown().await;
                match stuck {
                    Ok(()) => report(&run, format).await?,
                    Err(NotSettled { is_late, stuck }) => {
                        let why = if is_late { format!("not settled after {}:", crate::display::duration(deadline.into())) } else { "not settled, and nothing can change that any more:".to_owned() };
                        say(format, &why);
                        stuck.iter().for_each(|one| say(format, &format!("  {one}")));
                        ExitCode::FAILURE
                    }
                }
            }
            () = signals.next() => {
                run.end_of_shown().await;
                say(format, "stopping: waiting for the passes in flight");
                ExitCode::SUCCESS
            }
            failure = run.host.ended_by_itself() => return Err(failure),
            why = lost(run.api.as_ref()) => bail!("{why}: objects can no longer be stored, so the host stops"),
        };
        self.stopping.stop(run.host, signals, format).await?;
        if let Some(connections) = run.clouds.connections() {
            connections.close().await;
        }
        if let Some(export) = run.export {
            export.end().await;
        }
        if let Some(timekeeper) = run.timekeeper {
            timekeeper.stop().await?;
        }
        Ok(code)
    }

    async fn cluster(
        &self,
        clock: &Arc<Clock>,
        data: Option<&Data>,
        seed: Option<u64>,
        format: Format,
    ) -> Result<(Cluster, Option<polity_standalone::Api>)> {
        if !self.is_standalone() {
            return Ok((self.connection.connect(self.domain.lease()).await?, None));
        }
        let api = standalone::open(clock, data, seed)?;
        if let Some(port) = self.listen {
            let served = standalone::serve(api.clone(), port, &self.write_kubeconfig).await?;
            let kubeconfig = served.kubeconfig.display().to_string();
            say(
                format,
                &format!(
                    "serving https://{}: kubectl --kubeconfig {kubeconfig} get policybindings -A",
                    served.address
                ),
            );
        }
        let cluster = Cluster::new(kube::Client::new(api.clone(), "default"), self.domain.lease());
        Ok((cluster, Some(api)))
    }
}

/// Waits until the embedded API can no longer store objects, and returns the reason.
async fn lost(api: Option<&polity_standalone::Api>) -> String {
    match api {
        Some(api) => api.lost().await,
        None => std::future::pending().await,
    }
}

/// Opens the recorder: in the named folder, in the data folder, or in a temporary folder.
pub(super) fn recorder(record: Option<&Path>, data: Option<&Data>, engine: &str) -> Result<Recorder> {
    let recorder = match (record, data) {
        (Some(folder), _) => Recorder::open(folder, true, engine)?,
        (None, Some(data)) => Recorder::open(&data.path().join("recordings"), false, engine)?,
        (None, None) => Recorder::temporary(engine)?,
    };
    let folder = recorder.path();
    // The pointer to the latest recording stands in a shared temporary folder. Another user may have blocked
    // it. Only `explain` needs the pointer, so the run goes on.
    if let Err(e) = recording::remember_latest(&std::path::absolute(folder)?) {
        tracing::warn!("{e:#}: polity explain needs --recordings {}", folder.display());
    }
    Ok(recorder)
}

/// Reports that all is settled, and whether the scenario's expectations hold.
async fn report(run: &Started, format: Format) -> Result<ExitCode> {
    say(
        format,
        &format!("everything is settled{}", run.overview.not_settled()),
    );
    let mut holds = true;
    let verdicts = match &run.scenario {
        Some(scenario) => scenario.verdicts(&run.cluster, &run.clouds).await?,
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

/// A random seed. Nobody can predict the handles that are derived from it.
pub(super) fn unpredictable() -> u64 {
    let mut random = [0; 8];
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(random)
}

/// The name of a host whose objects are in its data folder. One process has the folder at a time, so a lease of this name is that
/// of a process that is dead, and the next one goes on at once.
fn holder(data: &Data) -> Result<String> {
    let file = || format!("cannot keep {HOLDER} in {}", data.path().display());
    let known = data.read(HOLDER).with_context(file)?;
    if let Some(known) = known.filter(|name| !name.trim().is_empty()) {
        return Ok(known);
    }
    let new = identity();
    data.replace(HOLDER, &new).with_context(file)?;
    Ok(new)
}

/// A name that no other process has: two processes on one machine must not share a lease.
pub(super) fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut random = [0; 4];
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    format!("{host}-{}-{}", std::process::id(), crate::display::hex(&random))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: Run,
    }

    fn run(line: &[&str]) -> Run {
        let all = std::iter::once(&"run").chain(line);
        Line::try_parse_from(all).expect("it is parsed").run
    }

    #[test]
    fn an_empty_address_of_a_collector_is_none() {
        assert_eq!(run(&["--otlp-endpoint", ""]).collector(), None);
        let given = run(&["--otlp-endpoint", "http://localhost:4318"]);
        assert_eq!(given.collector(), Some("http://localhost:4318"));
    }

    #[tokio::test]
    async fn a_wrong_address_of_a_collector_is_reported_before_manifests_are_read() {
        let run = run(&["--otlp-endpoint", "ftp://localhost", "/nowhere"]);
        let refused = run
            .start(Format::Text)
            .await
            .map(|_| ())
            .expect_err("it is wrong");
        assert!(refused.to_string().contains("ftp://localhost"), "{refused:#}");
    }
}
