//! The configuration of a simulated cloud: of the adapter, and in the `cloud` part of a scenario file.

pub(crate) mod identity;
mod machines;
pub(crate) mod node_problem;
mod routers;
pub(crate) mod scenario;
mod vms;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::identity::IdentityProvider;
use crate::config::scenario::{FaultRule, Span, Trouble, WorldEvent};
use crate::kernel::between::Between;
use crate::kernel::faults::Outage;
use polity_clouds::Millis;
use polity_clouds::{ConfigError, configuration};

pub use identity::Account;
pub use machines::{Machines, Packages, PoolDurations, Tokens};
pub use routers::{Image, RouterPort, Routers};
pub use vms::{Network, TaskDurations, Template};

/// How a simulated cloud behaves.
///
/// Without any configuration it behaves badly in every way that is allowed: no client tokens, searches and reads that
/// lag behind writes, clones that nobody sees until they end. Fewer troubles are a switch, more are a [`FaultRule`].
/// Times are counted from the start of the simulation; durations are written as in [`Millis`].
///
/// ```yaml
/// templates: [{name: ubuntu-24.04, tenants: [team-a]}]
/// tasks: {clone: {min: 20s, max: 40s}}
/// faults:
/// - {operation: vm.clone, vm: machine-3, count: 2, then: {failTask: {fault: InsufficientResourcesFault}}}
/// - {operation: vm.clone, vm: machine-4, nth: 1, then: loseAnswer}
/// - {operation: vm.*, from: 1m, until: 2m, probability: 0.2, then: {answerAfter: 4s}}
/// - {operation: machine.create, vm: machine-6, then: neverJoins}
/// outages: [{from: 3m, until: 4m, calls: silent}]
/// events:
/// - {vm: machine-5, afterPowerOn: 30s, does: vanish}
/// - {vm: machine-7, afterPowerOn: 5m, does: {nodeProblem: readonlyFilesystem}}
/// apiServerDown: [{from: 5m, until: 7m}]
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SimConfig {
    /// The templates that can be cloned. With an empty list, every name is a template with one disk.
    pub templates: Vec<Template>,
    /// The networks that NICs can attach to. With an empty list, every name is a network with DHCP.
    pub networks: Vec<Network>,
    /// The images that routers boot from. With an empty list, every id is an image.
    pub images: Vec<Image>,
    /// The accounts that a plain credential plan can name.
    pub accounts: Vec<Account>,
    /// The principals, their credentials, and the roles that they may assume.
    pub identity: IdentityProvider,
    /// Whether the cloud knows client tokens: a create with the key of an earlier one is answered with that
    /// one's task.
    pub tokens: bool,
    /// Whether names of VMs are unique in a folder. If not, a search before a clone prevents duplicates only
    /// with a `lag` of 0.
    pub unique_names: bool,
    /// How far a search or a read may lag behind writes, at most. With 0 nothing lags.
    pub lag: Millis,
    /// How long an answer takes.
    pub answers: Between,
    /// How long a task waits before it runs.
    pub queue: Between,
    /// How long tasks run.
    pub tasks: TaskDurations,
    /// How long after power-on a NIC gets its address.
    pub dhcp: Between,
    /// How long a task's record is kept after the task has ended; never shorter than `lag`.
    pub task_retention: Millis,
    /// How machines become nodes.
    pub machines: Machines,
    /// How long work on machines of pools takes.
    pub pools: PoolDurations,
    /// The packages that agents can install.
    pub packages: Packages,
    /// How routers boot and are plugged.
    pub routers: Routers,
    /// When the API server that machines join does not answer.
    pub api_server_down: Vec<Span>,
    /// Faults of calls. The first rule that fires decides.
    pub faults: Vec<FaultRule>,
    /// When the whole cloud cannot be reached.
    pub outages: Vec<Outage>,
    /// Changes of VMs by other people.
    pub events: Vec<WorldEvent>,
}

impl Default for SimConfig {
    fn default() -> Self {
        SimConfig {
            templates: Vec::new(),
            networks: Vec::new(),
            images: Vec::new(),
            accounts: Vec::new(),
            identity: IdentityProvider::default(),
            tokens: false,
            unique_names: true,
            lag: Millis::seconds(3),
            answers: Between::new(20, 300),
            queue: Between::new(0, 2_000),
            tasks: TaskDurations::default(),
            dhcp: Between::new(3_000, 30_000),
            // vCenter keeps records of tasks for as long.
            task_retention: Millis::seconds(600),
            machines: Machines::default(),
            pools: PoolDurations::default(),
            packages: Packages::default(),
            routers: Routers::default(),
            api_server_down: Vec::new(),
            faults: Vec::new(),
            outages: Vec::new(),
            events: Vec::new(),
        }
    }
}

impl SimConfig {
    /// The JSON Schema of a configuration.
    pub fn schema() -> Value {
        polity_clouds::schema::<SimConfig>()
    }

    /// Reads a configuration after checking it against the schema, so that an error names its path. A YAML
    /// file is read into a JSON value first.
    pub fn from_value(value: &Value) -> Result<Self, ConfigError> {
        let config: Self = configuration(value)?;
        config.check().map(|()| config)
    }

    /// Checks the rules that a schema cannot express.
    fn check(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("answers", self.answers),
            ("queue", self.queue),
            ("tasks.clone", self.tasks.clone),
            ("tasks.reconfigure", self.tasks.reconfigure),
            ("tasks.powerOn", self.tasks.power_on),
            ("tasks.powerOff", self.tasks.power_off),
            ("tasks.destroy", self.tasks.destroy),
            ("tasks.push", self.tasks.push),
            ("dhcp", self.dhcp),
            ("machines.boot", self.machines.boot),
            ("machines.join", self.machines.join),
            ("pools.install", self.pools.install),
            ("pools.init", self.pools.init),
            ("pools.join", self.pools.join),
            ("pools.remove", self.pools.remove),
            ("packages.takes", self.packages.takes),
            ("routers.build", self.routers.build),
            ("routers.boot", self.routers.boot),
            ("routers.plug", self.routers.plug),
            ("routers.stop", self.routers.stop),
        ];
        for (path, range) in ranges {
            ensure(range.min <= range.max, path, "min must not be larger than max")?;
        }
        for (i, rule) in self.faults.iter().enumerate() {
            let path = format!("faults[{i}].probability");
            ensure(
                rule.probability.is_none_or(|p| (0.0..=1.0).contains(&p)),
                &path,
                "must be between 0 and 1",
            )?;
            ensure(
                rule.nth != Some(0),
                &format!("faults[{i}].nth"),
                "must be at least 1",
            )?;
        }
        for (i, outage) in self.outages.iter().enumerate() {
            ensure(
                outage.from < outage.until,
                &format!("outages[{i}].until"),
                "must be later than `from`",
            )?;
        }
        for (i, span) in self.api_server_down.iter().enumerate() {
            let path = format!("apiServerDown[{i}].until");
            ensure(span.from < span.until, &path, "must be later than `from`")?;
        }
        Ok(())
    }

    /// The longest time by which a rule delays an effect, or hides it.
    pub(crate) fn latest_effect(&self) -> u64 {
        let late = |rule: &FaultRule| match rule.then {
            Trouble::HappenLate(by) | Trouble::ShowsAfter(by) => by.0,
            _ => 0,
        };
        self.faults.iter().map(late).max().unwrap_or(0)
    }
}

fn ensure(holds: bool, path: &str, message: &str) -> Result<(), ConfigError> {
    if holds {
        Ok(())
    } else {
        Err(ConfigError {
            path: path.to_owned(),
            message: message.to_owned(),
        })
    }
}
