//! The start of `polity run`: from the arguments and manifests to a running host.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use polity_cluster::Cluster;
use polity_core::contract::Code;
use polity_core::time::{Now, Unix};
use polity_sandbox::Sandbox;

use super::super::sandbox;
use super::{Run, Started, holder, identity, recorder, unpredictable};
use crate::applied::Applied;
use crate::binding_objects::standing;
use crate::clock::{Clock, Speed};
use crate::clouds::Clouds;
use crate::config::HostConfig;
use crate::connections::Connections;
use crate::data::Data;
use crate::host::Host;
use crate::live::LiveTable;
use crate::manifests::Manifests;
use crate::observer::Observer;
use crate::overview::Overview;
use crate::policies::Policies;
use crate::progress::{Format, Progress, say};
use crate::recording::{Recorder, RecordingThread};
use crate::secrets::ClusterSecrets;
use crate::sim::{self, Position, Running, Scenario};
use crate::telemetry::{Metrics, Watched};
use crate::timekeeping::{self, Timekeeper};
use crate::waiting::WaitingFile;

/// When the clock of a scenario starts that jumps: the first moment of 2026.
const PLAYED: Unix = Unix(1_767_225_600_000);

/// The variable with the addresses of the node on which this host runs: `status.hostIPs` of its pod.
const NODE_ADDRESSES: &str = "POLITY_NODE_ADDRESSES";

/// A start that is under way.
struct Starting<'a> {
    run: &'a Run,
    format: Format,
    manifests: Manifests,
    speed: Speed,
    data: Option<Arc<Data>>,
}

/// The parts of a host on which the others stand.
struct Base {
    identity: String,
    clock: Arc<Clock>,
    cluster: Arc<Cluster>,
    policies: Arc<Policies>,
}

impl Run {
    /// Applies the given manifests and starts the host.
    pub(super) async fn start(&self, format: Format) -> Result<Started> {
        let endpoint = self.endpoint(format).await?;
        let (traces, export) = self.traces(format)?;
        let manifests = Manifests::read(&self.paths)?;
        self.check(&manifests)?;
        let starting = Starting {
            run: self,
            format,
            data: self.data.as_deref().map(Data::open).transpose()?.map(Arc::new),
            speed: self.speed(manifests.scenario.as_ref())?,
            manifests,
        };
        let (base, timekeeper, api, recorder) = starting.base().await?;
        let clouds = starting.clouds(&base, &recorder).await?;
        starting.apply(&base, &clouds).await?;
        if let Some(connections) = clouds.connections() {
            connections.follow();
        }

        let (overview, now) = (Arc::new(Overview::default()), base.clock.now());
        let running = starting.scenario(&base, &clouds, now).await?;
        let metrics = Arc::new(Metrics::new()?);
        let recorded = recorder.path().to_owned();
        let recording = RecordingThread::start(recorder)?;
        let progress = Progress::new(format, now.boot, overview.clone(), Some(recording));
        let mut progress = progress.with_ids(self.ids);
        let shows_table = self.shows_table(format, starting.speed);
        if shows_table {
            progress = progress.without_lines();
        }
        let observer = Box::new(Watched::new(progress, metrics.clone(), traces));
        let host = Host::start(starting.config(&base, &clouds, observer));
        let handle = || host.handle().clone();
        if let Some(endpoint) = endpoint {
            tokio::spawn(endpoint.serve(handle(), metrics));
        }
        let waiting = WaitingFile::keep(handle(), base.clock.clone(), recorded);
        let table =
            shows_table.then(|| LiveTable::show(handle(), base.clock.clone(), overview.clone(), now.boot));
        Ok(Started {
            export,
            table,
            waiting: Some(waiting),
            timekeeper,
            api,
            clock: base.clock,
            cluster: base.cluster,
            clouds,
            scenario: starting.manifests.scenario,
            running,
            overview,
            host,
        })
    }

    /// Checks that the arguments and manifests go together. Nothing has been built or applied yet.
    fn check(&self, manifests: &Manifests) -> Result<()> {
        if !self.is_standalone() {
            if self.listen.is_some() || self.speed.is_some() {
                bail!("--listen and --speed are for standalone: remove them, or run without a cluster");
            }
            return manifests.check_for_a_cluster(self.build_crates);
        }
        if self.domain.is_given() || self.binding_selector.is_some() {
            bail!(
                "--lease, --namespace and --binding-selector go with a cluster; standalone is one host for all that it has"
            );
        }
        if self.replace_crds {
            bail!("--replace-crds needs a cluster: standalone always keeps its definitions up to date");
        }
        Ok(())
    }
}

