//! `polity edges`: which edges of the policies' workflows the recorded passes took, and how often.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use polity_core::contract::{Edge, Manifest};
use polity_core::record::{PassRecord, RoleRecord};
use serde_json::json;

use super::recorded::Sessions;
use crate::display::{SHOWN, printable, shortened, shown};
use crate::progress::{Format, print, print_json, say};
use crate::recording::{self, Unread};

/// The most different ids that are counted. Tables have some hundred; more are ids of no table, and a few of them are shown.
const IDS: usize = 50_000;

/// Count which edges of the policies' workflows the recorded passes took.
///
/// Exits 1 if a pass noted an id that is not in its policy's table of edges, or if an id of a table was never
/// taken.
#[derive(Debug, Args)]
pub(super) struct Edges {
    /// Folders of recordings. All of them are counted together. The default is the recording of the last `polity run`.
    #[arg(value_name = "RECORDINGS")]
    recordings: Vec<PathBuf>,
    #[command(flatten)]
    sessions: Sessions,
    /// Count only the edges of this policy.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Do not fail because of ids that were never taken.
    #[arg(long)]
    allow_missing: bool,
}

impl Edges {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let mut counted = Counted::default();
        let recordings = if self.recordings.is_empty() {
            vec![recording::latest()?]
        } else {
            self.recordings.clone()
        };
        for folder in &recordings {
            let unread = self.count(folder, &mut counted)?;
            self.sessions.warn_of(format, folder, &unread);
        }
        counted.show(format);
        let missing = counted.missing();
        let unknown = counted.unknown();
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

    /// Counts the edges of a recording. Returns what of it is not read.
    fn count(&self, folder: &Path, counted: &mut Counted) -> Result<Unread> {
        let recording = self.sessions.open(folder)?;
        let all = recording.manifests()?;
        let mut manifests = all.clone();
        manifests.retain(|_, manifest| self.wants(&manifest.name));
        counted.tables_of(&manifests);
        self.sessions
            .passes(&recording, |record| counted.passed(&record, &all, &manifests))
    }

    fn wants(&self, policy: &str) -> bool {
        self.policy.as_deref().is_none_or(|wanted| wanted == policy)
    }
}

/// How often each edge was taken.
#[derive(Default)]
pub(super) struct Counted {
    /// The edges of each policy, by its name.
    tables: BTreeMap<String, Vec<Edge>>,
    /// By policy and id.
    counts: BTreeMap<(String, String), u64>,
}

impl Counted {
    /// Knows the edges of these policies.
    pub(super) fn tables_of(&mut self, manifests: &BTreeMap<String, Manifest>) {
        for manifest in manifests.values() {
            let table = self.tables.entry(manifest.name.clone());
            table.or_insert_with(|| manifest.edges.clone());
        }
    }

    /// Counts the edges of a pass, of the wanted policies among all.
    pub(super) fn passed(
        &mut self,
        record: &PassRecord,
        all: &BTreeMap<String, Manifest>,
        wanted: &BTreeMap<String, Manifest>,
    ) {
        let taken = crate::edges::taken(record, all);
        for role in &record.roles {
            if let Some(manifest) = wanted.get(&*role.policy.0) {
                self.count(manifest, role, &taken);
            }
        }
    }

    /// Adds what was counted elsewhere.
    pub(super) fn add(&mut self, other: &Counted) {
        for (policy, table) in &other.tables {
            self.tables.entry(policy.clone()).or_insert_with(|| table.clone());
        }
        for (edge, count) in &other.counts {
            *self.counts.entry(edge.clone()).or_default() += count;
        }
    }

    /// The edges that were never taken.
    pub(super) fn missing(&self) -> Vec<String> {
        let tables = self.tables.iter();
        let edges = tables
            .flat_map(|(policy, table)| table.iter().map(move |edge| (policy.clone(), edge.id.clone())));
        edges
            .filter(|edge| !self.counts.contains_key(edge))
            .map(|(_, id)| id)
            .collect()
    }

    fn count(&mut self, manifest: &Manifest, role: &RoleRecord, taken: &[String]) {
        let noted = role.conclusion.iter().flat_map(|c| &c.notes);
        let is_derived = |id: &&String| {
            let mut edges = manifest.edges.iter();
            edges.any(|e| e.id == **id && e.derived_from.is_some())
        };
        for id in noted.chain(taken.iter().filter(is_derived)) {
            let edge = (manifest.name.clone(), id.clone());
            if self.counts.len() < IDS || self.counts.contains_key(&edge) {
                *self.counts.entry(edge).or_default() += 1;
            }
        }
    }

    /// Shows every edge with its count.
    fn show(&self, format: Format) {
        for (policy, table) in &self.tables {
            for edge in table {
                let count = self.counts.get(&(policy.clone(), edge.id.clone()));
                let count = count.copied().unwrap_or(0);
                match format {
                    Format::Json => print_json(&shown(
                        json!({"policy": policy, "id": edge.id, "count": count, "meaning": edge.meaning}),
                    )),
                    Format::Text => {
                        let [id, meaning] =
                            [&edge.id, &edge.meaning].map(|text| printable(&shortened(text, SHOWN)));
                        print(&format_args!("{id:<12} {count:>8}  {meaning}"));
                    }
                }
            }
        }
    }

    /// The ids that were taken and are in no table.
    fn unknown(&self) -> Vec<String> {
        let is_in = |table: &Vec<Edge>, id: &str| table.iter().any(|edge| edge.id == id);
        let unknown = self.counts.keys().filter(|(policy, id)| {
            let table = self.tables.get(policy);
            !table.is_some_and(|table| is_in(table, id))
        });
        unknown.map(|(policy, id)| format!("{policy}: {id}")).collect()
    }
}
