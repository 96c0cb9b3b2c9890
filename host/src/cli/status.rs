//! `polity status`: how a binding stands in a cluster.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use polity_core::binding::{API_VERSION, KIND};
use polity_core::contract::{Code, Kind, ObjectRef};
use serde_json::Value;

use super::connection::Connection;
use crate::display::printable;
use crate::progress::{Format, print, print_json};
use crate::table::Table;

/// The conditions that are False when all is well.
const PROBLEMS: [&str; 3] = ["Ungranted", "WaitClamped", "Overlap"];

/// Show how a binding stands in a cluster: its policies, its objects, and what is wrong.
///
/// The host that holds the lease writes this status. Exits 1 if something is wrong. Without --kubeconfig,
/// --context or --in-cluster the default kubeconfig is used, as by kubectl.
#[derive(Debug, Args)]
pub(super) struct Status {
    /// The name of the PolicyBinding.
    #[arg(value_name = "BINDING")]
    binding: String,
    #[command(flatten)]
    connection: Connection,
}

impl Status {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let binding = runtime.block_on(self.read())?;
        let wrong = wrong(&binding["status"]);
        match format {
            Format::Json => print_json(&binding["status"]),
            Format::Text => self.show(&binding, &wrong),
        }
        Ok(if wrong.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    async fn read(&self) -> Result<Value> {
        let cluster = self.connection.connect(super::LEASE).await?;
        let object = ObjectRef {
            cluster: None,
            kind: Kind {
                api_version: API_VERSION.into(),
                kind: KIND.into(),
            },
            namespace: None,
            name: self.binding.clone(),
        };
        match cluster.latest(object).await {
            Ok(binding) => Ok(binding),
            Err(failure) if failure.code == Code::NotFound => {
                bail!("there is no PolicyBinding {:?}", self.binding)
            }
            Err(failure) if failure.code == Code::Unimplemented => bail!(
                "the cluster has no PolicyBindings: install their definition with `polity crds | kubectl apply -f -`"
            ),
            Err(failure) => bail!("cannot read PolicyBinding {:?}: {failure}", self.binding),
        }
    }

    fn show(&self, binding: &Value, wrong: &[String]) {
        let (spec, status) = (&binding["spec"], &binding["status"]);
        let line = |what: &str, text: &str| print(&format!("{what:<11}{}", printable(text)));
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        line("binding", &self.binding);
        let governs = &spec["governs"];
        line(
            "governs",
            &format!("{} {}", text(&governs["apiVersion"]), text(&governs["kind"])),
        );
        if binding["metadata"]["generation"] != status["observedGeneration"] {
            line(
                "status",
                "of an older version: no host has taken in the newest one yet",
            );
        }
        for count in ["objects", "retrying", "passes", "acts", "faults"] {
            line(count, &text(&status[count]));
        }
        if let Some(fault) = status["lastFault"].as_object() {
            let of = |field: &str| fault.get(field).map_or_else(String::new, text);
            line(
                "last fault",
                &format!("{} on {}: {}", of("time"), of("object"), of("message")),
            );
        }
        let mut policies = Table::new(&["ROLE", "POLICY", "VERSION", "MEMORY", "SHA256"]);
        for (role, policy) in status["policies"].as_object().into_iter().flatten() {
            let cell = |field: &str| text(&policy[field]);
            policies.row([
                role.clone(),
                cell("name"),
                cell("version"),
                cell("memory"),
                cell("sha256"),
            ]);
        }
        print(&"");
        policies.lines(None).iter().for_each(|line| print(line));
        let retries = status["retries"].as_array().map_or(&[][..], Vec::as_slice);
        if !retries.is_empty() {
            let mut table = Table::new(&["RETRIES", "WHY"]);
            for retry in retries {
                table.row([text(&retry["object"]), text(&retry["why"])]);
            }
            print(&"");
            table.lines(None).iter().for_each(|line| print(line));
            let more = status["retrying"]
                .as_u64()
                .unwrap_or_default()
                .saturating_sub(retries.len() as u64);
            if more > 0 {
                print(&format!("and {more} more"));
            }
        }
        let mut conditions = Table::new(&["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"]);
        for condition in status["conditions"].as_array().into_iter().flatten() {
            let cell = |field: &str| text(&condition[field]);
            conditions.row(["type", "status", "lastTransitionTime", "reason", "message"].map(cell));
        }
        print(&"");
        conditions.lines(None).iter().for_each(|line| print(line));
        if !wrong.is_empty() {
            print(&"");
            wrong.iter().for_each(|one| line("wrong", one));
        }
    }
}

/// What is wrong with a binding.
fn wrong(status: &Value) -> Vec<String> {
    let Some(conditions) = status["conditions"].as_array() else {
        return vec!["no host has taken in this binding yet".to_owned()];
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let wrong = conditions.iter().filter(|condition| {
        let kind = condition["type"].as_str().unwrap_or_default();
        condition["status"] != if PROBLEMS.contains(&kind) { "False" } else { "True" }
    });
    wrong
        .map(|condition| format!("{}: {}", text(&condition["type"]), text(&condition["message"])))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_is_wrong_if_it_is_not_as_when_all_is_well() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "message": "m"});
        let of = |conditions: Vec<Value>| wrong(&json!({ "conditions": conditions }));
        let well = vec![condition("Loaded", "True"), condition("Overlap", "False")];
        assert_eq!(of(well), Vec::<String>::new());
        let ill = vec![
            condition("Loaded", "False"),
            condition("Overlap", "True"),
            condition("Kept", "Unknown"),
        ];
        assert_eq!(of(ill), ["Loaded: m", "Overlap: m", "Kept: m"]);
        assert_eq!(wrong(&Value::Null).len(), 1, "nobody wrote a status");
    }
}
