//! The order in which machines are deleted: `ActiveMachines` of machine-controller-manager
//! (`pkg/controller/controller_utils.go`), without what it preserves and marks.

use mcm_api::{DEFAULT_PRIORITY, Machine, PRIORITY, Phase};
use polity_sdk::prelude::*;

/// The machines beyond the wanted number: those of the lowest priority first, then those in the earliest phases, then the
/// oldest.
pub(crate) fn surplus(mut machines: Vec<&Machine>, wanted: usize) -> Vec<&Machine> {
    machines.sort_by_key(|machine| rank(machine));
    machines.truncate(machines.len() - wanted);
    machines
}

fn rank(machine: &Machine) -> (i64, u8, Option<Time>, &str) {
    let metadata = &machine.metadata;
    let priority = metadata.annotations.get(PRIORITY);
    // As there: a priority that is no number counts as the middle one.
    let priority = priority
        .and_then(|text| text.parse().ok())
        .unwrap_or(DEFAULT_PRIORITY);
    let phase = match machine.phase() {
        None | Some(Phase::Terminating) => 0,
        Some(Phase::Failed) => 1,
        Some(Phase::CrashLoopBackOff) => 2,
        Some(Phase::Unknown) => 3,
        Some(Phase::Pending) => 4,
        Some(Phase::Running) => 5,
    };
    (priority, phase, metadata.creation_timestamp, &metadata.name)
}
