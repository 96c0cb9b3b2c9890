//! `polity top`: which objects of a recording cost most.

use std::cmp::Reverse;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;

use super::recorded::{KindName, RecordedPasses};
use crate::display::{duration, shown};
use crate::overview::Costs;
use crate::progress::{Format, print, print_json};
use crate::table::Table;

/// Show which objects of a recording cost most.
#[derive(Debug, Args)]
pub(super) struct Top {
    /// Only objects of this kind: `machines`, or with its group `machine.capv.polity.dev`.
    #[arg(value_name = "KIND[.GROUP]")]
    kind: Option<String>,
    /// The cost by which the objects are sorted.
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// Show this many objects.
    #[arg(long, value_name = "N", default_value_t = 20)]
    first: usize,
    #[command(flatten)]
    recorded: RecordedPasses,
}

/// A cost.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum By {
    /// The number of passes.
    #[default]
    Passes,
    /// Calls into policies.
    Steps,
    /// The fuel of these calls: about WebAssembly instructions.
    Fuel,
    /// Requests of policies to the cluster and to clouds.
    Requests,
    /// Passes that failed.
    Failures,
    /// The time that the passes took.
    Time,
}

impl By {
    fn of(self, costs: &Costs) -> u64 {
        match self {
            By::Passes => costs.passes,
            By::Steps => costs.steps,
            By::Fuel => costs.fuel,
            By::Requests => costs.requests,
            By::Failures => costs.failures,
            By::Time => polity_core::time::millis(costs.time),
        }
    }
}

impl Top {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let kind = self.kind.as_deref().map(KindName::new);
        let mut objects = self.recorded.objects(format, |_, _| {})?;
        objects.retain(|(_, standing)| {
            kind.as_ref()
                .is_none_or(|kind| kind.fits(&standing.kind, &standing.group))
        });
        objects.sort_by_key(|(_, standing)| Reverse(self.by.of(&standing.costs)));
        let headings = [
            "KIND", "OBJECT", "PASSES", "STEPS", "FUEL", "REQUESTS", "FAILURES", "TIME",
        ];
        let mut table = Table::new(&headings);
        for (key, standing) in objects.iter().take(self.first) {
            let (kind, object, costs) = (&*standing.kind, key.to_string(), &standing.costs);
            if format == Format::Json {
                print_json(&shown(json!({"kind": kind, "object": object, "costs": costs})));
                continue;
            }
            let numbers = [
                costs.passes,
                costs.steps,
                costs.fuel,
                costs.requests,
                costs.failures,
            ];
            let numbers = numbers.map(|number| number.to_string());
            let cells = [kind.to_owned(), object].into_iter().chain(numbers);
            table.row(cells.chain([duration(costs.time)]));
        }
        if format == Format::Text {
            table.lines(None).iter().for_each(|line| print(line));
        }
        Ok(ExitCode::SUCCESS)
    }
}
