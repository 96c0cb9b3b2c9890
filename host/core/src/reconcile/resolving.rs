//! Resolving: the cloud is asked what came of each create that the pass found in doubt.

use super::pending::Pending;
use super::stepping::Stepping;
use super::work::{Entry, Fate, Known};
use super::{CLUSTER_LONGEST, Context, Flow, Phase, PhaseEvent};
use crate::call::{Call, PendingEntry, Reply};
use crate::contract::{Doubt, Role};

/// The cloud is asked for every entry at once.
#[derive(Debug, Default)]
pub(crate) struct Resolving {
    /// Boot milliseconds: when the cloud was asked.
    asked_at: u64,
}

impl Resolving {
    pub(super) fn on_event(mut self, event: PhaseEvent, context: &mut Context<'_>) -> Flow {
        match event {
            PhaseEvent::Entered => {
                self.asked_at = context.view.now.boot;
                ask(context);
            }
            PhaseEvent::Reply(slot, Reply::Settled(doubt)) => self.resolved(slot, doubt, context),
            // A failure to look, or no answer in time: nobody knows.
            PhaseEvent::Reply(slot, Reply::Answer(Err(_))) | PhaseEvent::Cut(slot) => {
                self.resolved(slot, Doubt::Unknown, context);
            }
            event => return Flow::unexpected(&Phase::Resolving(self), &event),
        }
        match context.work.found.iter().any(|entry| entry.fate == Fate::Open) {
            true => Flow::Wait(Phase::Resolving(self)),
            false => Flow::Enter(Stepping::begin(Role::Lifecycle)),
        }
    }

    fn resolved(&self, slot: usize, doubt: Doubt, context: &mut Context<'_>) {
        let Some(entry) = context.work.found.get(slot).map(|entry| entry.entry.clone()) else {
            return;
        };
        let doubt = match doubt {
            Doubt::Absent if !self.would_be_visible(&entry, context) => Doubt::Unknown,
            doubt => doubt,
        };
        context.work.found[slot].fate = Fate::Resolved(doubt);
    }

    /// Whether this host has known of an entry for so long that what it announced would be seen by now. The adapter
    /// counts by unix time, which jumps; a clock that does not is asked as well.
    fn would_be_visible(&self, entry: &PendingEntry, context: &Context<'_>) -> bool {
        let known = context.work.known.get(&entry.key);
        let operation = context.frame.binding.catalogue.operations.get(&entry.operation);
        match (known, operation) {
            (Some(known), Some(operation)) => {
                self.asked_at >= known.since.saturating_add(operation.visible_within)
            }
            _ => false,
        }
    }
}

/// Asks the cloud for every entry, unless this process wrote it and never sent what it announces.
fn ask(context: &mut Context<'_>) {
    let pending = context
        .work
        .current
        .as_ref()
        .map(|object| Pending::of(object.value()));
    let entries: Vec<PendingEntry> = pending.iter().flat_map(Pending::entries).cloned().collect();
    context.work.unreadable = pending.as_ref().and_then(Pending::unreadable);
    let before = std::mem::take(&mut context.work.known);
    for (slot, entry) in entries.into_iter().enumerate() {
        let now = context.view.now.boot;
        let known = before.get(&entry.key).copied().unwrap_or(Known::seen(now));
        context.work.known.insert(entry.key.clone(), known);
        let fate = match known.never_sent() {
            true => Fate::NeverSent,
            false => {
                let session = context.frame.session(context.work.handle.as_deref());
                let entry = entry.clone();
                context.ask_cloud(slot, Call::Settle { session, entry }, CLUSTER_LONGEST);
                Fate::Open
            }
        };
        context.work.found.push(Entry { entry, fate });
    }
}
