//! `polity get`: how each object stood after its last recorded pass.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use polity_kube_rules::time::rfc3339;
use serde_json::json;

use super::recorded::{KindName, RecordedPasses};
use crate::display::{SHOWN, shown};
use crate::edges;
use crate::overview::State;
use crate::progress::{Format, print, print_json};
use crate::table::Table;

/// Show how each object stood after its last recorded pass, and what happened last.
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
    released: bool,
    /// Also show the ids of the edges that the last pass took.
    #[arg(long)]
    ids: bool,
    #[command(flatten)]
    recorded: RecordedPasses,
}

impl Get {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let kind = self.kind.as_deref().map(KindName::new);
        let mut edges = BTreeMap::new();
        let objects = self.recorded.objects(format, |record, manifests| {
            edges.insert(record.key.clone(), first(edges::taken(record, manifests)));
        })?;
        let ids = if self.ids { &["EDGES"][..] } else { &[] };
        let headings = [
            "KIND",
            "OBJECT",
            "PHASE",
            "PASSES",
            "LAST PASS",
            "NEXT",
            "LAST EVENT",
        ];
        let mut table = Table::new(&[&headings[..], ids].concat());
        for (key, standing) in objects {
            let is_kind = kind
                .as_ref()
                .is_none_or(|kind| kind.fits(&standing.kind, &standing.group));
            let is_there = self.released || standing.state != State::Released;
            let is_in = self.namespace.is_none() || self.namespace.as_deref() == key.namespace.as_deref();
            if !(is_kind && is_there && is_in) {
                continue;
            }
            let ended = rfc3339(standing.ended.unix.0);
            let (passes, edges) = (standing.costs.passes, &edges[&key]);
            if format == Format::Json {
                print_json(&shown(json!({
                    "binding": &*key.binding, "kind": &*standing.kind, "group": &*standing.group,
                    "object": key.to_string(), "phase": standing.phase, "state": standing.state,
                    "passes": passes, "lastPass": ended, "event": standing.last_event(), "edges": edges,
                    "then": standing.then.to_string(),
                })));
                continue;
            }
            let event = standing.last_event().to_owned();
            let cells = [
                standing.kind.to_string(),
                key.to_string(),
                standing.phase,
                passes.to_string(),
                ended,
                standing.then.next,
                event,
            ];
            table.row(cells.into_iter().chain(self.ids.then(|| edges.join(" "))));
        }
        if format == Format::Text {
            // The last columns are the longest: a terminal shows as much of them as there is room for.
            let terminal = std::io::stdout().is_terminal();
            let width = terminal.then(|| console::Term::stdout().size().1.into());
            table.lines(width).iter().for_each(|line| print(line));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The first of these ids: as many as a cell shows.
fn first(mut ids: Vec<String>) -> Vec<String> {
    let mut room = SHOWN;
    let fits = ids.iter().take_while(|id| {
        let left = room.checked_sub(id.len() + 1);
        room = left.unwrap_or_default();
        left.is_some()
    });
    let fits = fits.count();
    if fits < ids.len() {
        ids.truncate(fits);
        ids.push("…".to_owned());
    }
    ids
}
