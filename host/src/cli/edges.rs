//! `polity edges`: which edges of the policies' workflows the recorded passes took, and how often.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use polity_core::contract::Edge;
use serde_json::json;

use crate::display::printable;
use crate::progress::{Format, print, print_json, say};
use crate::recording::Recording;

/// Count which edges of the policies' workflows the recorded passes took.
///
/// Exits 1 if a pass noted an id that is not in its policy's table of edges, or if an id of a table was never
/// taken.
#[derive(Debug, Args)]
pub(super) struct Edges {
    /// Folders of recordings. All of them are counted together.
    #[arg(required = true, value_name = "RECORDINGS")]
    recordings: Vec<PathBuf>,
    /// Count only the edges of this policy.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Do not fail because of ids that were never taken.
    #[arg(long)]
    allow_missing: bool,
}

impl Edges {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let mut tables: BTreeMap<String, Vec<Edge>> = BTreeMap::new();
        let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
        for folder in &self.recordings {
            let recording = Recording::open(folder)?;
            let manifests = recording.manifests()?;
            for manifest in manifests.values().filter(|m| self.wants(&m.name)) {
                tables
                    .entry(manifest.name.clone())
                    .or_insert_with(|| manifest.edges.clone());
            }
            let damaged = recording.passes(|record| {
                let taken = crate::edges::taken(&record, &manifests);
                for role in &record.roles {
                    let Some(manifest) = manifests.get(&*role.policy.0).filter(|m| self.wants(&m.name))
                    else {
                        continue;
                    };
                    let noted = role.conclusion.iter().flat_map(|c| &c.notes);
                    let derived = taken.iter().filter(|id| {
                        manifest
                            .edges
                            .iter()
                            .any(|e| e.id == **id && e.derived_from.is_some())
                    });
                    for id in noted.chain(derived) {
                        *counts.entry((manifest.name.clone(), id.clone())).or_default() += 1;
                    }
                }
            })?;
            super::recorded::warn_of_damage(format, folder, damaged);
        }
        let (mut unknown, mut missing) = (Vec::new(), Vec::new());
        for (policy, table) in &tables {
            for edge in table {
                let count = counts
                    .get(&(policy.clone(), edge.id.clone()))
                    .copied()
                    .unwrap_or(0);
                if count == 0 {
                    missing.push(edge.id.clone());
                }
                match format {
                    Format::Json => {
                        print_json(
                            &json!({"policy": policy, "id": edge.id, "count": count, "meaning": edge.meaning}),
                        );
                    }
                    Format::Text => {
                        print(&format_args!(
                            "{:<12} {count:>8}  {}",
                            printable(&edge.id),
                            printable(&edge.meaning)
                        ));
                    }
                }
            }
        }
        for (policy, id) in counts.keys() {
            if !tables
                .get(policy)
                .is_some_and(|table| table.iter().any(|edge| edge.id == *id))
            {
                unknown.push(format!("{policy}: {id}"));
            }
        }
        if !unknown.is_empty() {
            say(
                format,
                &format!(
                    "ids that are in no policy's table of edges: {}",
                    unknown.join(", ")
                ),
            );
        }
        if !missing.is_empty() {
            say(format, &format!("never taken: {}", missing.join(", ")));
        }
        let failed = !unknown.is_empty() || (!missing.is_empty() && !self.allow_missing);
        Ok(if failed {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }

    fn wants(&self, policy: &str) -> bool {
        self.policy.as_deref().is_none_or(|wanted| wanted == policy)
    }
}
