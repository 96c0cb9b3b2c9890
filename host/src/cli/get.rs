//! `polity get`: how the objects of a recording stood after their last passes.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use polity_kube_rules::time::rfc3339;
use serde_json::json;

use super::recorded::{KindName, Recorded};
use crate::overview::State;
use crate::progress::{Format, print, print_json};
use crate::table::Table;

/// Show how each object stood after its last recorded pass.
///
/// `polity explain` shows the passes of one object.
#[derive(Debug, Args)]
pub(super) struct Get {
    /// Only objects of this kind: `machines`, or with its group `machine.capv.polity.dev`.
    #[arg(value_name = "KIND[.GROUP]")]
    kind: Option<String>,
    /// Only objects of this namespace.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Also show objects that were released.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    recorded: Recorded,
}

impl Get {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let kind = self.kind.as_deref().map(KindName::new);
        let mut table = Table::new(&["KIND", "OBJECT", "PHASE", "STATE", "PASSES", "LAST PASS", "THEN"]);
        for (key, standing) in self.recorded.objects(format)? {
            let is_kind = kind
                .as_ref()
                .is_none_or(|kind| kind.fits(&standing.kind, &standing.group));
            let is_there = self.all || standing.state != State::Released;
            let is_in = self.namespace.is_none() || self.namespace.as_deref() == key.namespace.as_deref();
            if !(is_kind && is_there && is_in) {
                continue;
            }
            let ended = rfc3339(standing.ended.unix.0);
            if format == Format::Json {
                print_json(&json!({
                    "binding": &*key.binding, "kind": &*standing.kind, "group": &*standing.group,
                    "object": key.to_string(), "phase": standing.phase, "state": standing.state,
                    "passes": standing.costs.passes, "lastPass": ended, "then": standing.then,
                }));
                continue;
            }
            table.row([
                standing.kind.to_string(),
                key.to_string(),
                standing.phase,
                standing.state.as_str().to_owned(),
                standing.costs.passes.to_string(),
                ended,
                standing.then,
            ]);
        }
        if format == Format::Text {
            table.lines(None).iter().for_each(|line| print(line));
        }
        Ok(ExitCode::SUCCESS)
    }
}
