//! The workflows in simulation, alone and all together on one host. There are two kinds of machines of three
//! tenants, guarded by an identity policy, each with a retry policy, on nodes with pods and a disruption
//! budget; an Orb, with an agent on each machine; and routers. Meanwhile clouds, connections, hosts and
//! agents fail, and people make changes.
//!
//! # Flow
//!
//! A [`Scenario`] is drawn from the seed. The [`People`] keep a deployment and a workload alive, taint nodes,
//! delete machines, want other versions, and take rights away. Hosts and agents crash, many of them right
//! after one of their outputs, and come back. The [`Rules`] check the cluster, the cloud and every pass again
//! and again. At a time of the scenario all faults stop, and everything must settle.
//!
//! # Caveats
//!
//! A runtime takes part: the same seed makes the same world, but not the same bytes of a recording.

pub mod faults;
pub mod orb;
pub mod people;
pub mod routers;
pub mod rules;
pub mod scenario;
pub mod setting;
pub mod snapshot;

use std::path::Path;
use std::time::Duration;

use polity_core::controller::Guards;
use polity_core::record::PassRecord;
use polity_sim::Millis;

use crate::host_harness::agents::Agents;
use crate::host_harness::hosts::Hosts;
use crate::host_harness::{BEGIN, Site};
use crate::simulation::seed::Chance;
use people::People;
use rules::Rules;
use scenario::{Scenario, Workflow};
use snapshot::Snapshot;

/// The interval between looks, with and without faults.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The longest time until everything is settled after the faults stop. Machines of a deployment that were
/// lost together are replaced one after another.
const SETTLES_WITHIN: Millis = Millis::seconds(4 * 3_600);
/// The longest time until a settled object is looked at again.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(15 * 60);

/// The options of a simulation.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// The workflows that take part.
    pub workflows: &'static [Workflow],
    /// The guards of the hosts.
    pub guards: Guards,
    /// Whether a machine refuses a reboot that was meant for an earlier boot.
    pub reboot_names_its_boot: bool,
    /// Changes the scenario for a test.
    pub shape: fn(&mut Scenario),
    /// The folder in which every pass is recorded.
    pub recording: Option<&'a Path>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            workflows: &Workflow::ALL,
            guards: Guards::default(),
            reboot_names_its_boot: true,
            shape: |_| {},
            recording: None,
        }
    }
}

/// Simulates a seed. Returns the number of passes.
///
/// # Errors
/// The rule that the seed broke, in words.
pub async fn run(seed: u64, options: Options<'_>) -> Result<usize, String> {
    let mut scenario = Scenario::of(seed, options.workflows);
    (options.shape)(&mut scenario);
    let cloud = serde_json::to_value(&scenario.cloud).expect("a configuration is JSON");
    let mut site = Site::new(seed, Some(cloud));
    site.without(options.guards);
    if let Some(folder) = options.recording {
        site.record(folder);
    }
    let mut world = World {
        hosts: Hosts::new(scenario.hosts, scenario.rates, Chance::new(seed, 7)),
        agents: Agents::new(orb::agent, scenario.rates, Chance::new(seed, 9)),
        people: People::new(options.workflows, Chance::new(seed, 8)),
        options,
        rules: Rules::default(),
        site,
    };
    world.play(scenario).await.map_err(|broken| {
        let at = world.site.clock.now().unix - BEGIN;
        format!("after {} s: {broken}{}", at.as_secs(), world.rules.trace())
    })
}

/// A world under simulation.
struct World<'a> {
    options: Options<'a>,
    site: Site,
    hosts: Hosts,
    agents: Agents,
    people: People,
    rules: Rules,
}

impl World<'_> {
    async fn play(&mut self, scenario: Scenario) -> Result<usize, String> {
        setting::prepare(&self.site, self.options.workflows).await;
        if !self.options.reboot_names_its_boot {
            let guards = polity_sim::Guards::without(polity_sim::Guard::RebootsNameTheBoot);
            self.site.inspect(|sim, _| sim.set_guards(guards));
        }
        self.site.play_kubelets();
        for (at, deed) in scenario.deeds {
            self.look_until(at).await?;
            match deed {
                scenario::Deed::CutWatches(index) => self.hosts.cut_watches(index),
                scenario::Deed::Crash(index) => self.hosts.crash(index).await,
                scenario::Deed::CrashAgent(number) => self.crash_agent(number).await,
                scenario::Deed::Stop(index) => self.hosts.stop(index).await,
                deed => self.people.act(&self.site, &mut self.rules, deed).await,
            }
        }
        self.look_until(scenario.quiet_at).await?;

        // Taints of people that stay for ever may leave no node for the pods while another node is drained.
        let uncordon = scenario::Deed::Orb(orb::Deed::Uncordon);
        self.people.act(&self.site, &mut self.rules, uncordon).await;
        self.site.calm();
        self.agents.calm();
        let host = self.hosts.calm(&self.site).await;
        for _ in 0..2 {
            // An object that a person removed is missed only at the next look.
            let until = self.site.clock.now().unix + LOOKED_AT_WITHIN;
            let end = self.site.clock.now().boot + SETTLES_WITHIN.into();
            loop {
                tokio::time::sleep(LOOK_AGAIN).await;
                self.agents.supervise(&self.site).await;
                let mut news = self.news();
                news.extend(host.news());
                let busy = self.look(&news).await?;
                let now = self.site.clock.now();
                if now.unix < until || busy {
                    continue;
                }
                let mut stuck = self.site.settles(&host, None, Millis(0)).await;
                stuck.extend(self.agents.stuck(&self.site).await);
                if stuck.is_empty() {
                    break;
                }
                if now.boot >= end {
                    return Err(format!("it does not settle: {}", stuck.join("; ")));
                }
            }
        }
        let snapshot = Snapshot::of(&self.site, self.options.workflows).await;
        self.rules.compare(&snapshot, self.options.workflows)?;
        host.stop().await;
        Ok(self.rules.passes())
    }

    /// Advances the time, and checks repeatedly.
    async fn look_until(&mut self, at: u64) -> Result<(), String> {
        let end = BEGIN + Duration::from_millis(at);
        while self.site.clock.now().unix < end {
            self.hosts.supervise(&self.site);
            self.agents.supervise(&self.site).await;
            let left = end - self.site.clock.now().unix;
            tokio::time::sleep(LOOK_EVERY.min(left)).await;
            let news = self.news();
            self.look(&news).await?;
        }
        Ok(())
    }

    /// The passes that have ended since the last call.
    fn news(&mut self) -> Vec<PassRecord> {
        let mut news = self.hosts.news();
        news.extend(self.agents.news());
        news
    }

    async fn crash_agent(&mut self, number: usize) {
        let nodes = self.agents.nodes();
        if let Some(node) = nodes.get(number % nodes.len().max(1)) {
            self.agents.crash(node).await;
        }
    }

    /// Checks, and lets controllers react. Returns whether they had anything to do.
    async fn look(&mut self, news: &[PassRecord]) -> Result<bool, String> {
        let snapshot = Snapshot::of(&self.site, self.options.workflows).await;
        self.rules.look(&self.site, &snapshot, news)?;
        Ok(self.people.keep_going(&self.site, &snapshot).await)
    }
}
