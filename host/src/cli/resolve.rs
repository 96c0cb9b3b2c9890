//! `polity resolve`: a person says what became of a create that no look at the cloud tells.

use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use polity_cluster::Cluster;
use polity_core::binding::BindingSpec;
use polity_core::call::{ManualResolution, PendingEntry, Write};
use polity_core::contract::{Event, EventType, Kind, ObjectRef};
use polity_core::object::Object;
use polity_kube_rules::schema::{Dialect, compile};
use serde_json::{Value, json};

use super::connection::Connection;
use super::recorded::KindName;
use crate::binding_objects::standing;
use crate::clock::Clock;
use crate::progress::{Format, say};

/// Say what became of a create that is in doubt, where no look at the cloud tells.
///
/// An entry in status.pending stays as long as the cloud cannot tell what became of it: the account is another one, or the
/// driver that made it is gone. Look for yourself before you say it: if something was created that you call absent,
/// there will be two of it. Users who may read the object and write its status may do this; it becomes an Event, and the
/// next pass is recorded with it. Without --kubeconfig, --context or --in-cluster the default kubeconfig is used, as
/// by kubectl.
#[derive(Debug, Args)]
pub(super) struct Resolve {
    /// The kind, with its group if several groups have the kind: `Machine` or `machine.capv.polity.dev`.
    #[arg(value_name = "KIND[.GROUP]")]
    kind: String,
    /// The object's name, after its namespace if it has one: `team-a/machine-03`.
    #[arg(value_name = "[NS/]NAME")]
    name: String,
    /// The key of the entry in status.pending.
    #[arg(value_name = "KEY")]
    key: String,
    /// Nothing was created, and nothing will be: the policy may create it again.
    #[arg(long, required_unless_present = "done")]
    absent: bool,
    /// It was created: what the create would have answered, as JSON.
    #[arg(long, value_name = "JSON", conflicts_with = "absent")]
    done: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

impl Resolve {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.resolve(format))?;
        Ok(ExitCode::SUCCESS)
    }

    async fn resolve(&self, format: Format) -> Result<()> {
        let answer = self.done.as_deref().map(serde_json::from_str::<Value>);
        let answer = answer.transpose().context("--done is not JSON")?;
        let cluster = self.connection.connect(super::LEASE).await?;
        let kind = self.governed(&cluster).await?;
        let object = self.read(&cluster, &kind).await?;
        let (pending, said) = self.resolved(&kind, &object, answer)?;
        let write = Write::Patch {
            object: object.reference(),
            subresource: Some("status".into()),
            precondition: Some(object.precondition()),
            patch: json!({"status": {"pending": pending}}),
        };
        let (kind, name) = (&kind.kind, &self.name);
        let written = cluster.write(&write).await;
        written.map_err(|failure| anyhow!("cannot write the status of {kind} {name}: {failure}"))?;
        say(
            format,
            &format!("recorded that {said}: the next pass of {kind} {name} uses this answer"),
        );
        let event = Write::Event {
            object: object.reference(),
            uid: object.uid().to_owned(),
            event: Event {
                kind: EventType::Normal,
                reason: "Resolved".to_owned(),
                message: format!("a person says that {said}"),
            },
            now: Clock::real().now().unix,
        };
        if let Err(failure) = cluster.write(&event).await {
            say(
                format,
                &format!(
                    "the entry is resolved, but the Event that says so was not written: {failure}. Nothing else needs to \
                     be done"
                ),
            );
        }
        Ok(())
    }

    /// The entries of the object, among them the resolved one, and what became of that one in words.
    fn resolved(&self, kind: &Kind, object: &Object, answer: Option<Value>) -> Result<(Vec<Value>, String)> {
        let mut pending = match object.at("status.pending") {
            Some(Value::Array(pending)) => pending,
            _ => Vec::new(),
        };
        let keys: Vec<&str> = pending.iter().filter_map(|entry| entry["key"].as_str()).collect();
        let Some(place) = keys.iter().position(|key| *key == self.key) else {
            let (kind, name) = (&kind.kind, &self.name);
            match keys[..] {
                [] => bail!("nothing is in doubt of {kind} {name}: status.pending is empty"),
                _ => bail!(
                    "{kind} {name} has no entry {:?} in status.pending; it has {}",
                    self.key,
                    keys.join(", ")
                ),
            }
        };
        let mut entry: PendingEntry = serde_json::from_value(pending[place].clone()).with_context(|| {
            format!(
                "entry {:?} is none that this version of polity can read",
                self.key
            )
        })?;
        let became = match &answer {
            None => "is absent".to_owned(),
            Some(answer) => {
                check(&entry, answer)?;
                format!("was done, and answered {answer}")
            }
        };
        entry.resolved = Some(answer.map_or(ManualResolution::Absent, ManualResolution::Done));
        let said = format!(
            "{} of {} (key {}) {became}",
            entry.operation, entry.intent, entry.key
        );
        pending[place] = serde_json::to_value(&entry)?;
        Ok((pending, said))
    }

    /// The kind that bindings govern by this name.
    async fn governed(&self, cluster: &Cluster) -> Result<Kind> {
        let bindings = standing(cluster)
            .await
            .map_err(|failure| anyhow!("cannot list the PolicyBindings: {failure}"))?;
        let name = KindName::new(&self.kind);
        let specs = bindings
            .iter()
            .filter_map(|binding| serde_json::from_value::<BindingSpec>(binding["spec"].clone()).ok());
        let mut kinds: Vec<Kind> = specs.map(|spec| spec.governs.kind()).collect();
        kinds.retain(|kind| {
            let group = kind.api_version.split_once('/').map_or("", |(group, _)| group);
            name.fits(&kind.kind, group)
        });
        kinds.sort();
        kinds.dedup();
        match &kinds[..] {
            [kind] => Ok(kind.clone()),
            [] => bail!("no PolicyBinding governs a kind {:?}", self.kind),
            several => {
                let all: Vec<String> = several
                    .iter()
                    .map(|kind| format!("{} of {}", kind.kind, kind.api_version))
                    .collect();
                bail!(
                    "{:?} is several kinds: {}; give KIND.GROUP",
                    self.kind,
                    all.join(", ")
                )
            }
        }
    }

    async fn read(&self, cluster: &Cluster, kind: &Kind) -> Result<Object> {
        let (namespace, name) = match self.name.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name),
            None => (None, self.name.as_str()),
        };
        let object = ObjectRef {
            cluster: None,
            kind: kind.clone(),
            namespace,
            name: name.to_owned(),
        };
        let read = cluster.latest(object).await;
        let read = read.map_err(|failure| anyhow!("cannot read {} {}: {failure}", kind.kind, self.name))?;
        Ok(Object::new(read))
    }
}

/// Checks an answer against the catalogue, where it is of a service that drivers have.
fn check(entry: &PendingEntry, answer: &Value) -> Result<()> {
    let Some(schema) = polity_drivers::answer_schema(&entry.service, &entry.operation) else {
        return Ok(());
    };
    let schema = compile(Dialect::Json, "", &schema).context("the catalogue has no schema")?;
    let checked = schema.check(answer);
    checked.map_err(|causes| anyhow!("--done is not what {} answers: {causes}", entry.operation))
}