impl Starting<'_> {
    async fn base(&self) -> Result<(Base, Option<Timekeeper>, Option<polity_standalone::Api>, Recorder)> {
        let (run, data) = (self.run, self.data.as_deref());
        let sandbox = sandbox(run.sandbox.into())?;
        let policies = self.policies(sandbox.clone());
        // Build before the clock starts: building takes minutes of real time, which a fast clock would turn
        // into hours.
        self.manifests.build(&policies).await;
        let (clock, timekeeper) = self.clock()?;
        let (cluster, api) = run
            .cluster(&clock, data, self.seed_of_uids(), self.format)
            .await?;
        let recorder = recorder(run.record.as_deref(), data, &sandbox.engine_version())?;
        let base = Base {
            identity: match self.kept() {
                Some(kept) => holder(kept)?,
                None => identity(),
            },
            clock,
            cluster: Arc::new(cluster),
            policies,
        };
        Ok((base, timekeeper, api, recorder))
    }

    /// The data folder, if it keeps the objects. Only standalone remembers which manifests it applied. With a cluster,
    /// all given manifests are applied at every start.
    fn kept(&self) -> Option<&Data> {
        self.data.as_deref().filter(|_| self.run.is_standalone())
    }

    fn policies(&self, sandbox: Arc<Sandbox>) -> Arc<Policies> {
        let (run, format) = (self.run, self.format);
        let folder = run.policies.clone().or(self.manifests.folder.clone());
        let folder = folder.unwrap_or_else(|| PathBuf::from("."));
        let builds = run.build_crates || run.is_standalone();
        let report = Box::new(move |message: &str| say(format, message));
        Arc::new(Policies::new(sandbox, &folder, builds, report))
    }

    /// The clock, and what saves its time. It stands still until all is ready, because compiling takes real time
    /// too.
    fn clock(&self) -> Result<(Arc<Clock>, Option<Timekeeper>)> {
        if !self.run.is_standalone() {
            return Ok((Arc::new(Clock::real()), None));
        }
        let saved: Unix = timekeeping::saved(self.data.as_deref(), self.speed)?;
        let clock = Arc::new(match self.seed_of_uids() {
            Some(_) => Clock::standing_at(self.speed, saved.max(PLAYED)),
            None => Clock::standing(self.speed, saved),
        });
        let format = self.format;
        let timekeeper = self.data.clone().map(|data| {
            let report = move |message: &str| say(format, message);
            Timekeeper::start(data, clock.clone(), report)
        });
        Ok((clock, timekeeper))
    }

    /// In a clock that jumps the same scenario gives the same uids and times, and with them the same waits. Otherwise a run may meet a
    /// real cloud, where what an earlier run left must not be taken for its own.
    fn seed_of_uids(&self) -> Option<u64> {
        let scenario = self.manifests.scenario.as_ref();
        scenario.filter(|_| self.speed == Speed::Max).map(Scenario::seed)
    }

    /// The clouds of this build and the connections of the cluster. None of them is open yet.
    async fn clouds(&self, base: &Base, recorder: &Recorder) -> Result<Arc<Clouds>> {
        let scenario = self.manifests.scenario.as_ref();
        let seed = scenario.map_or_else(unpredictable, Scenario::seed);
        let configuration = scenario.and_then(|scenario| scenario.cloud().cloned());
        let secrets = Arc::new(ClusterSecrets::new(base.cluster.clone()));
        let node = addresses(&std::env::var(NODE_ADDRESSES).unwrap_or_default())?;
        let connections = Connections::new(
            base.cluster.clone(),
            base.policies.clone(),
            base.clock.clone(),
            secrets.clone(),
            seed,
            base.cluster.addresses().await,
        );
        let connections = connections
            .on_node(node)
            .kept_by(Arc::new(recorder.exchanges()))
            .used_by(&base.identity, self.run.selection());
        let clouds = Clouds::new(
            base.clock.clone(),
            secrets,
            self.data.clone(),
            seed,
            configuration,
        )
        .with_connections(Arc::new(connections));
        if self.run.is_standalone() {
            return Ok(Arc::new(clouds));
        }
        let (data, format) = (self.data.clone(), self.format);
        Ok(Arc::new(clouds.on_open(move |name, cloud| {
            if let Some(notice) = sim::notice(name, cloud, data.as_deref()) {
                say(format, &notice);
            }
        })))
    }

    async fn apply(&self, base: &Base, clouds: &Arc<Clouds>) -> Result<()> {
        let Base {
            cluster, policies, ..
        } = base;
        let report = |message: &str| say(self.format, message);
        let kept = self.kept();
        let mut applied = kept.map(Applied::read).transpose()?.unwrap_or_default();
        let target = self.run.target();
        self.manifests
            .apply_beside(&mut applied, cluster, policies, clouds, target, &report)
            .await?;
        if let Some(data) = kept {
            applied.save(data)?;
        }
        if self.run.is_standalone() {
            self.manifests.compile(cluster, policies).await;
        }
        // A cluster that does not serve bindings yet has none. That it cannot be reached is told elsewhere.
        let none = match standing(cluster).await {
            Ok(bindings) => bindings.is_empty(),
            Err(failure) => [Code::NotFound, Code::Unimplemented].contains(&failure.code),
        };
        if none && !self.run.until_settled {
            report(self.without_bindings());
        }
        Ok(())
    }

    /// What a host without bindings does, and what a person can do about it.
    fn without_bindings(&self) -> &'static str {
        match (self.run.is_standalone(), self.run.listen) {
            (true, None) => {
                "no PolicyBinding is given, so this host runs an empty embedded API and does nothing: name a DIR or FILE with \
                 manifests, or add --listen PORT and apply them with kubectl"
            }
            (true, Some(_)) => "no PolicyBinding yet: waiting for one to be applied with kubectl",
            (false, _) => "no PolicyBinding in the cluster yet: waiting for one to be applied",
        }
    }

    /// Goes on with the scenario, if there is one, from where it stood.
    async fn scenario(&self, base: &Base, clouds: &Clouds, now: Now) -> Result<Option<Running>> {
        let scenario = self.manifests.scenario.as_ref();
        let stood = self
            .kept()
            .filter(|_| scenario.is_none())
            .map(|data| data.read("scenario"));
        if let Some(Ok(Some(_))) = stood {
            let message = "the scenario of this data folder does not go on, and its speed does not count: give its manifest again";
            say(self.format, message);
        }
        let position = scenario.map(|scenario| scenario.position(self.data.as_deref(), now.unix));
        let position = position.transpose()?;
        sim::begin(clouds, position.as_ref().map_or(now.unix, Position::start));
        let (Some(scenario), Some(position)) = (scenario, position) else {
            return Ok(None);
        };
        let format = self.format;
        let report = Arc::new(move |message: &str| say(format, message));
        let (with, target) = ((&base.clock, &base.cluster), self.run.target());
        let running = scenario.go_on(position, with, target, report, self.data.clone());
        Ok(Some(running.await))
    }

    fn config(&self, base: &Base, clouds: &Arc<Clouds>, observer: Box<dyn Observer>) -> HostConfig {
        HostConfig {
            identity: base.identity.clone(),
            clock: base.clock.clone(),
            cluster: base.cluster.clone(),
            clouds: clouds.clone(),
            policies: base.policies.clone(),
            // A clock that jumps must know of all work, so policies run on the event loop's own thread. Otherwise there are as many
            // as processors. One more would give a lone tenant all processors, and make the others wait three times as long.
            threads: match self.speed {
                Speed::Max => 0,
                Speed::Times(_) => std::thread::available_parallelism().map_or(1, |n| n.get()),
            },
            observer,
            local: None,
            // One process has the embedded API, unless it is served.
            alone: self.run.is_standalone() && self.run.listen.is_none(),
            selection: self.run.selection(),
            beside: sim::kubelets(&base.clock, &base.cluster, clouds),
        }
    }
}

/// The addresses of a text in which commas separate them.
fn addresses(text: &str) -> Result<Vec<IpAddr>> {
    let read = |one: &str| {
        one.parse::<IpAddr>().with_context(|| {
            format!("{NODE_ADDRESSES}: {one:?} is no IP address; give the status.hostIPs of the pod")
        })
    };
    text.split(',').filter(|one| !one.is_empty()).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_the_node_are_read_as_the_kubelet_writes_them() {
        let read = |text| addresses(text).map(|all| all.iter().map(IpAddr::to_string).collect::<Vec<_>>());
        assert!(read("").expect("none").is_empty());
        assert_eq!(read("10.0.3.7,fd00::7").expect("two"), ["10.0.3.7", "fd00::7"]);
        let wrong = read("node-7").expect_err("a name").to_string();
        assert!(
            wrong.contains(r#"POLITY_NODE_ADDRESSES: "node-7" is no IP address"#),
            "{wrong}"
        );
    }
}
