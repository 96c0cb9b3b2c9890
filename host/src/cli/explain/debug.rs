//! What the steps of a recorded pass said to the author of their policy: the recorded version makes them again.

use std::path::Path;

use anyhow::Result;
use polity_core::contract::{Entry, Pass};
use polity_core::record::{PassRecord, RoleRecord};

use super::Said;
use crate::cli::policy::{in_folder, of_digest};
use crate::policies::Policies;
use crate::progress::Format;
use crate::recording::Recording;

/// The interface that a policy imports which says something.
const INTERFACE: &str = "polity:policy/debug@";

/// The versions of a recording.
pub(super) struct Debug {
    recording: Recording,
    policies: Policies,
}

impl Debug {
    pub(super) fn of(folder: &Path, format: Format) -> Result<Self> {
        Ok(Debug {
            recording: Recording::open(folder)?,
            policies: in_folder(&folder.join("policies"), format)?,
        })
    }

    /// What each step of a role said; nothing if its policy never says anything, or if the record lacks what the steps saw.
    pub(super) fn said(&self, record: &PassRecord, role: &RoleRecord) -> Result<Said> {
        if record.shortened {
            return Ok(Said::new());
        }
        let (policy, _) = self.policies.load(&of_digest(&role.policy.0))?;
        if !policy
            .imports()
            .iter()
            .any(|import| import.starts_with(INTERFACE))
        {
            return Ok(Said::new());
        }
        let binding = self.recording.binding(&record.binding)?;
        let limits = binding.map(|binding| binding.limits).unwrap_or_default();
        let known = role.had.iter().map(|had| role.journal.iter().take(*had as usize));
        let step = |journal: Vec<Entry>| {
            let pass = Pass {
                object: record.object.clone(),
                now: record.started.unix.0,
                causes: record.causes.clone(),
                attempt: record.attempt,
                config: role.config.clone(),
                pending: role.pending.clone(),
                journal,
            };
            policy.debug(&pass, &limits)
        };
        Ok(known.map(|journal| step(journal.cloned().collect())).collect())
    }
}
