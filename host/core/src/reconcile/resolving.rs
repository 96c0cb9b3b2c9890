//! Resolving: asks the cloud for the outcome of each create that the pass found in doubt.

use super::context::Context;
use super::flow::{Flow, NextPhase, PhaseEvent};
use super::frame::CLUSTER_LONGEST;
use super::role::RoleRun;
use super::work::{EntryHistory, Fate, KnownEntry};
use crate::call::{Call, ManualResolution, PendingEntry, Reply};
use crate::contract::{Resolution, Role};
use crate::pending::Pending;
use crate::shared::guards::Guard;
use crate::time::Boot;

/// The state while the cloud is asked, for all entries at once.
#[derive(Debug, Default)]
pub(crate) struct Resolving {
    /// When the cloud was asked.
    asked_at: Boot,
}

impl Resolving {
    pub(super) fn on_event(mut self, event: PhaseEvent, context: &mut Context<'_>) -> Flow<Self> {
        match event {
            PhaseEvent::Entered => {
                self.asked_at = context.view.now.boot;
                ask(context);
            }
            PhaseEvent::Reply(slot, Reply::Resolved(resolution)) if is_asked(slot, context) => {
                self.on_resolved(slot, resolution, context);
            }
            // After a failure, or without an answer in time, the outcome is unknown.
            PhaseEvent::Reply(slot, Reply::Answer(Err(failure))) if is_asked(slot, context) => {
                self.on_resolved(slot, Resolution::Unknown(failure.to_string()), context);
            }
            PhaseEvent::Cut(slot) if is_asked(slot, context) => {
                let why = "the cloud did not answer in time";
                self.on_resolved(slot, Resolution::Unknown(why.into()), context);
            }
            event => return Flow::unexpected("Resolving", &event),
        }
        if context.work.found.iter().any(|entry| entry.fate == Fate::Open) {
            Flow::Wait(self)
        } else {
            Flow::Enter(NextPhase::Stepping(RoleRun::new(Role::Lifecycle)))
        }
    }

    fn on_resolved(&self, slot: usize, resolution: Resolution, context: &mut Context<'_>) {
        let entry = &context.work.found[slot].entry;
        let resolution = match resolution {
            Resolution::Absent
                if !self.would_be_visible(entry, context) && context.is_guarded(Guard::AbsentTakesTime) =>
            {
                Resolution::Unknown("the result may not be visible yet".into())
            }
            resolution => resolution,
        };
        context.work.found[slot].fate = Fate::Resolved(resolution);
    }

    /// Whether hosts have known of an entry for so long that its create would be visible by now. The adapter
    /// measures that in Unix time, which can jump, so the host measures it again with a clock that cannot.
    fn would_be_visible(&self, entry: &PendingEntry, context: &Context<'_>) -> bool {
        let history = context.work.histories.get(&entry.key);
        let operation = context.frame.binding.catalogue.operations.get(&entry.operation);
        match (history, operation) {
            (Some(history), Some(operation)) => history.waited(self.asked_at) >= operation.visible_within,
            _ => false,
        }
    }
}

/// Whether the cloud was asked for the entry of this slot and has not answered.
fn is_asked(slot: usize, context: &Context<'_>) -> bool {
    let entry = context.work.found.get(slot);
    entry.is_some_and(|entry| entry.fate == Fate::Open)
}

