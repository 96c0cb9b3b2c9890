//! A service that fails takes no other one with it.

use polity_clouds::catalogue::{Named, machine};
use polity_core::contract::Effect as MayHave;

use crate::event::{Call, Event, Kernel};
use crate::harness::*;
use crate::kernel::kept::{Note, Table};
use crate::services::{Context, Service};
use crate::sim::services;

/// A service with one create, which misbehaves as it is told to.
#[derive(Default)]
struct Bad {
    does: Misdeed,
    /// What it believes, and changes half.
    beliefs: Table<u64, String>,
}

#[derive(Clone, Copy, Default)]
enum Misdeed {
    /// Answers what no schema allows, and creates nothing.
    #[default]
    Nonsense,
    PanicsFirst,
    /// Panics when the VM that it makes is there, and before anybody was told.
    PanicsHalfway,
    PanicsAtEvents,
}

const MAKE: &str = "bad.make";

impl Service for Bad {
    fn operations(&self, visible_within: Duration) -> Vec<Named> {
        let like = machine::operations(visible_within).into_iter();
        let mut creates = like.filter(|(name, _)| *name == machine::CREATE);
        creates
            .next()
            .map(|(_, create)| (MAKE, create))
            .into_iter()
            .collect()
    }

    fn tables(&mut self) -> Vec<(&'static str, &mut dyn Note)> {
        vec![("beliefs", &mut self.beliefs)]
    }

    fn perform(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        self.beliefs.insert(1, "half".to_owned());
        match self.does {
            Misdeed::Nonsense => return Ok(json!([null, {"task": 7}])),
            Misdeed::PanicsFirst => panic!("on purpose"),
            Misdeed::PanicsHalfway | Misdeed::PanicsAtEvents => {}
        }
        let place = cx.vms.place(call, "bad", "thing", true)?;
        let vm = cx.vms.create(cx.kernel, cx.at, call, place);
        cx.vms.start_created(cx.kernel, cx.at, call, vm);
        match self.does {
            Misdeed::PanicsHalfway => panic!("on purpose"),
            _ => Ok(json!({})),
        }
    }

    fn on_event(&mut self, _: &mut Context<'_>, event: &Event) {
        if matches!(self.does, Misdeed::PanicsAtEvents) {
            panic!("on purpose at {event:?}");
        }
    }
}

/// A cloud with the bad service before all others: it hears first of everything.
fn with_bad(does: Misdeed) -> Bench {
    let bad = Bad {
        does,
        ..Bad::default()
    };
    let mut all = services(&plain());
    all.insert(0, Box::new(bad));
    Bench {
        sim: Sim::with_services(all, plain(), |settings| Kernel::new(settings, 7, START)),
        now: START,
    }
}

fn make(b: &mut Bench, name: &str) -> Answer {
    let mut request = request("u", MAKE, json!({"name": name}));
    request.key = Some(name.to_owned());
    b.sim.perform(b.now, &request).answer.expect("an answer")
}

/// What the other services say of a cloud in which two machines, a router and a member of a pool lead their lives.
fn lives(b: &mut Bench, mut between: impl FnMut(&mut Bench)) -> Vec<String> {
    let mut said = Vec::new();
    let mut tell = |b: &mut Bench, operation: &str, arguments: Value| {
        between(b);
        said.push(format!("{:?}", b.call("u", operation, arguments)));
        b.now += 7_000;
        said.push(format!("{:?} {:?}", b.sim.nodes(b.now), b.sim.routers(b.now)));
        said.push(format!("{:?}", b.sim.pool_machines(b.now)));
    };
    tell(b, "machine.create", json!({"name": "m"}));
    let ports = json!([{"network": "net", "mac": "fa:16:3e:00:00:01"}]);
    let boot = json!({"name": "r", "image": "i", "flavor": "f", "ports": ports});
    tell(b, "router.boot", boot);
    tell(
        b,
        "pool.ensure",
        json!({"pools": [{"pool": "w", "tier": "worker"}]}),
    );
    tell(
        b,
        "pool.add-machine",
        json!({"name": "p", "pool": "w", "tier": "worker"}),
    );
    for _ in 0..6 {
        tell(b, "pool.machines", json!({}));
    }
    tell(b, "machine.delete", json!({"name": "m"}));
    tell(b, "machine.status", json!({"name": "m"}));
    said
}

/// Removes numbers. All services share one sequence of numbers, so what one service makes shifts the numbers of the others.
fn without_numbers(said: &[String]) -> Vec<String> {
    let digits = |text: &String| text.chars().filter(|c| !c.is_ascii_digit()).collect();
    said.iter().map(digits).collect()
}

#[test]
fn nonsense_and_a_panic_before_anything_happened_change_nothing_for_others() {
    let expected = lives(&mut Bench::new(plain()), |_| ());
    for does in [Misdeed::Nonsense, Misdeed::PanicsFirst] {
        let mut b = with_bad(does);
        let mut nth = 0;
        let said = lives(&mut b, |b| {
            nth += 1;
            let answer = make(b, &format!("b{nth}"));
            let refused = answer.map_err(|failure| (failure.code, failure.effect));
            match does {
                Misdeed::Nonsense => assert!(refused.is_ok()),
                _ => assert_eq!(refused, Err((Code::Internal, MayHave::Unknown))),
            }
        });
        assert_eq!(said, expected);
    }
}

#[test]
fn what_a_service_left_half_done_is_there_and_harms_nobody() {
    let expected = lives(&mut Bench::new(plain()), |_| ());
    let mut b = with_bad(Misdeed::PanicsHalfway);
    let mut nth = 0;
    let said = lives(&mut b, |b| {
        nth += 1;
        let failure = make(b, &format!("b{nth}")).unwrap_err();
        assert_eq!((failure.code, failure.effect), (Code::Internal, MayHave::Unknown));
    });
    assert_eq!(without_numbers(&said), without_numbers(&expected));
    let made = b.sim.vms(b.now).into_iter().filter(|vm| vm.name.starts_with('b'));
    assert_eq!(made.count(), nth, "the hypervisor has each of them, on");
}

#[test]
fn everybody_hears_of_events_at_which_one_service_panics() {
    let expected = lives(&mut Bench::new(plain()), |_| ());
    let mut b = with_bad(Misdeed::PanicsAtEvents);
    assert_eq!(lives(&mut b, |_| ()), expected);
    assert!(b.sim.panics() > 0, "and nobody overlooks it");
}

#[test]
fn what_was_changed_before_a_panic_is_stored() {
    for does in [Misdeed::PanicsFirst, Misdeed::PanicsHalfway] {
        let mut b = with_bad(does);
        b.sim.note_changes();
        b.sim.changes();
        b.sim.take_dirty();
        make(&mut b, "b").unwrap_err();
        assert!(b.sim.take_dirty());
        let stored = b.sim.changes();
        assert!(stored.iter().any(|change| change.key.table == "beliefs"));
    }
}
