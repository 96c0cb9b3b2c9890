//! What the steps of a recorded pass said to the author of their policy: the recorded version makes them again.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use polity_core::binding::Limits;
use polity_core::contract::Pass;
use polity_core::record::{PassRecord, RoleRecord};

use super::Said;
use crate::cli::policy::{in_folder, of_digest};
use crate::cli::recorded::cut_limits;
use crate::policies::Policies;
use crate::progress::{Format, say};
use crate::recording::Recording;

/// The interface that a policy imports which says something.
const INTERFACE: &str = "polity:policy/debug@";

/// The most bytes of what the steps of a role said. Messages behind them are not shown.
const SAID: usize = 4 << 20;

/// The versions of a recording.
pub(super) struct Debug {
    recording: Recording,
    policies: Policies,
    format: Format,
    /// The bindings whose limits are cut, and that are told.
    told: RefCell<BTreeSet<String>>,
}

impl Debug {
    pub(super) fn of(folder: &Path, recording: Recording, format: Format) -> Result<Self> {
        Ok(Debug {
            recording,
            policies: in_folder(&folder.join("policies"), format)?,
            format,
            told: RefCell::default(),
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
        let limits = self.limits(record)?;
        let (mut said, mut fuel, mut bytes) = (Said::new(), 0_u64, 0);
        for had in &role.had {
            if said.len() >= limits.steps as usize || fuel > limits.pass_fuel || bytes > SAID {
                let (made, all, pass, key) = (said.len(), role.had.len(), record.pass.0, &record.key);
                let message = format!(
                    "pass {pass} of {key}: {made} of {all} steps are made again; the others take more than the limits of a pass"
                );
                say(self.format, &message);
                break;
            }
            let known = role.journal.iter().take(*had as usize);
            let pass = Pass {
                object: record.object.clone(),
                now: record.started.unix.0,
                causes: record.causes.clone(),
                attempt: record.attempt,
                config: role.config.clone(),
                pending: role.pending.clone(),
                journal: known.cloned().collect(),
            };
            let (messages, used) = policy.debug(&pass, &limits);
            fuel = fuel.saturating_add(used);
            bytes += messages.iter().map(String::len).sum::<usize>();
            said.push(messages);
        }
        Ok(said)
    }

    /// The limits of a step of this pass. Tells once what is cut of those of a binding.
    fn limits(&self, record: &PassRecord) -> Result<Limits> {
        let Some((spec, cut)) = self.recording.binding(&record.binding)? else {
            return Ok(Limits::default());
        };
        if !cut.is_empty() && self.told.borrow_mut().insert(record.binding.to_string()) {
            say(self.format, &cut_limits(&record.key.binding, &cut));
        }
        Ok(spec.limits)
    }
}