/// Asks the cloud for every entry, except for entries whose create this process certainly never sent.
fn ask(context: &mut Context<'_>) {
    let pending = context.work.current.as_ref().map(Pending::of);
    let entries: Vec<PendingEntry> = pending.iter().flat_map(Pending::entries).cloned().collect();
    context.work.unreadable = pending.as_ref().and_then(Pending::unreadable);
    let before = std::mem::take(&mut context.work.histories);
    for (slot, entry) in entries.into_iter().enumerate() {
        let now = context.view.now.boot;
        let history = before
            .get(&entry.key)
            .copied()
            .unwrap_or(EntryHistory::seen(now, entry.waited));
        context.work.histories.insert(entry.key.clone(), history);
        let asked = context.is_guarded(Guard::EntriesOfOthersAreAskedFor);
        let fate = match (
            &entry.resolved,
            context.frame.binding.catalogue.can_resolve(&entry),
        ) {
            _ if history.never_sent() || !(asked || history.sent) => Fate::NeverSent,
            (Some(ManualResolution::Absent), _) => Fate::Resolved(Resolution::Absent),
            (Some(ManualResolution::Done(answer)), _) => {
                Fate::Resolved(Resolution::Done(answer.to_string().into()))
            }
            (None, Err(why)) => Fate::Resolved(Resolution::Unknown(why)),
            (None, Ok(())) => {
                let session = context.frame.session(context.work.handle.as_deref());
                let entry = entry.clone();
                context.call(slot, Call::Resolve { session, entry }, CLUSTER_LONGEST);
                Fate::Open
            }
        };
        context.work.found.push(KnownEntry { entry, fate });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Code;
    use crate::reconcile::Command;
    use crate::reconcile::Phase;
    use crate::reconcile::fixture::{Fixture, VISIBLE_WITHIN, at, entry, failure, machine, ms};
    use crate::time::millis;
    use serde_json::json;
    use std::time::Duration;

    fn in_doubt() -> Fixture {
        let pending = json!({"status": {"pending": [entry("a"), entry("b")]}});
        Fixture::of(machine(1, pending), &[Role::Lifecycle])
    }

    fn settled(slot: usize, resolution: Resolution) -> PhaseEvent {
        PhaseEvent::Reply(slot, Reply::Resolved(resolution))
    }

    fn unknown() -> Resolution {
        Resolution::Unknown("the cloud is busy".into())
    }

    fn fates(fixture: &Fixture) -> Vec<Fate> {
        fixture
            .work
            .found
            .iter()
            .map(|found| found.fate.clone())
            .collect()
    }

    #[test]
    fn a_pass_without_entries_calls_its_lifecycle_at_once() {
        let mut fixture = Fixture::new();
        let phase = fixture.started();
        let (flow, commands) = fixture.enter(phase);
        assert!(matches!(flow, Flow::Wait(Phase::Stepping(_))), "{flow:?}");
        assert!(matches!(
            commands[..],
            [Command::Call {
                call: Call::Step { .. },
                ..
            }]
        ));
    }

    #[test]
    fn every_entry_is_asked_for_and_the_lifecycle_waits_for_all_of_them() {
        let mut fixture = in_doubt();
        let phase = fixture.started();
        let (flow, commands) = fixture.enter(phase);
        let asks = |c: &Command| {
            matches!(
                c,
                Command::Call {
                    call: Call::Resolve { .. },
                    ..
                }
            )
        };
        assert_eq!(commands.len(), 2);
        assert!(commands.iter().all(asks), "{commands:?}");
        let (flow, _) = fixture.go_on(flow, settled(1, Resolution::Done("{}".into())));
        assert!(matches!(flow, Flow::Wait(Phase::Resolving(_))), "{flow:?}");
        let (flow, _) = fixture.go_on(flow, settled(0, unknown()));
        assert!(matches!(flow, Flow::Wait(Phase::Stepping(_))), "{flow:?}");
        assert_eq!(
            fates(&fixture),
            [
                Fate::Resolved(unknown()),
                Fate::Resolved(Resolution::Done("{}".into()))
            ]
        );
    }

    #[test]
    fn no_answer_and_a_failure_to_look_are_unknown() {
        let mut fixture = in_doubt();
        let phase = fixture.started();
        let (flow, _) = fixture.enter(phase);
        let (flow, _) = fixture.go_on(flow, PhaseEvent::Cut(0));
        let failed = Reply::Answer(Err(failure(Code::Unavailable)));
        fixture.go_on(flow, PhaseEvent::Reply(1, failed));
        let unknown = |why: &str| Fate::Resolved(Resolution::Unknown(why.into()));
        assert_eq!(
            fates(&fixture),
            [
                unknown("the cloud did not answer in time"),
                unknown("unavailable: said the other side")
            ]
        );
    }

    #[test]
    fn absent_counts_once_this_host_has_known_of_the_entry_for_as_long_as_it_may_stay_unseen() {
        for (asked_at, expected) in [
            (
                VISIBLE_WITHIN - ms(1),
                Resolution::Unknown("the result may not be visible yet".into()),
            ),
            (VISIBLE_WITHIN, Resolution::Absent),
        ] {
            let mut fixture = in_doubt();
            fixture
                .work
                .histories
                .insert("a".into(), EntryHistory::seen(Boot(0), Duration::ZERO));
            fixture.now = at(0) + asked_at;
            let phase = fixture.started();
            let (flow, _) = fixture.enter(phase);
            // The time at which the cloud was asked counts, not the time of its answer.
            fixture.now = fixture.now + VISIBLE_WITHIN;
            fixture.go_on(flow, settled(0, Resolution::Absent));
            assert_eq!(
                fates(&fixture)[0],
                Fate::Resolved(expected),
                "asked at {asked_at:?}"
            );
        }
    }

    #[test]
    fn an_entry_that_this_process_wrote_and_never_sent_needs_no_look() {
        let mut fixture = in_doubt();
        fixture
            .work
            .histories
            .insert("a".into(), EntryHistory::written(Boot(0)));
        let sent = EntryHistory {
            sent: true,
            ..EntryHistory::written(Boot(0))
        };
        fixture.work.histories.insert("b".into(), sent);
        let phase = fixture.started();
        let (_, commands) = fixture.enter(phase);
        assert_eq!(commands.len(), 1, "{commands:?}");
        assert_eq!(fates(&fixture), [Fate::NeverSent, Fate::Open]);
    }

    #[test]
    fn what_a_person_says_of_an_entry_counts_and_the_cloud_is_not_asked() {
        let said = |key, resolved| {
            let mut entry = json!(entry(key));
            entry["resolved"] = resolved;
            entry
        };
        let gone = said("gone", json!("absent"));
        // Not even a cloud that could not find it.
        let mut there = said("there", json!({"done": {"id": "vm-7"}}));
        there["stamp"] = json!(99);
        let pending = json!({"status": {"pending": [gone, there, entry("a")]}});
        let mut fixture = Fixture::of(machine(1, pending), &[Role::Lifecycle]);
        let phase = fixture.started();
        let (_, commands) = fixture.enter(phase);
        assert_eq!(commands.len(), 1, "{commands:?}");
        let done = Resolution::Done(json!({"id": "vm-7"}).to_string().into());
        assert_eq!(
            fates(&fixture),
            [
                Fate::Resolved(Resolution::Absent),
                Fate::Resolved(done),
                Fate::Open
            ]
        );
    }

    #[test]
    fn what_is_known_of_entries_that_stand_no_more_is_forgotten() {
        let mut fixture = in_doubt();
        fixture
            .work
            .histories
            .insert("gone".into(), EntryHistory::seen(Boot(0), Duration::ZERO));
        let phase = fixture.started();
        fixture.enter(phase);
        assert_eq!(fixture.work.histories.keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn an_answer_for_an_entry_that_is_not_asked_for_is_a_defect() {
        let failed = || Reply::Answer(Err(failure(Code::Unavailable)));
        for event in [
            settled(0, unknown()),
            settled(2, unknown()),
            PhaseEvent::Reply(0, failed()),
            PhaseEvent::Reply(2, failed()),
            PhaseEvent::Cut(0),
            PhaseEvent::Cut(2),
        ] {
            let mut fixture = in_doubt();
            let phase = fixture.started();
            let (flow, _) = fixture.enter(phase);
            let (flow, _) = fixture.go_on(flow, settled(0, unknown()));
            let told = format!("{event:?}");
            let (flow, _) = fixture.go_on(flow, event);
            assert!(matches!(flow, Flow::Bug(_)), "{told}: {flow:?}");
        }
    }

    #[test]
    fn an_event_that_fits_no_row_is_a_defect() {
        let mut fixture = in_doubt();
        let phase = fixture.started();
        let (flow, _) = fixture.enter(phase);
        let (flow, _) = fixture.go_on(flow, PhaseEvent::Grown);
        assert!(
            matches!(&flow, Flow::Bug(what) if what.starts_with("Resolving got Grown")),
            "{flow:?}"
        );
    }

    #[test]
    fn a_cloud_that_does_not_know_the_stamp_or_the_service_of_an_entry_is_not_asked() {
        for (odd, why) in [
            (json!({"stamp": 2}), "stamp 2"),
            (json!({"service": "vm@2"}), "vm@2"),
            (json!({"operation": "vm.copy"}), "vm.copy"),
        ] {
            let mut entry = entry("a");
            crate::merge::apply(&odd, &mut entry);
            let pending = json!({"status": {"pending": [entry]}});
            let mut fixture = Fixture::of(machine(1, pending), &[Role::Lifecycle]);
            let phase = fixture.started();
            let (_, commands) = fixture.enter(phase);
            let asked = |command: &Command| {
                matches!(
                    command,
                    Command::Call {
                        call: Call::Resolve { .. },
                        ..
                    }
                )
            };
            assert!(!commands.iter().any(asked), "{odd}");
            match &fates(&fixture)[..] {
                [Fate::Resolved(Resolution::Unknown(said))] => assert!(said.contains(why), "{said}"),
                fates => panic!("{fates:?}"),
            }
        }
    }

    #[test]
    fn the_time_that_another_host_has_waited_counts() {
        for (waited, fate) in [
            (VISIBLE_WITHIN - ms(1), None),
            (VISIBLE_WITHIN, Some(Fate::Resolved(Resolution::Absent))),
        ] {
            let mut entry = entry("a");
            entry["waited"] = json!(millis(waited));
            let pending = json!({"status": {"pending": [entry]}});
            let mut fixture = Fixture::of(machine(1, pending), &[Role::Lifecycle]);
            fixture.now = at(0);
            let phase = fixture.started();
            let (flow, _) = fixture.enter(phase);
            fixture.go_on(flow, settled(0, Resolution::Absent));
            match fate {
                Some(fate) => assert_eq!(fates(&fixture), [fate]),
                None => assert!(matches!(&fates(&fixture)[..], [Fate::Resolved(said)] if said.is_unknown())),
            }
        }
    }
}
